#include "sim/rails_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "sim/draw.h"
#include "velo/os/shared_segment.h"

namespace velo::sim {

namespace {

rma::RailPolicy round_robin() {
    return rma::RailPolicy({.rule = rma::RailRule::kRoundRobin});
}
rma::RailPolicy local_dynamic(uint32_t striping_percent) {
    return rma::RailPolicy({.rule = rma::RailRule::kLocalDynamic, .striping_percent = striping_percent});
}

/// A set whose live rails are these.
rma::RailSet set_of(uint32_t rails, rma::RailMask live) {
    rma::RailSet set(rails);
    for (uint32_t rail = 0; rail < rails; ++rail) {
        if ((live >> rail & 1) == 0) set.failed(rail);
    }
    return set;
}

template <typename Use>
void for_each_rail(rma::RailMask rails, Use&& use) {
    for (; rails != 0; rails &= rails - 1) use(static_cast<uint32_t>(std::countr_zero(rails)));
}

void check(const RailsConfig& config) {
    const auto refuse = [](bool wrong, const char* what) {
        if (wrong) throw base::SetupError(what);
    };
    refuse(config.nodes < 2 || config.nodes > 128, "--nodes: give 2 to 128");
    refuse(config.processes_per_node == 0, "--processes-per-node: give at least 1");
    refuse(config.rails == 0 || config.rails > rma::kRailsMax, "--rails: give 1 to 64");
    refuse(config.bytes == 0, "--bytes: give at least 1");
    refuse(!(config.load > 0), "--load: give more than 0");
    refuse(config.striping_percent > 100, "--striping: give 0 to 100");
    refuse(config.channels == 0, "--channels: give at least 1");
    refuse(config.flit_bytes == 0, "--flit-bytes: give at least 1");
    refuse(config.chunk_bytes == 0, "--chunk: give at least 1");
    refuse(config.measured == 0, "--measured: give at least 1");
    refuse(!(config.both_ways > 0 && config.both_ways <= 1), "--both-ways: give a part of 1, more than 0");
    if (config.policy != RailsPolicy::kStatic) return;
    const auto fewest = rma::fewest_rails(rma::StaticRule::kOptimal, config.nodes);
    if (config.rails < *fewest) {
        throw base::SetupError("--policy static: " + std::to_string(config.nodes) + " nodes need " +
                               std::to_string(*fewest) + " rails, and there are " +
                               std::to_string(config.rails));
    }
}

}  // namespace

RailsRun::RailsRun(const RailsConfig& config) : config_(config) {
    check(config);
    mean_time_ = static_cast<double>(config.bytes) / config.flit_bytes;
    from_ = mean_time_ * config.warm_up;
    until_ = from_ + mean_time_ * config.measured;
    if (config.policy == RailsPolicy::kStatic) {
        allocation_ = rma::StaticAllocation::make(rma::StaticRule::kOptimal, config.rails, config.nodes);
    }
    const WormConfig worms = {.nodes = config.nodes,
                              .duplex = config.duplex,
                              .channels = config.channels,
                              .both_ways = config.both_ways};
    network_.assign(config.rails, WormRail(worms));
    for (uint32_t node = 0; node < config.nodes; ++node) {
        const bool basic = config.policy == RailsPolicy::kBasic;
        nodes_.push_back({.rails = rma::RailSet(config.rails),
                          .policy = basic ? round_robin() : local_dynamic(config.striping_percent),
                          .waiting = {}});
        for (uint32_t rail = 0; rail < config.rails; ++rail) {
            nics_.push_back({.half = rma::HalfDuplexRail(node), .duplex = Duplex()});
        }
    }
    if (is_shipped(config.policy)) shipped_ = std::make_unique<ShippedRails>(config_, *this);
    const uint32_t processes = config.nodes * config.processes_per_node;
    for (uint32_t process = 0; process < processes; ++process) {
        processes_.push_back({.policy = round_robin(), .queue = {}});
        plan_message(process);
    }
}

RailsResult RailsRun::run() {
    while (true) {
        uint32_t rail = 0;
        for (uint32_t other = 1; other < config_.rails; ++other) {
            if (network_[other].next_end() < network_[rail].next_end()) rail = other;
        }
        // Processes never end, so there is always an event.
        const bool worm_first = network_[rail].next_end() <= events_.top().time;
        now_ = worm_first ? network_[rail].next_end() : events_.top().time;
        if (now_ >= until_) break;
        if (worm_first) {
            const uint32_t worm = network_[rail].end_next();
            const Message& message = messages_[worms_[worm].message];
            const uint32_t node = node_of(message);
            nodes_[node].rails.end(rail, rma::RailDirection::kSending, worms_[worm].bytes);
            schedule(now_ + way(node, message.to), Kind::kArrive, worm);
            worms_move(rail);
            if (shipped_) {
                const Worm left = worms_[worm];
                shipped_->chunk_left(left.message, rail, left.bytes, left.reserved, now_ns());
            }
            wake(node);
        } else {
            const Event event = events_.top();
            events_.pop();
            handle(event);
        }
    }
    const double capacity = (until_ - from_) * config_.rails * config_.nodes;
    result_.offered /= capacity;
    result_.accepted /= capacity;
    result_.latency_cycles = result_.messages == 0 ? 0 : latency_sum_ / static_cast<double>(result_.messages);
    result_.both_ways = begun_ == 0 ? 0 : static_cast<double>(begun_against_) / static_cast<double>(begun_);
    if (reserving_ != 0) {
        result_.tries /= static_cast<double>(reserving_);
        result_.controls /= static_cast<double>(reserving_);
    }
    result_.waiting = messages_.size() - spare_messages_.size();
    result_.trace_hash = trace_.value();
    return result_;
}

/// Switches of a quaternary fat tree (QsNet) on the way: up to the least one above both, and down.
uint32_t RailsRun::switches(uint32_t from, uint32_t to) const {
    uint32_t levels = 1;
    for (from /= 4, to /= 4; from != to; from /= 4, to /= 4) ++levels;
    return 2 * levels - 1;
}
double RailsRun::way(uint32_t from, uint32_t to) const {
    return switches(from, to) * (config_.switch_cycles + 1.0) + 1;
}
double RailsRun::round_trip(const Message& message) const {
    return 3.0 * config_.reply_cycles + 2 * (way(node_of(message), message.to) + config_.control_flits);
}

double RailsRun::draw_exponential(uint32_t process, uint32_t number, double mean) const {
    const auto uniform = static_cast<double>(draw(config_.seed, process, number) >> 11) * 0x1p-53;
    return -std::log1p(-uniform) * mean;
}

void RailsRun::schedule(double time, Kind kind, uint32_t at, const rma::RailMessage& message,
                        uint32_t process) {
    events_.push(
        {.time = time, .order = scheduled_++, .kind = kind, .at = at, .message = message, .process = process});
}

void RailsRun::give_to_thread(Kind kind, uint32_t node, uint32_t rail, const rma::RailMessage& message,
                              uint32_t process) {
    Nic& nic = nic_of(node, rail);
    nic.thread_free = std::max(nic.thread_free, now_) + config_.reply_cycles;
    schedule(nic.thread_free, kind, node * config_.rails + rail, message, process);
}

void RailsRun::handle(const Event& event) {
    const uint32_t node = event.at / config_.rails;
    const uint32_t rail = event.at % config_.rails;
    switch (event.kind) {
        case Kind::kMake: make(event.at); break;
        case Kind::kAsk: {
            Nic& nic = nics_[event.at];
            nic.asked = false;
            const uint32_t to = messages_[nic.asker].to;
            perform(node, rail, with_machine(nic, [&](auto& machine) { return machine.request(to); }));
            break;
        }
        case Kind::kGiveUp:
            perform(node, rail, with_machine(nics_[event.at], [](auto& machine) { return machine.abort(); }));
            break;
        case Kind::kGrantDone: {
            const auto ack = [&](const rma::RailMessage& message) { send(node, rail, message); };
            perform(node, rail,
                    with_machine(nics_[event.at], [&](auto& machine) { return machine.grant_done(ack); }));
            break;
        }
        case Kind::kControl: give_to_thread(Kind::kHandle, node, rail, event.message); break;
        case Kind::kHandle:
            perform(node, rail, with_machine(nics_[event.at], [&](auto& machine) {
                        return machine.received(event.message);
                    }));
            break;
        case Kind::kRetry: reserve(event.at); break;
        case Kind::kAskAgain: ask(node, rail); break;
        case Kind::kArrive: arrive(event.at); break;
        default: handle_shipped(event); break;
    }
}

void RailsRun::handle_shipped(const Event& event) {
    const uint32_t rail = event.at % config_.rails;
    switch (event.kind) {
        case Kind::kShippedSend: send_shipped(event.process, rail, event.message); break;
        case Kind::kShippedControl:
            give_to_thread(Kind::kShippedHandle, event.at / config_.rails, rail, event.message, event.process);
            break;
        case Kind::kShippedHandle: shipped_->received(event.process, rail, event.message, now_ns()); break;
        case Kind::kShippedDrive: shipped_->drive(event.at, now_ns()); break;
        default: VELO_CHECK(false, "an event of kind %u", static_cast<unsigned>(event.kind));
    }
}

void RailsRun::post_chunk(uint32_t message, uint32_t rail, uint32_t bytes, bool reserved) {
    ++messages_[message].fragments;
    post(message, rail, bytes, reserved);
}

/// A request takes the NIC's thread, as a local RTS does; an answer was made by it.
void RailsRun::send_control(uint32_t process, uint32_t rail, const rma::RailMessage& message, bool answer) {
    if (now_ >= from_ && message.kind == rma::RailMessageKind::kRts) ++result_.tries;
    if (answer) return send_shipped(process, rail, message);
    give_to_thread(Kind::kShippedSend, process / config_.processes_per_node, rail, message, process);
}

void RailsRun::send_shipped(uint32_t process, uint32_t rail, rma::RailMessage message) {
    const uint32_t to = std::exchange(message.peer, process);
    const uint32_t to_node = to / config_.processes_per_node;
    if (now_ >= from_) ++result_.controls;
    const double arrives = now_ + way(process / config_.processes_per_node, to_node) + config_.control_flits;
    schedule(arrives, Kind::kShippedControl, to_node * config_.rails + rail, message, to);
}

void RailsRun::drive_at(uint32_t process, uint64_t time_ns) {
    const auto time = static_cast<double>(time_ns);
    if (std::exchange(processes_[process].drive_at, time) == time) return;
    schedule(time, Kind::kShippedDrive, process);
}

/// Numbers of a process's message: its gap, size and destination.
void RailsRun::plan_message(uint32_t process) {
    const double a_cycle = config_.load * config_.rails / config_.processes_per_node / mean_time_;
    schedule(now_ + draw_exponential(process, 3 * processes_[process].made, 1 / a_cycle), Kind::kMake,
             process);
}

void RailsRun::make(uint32_t process) {
    const uint32_t slot = take_slot(messages_, spare_messages_);
    Process& maker = processes_[process];
    Message& message = messages_[slot];
    const uint32_t number = 3 * maker.made++;
    message.made = now_;
    message.process = process;
    message.bytes =
        static_cast<uint32_t>(std::max(1.0, std::ceil(draw_exponential(process, number + 1, config_.bytes))));
    const uint64_t others = config_.nodes - 1;
    message.to = static_cast<uint32_t>(
        (node_of(message) + 1 + draw(config_.seed, process, number + 2) % others) % config_.nodes);
    message.to_process = message.to * config_.processes_per_node +
                         static_cast<uint32_t>(draw(config_.seed, process, number + 2) / others %
                                               config_.processes_per_node);
    if (now_ >= from_) {
        ++result_.made;
        result_.offered += static_cast<double>(message.bytes) / config_.flit_bytes;
    }
    plan_message(process);
    if (config_.blocking && maker.blocked) {
        maker.queue.push_back(slot);
    } else {
        maker.blocked = true;
        begin(slot);
    }
}

void RailsRun::begin(uint32_t slot) {
    Message& message = messages_[slot];
    Node& node = nodes_[node_of(message)];
    Process& process = processes_[message.process];
    switch (config_.policy) {
        case RailsPolicy::kBasic: {
            rma::RailPolicy& policy = config_.pointer_per_node ? node.policy : process.policy;
            return post_on(slot, policy.choose(node.rails, message.bytes));
        }
        case RailsPolicy::kStatic: {
            const auto rails =
                set_of(config_.rails, allocation_->rails_between(node_of(message), message.to));
            return post_on(slot, process.policy.choose(rails, message.bytes));
        }
        case RailsPolicy::kLocalDynamic: return take_local(slot);
        case RailsPolicy::kHybrid:
            if (message.bytes < config_.short_bytes) {
                return post_on(slot, process.policy.choose(node.rails, message.bytes));
            }
            [[fallthrough]];
        case RailsPolicy::kDynamic: message.reserves = true; return reserve(slot);
        case RailsPolicy::kShippedDynamic: message.reserves = true; [[fallthrough]];
        case RailsPolicy::kShippedHybrid:
            return shipped_->begin(slot, message.process, message.to_process, message.bytes, now_ns());
    }
}

void RailsRun::post(uint32_t slot, uint32_t rail, uint32_t bytes, bool reserved) {
    const Message& message = messages_[slot];
    const uint32_t node = node_of(message);
    const uint32_t worm = take_slot(worms_, spare_worms_);
    worms_[worm] = {.message = slot, .rail = rail, .bytes = bytes, .reserved = reserved};
    nodes_[node].rails.begin(rail, rma::RailDirection::kSending, bytes);
    const double flits = std::ceil(static_cast<double>(bytes) / config_.flit_bytes);
    network_[rail].post(worm, node, message.to, flits, now_);
    worms_move(rail);
}

/// Posts the message in equal fragments.
void RailsRun::post_on(uint32_t slot, rma::RailMask rails) {
    const uint32_t bytes = messages_[slot].bytes;
    const auto count = static_cast<uint32_t>(std::popcount(rails));
    messages_[slot].fragments = count;
    uint32_t index = 0;
    for_each_rail(rails, [&](uint32_t rail) {
        post(slot, rail, static_cast<uint32_t>(rma::rail_fragment(bytes, count, index++).bytes));
    });
}

void RailsRun::worms_move(uint32_t rail) {
    for (const uint32_t worm : network_[rail].take_begun()) {
        const Message& message = messages_[worms_[worm].message];
        rma::RailSet& rails = nodes_[message.to].rails;
        ++begun_;
        if ((rails.busy(rma::RailDirection::kSending) >> rail & 1) != 0 ||
            (nodes_[node_of(message)].rails.busy(rma::RailDirection::kReceiving) >> rail & 1) != 0) {
            ++begun_against_;
        }
        rails.begin(rail, rma::RailDirection::kReceiving, worms_[worm].bytes);
    }
}

void RailsRun::arrive(uint32_t worm) {
    const Worm arrived = worms_[worm];
    Message& message = messages_[arrived.message];
    const uint32_t to = message.to;
    spare_worms_.push_back(worm);
    nodes_[to].rails.end(arrived.rail, rma::RailDirection::kReceiving, arrived.bytes);
    trace_.add(cluster::TraceEvent::kDeliver, message.process, static_cast<uint64_t>(now_), arrived.bytes);
    if (now_ >= from_) {
        result_.accepted += static_cast<double>(arrived.bytes) / config_.flit_bytes;
        ++result_.fragments;
    }
    if (message.reserves && !shipped_) give_to_thread(Kind::kGrantDone, to, arrived.rail);
    const bool is_last = --message.fragments == 0 && (!shipped_ || shipped_->all_issued(arrived.message));
    if (is_last) complete(arrived.message);
    wake(to);
}

void RailsRun::complete(uint32_t slot) {
    const Message message = messages_[slot];
    spare_messages_.push_back(slot);
    if (now_ >= from_) {
        ++result_.messages;
        latency_sum_ += now_ - message.made;
        if (message.reserves) ++reserving_;
    }
    Process& process = processes_[message.process];
    process.blocked = false;
    if (process.queue.empty()) return;
    const uint32_t next = process.queue.front();
    process.queue.pop_front();
    process.blocked = true;
    begin(next);
}

void RailsRun::take_local(uint32_t slot) {
    Node& node = nodes_[node_of(messages_[slot])];
    const rma::RailMask rails =
        choose(node_of(messages_[slot]), free_rails(node_of(messages_[slot])), messages_[slot].bytes);
    if (rails == 0) {
        node.waiting.push_back(slot);
    } else {
        post_on(slot, rails);
    }
}

/// Algorithm 4.
void RailsRun::reserve(uint32_t slot) {
    const uint32_t node = node_of(messages_[slot]);
    const rma::RailMask free = free_rails(node);
    if (free == 0) {
        nodes_[node].waiting.push_back(slot);
        return;
    }
    if (config_.duplex) return reserve_fragments(slot, free);
    Message& message = messages_[slot];
    const rma::RailMask asked = config_.ask_all ? free : choose(node, free, message.bytes);
    if (now_ >= from_) ++result_.tries;
    message.answers = static_cast<uint32_t>(std::popcount(asked));
    message.granted = 0;
    for_each_rail(asked, [&](uint32_t rail) {
        nic_of(node, rail).asker = slot;
        ask(node, rail);
    });
}

/// Each fragment begins with its own grant, since requests queue.
void RailsRun::reserve_fragments(uint32_t slot, rma::RailMask free) {
    const uint32_t node = node_of(messages_[slot]);
    const uint32_t bytes = messages_[slot].bytes;
    const rma::RailMask rails = choose(node, free, bytes);
    const auto count = static_cast<uint32_t>(std::popcount(rails));
    messages_[slot].fragments = count;
    if (now_ >= from_) ++result_.tries;
    uint32_t index = 0;
    for_each_rail(rails, [&](uint32_t rail) {
        Nic& nic = nic_of(node, rail);
        nic.asker = slot;
        nic.bytes = static_cast<uint32_t>(rma::rail_fragment(bytes, count, index++).bytes);
        ask(node, rail);
    });
}

/// Rails that a message may take, or ask for.
rma::RailMask RailsRun::free_rails(uint32_t node) {
    const rma::RailSet& rails = nodes_[node].rails;
    if (config_.policy == RailsPolicy::kLocalDynamic) {
        return config_.duplex ? rails.live() & ~rails.busy(rma::RailDirection::kSending) : rails.free();
    }
    rma::RailMask free = 0;
    for (uint32_t rail = 0; rail < config_.rails; ++rail) {
        Nic& nic = nic_of(node, rail);
        const bool is_free = config_.duplex ? nic.duplex.state() == Duplex::State::kFree && nic.asker == kNone
                                            : nic.half.state() == rma::HalfDuplexRail::State::kFree;
        if (is_free && !nic.asked) free |= rma::rail_bit(rail);
    }
    return free;
}

rma::RailMask RailsRun::choose(uint32_t node, rma::RailMask among, uint32_t bytes) {
    return nodes_[node].policy.choose(set_of(config_.rails, among), bytes);
}

void RailsRun::ask(uint32_t node, uint32_t rail) {
    nic_of(node, rail).asked = true;
    give_to_thread(Kind::kAsk, node, rail);
}

void RailsRun::perform(uint32_t node, uint32_t rail, const rma::RailActions& actions) {
    if (actions.message) send(node, rail, *actions.message);
    switch (actions.answer) {
        case rma::RailAnswer::kGranted: answered(node, rail, true); break;
        case rma::RailAnswer::kRefused: answered(node, rail, false); break;
        case rma::RailAnswer::kDone:
        case rma::RailAnswer::kLost: nic_of(node, rail).asker = kNone; break;
        case rma::RailAnswer::kNone: break;
    }
    wake(node);
}

void RailsRun::send(uint32_t node, uint32_t rail, rma::RailMessage message) {
    const uint32_t to = std::exchange(message.peer, node);
    if (now_ >= from_) ++result_.controls;
    schedule(now_ + way(node, to) + config_.control_flits, Kind::kControl, to * config_.rails + rail,
             message);
}

void RailsRun::answered(uint32_t node, uint32_t rail, bool granted) {
    Nic& nic = nic_of(node, rail);
    const uint32_t slot = nic.asker;
    if (config_.duplex) {
        if (granted) {
            post(slot, rail, nic.bytes);
        } else {
            if (now_ >= from_) ++result_.tries;
            if (config_.wait_percent == 0) return ask(node, rail);
            schedule(now_ + random_wait(messages_[slot]), Kind::kAskAgain, node * config_.rails + rail);
        }
        return;
    }
    if (granted) messages_[slot].granted |= rma::rail_bit(rail);
    if (!granted) nic.asker = kNone;
    if (--messages_[slot].answers == 0) decide(slot);
}

/// After all answers. Algorithm 4 is a loop: with no wait, a message that was refused asks again before any other
/// one of its node is served (wake() comes after it).
void RailsRun::decide(uint32_t slot) {
    const Message& message = messages_[slot];
    const uint32_t node = node_of(message);
    if (message.granted == 0) {
        if (config_.wait_percent == 0) return reserve(slot);
        return schedule(now_ + random_wait(message), Kind::kRetry, slot);
    }
    const rma::RailMask granted = message.granted;
    const rma::RailMask used = choose(node, granted, message.bytes);
    for_each_rail(granted & ~used, [&](uint32_t rail) {
        nic_of(node, rail).asker = kNone;
        give_to_thread(Kind::kGiveUp, node, rail);
    });
    post_on(slot, used);
}

double RailsRun::random_wait(const Message& message) {
    // retry_wait() is of half the time that it is given.
    const auto time = static_cast<uint64_t>(round_trip(message) * config_.wait_percent / 50);
    return static_cast<double>(rma::retry_wait(time, draw(config_.seed, UINT32_MAX, waits_++)));
}

/// Messages that wait are served in order, while rails are free.
void RailsRun::wake(uint32_t node) {
    std::deque<uint32_t>& waiting = nodes_[node].waiting;
    while (!waiting.empty() && free_rails(node) != 0) {
        const uint32_t slot = waiting.front();
        waiting.pop_front();
        config_.policy == RailsPolicy::kLocalDynamic ? take_local(slot) : reserve(slot);
    }
}

RailsResult run_rails(const RailsConfig& config) {
    return RailsRun(config).run();
}

}  // namespace velo::sim
