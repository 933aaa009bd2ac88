#include "sim_device/cluster/rma_unit.h"

#include <algorithm>
#include <cstring>

#include "sim_device/cluster/cluster.h"
#include "velo/base/check.h"

namespace velo::cluster {
namespace {

bool moves_block(RmaKind kind) {
    return kind == RmaKind::kPut || kind == RmaKind::kGet;
}

Access right_for(RmaKind kind) {
    if (kind == RmaKind::kGet) return kAccessRead;
    return kind == RmaKind::kPut || kind == RmaKind::kImmediatePut ? kAccessWrite : kAccessAtomic;
}

}  // namespace

RmaUnit::RmaUnit(Cluster& cluster, ClusterDevice& owner, uint32_t ports, base::Faults* faults)
    : cluster_(cluster), owner_(owner), faults_(faults), ports_(ports) {}

bool RmaUnit::acceptable(const RmaOperation& what) const {
    if (what.port >= ports_.size() || what.peer >= owner_.peers()) return false;
    if (what.kind > RmaKind::kNotification) return false;
    if (what.notify > (kNotifyRequester | kNotifyResponder | kNotifyCompleter)) return false;
    if (moves_block(what.kind)) return what.bytes != 0 && what.bytes <= kBytesMax && what.local != nullptr;
    if (what.kind == RmaKind::kNotification) return true;
    if (what.kind == RmaKind::kImmediatePut) return what.bytes >= 1 && what.bytes <= 8;
    if (what.bytes != sizeof(uint64_t)) return false;
    // Alignment is the address's, which only the target's table knows; what the table does not hold faults later.
    const RmaUnit* target = cluster_[owner_.process_of(what.peer)].rma_if_used();
    std::byte* address = nullptr;
    if (target == nullptr || target->registrations_.translate(what.nla, what.bytes, what.key, kAccessAtomic,
                                                              address) != Status::kOk) {
        return true;
    }
    return reinterpret_cast<uint64_t>(address) % alignof(uint64_t) == 0;
}

RmaFault RmaUnit::draw_fault(uint8_t port) {
    RmaFault fault = cluster_.draw_rma_fault(owner_.clock_ns());
    if (fault.status != Status::kOk) ++faults_injected_;
    if (fault.late_there_ns + fault.late_back_ns != 0) ++faults_injected_;
    if (faults_ != nullptr) {
        const base::RmaFault own = faults_->rma(port);
        fault.late_there_ns += own.late_ns;
        if (own.status != Status::kOk) {
            fault.status = own.status;
            fault.done_permille = 0;
        }
    }
    return fault;
}

uint32_t RmaUnit::allocate() {
    if (free_.empty()) {
        operations_.emplace_back();
        return static_cast<uint32_t>(operations_.size() - 1);
    }
    const uint32_t index = free_.back();
    free_.pop_back();
    return index;
}

Status RmaUnit::post(const RmaOperation& what) {
    if (!acceptable(what)) return Status::kBadParam;
    Port& port = ports_[what.port];
    if (port.outstanding == kPortOperationsMax) return Status::kAgain;
    const uint64_t now_ns = owner_.clock_ns();
    if (cluster_.draw_rma_again(now_ns)) {
        ++faults_injected_;
        retry_ns_ = now_ns + kRetryNs;
        return Status::kAgain;
    }
    const uint32_t index = allocate();
    Operation& operation = operations_[index];
    operation = {.what = what, .fault = draw_fault(what.port), .process = owner_.process_of(what.peer)};

    const RmaConfig& config = cluster_.config().rma;
    const uint64_t data_ns = moves_block(what.kind) ? uint64_t{what.bytes} * config.copy_kib_ns / 1024 : 0;
    const uint64_t way_ns = cluster_.latency_ns(owner_.at_node(), cluster_[operation.process].at_node());
    port.free_ns = std::max(now_ns, port.free_ns) + operation.fault.late_there_ns + config.start_ns + data_ns;
    const uint64_t access_ns = port.free_ns + way_ns;
    port.last_end_ns = std::max(access_ns + operation.fault.late_back_ns + way_ns, port.last_end_ns);
    operation.stage = Stage::kLeft;
    ++port.outstanding;
    ++counters_.rma_posted;
    // Both now, so that operations of a port that end at the same time end in the order posted.
    cluster_.schedule_rma(owner_, index, access_ns);
    cluster_.schedule_rma(owner_, index, port.last_end_ns);
    return Status::kOk;
}

void RmaUnit::advance(uint32_t index, uint64_t at_ns) {
    Operation& operation = operations_[index];
    VELO_CHECK(operation.stage == Stage::kLeft || operation.stage == Stage::kAccessed,
               "operation %u of process %u is in stage %u", index, owner_.process(),
               static_cast<unsigned>(operation.stage));
    if (operation.stage == Stage::kAccessed) {
        end(index, at_ns);
        return;
    }
    operation.status = access(operation, at_ns);
    operation.stage = Stage::kAccessed;
    trace(operation, at_ns);
}

/// Nothing of an ended process is touched, neither as the target nor as the requester.
Status RmaUnit::access(Operation& operation, uint64_t at_ns) {
    const ClusterDevice& target = cluster_[operation.process];
    if (target.ended() || owner_.ended()) return Status::kPeerDead;
    const RmaUnit* const unit = target.rma_if_used();
    const RmaFault& fault = operation.fault;
    if (fault.status != Status::kOk && fault.done_permille == 0) return fault.status;
    const Status status = moves_block(operation.what.kind) ? copy(operation, unit) : execute(operation, unit);
    if (status != Status::kOk) return status;
    if (fault.status != Status::kOk) return fault.status;
    if (moves_block(operation.what.kind)) operation.value = operation.what.bytes;
    notify_target(operation, at_ns);
    return Status::kOk;
}

/// Moves a put's or get's bytes, or the part that a fault leaves of them.
Status RmaUnit::copy(const Operation& operation, const RmaUnit* target) const {
    const RmaOperation& what = operation.what;
    std::byte* address = nullptr;
    if (target == nullptr ||
        target->registrations_.translate(what.nla, what.bytes, what.key, right_for(what.kind), address) !=
            Status::kOk) {
        return Status::kAtuFault;
    }
    if (!cluster_.config().whole_payloads) return Status::kOk;
    const RmaFault& fault = operation.fault;
    const size_t bytes = fault.status == Status::kOk ? what.bytes : uint64_t{what.bytes} * fault.done_permille / 1000;
    if (what.kind == RmaKind::kPut) {
        std::memmove(address, what.local, bytes);
    } else {
        std::memmove(what.local, address, bytes);
    }
    return Status::kOk;
}

/// Does what is no put or get. `operation.value`: bytes moved, the old value, or the operand.
Status RmaUnit::execute(Operation& operation, const RmaUnit* target) const {
    const RmaOperation& what = operation.what;
    if (what.kind == RmaKind::kNotification) {
        operation.value = what.operand;
        return Status::kOk;
    }
    std::byte* address = nullptr;
    if (target == nullptr ||
        target->registrations_.translate(what.nla, what.bytes, what.key, right_for(what.kind), address) !=
            Status::kOk) {
        return Status::kAtuFault;
    }
    if (what.kind == RmaKind::kImmediatePut) {
        std::memcpy(address, &what.operand, what.bytes);
        operation.value = what.bytes;
        return Status::kOk;
    }
    if (reinterpret_cast<uint64_t>(address) % alignof(uint64_t) != 0) return Status::kAtuFault;
    uint64_t word = 0;
    std::memcpy(&word, address, sizeof word);
    operation.value = word;
    if (what.kind == RmaKind::kFetchAdd) {
        word += what.operand;
    } else if (what.kind == RmaKind::kCompareSwap) {
        word = word == what.compare ? what.operand : word;
    } else if (word <= what.compare) {
        word += what.operand;
    }
    std::memcpy(address, &word, sizeof word);
    return Status::kOk;
}

void RmaUnit::notify_target(const Operation& operation, uint64_t at_ns) {
    const RmaOperation& what = operation.what;
    const bool put = what.kind == RmaKind::kPut || what.kind == RmaKind::kImmediatePut;
    const Notify side = what.kind == RmaKind::kGet ? kNotifyResponder : kNotifyCompleter;
    const bool wanted = (put || what.kind == RmaKind::kGet) && (what.notify & side) != 0;
    if (!wanted && what.kind != RmaKind::kNotification) return;
    cluster_[operation.process].rma().arrive({.at_ns = at_ns,
                                              .notification = {.value = operation.value,
                                                               .cookie = what.cookie,
                                                               .node = owner_.node(),
                                                               .vpid = owner_.vpid(),
                                                               .kind = side,
                                                               .operation = what.kind,
                                                               .status = Status::kOk},
                                              .operation = kNoOperation});
}

void RmaUnit::end(uint32_t index, uint64_t at_ns) {
    Operation& operation = operations_[index];
    const RmaOperation& what = operation.what;
    const bool ok = operation.status == Status::kOk;
    ++(ok ? counters_.rma_completed : counters_.rma_failed);
    if (operation.status == Status::kAtuFault) ++counters_.atu_faults;
    if (ok && right_for(what.kind) != kAccessAtomic) counters_.rma_bytes += what.bytes;
    operation.stage = Stage::kEnded;
    trace(operation, at_ns);
    if ((what.notify & kNotifyRequester) == 0) {
        release(index);
        owner_.wake(at_ns);
        return;
    }
    const ClusterDevice& target = cluster_[operation.process];
    arrive({.at_ns = at_ns,
            .notification = {.value = ok ? operation.value : 0,
                             .cookie = what.cookie,
                             .node = target.node(),
                             .vpid = target.vpid(),
                             .kind = kNotifyRequester,
                             .operation = what.kind,
                             .status = operation.status},
            .operation = index});
}

void RmaUnit::arrive(const Arrived& arrived) {
    notifications_.push_back(arrived);
    owner_.wake(arrived.at_ns);
}

void RmaUnit::release(uint32_t index) {
    --ports_[operations_[index].what.port].outstanding;
    operations_[index].stage = Stage::kFree;
    free_.push_back(index);
}

bool RmaUnit::poll_notification(uint64_t now_ns, Notification& notification) {
    if (notifications_.empty() || notifications_.front().at_ns > now_ns) return false;
    const Arrived& first = notifications_.front();
    notification = first.notification;
    if (first.operation != kNoOperation) release(first.operation);
    notifications_.pop_front();
    return true;
}

uint64_t RmaUnit::next_ns(uint64_t now_ns) const {
    const uint64_t first_ns = notifications_.empty() ? kNever : notifications_.front().at_ns;
    return retry_ns_ > now_ns ? std::min(first_ns, retry_ns_) : first_ns;
}

uint32_t RmaUnit::operations(DeviceAddr peer) const {
    return static_cast<uint32_t>(std::ranges::count_if(operations_, [peer](const Operation& operation) {
        const bool open = operation.stage == Stage::kLeft || operation.stage == Stage::kAccessed;
        return open && (peer == kNoAddr || operation.what.peer == peer);
    }));
}

void RmaUnit::add_counters(DeviceCounters& out) const {
    static_cast<RmaCounters&>(out) = counters_;
    out.registrations = registrations_.registrations();
    out.faults_injected += faults_injected_;
}

void RmaUnit::trace(const Operation& operation, uint64_t at_ns) {
    const uint64_t what = static_cast<uint64_t>(operation.what.kind) << 48 |
                          static_cast<uint64_t>(operation.stage) << 40 |
                          static_cast<uint64_t>(operation.status) << 32 | operation.what.bytes;
    cluster_.trace().add(TraceEvent::kRma, owner_.process(), at_ns, what);
}

}  // namespace velo::cluster
