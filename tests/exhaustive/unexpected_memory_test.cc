/// MEM's bounded memory for unexpected messages with the machines that velo has (match/refusals.h,
/// match/pending_sends.h): every interleaving of small programs keeps MPI's order, stays within the budget
/// and can end, for budgets from none. Readings that leave a rule out are found to be unsafe by the same
/// exploration.
#include <gtest/gtest.h>

#include <map>

#include "tests/exhaustive/unexpected_memory_world.h"

namespace velo::exhaustive {
namespace {

using match::kAnySource;
using match::kAnyTag;

constexpr uint64_t kStatesMax = 3'000'000;

MemoryProgram::Call probe(int32_t source, int32_t tag) {
    return {source, tag, true, 0, MemoryProgram::Kind::kProbe};
}
MemoryProgram::Call poll(int32_t source, int32_t tag) {
    return {source, tag, true, 0, MemoryProgram::Kind::kPoll};
}
/// A receive of the message that was probed last.
MemoryProgram::Call probed() {
    return {0, 0, true, 0, MemoryProgram::Kind::kReceive, true};
}

/// Programs that end under MPI's rules even if no send is ever buffered.
const std::map<std::string, MemoryProgram>& programs() {
    static const std::map<std::string, MemoryProgram> all = {
        {"reversed", {.senders = {{{1}, {2}, {3}}}, .calls = {{0, 3}, {0, 2}, {0, 1}}}},
        {"reversed, posted at once",
         {.senders = {{{1}, {2}, {3}}}, .calls = {{0, 3, false}, {0, 2, false}, {0, 1}}}},
        {"one tag", {.senders = {{{1}, {1}, {1}}}, .calls = {{0, 1}, {0, 1}, {0, 1}}}},
        {"one tag, posted at once",
         {.senders = {{{1}, {1}, {1}}}, .calls = {{0, 1, false}, {0, 1, false}, {0, 1}}}},
        {"open tags", {.senders = {{{1}, {2}, {1}}}, .calls = {{0, 2}, {0, kAnyTag}, {0, kAnyTag}}}},
        {"open tags at once",
         {.senders = {{{1}, {2}, {1}}}, .calls = {{0, 2, false}, {0, kAnyTag, false}, {0, 1}}}},
        {"two senders",
         {.senders = {{{1}, {2}}, {{1}, {2}}}, .calls = {{1, 2}, {0, 2}, {kAnySource, 1}, {kAnySource, 1}}}},
        {"two senders, open",
         {.senders = {{{1}, {2}}, {{2}}},
          .calls = {{kAnySource, 2, false}, {kAnySource, 2, false}, {kAnySource, kAnyTag}}}},
        {"two contexts",
         {.senders = {{{1}, {1, false, 1}, {2}}}, .calls = {{0, 1, true, 1}, {0, 2}, {0, kAnyTag}}}},
        {"mixed waits",
         {.senders = {{{1}, {2, true}, {1}}}, .calls = {{0, 2, false}, {0, 1, false}, {0, 1}}}},
        {"probed", {.senders = {{{1}, {2}}}, .calls = {probe(0, 2), probed(), {0, 1}}}},
        {"probed, open",
         {.senders = {{{1}, {2}}, {{2}}},
          .calls =
              {probe(kAnySource, 2), probed(), probe(kAnySource, kAnyTag), probed(), {kAnySource, kAnyTag}}}},
        {"probed behind a receive",
         {.senders = {{{1}, {1}, {2}}}, .calls = {{0, 1, false}, probe(0, kAnyTag), probed(), {0, kAnyTag}}}},
        {"probed twice",
         {.senders = {{{1}, {2}, {1}}}, .calls = {probe(0, 2), probe(0, 1), probed(), {0, 2}, {0, 1}}}},
        {"polled",
         {.senders = {{{1}, {1}, {2}}},
          .calls = {poll(0, kAnyTag), {0, 1, false}, probe(0, kAnyTag), probed(), {0, kAnyTag}}}},
        {"polled behind another",
         {.senders = {{{3}, {1}, {1}}}, .calls = {poll(0, 1), {0, 1, false}, probe(0, 1), probed(), {0, 3}}}},
        {"probed by two threads",
         {.senders = {{{1}, {2}, {1}, {2}}},
          .calls = {probe(0, 1), probed(), probe(0, 1), probed()},
          .other_calls = {{probe(0, 2), probed(), {0, 2}}}}},
        {"probed by two threads, one place",
         {.senders = {{{1}, {2}}, {{3}}},
          .calls = {poll(0, 2), probe(0, 1), probed()},
          .other_calls = {{probe(kAnySource, 3), probed(), probe(0, 2), probed()}},
          .probes = {.places = 1, .forgotten_after = 2}}},
        {"two of a kind",
         {.senders = {{{1}, {2}, {1}, {2}}}, .calls = {{0, 2, false}, {0, 2}, {0, 1}, {0, 1}}}},
    };
    return all;
}

struct Totals {
    uint64_t states = 0;
    uint32_t cases = 0;
    std::string first_failure;
};

/// The program with each small budget, window and number of offers in a message, until one fails.
void explore_variants(const std::string& name, MemoryProgram program, uint32_t variants, Totals& totals) {
    for (uint32_t variant = 0; variant < variants && totals.first_failure.empty(); ++variant) {
        program.records = variant % 3;
        program.window = 1 + variant / 3 % 2;
        program.offers_max = 1 + variant / 6 % 2;
        program.full_passes = variant / 12 % 2 != 0;
        program.grants = variant / 24 % 3;
        const Verdict verdict = explore(MemoryWorld(program), kStatesMax);
        totals.states += verdict.states;
        ++totals.cases;
        if (verdict.holds()) continue;
        totals.first_failure =
            name + ", " + std::to_string(program.records) + " records, window " +
            std::to_string(program.window) + ", offers " + std::to_string(program.offers_max) + ", grants " +
            std::to_string(program.grants) + (program.full_passes ? ", full passes: " : ": ") + verdict.what;
    }
}
constexpr uint32_t kVariants = 72;

TEST(UnexpectedMemory, small_programs_end_in_order_within_any_budget) {
    Totals totals;
    for (const auto& [name, program] : programs()) explore_variants(name, program, kVariants, totals);
    EXPECT_EQ(totals.first_failure, "");
    EXPECT_GT(totals.states, 400'000u);
    std::printf("%u cases, %llu states\n", totals.cases, static_cast<unsigned long long>(totals.states));
}

MemoryProgram drawn(Random& random, bool probes) {
    MemoryProgram program;
    const uint32_t senders = 1 + random.below(2);
    std::vector<std::pair<uint32_t, MemoryProgram::Send>> sends;
    program.senders.resize(senders);
    for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t sender = random.below(senders);
        const MemoryProgram::Send send = {static_cast<int32_t>(1 + random.below(2)), false,
                                          random.below(4) / 3};
        program.senders[sender].push_back(send);
        sends.push_back({sender, send});
    }
    // A receive for each message, in another order, some of them open.
    for (uint32_t left = 4; left > 0; --left) {
        const uint32_t i = random.below(left);
        const auto [sender, send] = sends[i];
        sends.erase(sends.begin() + i);
        MemoryProgram::Call call = {random.below(3) == 0 ? kAnySource : static_cast<int32_t>(sender),
                                    random.below(4) == 0 ? kAnyTag : send.tag,
                                    left == 1 || random.below(2) == 0, send.context};
        if (probes && random.below(2) == 0) {
            call.kind = random.below(2) == 0 ? MemoryProgram::Kind::kProbe : MemoryProgram::Kind::kPoll;
            program.calls.push_back(call);
            call.probed = call.kind == MemoryProgram::Kind::kProbe;
            call.kind = MemoryProgram::Kind::kReceive;
        }
        program.calls.push_back(call);
    }
    return program;
}

/// Open receives may take the message that a later one needs. Such a program is none of MPI's that must end.
bool ends_with_plenty(MemoryProgram program) {
    program.records = 8;
    return explore(MemoryWorld(program), kStatesMax).holds();
}

constexpr uint64_t kSeeds = 16;

/// Too many states for the sanitizers, which see the others.
TEST(UnexpectedMemoryFull, drawn_programs_end_in_order_within_any_budget) {
    Totals totals;
    uint32_t programs = 0;
    for (uint64_t seed = 1; seed <= kSeeds && totals.first_failure.empty(); ++seed) {
        Random random(seed);
        const MemoryProgram program = drawn(random, seed % 2 == 0);
        if (!ends_with_plenty(program)) continue;
        ++programs;
        explore_variants("seed " + std::to_string(seed), program, 24, totals);
    }
    EXPECT_EQ(totals.first_failure, "");
    EXPECT_GT(programs, 10u);
    std::printf("%u programs, %u cases, %llu states\n", programs, totals.cases,
                static_cast<unsigned long long>(totals.states));
}

/// More places than one, and fewer than patterns.
TEST(UnexpectedMemoryFull, three_threads_that_probe_share_two_places) {
    const MemoryProgram program = {.senders = {{{1}, {2}, {3}}},
                                   .calls = {probe(0, 1), probed()},
                                   .other_calls = {{probe(0, 2), probed()}, {probe(0, 3), probed()}},
                                   .probes = {.places = 2, .forgotten_after = 2}};
    Totals totals;
    explore_variants("three threads", program, kVariants, totals);
    EXPECT_EQ(totals.first_failure, "");
}

TEST(UnexpectedMemory, long_programs_end_in_order_on_drawn_paths) {
    for (uint64_t seed = 1; seed <= 1500; ++seed) {
        Random random(seed);
        const Verdict verdict = walk(MemoryWorld(long_program(random, false)), seed, 100'000);
        ASSERT_TRUE(verdict.holds()) << verdict.what;
    }
}

/// The paper's program (MEM 5.1), with 60 messages where it has 5: as printed, the queue is sent again for
/// each receive.
TEST(UnexpectedMemory, a_queue_received_in_reverse_takes_two_requests_a_message) {
    MemoryProgram program;
    program.senders.resize(1);
    for (int32_t tag = 0; tag < 60; ++tag) program.senders[0].push_back({tag});
    for (int32_t tag = 60; tag-- > 0;) program.calls.push_back({0, tag});
    program.requests_max = 120;
    for (const uint32_t records : {0u, 1u, 4u, 30u}) {
        program.records = records;
        for (uint64_t seed = 1; seed <= 20; ++seed) {
            const Verdict verdict = walk(MemoryWorld(program), seed, 100'000);
            EXPECT_TRUE(verdict.holds()) << verdict.what;
        }
    }
}

TEST(UnexpectedMemory, each_rule_that_is_left_out_is_missed) {
    for (auto reading = Reading::kAgeIgnored; reading < Reading::kReadings;
         reading = static_cast<Reading>(static_cast<int>(reading) + 1)) {
        Totals totals;
        for (auto [name, program] : programs()) {
            program.reading = reading;
            explore_variants(name, program, kVariants, totals);
        }
        EXPECT_NE(totals.first_failure, "") << "reading " << static_cast<int>(reading);
        std::printf("reading %d: %s\n", static_cast<int>(reading), totals.first_failure.c_str());
    }
}

}  // namespace
}  // namespace velo::exhaustive
