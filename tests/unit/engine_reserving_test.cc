/// Rails that are reserved at both ends (btl_velo_rails=dynamic), between engines, and with peers that do not
/// keep to the protocol.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <deque>
#include <random>

#include "tests/unit/raw_peer.h"
#include "tests/unit/remote_memory.h"

namespace velo::test {
namespace {

constexpr int kChunk = 4096;
constexpr int kHourMs = 3'600'000;
/// Transfers wait for a rail as long as it takes, so a reservation that is lost fails the test.
velo_params_t reserving_params(int ports, const char* rule = "dynamic", int wait_ms = kHourMs) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.ports = ports;
    params.rails = kept(std::string(rule) + ",retry=1,wait=" + std::to_string(wait_ms));
    params.chunk = kChunk;
    return params;
}

struct Shape {
    uint32_t ranks;
    int ports;
    const char* faults;
    int wait_ms = kHourMs;
};
class ReservingJobs : public testing::TestWithParam<Shape> {};

/// Each rank gets from all others and puts to all others, with several transfers under way at each.
TEST_P(ReservingJobs, move_everything_between_all) {
    const auto [ranks, ports, faults, wait_ms] = GetParam();
    velo_params_t params = reserving_params(ports, "dynamic", wait_ms);
    params.faults = faults;
    Job job(ranks, params);
    constexpr size_t kBytes = 40 * kChunk;
    std::mt19937 random(7);
    std::vector<Memory> sources;
    std::vector<Memory> targets;  // a part for each rank that puts
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        sources.emplace_back(job[rank], kBytes, rank);
        targets.emplace_back(job[rank], kBytes * ranks, 100 + rank);
    }
    for (int round = 0; round < 10; ++round) {
        struct Transfer {
            std::vector<std::byte> local;
            velo_rma_t op;
            const std::byte* remote;
            uint32_t owner;
        };
        std::vector<std::deque<Transfer>> all(ranks);
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            job[rank].done.clear();
            for (uint32_t other = 0; other < ranks; ++other) {
                if (other == rank) continue;
                for (int i = 0; i < 3; ++i) {
                    const size_t bytes = 1 + random() % kBytes;
                    const size_t offset = random() % (kBytes - bytes + 1);
                    Transfer& get = all[rank].emplace_back();
                    get.local.resize(bytes);
                    get.op = transfer(VELO_RMA_GET, sources[other].handle, offset, get.local.data(), bytes);
                    get.remote = sources[other].bytes.data() + offset;
                    get.owner = other;
                }
                Transfer& put = all[rank].emplace_back();
                put.local = pattern(1 + random() % kBytes, static_cast<uint32_t>(random()));
                put.op = transfer(VELO_RMA_PUT, targets[other].handle, rank * kBytes, put.local.data(),
                                  put.local.size());
                put.remote = targets[other].bytes.data() + rank * kBytes;
                put.owner = other;
            }
        }
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            for (Transfer& each : all[rank])
                velo_rma(job[rank].engine, job[rank].peers[each.owner], &each.op);
        }
        job.drive([&] {
            for (uint32_t rank = 0; rank < job.ranks.size(); ++rank)
                if (job[rank].done.size() != all[rank].size()) return false;
            return true;
        });
        if (testing::Test::HasFatalFailure()) return;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            for (const auto& [op, status] : job[rank].done) ASSERT_EQ(status, VELO_OK);
            for (const Transfer& each : all[rank])
                ASSERT_EQ(std::memcmp(each.local.data(), each.remote, each.local.size()), 0);
        }
    }
    job.drive([&] {
        return std::ranges::none_of(job.ranks, [](const auto& rank) { return velo_busy(rank->engine); });
    });
    for (const auto& rank : job.ranks) {
        const velo_counters_t counters = rank->counters();
        EXPECT_GT(counters.rail_requests, 0u);
        EXPECT_GT(counters.rail_grants, 0u);
        EXPECT_EQ(counters.engine_malformed, 0u);
        EXPECT_EQ(counters.rma_failed, 0u);
        if (*faults == '\0') {
            EXPECT_EQ(counters.rail_unreserved, 0u);
            EXPECT_EQ(counters.rail_losses, 0u);
            EXPECT_EQ(counters.rma_copied_bytes, 0u);
        }
    }
    // Each rail that was granted was given back: each transfer gets one without a further wait.
    std::vector<std::byte> here(kChunk);
    for (uint32_t rank = 0; rank < ranks; ++rank) {
        for (uint32_t other = 0; other < ranks; ++other) {
            if (other == rank) continue;
            velo_rma_t get = transfer(VELO_RMA_GET, sources[other].handle, 0, here.data(), here.size());
            job[rank].done.clear();
            velo_rma(job[rank].engine, job[rank].peers[other], &get);
            job.drive([&] { return !job[rank].done.empty(); });
        }
    }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ReservingJobs,
    testing::Values(Shape{2, 2, ""}, Shape{3, 2, ""}, Shape{4, 4, ""}, Shape{5, 8, ""},
                    Shape{3, 4, "port_down=2:50"}, Shape{4, 4, "seed=3,port_flap=0.02:100us"},
                    Shape{3, 2, "seed=5,port_flap=0.05:50us"}, Shape{3, 2, "seed=6,rma_late=0.2:30us"},
                    Shape{3, 8, "seed=7,rma_fail=0.05"}, Shape{3, 4, "seed=8,delay=0.2:50us,rma_denied=0.05"},
                    Shape{4, 2, "seed=9,delay=0.05:2ms", 1},
                    Shape{3, 4, "seed=10,delay=0.05:2ms,port_flap=0.02:1ms", 1}),
    [](const auto& info) {
        return "of_" + std::to_string(info.param.ranks) + "_by_" + std::to_string(info.param.ports) +
               (*info.param.faults ? "_with_faults_" + std::to_string(info.index) : "");
    });

TEST(Reserving, a_transfer_holds_its_rail_and_the_next_one_waits_for_it) {
    velo_params_t params = reserving_params(2);
    params.faults = "rma_late=1:20ms";
    Job job(3, params);
    Memory theirs(job[0], kChunk, 3);
    std::vector<std::byte> first(kChunk), second(kChunk), third(kChunk);
    velo_rma_t gets[] = {transfer(VELO_RMA_GET, theirs.handle, 0, first.data(), kChunk),
                         transfer(VELO_RMA_GET, theirs.handle, 0, second.data(), kChunk),
                         transfer(VELO_RMA_GET, theirs.handle, 0, third.data(), kChunk)};
    // Two of one rank take both rails, so that the other rank's waits for one of them.
    velo_rma(job[1].engine, job[1].peers[0], &gets[0]);
    velo_rma(job[1].engine, job[1].peers[0], &gets[1]);
    job.drive([&] { return job[1].counters().rail_grants == 2; });
    velo_rma(job[2].engine, job[2].peers[0], &gets[2]);
    job.drive([&] { return job[2].counters().rail_requests == 1; });
    job.drive([&] { return !job[1].done.empty() || !job[2].done.empty(); });
    EXPECT_TRUE(job[2].done.empty());
    EXPECT_EQ(job[2].counters().rail_grants, 0u);
    EXPECT_TRUE(velo_busy(job[2].engine));
    job.drive([&] { return job[1].done.size() == 2 && job[2].done.size() == 1; });
    EXPECT_EQ(third, theirs.bytes);
    EXPECT_EQ(job[0].counters().rail_served, 3u);
}

TEST(Reserving, the_first_chunk_of_a_transfer_does_not_wait_for_the_grant) {
    Job job(2, reserving_params(2));
    Memory theirs(job[0], 3 * kChunk, 3);
    std::vector<std::byte> ours(theirs.bytes.size());
    velo_rma_t get = transfer(VELO_RMA_GET, theirs.handle, 0, ours.data(), ours.size());
    velo_rma_t shorter = transfer(VELO_RMA_GET, theirs.handle, 0, ours.data(), kChunk);
    velo_rma(job[1].engine, job[1].peers[0], &get);
    // The owner computes.
    for (int i = 0; i < 10'000; ++i) velo_progress(job[1].engine);
    EXPECT_TRUE(job[1].done.empty());
    EXPECT_EQ(std::memcmp(ours.data(), theirs.bytes.data(), kChunk), 0);
    EXPECT_NE(std::memcmp(ours.data() + kChunk, theirs.bytes.data() + kChunk, kChunk), 0);
    EXPECT_EQ(job[1].counters().rma_chunks, 1u);
    job.drive([&] { return !job[1].done.empty(); });
    EXPECT_EQ(ours, theirs.bytes);
    job.drive([&] { return !velo_busy(job[0].engine) && !velo_busy(job[1].engine); });
    // One chunk is all of a transfer.
    job[1].done.clear();
    velo_rma(job[1].engine, job[1].peers[0], &shorter);
    for (int i = 0; i < 10'000 && job[1].done.empty(); ++i) velo_progress(job[1].engine);
    EXPECT_EQ(job[1].done.size(), 1u);
    EXPECT_EQ(job[1].counters().rail_unreserved, 0u);
    // Its request is taken back, and the rail can be had again.
    job[1].done.clear();
    velo_rma(job[1].engine, job[1].peers[0], &get);
    job.drive([&] { return !job[1].done.empty(); });
}

TEST(Reserving, no_transfer_waits_for_longer_than_its_limit_for_an_owner_that_computes) {
    const velo_params_t params = reserving_params(4, "dynamic", 1);
    Job job(2, params);
    Memory theirs(job[0], 50 * kChunk, 3);
    std::vector<std::byte> ours(theirs.bytes.size());
    for (int i = 0; i < 100; ++i) {
        velo_rma_t get = transfer(VELO_RMA_GET, theirs.handle, 0, ours.data(), ours.size());
        job[1].done.clear();
        velo_rma(job[1].engine, job[1].peers[0], &get);
        while (job[1].done.empty()) velo_progress(job[1].engine);
    }
    EXPECT_EQ(job[1].counters().rail_unreserved, 100u);
    EXPECT_LE(job[1].counters().rail_requests, 4u * 50) << "most of them did not ask";
    EXPECT_EQ(ours, theirs.bytes);
    // Once it answers, it is asked again.
    job.drive([&] { return !velo_busy(job[1].engine); });
    job.drive(
        [&] {
            velo_rma_t get = transfer(VELO_RMA_GET, theirs.handle, 0, ours.data(), ours.size());
            job[1].done.clear();
            velo_rma(job[1].engine, job[1].peers[0], &get);
            job.drive([&] { return !job[1].done.empty(); });
            return job[1].counters().rail_grants != 0;
        },
        100'000);
}

TEST(Reserving, a_report_of_what_waits_names_the_rank_that_a_rail_is_asked_of) {
    velo_params_t params = reserving_params(2, "dynamic,striping=0");  // a rail each
    params.stall_report = "1";
    Job job(3, params);
    constexpr size_t kBytes = 2 * kChunk;
    Memory silent(job[0], kBytes, 3);
    Memory other(job[2], kBytes, 3);
    std::vector<std::byte> ours(kBytes);
    velo_rma_t gets[] = {transfer(VELO_RMA_GET, silent.handle, 0, ours.data(), kBytes),
                         transfer(VELO_RMA_GET, other.handle, 0, ours.data(), kBytes),
                         transfer(VELO_RMA_GET, other.handle, 0, ours.data(), kBytes)};
    velo_rma(job[1].engine, job[1].peers[0], &gets[0]);
    velo_rma(job[1].engine, job[1].peers[2], &gets[1]);
    velo_rma(job[1].engine, job[1].peers[2], &gets[2]);
    for (int i = 0; i < 20'000 && job[1].log.empty(); ++i) {
        usleep(1000);
        velo_progress(job[1].engine);
    }
    ASSERT_FALSE(job[1].log.empty());
    const std::string& text = job[1].log[0];
    EXPECT_NE(text.find("asked of rank 0, for gets"), std::string::npos) << text;
    EXPECT_NE(text.find("asked of rank 2, for gets"), std::string::npos) << text;
    // The first chunk of the one that has asked is here.
    EXPECT_NE(text.find("2 gets not fully started, 12288 bytes"), std::string::npos) << text;
    job.drive([&] { return job[1].done.size() == 3; });
}

TEST(Reserving, ranks_with_other_rules_transfer_as_ever) {
    for (const char* other : {"hybrid", "round_robin", "local_dynamic"}) {
        SCOPED_TRACE(other);
        std::vector<std::unique_ptr<Rank>> ranks;
        ranks.push_back(std::make_unique<Rank>(reserving_params(4), 0, 2));
        ranks.push_back(std::make_unique<Rank>(reserving_params(4, other), 1, 2));
        velo_peer_t* peers[] = {Job::connect(*ranks[0], *ranks[1]), Job::connect(*ranks[1], *ranks[0])};
        for (int round = 0; round < 3; ++round) {
            for (int from = 0; from < 2; ++from) {
                Rank& getter = *ranks[1 - from];
                Memory theirs(*ranks[from], 30 * kChunk, 4);
                std::vector<std::byte> ours(theirs.bytes.size());
                velo_rma_t get = transfer(VELO_RMA_GET, theirs.handle, 0, ours.data(), ours.size());
                getter.done.clear();
                velo_rma(getter.engine, peers[1 - from], &get);
                for (int i = 0; i < 100'000 && getter.done.empty(); ++i)
                    for (auto& rank : ranks) velo_progress(rank->engine);
                ASSERT_EQ(getter.done.size(), 1u);
                EXPECT_EQ(ours, theirs.bytes);
            }
        }
        EXPECT_EQ(ranks[0]->counters().rail_unreserved, 3u);
        EXPECT_EQ(ranks[0]->counters().rail_requests, 4u) << "the first one asked";
        EXPECT_EQ(ranks[1]->counters().rail_requests, 0u);
        EXPECT_EQ(ranks[1]->counters().engine_malformed, 0u);
    }
}

class ReservingHostile : public testing::Test {
  protected:
    static velo_params_t params(const char* rule) {
        velo_params_t params = reserving_params(4, rule);
        params.flow_control = "none";
        return params;
    }
    explicit ReservingHostile(const char* rule = "dynamic")
        : victim_(params(rule), 0, 3), address_(RawPeer::address_of(victim_)) {}
    void send(RawPeer& peer, const RailHeader& header) {
        for (int i = 0; i < 1'000'000 && !peer.send(header); ++i) velo_progress(victim_.engine);
        for (int i = 0; i < 100; ++i) velo_progress(victim_.engine);
    }
    [[nodiscard]] uint64_t malformed() { return victim_.counters().engine_malformed; }

    Rank victim_;
    EngineAddress address_;
};
class OthersHostile : public ReservingHostile {
  protected:
    OthersHostile() : ReservingHostile("hybrid") {}
};

TEST_F(ReservingHostile, a_request_is_granted_once_and_the_next_peer_has_its_turn_at_its_end) {
    RawPeer first(address_, 1), second(address_, 2);
    send(first, RawPeer::about(1, RailMessageKind::kRts, 7));
    send(first, RawPeer::about(1, RailMessageKind::kRts, 1, true));
    send(second, RawPeer::about(1, RailMessageKind::kRts, 9));
    const auto granted = first.take();
    ASSERT_EQ(granted.size(), 2u);
    EXPECT_EQ(granted[0].kind, RailMessageKind::kCts);
    EXPECT_EQ(granted[0].number, 7u);
    EXPECT_EQ(granted[1].sends, 1u) << "gets and puts have halves of their own";
    EXPECT_TRUE(second.take().empty());
    send(second, RawPeer::about(1, RailMessageKind::kDone, 7));  // not its own
    send(first, RawPeer::about(1, RailMessageKind::kDone, 6));   // another request
    EXPECT_TRUE(second.take().empty());
    send(first, RawPeer::about(1, RailMessageKind::kDone, 7));
    const auto after = second.take();
    ASSERT_EQ(after.size(), 1u);
    EXPECT_EQ(after[0].number, 9u);
    // The end of this grant is lost; a later request says as much.
    send(second, RawPeer::about(1, RailMessageKind::kRts, 10));
    ASSERT_EQ(second.take().size(), 1u);
    EXPECT_EQ(malformed(), 0u);
}

TEST_F(ReservingHostile, what_cannot_be_is_counted_or_refused) {
    RawPeer peer(address_);
    send(peer, RawPeer::about(0, static_cast<RailMessageKind>(6), 1));
    send(peer, RawPeer::about(0, RailMessageKind::kNack, 1, false, static_cast<Status>(200)));
    RailHeader wrong = RawPeer::about(0, RailMessageKind::kRts, 1);
    wrong.sends = 2;
    send(peer, wrong);
    EXPECT_EQ(malformed(), 3u);
    EXPECT_TRUE(peer.take().empty());
    for (const uint8_t rail : {4, 63, 64, 255}) send(peer, RawPeer::about(rail, RailMessageKind::kRts, 1));
    const auto refused = peer.take();
    ASSERT_EQ(refused.size(), 4u);
    for (const RailHeader& header : refused) {
        EXPECT_EQ(header.kind, RailMessageKind::kNack);
        EXPECT_EQ(header.status, Status::kUnsupported);
    }
    // Answers to what was not asked, and ends of what was not granted.
    for (uint8_t kind = 0; kind < 6; ++kind) {
        if (kind == static_cast<uint8_t>(RailMessageKind::kRts)) continue;
        for (const uint8_t rail : {0, 3, 4, 255})
            send(peer, RawPeer::about(rail, static_cast<RailMessageKind>(kind), 1));
    }
    for (const RailHeader& header : peer.take())
        EXPECT_EQ(header.kind, RailMessageKind::kAbort) << "of a stale grant";
    EXPECT_EQ(victim_.counters().rail_served, 0u);
}

TEST_F(OthersHostile, requests_to_a_process_with_another_rule_are_refused_and_the_rest_is_dropped) {
    RawPeer peer(address_);
    for (uint8_t kind = 0; kind < 6; ++kind)
        send(peer, RawPeer::about(0, static_cast<RailMessageKind>(kind), 5));
    const auto answers = peer.take();
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(answers[0].kind, RailMessageKind::kNack);
    EXPECT_EQ(answers[0].status, Status::kUnsupported);
    EXPECT_EQ(answers[0].number, 5u);
}

TEST_F(ReservingHostile, requests_without_end_are_answered_up_to_a_bound) {
    RawPeer peer(address_);
    for (uint32_t i = 1; i <= 200'000; ++i) {
        const auto kind = i % 2 == 0 ? RailMessageKind::kRts : RailMessageKind::kCts;
        for (int tries = 0; tries < 1000 && !peer.send(RawPeer::about(i % 4, kind, i)); ++tries)
            velo_progress(victim_.engine);
    }
    for (int i = 0; i < 1000; ++i) velo_progress(victim_.engine);
    EXPECT_LE(victim_.counters().pending_hwm, 1100u);
    EXPECT_GT(malformed(), 100'000u);
}

TEST_F(ReservingHostile, a_granter_that_reserves_no_rails_is_asked_once_whatever_it_sends_later) {
    RawPeer peer(address_);
    velo_peer_t* to = peer.connect_from(victim_, address_);
    ASSERT_NE(to, nullptr);
    std::vector<std::byte> theirs = pattern(20 * kChunk, 5);
    const velo_handle_t handle = peer.registered(theirs);
    for (int round = 0; round < 3; ++round) {
        const uint64_t asked_before = victim_.counters().rail_requests;
        std::vector<std::byte> ours(theirs.size());
        velo_rma_t get = transfer(VELO_RMA_GET, handle, 0, ours.data(), ours.size());
        victim_.done.clear();
        velo_rma(victim_.engine, to, &get);
        for (int i = 0; i < 200'000 && victim_.done.empty(); ++i) {
            velo_progress(victim_.engine);
            for (RailHeader answer : peer.take()) {
                if (answer.kind != RailMessageKind::kRts) continue;
                answer.kind = RailMessageKind::kNack;
                answer.status = Status::kUnsupported;
                (void)peer.send(answer);
            }
        }
        ASSERT_EQ(victim_.done.size(), 1u) << round;
        EXPECT_EQ(ours, theirs);
        EXPECT_EQ(victim_.counters().rail_requests > asked_before, round == 0);
        send(peer, RawPeer::about(1, RailMessageKind::kRts, static_cast<uint32_t>(round) + 1));
        send(peer, RawPeer::about(1, RailMessageKind::kDone, static_cast<uint32_t>(round) + 1));
    }
}

TEST_F(ReservingHostile, a_peer_that_takes_no_answers_is_asked_nothing) {
    RawPeer peer(address_);
    velo_peer_t* to = peer.connect_from(victim_, address_);
    ASSERT_NE(to, nullptr);
    std::vector<std::byte> theirs = pattern(20 * kChunk, 5);
    const velo_handle_t handle = peer.registered(theirs);
    constexpr uint8_t kNoRail = 9;
    for (uint32_t i = 1; i < 200'000 && victim_.counters().pending_hwm < 100; ++i) {
        (void)peer.send(RawPeer::about(kNoRail, RailMessageKind::kRts, i));
        velo_progress(victim_.engine);
    }
    ASSERT_GE(victim_.counters().pending_hwm, 100u);
    std::vector<std::byte> ours(theirs.size());
    velo_rma_t get = transfer(VELO_RMA_GET, handle, 0, ours.data(), ours.size());
    velo_rma(victim_.engine, to, &get);
    for (int i = 0; i < 200'000 && victim_.done.empty(); ++i) velo_progress(victim_.engine);
    ASSERT_EQ(victim_.done.size(), 1u) << "it waits for an answer";
    EXPECT_EQ(ours, theirs);
}

/// A granter that answers as it likes. The transfer ends with the right bytes in any case.
TEST_F(ReservingHostile, a_granter_that_refuses_takes_back_or_lies_stops_no_transfer) {
    RawPeer peer(address_);
    velo_peer_t* to = peer.connect_from(victim_, address_);
    ASSERT_NE(to, nullptr);
    std::vector<std::byte> theirs = pattern(20 * kChunk, 5);
    const velo_handle_t handle = peer.registered(theirs);
    std::mt19937 random(3);
    for (int round = 0; round < 200; ++round) {
        std::vector<std::byte> ours(theirs.size());
        velo_rma_t get = transfer(VELO_RMA_GET, handle, 0, ours.data(), ours.size());
        velo_rma_t put = transfer(VELO_RMA_PUT, handle, 0, theirs.data(), 2 * kChunk);
        std::vector<std::byte> copy = theirs;
        put.local = copy.data();
        victim_.done.clear();
        velo_rma(victim_.engine, to, &get);
        velo_rma(victim_.engine, to, &put);
        for (int i = 0; i < 200'000 && victim_.done.size() != 2; ++i) {
            velo_progress(victim_.engine);
            for (const RailHeader& asked : peer.take()) {
                RailHeader answer = asked;
                // Of what was asked, of another request, or of another rail; a grant or a refusal, or one
                // after the other, at last a grant.
                for (uint32_t mistakes = random() % 4; mistakes != 0; --mistakes) {
                    answer = asked;
                    answer.kind = static_cast<RailMessageKind>(1 + random() % 5);
                    if (random() % 4 == 0) answer.number += static_cast<uint32_t>(random() % 3);
                    if (random() % 4 == 0) answer.rail = static_cast<uint8_t>(random() % 5);
                    if (random() % 4 == 0) answer.sends ^= 1;
                    (void)peer.send(answer);
                }
                if (asked.kind != RailMessageKind::kRts) continue;
                answer = asked;
                answer.kind = RailMessageKind::kCts;
                (void)peer.send(answer);
            }
        }
        ASSERT_EQ(victim_.done.size(), 2u) << round;
        for (const auto& [op, status] : victim_.done) EXPECT_EQ(status, VELO_OK);
        ASSERT_EQ(ours, theirs);
    }
    EXPECT_EQ(victim_.counters().rail_unreserved, 0u);
    EXPECT_GT(victim_.counters().rail_refusals, 100u);
    EXPECT_GT(victim_.counters().rail_losses, 10u);
}

TEST_F(ReservingHostile, a_peer_that_dies_while_it_holds_all_rails_frees_them) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        RawPeer peer(address_);
        bool sent = true;
        for (uint8_t rail = 0; rail < 4; ++rail)
            sent &= peer.send(RawPeer::about(rail, RailMessageKind::kRts, 1));
        (void)!write(ends[1], &sent, 1);
        for (;;) pause();
    }
    bool sent = false;
    ASSERT_EQ(read(ends[0], &sent, 1), 1);
    EXPECT_TRUE(sent);
    for (int i = 0; i < 1000; ++i) velo_progress(victim_.engine);
    EXPECT_EQ(victim_.counters().rail_served, 4u);
    Rank getter(params("dynamic"), 2, 3);
    velo_peer_t* to = Job::connect(getter, victim_);
    Job::connect(victim_, getter);
    Memory theirs(victim_, 10 * kChunk, 3);
    std::vector<std::byte> ours(theirs.bytes.size());
    velo_rma_t get = transfer(VELO_RMA_GET, theirs.handle, 0, ours.data(), ours.size());
    velo_rma(getter.engine, to, &get);
    const auto drive = [&](int milliseconds) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
        while (getter.done.empty() && std::chrono::steady_clock::now() < end) {
            velo_progress(getter.engine);
            velo_progress(victim_.engine);
        }
    };
    drive(50);
    EXPECT_TRUE(getter.done.empty()) << "its rails are set aside for another one";
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    drive(20'000);
    ASSERT_EQ(getter.done.size(), 1u);
    EXPECT_EQ(ours, theirs.bytes);
    EXPECT_EQ(getter.counters().rail_unreserved, 0u);
}

TEST_F(ReservingHostile, transfers_that_wait_for_a_granter_that_dies_fail_with_it) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    struct Published {
        std::array<std::byte, VELO_ADDRESS_BYTES_MAX> address;
        size_t bytes;
        velo_handle_t handle;
    };
    const pid_t child = fork();
    if (child == 0) {
        Rank owner(params("dynamic"), 1, 3);
        std::vector<std::byte> memory(10 * kChunk);
        Published published = {};
        published.bytes = velo_address(owner.engine, published.address.data(), published.address.size());
        (void)velo_register(owner.engine, memory.data(), memory.size(), 7, &published.handle);
        (void)!write(ends[1], &published, sizeof published);
        for (;;) pause();
    }
    Published published;
    ASSERT_EQ(read(ends[0], &published, sizeof published), static_cast<ssize_t>(sizeof published));
    velo_peer_t* peer = nullptr;
    char error[512] = "";
    ASSERT_EQ(velo_connect(victim_.engine, published.address.data(), published.bytes, true, nullptr, &peer,
                           error, sizeof error),
              VELO_OK)
        << error;
    std::vector<std::byte> ours(10 * kChunk);
    std::deque<velo_rma_t> ops;
    for (int i = 0; i < 12; ++i) {
        const velo_rma_kind_t kind = i % 2 == 0 ? VELO_RMA_GET : VELO_RMA_PUT;
        ops.push_back(transfer(kind, published.handle, 0, ours.data(), ours.size()));
        velo_rma(victim_.engine, peer, &ops.back());
    }
    for (int i = 0; i < 1000; ++i) velo_progress(victim_.engine);
    EXPECT_TRUE(victim_.done.empty());
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (victim_.done.size() != ops.size() && std::chrono::steady_clock::now() < end)
        velo_progress(victim_.engine);
    ASSERT_EQ(victim_.done.size(), ops.size());
    for (const auto& [op, status] : victim_.done) EXPECT_EQ(status, VELO_PEER_DEAD);
    EXPECT_FALSE(velo_busy(victim_.engine));
}

}  // namespace
}  // namespace velo::test
