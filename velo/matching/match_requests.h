/// Requests of matching as the engine has them, and its state of a peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "match/outgoing.h"
#include "match/receiver.h"
#include "velo/matching/eager_choice.h"
#include "velo/velo_match.h"
#include "velo/wire/match_wire.h"

struct velo_peer;

/// A process that messages are matched with. Owner: Matching. It stays while the engine is open.
struct velo_match_peer {
    velo::match::Receiver::Sender in;
    velo::match::Outgoing out;
    velo_peer* peer = nullptr;     ///< nullptr: this process, or one that has ended and was given up
    uint32_t eager_bytes_max = 0;  ///< data of one message
    uint32_t replies = 0;          ///< to it that wait to be sent
    std::unique_ptr<velo::EagerChoice> choice;  ///< from its first long message on, on the node
    velo::match::Room granted;  ///< in all, for messages of it that leave without a request
    bool refuses = false;  ///< it has no memory for messages that no receive waits for
    bool asks = false;     ///< it waits to hear of messages that it has sent here
    bool told_left = false;  ///< that no receive follows here
    bool finished = false;   ///< nothing more comes from it, and its room was given up
};

namespace velo {

using MatchPeer = velo_match_peer;

/// Requests to a peer that have no answer yet.
inline constexpr uint32_t kMatchWindow = 16;

/// A send, in velo_match_send_t::engine. A WaitingSend until it is accepted.
struct MatchSend : match::WaitingSend {
    /// On its way, with the header in front of its data.
    struct Message : velo_send_t {
        MatchSend* send = nullptr;
        alignas(8) std::array<std::byte, sizeof(match::RequestHeader) + sizeof(match::Place)> header;
    };
    MatchPeer* to = nullptr;
    const void* data = nullptr;
    uint64_t bytes = 0;
    volatile bool* waited = nullptr;  ///< set when it is done, where a caller waits; nullptr: the host is notified
    uint64_t number = 0;        ///< by which the receiver names it
    velo_handle_t handle = {};  ///< of its data, once that is registered
    enum class State : uint8_t {
        kEager,      ///< done as soon as it has left
        kWaits,      ///< to be accepted
        kDataless,   ///< accepted, and its data is still here
        kUnmatched,  ///< synchronous; all of it is at the receiver
    };
    State state = State::kEager;
    bool synchronous = false;
    bool fetched = false;  ///< although the path could carry it
    bool leaving = false;  ///< its Message is in the queue of messages
    bool registered = false;

    [[nodiscard]] match::Place place() const { return {reinterpret_cast<uint64_t>(data), handle}; }
    [[nodiscard]] velo_match_send_t& face() {
        return *std::launder(reinterpret_cast<velo_match_send_t*>(this));
    }
};
static_assert(sizeof(MatchSend) <= sizeof(velo_match_send_t) &&
              alignof(MatchSend) <= alignof(velo_match_send_t));

/// A receive, in velo_match_receive_t::engine.
struct MatchReceive : match::PostedReceive {
    /// The fetch of the data of a matched receive.
    struct Fetch : velo_rma_t {
        MatchReceive* receive;
    };
    enum class State : uint8_t {
        kPosted,   ///< it can be matched, and withdrawn
        kMatched,  ///< by a message whose data is not here yet
        kDone,     ///< received or withdrawn; the host has heard of it, or will
    };
    MatchReceive(void* to, uint64_t room) : buffer(to), capacity(room) {}

    void* buffer;
    uint64_t capacity;
    /// Sender of the data that a matched one waits for.
    MatchPeer* from;
    uint64_t number;  ///< the sender's, of the message with that data
    /// The matching probe that has found the message, which is still with its sender.
    velo_match_message* holder = nullptr;
    State state = State::kPosted;

    [[nodiscard]] bool done() const { return state == State::kDone; }
    [[nodiscard]] velo_match_receive_t& face() {
        return *std::launder(reinterpret_cast<velo_match_receive_t*>(this));
    }
    [[nodiscard]] static MatchReceive& of(velo_match_receive_t& face) {
        return *std::launder(reinterpret_cast<MatchReceive*>(&face));
    }
};
static_assert(offsetof(velo_match_receive_t, from) >= sizeof(MatchReceive));

}  // namespace velo

/// A dequeued message: as its record, or, where it has been with its sender, as a receive that is posted for it.
struct velo_match_message {
    bool posted = false;
    velo::match::Record record = {};
    velo::MatchReceive* receive = nullptr;  ///< the host's, as soon as that is known
    velo_match_receive_t place = {};
    std::unique_ptr<std::byte[]> data;
};
