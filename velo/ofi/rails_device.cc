#include "velo/ofi/rails_device.h"

#include <algorithm>
#include <utility>

#include "velo/ofi/interfaces.h"

namespace velo::ofi {
namespace {

constexpr uint8_t kNoRail = UINT8_MAX;

std::string ip_of(const Endpoint& endpoint, std::span<const std::byte> name) {
    return ip_text(endpoint.info().addr_format, name);
}

/// The network of the interface that an endpoint is on; empty where it is not known.
std::string network_of(const Endpoint& endpoint) {
    const std::vector<Interface> all = interfaces();
    const auto found = std::ranges::find(all, ip_of(endpoint, endpoint.name()), &Interface::address);
    return found == all.end() ? "" : found->network;
}

}  // namespace

RailsDevice::RailsDevice(const DeviceConfig& config, std::vector<Choice> choices)
    : first_(config, std::move(choices.front())),
      name_(first_.endpoint().provider()),
      operation_timeout_ns_(config.operation_timeout_ns) {
    VELO_CHECK(choices.size() <= kRailsMax, "%zu rails", choices.size());
    for (size_t rail = 1; rail < choices.size(); ++rail) {
        others_.push_back(std::make_unique<RmaRail>(std::move(choices[rail]), config.ports));
    }
    name_ += " (" + first_.endpoint().interface();
    networks_.push_back(network_of(first_.endpoint()));
    for (const auto& rail : others_) {
        name_ += ", " + rail->endpoint().interface();
        networks_.push_back(network_of(rail->endpoint()));
    }
    name_ += ")";
    VELO_CHECK(networks_.size() == rails(), "%zu networks of %u rails", networks_.size(), rails());
}

size_t RailsDevice::address(std::span<std::byte> out) const {
    RailsAddress address = {.first = first_.own_address(), .others = {}};
    for (const auto& rail : others_) {
        address.others.emplace_back(rail->endpoint().name().begin(), rail->endpoint().name().end());
    }
    return write_rails_address(address, out);
}

Status RailsDevice::connect(std::span<const std::byte> bytes, DeviceAddr& peer, base::Failure* failure) {
    const Status status = first_.connect(bytes, peer, failure);
    if (status != Status::kOk) return status;
    RailsAddress address;
    // The first rail has read it already.
    if (read_rails_address(bytes, address) == Status::kOk) choose_routes(peer, address);
    return Status::kOk;
}

void RailsDevice::choose_routes(DeviceAddr peer, const RailsAddress& address) {
    const size_t theirs = address.others.size() + 1;
    std::array<uint8_t, kRailsMax> to;
    to.fill(kNoRail);
    to[0] = 0;
    const auto taken = [&to](size_t rail) { return std::ranges::find(to, rail) != to.end(); };
    // Those of one network first, and of these the ones of the same number.
    for (const bool same_number : {true, false}) {
        for (uint32_t own = 1; own < rails(); ++own) {
            for (size_t rail = 1; rail < theirs && to[own] == kNoRail; ++rail) {
                if (taken(rail) || (rail == own) != same_number) continue;
                const std::string ip = ip_of(first_.endpoint(), address.others[rail - 1]);
                if (address_in(ip, networks_[own])) to[own] = static_cast<uint8_t>(rail);
            }
        }
    }
    std::vector<uint8_t> meeting = {0};
    for (uint32_t own = 1; own < rails(); ++own) {
        if (to[own] == kNoRail && own < theirs && !taken(own)) to[own] = static_cast<uint8_t>(own);
        if (to[own] == kNoRail) continue;
        others_[own - 1]->know(peer, address.others[to[own] - 1]);
        meeting.push_back(static_cast<uint8_t>(own));
    }
    if (peer >= routes_.size()) routes_.resize(size_t{peer} + 1);
    routes_[peer] = spread(meeting);
}

/// A port takes its own rail where that is one of `rails`, and otherwise one of these.
RailsDevice::Routes RailsDevice::spread(const std::vector<uint8_t>& rails) const {
    VELO_CHECK(!rails.empty() && rails.front() == 0, "%zu rails meet, without the first one", rails.size());
    Routes routes = {};
    for (uint8_t port = 0; port < routes.size(); ++port) {
        const auto rail = static_cast<uint8_t>(port % this->rails());
        const bool meets = std::ranges::find(rails, rail) != rails.end();
        routes[port] = meets ? rail : rails[port % rails.size()];
    }
    return routes;
}

Status RailsDevice::register_memory(void* base, size_t bytes, uint32_t access, Registration& out) {
    Registration registration;
    Status status = first_.register_memory(base, bytes, access, registration);
    if (status != Status::kOk) return status;
    size_t done = 0;
    while (done < others_.size() && status == Status::kOk) {
        status = others_[done]->register_as(base, registration);
        if (status == Status::kOk) ++done;
    }
    if (status == Status::kOk) {
        out = registration;
        return Status::kOk;
    }
    for (size_t rail = 0; rail < done; ++rail) (void)others_[rail]->deregister(registration);
    (void)first_.deregister(registration);
    return status;
}

Status RailsDevice::deregister(const Registration& registration) {
    const Status status = first_.deregister(registration);
    if (status != Status::kOk) return status;
    for (const auto& rail : others_) (void)rail->deregister(registration);
    return Status::kOk;
}

Status RailsDevice::post(const RmaOperation& operation) {
    const bool routed = operation.port < OfiDevice::kPortsMax && operation.peer < routes_.size();
    const uint8_t rail = routed ? routes_[operation.peer][operation.port] : 0;
    if (rail == 0) return first_.post(operation);
    return others_[rail - 1]->post(operation, first_.peer(operation.peer), !first_.alive(operation.peer));
}

bool RailsDevice::poll_notification(Notification& notification) {
    for (uint32_t tried = 0; tried < rails(); ++tried) {
        const uint32_t rail = polled_;
        polled_ = (polled_ + 1) % rails();
        if (rail == 0 ? first_.poll_notification(notification) : others_[rail - 1]->poll_notification(notification)) {
            return true;
        }
    }
    return false;
}

uint32_t RailsDevice::progress(uint64_t now_ns) {
    // The first rail comes last: a put that another one has failed, and whose beginning has arrived all the same, is
    // through before anything that followed it by the first rail.
    uint32_t events = 0;
    for (const auto& rail : others_) events += rail->progress(now_ns);
    events += first_.progress(now_ns);
    if (first_.peers_ended() != peers_ended_) [[unlikely]]
        end_with_the_dead();
    if (now_ns >= next_overdue_ns_) [[unlikely]] {
        next_overdue_ns_ = now_ns + PeerWatch::kCheckNs;
        for (const auto& rail : others_)
            rail->end_overdue(operation_timeout_ns_, [this](DeviceAddr peer) { return first_.responsive(peer); });
    }
    return events;
}

void RailsDevice::end_with_the_dead() {
    peers_ended_ = first_.peers_ended();
    for (DeviceAddr peer = 0; peer < routes_.size(); ++peer) {
        if (first_.alive(peer)) continue;
        for (const auto& rail : others_) rail->peer_died(peer);
    }
}

DeviceReport RailsDevice::report(DeviceAddr peer) const {
    DeviceReport report = first_.report(peer);
    if (peer == kNoAddr) return report;
    for (const auto& rail : others_) report.operations += rail->rma().operations(peer);
    return report;
}

DeviceLimits RailsDevice::limits() const {
    DeviceLimits limits = first_.limits();
    limits.rails = std::min(rails(), limits.ports);
    for (const auto& rail : others_) {
        limits.rma_bytes_max = std::min(limits.rma_bytes_max, rail->rma().bytes_max());
        // One of the rails may have all of a process's operations.
        limits.rma_outstanding_max = std::min(limits.rma_outstanding_max, rail->rma().outstanding_max());
    }
    return limits;
}

DeviceCounters RailsDevice::counters() const {
    DeviceCounters counters = first_.counters();
    for (uint32_t rail = 1; rail < rails(); ++rail) {
        const RmaCounters of = rail_counters(rail);
        counters.rma_posted += of.rma_posted;
        counters.rma_completed += of.rma_completed;
        counters.rma_bytes += of.rma_bytes;
        counters.rma_failed += of.rma_failed;
        counters.atu_faults += of.atu_faults;
    }
    return counters;
}

DeviceCounters RailsDevice::rail_counters(uint32_t rail) const {
    VELO_CHECK(rail < rails(), "rail %u of %u", rail, rails());
    DeviceCounters counters;
    if (rail == 0) return first_.counters();
    others_[rail - 1]->rma().add_counters(counters);
    return counters;
}

uint32_t RailsDevice::peer_bytes() const {
    return first_.peer_bytes() + static_cast<uint32_t>(sizeof(Routes) + others_.size() * RmaRail::peer_bytes());
}

}  // namespace velo::ofi
