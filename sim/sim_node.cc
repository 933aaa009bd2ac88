#include "sim/sim_node.h"

#include <algorithm>

namespace velo::sim {

using cluster::TraceEvent;

SimNode::SimNode(NodeFabric& fabric, cluster::ClusterDevice& device) : fabric_(fabric), device_(device) {
    if (fabric_.by_rank.size() <= device.process()) fabric_.by_rank.resize(device.process() + 1);
    fabric_.by_rank[device.process()] = this;
}

SimNode::~SimNode() {
    fabric_.by_rank[device_.process()] = nullptr;
}

shm::OnNodeAddress SimNode::address() const {
    shm::OnNodeAddress address;
    address.segment.pid = static_cast<int32_t>(device_.process()) + 1;
    address.name = device_.process();
    return address;
}

shm::PeerIndex SimNode::meet(SimNode& other) {
    const auto at = std::find_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.node == &other; });
    if (at != peers_.end()) return static_cast<shm::PeerIndex>(at - peers_.begin());
    peers_.push_back({.node = &other});
    return static_cast<shm::PeerIndex>(peers_.size() - 1);
}

Status SimNode::connect(const shm::OnNodeAddress& address, shm::PeerIndex& peer, base::Failure* failure) {
    if (address.name >= fabric_.by_rank.size() || fabric_.by_rank[address.name] == nullptr) {
        if (failure != nullptr) *failure = {.call = "no such process", .error = 0};
        return Status::kUnsupported;
    }
    peer = meet(*fabric_.by_rank[address.name]);
    return Status::kOk;
}

shm::RingProducer::Room SimNode::reserve(shm::PeerIndex peer, uint32_t bytes, Status& status) {
    const Peer& to = peers_[peer];
    if (!to.node->alive()) {
        status = Status::kPeerDead;
        return {};
    }
    if (fabric_.ring_bytes != 0 && to.unread_bytes != 0 && to.unread_bytes + bytes > fabric_.ring_bytes) {
        ++counters_.ring_full;
        status = Status::kAgain;
        return {};
    }
    staged_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::byte* const first = staged_.get();
    return {.first = first, .rest = bytes > shm::kInlineBytesMax ? first + shm::kInlineBytesMax : nullptr};
}

void SimNode::commit(shm::PeerIndex peer, MessageClass message_class, uint8_t tag, uint32_t bytes, bool /*whole*/) {
    SimNode& to = *peers_[peer].node;
    peers_[peer].unread_bytes += bytes;
    device_.work(message_ns(bytes));
    ++counters_.messages_sent;
    fabric_.cluster.trace().add(TraceEvent::kOnNode, device_.process(), device_.clock_ns(), to.device_.process());
    to.arrive({.at_ns = device_.clock_ns(),
               .from = to.meet(*this),
               .message_class = message_class,
               .tag = tag,
               .bytes = bytes,
               .data = std::move(staged_)});
}

void SimNode::arrive(Arrival arrival) {
    const uint64_t at_ns = arrival.at_ns;
    const auto later = [](uint64_t ns, const Arrival& other) { return ns < other.at_ns; };
    arrivals_.insert(std::upper_bound(arrivals_.begin(), arrivals_.end(), at_ns, later), std::move(arrival));
    if (device_.asleep()) fabric_.cluster.schedule(device_, std::max(at_ns, device_.clock_ns()));
}

/// Our message has been read there.
void SimNode::taken(SimNode& by, uint32_t bytes) {
    peers_[meet(by)].unread_bytes -= bytes;
    if (fabric_.ring_bytes != 0) device_.wake(by.device_.clock_ns());
}

SimNode::Registrations& SimNode::registrations() {
    if (!registrations_) {
        registrations_ = std::make_unique<Registrations>();
        const size_t bytes = base::AtuTable::bytes_for(kRegistrationsMax);
        registrations_->shared = std::make_unique<std::byte[]>(bytes);
        registrations_->table = base::AtuTable(registrations_->shared.get(), kRegistrationsMax);
        registrations_->view = base::AtuView(registrations_->shared.get(), kRegistrationsMax);
    }
    return *registrations_;
}

SimNode::Claims& SimNode::claims() {
    if (!claims_) claims_ = std::make_unique<Claims>();
    return *claims_;
}

void SimNode::poll_liveness(std::vector<shm::PeerIndex>& died) {
    for (shm::PeerIndex peer = 0; peer < peers_.size(); ++peer) {
        if (peers_[peer].died || peers_[peer].node->alive()) continue;
        peers_[peer].died = true;
        died.push_back(peer);
    }
}

}  // namespace velo::sim
