#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <string>

#include "match/receiver.h"

namespace velo::match {
namespace {

using Outcome = Receiver::Outcome;

constexpr uint64_t kCell = DataCells::kCellBytes;

Arrival arrival(int32_t source, int32_t tag, const std::string& data, uint64_t number = 1,
                bool keeps_number = false) {
    return {.envelope = {.context = 0, .source = source, .tag = tag},
            .number = number,
            .bytes = data.size(),
            .data = reinterpret_cast<const std::byte*>(data.data()),
            .data_bytes = static_cast<uint32_t>(data.size()),
            .keeps_number = keeps_number};
}

/// A receiver with memory for some records and cells, and three senders that are sources 0 to 2.
struct Rig {
    Rig(uint64_t records, uint64_t cells) : receiver({records * sizeof(Record), cells * kCell}) {
        for (uint32_t i = 0; i < senders.size(); ++i) senders[i].peer = i;
    }

    bool grant(size_t source, Room grant) {
        const bool done = receiver.grant(senders[source], grant);
        (void)senders[source].granted.take_untold();
        return done;
    }
    Outcome request(int32_t source, int32_t tag, const std::string& data, bool first = true) {
        Receiver::Sender& sender = senders[static_cast<size_t>(source)];
        return receiver.on_request(sender, arrival(source, tag, data), sender.offers.refusals.age(), first)
            .outcome;
    }
    Outcome eager(int32_t source, int32_t tag, const std::string& data) {
        return receiver.on_eager(senders[static_cast<size_t>(source)], arrival(source, tag, data)).outcome;
    }
    /// Data of the earlier message that a receive of this gets; "-" when it is posted.
    std::string receive(int32_t source, int32_t tag, PostedReceive& posted) {
        Receiver::Sender* const named =
            source == kAnySource ? nullptr : &senders[static_cast<size_t>(source)];
        const RecordRef found = receiver.post(posted, {.context = 0, .source = source, .tag = tag}, named);
        return found == kNoRecord ? "-" : release(receiver.take(found));
    }
    std::string release(const Record& taken) {
        std::string data;
        receiver.for_each_piece(taken, [&](const std::byte* piece, uint32_t bytes) {
            data.append(reinterpret_cast<const char*>(piece), bytes);
        });
        receiver.release(taken, &senders[Unmatched(taken).peer()]);
        return data;
    }

    Receiver receiver;
    std::array<Receiver::Sender, 3> senders;
};

TEST(MatchReceiver, data_lies_in_the_record_in_cells_or_with_the_sender) {
    Rig rig(3, 2);
    const std::string longer(300, 'x');
    EXPECT_EQ(rig.request(0, 1, "short"), Outcome::kRecorded);
    EXPECT_EQ(rig.receiver.data_budget().used(), 0u);
    EXPECT_EQ(rig.request(0, 2, longer), Outcome::kRecorded);
    EXPECT_EQ(rig.receiver.data_budget().used(), 2 * kCell);
    EXPECT_EQ(rig.request(0, 3, longer), Outcome::kDataless);
    EXPECT_EQ(rig.request(0, 4, "short"), Outcome::kRefused);
    std::array<PostedReceive, 4> posted;
    EXPECT_EQ(rig.receive(0, 2, posted[0]), longer);
    EXPECT_EQ(rig.receive(0, 3, posted[1]), "");
    EXPECT_EQ(rig.receive(0, 1, posted[2]), "short");
    EXPECT_EQ(rig.receive(0, 4, posted[3]), "-");
    EXPECT_EQ(rig.receiver.record_budget().used_max(), 3 * sizeof(Record));
}

TEST(MatchReceiver, a_handle_is_kept_where_there_is_a_cell_for_it) {
    Rig rig(3, 1);
    const std::string handle(64, 'h');
    for (const bool room : {true, false}) {
        SCOPED_TRACE(room);
        Arrival request = arrival(0, room ? 1 : 2, "");
        request.bytes = 5000;
        request.handle = reinterpret_cast<const std::byte*>(handle.data());
        request.handle_bytes = static_cast<uint32_t>(handle.size());
        EXPECT_EQ(rig.receiver.on_request(rig.senders[0], request, 0, true).outcome, Outcome::kRecorded);
        EXPECT_EQ(rig.receiver.data_budget().used(), kCell);
    }
    for (const bool room : {false, true}) {
        SCOPED_TRACE(room);
        PostedReceive posted;
        const RecordRef found =
            rig.receiver.post(posted, {.context = 0, .source = 0, .tag = room ? 1 : 2}, &rig.senders[0]);
        ASSERT_NE(found, kNoRecord);
        const Record taken = rig.receiver.take(found);
        EXPECT_EQ(Unmatched(taken).bytes(), 5000u);
        EXPECT_EQ(Unmatched(taken).bytes_here(), 0u);
        std::string kept(handle.size(), '-');
        auto* const to = reinterpret_cast<std::byte*>(kept.data());
        EXPECT_FALSE(rig.receiver.read_handle(taken, to, 63));
        EXPECT_EQ(rig.receiver.read_handle(taken, to, 64), room);
        EXPECT_EQ(kept == handle, room);
        EXPECT_EQ(rig.release(taken), "");
    }
    EXPECT_EQ(rig.request(0, 3, "as long as a cell that is free again"), Outcome::kRecorded);
    EXPECT_EQ(rig.request(0, 4, "as long as a cell that is not there"), Outcome::kDataless);
}

/// Senders are not asked for the pattern of an earlier probe once a message of the kind was received.
TEST(MatchReceiver, a_pattern_for_which_no_probe_asks_again_is_given_up_with_its_message) {
    Rig rig(1, 1);
    const Envelope pattern = {.context = 0, .source = kAnySource, .tag = 1};
    EXPECT_EQ(rig.request(2, 9, "fills the memory"), Outcome::kRecorded);
    EXPECT_EQ(rig.request(0, 5, "refused"), Outcome::kRefused);
    EXPECT_FALSE(rig.receiver.probe(pattern, nullptr).found);
    Offers::Batch batch;
    ASSERT_TRUE(rig.receiver.next_offer(rig.senders[0], batch));
    EXPECT_EQ(batch.count, 1u);
    EXPECT_TRUE(rig.receiver.on_end(rig.senders[0], batch.age));
    EXPECT_FALSE(rig.receiver.probe(pattern, nullptr).found) << "asks in the round that was offered";
    std::array<PostedReceive, 2> posted;
    EXPECT_EQ(rig.receive(2, 9, posted[0]), "fills the memory");
    EXPECT_EQ(rig.request(1, 1, "of the kind"), Outcome::kRecorded);
    EXPECT_EQ(rig.receive(1, 1, posted[1]), "of the kind");
    EXPECT_FALSE(rig.receiver.next_offer(rig.senders[0], batch));
}

TEST(MatchReceiver, the_end_of_a_sender_that_sends_all_again_lets_the_next_one_do_so) {
    Rig rig(8, 1);
    for (int tag = 0; tag < 8; ++tag) EXPECT_EQ(rig.request(2, tag, ""), Outcome::kRecorded);
    EXPECT_EQ(rig.request(0, 1, "refused"), Outcome::kRefused);
    EXPECT_EQ(rig.request(1, 1, "refused"), Outcome::kRefused);
    std::array<PostedReceive, 8> posted;
    for (int tag = 0; tag < 8; ++tag) EXPECT_EQ(rig.receive(2, tag, posted[static_cast<size_t>(tag)]), "");
    Receiver::Sender* const first = rig.receiver.next_to_restart();
    ASSERT_NE(first, nullptr);
    (void)rig.receiver.resend_all(*first);
    EXPECT_EQ(rig.receiver.next_to_restart(), nullptr) << "one at a time";
    rig.receiver.closed(*first);
    Receiver::Sender* const second = rig.receiver.next_to_restart();
    ASSERT_NE(second, nullptr);
    EXPECT_NE(second, first);
}

TEST(MatchReceiver, no_more_is_granted_than_can_be_counted) {
    Rig rig(2 * Granted::kRecordsMax, 1);
    EXPECT_TRUE(rig.grant(0, {Granted::kRecordsMax, 0}));
    const uint64_t used = rig.receiver.record_budget().used();
    EXPECT_FALSE(rig.grant(0, {1, 0}));
    EXPECT_EQ(rig.receiver.record_budget().used(), used);
    EXPECT_EQ(rig.senders[0].granted.left().records(), Granted::kRecordsMax);
    EXPECT_TRUE(rig.grant(1, {1, 0}));
}

TEST(MatchReceiver, a_short_message_whose_sender_waits_for_the_match_keeps_its_number) {
    Rig rig(1, 1);
    const auto result = rig.receiver.on_request(rig.senders[0], arrival(0, 1, "short", 77, true), 0, true);
    EXPECT_EQ(result.outcome, Outcome::kRecorded);
    const Record taken = rig.receiver.take(result.record);
    EXPECT_EQ(Unmatched(taken).number(), 77u);
    EXPECT_EQ(rig.release(taken), "short");
    EXPECT_EQ(rig.receiver.data_budget().used(), kCell) << "a cell that was made is kept";
    EXPECT_EQ(rig.request(0, 2, std::string(200, 'y')), Outcome::kRecorded) << "and used again";
}

TEST(MatchReceiver, what_was_granted_is_there_however_full_the_queue_is) {
    Rig rig(4, 3);
    ASSERT_TRUE(rig.grant(1, {2, 2}));
    EXPECT_FALSE(rig.grant(2, {1, 2})) << "one cell is left";
    EXPECT_FALSE(rig.grant(2, {3, 1})) << "two records are left";
    const std::string data(200, 'd');
    EXPECT_EQ(rig.request(0, 1, data), Outcome::kRecorded);
    EXPECT_EQ(rig.request(0, 1, data), Outcome::kDataless);
    EXPECT_EQ(rig.request(0, 1, data), Outcome::kRefused);
    EXPECT_EQ(rig.eager(1, 5, data), Outcome::kRecorded);
    EXPECT_EQ(rig.eager(1, 6, data), Outcome::kRecorded);
    EXPECT_EQ(rig.receiver.record_budget().used(), rig.receiver.record_budget().limit());
    PostedReceive posted;
    EXPECT_EQ(rig.receive(1, 6, posted), data);
    const Room untold = rig.senders[1].granted.take_untold();
    EXPECT_EQ(untold.records(), 1u) << "it came back";
    EXPECT_EQ(untold.cells(), 1u);
    EXPECT_EQ(rig.request(2, 1, "x"), Outcome::kRefused) << "what came back is the sender's";
    EXPECT_EQ(rig.eager(1, 7, data), Outcome::kRecorded);
}

TEST(MatchReceiver, the_quick_way_gives_up_where_a_sender_or_a_probe_waits) {
    Rig rig(7, 0);
    ASSERT_TRUE(rig.grant(1, {6, 0}));
    const Envelope envelope = {.context = 0, .source = 1, .tag = 5};
    EXPECT_EQ(rig.receiver.match_plain(rig.senders[1], envelope), nullptr) << "nothing is posted";
    std::array<PostedReceive, 4> posted;
    EXPECT_EQ(rig.receive(1, 5, posted[0]), "-");
    EXPECT_EQ(rig.receiver.match_plain(rig.senders[1], envelope), &posted[0]);
    EXPECT_EQ(rig.receive(1, 5, posted[1]), "-");
    EXPECT_EQ(rig.receiver.match_plain(rig.senders[0], envelope), nullptr) << "nothing is granted";
    // A sender that was refused is offered what is posted now, unless that is matched before.
    EXPECT_EQ(rig.request(0, 1, "r"), Outcome::kRecorded);
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kRefused);
    EXPECT_EQ(rig.receive(kAnySource, 5, posted[2]), "-");
    EXPECT_NE(posted[2].list, nullptr);
    EXPECT_EQ(rig.receiver.match_plain(rig.senders[1], envelope), nullptr);
    EXPECT_EQ(rig.eager(1, 5, "e"), Outcome::kMatched);
    EXPECT_EQ(rig.senders[1].granted.untold().records(), 2u);
    EXPECT_TRUE(rig.senders[1].granted.due());
    EXPECT_EQ(rig.eager(1, 5, "e"), Outcome::kMatched) << "it was told of more";
    EXPECT_EQ(posted[2].list, nullptr);
}

/// Against plain counts.
TEST(MatchGranted, counts_what_is_left_told_and_due) {
    std::mt19937 random(7);
    const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
    Granted granted;
    uint32_t left[2] = {}, untold[2] = {}, largest_untold = 0;
    const auto give_back = [&](uint32_t cells) {
        ++untold[0];
        untold[1] += cells;
    };
    for (int step = 0; step < 1'000'000; ++step) {
        const uint32_t cells = below(4);
        const bool allowed = left[0] != untold[0] && left[1] - untold[1] >= cells;
        ASSERT_EQ(granted.allows(cells), allowed);
        const bool was_due = granted.due();
        ASSERT_TRUE(was_due || granted.allows(0));
        switch (below(6)) {
            case 0: {
                // Mostly a few, and now and then all that can be counted.
                const bool all = below(100) == 0;
                const Room more = {all ? Granted::kRecordsMax - left[0] : below(41), below(41)};
                ASSERT_EQ(granted.fits(more), left[0] + more.records() <= Granted::kRecordsMax);
                if (!granted.fits(more)) break;
                granted.give(more);
                left[0] += more.records(), untold[0] += more.records();
                left[1] += more.cells(), untold[1] += more.cells();
                break;
            }
            case 1:
                if (!allowed) break;
                granted.use(cells);
                --left[0];
                left[1] -= cells;
                break;
            case 2:
                if (!allowed) break;
                granted.give_back(cells);
                give_back(cells);
                break;
            case 3:
                ASSERT_EQ(granted.give_back_plain(), !was_due);
                if (was_due) break;
                if (below(3) == 0) {
                    granted.undo_plain();
                } else {
                    give_back(0);
                }
                break;
            case 4: {
                const Room told = granted.take_untold();
                ASSERT_EQ(told.records(), untold[0]);
                ASSERT_EQ(told.cells(), untold[1]);
                untold[0] = untold[1] = 0;
                break;
            }
            case 5:
                if (below(1000) != 0) break;
                ASSERT_EQ(granted.take_all().records(), left[0]);
                left[0] = left[1] = untold[0] = untold[1] = 0;
                break;
        }
        ASSERT_EQ(granted.left().records(), left[0]);
        ASSERT_EQ(granted.left().cells(), left[1]);
        ASSERT_EQ(granted.untold().records(), untold[0]);
        ASSERT_EQ(granted.untold().cells(), untold[1]);
        const uint32_t half = left[0] == 0 ? 0 : (left[0] - 1) / 2;
        largest_untold = std::max(largest_untold, untold[0]);
        ASSERT_EQ(granted.due(), untold[0] >= half);
        ASSERT_EQ(granted.any_due(), untold[0] >= half || 2 * untold[1] >= left[1]);
    }
    EXPECT_EQ(largest_untold, Granted::kRecordsMax);
}

TEST(MatchReceiver, a_granted_record_is_no_other_message_s_between_its_match_and_its_release) {
    Rig rig(1, 0);
    ASSERT_TRUE(rig.grant(1, {1, 0}));
    EXPECT_EQ(rig.eager(1, 5, "e"), Outcome::kRecorded);
    PostedReceive posted;
    const RecordRef found = rig.receiver.post(posted, {.context = 0, .source = 1, .tag = 5}, &rig.senders[1]);
    ASSERT_NE(found, kNoRecord);
    const Record taken = rig.receiver.take(found);
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kRefused);
    EXPECT_EQ(rig.release(taken), "e");
    EXPECT_EQ(rig.eager(1, 6, "f"), Outcome::kUngranted) << "its sender does not know that the room is back";
    EXPECT_EQ(rig.senders[1].granted.take_untold().records(), 1u);
    EXPECT_EQ(rig.eager(1, 6, "f"), Outcome::kRecorded);
}

TEST(MatchReceiver, an_eager_message_beyond_its_grant_changes_nothing) {
    Rig rig(4, 4);
    EXPECT_EQ(rig.eager(0, 1, "x"), Outcome::kUngranted);
    ASSERT_TRUE(rig.grant(0, {2, 1}));
    EXPECT_EQ(rig.eager(0, 1, std::string(300, 'x')), Outcome::kUngranted) << "two cells";
    Arrival partly = arrival(0, 1, "xyz");
    partly.data_bytes = 2;
    EXPECT_EQ(rig.receiver.on_eager(rig.senders[0], partly).outcome, Outcome::kUngranted);
    EXPECT_EQ(rig.receiver.unexpected(), 0u);
    EXPECT_EQ(rig.eager(0, 1, "x"), Outcome::kRecorded);
    EXPECT_EQ(rig.eager(0, 2, "y"), Outcome::kRecorded);
    EXPECT_EQ(rig.eager(0, 3, "z"), Outcome::kUngranted);
}

TEST(MatchReceiver, senders_are_restarted_one_at_a_time_in_turn_once_there_is_memory) {
    Rig rig(1, 0);
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kRecorded);
    for (int32_t source : {0, 1, 2}) EXPECT_EQ(rig.request(source, 2, "y"), Outcome::kRefused);
    EXPECT_EQ(rig.receiver.flagged(), 3u);
    EXPECT_EQ(rig.receiver.next_to_restart(), nullptr) << "there is no memory";
    PostedReceive posted;
    EXPECT_EQ(rig.receive(0, 1, posted), "x");
    for (uint32_t turn = 0; turn < 3; ++turn) {
        Receiver::Sender* const sender = rig.receiver.next_to_restart();
        ASSERT_EQ(sender, &rig.senders[turn]);
        const uint32_t age = rig.receiver.resend_all(*sender);
        EXPECT_EQ(rig.receiver.next_to_restart(), nullptr) << "one at a time";
        EXPECT_FALSE(rig.receiver.on_end(*sender, age + 1));
        EXPECT_TRUE(rig.receiver.on_end(*sender, age));
        EXPECT_FALSE(rig.receiver.on_end(*sender, age));
    }
    EXPECT_EQ(rig.receiver.flagged(), 0u);
    EXPECT_EQ(rig.receiver.next_to_restart(), nullptr);
}

TEST(MatchReceiver, a_sender_with_many_more_messages_than_fit_is_not_restarted) {
    Rig rig(4, 0);
    for (int32_t tag = 0; tag < 4; ++tag) EXPECT_EQ(rig.request(0, tag, "x"), Outcome::kRecorded);
    const std::string data = "x";
    Arrival refused = arrival(1, 4, data);
    refused.waiting_width = 4;  // up to 16, four times as many as there are records
    EXPECT_EQ(rig.receiver.on_request(rig.senders[1], refused, 0, false).outcome, Outcome::kRefused);
    std::array<PostedReceive, 4> posted;
    for (int32_t tag = 0; tag < 4; ++tag) {
        EXPECT_EQ(rig.receiver.next_to_restart(), nullptr) << tag << " records are free";
        EXPECT_EQ(rig.receive(0, tag, posted[static_cast<size_t>(tag)]), "x");
    }
    EXPECT_EQ(rig.receiver.next_to_restart(), &rig.senders[1]);
    // A peer may say anything.
    refused.waiting_width = 255;
    EXPECT_EQ(rig.receiver.on_request(rig.senders[1], refused, 7, false).outcome, Outcome::kRefused);
    EXPECT_EQ(rig.receiver.next_to_restart(), nullptr);
}

TEST(MatchReceiver, a_sender_that_is_refused_again_is_restarted_once) {
    Rig rig(1, 0);
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kRecorded);
    for (int32_t source : {1, 2, 1}) EXPECT_EQ(rig.request(source, 2, "y"), Outcome::kRefused);
    uint32_t visited = 0;
    rig.receiver.for_each_flagged(
        [&](const Receiver::Sender& sender) { visited = 10 * visited + sender.peer; });
    EXPECT_EQ(visited, 12u);
    PostedReceive posted;
    EXPECT_EQ(rig.receive(0, 1, posted), "x");
    for (const uint32_t peer : {1u, 2u}) {
        Receiver::Sender* const sender = rig.receiver.next_to_restart();
        ASSERT_EQ(sender, &rig.senders[peer]);
        EXPECT_TRUE(rig.receiver.on_end(*sender, rig.receiver.resend_all(*sender)));
    }
    EXPECT_EQ(rig.receiver.next_to_restart(), nullptr);
}

TEST(MatchReceiver, a_sender_with_many_open_receives_to_see_sends_all_that_waits_again) {
    Rig rig(1, 0);
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kRecorded);
    EXPECT_EQ(rig.request(1, 2, "y"), Outcome::kRefused);
    std::array<PostedReceive, Offers::kWalkMax + 1> receives;
    for (PostedReceive& receive : receives) EXPECT_EQ(rig.receive(kAnySource, 3, receive), "-");
    Offers::Batch batch;
    ASSERT_TRUE(rig.receiver.next_offer(rig.senders[1], batch));
    EXPECT_TRUE(batch.resend_all);
    EXPECT_EQ(rig.receiver.flagged(), 0u);
    PostedReceive posted;
    EXPECT_EQ(rig.receive(0, 1, posted), "x");
    EXPECT_TRUE(rig.receiver.on_end(rig.senders[1], batch.age));
    EXPECT_EQ(rig.receiver.next_to_restart(), nullptr);
    EXPECT_EQ(rig.receiver.on_request(rig.senders[1], arrival(1, 2, "y"), batch.age, true).outcome,
              Outcome::kRecorded);
}

TEST(MatchReceiver, without_any_budget_a_posted_receive_and_a_probe_get_their_message) {
    Rig rig(0, 0);
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kRefused);
    const Envelope pattern = {.context = 0, .source = 0, .tag = 1};
    EXPECT_FALSE(rig.receiver.probe(pattern, &rig.senders[0]).found);
    Offers::Batch batch;
    ASSERT_TRUE(rig.receiver.next_offer(rig.senders[0], batch));
    ASSERT_EQ(batch.count, 1u);
    EXPECT_EQ(batch.receives[0], pattern);
    EXPECT_FALSE(rig.receiver.next_offer(rig.senders[0], batch)) << "a pass is open";
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kRefused);
    const Receiver::Probed probed = rig.receiver.probe(pattern, &rig.senders[0]);
    EXPECT_TRUE(probed.found);
    EXPECT_EQ(probed.record, kNoRecord);
    EXPECT_EQ(probed.bytes, 1u);
    EXPECT_TRUE(rig.receiver.probe(pattern, &rig.senders[0]).found) << "it can still be received";
    PostedReceive posted;
    EXPECT_EQ(rig.receive(0, 1, posted), "-");
    EXPECT_FALSE(rig.receiver.probe(pattern, &rig.senders[0]).found) << "it is the receive's";
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kMatched);
    EXPECT_EQ(rig.receiver.next_to_restart(), nullptr) << "no memory will ever be free";
}

TEST(MatchReceiver, a_receive_that_is_withdrawn_is_neither_matched_nor_offered) {
    Rig rig(0, 0);
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kRefused);
    std::array<PostedReceive, 2> posted;
    EXPECT_EQ(rig.receive(0, 1, posted[0]), "-");
    EXPECT_EQ(rig.receive(kAnySource, 1, posted[1]), "-");
    rig.receiver.withdraw(posted[0]);
    rig.receiver.withdraw(posted[1]);
    Offers::Batch batch;
    EXPECT_FALSE(rig.receiver.next_offer(rig.senders[0], batch));
    EXPECT_EQ(rig.request(0, 1, "x"), Outcome::kRefused);
}

TEST(MatchReceiver, what_a_process_that_ended_had_here_is_for_others) {
    Rig rig(4, 4);
    ASSERT_TRUE(rig.grant(0, {1, 2}));
    const std::string data(200, 'd');
    EXPECT_EQ(rig.eager(0, 1, data), Outcome::kRecorded);
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(rig.request(i % 2, 2, data), i < 2 ? Outcome::kRecorded : Outcome::kDataless);
    EXPECT_EQ(rig.request(0, 3, data), Outcome::kRefused);
    EXPECT_EQ(rig.request(1, 3, data), Outcome::kRefused);
    PostedReceive posted;
    const RecordRef found = rig.receiver.post(posted, {.context = 0, .source = 0, .tag = 1}, &rig.senders[0]);
    ASSERT_NE(found, kNoRecord);
    const Record taken = rig.receiver.take(found);
    rig.receiver.failed(rig.senders[0]);
    rig.receiver.release(taken, nullptr);
    EXPECT_EQ(rig.receiver.unexpected(), 1u);
    EXPECT_EQ(rig.receiver.flagged(), 1u);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(rig.request(2, 4, data), Outcome::kRecorded) << i;
    EXPECT_EQ(rig.request(2, 4, data), Outcome::kRefused);
    PostedReceive other;
    EXPECT_EQ(rig.receive(0, 1, other), "-");
    EXPECT_EQ(rig.receive(1, 2, posted), data);
}

}  // namespace
}  // namespace velo::match
