#include "sim/rail_worms.h"

#include <algorithm>
#include <utility>

#include "velo/base/check.h"

namespace velo::sim {

WormRail::WormRail(const WormConfig& config) : config_(config), nics_(config.nodes) {}

void WormRail::post(uint32_t worm, uint32_t from, uint32_t to, double flits, double now) {
    VELO_CHECK(from != to && from < config_.nodes && to < config_.nodes, "a worm from %u to %u", from, to);
    nics_[from].queue.push_back({worm, to, flits});
    if (nics_[from].queue.size() == 1) start(from, now);
}

void WormRail::start(uint32_t from, double now) {
    Nic& receiver = nics_[nics_[from].queue.front().to];
    if (receiver.senders.size() == config_.channels) {
        receiver.waiting.push_back(from);
    } else {
        flow(from, now);
    }
}

void WormRail::flow(uint32_t from, double now) {
    Nic& nic = nics_[from];
    const Queued& worm = nic.queue.front();
    nic.flows = true;
    nic.left = worm.flits;
    nic.rate = 0;
    nic.since = now;
    nics_[worm.to].senders.push_back(from);
    begun_.push_back(worm.worm);
    share(from, now);
}

uint32_t WormRail::end_next() {
    const double now = next_end_;
    const uint32_t from = next_sender_;
    Nic& nic = nics_[from];
    const Queued worm = nic.queue.front();
    Nic& receiver = nics_[worm.to];
    nic.queue.pop_front();
    nic.flows = false;
    receiver.senders.erase(std::find(receiver.senders.begin(), receiver.senders.end(), from));
    share(from, now);
    share(worm.to, now);
    if (!receiver.waiting.empty()) {
        const uint32_t next = receiver.waiting.front();
        receiver.waiting.pop_front();
        flow(next, now);
    }
    if (!nic.queue.empty()) start(from, now);
    return worm.worm;
}

std::vector<uint32_t> WormRail::take_begun() {
    return std::exchange(begun_, {});
}

void WormRail::collect(uint32_t node) {
    if (nics_[node].mark == mark_) return;
    nics_[node].mark = mark_;
    part_.push_back(node);
}

void WormRail::share(uint32_t node, double now) {
    ++mark_;
    part_.clear();
    unset_.clear();
    collect(node);
    for (size_t at = 0; at < part_.size(); ++at) {
        Nic& nic = nics_[part_[at]];
        if (nic.flows) {
            collect(nic.queue.front().to);
            unset_.push_back(part_[at]);
        }
        for (const uint32_t sender : nic.senders) collect(sender);
        nic.open = static_cast<uint32_t>(nic.senders.size()) + (nic.flows && !config_.duplex ? 1 : 0);
        nic.capacity = nic.flows && !nic.senders.empty() && !config_.duplex ? config_.both_ways : 1;
    }
    for (const uint32_t sender : unset_) {
        Nic& nic = nics_[sender];
        nic.left = std::max(nic.left - nic.rate * (now - nic.since), 0.0);
        nic.since = now;
        nic.rate = -1;
    }
    for (size_t left = unset_.size(); left != 0;) {
        // The bus whose flows get least is full with them.
        double least = kNever;
        uint32_t full = 0;
        for (const uint32_t each : part_) {
            const Nic& nic = nics_[each];
            if (nic.open != 0 && nic.capacity / nic.open < least) {
                least = nic.capacity / nic.open;
                full = each;
            }
        }
        if (nics_[full].flows && !config_.duplex && nics_[full].rate < 0) {
            set_rate(full, least);
            --left;
        }
        for (const uint32_t sender : nics_[full].senders) {
            if (nics_[sender].rate >= 0) continue;
            set_rate(sender, least);
            --left;
        }
    }
    find_next_end();
}

void WormRail::set_rate(uint32_t from, double rate) {
    Nic& nic = nics_[from];
    nic.rate = rate;
    const auto take = [&](Nic& bus) {
        --bus.open;
        bus.capacity = std::max(bus.capacity - rate, 0.0);
    };
    if (!config_.duplex) take(nic);
    take(nics_[nic.queue.front().to]);
}

void WormRail::find_next_end() {
    next_end_ = kNever;
    for (uint32_t from = 0; from < config_.nodes; ++from) {
        const Nic& nic = nics_[from];
        if (!nic.flows || nic.rate <= 0) continue;
        const double end = nic.since + nic.left / nic.rate;
        if (end >= next_end_) continue;
        next_end_ = end;
        next_sender_ = from;
    }
}

}  // namespace velo::sim
