/// The rails of several processes, their transfers, and messages that are late, overtake each other or are
/// lost (rma/rail_reservations.h).
#include "rma/rail_reservations.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>

namespace velo::rma {
namespace {

using Stage = ReservingTransfer::Stage;

constexpr RailDirection kGets = RailDirection::kReceiving;
constexpr uint64_t kWaitNs = 1'000'000;

struct Sent {
    uint32_t from;
    uint32_t to;
    RailDirection direction;
    uint32_t rail;
    RailMessage message;
};

/// One process: its rails, and a host that notes everything.
struct Process {
    uint32_t self;
    RailReservations machine;
    RailMask usable;
    std::vector<Sent>& network;
    std::vector<ReservingTransfer*> begun;  ///< whose first chunks are under way
    std::vector<ReservingTransfer*> admitted;
    std::vector<const ReservingTransfer*> late_ones;
    RailPolicy policy{{.rule = RailRule::kLocalDynamic}};

    Process(uint32_t number, uint32_t rails, std::vector<Sent>& messages)
        : self(number),
          machine({.rails = rails, .wait_ns = kWaitNs, .seed = number + 1}),
          usable(~RailMask{0} >> (kRailsMax - rails)),
          network(messages) {}

    struct Host {
        Process& process;
        [[nodiscard]] RailMask usable(const ReservingTransfer&) const { return process.usable; }
        [[nodiscard]] RailMask share(RailMask free, uint64_t bytes) const {
            return process.policy.share(free, bytes);
        }
        void send(RailDirection direction, uint32_t rail, RailMessage message) const {
            const uint32_t to = message.peer;
            message.peer = process.self;  // as its receiver sees it
            process.network.push_back({process.self, to, direction, rail, message});
        }
        void answer(RailDirection direction, uint32_t rail, const RailMessage& message) const {
            send(direction, rail, message);
        }
        void late(const ReservingTransfer& transfer) const { process.late_ones.push_back(&transfer); }
        void begin(ReservingTransfer& transfer) const {
            transfer.issued_bytes = transfer.outstanding = 1;
            process.begun.push_back(&transfer);
        }
        void admit(ReservingTransfer& transfer) const {
            process.admitted.push_back(&transfer);
        }
    };
    Host host() { return {*this}; }
    void drive(uint64_t now_ns) { machine.drive(now_ns, host()); }
    void receive(const Sent& sent, uint64_t now_ns) {
        machine.received(sent.direction, sent.rail, sent.message, now_ns, host());
    }
};

ReservingTransfer of_bytes(uint64_t bytes) {
    ReservingTransfer transfer;
    transfer.bytes = bytes;
    transfer.chunk_bytes = 1;
    return transfer;
}

class Pair : public testing::Test {
  protected:
    void deliver(uint64_t now_ns = 0) {
        while (!network_.empty()) {
            const Sent sent = network_.front();
            network_.erase(network_.begin());
            (sent.to == 0 ? getter_ : owner_).receive(sent, now_ns);
        }
    }
    void finish(ReservingTransfer& transfer) {
        transfer.issued_bytes = transfer.bytes;
        getter_.machine.settle(transfer, getter_.host());
    }
    std::vector<Sent> network_;
    Process getter_{0, 4, network_};
    Process owner_{1, 4, network_};
};

TEST_F(Pair, a_transfer_asks_on_all_free_rails_and_is_admitted_at_the_first_grant) {
    ReservingTransfer transfer = of_bytes(100);
    getter_.machine.post(transfer, 1, kGets, 0);
    EXPECT_TRUE(getter_.machine.waits());
    getter_.drive(0);
    ASSERT_EQ(network_.size(), 4u);
    EXPECT_EQ(transfer.asked, 0xfu);
    EXPECT_EQ(transfer.stage, Stage::kAsks);
    owner_.receive(network_[2], 0);
    getter_.receive(network_.back(), 0);
    EXPECT_EQ(transfer.rails, 1u << 2);
    EXPECT_EQ(getter_.admitted.size(), 1u);
    EXPECT_FALSE(getter_.machine.waits());
    network_.erase(network_.begin() + 2);
    network_.pop_back();
    deliver();
    EXPECT_EQ(transfer.rails, 0xfu) << "others join as they come";
    EXPECT_EQ(getter_.admitted.size(), 1u);
    finish(transfer);
    EXPECT_TRUE(getter_.machine.settled(transfer));
    deliver();
    EXPECT_FALSE(owner_.machine.rail(kGets, 0).grant());
}

TEST_F(Pair, a_first_chunk_goes_once_with_the_first_request_and_may_be_all_of_a_transfer) {
    owner_.machine.rail_died(0, 0, owner_.host());
    owner_.machine.rail_died(1, 0, owner_.host());
    ReservingTransfer transfer = of_bytes(2);
    getter_.machine.post(transfer, 1, kGets, 0);
    EXPECT_TRUE(getter_.begun.empty()) << "not before a rail is free here";
    getter_.drive(0);
    EXPECT_EQ(getter_.begun, std::vector{&transfer});
    deliver();
    EXPECT_EQ(transfer.stage, Stage::kWaits) << "refused";
    getter_.drive(0);
    EXPECT_EQ(getter_.begun.size(), 1u);
    transfer.issued_bytes = transfer.bytes;
    getter_.machine.ended(transfer, getter_.host());
    EXPECT_TRUE(getter_.machine.settled(transfer));
    EXPECT_FALSE(getter_.machine.waits());
    EXPECT_TRUE(getter_.admitted.empty());
    deliver();
    for (uint32_t rail = 0; rail < 4; ++rail) EXPECT_FALSE(owner_.machine.rail(kGets, rail).grant()) << rail;

    ReservingTransfer waiting = of_bytes(2);
    getter_.machine.post(waiting, 1, kGets, 0);
    getter_.machine.ended(waiting, getter_.host());
    EXPECT_FALSE(getter_.machine.waits()) << "nor one that has failed before it asked";
    EXPECT_EQ(getter_.machine.counters().unreserved, 0u);
}

TEST_F(Pair, a_rail_is_held_until_the_chunks_on_it_have_ended) {
    ReservingTransfer transfer = of_bytes(2);
    getter_.machine.post(transfer, 1, kGets, 0);
    getter_.drive(0);
    deliver();
    ASSERT_EQ(transfer.rails, 0x3u) << "no more than it has fragments";
    EXPECT_TRUE(getter_.machine.chunk_began(transfer, 1));
    EXPECT_FALSE(getter_.machine.chunk_began(transfer, 3)) << "not its own";
    finish(transfer);
    EXPECT_FALSE(getter_.machine.settled(transfer));
    ASSERT_EQ(network_.size(), 1u);
    EXPECT_EQ(network_[0].rail, 0u);
    getter_.machine.chunk_ended(transfer, 1);
    getter_.machine.settle(transfer, getter_.host());
    EXPECT_TRUE(getter_.machine.settled(transfer));
    EXPECT_EQ(network_[1].message.kind, RailMessageKind::kDone);
}

TEST_F(Pair, requests_that_are_still_out_when_all_is_issued_are_given_up) {
    ReservingTransfer transfer = of_bytes(3);
    getter_.machine.post(transfer, 1, kGets, 0);
    getter_.drive(0);
    ASSERT_EQ(network_.size(), 3u);
    const Sent late = network_[0];
    network_.erase(network_.begin());
    deliver();
    finish(transfer);
    EXPECT_TRUE(getter_.machine.settled(transfer));
    network_.push_back(late);
    deliver();
    for (uint32_t rail = 0; rail < 4; ++rail) EXPECT_FALSE(owner_.machine.rail(kGets, rail).grant()) << rail;
}

TEST_F(Pair, a_refusal_by_one_rail_leads_to_another_and_one_by_all_to_a_pause) {
    owner_.machine.rail_died(0, 0, owner_.host());
    ReservingTransfer transfer = of_bytes(1);
    getter_.machine.post(transfer, 1, kGets, 0);
    getter_.drive(0);
    deliver();
    EXPECT_EQ(transfer.refused, 1u);
    getter_.drive(0);
    deliver();
    EXPECT_EQ(transfer.rails, 2u);
    for (uint32_t rail = 1; rail < 4; ++rail) owner_.machine.rail_died(rail, 0, owner_.host());
    ReservingTransfer other = of_bytes(1);
    getter_.machine.post(other, 1, kGets, 0);
    for (int i = 0; i < 8; ++i) {
        getter_.drive(0);
        deliver();
    }
    EXPECT_EQ(other.stage, Stage::kWaits);
    const uint64_t requests = getter_.machine.counters().requests;
    EXPECT_LE(requests, 2u + 4u + 4u) << "it pauses";
    for (uint32_t rail = 0; rail < 4; ++rail) owner_.machine.rail_revived(rail);
    getter_.drive(kWaitNs - 1);
    deliver();
    EXPECT_EQ(other.stage, Stage::kAdmitted);
    EXPECT_NE(other.rails, 0u);
}

TEST_F(Pair, a_transfer_that_waited_too_long_goes_without_and_leaves_nothing_behind) {
    std::deque<ReservingTransfer> transfers;
    for (int i = 0; i < 6; ++i) {
        transfers.push_back(of_bytes(1));
        getter_.machine.post(transfers.back(), 1, kGets, 0);
    }
    getter_.drive(0);
    getter_.drive(kWaitNs - 1);
    EXPECT_TRUE(getter_.admitted.empty());
    getter_.drive(kWaitNs);
    EXPECT_EQ(getter_.admitted.size(), 6u);
    EXPECT_EQ(getter_.late_ones.size(), 4u) << "those that have asked";
    EXPECT_EQ(getter_.machine.counters().unreserved, 6u);
    for (ReservingTransfer& transfer : transfers) EXPECT_TRUE(getter_.machine.settled(transfer));
    deliver();
    for (uint32_t rail = 0; rail < 4; ++rail) EXPECT_FALSE(owner_.machine.rail(kGets, rail).grant());
}

TEST_F(Pair, nothing_is_asked_where_no_rail_works) {
    getter_.usable = 0;
    ReservingTransfer transfer = of_bytes(5);
    getter_.machine.post(transfer, 1, kGets, 0);
    getter_.drive(0);
    EXPECT_EQ(transfer.stage, Stage::kAdmitted);
    EXPECT_TRUE(network_.empty());
}

TEST_F(Pair, a_path_that_fails_takes_its_requests_and_grants_along) {
    ReservingTransfer transfer = of_bytes(2);
    getter_.machine.post(transfer, 1, kGets, 0);
    getter_.drive(0);
    owner_.receive(network_[0], 0);
    getter_.receive(network_.back(), 0);
    network_.pop_back();
    network_.erase(network_.begin());
    getter_.machine.path_lost(1, 0, getter_.host());
    EXPECT_EQ(transfer.rails, 0u);
    getter_.machine.path_lost(1, 1, getter_.host());
    EXPECT_TRUE(getter_.machine.settled(transfer));
    deliver();
    for (uint32_t rail = 0; rail < 2; ++rail) EXPECT_FALSE(owner_.machine.rail(kGets, rail).grant());
}

TEST_F(Pair, a_peer_that_dies_admits_what_waits_for_it_and_nothing_else) {
    std::deque<ReservingTransfer> transfers;
    for (int i = 0; i < 8; ++i) {
        transfers.push_back(of_bytes(1));
        getter_.machine.post(transfers.back(), 1 + i % 2, kGets, 0);
    }
    getter_.drive(0);
    getter_.machine.peer_died(1, 0, getter_.host());
    EXPECT_EQ(getter_.admitted.size(), 4u);
    for (const ReservingTransfer* transfer : getter_.admitted) EXPECT_EQ(transfer->granter, 1u);
    uint32_t waiting = 0;
    getter_.machine.for_each_waiting([&](const ReservingTransfer& transfer) {
        EXPECT_EQ(transfer.granter, 2u);
        ++waiting;
    });
    EXPECT_EQ(waiting, 4u);
}

struct Network {
    uint32_t processes;
    uint32_t rails;
    bool lossy;  ///< messages are lost, rails and paths fail
};
class Networks : public testing::TestWithParam<Network> {};

/// Transfers between all, in both directions. A held rail is held at both ends, nothing is lost for good, and
/// where messages arrive nothing but a first chunk goes without a reservation.
TEST_P(Networks, admit_every_transfer_and_hold_each_rail_once) {
    const auto [count, rails, lossy] = GetParam();
    for (uint32_t seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto below = [&](uint64_t bound) { return static_cast<uint32_t>(random() % bound); };
        std::vector<Sent> network;
        std::deque<Process> processes;
        for (uint32_t i = 0; i < count; ++i) processes.emplace_back(i, rails, network);
        struct Work {
            ReservingTransfer transfer;
            std::vector<uint32_t> chunks;  ///< under way, by the rails that are held
            bool ended = false;
        };
        std::vector<std::deque<Work>> work(count);
        for (uint32_t i = 0; i < count; ++i) {
            for (int transfers = 0; transfers < 6; ++transfers) {
                Work& each = work[i].emplace_back();
                each.transfer.bytes = 1 + below(6);
                each.transfer.chunk_bytes = 1;
            }
        }
        std::vector<size_t> posted(count, 0);
        uint64_t now_ns = 0;
        uint32_t ended = 0;
        const uint32_t all = count * 6;
        for (int step = 0; ended < all; ++step) {
            ASSERT_LT(step, 500'000) << ended << " of " << all;
            now_ns += below(lossy ? 500 : 2);
            const uint32_t at = below(count);
            Process& process = processes[at];
            switch (below(7)) {
                case 0:
                    if (posted[at] == work[at].size()) break;
                    process.machine.post(work[at][posted[at]++].transfer, (at + 1 + below(count - 1)) % count,
                                         below(2) == 0 ? RailDirection::kSending : kGets, now_ns);
                    break;
                case 1: process.drive(now_ns); break;
                case 2:
                case 3: {
                    if (network.empty()) break;
                    const uint32_t which = below(network.size());
                    const Sent sent = network[which];
                    network.erase(network.begin() + which);
                    if (!lossy || below(20) != 0) processes[sent.to].receive(sent, now_ns);
                    break;
                }
                case 4:
                    if (!lossy || below(10) != 0) break;
                    if (const uint32_t rail = below(rails); below(2) == 0) {
                        process.machine.path_lost(below(count), rail, process.host());
                    } else if ((process.machine.dead() >> rail & 1) != 0) {
                        process.machine.rail_revived(rail);
                    } else {
                        process.machine.rail_died(rail, now_ns, process.host());
                    }
                    break;
                case 5:
                    if (process.begun.empty()) break;
                    if (const uint32_t which = below(process.begun.size()); true) {
                        ReservingTransfer& transfer = *process.begun[which];
                        process.begun.erase(process.begun.begin() + which);
                        --transfer.outstanding;
                        if (!transfer.unadmitted() || !transfer.all_issued()) break;
                        process.machine.ended(transfer, process.host());
                        ++ended;
                    }
                    break;
                default: {
                    if (process.admitted.empty()) break;
                    const uint32_t which = below(process.admitted.size());
                    ReservingTransfer& transfer = *process.admitted[which];
                    Work* of = nullptr;
                    for (Work& each : work[at])
                        if (&each.transfer == &transfer) of = &each;
                    if (!transfer.all_issued() && below(2) == 0) {
                        const uint32_t rail = below(rails);
                        // At any rail, where it holds none.
                        if (transfer.rails != 0 && (transfer.rails >> rail & 1) == 0) break;
                        if (process.machine.chunk_began(transfer, rail)) {
                            of->chunks.push_back(rail);
                            ++transfer.outstanding;
                            if (!lossy) {
                                const Process& granter = processes[transfer.granter];
                                const auto grant = granter.machine.rail(transfer.direction, rail).grant();
                                ASSERT_TRUE(grant);
                                ASSERT_EQ(grant->peer, at) << "set aside at both ends";
                            }
                        } else {
                            ASSERT_TRUE(lossy);
                        }
                        ++transfer.issued_bytes;
                    } else if (!of->chunks.empty()) {
                        process.machine.chunk_ended(transfer, of->chunks.back());
                        of->chunks.pop_back();
                        --transfer.outstanding;
                    }
                    process.machine.settle(transfer, process.host());
                    if (transfer.all_issued() && transfer.outstanding == 0) {
                        ASSERT_TRUE(process.machine.settled(transfer));
                        process.admitted.erase(process.admitted.begin() + which);
                        of->ended = true;
                        ++ended;
                    }
                }
            }
        }
        for (const Process& process : processes) {
            EXPECT_FALSE(process.machine.waits());
            if (lossy) continue;
            EXPECT_EQ(process.machine.counters().lost, 0u);
            EXPECT_EQ(process.machine.counters().unreserved, 0u);
        }
        if (lossy) continue;
        while (!network.empty()) {
            const Sent sent = network.back();
            network.pop_back();
            processes[sent.to].receive(sent, now_ns);
        }
        for (const Process& process : processes) {
            for (uint32_t rail = 0; rail < rails; ++rail) {
                for (const RailDirection direction : {RailDirection::kSending, kGets}) {
                    EXPECT_FALSE(process.machine.rail(direction, rail).grant());
                    EXPECT_FALSE(process.machine.rail(direction, rail).own_request());
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, Networks,
                         testing::Values(Network{2, 1, false}, Network{2, 2, false}, Network{3, 2, false},
                                         Network{5, 4, false}, Network{8, 8, false}, Network{2, 2, true},
                                         Network{4, 3, true}, Network{6, 8, true}),
                         [](const auto& info) {
                             return std::to_string(info.param.processes) + "_by_" +
                                    std::to_string(info.param.rails) + (info.param.lossy ? "_lossy" : "");
                         });

}  // namespace
}  // namespace velo::rma
