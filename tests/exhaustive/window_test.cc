// The window of a process (rma/chunk_scheduler.h): in every interleaving of small cases each byte lands once,
// what is under way keeps its bounds, and every transfer ends; refused posts, chunks that fail and ends that
// come late included. The mistakes that a window invites are found: repeating a chunk before it has ended,
// and counting successes instead of ends (RDRP 3.3 as printed).
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "rma/chunk_scheduler.h"
#include "tests/exhaustive/explorer.h"

namespace velo::exhaustive {
namespace {

using rma::Chunk;
using rma::ChunkScheduler;
using rma::Source;
using rma::Transfer;

constexpr size_t kTransfersMax = 3;
constexpr uint32_t kChunksMax = 4;

enum class Mistake : uint8_t { kNone, kRepeatOnATimer, kSuccessesCount };

struct Options {
    std::vector<uint32_t> chunks;  ///< of each transfer
    std::vector<uint8_t> sources;  ///< of each transfer: which
    uint32_t window = 2;
    uint64_t bytes_max = UINT64_MAX;  ///< a chunk has 10
    uint8_t failures = 0;             ///< of chunks, which go another way then
    uint8_t refusals = 0;             ///< posts that the device's queue does not take
    bool first_only = false;          ///< transfers wait to be opened, with all but their first chunks
    int slow = -1;                    ///< the source that is slow
    Mistake mistake = Mistake::kNone;
};

/// The state is the history: the scheduler is a web of pointers, so it is built again from its inputs for
/// each step.
class WindowWorld {
  public:
    enum class Kind : uint8_t { kPost, kIssue, kRefuse, kResume, kEnd, kFail, kTimer, kOpen, kError };
    struct Step {
        Kind kind;
        uint8_t which = 0;  ///< transfer, or place among what is under way
    };
    struct State {
        std::vector<Step> history;
    };

    explicit WindowWorld(const Options& options) : options_(options) {}

    [[nodiscard]] State initial() const { return {}; }

    void append_steps(const State& state, std::vector<Step>& steps) const {
        Run run(options_, state);
        if (run.posted < options_.chunks.size()) steps.push_back({Kind::kPost});
        if (run.can_issue()) {
            steps.push_back({Kind::kIssue});
            if (run.refusals < options_.refusals) steps.push_back({Kind::kRefuse});
        }
        if (run.held) steps.push_back({Kind::kResume});
        for (uint8_t i = 0; i < run.posted; ++i)
            if (run.transfers[i].first_only && run.over[i] == 0) steps.push_back({Kind::kOpen, i});
        for (uint8_t i = 0; i < run.under_way.size(); ++i) {
            steps.push_back({Kind::kEnd, i});
            if (run.failures < options_.failures && !run.under_way[i].again) {
                steps.push_back({Kind::kFail, i});
                if (options_.first_only) steps.push_back({Kind::kError, i});
                if (options_.mistake == Mistake::kRepeatOnATimer) steps.push_back({Kind::kTimer, i});
            }
        }
    }

    uint32_t apply(State& state, Step step) const {
        state.history.push_back(step);
        return 0;
    }

    static constexpr uint32_t kAllEnded = 1;
    [[nodiscard]] uint32_t goals() const { return kAllEnded; }
    [[nodiscard]] uint32_t goals_met(const State& state) const {
        const Run run(options_, state);
        return run.ended == options_.chunks.size() && run.scheduler.idle() ? kAllEnded : 0;
    }
    [[nodiscard]] std::string violation(const State& state) const { return Run(options_, state).wrong; }

    void append_key(const State& state, Key& key) const {
        const Run run(options_, state);
        key.insert(key.end(), {static_cast<uint8_t>(run.posted), run.failures, run.refusals, run.held,
                               !run.wrong.empty()});
        for (size_t i = 0; i < run.posted; ++i) {
            const Transfer& transfer = run.transfers[i];
            key.insert(key.end(), {transfer.first_only, transfer.status != Status::kOk,
                                   static_cast<uint8_t>(transfer.issued_bytes / 10),
                                   static_cast<uint8_t>(transfer.outstanding), run.landed[i], run.over[i],
                                   static_cast<uint8_t>(run.place(transfer)), run.lost[i]});
        }
        for (const Flight& flight : run.under_way) {
            key.insert(key.end(), {flight.transfer, static_cast<uint8_t>(flight.offset / 10), flight.again,
                                   flight.stray});
        }
    }
    [[nodiscard]] uint32_t step_class(Step step) const { return static_cast<uint32_t>(step.kind); }
    [[nodiscard]] std::string describe(Step step) const {
        constexpr const char* kNames[] = {"post", "issue", "refuse", "resume", "end", "fail", "timer",
                                            "open", "error"};
        return std::string(kNames[static_cast<size_t>(step.kind)]) + std::to_string(step.which);
    }

  private:
    struct Flight {
        uint8_t transfer;
        uint64_t offset;
        uint32_t bytes;
        bool again;  ///< it was repeated
        bool stray;  ///< and this is the one that the process believes to be over
    };

    struct Run {
        Run(const Options& options, const State& state)
            : options(options), scheduler(options.window, options.bytes_max) {
            if (options.slow >= 0) {
                Source& source = sources[static_cast<size_t>(options.slow)];
                source.slow = true;
                source.time_sum = 1u << 20;  // of which the few ends of a case leave enough
            }
            for (const Step step : state.history) play(step);
            check();
        }
        Run(const Run&) = delete;

        void play(Step step) {
            Chunk chunk;
            switch (step.kind) {
                case Kind::kPost: {
                    Transfer& transfer = transfers[posted];
                    transfer.bytes = 10 * options.chunks[posted];
                    transfer.chunk_bytes = 10;
                    transfer.first_only = options.first_only;
                    scheduler.post(transfer, sources[options.sources[posted]]);
                    ++posted;
                    break;
                }
                case Kind::kIssue:
                    if (!scheduler.next(chunk)) break;
                    under_way.push_back({index_of(*chunk.transfer), chunk.offset, chunk.bytes, false, false});
                    break;
                case Kind::kRefuse:
                    if (!scheduler.next(chunk)) break;
                    scheduler.put_back(chunk);
                    ++refusals;
                    held = true;
                    break;
                case Kind::kResume:
                    scheduler.resume();
                    held = false;
                    break;
                case Kind::kOpen: scheduler.open(transfers[step.which]); break;
                case Kind::kError:
                    ++failures;
                    end(step.which, Status::kAtuFault);
                    break;
                case Kind::kEnd: end(step.which, Status::kOk); break;
                case Kind::kFail:
                    ++failures;
                    if (options.mistake == Mistake::kSuccessesCount) {
                        // Nothing is counted, so nothing goes on in its place.
                        lost[under_way[step.which].transfer] = 1;
                        under_way.erase(under_way.begin() + step.which);
                    } else {
                        under_way[step.which].again = true;  // by another way, in its place in the window
                    }
                    break;
                case Kind::kTimer:
                    ++failures;
                    under_way[step.which].stray = under_way[step.which].again = true;
                    under_way.push_back(under_way[step.which]);
                    under_way.back().stray = false;
                    break;
            }
        }
        void end(uint8_t which, Status status) {
            const Flight flight = under_way[which];
            under_way.erase(under_way.begin() + which);
            const uint8_t bit = static_cast<uint8_t>(1u << (flight.offset / 10));
            if (over[flight.transfer] != 0) wrong = "data lands in memory that is the user's again";
            if (flight.stray) return;
            if ((landed[flight.transfer] & bit) != 0) wrong = "a chunk lands twice";
            landed[flight.transfer] |= bit;
            Transfer& transfer = transfers[flight.transfer];
            if (!scheduler.chunk_done(transfer, flight.bytes, status)) return;
            over[flight.transfer] = 1;
            ++ended;
            const uint32_t all = (1u << options.chunks[flight.transfer]) - 1;
            if (transfer.status == Status::kOk && landed[flight.transfer] != all) {
                wrong = "a transfer ends without all of its bytes";
            }
        }
        void check() {
            for (const Flight& flight : under_way) {
                if (transfers[flight.transfer].first_only && flight.offset != 0)
                    wrong = "a chunk behind the first goes before its transfer is opened";
            }
            uint32_t flights = 0;
            for (const Flight& flight : under_way) flights += !flight.stray;
            const uint32_t active = scheduler.active_sources();
            if (options.mistake != Mistake::kSuccessesCount && scheduler.chunks() != flights) {
                wrong = "the window counts other chunks than there are";
            }
            const uint32_t sources_max =
                *std::max_element(options.sources.begin(), options.sources.end()) + 1;
            const uint32_t bound = std::max(options.window, sources_max + 1);
            if (scheduler.chunks() > 2 * bound || (sources_max == 1 && scheduler.chunks() > options.window)) {
                wrong = "more chunks under way than the window has";
            }
            if (options.bytes_max != UINT64_MAX &&
                scheduler.bytes() > std::max<uint64_t>(options.bytes_max, 10) + 10 * (sources_max - 1)) {
                wrong = "more bytes under way than the window has, and a chunk of each other source";
            }
            // A source with something to issue and nothing under way never waits for the others.
            if (!held && can_issue_nothing()) {
                for (uint32_t i = 0; i < sources_max; ++i) {
                    if (!sources[i].waiting.empty() && sources[i].chunks == 0) wrong = "a source starves";
                }
            }
            if (active > sources_max) wrong = "more active sources than there are";
            // The key of a state has no times of chunks, so they must not make a difference.
            for (size_t i = 0; i < sources_max; ++i) {
                if (sources[i].slow != (static_cast<int>(i) == options.slow)) wrong = "another source is slow";
            }
        }
        /// Asks a scheduler in the same state, because next() changes it.
        [[nodiscard]] bool can_issue() { return !can_issue_nothing(); }
        [[nodiscard]] bool can_issue_nothing() {
            Chunk chunk;
            if (!scheduler.next(chunk)) return true;
            scheduler.put_back(chunk);
            if (!held) scheduler.resume();
            return false;
        }
        [[nodiscard]] uint8_t index_of(const Transfer& transfer) const {
            return static_cast<uint8_t>(&transfer - transfers.data());
        }
        /// Its place among the waiting ones, which decides what is issued next.
        [[nodiscard]] uint32_t place(const Transfer& transfer) const {
            uint32_t at = 0;
            uint32_t found = UINT8_MAX;
            scheduler.for_each_waiting([&](const Transfer& waiting) {
                if (&waiting == &transfer) found = at;
                ++at;
            });
            return found;
        }

        const Options& options;
        std::array<Source, kTransfersMax> sources;
        std::array<Transfer, kTransfersMax> transfers;
        ChunkScheduler scheduler;
        std::vector<Flight> under_way;
        std::array<uint8_t, kTransfersMax> landed{};
        std::array<uint8_t, kTransfersMax> over{};
        std::array<uint8_t, kTransfersMax> lost{};
        size_t posted = 0;
        size_t ended = 0;
        uint8_t failures = 0;
        uint8_t refusals = 0;
        bool held = false;
        std::string wrong;
    };

    Options options_;
};

void expect_holds(const Options& options) {
    const Verdict verdict = explore(WindowWorld(options));
    EXPECT_TRUE(verdict.holds()) << verdict.what;
    EXPECT_GT(verdict.states, 50u);
    testing::Test::RecordProperty("states", static_cast<int>(verdict.states));
}

TEST(Window, two_transfers_of_four_chunks_with_a_failure_and_a_refusal) {
    expect_holds({.chunks = {4, 4}, .sources = {0, 1}, .failures = 1, .refusals = 1});
    expect_holds({.chunks = {4, 4}, .sources = {0, 0}, .failures = 1, .refusals = 1});
}

TEST(Window, three_sources_and_a_window_of_one_chunk) {
    expect_holds({.chunks = {2, 2, 2}, .sources = {0, 1, 2}, .window = 1, .failures = 1, .refusals = 1});
    expect_holds({.chunks = {3, 2, 2}, .sources = {0, 1, 1}, .window = 1, .refusals = 2});
}

TEST(Window, a_window_in_bytes) {
    expect_holds({.chunks = {4, 3}, .sources = {0, 1}, .window = 4, .bytes_max = 20, .failures = 1});
    expect_holds({.chunks = {3, 3}, .sources = {0, 1}, .window = 4, .bytes_max = 5, .refusals = 1});
}

TEST(Window, first_chunks_go_ahead_of_transfers_that_are_opened_later) {
    expect_holds({.chunks = {3, 2}, .sources = {0, 1}, .failures = 1, .refusals = 1, .first_only = true});
    expect_holds({.chunks = {3, 2}, .sources = {0, 0}, .failures = 1, .refusals = 1, .first_only = true});
    expect_holds({.chunks = {2, 2, 1}, .sources = {0, 1, 1}, .window = 1, .refusals = 1, .first_only = true});
}

TEST(Window, a_wider_window_than_chunks) {
    expect_holds({.chunks = {3, 2, 2}, .sources = {0, 1, 2}, .window = 8, .failures = 1});
}

TEST(Window, a_slow_source_beside_others) {
    expect_holds({.chunks = {4, 4}, .sources = {0, 1}, .failures = 1, .refusals = 1, .slow = 0});
    expect_holds({.chunks = {3, 2, 2}, .sources = {0, 1, 2}, .window = 4, .failures = 1, .slow = 1});
}

/// RDRP 3.3 does not say when a chunk that fails may be repeated.
TEST(Window, a_chunk_repeated_before_its_end_lands_in_memory_that_is_the_users_again) {
    const Verdict verdict = explore(WindowWorld(
        {.chunks = {2, 1}, .sources = {0, 1}, .failures = 1, .mistake = Mistake::kRepeatOnATimer}));
    EXPECT_EQ(verdict.kind, Verdict::Kind::kViolation);
    EXPECT_NE(verdict.what.find("the user's again"), std::string::npos) << verdict.what;
}

/// RDRP 3.3: a trigger counts successful gets, so a failure leaves a hole in the window that never closes.
TEST(Window, counting_successes_leaves_a_transfer_that_never_ends) {
    const Verdict verdict = explore(WindowWorld(
        {.chunks = {4, 4}, .sources = {0, 1}, .failures = 1, .mistake = Mistake::kSuccessesCount}));
    EXPECT_EQ(verdict.kind, Verdict::Kind::kUnreachableGoal) << verdict.what;
}

}  // namespace
}  // namespace velo::exhaustive
