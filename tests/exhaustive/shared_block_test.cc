// Blocks that a reader and an owner move together: in every interleaving of small cases each byte is moved
// once, nothing of a block is under way when it is over, and every block ends; owners that come late,
// failures, generations that wrap and a word that others overwrite included.
#include "velo/wire/shared_block.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "tests/exhaustive/explorer.h"

namespace velo::exhaustive {
namespace {

using base::BlockPart;
using base::ClaimWord;
using base::ReaderBlock;
using base::SharedBlock;

struct Options {
    uint32_t bytes = 0;  ///< of a block
    uint8_t blocks = 2;  ///< one after the other, in the same work item
    uint32_t reader_bytes_max = 0;
    uint32_t owner_bytes_max = 0;
    bool failures = false;     ///< either side may give up, at any time
    bool overwritten = false;  ///< once in a block, at any time, by anything
    uint16_t generation = 0;   ///< before the first block
};

class BlockWorld {
  public:
    enum class Kind : uint8_t {
        kOpen,
        kReaderClaims,
        kReaderCopied,
        kReaderFails,
        kReaderPolls,
        kReaderWritesOff,
        kOwnerCalled,
        kOwnerClaims,
        kOwnerSends,
        kOwnerFails,
        kReaderHears,
        kOverwrite,
    };
    struct Step {
        Kind kind;
        uint16_t word = 0;  ///< which of those that it is overwritten with
    };
    struct Message {
        uint16_t generation;
        BlockPart part;
        bool missing;  ///< these bytes will not come
    };
    struct State {
        uint64_t word = 0;
        ReaderBlock reader;
        uint8_t opened = 0;
        bool open = false;
        bool failed = false;
        bool overwritten = false;
        BlockPart own;  ///< that the reader copies
        uint32_t own_chunks = 0;
        std::vector<uint8_t> moved;  ///< by chunk: how often
        std::deque<uint16_t> calls;
        SharedBlock owner;
        bool owner_claims = false;
        BlockPart owned;  ///< that the owner has in hand
        std::deque<Message> messages;
        std::string wrong;
    };

    explicit BlockWorld(const Options& options) : options_(options) {
        ClaimWord word;
        while (first_.generation() != options.generation) first_.open(word, options.bytes);
        word.word = uint64_t{options.generation} << 48;
        chunk_bytes_ = SharedBlock(options.bytes, options.generation).claim_front(word).bytes;
        const uint64_t all = chunks();
        for (uint64_t generation = 0; generation < options.blocks + 2u; ++generation) {
            const uint64_t high = uint64_t{static_cast<uint16_t>(options.generation + generation)} << 48;
            for (uint64_t back = 0; back <= all + 1; ++back) {
                for (uint64_t front = 0; front <= all + 1; ++front)
                    words_.push_back(high | back << 24 | front);
            }
            words_.push_back(high | 0xffffffffffff);
        }
    }

    [[nodiscard]] State initial() const {
        State state;
        state.reader = first_;
        return state;
    }

    void append_steps(const State& state, std::vector<Step>& steps) const {
        const auto add = [&](bool possible, Kind kind) {
            if (possible) steps.push_back({kind});
        };
        const bool claiming = state.open && !state.reader.closed();
        const bool in_hand = state.owned.bytes != 0;
        add(!state.open && state.opened < options_.blocks, Kind::kOpen);
        add(claiming && state.own.bytes == 0, Kind::kReaderClaims);
        add(state.own.bytes != 0, Kind::kReaderCopied);
        add(claiming && options_.failures, Kind::kReaderFails);
        add(claiming && state.overwritten, Kind::kReaderPolls);
        // A word can claim for an owner that has taken nothing. The users learn it in their ways.
        const bool owner_rests =
            state.calls.empty() && !state.owner_claims && !in_hand && state.messages.empty();
        add(state.open && state.overwritten && state.reader.closed() && owner_rests, Kind::kReaderWritesOff);
        add(!state.calls.empty() && !in_hand, Kind::kOwnerCalled);
        add(state.owner_claims && !in_hand, Kind::kOwnerClaims);
        add(in_hand, Kind::kOwnerSends);
        add(in_hand && options_.failures, Kind::kOwnerFails);
        add(!state.messages.empty(), Kind::kReaderHears);
        if (!options_.overwritten || state.overwritten || !state.open) return;
        for (uint16_t i = 0; i < words_.size(); ++i) steps.push_back({Kind::kOverwrite, i});
    }

    uint32_t apply(State& state, Step step) const {
        ClaimWord shared;
        shared.word = step.kind == Kind::kOverwrite ? words_[step.word] : state.word;
        switch (step.kind) {
            case Kind::kOpen:
                state.reader.open(shared, options_.bytes);
                state.calls.push_back(state.reader.generation());
                state.moved.assign(chunks(), 0);
                ++state.opened;
                state.open = true;
                state.failed = state.overwritten = false;
                state.own_chunks = 0;
                break;
            case Kind::kReaderClaims:
                state.own = state.reader.claim_back(shared, options_.reader_bytes_max);
                check(state, state.own);
                state.own_chunks += state.reader.chunks(state.own.bytes);
                if (state.own.bytes == 0) close(state, shared, false);
                break;
            case Kind::kReaderCopied:
                move(state, state.own);
                state.reader.end(state.own.bytes);
                state.own = {};
                break;
            case Kind::kReaderFails: close(state, shared, true); break;
            case Kind::kReaderPolls:
                if (!state.reader.intact(shared)) close(state, shared, true);
                break;
            case Kind::kReaderWritesOff: state.reader.write_off(); break;
            case Kind::kOwnerCalled:
                state.owner = SharedBlock(options_.bytes, state.calls.front());
                state.owner_claims = true;
                state.calls.pop_front();
                break;
            case Kind::kOwnerClaims:
                state.owned = state.owner.claim_front(shared, options_.owner_bytes_max);
                check(state, state.owned);
                state.owner_claims = state.owned.bytes != 0;
                break;
            case Kind::kOwnerSends:
            case Kind::kOwnerFails: {
                const bool missing = step.kind == Kind::kOwnerFails;
                state.messages.push_back({state.owner.generation(), state.owned, missing});
                state.owner_claims = !missing;
                state.owned = {};
                break;
            }
            case Kind::kReaderHears: hear(state, shared); break;
            case Kind::kOverwrite: state.overwritten = true; break;
        }
        if (state.open && state.own.bytes == 0 && state.reader.due_bytes() == 0) end(state, shared);
        state.word = shared.word;
        return 0;
    }

    static constexpr uint32_t kAllOver = 1;
    [[nodiscard]] uint32_t goals() const { return kAllOver; }
    [[nodiscard]] uint32_t goals_met(const State& state) const {
        return state.opened == options_.blocks && !state.open ? kAllOver : 0;
    }
    [[nodiscard]] std::string violation(const State& state) const {
        if (!state.wrong.empty()) return state.wrong;
        if (state.reader.ended_bytes() > options_.bytes || state.reader.due_bytes() > options_.bytes) {
            return "more bytes than the block has";
        }
        return "";
    }
    void append_key(const State& state, Key& key) const {
        const auto add = [&key](uint64_t number, uint32_t bytes) {
            for (uint32_t i = 0; i < bytes; ++i) key.push_back(static_cast<uint8_t>(number >> 8 * i));
        };
        const auto add_part = [&add](BlockPart part) {
            add(part.offset, 3);
            add(part.bytes, 3);
        };
        add(state.word, 8);
        add(state.reader.generation(), 2);
        add(state.reader.ended_bytes(), 3);
        add(state.reader.due_bytes(), 3);
        add(state.own_chunks, 1);
        add(uint64_t{state.opened} << 5 | uint64_t{state.open} << 4 | uint64_t{state.reader.closed()} << 3 |
                uint64_t{state.failed} << 2 | uint64_t{state.overwritten} << 1 | uint64_t{state.owner_claims},
            1);
        add_part(state.own);
        for (const uint8_t times : state.moved) add(times, 1);
        add(state.calls.size(), 1);
        for (const uint16_t generation : state.calls) add(generation, 2);
        add(state.owner.generation(), 2);
        add_part(state.owned);
        for (const Message& message : state.messages) {
            add(message.generation, 2);
            add_part(message.part);
            add(uint64_t{message.missing}, 1);
        }
    }
    [[nodiscard]] std::string describe(Step step) const {
        constexpr std::array kNames = {"open", "claim back",  "copied", "reader fails",
                                       "poll", "write off",   "called", "claim front",
                                       "send", "owner fails", "hear",   "overwrite"};
        return kNames[static_cast<size_t>(step.kind)];
    }
    [[nodiscard]] uint32_t step_class(Step step) const { return static_cast<uint32_t>(step.kind); }

  private:
    [[nodiscard]] uint32_t chunks() const { return SharedBlock(options_.bytes, 0).chunks(options_.bytes); }

    /// Nothing outside the block is claimed, for any word.
    void check(State& state, BlockPart part) const {
        const uint32_t end = part.offset + part.bytes;
        if (end > options_.bytes || part.offset % chunk_bytes_ != 0 ||
            (end % chunk_bytes_ != 0 && end != options_.bytes)) {
            state.wrong = "a part that is no row of chunks";
        }
    }
    void move(State& state, BlockPart part) const {
        const uint32_t first = part.offset / chunk_bytes_;
        for (uint32_t i = first; i < first + SharedBlock(options_.bytes, 0).chunks(part.bytes); ++i)
            ++state.moved[i];
    }
    void close(State& state, ClaimWord& shared, bool failed) const {
        state.failed |= failed;
        if (state.reader.closed() || state.reader.close(shared, !state.failed)) return;
        if (!state.overwritten) state.wrong = "claims that do not add up";
        state.failed = true;
        state.reader.write_off();
    }
    void hear(State& state, ClaimWord& shared) const {
        const Message message = state.messages.front();
        state.messages.pop_front();
        if (!state.open || message.generation != state.reader.generation()) {
            return;  // of a block that was overwritten, as end() has made sure
        }
        if (message.missing) {
            state.reader.end(message.part.bytes);
            close(state, shared, true);
        } else if (state.reader.end_part(message.part.offset, message.part.bytes)) {
            move(state, message.part);
        } else if (!state.overwritten) {
            state.wrong = "a part that does not fit";
        }
    }
    void end(State& state, ClaimWord& shared) const {
        close(state, shared, false);
        state.open = false;
        if (state.overwritten) return;
        const uint16_t generation = state.reader.generation();
        bool under_way = state.owned.bytes != 0 && state.owner.generation() == generation;
        for (const Message& message : state.messages) under_way |= message.generation == generation;
        if (under_way) state.wrong = "a part is under way when its block is over";
        for (const uint8_t times : state.moved) {
            if (times > 1 || (times == 0 && !state.failed)) state.wrong = "a chunk is not moved once";
        }
        ClaimWord late;
        late.word = shared.word.load();
        if (SharedBlock(options_.bytes, generation).claim_front(late).bytes != 0) {
            state.wrong = "a chunk is claimed of a block that is over";
        }
    }

    Options options_;
    ReaderBlock first_;
    uint32_t chunk_bytes_ = 0;
    std::vector<uint64_t> words_;
};

constexpr uint32_t kChunk = 32u << 10;  ///< of blocks of 33 to 128 KiB

void expect_holds(const Options& options, uint64_t states_min) {
    const Verdict verdict = explore(BlockWorld(options));
    EXPECT_TRUE(verdict.holds()) << verdict.what;
    EXPECT_GE(verdict.states, states_min);
}

TEST(SharedBlock, each_byte_is_moved_once) {
    for (const uint32_t bytes : {1u, kChunk / 2 + 1, kChunk + 1, 3 * kChunk - 7, 4 * kChunk}) {
        expect_holds({.bytes = bytes, .blocks = 3}, 20);
    }
}

TEST(SharedBlock, each_byte_is_moved_once_where_several_chunks_are_taken) {
    expect_holds({.bytes = 4 * kChunk - 1, .reader_bytes_max = 2 * kChunk}, 100);
    expect_holds({.bytes = 4 * kChunk - 1, .owner_bytes_max = 3 * kChunk - 1}, 100);
    expect_holds({.bytes = 4 * kChunk - 1, .reader_bytes_max = UINT32_MAX, .owner_bytes_max = 2 * kChunk},
                 50);
}

TEST(SharedBlock, nothing_is_under_way_when_a_block_that_failed_is_over) {
    for (const uint32_t bytes : {1u, 3 * kChunk - 7, 4 * kChunk}) {
        expect_holds({.bytes = bytes, .blocks = 3, .failures = true}, 100);
    }
}

TEST(SharedBlock, generations_wrap) {
    expect_holds({.bytes = 2 * kChunk, .blocks = 4, .failures = true, .generation = UINT16_MAX - 2}, 100);
}

TEST(SharedBlock, a_word_that_is_overwritten_harms_its_block_only) {
    for (const uint32_t bytes : {1u, kChunk + 1, 3 * kChunk - 7}) {
        expect_holds({.bytes = bytes, .blocks = 2, .overwritten = true}, 100);
    }
    expect_holds({.bytes = 2 * kChunk, .overwritten = true, .generation = UINT16_MAX - 1}, 100);
    expect_holds({.bytes = 3 * kChunk, .owner_bytes_max = 2 * kChunk, .failures = true, .overwritten = true},
                 100);
}

}  // namespace
}  // namespace velo::exhaustive
