// Memory of what waits: pieces keep their contents, cost little more than their size, and go back to the
// system.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "velo/base/chunked_memory.h"

namespace velo::base {
namespace {

constexpr size_t kKeptBytes = ChunkedMemory::kKeptChunksMax * ChunkedMemory::kChunkBytes;

struct Piece {
    unsigned char* data;
    size_t bytes;
    unsigned char value;

    [[nodiscard]] bool intact() const {
        return std::all_of(data, data + bytes, [this](unsigned char byte) { return byte == value; });
    }
};

TEST(ChunkedMemory, pieces_of_any_size_are_aligned_apart_and_keep_their_contents) {
    ChunkedMemory memory;
    ChunkedMemory::Filling users[3] = {};
    std::mt19937 random(7);
    std::vector<Piece> pieces;
    for (int i = 0; i < 20000; ++i) {
        if (!pieces.empty() && random() % 3 == 0) {
            std::swap(pieces[random() % pieces.size()], pieces.back());
            ASSERT_TRUE(pieces.back().intact()) << "step " << i;
            memory.free(pieces.back().data);
            pieces.pop_back();
            continue;
        }
        const size_t bytes = random() % 50 == 0 ? random() % 200000 : random() % 700;
        Piece piece = {static_cast<unsigned char*>(memory.allocate(users[random() % 3], bytes)), bytes,
                       static_cast<unsigned char>(i)};
        ASSERT_NE(piece.data, nullptr);
        ASSERT_EQ(reinterpret_cast<uintptr_t>(piece.data) % alignof(std::max_align_t), 0u);
        std::memset(piece.data, piece.value, bytes);
        pieces.push_back(piece);
    }
    for (const Piece& piece : pieces) {
        ASSERT_TRUE(piece.intact());
        memory.free(piece.data);
    }
    EXPECT_LE(memory.bytes(), kKeptBytes);
    for (const auto* filling : users) EXPECT_EQ(filling, nullptr) << "a chunk that has gone is still filled";
}

TEST(ChunkedMemory, many_pieces_cost_little_more_than_their_size) {
    for (const size_t bytes : {100u, 1000u, 10000u, 30000u}) {
        ChunkedMemory memory;
        ChunkedMemory::Filling user = nullptr;
        const size_t count = (16u << 20) / bytes;
        for (size_t i = 0; i < count; ++i) ASSERT_NE(memory.allocate(user, bytes), nullptr);
        EXPECT_LT(memory.bytes(), count * bytes * 6 / 5) << "pieces of " << bytes << " bytes";
    }
}

TEST(ChunkedMemory, what_one_user_holds_does_not_keep_the_memory_of_another) {
    ChunkedMemory memory;
    ChunkedMemory::Filling slow = nullptr;
    ChunkedMemory::Filling fast = nullptr;
    std::vector<void*> left;
    for (int i = 0; i < 100000; ++i) {
        if (i % 1000 == 0) {
            ASSERT_NE(memory.allocate(slow, 100), nullptr);
        }
        left.push_back(memory.allocate(fast, 100));
    }
    for (void* piece : left) memory.free(piece);
    EXPECT_LE(memory.bytes(), kKeptBytes + ChunkedMemory::kChunkBytes);
}

TEST(ChunkedMemory, a_burst_that_comes_again_takes_the_memory_that_was_kept) {
    ChunkedMemory memory;
    ChunkedMemory::Filling user = nullptr;
    for (int burst = 0; burst < 3; ++burst) {
        void* const piece = memory.allocate(user, 100);
        EXPECT_EQ(memory.bytes(), ChunkedMemory::kChunkBytes) << "burst " << burst;
        memory.free(piece);
    }
}

}  // namespace
}  // namespace velo::base
