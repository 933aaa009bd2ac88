/// The sender's queue with its index, beside the same machine with a queue that is searched.
#include "match/outgoing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <vector>

namespace velo::match {
namespace {

/// Searches its messages, which are named by their number.
struct PlainStore {
    using Ref = int64_t;
    static constexpr Ref kNone = -1;

    [[nodiscard]] Pending<Ref>& at(Ref ref) { return all[static_cast<size_t>(ref)]; }
    [[nodiscard]] Ref first_fit(const Envelope& receive, uint32_t age) const {
        for (size_t i = 0; i < all.size(); ++i) {
            if (waiting[i] && fits(receive, all[i].envelope) && all[i].chosen_age != age) return static_cast<Ref>(i);
        }
        return kNone;
    }

    std::deque<Pending<Ref>> all;
    std::vector<bool> waiting;
};

constexpr int32_t kSource = 5;

TEST(WaitingSends, request_what_a_queue_that_is_searched_requests) {
    for (uint32_t seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&random](uint32_t end) { return static_cast<uint32_t>(random() % end); };
        const uint32_t window = 1 + below(4);
        WaitingSends sends;
        std::deque<WaitingSend> requests;
        PlainStore plain;
        PendingSends<PlainStore> machine;
        struct Asked {
            uint64_t number;
            uint32_t age;
        };
        std::deque<Asked> asked;
        uint32_t age = 0;
        bool open = false;
        uint64_t accepted = 0;
        const auto message = [&]() -> Envelope {
            return {below(2), kSource, below(8) == 0 ? -20 : static_cast<int32_t>(below(6))};
        };
        for (uint32_t step = 0; step < 20'000; ++step) {
            switch (below(6)) {
                case 0: {
                    if (requests.size() - accepted > 200) break;
                    const Envelope envelope = message();
                    sends.add(requests.emplace_back(), envelope);
                    const uint64_t number = plain.all.size();
                    plain.all.emplace_back().number = number;
                    plain.all.back().envelope = envelope;
                    plain.waiting.push_back(true);
                    machine.add(plain, static_cast<int64_t>(number));
                    break;
                }
                case 1: {  // a pass, of which there is one at a time
                    if (open) break;
                    open = true;
                    ++age;
                    if (below(4) == 0) {
                        sends.resend_all(age);
                        machine.on_resend_all(plain, age);
                        break;
                    }
                    std::vector<Envelope> receives;
                    for (uint32_t i = 0; i < 1 + below(3); ++i) {
                        receives.push_back(message());
                        if (below(3) == 0) receives.back().tag = kAnyTag;
                    }
                    const auto count = static_cast<uint32_t>(receives.size());
                    sends.offered(age, receives.data(), count);
                    machine.on_offers(plain, age, receives.data(), count);
                    break;
                }
                case 2: {  // an answer: only those of the present age are taken
                    if (asked.empty()) break;
                    const Asked one = asked.front();
                    asked.pop_front();
                    WaitingSend& request = requests[one.number];
                    if (one.age == age && below(3) == 0) {
                        ASSERT_TRUE(sends.accepted(request));
                        ASSERT_TRUE(machine.on_accepted(plain, static_cast<int64_t>(one.number)));
                        plain.waiting[one.number] = false;
                        ++accepted;
                    } else {
                        ASSERT_TRUE(sends.refused(request, one.age));
                        ASSERT_TRUE(machine.on_refused(plain, static_cast<int64_t>(one.number), one.age));
                    }
                    break;
                }
                default: {
                    const auto next = sends.next(window);
                    const auto expected = machine.next(plain, window);
                    ASSERT_EQ(static_cast<int>(next.kind), static_cast<int>(expected.kind));
                    ASSERT_EQ(next.age, expected.age);
                    ASSERT_EQ(next.first, expected.first);
                    if (next.ref != nullptr) {
                        ASSERT_EQ(next.ref->pending.number, static_cast<uint64_t>(expected.ref));
                        ASSERT_EQ(next.waiting, requests.size() - accepted);
                        asked.push_back({next.ref->pending.number, next.age});
                    }
                    if (next.kind == WaitingSends::Machine::Next::Kind::kEnd) open = false;
                }
            }
            ASSERT_EQ(sends.empty(), machine.empty());
        }
        EXPECT_GT(accepted, 200u);
    }
}

/// Against plain counts of records and cells, with messages that wait.
/// Refusals of an older age are counted against requests that have no answer, whichever they name.
TEST(WaitingSends, answers_beyond_those_that_were_asked_for_change_nothing) {
    WaitingSends sends;
    std::deque<WaitingSend> requests(2);
    for (WaitingSend& request : requests) {
        sends.add(request, {1, kSource, 3});
        ASSERT_EQ(sends.next(4).ref, &request);
    }
    EXPECT_TRUE(sends.refused(requests[0], 77));
    EXPECT_TRUE(sends.refused(requests[0], 77)) << "made up, and not to be told from one for the other request";
    EXPECT_FALSE(sends.refused(requests[1], 0));
    EXPECT_FALSE(sends.accepted(requests[1]));
    EXPECT_EQ(sends.machine().unanswered(), 0u);
    EXPECT_FALSE(sends.empty());
}

TEST(Outgoing, what_waits_holds_back_all_that_was_granted) {
    std::mt19937 random(11);
    const auto below = [&](uint32_t end) { return static_cast<uint32_t>(random() % end); };
    Outgoing outgoing;
    std::deque<WaitingSend> requests;
    std::deque<WaitingSend*> waiting;
    uint32_t records = 0;
    uint32_t cells = 0;
    uint32_t left = 0;
    for (int step = 0; step < 200'000; ++step) {
        switch (below(6)) {
            case 0: {
                const Room more = {below(below(50) == 0 ? Room::kMax : 4), below(8)};
                const bool fits = records + more.records() <= Room::kMax && cells + more.cells() <= Room::kMax;
                ASSERT_EQ(outgoing.granted(more), fits);
                if (!fits) break;
                records += more.records();
                cells += more.cells();
                break;
            }
            case 1: {
                const uint32_t bytes = below(2000);
                const bool numbered = below(4) == 0;
                const uint32_t wanted = Unmatched::cells_of(bytes, numbered);
                const bool leaves = waiting.empty() && records != 0 && wanted <= cells;
                ASSERT_EQ(outgoing.take_grant(bytes, numbered), leaves);
                if (!leaves) break;
                if (below(5) == 0) {
                    outgoing.give_back_grant(bytes, numbered);
                } else {
                    --records;
                    cells -= wanted;
                    ++left;
                }
                break;
            }
            case 2: {
                const bool leaves = waiting.empty() && records != 0;
                ASSERT_EQ(outgoing.take_record(), leaves);
                if (!leaves) break;
                if (below(5) == 0) {
                    outgoing.give_back_record();
                } else {
                    --records;
                    ++left;
                }
                break;
            }
            case 3:
                if (below(10) != 0) break;
                waiting.push_back(&requests.emplace_back());
                outgoing.add(*waiting.back(), {0, kSource, 1});
                break;
            default:
                if (waiting.empty()) break;
                if (outgoing.waiting().next(1).ref == nullptr) break;
                ASSERT_TRUE(outgoing.accepted(*waiting.front()));
                waiting.pop_front();
        }
        ASSERT_EQ(outgoing.room().records(), records);
        ASSERT_EQ(outgoing.room().cells(), cells);
    }
    EXPECT_GT(left, 10'000u);
    EXPECT_GT(requests.size(), 1'000u);
}

TEST(WaitingSends, answers_that_nothing_asked_for_change_nothing) {
    WaitingSends sends;
    WaitingSend one;
    sends.add(one, {0, kSource, 1});
    EXPECT_FALSE(sends.accepted(one));
    EXPECT_FALSE(sends.refused(one, 0));
    EXPECT_EQ(sends.next(1).ref, &one);
    sends.resend_all(1);
    EXPECT_FALSE(sends.accepted(one)) << "its request is of an older age";
    EXPECT_EQ(sends.machine().unanswered(), 1u);
    EXPECT_TRUE(sends.refused(one, 0));
    EXPECT_EQ(sends.next(1).ref, &one);
    EXPECT_TRUE(sends.accepted(one));
    EXPECT_TRUE(sends.empty());
}

/// A receiver that is not ours may send what it likes.
TEST(WaitingSends, passes_out_of_turn_request_nothing_twice) {
    WaitingSends sends;
    std::deque<WaitingSend> requests(20);
    for (WaitingSend& request : requests) sends.add(request, {0, kSource, 1});
    for (int i = 0; i < 5; ++i) {
        const auto next = sends.next(8);
        ASSERT_NE(next.ref, nullptr);
        ASSERT_TRUE(sends.refused(*next.ref, 0));
    }
    sends.resend_all(1);
    const Envelope receive = {0, kSource, kAnyTag};
    sends.offered(2, &receive, 1);
    sends.offered(2, &receive, 1);
    sends.offered(3, &receive, 1);
    std::vector<uint64_t> numbers;
    for (;;) {
        const auto next = sends.next(~0u);
        if (next.kind == WaitingSends::Machine::Next::Kind::kNothing) break;
        if (next.ref != nullptr) numbers.push_back(next.ref->pending.number);
    }
    ASSERT_EQ(numbers.size(), 20u);
    for (uint64_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], i);
}

TEST(WaitingSends, a_peer_that_talks_takes_little_memory) {
    EXPECT_LE(sizeof(WaitingSends::Machine), 64u);
    EXPECT_LE(sizeof(WaitingSends), 80u);
}

}  // namespace
}  // namespace velo::match
