// Production flow control and packet path over a network that delays and refuses at random: no overflow,
// nothing lost or out of order, conservation of each pair, and all processes at rest at the end.
//
// VELO_STRESS_SEED repeats one world, VELO_STRESS_EVENTS sets how many events all worlds have together.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "flowctl/plan.h"
#include "tests/stress/network.h"
#include "velo/channels/control_packets_impl.h"
#include "velo/channels/packet_channel_impl.h"

namespace velo::stress {
namespace {

using flowctl::LinkState;
using flowctl::Mode;
using flowctl::Plan;
using flowctl::Stealing;

constexpr uint32_t kMessageBytesMax = 2048;

/// The configuration of a world, drawn from its seed.
struct WorldConfig {
    Plan plan;
    uint32_t processes = 3;
    uint32_t message_packets_max = 1;
    uint32_t refusals = 0;
    /// Messages to one partner before the next is chosen.
    uint32_t messages_a_partner = 1;
    /// Of 1000 processes that get their turn, those that sleep instead, for a while.
    uint32_t naps = 0;
};

WorldConfig world_of(uint64_t seed) {
    Random random(seed * 0x9e3779b97f4a7c15u + 1);
    WorldConfig world;
    world.processes = random.below(4) == 0 ? 3 + random.below(38) : 3 + random.below(6);
    const uint32_t peers = world.processes - 1;
    flowctl::Config config{.peers = peers, .piggyback = random.below(8) != 0};
    static constexpr Mode kModes[] = {Mode::kDynamic,  Mode::kDynamic, Mode::kDynamic, Mode::kDynamic,
                                      Mode::kHardware, Mode::kStatic,  Mode::kGrowing, Mode::kNone};
    config.mode = kModes[random.below(8)];
    config.credit_slots = 1 + random.below(3);
    config.stealing = flowctl::kStealingNames[random.below(flowctl::kStealingNames.size())].first;
    config.growth = random.below(2) == 0 ? flowctl::Growth::kLinear : flowctl::Growth::kExponential;
    config.growing_start = 1 + random.below(3);
    config.growing_step = 1 + random.below(4);
    uint32_t slots = peers * (2 * config.credit_slots + random.below(3)) + random.below(peers + 4);
    if (config.mode == Mode::kDynamic && config.stealing != Stealing::kPaper && random.below(5) != 0) {
        config.contact_slots = 1 + random.below(2);
        // Less than all peers need, so that links close and open.
        slots = 2 * config.credit_slots * (1 + random.below(peers)) + random.below(2 * peers);
        slots += config.contact_slots;
    }
    if (config.mode == Mode::kHardware || config.mode == Mode::kNone) slots = 4 + random.below(30);
    if (random.below(4) == 0) config.sender_slots_max = config.credit_slots + 2 + random.below(12);
    for (config.mailbox_slots = std::max(slots, 1u);; ++config.mailbox_slots) {
        const flowctl::PlanResult result = flowctl::plan(config);
        if (const Plan* plan = std::get_if<Plan>(&result)) {
            world.plan = *plan;
            break;
        }
        // A limit that is below what every peer needs at least.
        if (config.mailbox_slots > 100 * peers * config.credit_slots) config.sender_slots_max = 0;
    }
    world.message_packets_max = 1 + random.below(random.below(3) == 0 ? 36 : 6);
    world.refusals = random.below(3) == 0 ? 0 : random.below(500);
    world.messages_a_partner = 1 + random.below(12);
    world.naps = random.below(2) == 0 ? 0 : random.below(300);
    return world;
}

struct Header {
    uint32_t from;
    uint32_t to;
    uint32_t number;
    uint32_t bytes;
};

/// No time passes here.
struct NoClock {
    [[nodiscard]] static uint64_t now_ns() { return 0; }
};

class World {
  public:
    explicit World(uint64_t seed)
        : config_(world_of(seed)), random_(seed), network_(network_config(), random_) {
        for (uint32_t i = 0; i < config_.processes; ++i) {
            processes_.push_back(std::make_unique<Process>(network_, i, config_));
        }
        for (size_t i = 0; i < kMessageBytesMax; ++i) body_[i] = static_cast<std::byte>(i * 7 + i / 56);
    }

    /// One of the things that can happen.
    void step() {
        if (random_.below(2) == 0 && network_.deliver_some()) return;
        Process& process = *processes_[random_.below(config_.processes)];
        if (process.sleeps != 0) {
            --process.sleeps;
            return;
        }
        if (random_.below(1000) < config_.naps) {
            process.sleeps = random_.below(200);
            return;
        }
        switch (random_.below(4)) {
            case 0:
            case 1: poll(process, 1 + random_.below(16)); break;
            case 2: drive(process); break;
            case 3: begin(process); break;
        }
    }

    /// No more messages, no refusals: everything arrives, and all processes rest.
    void settle() {
        network_.refuse(0);
        for (uint32_t round = 0;; ++round) {
            bool moved = false;
            network_.deliver_all();
            for (auto& process : processes_) {
                process->sleeps = 0;
                moved |= network_.has_packets(process->rank);
                poll(*process, 1u << 20);
                moved |= drive(*process);
            }
            // Control packets may have left, too.
            if (!moved && network_.idle()) break;
            ASSERT_LT(round, 100'000u) << "the world does not come to rest";
        }
        check_rest();
        network_.refuse(config_.refusals);
    }

    [[nodiscard]] uint64_t messages() const { return messages_; }
    [[nodiscard]] uint64_t closes() const {
        uint64_t sum = 0;
        for (const auto& process : processes_) sum += process->path.counters().closes_received;
        return sum;
    }
    [[nodiscard]] std::string text() const {
        return std::string(to_string(config_.plan.mode)) + ", " + std::to_string(config_.processes) +
               " processes, mailboxes of " + std::to_string(config_.plan.mailbox_slots) + " slots, " +
               std::to_string(config_.plan.contact_slots) + " contact slots";
    }

  private:
    struct Message : velo_send_t {
        Header header;
    };
    struct Peer {
        std::deque<std::unique_ptr<Message>> queue;
        uint32_t sent = 0;
        uint32_t received = 0;
    };
    struct Process {
        Process(Network& network, uint32_t number, const WorldConfig& config)
            : port(network, number),
              path(port, config.plan, kMessageBytesMax),
              peers(config.processes - 1),
              rank(number) {
            path.know(DeviceAddr(config.processes - 2));
        }
        Port port;
        PacketChannel<Port, NoClock> path;
        std::vector<Peer> peers;
        std::vector<DeviceAddr> waiting;
        uint32_t rank;
        uint32_t partner = 0;
        uint32_t messages_left = 0;
        uint32_t sleeps = 0;
    };
    struct Handler {
        World& world;
        Process& process;

        [[nodiscard]] bool accepts(MessageClass, uint8_t) const { return true; }
        void deliver(DeviceAddr from, MessageClass, uint8_t, const std::byte* data, uint32_t bytes) const {
            Header header;
            ASSERT_GE(bytes, sizeof header);
            std::memcpy(&header, data, sizeof header);
            Peer& peer = process.peers[from];
            ASSERT_EQ(header.from, process.port.process_of(from));
            ASSERT_EQ(header.to, process.rank);
            ASSERT_EQ(header.number, peer.received) << "out of order";
            ASSERT_EQ(header.bytes + sizeof header, bytes);
            ASSERT_EQ(std::memcmp(data + sizeof header, world.body_.data(), header.bytes), 0);
            ++peer.received;
        }
    };

    [[nodiscard]] NetworkConfig network_config() const {
        return {.processes = config_.processes,
                .mailbox_slots = config_.plan.mailbox_slots,
                .contact_slots = config_.plan.contact_slots,
                .bounded = config_.plan.mode != Mode::kNone,
                .refusals = config_.refusals};
    }

    void poll(Process& process, uint32_t budget) {
        process.path.poll(budget, Handler{*this, process});
        if (process.path.control_deferred()) process.path.resend_control();
    }

    bool drive(Process& process) {
        bool moved = false;
        for (DeviceAddr ready = kNoAddr; process.path.take_ready(ready);) moved = true;
        for (size_t i = 0; i < process.waiting.size();) {
            Peer& peer = process.peers[process.waiting[i]];
            // Not asked about before flow control says so, so that a wait it forgets is found.
            while (!peer.queue.empty() && !process.path.waits(process.waiting[i])) {
                Message& message = *peer.queue.front();
                const uint32_t before = message.done;
                const Status status = process.path.send(process.waiting[i], message);
                moved |= status == Status::kOk || message.done != before;
                if (status != Status::kOk) break;
                peer.queue.pop_front();
            }
            if (!peer.queue.empty()) {
                ++i;
                continue;
            }
            process.waiting[i] = process.waiting.back();
            process.waiting.pop_back();
        }
        return moved;
    }

    void begin(Process& process) {
        if (process.messages_left == 0) {
            process.partner = random_.below(config_.processes - 1);
            process.messages_left = config_.messages_a_partner;
        }
        --process.messages_left;
        const DeviceAddr to(process.partner);
        Peer& peer = process.peers[to];
        // A sender that waits does not run ahead without end.
        if (peer.queue.size() >= 4) return;
        auto message = std::make_unique<Message>();
        static_cast<velo_send_t&>(*message) = {};
        const uint32_t packets = 1 + random_.below(config_.message_packets_max);
        const uint32_t bytes = (packets - 1) * static_cast<uint32_t>(kPayloadBytes) +
                               random_.below(static_cast<uint32_t>(kPayloadBytes - sizeof(Header)));
        message->header = {
            .from = process.rank, .to = process.port.process_of(to), .number = peer.sent++, .bytes = bytes};
        message->data[0] = &message->header;
        message->bytes[0] = sizeof(Header);
        message->data[1] = body_.data();
        message->bytes[1] = bytes;
        message->total = message->bytes[0] + bytes;
        ++messages_;
        if (peer.queue.empty() && process.path.send(to, *message) == Status::kOk) return;
        if (peer.queue.empty()) process.waiting.push_back(to);
        peer.queue.push_back(std::move(message));
    }

    void check_rest() {
        EXPECT_EQ(network_.overflows(), 0u);
        for (const auto& process : processes_) {
            const auto& counters = process->path.counters();
            const flowctl::FlowControl& flow = process->path.flow();
            EXPECT_EQ(counters.malformed, 0u) << "process " << process->rank;
            EXPECT_TRUE(process->waiting.empty())
                << "process " << process->rank << " waits to send to process "
                << process->port.process_of(process->waiting.front());
            EXPECT_FALSE(process->path.control_deferred());
            uint32_t granted = 0;
            for (DeviceAddr at = 0; at + 1 < config_.processes; ++at) {
                const Process& other = *processes_[process->port.process_of(at)];
                const DeviceAddr back = other.port.address_of(process->rank);
                EXPECT_EQ(process->peers[at].received, other.peers[back].sent);
                if (process->path.credited()) {
                    check_pair(*process, at, other, back);
                    granted += flow.granted(at);
                }
            }
            if (config_.plan.mode == Mode::kDynamic) {
                EXPECT_EQ(flow.available_slots() + flow.lent_slots() + granted,
                          config_.plan.data_region_slots)
                    << "slots lost or made at process " << process->rank;
            }
        }
    }

    /// Of a pair at rest: both agree on the link, no answer is owed, and every credit is with the sender.
    void check_pair(const Process& mine, DeviceAddr at, const Process& other, DeviceAddr back) {
        const flowctl::FlowControl& flow = mine.path.flow();
        const flowctl::FlowControl& theirs = other.path.flow();
        const LinkState here = flow.link(at);
        const LinkState there = theirs.link(back);
        const bool agree = (here == LinkState::kOpen && there == LinkState::kOpen) ||
                           (here == LinkState::kUnknown && there == LinkState::kUnknown) ||
                           (here == LinkState::kOpening && there == LinkState::kOffered) ||
                           (here == LinkState::kOffered && there == LinkState::kOpening);
        EXPECT_TRUE(agree) << "processes " << mine.rank << " and " << other.rank << " are in states "
                           << static_cast<int>(here) << " and " << static_cast<int>(there);
        EXPECT_FALSE(flow.blocked(at));
        EXPECT_FALSE(flow.any_control_due(at));
        EXPECT_TRUE(flow.check_invariants(at));
        EXPECT_EQ(flow.granted(at), theirs.credits(back) + theirs.offered_credits(back))
            << "credits lost or made between processes " << other.rank << " and " << mine.rank;
    }

    WorldConfig config_;
    Random random_;
    Network network_;
    std::vector<std::unique_ptr<Process>> processes_;
    std::array<std::byte, kMessageBytesMax> body_{};
    uint64_t messages_ = 0;
};

uint64_t number_of(const char* name, uint64_t otherwise) {
    const char* const text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

void run_worlds(uint64_t events_default, uint64_t events_a_world) {
    const uint64_t events_a_phase = events_a_world / 8;
    const uint64_t only = number_of("VELO_STRESS_SEED", 0);
    const uint64_t events_all = number_of("VELO_STRESS_EVENTS", events_default);
    uint64_t events = 0;
    uint64_t messages = 0;
    uint64_t closes = 0;
    for (uint64_t seed = only != 0 ? only : 1; events < events_all; ++seed) {
        World world(seed);
        for (uint64_t phase = 0; phase < events_a_world; phase += events_a_phase) {
            for (uint64_t event = 0; event < events_a_phase; ++event) world.step();
            world.settle();
            ASSERT_FALSE(testing::Test::HasFailure()) << "VELO_STRESS_SEED=" << seed << ": " << world.text();
        }
        events += events_a_world;
        messages += world.messages();
        closes += world.closes();
        if (only != 0) return;
    }
    EXPECT_GT(messages, events / 100) << "the worlds did next to nothing";
    EXPECT_GT(closes, 0u) << "no link was closed";
    testing::Test::RecordProperty("messages", std::to_string(messages));
    testing::Test::RecordProperty("closes", std::to_string(closes));
}

TEST(FlowStress, a_few_worlds_lose_nothing_and_come_to_rest) {
    run_worlds(3'000'000, 80'000);
}

TEST(FlowStressFull, many_worlds_lose_nothing_and_come_to_rest) {
    run_worlds(100'000'000, 400'000);
}

}  // namespace
}  // namespace velo::stress
