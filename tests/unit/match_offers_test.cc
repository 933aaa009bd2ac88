/// Offers beside a plain search through all receives that are posted.
#include "match/offers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <vector>

namespace velo::match {
namespace {

constexpr uint32_t kSenders = 3;

TEST(Offers, are_the_oldest_receives_that_a_sender_has_not_seen) {
    for (uint32_t seed = 1; seed <= 60; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&random](uint32_t end) { return static_cast<uint32_t>(random() % end); };
        Offers offers;
        std::array<Offers::Sender, kSenders> senders;
        std::deque<PostedReceive> all;
        std::vector<PostedReceive*> posted;
        uint64_t told = 0;
        for (uint32_t step = 0; step < 20'000; ++step) {
            Offers::Sender& sender = senders[below(kSenders)];
            const auto source = static_cast<int32_t>(&sender - senders.data());
            const PostNumber next = all.size();
            switch (below(8)) {
                case 0:
                case 1: {
                    PostedReceive& receive = all.emplace_back();
                    const bool open = below(3) == 0;
                    receive.posted.number = next;
                    receive.posted.envelope = {0, open ? kAnySource : source, static_cast<int32_t>(next)};
                    offers.posted(receive, open ? nullptr : &sender);
                    posted.push_back(&receive);
                    break;
                }
                case 2:
                case 3: {
                    if (posted.size() < 40 && below(4) != 0) break;
                    if (posted.empty()) break;
                    const auto one = posted.begin() + below(static_cast<uint32_t>(posted.size()));
                    Offers::gone(**one);
                    posted.erase(one);
                    break;
                }
                case 4: offers.refused(sender, next); break;
                case 5:
                    if (sender.refusals.pass_open()) {
                        ASSERT_TRUE(sender.refusals.on_end(sender.refusals.age()));
                    }
                    break;
                case 6:
                    if (below(20) == 0 && sender.refusals.flagged() && !sender.refusals.pass_open()) {
                        const uint32_t age = sender.refusals.age();
                        ASSERT_EQ(offers.resend_all(sender), age + 1);
                    }
                    break;
                default: {
                    const bool may = sender.refusals.flagged() && !sender.refusals.pass_open();
                    std::vector<Envelope> expected;
                    for (const PostedReceive* one : posted) {
                        const Envelope& envelope = one->posted.envelope;
                        const bool of_sender = envelope.source == kAnySource || envelope.source == source;
                        if (of_sender && one->posted.number >= sender.refusals.seen()) expected.push_back(envelope);
                    }
                    const size_t unseen = expected.size();
                    expected.resize(std::min<size_t>(unseen, Offers::kReceivesMax));
                    Offers::Batch batch;
                    const bool some = offers.next(sender, next, batch);
                    ASSERT_EQ(some, may && unseen != 0);
                    if (!some) break;
                    ++told;
                    ASSERT_EQ(batch.age, sender.refusals.age());
                    ASSERT_TRUE(sender.refusals.pass_open());
                    if (batch.resend_all) {
                        ASSERT_GT(unseen, Offers::kWalkMax);
                        break;
                    }
                    ASSERT_EQ(batch.count, expected.size());
                    for (uint32_t i = 0; i < batch.count; ++i) ASSERT_TRUE(batch.receives[i] == expected[i]);
                    if (unseen <= Offers::kReceivesMax) {
                        ASSERT_EQ(sender.refusals.seen(), next);
                    }
                }
            }
            uint32_t flagged = 0;
            for (const Offers::Sender& one : senders) flagged += one.refusals.flagged();
            ASSERT_EQ(offers.flagged(), flagged);
        }
        EXPECT_GT(told, 500u);
    }
}

TEST(Offers, a_sender_that_has_many_to_see_sends_all_again) {
    Offers offers;
    Offers::Sender sender;
    offers.refused(sender, 0);
    std::deque<PostedReceive> receives(Offers::kWalkMax + 1);
    for (size_t i = 0; i < receives.size(); ++i) {
        receives[i].posted.number = i;
        receives[i].posted.envelope = {0, kAnySource, 1};
        offers.posted(receives[i], nullptr);
    }
    Offers::Batch batch;
    ASSERT_TRUE(offers.next(sender, receives.size(), batch));
    EXPECT_TRUE(batch.resend_all);
    EXPECT_FALSE(sender.refusals.flagged());
    EXPECT_EQ(offers.flagged(), 0u);
    for (const PostedReceive& receive : receives) EXPECT_EQ(receive.list, nullptr);
}

TEST(Offers, a_sender_that_ended_leaves_nothing) {
    Offers offers;
    Offers::Sender sender;
    offers.refused(sender, 0);
    PostedReceive named = {};
    PostedReceive open = {};
    offers.posted(named, &sender);
    offers.posted(open, nullptr);
    offers.ended(sender);
    EXPECT_EQ(offers.flagged(), 0u);
    EXPECT_EQ(named.list, nullptr);
    EXPECT_EQ(open.list, nullptr);
    Offers::gone(named);
    offers.posted(named, &sender);
    EXPECT_EQ(named.list, nullptr) << "no sender is flagged";
}

}  // namespace
}  // namespace velo::match
