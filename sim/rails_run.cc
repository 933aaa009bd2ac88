#include "sim/rails_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "velo/os/shared_segment.h"

namespace velo::sim {

namespace {

rma::RailPolicy round_robin() {
    return rma::RailPolicy({.rule = rma::RailRule::kRoundRobin});
}
rma::RailPolicy local_dynamic(uint32_t striping_percent) {
    return rma::RailPolicy({.rule = rma::RailRule::kLocalDynamic, .striping_percent = striping_percent});
}

const RailsConfig& checked(const RailsConfig& config) {
    const auto refuse = [](bool wrong, const char* what) {
        if (wrong) throw base::SetupError(what);
    };
    refuse(config.nodes < 2 || config.nodes > 128, "--nodes: give 2 to 128");
    refuse(config.processes_per_node == 0, "--processes-per-node: give at least 1");
    refuse(config.rails == 0 || config.rails > rma::kRailsMax, "--rails: give 1 to 64");
    refuse(config.bytes == 0, "--bytes: give at least 1");
    refuse(!(config.load > 0), "--load: give more than 0");
    refuse(config.striping_percent > 100, "--striping: give 0 to 100");
    refuse(config.links.channels == 0, "--channels: give at least 1");
    refuse(config.links.flit_bytes == 0, "--flit-bytes: give at least 1");
    refuse(config.chunk_bytes == 0, "--chunk: give at least 1");
    refuse(config.measured == 0, "--measured: give at least 1");
    refuse(!(config.links.both_ways > 0 && config.links.both_ways <= 1), "--both-ways: give a part of 1, more than 0");
    if (config.policy != RailsPolicy::kStatic) return config;
    const auto fewest = rma::fewest_rails(rma::StaticRule::kOptimal, config.nodes);
    if (config.rails < *fewest) {
        throw base::SetupError("--policy static: " + std::to_string(config.nodes) + " nodes need " +
                               std::to_string(*fewest) + " rails, and there are " +
                               std::to_string(config.rails));
    }
    return config;
}

}  // namespace

RailsRun::RailsRun(const RailsConfig& config)
    : world_(checked(config)), traffic_(world_.config), allocation_(world_, *this) {
    if (config.policy == RailsPolicy::kStatic) {
        static_ = rma::StaticAllocation::make(rma::StaticRule::kOptimal, config.rails, config.nodes);
    }
    const WormConfig worms = {.nodes = config.nodes,
                              .duplex = config.duplex,
                              .channels = config.links.channels,
                              .both_ways = config.links.both_ways};
    network_.assign(config.rails, WormRail(worms));
    const bool basic = config.policy == RailsPolicy::kBasic;
    for (uint32_t node = 0; node < config.nodes; ++node) {
        world_.nodes.push_back({.rails = rma::RailSet(config.rails),
                                .policy = basic ? round_robin() : local_dynamic(config.striping_percent),
                                .waiting = {}});
    }
    if (is_shipped(config.policy)) shipped_ = std::make_unique<ShippedRails>(world_.config, *this);
    const uint32_t processes = config.nodes * config.processes_per_node;
    for (uint32_t process = 0; process < processes; ++process) {
        processes_.push_back({.policy = round_robin(), .queue = {}});
        plan_message(process);
    }
}

RailsResult RailsRun::run() {
    while (true) {
        const uint32_t rail = next_rail();
        const double worm_ends = network_[rail].next_end();
        // Processes never end, so there is always an event.
        const bool worm_first = worm_ends <= world_.events.next_time();
        world_.events.pass_to(worm_first ? worm_ends : world_.events.next_time());
        if (world_.measurement.over(world_.now())) break;
        worm_first ? worm_left(rail) : handle(world_.events.take_next());
    }
    return world_.measurement.result(world_.messages.in_use());
}

/// The rail whose next worm is the first to have left its sender.
uint32_t RailsRun::next_rail() const {
    uint32_t rail = 0;
    for (uint32_t other = 1; other < world_.config.rails; ++other) {
        if (network_[other].next_end() < network_[rail].next_end()) rail = other;
    }
    return rail;
}

void RailsRun::worm_left(uint32_t rail) {
    const uint32_t worm = network_[rail].end_next();
    const RailsMessage& message = world_.messages[worms_[worm].message];
    const uint32_t node = world_.node_of(message);
    world_.nodes[node].rails.end(rail, rma::RailDirection::kSending, worms_[worm].bytes);
    world_.events.schedule(world_.now() + world_.way(node, message.to), RailEventKind::kArrive, worm);
    worms_move(rail);
    if (shipped_) {
        const Worm left = worms_[worm];
        shipped_->chunk_left(left.message, rail, left.bytes, left.reserved, world_.events.now_ns());
    }
    allocation_.wake(node);
}

void RailsRun::handle(const RailEvent& event) {
    switch (event.kind) {
        case RailEventKind::kMake: make(event.at); break;
        case RailEventKind::kArrive: arrive(event.at); break;
        default: shipped_ ? handle_shipped(event) : allocation_.handle(event);
    }
}

void RailsRun::handle_shipped(const RailEvent& event) {
    const uint32_t node = event.at / world_.config.rails;
    const uint32_t rail = event.at % world_.config.rails;
    const uint64_t now_ns = world_.events.now_ns();
    switch (event.kind) {
        case RailEventKind::kShippedSend: send_shipped(event.process, rail, event.message); break;
        case RailEventKind::kShippedControl:
            world_.give_to_thread(RailEventKind::kShippedHandle, node, rail, event.message, event.process);
            break;
        case RailEventKind::kShippedHandle: shipped_->received(event.process, rail, event.message, now_ns); break;
        case RailEventKind::kShippedDrive: shipped_->drive(event.at, now_ns); break;
        default: VELO_CHECK(false, "an event of kind %u", static_cast<unsigned>(event.kind));
    }
}

void RailsRun::post_chunk(uint32_t message, uint32_t rail, uint32_t bytes, bool reserved) {
    ++world_.messages[message].fragments;
    post_worm(message, rail, bytes, reserved);
}

/// A request takes the NIC's thread, as a local RTS does; an answer was made by it.
void RailsRun::send_control(uint32_t process, uint32_t rail, const rma::RailMessage& message, bool answer) {
    if (message.kind == rma::RailMessageKind::kRts) world_.measurement.tried(world_.now());
    if (answer) return send_shipped(process, rail, message);
    world_.give_to_thread(RailEventKind::kShippedSend, world_.node_of(process), rail, message, process);
}

void RailsRun::send_shipped(uint32_t process, uint32_t rail, rma::RailMessage message) {
    const uint32_t to = std::exchange(message.peer, process);
    const uint32_t to_node = world_.node_of(to);
    world_.measurement.control_sent(world_.now());
    const double arrives = world_.control_arrives(world_.node_of(process), to_node);
    world_.events.schedule(arrives, RailEventKind::kShippedControl, world_.nic_of(to_node, rail), message, to);
}

void RailsRun::drive_at(uint32_t process, uint64_t time_ns) {
    const auto time = static_cast<double>(time_ns);
    if (std::exchange(processes_[process].drive_at, time) == time) return;
    world_.events.schedule(time, RailEventKind::kShippedDrive, process);
}

void RailsRun::plan_message(uint32_t process) {
    const double gap = traffic_.gap(process, processes_[process].made);
    world_.events.schedule(world_.now() + gap, RailEventKind::kMake, process);
}

void RailsRun::make(uint32_t process) {
    const uint32_t slot = world_.messages.take();
    Process& maker = processes_[process];
    const RailsTraffic::Planned planned = traffic_.message(process, maker.made++);
    world_.messages[slot] = {.made = world_.now(),
                             .bytes = planned.bytes,
                             .process = process,
                             .to = planned.to,
                             .to_process = planned.to_process};
    world_.measurement.made(world_.now(), planned.bytes);
    plan_message(process);
    if (world_.config.blocking && maker.blocked) {
        maker.queue.push_back(slot);
    } else {
        maker.blocked = true;
        begin(slot);
    }
}

void RailsRun::begin(uint32_t slot) {
    RailsMessage& message = world_.messages[slot];
    RailsNode& node = world_.nodes[world_.node_of(message)];
    Process& process = processes_[message.process];
    switch (world_.config.policy) {
        case RailsPolicy::kBasic: {
            rma::RailPolicy& policy = world_.config.pointer_per_node ? node.policy : process.policy;
            return post_on(slot, policy.choose(node.rails, message.bytes));
        }
        case RailsPolicy::kStatic: {
            const rma::RailMask between = static_->rails_between(world_.node_of(message), message.to);
            const auto rails = live_rails(world_.config.rails, between);
            return post_on(slot, process.policy.choose(rails, message.bytes));
        }
        case RailsPolicy::kLocalDynamic: return allocation_.allocate(slot);
        case RailsPolicy::kHybrid:
            if (message.bytes < world_.config.short_bytes) {
                return post_on(slot, process.policy.choose(node.rails, message.bytes));
            }
            [[fallthrough]];
        case RailsPolicy::kDynamic: message.reserves = true; return allocation_.allocate(slot);
        case RailsPolicy::kShippedDynamic: message.reserves = true; [[fallthrough]];
        case RailsPolicy::kShippedHybrid:
            return shipped_->begin(slot, message.process, message.to_process, message.bytes,
                                   world_.events.now_ns());
    }
}

void RailsRun::post_worm(uint32_t slot, uint32_t rail, uint32_t bytes, bool reserved) {
    const RailsMessage& message = world_.messages[slot];
    const uint32_t node = world_.node_of(message);
    const uint32_t worm = worms_.take();
    worms_[worm] = {.message = slot, .rail = rail, .bytes = bytes, .reserved = reserved};
    world_.nodes[node].rails.begin(rail, rma::RailDirection::kSending, bytes);
    const double flits = std::ceil(static_cast<double>(bytes) / world_.config.links.flit_bytes);
    network_[rail].post(worm, node, message.to, flits, world_.now());
    worms_move(rail);
}

void RailsRun::post_on(uint32_t slot, rma::RailMask rails) {
    const uint32_t bytes = world_.messages[slot].bytes;
    const auto count = static_cast<uint32_t>(std::popcount(rails));
    world_.messages[slot].fragments = count;
    for (uint32_t index = 0; index < count; ++index, rails &= rails - 1) {
        post(slot, static_cast<uint32_t>(std::countr_zero(rails)),
             static_cast<uint32_t>(rma::rail_fragment(bytes, count, index).bytes));
    }
}

void RailsRun::worms_move(uint32_t rail) {
    using Direction = rma::RailDirection;
    for (const uint32_t worm : network_[rail].take_begun()) {
        const RailsMessage& message = world_.messages[worms_[worm].message];
        rma::RailSet& to = world_.nodes[message.to].rails;
        const rma::RailSet& from = world_.nodes[world_.node_of(message)].rails;
        const rma::RailMask against = to.busy(Direction::kSending) | from.busy(Direction::kReceiving);
        world_.measurement.begun((against >> rail & 1) != 0);
        to.begin(rail, Direction::kReceiving, worms_[worm].bytes);
    }
}

void RailsRun::arrive(uint32_t worm) {
    const Worm arrived = worms_[worm];
    RailsMessage& message = world_.messages[arrived.message];
    const uint32_t to = message.to;
    worms_.give_back(worm);
    world_.nodes[to].rails.end(arrived.rail, rma::RailDirection::kReceiving, arrived.bytes);
    world_.measurement.arrived(world_.now(), message.process, arrived.bytes);
    if (message.reserves && !shipped_) world_.give_to_thread(RailEventKind::kGrantDone, to, arrived.rail);
    const bool is_last = --message.fragments == 0 && (!shipped_ || shipped_->all_issued(arrived.message));
    if (is_last) complete(arrived.message);
    allocation_.wake(to);
}

void RailsRun::complete(uint32_t slot) {
    const RailsMessage message = world_.messages[slot];
    world_.messages.give_back(slot);
    world_.measurement.completed(world_.now(), message.made, message.reserves);
    Process& process = processes_[message.process];
    process.blocked = false;
    if (process.queue.empty()) return;
    const uint32_t next = process.queue.front();
    process.queue.pop_front();
    process.blocked = true;
    begin(next);
}

RailsResult run_rails(const RailsConfig& config) {
    return RailsRun(config).run();
}

}  // namespace velo::sim
