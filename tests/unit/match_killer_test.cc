/// Both ends of matching in bounded memory, as velo has them, in the program that the paper ends other MPIs
/// with (MEM 5.1, figure 11): each of many senders sends its messages at once, and the receiver takes them in
/// reverse order.
#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "match/outgoing.h"
#include "match/receiver.h"

namespace velo::match {
namespace {

struct Killer {
    uint32_t senders = 1;
    uint32_t messages = 1;  ///< of each
    uint64_t records = 0;   ///< budget
    uint16_t granted = 0;   ///< of each sender, beside the budget
    uint32_t bytes = 8;
    bool forward = false;  ///< the first message is received first
    uint32_t window = 4;
};

struct Totals {
    uint64_t requests = 0;
    uint64_t offers = 0;
    uint64_t full_passes = 0;
    uint64_t eager = 0;
    uint64_t records_max = 0;
    uint64_t cells_max = 0;
};

/// Senders and receiver with a channel in order each way between them.
class Exchange {
  public:
    Exchange(const Killer& killer, uint64_t seed)
        : killer_(killer),
          random_(seed),
          receiver_({(killer.records + uint64_t{killer.senders} * killer.granted) * sizeof(Record),
                     uint64_t{killer.senders} * killer.granted * DataCells::kCellBytes}),
          peers_(killer.senders),
          known_(killer.senders) {
        for (uint32_t i = 0; i < killer.senders; ++i) {
            known_[i].peer = i;
            EXPECT_TRUE(receiver_.grant(known_[i], {killer.granted, killer.granted}));
            EXPECT_TRUE(peers_[i].outgoing.granted(known_[i].granted.take_untold()));
            for (uint32_t tag = 1; tag <= killer.messages; ++tag) send(i, static_cast<int32_t>(tag));
        }
    }

    /// Empty: all ended as it must.
    std::string play() {
        const uint64_t all = uint64_t{killer_.senders} * killer_.messages;
        for (uint32_t i = 0; i < killer_.senders; ++i) wake(i);
        post_next();
        while (!active_.empty() && error_.empty()) {
            const size_t at = random_() % active_.size();
            const uint32_t i = active_[at];
            if (step(i)) continue;
            peers_[i].active = false;
            active_[at] = active_.back();
            active_.pop_back();
        }
        if (!error_.empty()) return error_;
        if (received_ != all) return "nothing moves any more";
        for (Peer& peer : peers_) {
            if (!peer.outgoing.waiting().empty()) return "a message is still waiting";
        }
        totals_.records_max = receiver_.record_budget().used_max() / sizeof(Record);
        totals_.cells_max = receiver_.data_budget().used_max() / DataCells::kCellBytes;
        return {};
    }
    [[nodiscard]] const Totals& totals() const { return totals_; }

  private:
    struct ToReceiver {
        enum class Kind : uint8_t { kEager, kRequest, kEnd };
        Kind kind;
        int32_t tag = 0;
        uint32_t age = 0;
        bool first = false;
        uint32_t waiting = 1;
    };
    struct ToSender {
        enum class Kind : uint8_t { kAccepted, kRefused, kOffers, kResendAll, kGrant };
        Kind kind;
        int32_t tag = 0;
        uint32_t age = 0;
        Offers::Batch batch = {};
        Room grant = {};
    };
    struct Peer {
        Outgoing outgoing;
        std::deque<WaitingSend> sends;  ///< by tag
        std::deque<ToReceiver> to_receiver;
        std::deque<ToSender> to_sender;
        bool active = false;
    };

    void send(uint32_t i, int32_t tag) {
        Peer& peer = peers_[i];
        peer.sends.emplace_back();
        if (peer.outgoing.take_grant(killer_.bytes, false)) {
            ++totals_.eager;
            peer.to_receiver.push_back({.kind = ToReceiver::Kind::kEager, .tag = tag});
            return;
        }
        peer.outgoing.add(peer.sends.back(), {.context = 0, .source = static_cast<int32_t>(i), .tag = tag});
    }

    void wake(uint32_t i) {
        if (!peers_[i].active) active_.push_back(i);
        peers_[i].active = true;
    }
    void tell(uint32_t i, ToSender message) {
        peers_[i].to_sender.push_back(std::move(message));
        wake(i);
    }
    /// One thing that can happen between the receiver and this sender. False: nothing can.
    bool step(uint32_t i) {
        Peer& peer = peers_[i];
        switch (random_() % 3) {
            case 0:
                if (transmit(peer)) return true;
                [[fallthrough]];
            case 1:
                if (receiver_hears(i)) return true;
                [[fallthrough]];
            default: return sender_hears(peer) || transmit(peer) || receiver_hears(i);
        }
    }

    bool transmit(Peer& peer) {
        using Next = WaitingSends::Machine::Next;
        const Next next = peer.outgoing.waiting().next(killer_.window);
        if (next.kind == Next::Kind::kNothing) return false;
        if (next.kind == Next::Kind::kEnd) {
            peer.to_receiver.push_back({.kind = ToReceiver::Kind::kEnd, .age = next.age});
            return true;
        }
        ++totals_.requests;
        peer.to_receiver.push_back({.kind = ToReceiver::Kind::kRequest,
                                    .tag = next.ref->pending.envelope.tag,
                                    .age = next.age,
                                    .first = next.first,
                                    .waiting = next.waiting});
        return true;
    }

    bool receiver_hears(uint32_t i) {
        Peer& peer = peers_[i];
        if (peer.to_receiver.empty()) return false;
        const ToReceiver message = peer.to_receiver.front();
        peer.to_receiver.pop_front();
        if (message.kind == ToReceiver::Kind::kEnd) {
            if (!receiver_.on_end(known_[i], message.age)) error_ = "an end of no pass";
            offer(i);
            restart();
            return true;
        }
        const std::vector<std::byte> data(killer_.bytes, std::byte{static_cast<uint8_t>(message.tag)});
        const Arrival arrival = {
            .envelope = {.context = 0, .source = static_cast<int32_t>(i), .tag = message.tag},
            .number = static_cast<uint64_t>(message.tag),
            .bytes = killer_.bytes,
            .data = data.data(),
            .data_bytes = killer_.bytes,
            .waiting_width = static_cast<uint8_t>(std::bit_width(message.waiting - 1))};
        const bool eager = message.kind == ToReceiver::Kind::kEager;
        const Receiver::Result result =
            eager ? receiver_.on_eager(known_[i], arrival)
                  : receiver_.on_request(known_[i], arrival, message.age, message.first);
        if (result.outcome == Receiver::Outcome::kUngranted) error_ = "an eager message without a grant";
        if (!eager) {
            const bool refused = result.outcome == Receiver::Outcome::kRefused;
            tell(i, {.kind = refused ? ToSender::Kind::kRefused : ToSender::Kind::kAccepted,
                     .tag = message.tag,
                     .age = message.age});
        }
        if (result.outcome == Receiver::Outcome::kMatched) matched(i, message.tag);
        offer(i);
        return true;
    }

    bool sender_hears(Peer& peer) {
        if (peer.to_sender.empty()) return false;
        const ToSender message = peer.to_sender.front();
        peer.to_sender.pop_front();
        WaitingSends& waiting = peer.outgoing.waiting();
        const auto send = [&]() -> WaitingSend& { return peer.sends[static_cast<size_t>(message.tag) - 1]; };
        bool good = true;
        switch (message.kind) {
            case ToSender::Kind::kAccepted: good = peer.outgoing.accepted(send()); break;
            case ToSender::Kind::kRefused: good = waiting.refused(send(), message.age); break;
            case ToSender::Kind::kOffers:
                waiting.offered(message.age, message.batch.receives.data(), message.batch.count);
                break;
            case ToSender::Kind::kResendAll: waiting.resend_all(message.age); break;
            case ToSender::Kind::kGrant: good = peer.outgoing.granted(message.grant); break;
        }
        if (!good) error_ = "an answer of nothing that was asked";
        return true;
    }

    void offer(uint32_t i) {
        Offers::Batch batch;
        if (!receiver_.next_offer(known_[i], batch)) return;
        ++totals_.offers;
        tell(i, {.kind = batch.resend_all ? ToSender::Kind::kResendAll : ToSender::Kind::kOffers,
                 .age = batch.age,
                 .batch = batch});
    }
    void restart() {
        while (Receiver::Sender* sender = receiver_.next_to_restart()) {
            ++totals_.full_passes;
            tell(sender->peer, {.kind = ToSender::Kind::kResendAll, .age = receiver_.resend_all(*sender)});
        }
    }
    void tell_grant(uint32_t i) {
        const Room grant = known_[i].granted.take_untold();
        if (grant.records() != 0) tell(i, {.kind = ToSender::Kind::kGrant, .grant = grant});
    }

    /// In the order of the paper's loops: the last message of each sender, then the last but one of each, and
    /// so on.
    void post_next() {
        while (posts_ < uint64_t{killer_.senders} * killer_.messages) {
            const auto i = static_cast<uint32_t>(posts_ % killer_.senders);
            const auto turn = static_cast<int32_t>(posts_ / killer_.senders);
            const int32_t tag = killer_.forward ? turn + 1 : static_cast<int32_t>(killer_.messages) - turn;
            ++posts_;
            const Envelope envelope = {.context = 0, .source = static_cast<int32_t>(i), .tag = tag};
            const RecordRef found = receiver_.post(posted_, envelope, &known_[i]);
            if (found == kNoRecord) {
                offer(i);
                return;
            }
            const Record taken = receiver_.take(found);
            const Unmatched message(taken);
            if (message.envelope().tag != tag || message.peer() != i) error_ = "another message";
            uint32_t here = 0;
            receiver_.for_each_piece(taken, [&](const std::byte* data, uint32_t bytes) {
                for (uint32_t k = 0; k < bytes; ++k) {
                    if (data[k] != std::byte{static_cast<uint8_t>(tag)}) error_ = "other data";
                }
                here += bytes;
            });
            if (here != message.bytes_here()) error_ = "another length";
            receiver_.release(taken, &known_[i]);
            ++received_;
            tell_grant(i);
            restart();
        }
    }
    void matched(uint32_t i, int32_t tag) {
        if (posted_.posted.envelope.source != static_cast<int32_t>(i) || posted_.posted.envelope.tag != tag)
            error_ = "a receive that was not posted";
        ++received_;
        tell_grant(i);
        post_next();
    }

    Killer killer_;
    std::minstd_rand random_;
    std::vector<uint32_t> active_;  ///< senders with which something may happen
    Receiver receiver_;
    std::vector<Peer> peers_;
    std::vector<Receiver::Sender> known_;
    PostedReceive posted_ = {};
    uint64_t posts_ = 0;
    uint64_t received_ = 0;
    Totals totals_;
    std::string error_;
};

/// Any memory from none to plentiful, with and without grants.
TEST(MatchKiller, ends_within_its_budget_with_few_requests_a_message) {
    for (const auto& [senders, messages] :
         {std::pair{3u, 5u}, std::pair{15u, 3u}, std::pair{3u, 1000u}, std::pair{127u, 100u}}) {
        const uint64_t all = uint64_t{senders} * messages;
        for (const uint64_t records : {uint64_t{0}, uint64_t{1}, all / 10, all / 2, all}) {
            for (const uint16_t granted : {0, 4}) {
                for (const uint32_t bytes : {8u, 200u}) {
                    const Killer killer = {senders, messages, records, granted, bytes};
                    Exchange run(killer, 17 * senders + messages);
                    ASSERT_EQ(run.play(), "")
                        << senders << " x " << messages << ", " << records << " records, " << granted;
                    const Totals& totals = run.totals();
                    EXPECT_LE(totals.records_max, records + uint64_t{senders} * granted);
                    EXPECT_LE(totals.cells_max, uint64_t{senders} * granted);
                    EXPECT_LE(static_cast<double>(totals.requests), 2.5 * static_cast<double>(all) + 64)
                        << senders << " x " << messages << ", " << records << " records, " << granted;
                }
            }
        }
    }
}

/// Receives in the order of sending free a record at a time: a full pass for an eighth of the budget, however many
/// messages wait, was 25 requests a message.
TEST(MatchKiller, a_flood_that_is_received_in_order_takes_few_requests_a_message) {
    for (const uint32_t senders : {1u, 7u, 31u}) {
        for (const uint64_t records : {8, 64, 1024}) {
            const Killer killer = {
                .senders = senders, .messages = 14'000 / senders, .records = records, .forward = true, .window = 16};
            Exchange run(killer, senders + records);
            ASSERT_EQ(run.play(), "") << senders << " senders, " << records << " records";
            EXPECT_LE(run.totals().requests, 2.5 * killer.senders * killer.messages + 64)
                << senders << " senders, " << records << " records, " << run.totals().full_passes << " full passes";
        }
    }
}

/// The queue's tables take a little of it, beside the records.
TEST(MatchKiller, a_plentiful_budget_costs_one_request_a_message_and_no_offers) {
    Exchange run({.senders = 15, .messages = 100, .records = 1700}, 1);
    ASSERT_EQ(run.play(), "");
    EXPECT_EQ(run.totals().requests, 1500u);
    EXPECT_EQ(run.totals().offers, 0u);
    EXPECT_EQ(run.totals().full_passes, 0u);
}

TEST(MatchKiller, what_is_granted_takes_no_request_at_all) {
    Exchange run({.senders = 15, .messages = 100, .records = 0, .granted = 100, .bytes = 200}, 1);
    ASSERT_EQ(run.play(), "");
    EXPECT_EQ(run.totals().eager, 1500u);
    EXPECT_EQ(run.totals().requests, 0u);
}

/// As many senders as the paper's machine had in a rack, and a hundredth of the memory.
TEST(MatchKiller, a_thousand_senders_share_a_hundredth_of_what_they_need) {
    Exchange run({.senders = 1023, .messages = 100, .records = 1023}, 3);
    ASSERT_EQ(run.play(), "");
    EXPECT_LE(run.totals().requests, 102300u * 5 / 2);
    EXPECT_LE(run.totals().records_max, 1023u);
    std::printf("%llu requests, %llu offers, %llu full passes\n",
                static_cast<unsigned long long>(run.totals().requests),
                static_cast<unsigned long long>(run.totals().offers),
                static_cast<unsigned long long>(run.totals().full_passes));
}

}  // namespace
}  // namespace velo::match
