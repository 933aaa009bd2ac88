// Whole engines on the simulated cluster, in virtual time: messages of any length, gets, puts and atomics at random, on
// nodes, through the plugin's rings, and between them. Packets and operations are late, refused or fail, memory for
// rings is refused, processes stall, and some die; then faults end, and everything must complete: in order, undamaged,
// and within a bound.
//
// VELO_SOAK_SEED repeats one world, VELO_SOAK_EVENTS sets how many events all worlds have together.
#include <cstdio>
#include <cstdlib>
#include <variant>

#include "tests/soak/soak_host.h"

namespace velo::soak {
namespace {

using flowctl::Mode;

WorldConfig world_of(uint64_t seed) {
    Random random(seed * 0x9e3779b97f4a7c15u + 1);
    WorldConfig world;
    world.seed = seed;
    world.processes = 2 + random.below(random.below(4) == 0 ? 12 : 5);
    world.processes_per_node = 1 + random.below(3);
    // Of its own, so that seeds that found something stay what they were.
    Random nodes(seed * 0x9e3779b97f4a7c15u + 2);
    if (nodes.below(4) == 0) world.processes_per_node = 1 + nodes.below(world.processes);
    // Rings fall dormant where there are many of them, and little comes.
    world.seldom = nodes.below(16) == 0;
    if (world.seldom) world.processes = world.processes_per_node = 11 + nodes.below(3);
    world.ring = {.lines = 4u << nodes.below(8), .body_bytes = 16384u << nodes.below(5)};
    world.ring_refused_permille = nodes.below(3) == 0 ? nodes.below(900) : 0;
    flowctl::Config flow{.peers = world.processes - 1, .piggyback = random.below(8) != 0};
    static constexpr Mode kModes[] = {Mode::kDynamic, Mode::kDynamic, Mode::kDynamic, Mode::kStatic, Mode::kGrowing,
                                      Mode::kHardware};
    flow.mode = kModes[random.below(6)];
    flow.credit_slots = 1 + random.below(3);
    flow.slots_per_peer = 2 * flow.credit_slots + random.below(random.below(2) == 0 ? 4 : 60);
    flow.contact_slots = flowctl::contact_slots_for(flow, 1 + random.below(16));
    auto plan = flowctl::plan(flow);
    if (const auto* error = std::get_if<flowctl::PlanError>(&plan)) throw base::SetupError(error->message);
    world.plan = std::get<flowctl::Plan>(plan);
    world.whole_steps = random.below(3) != 0;
    world.transfer_max = random.below(3) == 0 ? kReadBytes : 20'000;
    if (random.below(3) != 0) world.ring.body_bytes = 16384u << random.below(5);
    world.issue_until_ns = 3'000'000 + random.below(12'000'000);
    if (random.below(4) == 0) {
        world.dying = random.below(world.processes);
        world.dies_ns = random.below(static_cast<uint32_t>(world.issue_until_ns));
    }
    const auto permille = [&](uint32_t most) { return random.below(3) == 0 ? 0 : random.below(most); };
    world.faults = {.delay_permille = permille(200),
                    .delay_ns_max = 300'000,
                    .stall_permille = permille(30),
                    .stall_ns_max = 2'000'000,
                    .until_ns = world.issue_until_ns / 2 + random.below(static_cast<uint32_t>(world.issue_until_ns)),
                    .rma_fail_permille = permille(random.below(4) == 0 ? 700 : 60),
                    .rma_refuse_permille = random.below(6) == 0 ? 1 + random.below(20) : 0,
                    .rma_again_permille = permille(300),
                    .rma_delay_permille = permille(300),
                    .rma_delay_ns_max = 500'000};
    return world;
}

class World {
  public:
    explicit World(uint64_t seed)
        : config_(world_of(seed)),
          cluster_({.topology = cluster::Topology({config_.processes, 1, 1}, false),
                    .network = {},
                    .cpu = {.send_ns = 100, .receive_ns = 80, .credit_ns = 20, .jitter_permille = 100},
                    .faults = config_.faults,
                    .seed = seed,
                    .whole_payloads = true}),
          fabric_(cluster_) {
        fabric_.message_ns = 200;
        fabric_.copy_kib_ns = 100;
        fabric_.short_bytes = 4096;
        fabric_.ring = config_.ring;
        fabric_.refuse_permille = config_.ring_refused_permille;
        fabric_.refuse_until_ns = config_.faults.until_ns;
        fabric_.polls_empty_rings = true;
        fabric_.whole_payloads = true;
        for (uint32_t rank = 0; rank < config_.processes; ++rank) {
            const uint32_t node = rank / config_.processes_per_node;
            cluster::ClusterDevice& device =
                cluster_.open(node, {.node = static_cast<uint16_t>(node),
                                     .vpid = static_cast<uint8_t>(rank % config_.processes_per_node),
                                     .mailbox_slots = config_.plan.mailbox_slots,
                                     .contact_slots = config_.plan.contact_slots,
                                     .faults = {}});
            hosts_.push_back(std::make_unique<SoakHost>(config_, fabric_, device, hosts_));
        }
        for (auto& host : hosts_) host->open_window();
        for (auto& host : hosts_) cluster_.schedule(host->device(), host->rank());
        if (config_.dying != UINT32_MAX) cluster_.kill(config_.dying, config_.dies_ns);
    }
    ~World() {
        // Processes that ended first, so that the others do not look at what is gone.
        for (auto& host : hosts_) host->engine().announce_ending(base::Ending::kClosed);
    }

    /// Runs to the end. False: something is left to do long after the last fault.
    bool run() {
        const uint64_t last_ns = std::max(config_.issue_until_ns, config_.faults.until_ns) + kPatienceNs;
        while (cluster::ClusterDevice* device = cluster_.next()) {
            if (device->clock_ns() > last_ns) return finished();
            ++events_;
            SoakHost& host = *hosts_[device->process()];
            if (const uint64_t stall_ns = cluster_.stall_ns(device->clock_ns()); stall_ns != 0) {
                device->spend(stall_ns);
                cluster_.schedule(*device, device->clock_ns());
                continue;
            }
            const uint32_t happened = host.step();
            events_ += happened;
            uint32_t& idle = idle_[host.rank()];
            idle = happened != 0 ? 0 : idle + 1;
            // Half a step may find nothing although there is something for the other half.
            if (idle == 0 || (!config_.whole_steps && idle < kIdleHalves)) {
                cluster_.schedule(*device, device->clock_ns());
            } else {
                // As a rank that waits in MPI polls all the time; so liveness is looked at, too.
                device->sleep();
                const uint64_t next_ns = host.engine().parts().core.on_node.next_ns();
                const uint64_t now_ns = device->clock_ns();
                const uint64_t nap_ns = config_.seldom && now_ns < config_.issue_until_ns ? kShortNapNs : kNapNs;
                cluster_.schedule(*device, std::max(now_ns, std::min(next_ns, now_ns + nap_ns)));
            }
            if (device->clock_ns() > config_.issue_until_ns && device->clock_ns() > next_look_ns_) {
                next_look_ns_ = device->clock_ns() + kLookNs;
                if (finished()) return true;
            }
            if (testing::Test::HasFailure()) return true;
        }
        return finished();
    }
    /// Adds what the engines have counted to `sums`.
    void check_end(velo_counters_t& sums, uint64_t& rings_refused) {
        for (auto& host : hosts_) {
            if (!host->dead()) host->check_end();
            velo_counters_t counters;
            host->engine().counters(counters);
            EXPECT_EQ(counters.engine_malformed + counters.velo_rx_malformed + counters.velo_overflows, 0u);
            EXPECT_EQ(counters.atu_faults, 0u);
#define VELO_COUNTER(name, text) sums.name += counters.name;
#include "velo/counters.def"
        }
        check_credits();
        check_rings();
        rings_refused += fabric_.refused;
    }
    [[nodiscard]] uint64_t events() const { return events_; }
    [[nodiscard]] uint64_t operations() const {
        uint64_t sum = 0;
        for (const auto& host : hosts_) sum += host->operations();
        return sum;
    }
    [[nodiscard]] const WorldConfig& config() const { return config_; }
    [[nodiscard]] std::string text() const {
        std::string text;
        for (const auto& host : hosts_) text += host->text() + "\n";
        return text;
    }

  private:
    static constexpr uint64_t kNapNs = 200'000;
    static constexpr uint64_t kShortNapNs = 200;
    static constexpr uint32_t kIdleHalves = 64;
    static constexpr uint64_t kLookNs = 1'000'000;
    static constexpr uint64_t kPatienceNs = 10'000'000'000;

    bool finished() {
        for (const auto& host : hosts_) {
            if (host->dead()) continue;
            if (!host->finished()) return false;
            const DeviceReport own = host->device().report(kNoAddr);
            if (own.mailbox_read != own.mailbox_written || host->engine().parts().core.on_node.next_ns() != UINT64_MAX)
                return false;
        }
        return true;
    }
    /// A pair of the living agrees about its credits.
    void check_credits() {
        if (config_.plan.credit_slots == 0) return;
        for (auto& one : hosts_) {
            for (auto& other : hosts_) {
                if (one == other || one->dead() || other->dead()) continue;
                const DeviceAddr there = one->device().find(other->rank());
                const DeviceAddr here = other->device().find(one->rank());
                const flowctl::FlowControl& held = one->engine().parts().core.packets->flow();
                const flowctl::FlowControl& granted = other->engine().parts().core.packets->flow();
                if (there == kNoAddr || here == kNoAddr || there >= held.known() || here >= granted.known()) continue;
                EXPECT_EQ(held.credits(there) + held.offered_credits(there), granted.granted(here))
                    << "credits of process " << one->rank() << " at process " << other->rank();
                EXPECT_TRUE(held.check_invariants(there));
            }
        }
    }

    /// All that was written to the rings of the living has been read and given back.
    void check_rings() {
        for (auto& one : hosts_) {
            if (one->dead()) continue;
            const sim::SimNode& node = one->engine().parts().core.on_node;
            EXPECT_EQ(node.unanswered(), 0u);
            for (const velo_peer* peer : one->engine().parts().peers.on_node()) {
                if (peer == nullptr || hosts_[node.rank_of(peer->node_index())]->dead()) continue;
                shm::RingFill fill;
                if (!node.fill(peer->node_index(), fill)) continue;
                EXPECT_EQ(fill.lines_written, fill.lines_read);
                EXPECT_EQ(fill.body_written, fill.body_read);
            }
        }
    }

    WorldConfig config_;
    cluster::Cluster cluster_;
    sim::NodeFabric fabric_;
    std::vector<std::unique_ptr<SoakHost>> hosts_;
    std::vector<uint32_t> idle_ = std::vector<uint32_t>(config_.processes);  ///< steps in which nothing has happened
    uint64_t events_ = 0;
    uint64_t next_look_ns_ = 0;
};

uint64_t number_of(const char* name, uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

void run_worlds(uint64_t events_default) {
    const uint64_t only = number_of("VELO_SOAK_SEED", 0);
    const uint64_t events_all = number_of("VELO_SOAK_EVENTS", events_default);
    uint64_t events = 0;
    uint64_t operations = 0;
    uint64_t deaths = 0;
    velo_counters_t sums = {};
    uint64_t rings_refused = 0;
    uint64_t seed = only != 0 ? only : 1;
    for (; events < events_all; ++seed) {
        SCOPED_TRACE("VELO_SOAK_SEED=" + std::to_string(seed));
        // Before it runs: a failed check of the engine's ends the program.
        std::printf("VELO_SOAK_SEED=%llu\n", static_cast<unsigned long long>(seed));
        std::fflush(stdout);
        World world(seed);
        ASSERT_TRUE(world.run()) << "something is left to do, and nothing moves:\n" << world.text();
        if (!testing::Test::HasFailure()) world.check_end(sums, rings_refused);
        ASSERT_FALSE(testing::Test::HasFailure()) << world.text();
        events += world.events();
        operations += world.operations();
        deaths += world.config().dying != UINT32_MAX;
        if (only != 0) break;
    }
    std::printf("%llu worlds, %llu events, %llu operations, %llu deaths\n", static_cast<unsigned long long>(seed - 1),
                static_cast<unsigned long long>(events), static_cast<unsigned long long>(operations),
                static_cast<unsigned long long>(deaths));
    if (only == 0) {
        EXPECT_GT(operations, events / 100) << "the worlds did next to nothing";
        EXPECT_GT(deaths, 0u);
        // Each way that data can take, and each that control can.
        uint32_t way = 0;
        for (const uint64_t sum :
             {sums.on_node_rx_messages, sums.velo_rx_messages, sums.contacts_tx, sums.opens_tx, sums.closes_tx,
              sums.requests_tx, sums.steals, sums.stall_count, sums.velo_backpressure, sums.credits_tx_piggybacked,
              sums.rma_get_bytes, sums.rma_put_bytes, sums.rma_copied_bytes, sums.rma_ring_bytes, sums.rma_fallbacks,
              sums.rma_held, sums.rma_repeated, sums.rma_failed, sums.atomics_served, sums.on_node_rings,
              sums.on_node_ring_full, sums.on_node_bells, rings_refused}) {
            EXPECT_NE(sum, 0u) << "of way " << way;
            ++way;
        }
    }
}

/// A sender of long gaps, in the middle of a message, was the one whose idle credits were taken for it: its link
/// closed, and was then given credits.
TEST(EngineSoak, a_sender_is_not_asked_for_credits_that_it_is_given) {
    World world(732);
    ASSERT_TRUE(world.run()) << world.text();
}

TEST(EngineSoak, whole_engines_lose_nothing_and_end_everything) {
    run_worlds(4'000'000);
}

}  // namespace
}  // namespace velo::soak
