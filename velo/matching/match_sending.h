/// Sending messages that the receiver matches: eagerly where it has granted room, otherwise on request.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <span>
#include <vector>

#include "match/numbers.h"
#include "velo/base/spares.h"
#include "velo/core/send_queue.h"
#include "velo/matching/match_peers.h"
#include "velo/matching/match_requests.h"
#include "velo/rendezvous/registrations.h"

namespace velo {

/// Owner: Matching. Thread: the engine's, under its lock.
template <class Core>
class MatchSending final : public SendOwner {
  public:
    MatchSending(Core& core, MatchPeers<Core>& peers, SendQueue<Core>& queue,
                 rma::Registrations<Core>& registrations)
        : core_(core), peers_(peers), queue_(queue), registrations_(registrations) {
        queue_.belongs(Origin::kMatchSend, *this);
    }

    /// Sends a message of any length, now or later. True: it is done. `waited`: set when it is done later, instead of
    /// the host's being notified; nullptr: nothing is.
    bool send(MatchPeer& to, const match::Envelope& envelope, const void* data, uint64_t bytes, bool synchronous,
              velo_match_send_t& face, volatile bool* waited = nullptr);
    /// True: a short message has left, in granted room, and is done. False: nothing has happened.
    [[gnu::noinline]] bool try_send(MatchPeer& to, const match::Envelope& envelope, const void* data, uint64_t bytes);
    void send_ended(velo_send_t& message, Status status) override;
    /// Messages whose data could not be registered before.
    [[nodiscard]] bool due() const { return !unready_.empty(); }
    void drive() {
        for (const Unready& next : std::exchange(unready_, {})) {
            if (MatchSend* const send = numbers_.find(next.number)) make_ready(*send, next.receive);
        }
    }
    /// Messages wait, or their data does.
    [[nodiscard]] bool busy() const { return numbers_.taken() != 0 || leaving_ != 0; }
    /// A message waits for a peer that will help it on.
    [[nodiscard]] bool owes() const {
        return leaving_ != 0 ||
               numbers_.any_of([this](const MatchSend& send) { return fate_of(send) == Fate::kWaits; });
    }
    /// A peer has left or ended: the messages to it that it will never receive end.
    [[gnu::cold]] void settle(MatchPeer& to);
    /// Every message has ended, or its peer has. None is looked at again.
    [[gnu::cold]] void close() {
        numbers_ = {};
        unready_.clear();
    }
    /// The data of a message of this process to itself, of which it has the number.
    [[nodiscard]] const void* data_of(const MatchPeer& self, uint64_t number) const {
        const MatchSend* const send = find_send(self, number);
        VELO_CHECK(send != nullptr, "a message to this process has gone");
        return send->data;
    }

    // Events of a receiver.

    void on_answer(MatchPeer& from, const std::byte* data, uint32_t bytes);
    void on_grant(MatchPeer& from, match::Room room) {
        if (!from.out.granted(room)) peers_.malformed();
    }
    void on_offers(MatchPeer& from, const std::byte* data, uint32_t bytes);
    void on_clear_to_send(MatchPeer& from, const std::byte* data, uint32_t bytes);
    void on_done(MatchPeer& from, const std::byte* data, uint32_t bytes);

  private:
    using WireTag = match::WireTag;
    using Answer = match::AnswerHeader;

    /// Shorter ones are sent along with each request.
    static constexpr uint64_t kRefusedBytesMax = 128;

    struct Unready {
        uint64_t number;
        uint64_t receive;
    };

    [[nodiscard]] static std::span<const std::byte> bytes_of(const void* data, uint64_t bytes) {
        return {static_cast<const std::byte*>(data), bytes};
    }
    static constexpr uint32_t kShortBytesMax = EagerChoice::kBytesMin - 1;

    [[nodiscard]] static bool has_choice(const MatchPeer& to, uint64_t bytes) {
        return bytes >= EagerChoice::kBytesMin && bytes <= EagerChoice::kBytesMax && to.peer != nullptr &&
               to.peer->path == VELO_PATH_ON_NODE;
    }
    /// A fetch is its way now, though it fits the path.
    [[nodiscard]] static bool is_fetched(MatchPeer& to, uint64_t bytes) {
        if (!has_choice(to, bytes)) return false;
        if (to.choice == nullptr) to.choice = std::make_unique<EagerChoice>();
        return !to.choice->eager(bytes);
    }
    /// The message has ended, for the choice of the next one's way.
    void tell_choice(const MatchSend& send) const {
        if (send.to->choice == nullptr || !has_choice(*send.to, send.bytes)) [[likely]]
            return;
        send.to->choice->ended(send.bytes, !send.fetched, [this] { return core_.system.now_ns(); });
    }
    void pump(MatchPeer& to);
    void request(MatchSend& send, const match::WaitingSends::Machine::Next& next);
    void leave(MatchSend& send, WireTag tag, std::span<const std::byte> header);
    [[nodiscard]] bool expose(MatchSend& send);
    void make_ready(MatchSend& send, uint64_t receive);
    void send_done(MatchSend& send);
    [[nodiscard]] Fate fate_of(const MatchSend& send) const {
        return fate(Owed::kReceive, peers_.host(), peers_.state_of(*send.to));
    }
    [[gnu::cold]] void settle_one(MatchSend& send);
    [[nodiscard]] MatchSend* find_send(const MatchPeer& from, uint64_t number) const {
        MatchSend* const send = numbers_.find(number);
        return send != nullptr && send->to == &from ? send : nullptr;
    }

    Core& core_;
    MatchPeers<Core>& peers_;
    SendQueue<Core>& queue_;
    rma::Registrations<Core>& registrations_;
    match::Numbers<MatchSend> numbers_;
    base::Spares<MatchSend::Message> messages_;
    std::vector<Unready> unready_;
    uint32_t leaving_ = 0;  ///< messages that are in the queue of messages
};

}  // namespace velo
