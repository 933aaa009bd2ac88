/// The receiving side of matching in bounded memory (MEM 4): queues, refusals, offers, grants, probes as one
/// machine.
///
/// A message arrives eagerly, in room that its sender was granted, or as a request, which may bring data
/// along. Either it is matched, or it gets a record; if there is no memory for its data, one without it
/// (MEM's NCTSD). If there is none for a record, the message is refused (NCTS) and stays with its sender. The
/// caller answers each request once, with the outcome.
///
/// Pure: no clock, no lock, no I/O. Owner: the match engine. Thread: the engine's, under its lock. Invariant:
/// records, data and what is granted of either are within their budgets, always. Walked in step with the
/// explored model: tests/exhaustive/match_receiver_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "match/data_cells.h"
#include "match/granted.h"
#include "match/grants.h"
#include "match/offers.h"
#include "match/posted_queue.h"
#include "match/probe_watches.h"
#include "match/unexpected_queue.h"
#include "match/unmatched.h"
#include "velo/base/check.h"

namespace velo::match {

class Receiver {
  public:
    struct Limits {
        uint64_t record_bytes = 0;
        uint64_t data_bytes = 0;
        ProbeWatches::Limits probes = {};
        Grants::Terms grants = {};
    };

    /// A process that sends, as this one knows it. It stays where it is until ended().
    struct Sender {
        Offers::Sender offers;
        Sender* flagged_before = nullptr;  ///< in the ring of those that are flagged
        Sender* flagged_behind = nullptr;
        uint32_t probe_round = 0;  ///< the last one that was offered to it, since it is flagged
        uint32_t peer = 0;         ///< the caller's number for it
        Granted granted;
    };
    static_assert(sizeof(Sender) == 64);

    enum class Outcome : uint8_t {
        kMatched,    ///< with `receive`, which is not posted any more
        kRecorded,   ///< `record` has it, and all data that came along
        kDataless,   ///< `record` has it; its data is with the sender
        kRefused,    ///< nothing of it is here
        kUngranted,  ///< an eager message that no grant known to its sender allows: the sender's mistake
    };
    struct Result {
        Outcome outcome = Outcome::kRefused;
        PostedReceive* receive = nullptr;
        RecordRef record = kNoRecord;
    };
    struct Probed {
        bool found = false;
        Envelope envelope;
        uint32_t peer = 0;
        uint64_t bytes = 0;
        RecordRef record = kNoRecord;  ///< none: the message is with its sender
    };

    explicit Receiver(Limits limits)
        : unexpected_(limits.record_bytes),
          cells_(limits.data_bytes),
          watches_(limits.probes),
          grants_(limits.grants) {}
    Receiver(const Receiver&) = delete;
    Receiver& operator=(const Receiver&) = delete;

    // Events of a sender.

    [[nodiscard]] Result on_request(Sender& sender, const Arrival& arrival, uint32_t age, bool first) {
        VELO_DCHECK(is_checked(arrival), "a request of rank %d, tag %d", arrival.envelope.source,
                    arrival.envelope.tag);
        Refusals& refusals = sender.offers.refusals;
        refusals.told_waiting(arrival.waiting_width);
        Posted* const fit = posted_.find(arrival.envelope);
        const PostNumber number = fit == nullptr ? kNoPost : fit->number;
        switch (refusals.on_request(age, first, number)) {
            case Refusals::Verdict::kMatch: return matched(sender, arrival, *fit);
            case Refusals::Verdict::kRefuse:
                if (age == refusals.age())
                    watches_.on_refused(found(sender.peer, arrival), number, sender.probe_round);
                return {};
            case Refusals::Verdict::kRecord: break;
        }
        const RecordRef ref = unexpected_.add(arrival.envelope);
        if (ref == kNoRecord) {
            const uint32_t told = refusals.flagged() ? sender.probe_round : ProbeWatches::kAllRounds;
            if (!refusals.flagged()) link(sender);
            offers_.refused(sender.offers, posted_.next_number());
            watches_.on_refused(found(sender.peer, arrival), number, told);
            return {};
        }
        watches_.on_accepted(found(sender.peer, arrival));
        return {.outcome = keep(sender, arrival, ref, false), .record = ref};
    }

    [[nodiscard]] Result on_eager(Sender& sender, const Arrival& arrival) {
        VELO_DCHECK(is_checked(arrival), "a message of rank %d, tag %d", arrival.envelope.source,
                    arrival.envelope.tag);
        const uint32_t cells = Unmatched::cells_of(arrival.data_bytes, arrival.keeps_number);
        if (!sender.granted.allows(cells) || arrival.data_bytes != arrival.bytes)
            return {.outcome = Outcome::kUngranted};
        if (PostedReceive* const receive = match_eager(sender, arrival)) return {Outcome::kMatched, receive};
        sender.granted.use(cells);
        const RecordRef ref = unexpected_.add_reserved(arrival.envelope);
        return {.outcome = keep(sender, arrival, ref, true), .record = ref};
    }
    /// Matches an eager message that has nothing but its data, as most do. nullptr: nothing has changed;
    /// on_eager() knows why.
    [[nodiscard, gnu::always_inline]] PostedReceive* match_eager(Sender& sender, const Arrival& arrival) {
        const uint32_t cells = Unmatched::cells_of(arrival.data_bytes, arrival.keeps_number);
        if (!sender.granted.allows(cells)) [[unlikely]]
            return nullptr;
        Posted* const fit = posted_.take(arrival.envelope);
        if (fit == nullptr) return nullptr;
        // Its room was not needed, and is the sender's again.
        sender.granted.give_back(cells);
        PostedReceive& receive = of(*fit);
        if (!undisturbed()) [[unlikely]] {
            Offers::gone(receive);
            watches_.on_accepted(found(sender.peer, arrival));
        }
        return &receive;
    }
    /// Matches an eager message whose data would fit into a record. nullptr: no posted receive fits, or
    /// something else has to be looked at; nothing has changed.
    [[nodiscard, gnu::always_inline]] PostedReceive* match_plain(Sender& sender, const Envelope& envelope) {
        VELO_DCHECK(is_of_message(envelope), "a message of rank %d, tag %d", envelope.source, envelope.tag);
        if (!sender.granted.give_back_plain()) [[unlikely]]
            return nullptr;
        Posted* const fit = undisturbed() ? posted_.take(envelope) : nullptr;
        if (fit == nullptr) [[unlikely]]
            sender.granted.undo_plain();
        return reinterpret_cast<PostedReceive*>(fit);  // its first member
    }

    /// False: it ends no pass; a mistake of the sender's.
    [[nodiscard]] bool on_end(Sender& sender, uint32_t age) {
        if (!sender.offers.refusals.on_end(age)) return false;
        if (restarted_ == &sender) restarted_ = nullptr;
        return true;
    }

    // Calls of the program.

    /// Posts a receive, or returns a message that came before and fits, for take() to dequeue. kNoRecord: the
    /// receive is posted, and stays where it is until it is matched or withdrawn. `named`: the sender that it
    /// names, if that one has sent anything.
    [[nodiscard]] RecordRef post(PostedReceive& receive, const Envelope& envelope, Sender* named) {
        if (unexpected_.size() != 0) {
            const RecordRef ref = unexpected_.find(envelope);
            if (ref != kNoRecord) return ref;
        }
        posted_.post(receive.posted, envelope);
        receive.list = nullptr;
        if (!undisturbed()) [[unlikely]]
            tell_of_post(receive, named);
        return kNoRecord;
    }
    /// Nothing has come before its receive, and no sender or probe waits for one: post() would do no more than
    /// post_unheard().
    [[nodiscard]] bool unheard() const {
        return (unexpected_.size() | offers_.flagged() | watches_.size()) == 0;
    }
    [[gnu::always_inline]] void post_unheard(PostedReceive& receive, const Envelope& envelope) {
        receive.list = nullptr;
        posted_.post(receive.posted, envelope);
    }
    void withdraw(PostedReceive& receive) {
        posted_.withdraw(receive.posted);
        Offers::gone(receive);
    }

    /// Without a result, the senders are asked for messages that they still have, and the caller probes again
    /// later. `named`: as for post().
    [[nodiscard]] Probed probe(const Envelope& pattern, const Sender* named) {
        const RecordRef ref = unexpected_.find(pattern);
        if (ref != kNoRecord) {
            watches_.end(pattern);
            const Unmatched message(unexpected_.at(ref));
            return {true, message.envelope(), message.peer(), message.bytes(), ref};
        }
        if (const auto answer = watches_.ask(pattern))
            return {true, answer->envelope, answer->peer, answer->bytes, kNoRecord};
        const bool any = pattern.source == kAnySource;
        if (any ? flagged_ == nullptr : named == nullptr || !named->offers.refusals.flagged()) return {};
        if (watches_.rounds_run_out()) [[unlikely]] {
            for_each_flagged([](Sender& sender) { sender.probe_round = 0; });
            watches_.count_rounds_anew();
        }
        watches_.watch(pattern, any ? ProbeWatches::kAnyPeer : named->peer,
                       [this](uint32_t peer, uint32_t round) { return has_seen(peer, round); });
        return {};
    }
    /// A message that was found here is out of the queue.
    [[nodiscard]] Record take(RecordRef ref) {
        const Record record = unexpected_.at(ref);
        const Unmatched message(record);
        if (watches_.size() != 0) [[unlikely]]
            watches_.on_accepted({message.envelope(), message.peer(), message.number(), message.bytes()});
        unexpected_.remove(ref);
        // It goes back to its sender with the data's room, and to no other message before.
        if (message.granted()) unexpected_.reserve_freed();
        return record;
    }

    // Messages that were dequeued.

    /// Calls visit(data, bytes) for each piece of a message's data that is here, in order.
    template <class Visit>
    void for_each_piece(const Record& taken, Visit&& visit) const {
        const Unmatched message(taken);
        if (!message.inside()) {
            cells_.for_each_piece(message.cells(), message.bytes_here(), visit);
        } else if (message.bytes() != 0) {
            visit(message.data_inside(), message.bytes_here());
        }
    }
    /// The handle that came instead of data, of this length. False: there is none.
    [[nodiscard]] bool read_handle(const Record& taken, std::byte* to, uint32_t bytes) const {
        const Unmatched message(taken);
        if (bytes == 0 || message.handle_bytes() != bytes) return false;
        cells_.for_each_piece(message.cells(), bytes, [&to](const std::byte* data, uint32_t piece) {
            std::memcpy(to, data, piece);
            to += piece;
        });
        return true;
    }
    /// Frees the memory of a dequeued message. `sender`: that of the message, nullptr if it has ended.
    void release(const Record& taken, Sender* sender) {
        const Unmatched message(taken);
        VELO_DCHECK(sender == nullptr || sender->peer == message.peer(), "a message of peer %u",
                    message.peer());
        const uint32_t cells = message.inside() ? 0 : DataCells::cells_of(message.bytes_here());
        if (!message.inside()) cells_.free(message.cells());
        if (!message.granted()) return;
        if (sender == nullptr) {
            grants_.take_back({1, cells});
            return unexpected_.unreserve(1);
        }
        if (cells != 0) VELO_CHECK(cells_.reserve(cells), "cells that were freed are not free");
        sender->granted.give({1, cells});
    }

    // Events for a sender.

    /// Room for these messages and their data belongs to the sender, however others fill the queue.
    /// False: there is not so much, and nothing has changed.
    [[nodiscard]] bool grant(Sender& sender, Room room) {
        const bool allowed = sender.granted.fits(room) && grants_.allows(room);
        if (!allowed || !unexpected_.reserve(room.records())) return false;
        if (!cells_.reserve(room.cells())) {
            unexpected_.unreserve(room.records());
            return false;
        }
        grants_.grant(room);
        sender.granted.give(room);
        return true;
    }
    /// Grants room to the sender of a request that was accepted, as Grants decides. `held`: granted to it so far, from
    /// its first request on. Without memory for all of it nothing is granted, and its messages are requested.
    void grant_more(Sender& sender, Room& held, uint64_t bytes) {
        const Room room = grants_.next(held, {.bytes = bytes,
                                              .told_records = sender.granted.told().records(),
                                              .waiting = sender.offers.refusals.waiting_max()});
        if (!room.empty() && grant(sender, room)) held += room;
    }
    /// False: there is nothing to tell the sender now. Otherwise `batch` is sent to it.
    [[nodiscard]] bool next_offer(Sender& sender, Offers::Batch& batch) {
        Refusals& refusals = sender.offers.refusals;
        if (!refusals.flagged() || refusals.pass_open()) return false;
        const bool probed = watches_.unoffered(sender.peer, sender.probe_round);
        if (offers_.next(sender.offers, posted_.next_number(), batch)) {
            if (batch.resend_all) unlink(sender);
        } else if (probed) {
            batch = {};
            batch.age = refusals.offer(posted_.next_number());
        } else {
            return false;
        }
        if (probed && !batch.resend_all) {
            sender.probe_round = watches_.offer(
                sender.peer, sender.probe_round,
                [&batch](const Envelope& pattern) { batch.receives[batch.count++] = pattern; });
        }
        return true;
    }
    /// A sender that is to send all that waits again, with the age that resend_all() gives, since there is
    /// memory for more records; nullptr: none. One at a time, in turn, and only once there is memory for a good part of
    /// its messages: each pass costs the sender's whole queue.
    [[nodiscard]] Sender* next_to_restart() const {
        const uint64_t free = unexpected_.free_bytes();
        const uint64_t wanted =
            std::max<uint64_t>(unexpected_.budget().limit() / kRestartPart, sizeof(Record));
        if (flagged_ == nullptr || restarted_ != nullptr || free < wanted) return nullptr;
        Sender* sender = flagged_;
        do {
            const Refusals& refusals = sender->offers.refusals;
            if (!refusals.pass_open() && refusals.waiting_max() <= kPassParts * free / sizeof(Record)) return sender;
            sender = sender->flagged_behind;
        } while (sender != flagged_);
        return nullptr;
    }
    [[nodiscard]] uint32_t resend_all(Sender& sender) {
        unlink(sender);
        restarted_ = &sender;
        return offers_.resend_all(sender.offers);
    }
    /// Calls visit(sender) for each one that offers may be for. It may stop being one meanwhile.
    template <class Visit>
    void for_each_flagged(Visit&& visit) {
        uint32_t left = offers_.flagged();
        for (Sender* sender = flagged_; left-- != 0;) {
            Sender* const behind = sender->flagged_behind;
            visit(*sender);
            sender = behind;
        }
    }

    /// The process has failed: what it sent and was not received is dropped, and its room is for others.
    void failed(Sender& sender) {
        for (RecordRef ref = unexpected_.oldest(); ref != kNoRecord;) {
            const RecordRef newer = unexpected_.newer(ref);
            if (unexpected_.at(ref).peer == sender.peer) release(take(ref), nullptr);
            ref = newer;
        }
        closed(sender);
    }
    /// The process has ended in good order, and all that it sent has been handed in: its messages stay to be received,
    /// and the room that it was granted and has not used is for others. A message of it is released without a sender.
    void closed(Sender& sender) {
        watches_.on_ended(sender.peer);
        if (sender.offers.refusals.flagged()) unlink(sender);
        if (restarted_ == &sender) restarted_ = nullptr;
        offers_.ended(sender.offers);
        const Room left = sender.granted.take_all();
        grants_.take_back(left);
        unexpected_.unreserve(left.records());
        cells_.unreserve(left.cells());
    }

    [[nodiscard]] const PostedQueue<>& posted() const { return posted_; }
    [[nodiscard]] uint32_t unexpected() const { return unexpected_.size(); }
    [[nodiscard]] const Budget& record_budget() const { return unexpected_.budget(); }
    [[nodiscard]] const Budget& data_budget() const { return cells_.budget(); }
    [[nodiscard]] const Grants& grants() const { return grants_; }
    [[nodiscard]] uint32_t flagged() const { return offers_.flagged(); }

  private:
    /// A sender repeats its whole queue only when this part of the records' budget is free.
    static constexpr uint64_t kRestartPart = 8;
    /// A sender repeats its queue only when there is memory for one of this number of its messages. (With 16,
    /// senders of many messages sent each of them five times.)
    static constexpr uint64_t kPassParts = 4;

    [[nodiscard]] static PostedReceive& of(Posted& posted) {
        return reinterpret_cast<PostedReceive&>(posted);  // its first member
    }
    [[nodiscard]] static ProbeWatches::Found found(uint32_t peer, const Arrival& arrival) {
        return {arrival.envelope, peer, arrival.number, arrival.bytes};
    }
    /// No sender or probe waits for receives to be posted or for messages to be matched: of neither is anything listed.
    [[nodiscard, gnu::always_inline]] bool undisturbed() const { return (offers_.flagged() | watches_.size()) == 0; }
    [[nodiscard]] Result matched(const Sender& sender, const Arrival& arrival, Posted& fit) {
        PostedReceive& receive = of(fit);
        withdraw(receive);
        watches_.on_accepted(found(sender.peer, arrival));
        return {.outcome = Outcome::kMatched, .receive = &receive};
    }
    [[gnu::noinline]] void tell_of_post(PostedReceive& receive, Sender* named) {
        const Envelope& envelope = receive.posted.envelope;
        if (envelope.source == kAnySource || named != nullptr)
            offers_.posted(receive, envelope.source == kAnySource ? nullptr : &named->offers);
        watches_.on_posted(envelope);
    }
    /// `peer`, or each sender that is flagged, has seen the round of probes, and what fits it has come again.
    [[nodiscard]] bool has_seen(uint32_t peer, uint32_t round) {
        bool all = true;
        for_each_flagged([&](const Sender& sender) {
            if (peer != ProbeWatches::kAnyPeer && peer != sender.peer) return;
            all = all && sender.probe_round >= round && !sender.offers.refusals.pass_open();
        });
        return all;
    }
    [[nodiscard]] Outcome keep(const Sender& sender, const Arrival& arrival, RecordRef ref, bool granted) {
        Record& record = unexpected_.at(ref);
        record.peer = sender.peer;
        const bool whole = arrival.data_bytes == arrival.bytes;
        if (whole && Unmatched::fits_inside(arrival.bytes, arrival.keeps_number)) {
            Unmatched::write_inside(record, arrival, granted);
            return Outcome::kRecorded;
        }
        const bool has_handle = arrival.handle_bytes != 0;
        const CellRef cells = granted      ? cells_.store_reserved(arrival.data, arrival.data_bytes)
                              : has_handle ? cells_.store(arrival.handle, arrival.handle_bytes)
                                           : cells_.store(arrival.data, arrival.data_bytes);
        Unmatched::write(record, arrival, cells, granted);
        return cells != kNoCell || arrival.data_bytes == 0 ? Outcome::kRecorded : Outcome::kDataless;
    }

    /// Whether the caller has tested what the peer sent.
    [[nodiscard]] static constexpr bool is_checked(const Arrival& arrival) {
        return is_of_message(arrival.envelope) && arrival.data_bytes <= arrival.bytes &&
               (arrival.data_bytes == 0 || arrival.handle_bytes == 0);
    }
    void link(Sender& sender) {
        VELO_CHECK(sender.flagged_behind == nullptr, "peer %u is flagged twice", sender.peer);
        sender.probe_round = 0;
        if (flagged_ == nullptr) {
            sender.flagged_before = sender.flagged_behind = flagged_ = &sender;
            return;
        }
        sender.flagged_behind = flagged_;
        sender.flagged_before = flagged_->flagged_before;
        flagged_->flagged_before = sender.flagged_before->flagged_behind = &sender;
    }
    void unlink(Sender& sender) {
        VELO_CHECK(flagged_ != nullptr && sender.flagged_behind != nullptr, "peer %u is not flagged",
                   sender.peer);
        sender.flagged_before->flagged_behind = sender.flagged_behind;
        sender.flagged_behind->flagged_before = sender.flagged_before;
        if (flagged_ == &sender)
            flagged_ = sender.flagged_behind == &sender ? nullptr : sender.flagged_behind;
        sender.flagged_before = sender.flagged_behind = nullptr;
    }

    PostedQueue<> posted_;
    UnexpectedQueue<> unexpected_;
    DataCells cells_;
    Offers offers_;
    ProbeWatches watches_;
    Grants grants_;
    Sender* flagged_ = nullptr;    ///< the one whose turn it is
    Sender* restarted_ = nullptr;  ///< sends all that waits again, and has not ended that
};

}  // namespace velo::match
