/// Grants, alone under drawn requests and ends of senders, and with the receiver that reserves their memory.
#include "match/grants.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

#include "match/receiver.h"

namespace velo::match {
namespace {

constexpr uint32_t kInside = Record::kBodyBytes;

struct Held {
    Room room;
    uint32_t used = 0;  ///< records of it
};

/// The totals and each share hold for any order of requests and ends, also with more senders than were foreseen. As
/// long as there are not more, each has at least one record if the total has one for each.
TEST(Grants, stay_within_the_totals_and_leave_each_sender_its_share) {
    uint64_t full = 0;
    uint64_t grown = 0;
    for (uint32_t seed = 1; seed <= 300; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&random](uint64_t end) { return static_cast<uint32_t>(random() % end); };
        const Grants::Terms terms = {.records_max = below(seed % 3 == 0 ? 400'000 : 60),
                                     .cells_max = below(seed % 5 == 0 ? 400'000 : 200),
                                     .senders = 1 + below(8),
                                     .first_records = below(4) == 0 ? 0 : 1 + below(40)};
        Grants grants(terms);
        const Room share = grants.share();
        ASSERT_LE(share.records() * terms.senders, terms.records_max);
        ASSERT_LE(share.cells() * terms.senders, terms.cells_max);
        std::vector<Held> senders(terms.senders + seed % 2 * below(4));
        const bool all_foreseen = senders.size() <= terms.senders;
        for (uint32_t step = 0; step < 3000; ++step) {
            Held& sender = senders[below(senders.size())];
            if (below(20) == 0) {
                grants.take_back(sender.room);
                sender = {};
            }
            const bool is_first = sender.room.empty();
            sender.used = below(sender.room.records() + 1u);
            const uint32_t told = sender.room.records() - sender.used;
            const uint64_t waiting = uint64_t{1} << below(33);
            const uint32_t bytes = below(2 * kInside);
            const Room more =
                grants.next(sender.room, {.bytes = bytes, .told_records = told, .waiting = waiting});
            ASSERT_TRUE(grants.allows(more));
            grants.grant(more);
            const Room before = sender.room;
            sender.room += more;
            uint64_t records = 0;
            uint64_t cells = 0;
            for (const Held& one : senders) records += one.room.records(), cells += one.room.cells();
            ASSERT_EQ(records, grants.records());
            ASSERT_EQ(cells, grants.cells());
            ASSERT_LE(records, terms.records_max);
            ASSERT_LE(cells, terms.cells_max);
            ASSERT_TRUE(share.has(sender.room));
            full += records == terms.records_max && records != 0;
            if (terms.first_records == 0) {
                ASSERT_TRUE(more.empty());
            } else if (is_first) {
                ASSERT_LE(more.records(), terms.first_records);
                const bool enough = all_foreseen && terms.records_max >= terms.senders;
                ASSERT_GE(more.records(), enough ? 1u : 0u);
                ASSERT_EQ(more.records() == 0, more.empty()) << "cells alone are of no use";
            } else {
                grown += more.records() != 0;
                ASSERT_EQ(more.cells(), 0u);
                const bool asks = waiting > told && bytes <= kInside;
                const uint64_t wanted = asks ? std::max<uint64_t>(waiting - told, before.records()) : 0;
                ASSERT_LE(more.records(), wanted);
                const bool has_more = before.records() < share.records();
                ASSERT_GE(more.records(), all_foreseen && asks && has_more ? 1u : 0u);
            }
        }
    }
    EXPECT_GT(full, 1000u);
    EXPECT_GT(grown, 1000u);
}

TEST(Grants, a_share_is_no_more_than_can_be_counted) {
    const Grants grants({.records_max = 1u << 30, .cells_max = 1u << 30, .senders = 2, .first_records = 1u << 20});
    EXPECT_EQ(grants.share().records(), Granted::kRecordsMax);
    EXPECT_EQ(grants.share().cells(), Room::kMax);
    const Room first = grants.next({}, {.bytes = 8, .waiting = 1});
    EXPECT_EQ(first.records(), Granted::kRecordsMax);
    EXPECT_EQ(first.cells(), Room::kMax);
}

TEST(Grants, are_of_half_the_memory) {
    const Grants grants(Grants::half_of(400 * sizeof(Record), 64 * DataCells::kCellBytes, 2, 128));
    EXPECT_EQ(grants.share().records(), 100u);
    EXPECT_EQ(grants.share().cells(), 16u);
    const Grants none_said(Grants::half_of(2 * sizeof(Record), 0, 0, 128));
    EXPECT_EQ(none_said.share().records(), 1u) << "of a job whose size is not known";
}

/// A receiver with memory for nine records, four of which may be granted: two to each of two senders.
struct FourGranted {
    FourGranted()
        : receiver({.record_bytes = 9 * sizeof(Record),
                    .grants = Grants::half_of(8 * sizeof(Record), 0, 2, 1)}) {
        for (uint32_t i = 0; i < senders.size(); ++i) senders[i].peer = i;
    }
    /// Requests a message without data, with at most 2^waiting_width waiting. Returns the records that are granted.
    uint32_t request(size_t source, uint8_t waiting_width) {
        const Arrival arrival = {.envelope = {.source = static_cast<int32_t>(source), .tag = 1},
                                 .number = 1,
                                 .waiting_width = waiting_width};
        EXPECT_NE(receiver.on_request(senders[source], arrival, 0, true).outcome, Receiver::Outcome::kRefused);
        receiver.grant_more(senders[source], held[source], 0);
        return senders[source].granted.take_untold().records();
    }
    void eager(size_t source) {
        const Arrival arrival = {.envelope = {.source = static_cast<int32_t>(source), .tag = 1}};
        EXPECT_EQ(receiver.on_eager(senders[source], arrival).outcome, Receiver::Outcome::kRecorded);
    }
    Record take(size_t source) {
        PostedReceive posted;
        const RecordRef found =
            receiver.post(posted, {.source = static_cast<int32_t>(source), .tag = 1}, &senders[source]);
        return receiver.take(found);
    }

    Receiver receiver;
    std::array<Receiver::Sender, 3> senders;
    std::array<Room, 3> held;
};

TEST(Grants, of_a_sender_that_has_ended_are_for_others) {
    FourGranted rig;
    EXPECT_EQ(rig.request(0, 4), 1u);
    EXPECT_EQ(rig.request(0, 0), 0u) << "no more wait there than may leave";
    rig.eager(0);
    EXPECT_EQ(rig.request(0, 4), 1u) << "its share is two";
    EXPECT_EQ(rig.request(1, 4), 1u);
    rig.eager(1);
    EXPECT_EQ(rig.request(1, 4), 1u);
    EXPECT_EQ(rig.receiver.grants().records(), 4u);
    EXPECT_TRUE(rig.receiver.grants().next({}, {.waiting = 16}).empty()) << "all is granted";
    rig.receiver.closed(rig.senders[0]);
    EXPECT_EQ(rig.receiver.grants().records(), 3u) << "a message of it keeps its record";
    for (int message = 0; message < 4; ++message) {
        const Record taken = rig.take(0);
        rig.receiver.release(taken, nullptr);
    }
    EXPECT_EQ(rig.receiver.grants().records(), 2u);
    EXPECT_EQ(rig.request(2, 4), 1u);
    rig.receiver.failed(rig.senders[1]);
    EXPECT_EQ(rig.receiver.grants().records(), 1u);
    rig.receiver.closed(rig.senders[2]);
    EXPECT_EQ(rig.receiver.grants().records(), 0u);
}

TEST(Grants, that_the_memory_does_not_hold_change_nothing) {
    FourGranted rig;
    for (int message = 0; message < 9; ++message) {
        const Arrival arrival = {.envelope = {.source = 1, .tag = 1}, .number = 1};
        EXPECT_EQ(rig.receiver.on_request(rig.senders[1], arrival, 0, true).outcome, Receiver::Outcome::kRecorded);
    }
    rig.receiver.grant_more(rig.senders[1], rig.held[1], 0);
    EXPECT_TRUE(rig.held[1].empty());
    EXPECT_EQ(rig.receiver.grants().records(), 0u);
    const Record taken = rig.take(1);
    rig.receiver.release(taken, &rig.senders[1]);
    rig.receiver.grant_more(rig.senders[1], rig.held[1], 0);
    EXPECT_EQ(rig.held[1].records(), 1u);
}

TEST(GrantsDeathTest, room_that_was_not_granted_is_not_taken_back) {
    Grants grants({.records_max = 4, .cells_max = 4, .senders = 1, .first_records = 2});
    grants.grant({2, 1});
    EXPECT_DEATH(grants.take_back({3, 0}), "3 records and 0 cells are taken back that were not granted");
    EXPECT_DEATH(grants.grant({3, 0}), "a grant of 3 records and 0 cells is beyond the totals");
    EXPECT_DEATH((void)grants.next({1, 0}, {.told_records = 2, .waiting = 1}), "knows of 2 records, and holds 1");
}

}  // namespace
}  // namespace velo::match
