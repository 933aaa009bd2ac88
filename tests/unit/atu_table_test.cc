#include "velo/wire/atu_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "velo/rendezvous/cookie_table.h"

namespace velo::base {
namespace {

struct Table {
    std::vector<uint64_t> memory;
    AtuTable table;

    explicit Table(uint32_t capacity)
        : memory(AtuTable::bytes_for(capacity) / sizeof(uint64_t)),
          table(reinterpret_cast<std::byte*>(memory.data()), capacity) {}
};

TEST(AtuTable, a_registered_range_translates_with_its_rights_only) {
    Table atu(4);
    Registration range;
    ASSERT_EQ(atu.table.add(reinterpret_cast<void*>(0x1000), 100, kAccessRead, range), Status::kOk);
    uint64_t address = 0;
    EXPECT_EQ(atu.table.view().translate(range.nla + 40, 60, range.key, kAccessRead, address), Status::kOk);
    EXPECT_EQ(address, 0x1000u + 40);
    EXPECT_EQ(atu.table.view().translate(range.nla, 1, range.key, kAccessWrite, address), Status::kAtuFault);
    EXPECT_EQ(atu.table.view().translate(range.nla + 41, 60, range.key, kAccessRead, address),
              Status::kAtuFault);
    EXPECT_EQ(atu.table.view().translate(range.nla, UINT64_MAX, range.key, kAccessRead, address),
              Status::kAtuFault);
    EXPECT_EQ(atu.table.view().translate(range.nla, 1, range.key + 2, kAccessRead, address),
              Status::kAtuFault);
}

TEST(AtuTable, what_peers_write_into_the_shared_table_changes_nothing_for_its_owner) {
    Table atu(4);
    Registration range;
    ASSERT_EQ(atu.table.add(reinterpret_cast<void*>(0x1000), 100, kAccessRead, range), Status::kOk);
    auto& entry = reinterpret_cast<AtuEntry*>(atu.memory.data())[range.nla >> kNlaOffsetBits];
    entry.base = 0x9000;
    entry.bytes = UINT64_MAX;
    entry.access = kAccessAny;
    uint64_t address = 0;
    EXPECT_EQ(atu.table.view().translate(range.nla, 8, range.key, kAccessRead, address), Status::kOk);
    EXPECT_EQ(address, 0x1000u);
    EXPECT_EQ(atu.table.view().translate(range.nla, 8, range.key, kAccessWrite, address), Status::kAtuFault);
    EXPECT_EQ(atu.table.view().translate(range.nla, 101, range.key, kAccessRead, address), Status::kAtuFault);
    entry.key = range.key + 2;
    EXPECT_EQ(atu.table.remove(range), Status::kOk);
    EXPECT_EQ(atu.table.registrations(), 0u);
}

TEST(AtuTable, a_range_is_found_by_address_with_its_rights_while_it_stands) {
    Table atu(8);
    Registration low, high, both;
    ASSERT_EQ(atu.table.add(reinterpret_cast<void*>(0x1000), 0x1000, kAccessRead, low), Status::kOk);
    ASSERT_EQ(atu.table.add(reinterpret_cast<void*>(0x3000), 0x1000, kAccessAny, high), Status::kOk);
    uint64_t nla = 0;
    uint32_t key = 0;
    EXPECT_EQ(atu.table.view().find(0x1010, 0x100, kAccessRead, nla, key), Status::kOk);
    EXPECT_EQ(nla, low.nla + 0x10);
    EXPECT_EQ(key, low.key);
    EXPECT_EQ(atu.table.view().find(0x3f00, 0x100, kAccessWrite, nla, key), Status::kOk);
    EXPECT_EQ(nla, high.nla + 0xf00);
    EXPECT_EQ(key, high.key);
    EXPECT_EQ(atu.table.view().find(0x1010, 0x100, kAccessWrite, nla, key), Status::kAtuFault);
    EXPECT_EQ(atu.table.view().find(0x0fff, 2, kAccessRead, nla, key), Status::kAtuFault);
    EXPECT_EQ(atu.table.view().find(0x1f01, 0x100, kAccessRead, nla, key), Status::kAtuFault);
    EXPECT_EQ(atu.table.view().find(0x1010, UINT64_MAX, kAccessRead, nla, key), Status::kAtuFault);
    ASSERT_EQ(atu.table.add(reinterpret_cast<void*>(0x1000), 0x3000, kAccessRead, both), Status::kOk);
    ASSERT_EQ(atu.table.remove(low), Status::kOk);
    EXPECT_EQ(atu.table.view().find(0x1010, 0x100, kAccessRead, nla, key), Status::kOk);
    EXPECT_EQ(key, both.key);
    ASSERT_EQ(atu.table.remove(both), Status::kOk);
    EXPECT_EQ(atu.table.view().find(0x1010, 0x100, kAccessRead, nla, key), Status::kAtuFault);
}

TEST(AtuTable, revoking_twice_is_refused) {
    Table atu(4);
    Registration range;
    ASSERT_EQ(atu.table.add(nullptr, 8, kAccessAny, range), Status::kOk);
    EXPECT_EQ(atu.table.remove(range), Status::kOk);
    EXPECT_EQ(atu.table.remove(range), Status::kBadParam);
    EXPECT_EQ(atu.table.registrations(), 0u);
}

TEST(AtuTable, a_slot_is_never_given_the_key_of_its_predecessor) {
    Table atu(1);
    uint32_t last = 0;
    for (int i = 0; i < 1000; ++i) {
        Registration range;
        ASSERT_EQ(atu.table.add(nullptr, 8, kAccessAny, range), Status::kOk);
        EXPECT_NE(range.key, last);
        last = range.key;
        ASSERT_EQ(atu.table.remove(range), Status::kOk);
    }
}

TEST(AtuTable, no_guess_gets_past_the_bounds) {
    Table atu(8);
    std::vector<Registration> ranges(8);
    for (size_t i = 0; i < 8; ++i) {
        ASSERT_EQ(atu.table.add(reinterpret_cast<void*>(0x10000 * (i + 1)), 256, kAccessRead, ranges[i]),
                  Status::kOk);
    }
    std::mt19937_64 random(5);
    for (int i = 0; i < 200000; ++i) {
        const Registration& near = ranges[random() % 8];
        const uint64_t nla = random() % 2 ? near.nla + random() % 600 - 100 : random();
        const uint64_t bytes = random() % 2 ? random() % 300 : random();
        const uint32_t key = random() % 2 ? near.key : static_cast<uint32_t>(random());
        uint64_t address = 0;
        if (atu.table.view().translate(nla, bytes, key, kAccessRead, address) != Status::kOk) continue;
        const uint64_t slot = address / 0x10000;
        ASSERT_GE(slot, 1u);
        ASSERT_LE(slot, 8u);
        ASSERT_LE(address % 0x10000 + bytes, 256u);
        ASSERT_EQ(ranges[slot - 1].key, key);
    }
}

}  // namespace
}  // namespace velo::base

namespace velo::rma {
namespace {

struct Number : CookieEntry {
    int value = 0;
};

TEST(CookieTable, a_cookie_finds_its_entry_until_it_is_released) {
    CookieTable<Number> table(2);
    Number& one = *table.take();
    Number& two = *table.take();
    one.value = 1;
    two.value = 2;
    EXPECT_EQ(table.take(), nullptr);
    EXPECT_TRUE(table.full());
    const Cookie first = one.cookie;
    EXPECT_EQ(table.find(first), &one);
    table.release(one);
    EXPECT_EQ(table.find(first), nullptr);
    EXPECT_EQ(table.find(two.cookie)->value, 2);
    Number& three = *table.take();
    EXPECT_EQ(three.value, 0) << "an entry begins with nothing of the one before";
    EXPECT_NE(three.cookie, first) << "an answer to the first would be taken for the third's";
    EXPECT_EQ(table.find(three.cookie), &three);
    EXPECT_EQ(table.find(Cookie{0xdeadbeef}), nullptr);
    EXPECT_EQ(table.find_index(2), nullptr);
}

/// Over all blocks and all generations; entries stay where they are.
TEST(CookieTable, entries_have_cookies_of_their_own_whatever_was_taken_before) {
    constexpr uint32_t kEntries = 300;
    CookieTable<Number> table(kEntries);
    std::map<uint32_t, Number*> taken;
    std::mt19937 random(1);
    for (int step = 0; step < 200'000; ++step) {
        if (random() % 2 == 0) {
            Number* entry = table.take();
            ASSERT_EQ(entry == nullptr, taken.size() == kEntries);
            if (entry == nullptr) continue;
            entry->value = static_cast<int>(entry->cookie);
            ASSERT_TRUE(taken.emplace(static_cast<uint32_t>(entry->cookie), entry).second);
        } else if (!taken.empty()) {
            auto at = taken.lower_bound(random());
            if (at == taken.end()) at = taken.begin();
            ASSERT_EQ(table.find(Cookie{at->first}), at->second);
            ASSERT_EQ(table.find_index(static_cast<uint16_t>(at->first)), at->second);
            ASSERT_EQ(at->second->value, static_cast<int>(at->first));
            table.release(*at->second);
            ASSERT_EQ(table.find(Cookie{at->first}), nullptr);
            taken.erase(at);
        }
        ASSERT_EQ(table.taken(), taken.size());
    }
    uint32_t seen = 0;
    table.for_each([&](const Number& entry) { seen += taken.count(static_cast<uint32_t>(entry.cookie)); });
    EXPECT_EQ(seen, taken.size());
    // As many generations as a cookie can hold, of one entry.
    for (auto& [cookie, entry] : taken) table.release(*entry);
    const Cookie begin = table.take()->cookie;
    Cookie last = begin;
    for (uint32_t i = 0; i < 1u << 16; ++i) {
        table.release(*table.find(last));
        last = table.take()->cookie;
        ASSERT_EQ(static_cast<uint16_t>(last), static_cast<uint16_t>(begin));
    }
    EXPECT_EQ(last, begin);
}

}  // namespace
}  // namespace velo::rma
