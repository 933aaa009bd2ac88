#include "sim/sim_node.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "sim/draw.h"
#include "velo/shm/on_node_impl.h"

template class velo::shm::BasicOnNode<velo::sim::SimNodeMemory>;

namespace velo::sim {

using cluster::TraceEvent;

uint64_t SimMemory::add(size_t more) {
    const uint64_t offset = bytes;
    ranges.push_back({.offset = offset, .memory = base::Mapping::zeroed(more)});
    bytes += more;
    return offset;
}

std::byte* SimMemory::find(uint64_t offset, size_t length) const {
    for (const Range& range : ranges) {
        if (offset < range.offset || offset - range.offset > range.memory.bytes()) continue;
        const uint64_t at = offset - range.offset;
        if (length <= range.memory.bytes() - at) return range.memory.data() + at;
    }
    return nullptr;
}

Status SimSegment::grow(size_t bytes, uint64_t& offset, int /*numa_node*/, base::Failure* failure) {
    if (fabric_->refuses()) {
        if (failure != nullptr) *failure = {.call = "a fault that is simulated", .error = ENOMEM};
        return Status::kNoResource;
    }
    offset = memory_->add(bytes);
    return Status::kOk;
}

Status SimSegment::map(uint64_t offset, size_t bytes, SimMapping& out, base::Failure* failure) const {
    std::byte* const data = memory_->find(offset, bytes);
    if (data == nullptr) return Status::kBadParam;
    if (fabric_->refuses()) {
        if (failure != nullptr) *failure = {.call = "a fault that is simulated", .error = ENOMEM};
        return Status::kNoResource;
    }
    out = SimMapping(memory_, data);
    return Status::kOk;
}

Status SimNodeMemory::Life::add(int32_t pid, uint32_t id, base::Failure* failure) {
    const SimNode* const node = fabric_->node_of(pid);
    if (node == nullptr || !node->alive()) {
        if (failure != nullptr) *failure = {.call = "no such process", .error = ESRCH};
        return Status::kUnsupported;
    }
    if (watched_.size() <= id) watched_.resize(id + 1);
    watched_[id] = {.pid = pid, .told = false};
    return Status::kOk;
}

void SimNodeMemory::Life::poll(std::vector<uint32_t>& ended) {
    for (uint32_t id = 0; id < watched_.size(); ++id) {
        if (watched_[id].told || !fabric_->cluster[static_cast<uint32_t>(watched_[id].pid) - 1].ended()) continue;
        watched_[id].told = true;
        ended.push_back(id);
    }
}

SimSegment SimNodeMemory::create(const std::string& /*label*/, size_t bytes) const {
    const std::shared_ptr<SimMemory>& memory = fabric->by_rank[device->process()]->memory();
    memory->add(bytes);
    return {*fabric, memory};
}

Status SimNodeMemory::attach(const base::SegmentAddress& address, SimSegment& out, size_t /*bytes*/,
                             base::Failure* failure) const {
    SimNode* const node = fabric->node_of(address.pid);
    if (node == nullptr || node->memory()->token != address.token) {
        if (failure != nullptr) *failure = {.call = "no such process", .error = ESRCH};
        return Status::kUnsupported;
    }
    (void)node->rings();
    out = {*fabric, node->memory()};
    return Status::kOk;
}

bool SimNodeMemory::exists(int32_t pid) const {
    const SimNode* const node = fabric->node_of(pid);
    return node != nullptr && node->alive();
}

bool SimNodeMemory::arrived(uint64_t name) const {
    return fabric->by_rank[device->process()]->arrived(static_cast<uint32_t>(name));
}

SimNode* NodeFabric::node_of(int32_t pid) const {
    const auto rank = static_cast<uint32_t>(pid) - 1;
    return rank < by_rank.size() ? by_rank[rank] : nullptr;
}

shm::RingGeometry NodeFabric::geometry_for(uint32_t message_bytes) {
    return {.lines = 256, .body_bytes = std::bit_ceil(2 * (message_bytes + static_cast<uint32_t>(shm::kLineBytes)))};
}

bool NodeFabric::refuses() {
    if (refuse_permille == 0 || cluster.now_ns() >= refuse_until_ns) return false;
    const bool refuses = draw(cluster.config().seed, UINT32_MAX, draws_++) % 1000 < refuse_permille;
    refused += refuses ? 1 : 0;
    return refuses;
}

const shm::OnNodeCounters SimNode::none_ = {};

SimNode::SimNode(NodeFabric& fabric, cluster::ClusterDevice& device, const shm::OnNodeConfig& config)
    : fabric_(fabric), device_(device), config_(config) {
    config_.name = device.process();
    config_.geometry = fabric.ring;
    config_.registrations_max = kRegistrationsMax;
    if (fabric_.by_rank.size() <= device.process()) fabric_.by_rank.resize(device.process() + 1);
    fabric_.by_rank[device.process()] = this;
}

SimNode::~SimNode() {
    fabric_.by_rank[device_.process()] = nullptr;
}

SimNode::Rings& SimNode::rings() {
    if (!rings_) rings_ = std::make_unique<Rings>(config_, SimNodeMemory{&fabric_, &device_});
    return *rings_;
}

const std::shared_ptr<SimMemory>& SimNode::memory() {
    if (!memory_) {
        memory_ = std::make_shared<SimMemory>();
        memory_->pid = address().segment.pid;
        memory_->token = address().segment.token;
    }
    return memory_;
}

shm::OnNodeAddress SimNode::address() const {
    shm::OnNodeAddress address;
    address.segment.pid = static_cast<int32_t>(device_.process()) + 1;
    address.segment.token = 0x9e3779b97f4a7c15 * (device_.process() + 1);
    address.name = device_.process();
    address.registrations_max = kRegistrationsMax;
    return address;
}

SimNode::Inbox& SimNode::inbox_of(uint32_t process) {
    const auto at =
        std::find_if(inboxes_.begin(), inboxes_.end(), [&](const Inbox& box) { return box.from == process; });
    if (at != inboxes_.end()) return *at;
    inboxes_.push_back({.from = process, .at_ns = {}});
    return inboxes_.back();
}

uint64_t SimNode::next_ns() const {
    uint64_t next_ns = kNever;
    for (const Inbox& box : inboxes_) {
        if (!box.at_ns.empty()) next_ns = std::min(next_ns, box.at_ns.front());
    }
    return next_ns;
}

bool SimNode::arrived(uint32_t process) const {
    for (const Inbox& box : inboxes_) {
        if (box.from == process) return !box.at_ns.empty() && box.at_ns.front() <= device_.clock_ns();
    }
    return false;
}

shm::RingProducer::Room SimNode::reserve(shm::PeerIndex peer, uint32_t bytes, Status& status) {
    const shm::RingProducer::Room room = rings().reserve(peer, bytes, status);
    if (room.first == nullptr && status == Status::kAgain) {
        if (SimNode* const to = fabric_.by_rank[rank_of(peer)]) to->waiting_.push_back(device_.process());
    }
    return room;
}

/// A message has been written to a ring.
bool SimNode::left(shm::PeerIndex peer, uint32_t bytes) {
    const uint32_t to = rank_of(peer);
    device_.work(message_ns(bytes));
    fabric_.cluster.trace().add(TraceEvent::kOnNode, device_.process(), device_.clock_ns(), to);
    fabric_.by_rank[to]->arrive(device_.process(), device_.clock_ns());
    return true;
}

void SimNode::arrive(uint32_t from, uint64_t at_ns) {
    inbox_of(from).at_ns.push_back(at_ns);
    if (device_.asleep()) fabric_.cluster.schedule(device_, std::max(at_ns, device_.clock_ns()));
}

/// The receiver pays for a message when it takes it.
void SimNode::taken(uint32_t from, uint32_t bytes) {
    Inbox& box = inbox_of(from);
    VELO_CHECK(!box.at_ns.empty(), "process %u found a message of process %u that was not sent",
               device_.process(), from);
    box.at_ns.pop_front();
    device_.work(message_ns(bytes));
}

void SimNode::wake_senders() {
    for (const uint32_t sender : std::exchange(waiting_, {}))
        fabric_.by_rank[sender]->device_.wake(device_.clock_ns());
}

void SimNode::poll_liveness(std::vector<shm::PeerIndex>& died) {
    if (rings_) rings_->poll_liveness(died);
}

/// The ring of a process that died before it could be mapped is never read.
std::vector<shm::Loss> SimNode::take_losses() {
    if (!rings_) return {};
    std::vector<shm::Loss> losses = rings_->take_losses();
    losses_ += losses.size();
    for (const shm::Loss& loss : losses) {
        if (loss.cause == shm::Loss::Cause::kSenderGone) inbox_of(static_cast<uint32_t>(loss.name)).at_ns.clear();
    }
    return losses;
}

/// A process that was killed announces nothing.
void SimNode::announce_ending(base::Ending ending) {
    device_.announce_ending(ending);
    if (device_.ending() != base::Ending::kNone) memory()->ending = device_.ending();
}

}  // namespace velo::sim
