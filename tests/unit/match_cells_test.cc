/// Data of unexpected messages, kept in cells.
#include "match/data_cells.h"
#include "match/pool.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <utility>
#include <vector>

namespace velo::match {
namespace {

std::vector<std::byte> drawn(std::mt19937& random, uint32_t bytes) {
    std::vector<std::byte> data(bytes);
    for (std::byte& one : data) one = static_cast<std::byte>(random());
    return data;
}

std::vector<std::byte> kept(const DataCells& cells, CellRef first, uint32_t bytes) {
    std::vector<std::byte> data;
    cells.for_each_piece(first, bytes, [&data](const std::byte* piece, uint32_t length) {
        data.insert(data.end(), piece, piece + length);
    });
    return data;
}

TEST(DataCells, give_back_what_was_put_into_them_in_any_order_of_freeing) {
    std::mt19937 random(1);
    DataCells cells(1u << 20);
    struct Message {
        CellRef first;
        std::vector<std::byte> data;
    };
    std::deque<Message> messages;
    uint64_t refused = 0;
    for (uint32_t step = 0; step < 20'000; ++step) {
        if (random() % 2 == 0 || messages.empty()) {
            const uint32_t bytes = 1 + static_cast<uint32_t>(random() % (random() % 4 == 0 ? 9000 : 300));
            std::vector<std::byte> data = drawn(random, bytes);
            const uint32_t before = cells.in_use();
            const CellRef first = cells.store(data.data(), bytes);
            if (first == kNoCell) {
                ++refused;
                EXPECT_EQ(cells.in_use(), before);
                EXPECT_GT((before + DataCells::cells_of(bytes)) * DataCells::kCellBytes, cells.budget().limit());
                // Cells for more.
                for (int i = 0; i < 200 && !messages.empty(); ++i) {
                    cells.free(messages.front().first);
                    messages.pop_front();
                }
                continue;
            }
            EXPECT_EQ(cells.in_use(), before + DataCells::cells_of(bytes));
            messages.push_back({first, std::move(data)});
        } else if (random() % 3 == 0) {
            const size_t at = random() % messages.size();
            const auto bytes = static_cast<uint32_t>(messages[at].data.size());
            ASSERT_EQ(kept(cells, messages[at].first, bytes), messages[at].data);
            cells.free(messages[at].first);
            messages.erase(messages.begin() + static_cast<ptrdiff_t>(at));
        }
    }
    EXPECT_GT(refused, 5u);
    EXPECT_LE(cells.budget().used_max(), cells.budget().limit());
    for (const Message& message : messages) cells.free(message.first);
    EXPECT_EQ(cells.in_use(), 0u);
}

TEST(DataCells, a_budget_of_n_cells_keeps_n_cells_of_data) {
    const std::vector<std::byte> data(5 * DataCells::kDataBytes + 1);
    for (const uint32_t n : {0u, 1u, 5u}) {
        DataCells cells(uint64_t{n} * DataCells::kCellBytes + DataCells::kCellBytes - 1);
        const CellRef all = cells.store(data.data(), n * DataCells::kDataBytes);
        EXPECT_EQ(all == kNoCell, n == 0);
        EXPECT_EQ(cells.store(data.data(), 1), kNoCell);
        EXPECT_EQ(cells.in_use(), n);
        cells.free(all);
        EXPECT_EQ(cells.store(data.data(), n * DataCells::kDataBytes + 1), kNoCell) << "more than there is";
        EXPECT_EQ(cells.in_use(), 0u);
    }
}

/// Beside another user of the budget, who takes all that it can get.
TEST(Pool, what_is_reserved_is_there) {
    struct Piece {
        uint32_t next;
        uint32_t number;
        uint64_t more;
    };
    for (uint32_t seed = 1; seed <= 30; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        Budget budget(1 + random() % 10'000);
        Pool<Piece, &Piece::next> pool(budget);
        std::vector<uint32_t> taken;
        uint64_t others = 0;
        uint32_t reserved = 0;
        uint32_t number = 0;
        std::vector<uint32_t> numbers;
        const auto keep = [&](uint32_t ref) {
            pool.at(ref).number = ++number;
            taken.push_back(ref);
            numbers.push_back(number);
        };
        for (uint32_t step = 0; step < 10'000; ++step) {
            switch (random() % 7) {
                case 0:
                    if (const uint32_t pieces = random() % 20; pool.reserve(pieces)) reserved += pieces;
                    break;
                case 1: {
                    const bool may = pool.supply().has(1);
                    const uint32_t ref = pool.take();
                    EXPECT_EQ(ref != ~0u, may);
                    if (may) keep(ref);
                    break;
                }
                case 2:
                    if (reserved == 0) break;
                    --reserved;
                    keep(pool.take_reserved());
                    break;
                case 3:
                case 4: {
                    if (taken.empty()) break;
                    const size_t at = random() % taken.size();
                    ASSERT_EQ(pool.at(taken[at]).number, numbers[at]) << "another has the same piece";
                    pool.give_back(taken[at]);
                    taken.erase(taken.begin() + static_cast<ptrdiff_t>(at));
                    numbers.erase(numbers.begin() + static_cast<ptrdiff_t>(at));
                    break;
                }
                case 5:
                    if (budget.take(24)) others += 24;
                    if (random() % 4 == 0) budget.give_back(std::exchange(others, 0));
                    break;
                default:
                    if (reserved == 0 || random() % 8 != 0) break;
                    pool.unreserve(1);
                    --reserved;
            }
            ASSERT_EQ(pool.supply().reserved(), reserved);
            ASSERT_EQ(pool.supply().in_use(), taken.size());
            ASSERT_EQ(budget.used(), others + pool.supply().made() * sizeof(Piece));
            ASSERT_LE(budget.used(), budget.limit());
        }
        while (reserved-- > 0) keep(pool.take_reserved());
        EXPECT_EQ(pool.supply().in_use(), taken.size());
    }
}

TEST(Pool, others_do_not_take_the_chunk_of_what_is_reserved) {
    struct Piece {
        uint32_t next;
        uint32_t number;
    };
    Budget budget(1u << 20);
    Pool<Piece, &Piece::next> pool(budget);
    ASSERT_TRUE(pool.reserve(pool.kPerChunk));
    pool.at(pool.take()).number = 0;
    for (uint32_t i = 1; i <= pool.kPerChunk; ++i) pool.at(pool.take_reserved()).number = i;
    for (uint32_t i = 0; i <= pool.kPerChunk; ++i) EXPECT_EQ(pool.at(i).number, i);
}

TEST(DataCells, a_message_is_one_piece_where_cells_are_side_by_side) {
    const uint32_t bytes = 20 * DataCells::kDataBytes;
    const std::vector<std::byte> data(bytes);
    const auto pieces = [](const DataCells& cells, CellRef first, uint32_t length) {
        uint32_t count = 0;
        cells.for_each_piece(first, length, [&count](const std::byte*, uint32_t) { ++count; });
        return count;
    };
    DataCells cells(60 * DataCells::kCellBytes);
    std::vector<CellRef> messages;
    for (int i = 0; i < 3; ++i) messages.push_back(cells.store(data.data(), bytes));
    for (const CellRef first : messages) EXPECT_EQ(pieces(cells, first, bytes), 1u);
    // Every other cell of 20 is free: all of these fit, in a run for each.
    cells.free(messages[1]);
    std::vector<CellRef> single;
    for (int i = 0; i < 20; ++i) single.push_back(cells.store(data.data(), 1));
    for (size_t i = 0; i < single.size(); i += 2) cells.free(single[i]);
    const CellRef scattered = cells.store(data.data(), bytes / 2);
    EXPECT_EQ(pieces(cells, scattered, bytes / 2), 10u);
    EXPECT_EQ(cells.store(data.data(), 1), kNoCell);
    // More than a group.
    DataCells large(1u << 20);
    EXPECT_EQ(pieces(large, large.store(data.data(), bytes), bytes), 1u);
    const std::vector<std::byte> longer(100 * DataCells::kDataBytes);
    const auto length = static_cast<uint32_t>(longer.size());
    EXPECT_EQ(pieces(large, large.store(longer.data(), length), length), 2u);
}

TEST(DataCells, nothing_takes_no_cell) {
    DataCells cells(1u << 20);
    EXPECT_EQ(cells.store(nullptr, 0), kNoCell);
    EXPECT_EQ(cells.budget().used(), 0u);
}

}  // namespace
}  // namespace velo::match
