/// Matching against an oracle of two plain lists, which does what MPI says and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <list>
#include <memory>
#include <new>
#include <random>
#include <vector>

#include "match/posted_queue.h"
#include "match/unexpected_queue.h"

namespace {
uint64_t allocations = 0;
}
// Everything that this program allocates is counted. Inlined, they would look like a mismatch to the compiler.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
    ++allocations;
    return std::malloc(bytes);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
    if (void* memory = operator new(bytes, std::nothrow)) return memory;
    throw std::bad_alloc();
}
void* operator new[](size_t bytes) { return operator new(bytes); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return operator new(bytes, std::nothrow); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, size_t) noexcept { operator delete(memory); }

namespace velo::match {
namespace {

constexpr uint64_t kPlenty = 1u << 30;

/// All keys in one bin.
struct OneBin {
    constexpr uint32_t operator()(const Envelope&) const { return 0; }
};
/// All keys in a few bins, of which some are divided early and some late.
struct FewBins {
    constexpr uint32_t operator()(const Envelope& key) const { return (EnvelopeHash{}(key) & 3) * 0x155; }
};

/// A receive and its place in the order of posting.
struct Receive {
    Posted posted;
    uint32_t id;
};

/// Both queues beside two lists, with one operation at a time; each must find the same in both.
template <class Hash>
class Comparison {
  public:
    Comparison(uint32_t seed, uint64_t budget, int32_t sources, int32_t tags, uint32_t depth)
        : random_(seed), sources_(sources), tags_(tags), depth_(depth), unexpected_(budget), receives_(depth + 1) {
        for (Receive& receive : receives_) spare_.push_back(&receive);
    }

    void run(uint32_t operations) {
        for (uint32_t i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
            // The deeper one of the two is, the more comes to the other.
            const uint32_t deep = posted_list_.size() > depth_ / 2 ? 6 : below(3) == 0 ? 3 : below(2) * 6;
            switch (below(8)) {
                case 0: cancel(); break;
                case 1: probe(); break;
                default: deep + below(4) > 4 ? arrive() : post();
            }
            if (posted_list_.size() == depth_) arrive();
            ASSERT_EQ(posted_.size(), posted_list_.size());
            ASSERT_EQ(unexpected_.size(), unexpected_list_.size());
            ASSERT_LE(unexpected_.budget().used(), unexpected_.budget().limit());
        }
    }
    [[nodiscard]] uint64_t matched_posted() const { return matched_posted_; }
    [[nodiscard]] uint64_t matched_unexpected() const { return matched_unexpected_; }
    [[nodiscard]] uint64_t refused() const { return refused_; }
    [[nodiscard]] bool listed_once() const { return listed_once_; }
    [[nodiscard]] bool looked_at_all_once() const { return looked_at_all_once_; }

  private:
    struct Message {
        Envelope envelope;
        uint32_t id;
    };

    uint32_t below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
    Envelope message() {
        const bool collective = below(16) == 0;
        return {.context = below(2),
                .source = static_cast<int32_t>(below(static_cast<uint32_t>(sources_))),
                .tag = collective ? -10 : static_cast<int32_t>(below(static_cast<uint32_t>(tags_))) << 16};
    }
    Envelope receive() {
        Envelope receive = message();
        if (below(4) == 0) receive.source = kAnySource;
        if (below(4) == 0) receive.tag = kAnyTag;
        return receive;
    }
    auto oldest_message(const Envelope& receive) {
        return std::ranges::find_if(unexpected_list_,
                                    [&](const Message& message) { return fits_by_mpi(receive, message.envelope); });
    }
    /// Not with the code under test.
    static bool fits_by_mpi(const Envelope& receive, const Envelope& message) {
        return receive.context == message.context && (receive.source == -1 || receive.source == message.source) &&
               (receive.tag == message.tag || (receive.tag == -1 && message.tag >= 0));
    }

    void post() {
        const Envelope receive = Comparison::receive();
        const RecordRef found = look(receive);
        if (found != kNoRecord) {
            unexpected_list_.erase(oldest_message(receive));
            unexpected_.remove(found);
            ++matched_unexpected_;
            return;
        }
        Receive* const posted = spare_.back();
        spare_.pop_back();
        posted->id = next_id_++;
        posted_.post(posted->posted, receive);
        posted_list_.push_back(posted);
    }
    void arrive() {
        const Envelope message = Comparison::message();
        const auto expected = std::ranges::find_if(
            posted_list_, [&](const Receive* one) { return fits_by_mpi(one->posted.envelope, message); });
        auto* const found = reinterpret_cast<Receive*>(posted_.take(message));
        ASSERT_EQ(found, expected == posted_list_.end() ? nullptr : *expected);
        if (found != nullptr) {
            posted_list_.erase(expected);
            spare_.push_back(found);
            ++matched_posted_;
            return;
        }
        const RecordRef ref = unexpected_list_.size() == depth_ ? kNoRecord : unexpected_.add(message);
        note();
        if (ref == kNoRecord) {
            ++refused_;
            return;
        }
        unexpected_.at(ref).note = next_id_;
        unexpected_list_.push_back({message, next_id_++});
    }
    void cancel() {
        if (posted_list_.empty()) return;
        const auto one = std::next(posted_list_.begin(), below(static_cast<uint32_t>(posted_list_.size())));
        posted_.withdraw((*one)->posted);
        spare_.push_back(*one);
        posted_list_.erase(one);
    }
    void probe() { (void)look(receive()); }
    /// The record that fits, which is that of the oldest message in the list.
    RecordRef look(const Envelope& receive) {
        const auto expected = oldest_message(receive);
        const RecordRef found = unexpected_.find(receive);
        note();
        EXPECT_EQ(found != kNoRecord, expected != unexpected_list_.end());
        if (found == kNoRecord || expected == unexpected_list_.end()) return kNoRecord;
        EXPECT_EQ(unexpected_.at(found).note, expected->id);
        EXPECT_TRUE(unexpected_.at(found).envelope == expected->envelope);
        return found;
    }
    void note() {
        listed_once_ = listed_once_ || unexpected_.listed(Kind::kOpen);
        looked_at_all_once_ = looked_at_all_once_ || (unexpected_.size() > 64 && !unexpected_.listed(Kind::kOpen));
    }

    std::mt19937 random_;
    int32_t sources_;
    int32_t tags_;
    uint32_t depth_;
    PostedQueue<Hash> posted_;
    UnexpectedQueue<Hash> unexpected_;
    std::vector<Receive> receives_;
    std::vector<Receive*> spare_;
    std::list<Receive*> posted_list_;
    std::list<Message> unexpected_list_;
    uint32_t next_id_ = 0;
    uint64_t matched_posted_ = 0;
    uint64_t matched_unexpected_ = 0;
    uint64_t refused_ = 0;
    bool listed_once_ = false;
    bool looked_at_all_once_ = false;
};

static_assert(offsetof(Receive, posted) == 0);

template <class Hash>
class MatchQueues : public testing::Test {};
using Hashes = testing::Types<EnvelopeHash, FewBins, OneBin>;
TYPED_TEST_SUITE(MatchQueues, Hashes);

TYPED_TEST(MatchQueues, shallow_ones_match_as_two_lists_do) {
    for (uint32_t seed = 1; seed <= 10; ++seed) {
        SCOPED_TRACE(seed);
        Comparison<TypeParam> comparison(seed, kPlenty, 3, 2, 12);
        comparison.run(300'000);
        EXPECT_GT(comparison.matched_posted(), 10'000u);
        EXPECT_GT(comparison.matched_unexpected(), 10'000u);
        EXPECT_TRUE(comparison.listed_once());
    }
}

TYPED_TEST(MatchQueues, deep_ones_match_as_two_lists_do_while_their_tables_grow) {
    for (uint32_t seed = 1; seed <= 4; ++seed) {
        SCOPED_TRACE(seed);
        Comparison<TypeParam> comparison(seed, kPlenty, 200, 50, 1'500);
        comparison.run(30'000);
        EXPECT_GT(comparison.matched_posted(), 100u);
        EXPECT_GT(comparison.matched_unexpected(), 100u);
        EXPECT_TRUE(comparison.listed_once());
    }
}

TYPED_TEST(MatchQueues, small_budgets_refuse_messages_and_change_nothing_else) {
    for (const uint64_t budget : {0, 63, 64, 65, 8 * 64, 100 * 64, 20'000, 60'000}) {
        SCOPED_TRACE(budget);
        Comparison<TypeParam> comparison(7, budget, 20, 20, 1'000);
        comparison.run(40'000);
        EXPECT_GT(comparison.refused(), 0u);
        EXPECT_EQ(comparison.matched_unexpected() != 0, budget >= 64);
    }
}

TEST(UnexpectedQueue, without_memory_for_lists_open_receives_look_at_all_records) {
    Comparison<EnvelopeHash> comparison(3, 130 * sizeof(Record), 20, 20, 1'000);
    comparison.run(60'000);
    EXPECT_TRUE(comparison.looked_at_all_once());
}

TEST(UnexpectedQueue, a_budget_of_n_records_takes_n) {
    for (const uint32_t n : {0u, 1u, 8u, 64u}) {
        UnexpectedQueue<> queue(uint64_t{n} * sizeof(Record));
        for (uint32_t i = 0; i < n; ++i) ASSERT_NE(queue.add({0, 0, static_cast<int32_t>(i)}), kNoRecord);
        EXPECT_EQ(queue.add({0, 0, 1}), kNoRecord);
        EXPECT_EQ(queue.size(), n);
        EXPECT_EQ(queue.budget().used_max(), n * sizeof(Record));
    }
}

TEST(UnexpectedQueue, records_take_the_memory_of_lists_when_there_is_no_other) {
    // 70 records, the links of 128, and 6 bins beyond the first in each of both tables; and no byte more.
    constexpr uint64_t kBudget =
        70 * sizeof(Record) + 2 * Records::kPerChunk * sizeof(KeyLinks<RecordRef>) + 2 * 6 * sizeof(RecordRef);
    UnexpectedQueue<> queue(kBudget);
    for (int32_t i = 0; i < 70; ++i) ASSERT_NE(queue.add({0, 1, i}), kNoRecord);
    EXPECT_EQ(queue.find({0, kAnySource, 70}), kNoRecord);
    EXPECT_TRUE(queue.listed(Kind::kOpenSource));
    EXPECT_EQ(queue.budget().used(), kBudget);
    for (int32_t i = 0; i < 24; ++i) ASSERT_NE(queue.add({0, 1, 1}), kNoRecord);
    EXPECT_FALSE(queue.listed(Kind::kOpenSource));
    EXPECT_EQ(queue.size(), 94u);
    EXPECT_EQ(queue.budget().used(), 94 * sizeof(Record) + 6 * sizeof(RecordRef));
    EXPECT_EQ(queue.at(queue.find({0, kAnySource, 1})).envelope.source, 1);
}

TEST(UnexpectedQueue, lists_are_kept_until_it_is_empty) {
    UnexpectedQueue<> queue(kPlenty);
    for (int32_t i = 0; i < 10; ++i) EXPECT_NE(queue.add({0, 1, i}), kNoRecord);
    EXPECT_EQ(queue.at(queue.find({0, kAnySource, 7})).envelope.tag, 7) << "one of those that are looked at first";
    EXPECT_FALSE(queue.listed(Kind::kOpenSource));
    EXPECT_EQ(queue.at(queue.find({0, kAnySource, 9})).envelope.tag, 9);
    for (int32_t i = 0; i < 10; ++i) {
        EXPECT_TRUE(queue.listed(Kind::kOpenSource));
        queue.remove(queue.find({0, 1, i}));
    }
    EXPECT_FALSE(queue.listed(Kind::kOpenSource));
}

TEST(UnexpectedQueue, reserved_records_are_there_when_all_others_are_taken) {
    UnexpectedQueue<> queue(100 * sizeof(Record));
    for (int32_t i = 0; i < 50; ++i) ASSERT_NE(queue.add({0, 1, 1}), kNoRecord);
    EXPECT_EQ(queue.find({0, kAnySource, 2}), kNoRecord);
    EXPECT_TRUE(queue.listed(Kind::kOpenSource));
    EXPECT_FALSE(queue.reserve(51));
    EXPECT_TRUE(queue.reserve(30)) << "of memory that the index gives up, if need be";
    uint32_t others = 0;
    while (queue.add({0, 1, 1}) != kNoRecord) ++others;
    EXPECT_EQ(others, 20u);
    for (int32_t i = 0; i < 30; ++i) queue.at(queue.add_reserved({0, 2, i})).note = 7;
    EXPECT_EQ(queue.size(), 100u);
    EXPECT_EQ(queue.at(queue.find({0, 2, 29})).note, 7u);
    EXPECT_EQ(queue.budget().used(), queue.budget().limit());
}

TEST(UnexpectedQueue, messages_that_wait_are_told_in_order_of_arrival) {
    UnexpectedQueue<> queue(kPlenty);
    for (int32_t i = 0; i < 5; ++i) queue.at(queue.add({0, i % 2, 9})).peer = static_cast<uint32_t>(i);
    queue.remove(queue.find({0, 1, 9}));
    std::vector<uint32_t> peers;
    for (RecordRef ref = queue.oldest(); ref != kNoRecord; ref = queue.newer(ref)) peers.push_back(queue.at(ref).peer);
    EXPECT_EQ(peers, (std::vector<uint32_t>{0, 2, 3, 4}));
}

TEST(KeyTable, has_a_bin_for_each_key_and_divides_one_at_a_time) {
    PostedStore store;
    KeyTable<PostedStore> table(store);
    std::vector<Posted> receives(3'000);
    for (uint32_t i = 0; i < receives.size(); ++i) {
        receives[i].envelope = {0, static_cast<int32_t>(i), 5};
        const uint32_t before = table.bins();
        table.append(&receives[i], receives[i].envelope);
        EXPECT_LE(table.bins(), before + 1);
        EXPECT_GE(table.bins(), table.keys());
        EXPECT_LE(table.bins(), std::max(table.keys(), KeyTable<PostedStore>::kFirstBins));
    }
    for (Posted& receive : receives) EXPECT_EQ(table.first(receive.envelope), &receive);
    // Those of one key need one bin.
    for (Posted& receive : receives) {
        table.remove(&receive);
        receive.envelope = {};
        table.append(&receive, receive.envelope);
    }
    EXPECT_EQ(table.keys(), 1u);
    EXPECT_EQ(table.first({}), &receives[0]);
}

TEST(MatchQueues, nothing_is_allocated_once_they_are_warm) {
    PostedQueue<> posted;
    UnexpectedQueue<> unexpected(kPlenty);
    std::vector<Posted> receives(5'000);
    uint64_t before = 0;
    for (uint32_t round = 0; round < 3; ++round) {
        if (round == 1) before = allocations;
        for (uint32_t i = 0; i < receives.size(); ++i) {
            const auto tag = static_cast<int32_t>(i + 7 * round);
            posted.post(receives[i], {1, i % 3 == 0 ? kAnySource : 4, tag});
            EXPECT_NE(unexpected.add({2, 4, tag}), kNoRecord);
        }
        EXPECT_EQ(unexpected.find({2, kAnySource, -77}), kNoRecord);
        EXPECT_TRUE(unexpected.listed(Kind::kOpenSource));
        for (uint32_t i = 0; i < receives.size(); ++i) {
            const auto tag = static_cast<int32_t>(i + 7 * round);
            EXPECT_EQ(posted.take({1, 4, tag}), &receives[i]);
            unexpected.remove(unexpected.find({2, kAnySource, tag}));
        }
    }
    EXPECT_EQ(allocations, before);
}

/// The place of the last envelope is remembered, and changes when its bin is divided.
TEST(MatchQueues, a_receive_is_found_at_once_whatever_bins_its_post_divides) {
    for (int32_t source = 0; source < 16; ++source) {
        PostedQueue<> queue;
        std::vector<Posted> receives(2048);
        for (uint32_t i = 0; i < receives.size(); ++i) {
            const Envelope key = {1, source, static_cast<int32_t>(i)};
            queue.post(receives[i], key);
            ASSERT_EQ(queue.take(key), &receives[i]) << source << ", " << i;
            queue.post(receives[i], key);
        }
    }
}

TEST(MatchQueues, a_record_takes_a_line_and_a_posted_receive_six_words) {
    EXPECT_EQ(sizeof(Record), 64u);
    EXPECT_EQ(sizeof(Posted), 48u);
}

/// The most keys in one of 1,024 bins.
template <class MakeKey>
uint32_t fullest_bin(MakeKey&& key) {
    std::vector<uint32_t> bins(1024);
    for (int32_t i = 0; i < 1024; ++i) ++bins[EnvelopeHash{}(key(i)) & 1023];
    return *std::ranges::max_element(bins);
}

TEST(EnvelopeHash, usual_keys_spread) {
    EXPECT_LE(fullest_bin([](int32_t i) { return Envelope{0, 3, i}; }), 8u);
    EXPECT_LE(fullest_bin([](int32_t i) { return Envelope{0, i, 3}; }), 8u);
    EXPECT_LE(fullest_bin([](int32_t i) { return Envelope{0, 3, i << 16}; }), 8u);
    EXPECT_LE(fullest_bin([](int32_t i) { return Envelope{0, i, i << 16}; }), 8u);
    EXPECT_LE(fullest_bin([](int32_t i) { return Envelope{static_cast<uint32_t>(i), 0, -17}; }), 8u);
    EXPECT_LE(fullest_bin([](int32_t i) { return Envelope{0, i % 32, i / 32}; }), 8u);
}

TEST(Envelope, what_a_peer_sends_is_of_a_message_or_refused) {
    EXPECT_TRUE(is_of_message({0, 0, 0}));
    EXPECT_TRUE(is_of_message({0, 5, -10}));
    EXPECT_FALSE(is_of_message({0, kAnySource, 0}));
    EXPECT_FALSE(is_of_message({0, -7, 0}));
    EXPECT_FALSE(is_of_message({0, 0, kAnyTag}));
}

}  // namespace
}  // namespace velo::match
