#include "sim/rail_allocation.h"

#include <bit>
#include <deque>
#include <utility>

#include "sim/draw.h"

namespace velo::sim {

namespace {

template <typename Use>
void for_each_rail(rma::RailMask rails, Use&& use) {
    for (; rails != 0; rails &= rails - 1) use(static_cast<uint32_t>(std::countr_zero(rails)));
}

}  // namespace

RailAllocation::RailAllocation(RailsWorld& world, Host& host) : world_(world), host_(host) {
    for (uint32_t node = 0; node < world.config.nodes; ++node) {
        for (uint32_t rail = 0; rail < world.config.rails; ++rail) {
            nics_.push_back({.half = rma::HalfDuplexRail(node), .duplex = Duplex()});
        }
    }
}

void RailAllocation::allocate(uint32_t slot) {
    local() ? take_local(slot) : reserve(slot);
}

void RailAllocation::handle(const RailEvent& event) {
    const uint32_t node = event.at / world_.config.rails;
    const uint32_t rail = event.at % world_.config.rails;
    const auto by_machine = [&](auto&& use) { perform(node, rail, with_machine(nics_[event.at], use)); };
    switch (event.kind) {
        case RailEventKind::kAsk: {
            Nic& nic = nics_[event.at];
            nic.asked = false;
            const uint32_t to = world_.messages[nic.asker].to;
            by_machine([&](auto& machine) { return machine.request(to); });
            break;
        }
        case RailEventKind::kGiveUp: by_machine([](auto& machine) { return machine.abort(); }); break;
        case RailEventKind::kGrantDone: {
            const auto ack = [&](const rma::RailMessage& message) { send(node, rail, message); };
            by_machine([&](auto& machine) { return machine.grant_done(ack); });
            break;
        }
        case RailEventKind::kControl:
            world_.give_to_thread(RailEventKind::kHandle, node, rail, event.message);
            break;
        case RailEventKind::kHandle:
            by_machine([&](auto& machine) { return machine.received(event.message); });
            break;
        case RailEventKind::kRetry: reserve(event.at); break;
        case RailEventKind::kAskAgain: ask(node, rail); break;
        default: VELO_CHECK(false, "an event of kind %u", static_cast<unsigned>(event.kind));
    }
}

void RailAllocation::take_local(uint32_t slot) {
    const uint32_t node = world_.node_of(world_.messages[slot]);
    const rma::RailMask rails = choose(node, free_rails(node), world_.messages[slot].bytes);
    if (rails == 0) {
        world_.nodes[node].waiting.push_back(slot);
    } else {
        host_.post_on(slot, rails);
    }
}

/// Algorithm 4.
void RailAllocation::reserve(uint32_t slot) {
    const uint32_t node = world_.node_of(world_.messages[slot]);
    const rma::RailMask free = free_rails(node);
    if (free == 0) {
        world_.nodes[node].waiting.push_back(slot);
        return;
    }
    if (world_.config.duplex) return reserve_fragments(slot, free);
    RailsMessage& message = world_.messages[slot];
    const rma::RailMask asked = world_.config.ask_all ? free : choose(node, free, message.bytes);
    world_.measurement.tried(world_.now());
    message.answers = static_cast<uint32_t>(std::popcount(asked));
    message.granted = 0;
    for_each_rail(asked, [&](uint32_t rail) {
        nic_of(node, rail).asker = slot;
        ask(node, rail);
    });
}

/// Each fragment begins with its own grant, since requests queue.
void RailAllocation::reserve_fragments(uint32_t slot, rma::RailMask free) {
    const uint32_t node = world_.node_of(world_.messages[slot]);
    const uint32_t bytes = world_.messages[slot].bytes;
    const rma::RailMask rails = choose(node, free, bytes);
    const auto count = static_cast<uint32_t>(std::popcount(rails));
    world_.messages[slot].fragments = count;
    world_.measurement.tried(world_.now());
    uint32_t index = 0;
    for_each_rail(rails, [&](uint32_t rail) {
        Nic& nic = nic_of(node, rail);
        nic.asker = slot;
        nic.bytes = static_cast<uint32_t>(rma::rail_fragment(bytes, count, index++).bytes);
        ask(node, rail);
    });
}

/// Rails that a message may take, or ask for.
rma::RailMask RailAllocation::free_rails(uint32_t node) {
    const rma::RailSet& rails = world_.nodes[node].rails;
    if (local()) {
        return world_.config.duplex ? rails.live() & ~rails.busy(rma::RailDirection::kSending) : rails.free();
    }
    rma::RailMask free = 0;
    for (uint32_t rail = 0; rail < world_.config.rails; ++rail) {
        Nic& nic = nic_of(node, rail);
        const bool is_free = world_.config.duplex ? nic.duplex.state() == Duplex::State::kFree && nic.asker == kNone
                                            : nic.half.state() == rma::HalfDuplexRail::State::kFree;
        if (is_free && !nic.asked) free |= rma::rail_bit(rail);
    }
    return free;
}

rma::RailMask RailAllocation::choose(uint32_t node, rma::RailMask among, uint32_t bytes) {
    return world_.nodes[node].policy.choose(live_rails(world_.config.rails, among), bytes);
}

void RailAllocation::ask(uint32_t node, uint32_t rail) {
    nic_of(node, rail).asked = true;
    world_.give_to_thread(RailEventKind::kAsk, node, rail);
}

void RailAllocation::perform(uint32_t node, uint32_t rail, const rma::RailActions& actions) {
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

void RailAllocation::send(uint32_t node, uint32_t rail, rma::RailMessage message) {
    const uint32_t to = std::exchange(message.peer, node);
    world_.measurement.control_sent(world_.now());
    world_.events.schedule(world_.control_arrives(node, to), RailEventKind::kControl, world_.nic_of(to, rail), message);
}

void RailAllocation::answered(uint32_t node, uint32_t rail, bool granted) {
    Nic& nic = nic_of(node, rail);
    const uint32_t slot = nic.asker;
    if (world_.config.duplex) {
        if (granted) {
            host_.post(slot, rail, nic.bytes);
        } else {
            world_.measurement.tried(world_.now());
            if (world_.config.wait_percent == 0) return ask(node, rail);
            world_.events.schedule(world_.now() + random_wait(world_.messages[slot]), RailEventKind::kAskAgain,
                                   world_.nic_of(node, rail));
        }
        return;
    }
    if (granted) world_.messages[slot].granted |= rma::rail_bit(rail);
    if (!granted) nic.asker = kNone;
    if (--world_.messages[slot].answers == 0) decide(slot);
}

/// After all answers. Algorithm 4 is a loop: with no wait, a message that was refused asks again before any other
/// one of its node is served (wake() comes after it).
void RailAllocation::decide(uint32_t slot) {
    const RailsMessage& message = world_.messages[slot];
    const uint32_t node = world_.node_of(message);
    if (message.granted == 0) {
        if (world_.config.wait_percent == 0) return reserve(slot);
        return world_.events.schedule(world_.now() + random_wait(message), RailEventKind::kRetry, slot);
    }
    const rma::RailMask granted = message.granted;
    const rma::RailMask used = choose(node, granted, message.bytes);
    for_each_rail(granted & ~used, [&](uint32_t rail) {
        nic_of(node, rail).asker = kNone;
        world_.give_to_thread(RailEventKind::kGiveUp, node, rail);
    });
    host_.post_on(slot, used);
}

double RailAllocation::random_wait(const RailsMessage& message) {
    // retry_wait() is of half the time that it is given.
    const auto time = static_cast<uint64_t>(world_.round_trip(message) * world_.config.wait_percent / 50);
    return static_cast<double>(rma::retry_wait(time, draw(world_.config.seed, UINT32_MAX, waits_++)));
}

void RailAllocation::wake(uint32_t node) {
    std::deque<uint32_t>& waiting = world_.nodes[node].waiting;
    while (!waiting.empty() && free_rails(node) != 0) {
        const uint32_t slot = waiting.front();
        waiting.pop_front();
        allocate(slot);
    }
}

}  // namespace velo::sim
