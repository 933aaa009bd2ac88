/// Data of unexpected messages, kept in cells.
#include "match/data_cells.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>
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
                // Room for more.
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

TEST(DataCells, nothing_takes_no_cell) {
    DataCells cells(1u << 20);
    EXPECT_EQ(cells.store(nullptr, 0), kNoCell);
    EXPECT_EQ(cells.budget().used(), 0u);
}

}  // namespace
}  // namespace velo::match
