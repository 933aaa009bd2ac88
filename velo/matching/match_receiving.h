/// Receiving messages: posts, probes, what comes, and the data of what has matched.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <unordered_set>

#include "match/grants.h"
#include "match/numbers.h"
#include "velo/base/copy.h"
#include "velo/base/spares.h"
#include "velo/matching/match_peers.h"
#include "velo/matching/match_requests.h"
#include "velo/matching/match_sending.h"
#include "velo/rendezvous/transfers.h"

namespace velo {

/// Owner: Matching. Thread: the engine's, under its lock.
template <class Core>
class MatchReceiving {
  public:
    MatchReceiving(Core& core, MatchPeers<Core>& peers, const MatchSending<Core>& sending,
                   rma::Transfers<Core>& transfers)
        : core_(core), peers_(peers), sending_(sending), transfers_(transfers) {}
    MatchReceiving(const MatchReceiving&) = delete;
    MatchReceiving& operator=(const MatchReceiving&) = delete;
    ~MatchReceiving() {
        for (velo_match_message* message : awaited_) delete message;
    }

    [[gnu::cold]] void open() {
        const velo_params_t& params = core_.options.params;
        const auto record_bytes = static_cast<uint64_t>(params.unexpected_records);
        const auto data_bytes = static_cast<uint64_t>(params.unexpected_bytes);
        receiver_.emplace(match::Receiver::Limits{
            .record_bytes = record_bytes,
            .data_bytes = data_bytes,
            .grants = match::Grants::half_of(record_bytes, data_bytes, core_.options.identity.job_size,
                                             static_cast<uint64_t>(params.unexpected_granted))});
    }
    [[nodiscard]] const std::optional<match::Receiver>& receiver() const { return receiver_; }

    /// `from`: nullptr is any. True: it is done, and not announced.
    bool post(MatchPeer* from, const match::Envelope& envelope, void* buffer, uint64_t capacity,
              velo_match_receive_t& face);
    /// Posts a receive that has nothing to find and nothing to report, as most have. True: it is posted.
    [[nodiscard, gnu::always_inline]] bool post_unheard(const match::Envelope& envelope, void* buffer,
                                                        uint64_t capacity, velo_match_receive_t& face) {
        if (!receiver_->unheard()) [[unlikely]]
            return false;
        receiver_->post_unheard(*new (&face) MatchReceive(buffer, capacity), envelope);
        return true;
    }
    bool cancel(velo_match_receive_t& face);
    bool probe(const MatchPeer* from, const match::Envelope& envelope, velo_match_status_t& status,
               velo_match_message** message);
    bool receive_message(velo_match_message* message, void* buffer, uint64_t capacity,
                         velo_match_receive_t& face);

    /// Data that was fetched is here, or never will be.
    void fetched(velo_rma_t& rma, Status status);
    [[nodiscard]] bool due() const { return offers_due_; }
    /// Offers to senders that were refused.
    void drive();

    // Events of a sender.

    [[gnu::always_inline]] void on_eager(MatchPeer& from, const std::byte* data, uint32_t bytes);
    /// Takes an eager message that may be unexpected, or of this process, or whose sender waits for the match.
    [[gnu::noinline]] void on_other_eager(MatchPeer& from, const std::byte* data, uint32_t bytes);
    void on_request(MatchPeer& from, const std::byte* data, uint32_t bytes);
    void on_ready(MatchPeer& from, const std::byte* data, uint32_t bytes);
    void on_end(MatchPeer& from, const std::byte* data, uint32_t bytes) {
        match::EndHeader end;
        if (!match::read_header(end, data, bytes) || !receiver_->on_end(from.in, end.age))
            return peers_.malformed();
        offers_due_ = true;
    }
    /// A peer has failed.
    [[gnu::cold]] void failed(MatchPeer& peer) {
        receiver_->failed(peer.in);
        offers_due_ = true;
    }
    /// A peer has ended in good order, and all that it sent has been handed in.
    [[gnu::cold]] void closed(MatchPeer& peer);
    /// Data of a message is on its way here.
    [[nodiscard]] bool owes() const { return fetching_ != 0; }
    /// No receive is posted any more, and those that are will never be looked at.
    [[gnu::cold]] void close() {
        for (velo_match_message* message : awaited_) delete message;
        awaited_.clear();
        asking_ = {};
        offers_due_ = false;
    }

  private:
    using WireTag = match::WireTag;
    using Outcome = match::Receiver::Outcome;
    using Answer = match::AnswerHeader;

    static constexpr uint32_t kRepliesMax = 4 * kMatchWindow;  ///< to requests of one peer
    static constexpr uint64_t kTellsMatch = 1ull
                                            << 63;  ///< in a record's number: the sender waits for the match

    /// A receive was matched by a message whose data is with its sender.
    static void matched(MatchReceive& receive, MatchPeer& from, const match::Envelope& envelope,
                        uint64_t number, uint64_t bytes) {
        receive.from = &from;
        receive.number = number & ~kTellsMatch;
        matched(receive, MatchReceive::State::kMatched, envelope, bytes);
    }
    static void matched(MatchReceive& receive, MatchReceive::State state, const match::Envelope& envelope,
                        uint64_t bytes) {
        receive.state = state;
        velo_match_receive_t& face = receive.face();
        face.source = envelope.source;
        face.tag = envelope.tag;
        face.bytes = bytes;
        face.status = VELO_OK;
    }
    [[nodiscard]] static uint64_t fitting(MatchReceive& receive) {
        return std::min(receive.capacity, receive.face().bytes);
    }
    static void copy_in(MatchReceive& receive, uint64_t at, const std::byte* data, uint32_t bytes) {
        if (at >= receive.capacity || bytes == 0) return;
        base::copy_long(static_cast<std::byte*>(receive.buffer) + at, data,
                        std::min<uint64_t>(bytes, receive.capacity - at));
    }
    [[nodiscard]] static match::Arrival plain_arrival(const std::byte* data, uint32_t bytes) {
        const auto head = match::EagerHeader::read(data);
        const uint32_t data_bytes = bytes - static_cast<uint32_t>(sizeof head);
        return {.envelope = head.envelope(), .bytes = data_bytes, .data = data + sizeof head, .data_bytes = data_bytes};
    }
    [[gnu::noinline]] void on_longer_eager(MatchPeer& from, const std::byte* data, uint32_t bytes);
    /// A message was handed up that has matched, and all of it is in place.
    [[gnu::always_inline]] void matched_now(MatchReceive& receive) {
        if (receive.holder != nullptr) [[unlikely]]
            return receive_done(receive);
        core_.events.match_received_now(receive.face());
    }
    [[gnu::noinline]] bool take_up(MatchReceive& receive, const match::Record& record);
    void fetch(MatchReceive& receive, const match::Place& place);
    void has_data(MatchReceive& receive, Status status);
    bool ask_for_data(MatchReceive& receive);
    [[nodiscard]] bool source_gone(const MatchReceive& receive);
    void not_matched(MatchPeer& from);
    void receive_done(MatchReceive& receive);
    void tell_if_due(MatchPeer& to) {
        if (to.in.granted.any_due()) tell_untold(to);
    }
    [[gnu::noinline]] void tell_untold(MatchPeer& to);
    void offer(MatchPeer& to);
    void offers_are_due() {
        if (receiver_->flagged() != 0) [[unlikely]]
            offers_due_ = true;
    }

    Core& core_;
    MatchPeers<Core>& peers_;
    const MatchSending<Core>& sending_;
    rma::Transfers<Core>& transfers_;
    std::optional<match::Receiver> receiver_;
    base::Spares<MatchReceive::Fetch> fetches_;
    match::Numbers<MatchReceive> asking_;  ///< receives that wait for the handle of their data
    /// Messages that a probe has dequeued and that are with their senders: what is left of them at the end.
    std::unordered_set<velo_match_message*> awaited_;
    uint32_t fetching_ = 0;  ///< fetches under way
    bool offers_due_ = false;
};

template <class Core>
inline void MatchReceiving<Core>::on_eager(MatchPeer& from, const std::byte* data, uint32_t bytes) {
    if (bytes < sizeof(match::EagerHeader)) [[unlikely]]
        return on_other_eager(from, data, bytes);
    const match::Arrival arrival = plain_arrival(data, bytes);
    if (!match::EagerHeader::read(data).is_plain()) [[unlikely]]
        return on_other_eager(from, data, bytes);
    if (!match::Unmatched::fits_inside(arrival.bytes, false)) return on_longer_eager(from, data, bytes);
    match::PostedReceive* const fit = receiver_->match_plain(from.in, arrival.envelope);
    if (fit == nullptr) [[unlikely]]
        return on_other_eager(from, data, bytes);
    auto& receive = static_cast<MatchReceive&>(*fit);
    matched(receive, MatchReceive::State::kDone, arrival.envelope, arrival.bytes);
    base::copy_small(receive.buffer, arrival.data, std::min<uint64_t>(arrival.bytes, receive.capacity));
    matched_now(receive);
}

}  // namespace velo
