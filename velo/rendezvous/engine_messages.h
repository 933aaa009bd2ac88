/// Messages to other engines: requests, answers, and memory that is sent in messages. (Those that come are served by
/// velo/engine/serve.h.)
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "velo/base/intrusive_queue.h"
#include "velo/core/peer.h"
#include "velo/core/send_queue.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/engine_wire.h"

namespace velo {

/// The part that operations under a cookie belong to. Thread: the engine's, under its lock.
class CookieOwner {
  public:
    /// The operation that waits under a cookie ends; a cookie that nothing waits under is no error.
    virtual void end(Cookie cookie, Status status, uint64_t value) = 0;

  protected:
    ~CookieOwner() = default;
};

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class EngineMessages final : public SendOwner {
  public:
    using Op = rma::PendingOp<velo_peer>;
    using PendingOps = rma::CookieTable<Op>;

    EngineMessages(Core& core, SendQueue<Core>& queue, PendingOps& pending)
        : core_(core), queue_(queue), pending_(pending) {
        queue_.belongs(Origin::kControl, *this);
        queue_.belongs(Origin::kPush, *this);
    }
    [[gnu::cold]] void reports_to(CookieOwner& operations) { operations_ = &operations; }

    /// Sends a message without data, now or later. An answer too many, to a peer that takes none, is dropped.
    template <class Header>
    void send_control(velo_peer& peer, const Header& header) {
        static_assert(sizeof header <= kControlBytesMax && Header::kOpcode != Opcode::kPullData &&
                      Header::kOpcode != Opcode::kPutData);
        Control* const control = take_control(peer, Header::kOpcode);
        if (control == nullptr) [[unlikely]]
            return;
        write_header(control->header.data(), header);
        send(*control, sizeof header);
    }
    /// Sends memory of this process to be written at the peer, piece after piece. bytes != 0.
    void put(velo_peer& peer, const PutDataHeader& header, uint64_t address, uint64_t bytes) {
        Push& push = take_push(peer, address, bytes);
        push.put = header;
        push.is_put = true;
        push.guarded = header.guarded != 0;
        advance_push(push);
    }
    /// Answers a pull with memory of this process, which is registered by `nla` and `key`. bytes != 0. False: the peer
    /// has asked for more at a time than a well-behaved one can.
    [[nodiscard]] bool answer_pull(velo_peer& peer, const PullHeader& pull, uint64_t nla, uint32_t key,
                                   uint64_t address) {
        if (peer.serving.pulls == kPullsMax) return false;
        ++peer.serving.pulls;
        Push& push = take_push(peer, address, pull.bytes);
        push.pulled = {.cookie = pull.cookie};
        push.is_put = false;
        push.guarded = pull.guarded != 0;
        push.source_nla = nla;
        push.source_key = key;
        advance_push(push);
        return true;
    }
    void send_ended(velo_send_t& send, Status status) override;
    /// A piece of an answered pull that waited, and whose memory was deregistered meanwhile.
    [[nodiscard]] bool is_revoked(const velo_send_t& send) const override {
        if (static_cast<Origin>(send.origin) != Origin::kPush || send.done != 0) return false;
        const auto& push = static_cast<const Push&>(send);
        return is_revoked(push);
    }

  private:
    /// A message that is its header, queued until it has left.
    struct Control : velo_send_t {
        alignas(8) std::array<std::byte, kControlBytesMax> header;
        velo_peer* peer = nullptr;
        Opcode opcode{};
    };
    /// Memory on its way out in messages: the answer to a pull, or a copied put.
    struct Push : velo_send_t {
        PullDataHeader pulled;
        PutDataHeader put;
        bool is_put = false;
        bool guarded = false;
        velo_peer* peer = nullptr;
        uint64_t address = 0;
        uint64_t left = 0;
        uint64_t source_nla = 0;  ///< of an answered pull: revoked, it stops
        uint32_t source_key = 0;
        std::vector<std::byte> piece;  ///< copied out of memory that may be unmapped
    };

    /// Limits of what is kept for each peer of what it asks for; a well-behaved peer cannot exceed them. A
    /// pull holds a cookie of the asker's until it is answered. So does whatever else is answered, but every
    /// piece of a put that fails has an answer of its own.
    static constexpr uint32_t kPullsMax = rma::kPendingOpsMax;
    static constexpr uint32_t kAnswersMax = 2 * rma::kPendingOpsMax;

    [[nodiscard]] static constexpr bool counts_as_answer(Opcode opcode) {
        return opcode == Opcode::kDone || opcode == Opcode::kRail;
    }
    /// An operation of this process waits for the answer.
    [[nodiscard]] static constexpr bool is_request(Opcode opcode) {
        return opcode == Opcode::kPull || opcode == Opcode::kAtomic || opcode == Opcode::kCoopCall ||
               opcode == Opcode::kCoopPart;
    }

    [[nodiscard]] Control* take_control(velo_peer& peer, Opcode opcode);
    void send(Control& control, uint32_t bytes);
    [[nodiscard]] Push& take_push(velo_peer& peer, uint64_t address, uint64_t bytes);
    [[nodiscard]] bool is_revoked(const Push& push) const {
        return push.source_key != 0 && !core_.on_node.atu().view().valid(push.source_nla, push.source_key);
    }
    void advance_push(Push& push);
    [[gnu::cold]] [[nodiscard]] bool copy_piece(Push& push);
    void push_ended(Push& push, Status status);

    Core& core_;
    SendQueue<Core>& queue_;
    PendingOps& pending_;
    CookieOwner* operations_ = nullptr;
    base::IntrusiveQueue<velo_send_t> free_controls_;
    base::IntrusiveQueue<velo_send_t> free_pushes_;
    std::deque<Control> controls_;
    std::deque<Push> pushes_;
};

}  // namespace velo
