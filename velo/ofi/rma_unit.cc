#include "velo/ofi/rma_unit.h"

#include <algorithm>

#include "velo/os/shared_segment.h"

namespace velo::ofi {
namespace {

uint64_t remote_access(uint32_t access) {
    uint64_t bits = 0;
    if ((access & kAccessRead) != 0) bits |= FI_REMOTE_READ;
    if ((access & (kAccessWrite | kAccessAtomic)) != 0) bits |= FI_REMOTE_WRITE;
    // The owner's CPU executes atomics, so a range for atomics alone needs no more than a right that there is.
    return bits;
}

}  // namespace

RmaUnit::RmaUnit(const Endpoint& endpoint, uint32_t ports)
    : endpoint_(endpoint),
      ports_(ports),
      operations_(size_t{ports} * kPortOperationsMax),
      port_operations_(ports, 0),
      key_state_(base::random_token()) {
    VELO_CHECK(ports >= 1, "%u ports", ports);
    for (Operation& operation : operations_) free_.push_back(&operation);
}

uint32_t RmaUnit::bytes_max() const {
    return static_cast<uint32_t>(std::min<uint64_t>(kBytesMax, endpoint_.info().ep_attr->max_msg_size));
}

/// SplitMix64 from a random seed, cut to what the provider's keys hold; never 0.
uint64_t RmaUnit::next_key() {
    const size_t bytes = endpoint_.info().domain_attr->mr_key_size;
    const uint64_t mask = bytes >= 8 || bytes == 0 ? UINT64_MAX >> 1 : (uint64_t{1} << bytes * 8) - 1;
    for (;;) {
        uint64_t mixed = key_state_ += 0x9e3779b97f4a7c15;
        mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
        const uint64_t key = (mixed ^ mixed >> 31) & mask;
        if (key != 0 && key != mask && !registrations_.contains(key)) return key;
    }
}

Status RmaUnit::register_memory(void* base, size_t bytes, uint32_t access, Registration& out) {
    const auto first = reinterpret_cast<uint64_t>(base);
    if (base == nullptr || bytes == 0 || first + bytes < first) return Status::kBadParam;
    if (access == 0 || (access & ~uint32_t{kAccessAny}) != 0) return Status::kBadParam;
    return register_at(base, bytes, access, next_key(), out);
}

Status RmaUnit::register_as(void* base, const Registration& registration) {
    Registration given;
    const Status status = register_at(base, registration.bytes, registration.access, registration.key, given);
    if (status != Status::kOk || given == registration) return status;
    (void)deregister(given);
    return Status::kNoResource;
}

Status RmaUnit::register_at(void* base, size_t bytes, uint32_t access, uint64_t wanted, Registration& out) {
    if (!endpoint_.has_rma() || published_.size() >= kRegistrationsMax) return Status::kNoResource;
    MemoryPtr memory;
    if (endpoint_.register_remote(base, bytes, remote_access(access), wanted, memory) != 0) return Status::kNoResource;
    const uint64_t key = fi_mr_key(memory.get());
    if (key == FI_KEY_NOTAVAIL || registrations_.contains(key)) return Status::kNoResource;
    const auto first = reinterpret_cast<uint64_t>(base);
    out = {.nla = endpoint_.virtual_addresses() ? first : 0, .bytes = bytes, .key = key, .access = access};
    registrations_.emplace(key, std::move(memory));
    published_.emplace(key, out);
    VELO_CHECK(registrations_.size() == published_.size(), "%zu registrations, of which %zu are published",
               registrations_.size(), published_.size());
    return Status::kOk;
}

Status RmaUnit::deregister(const Registration& registration) {
    const auto found = published_.find(registration.key);
    if (found == published_.end() || found->second.nla != registration.nla) return Status::kBadParam;
    registrations_.erase(registration.key);
    published_.erase(found);
    return Status::kOk;
}

Status RmaUnit::check(const RmaOperation& operation) const {
    if (operation.kind > RmaKind::kNotification || operation.port >= ports_) return Status::kBadParam;
    if (operation.kind != RmaKind::kPut && operation.kind != RmaKind::kGet) return Status::kUnsupported;
    if (operation.bytes == 0 || operation.bytes > bytes_max()) return Status::kBadParam;
    if ((operation.notify & ~kNotifyRequester) != 0) return Status::kUnsupported;
    return endpoint_.has_rma() ? Status::kOk : Status::kUnsupported;
}

Status RmaUnit::post(const RmaOperation& what, fi_addr_t to, const DevicePeer& facts, Status reached) {
    const Status status = check(what);
    if (status != Status::kOk) return status;
    if (port_operations_[what.port] == kPortOperationsMax || free_.empty()) return Status::kAgain;
    Operation& operation = *free_.back();
    free_.pop_back();
    operation.what = what;
    operation.to = to;
    operation.node = facts.node;
    operation.vpid = facts.vpid;
    ++port_operations_[what.port];
    ++under_way_;
    ++counters_.rma_posted;
    if (reached != Status::kOk) {
        end(operation, reached);
        return Status::kOk;
    }
    if (const int failed = endpoint_.register_local(what.local, what.bytes, operation.local); failed != 0) {
        end(operation, failed == -FI_EFAULT ? Status::kBadMemory : Status::kFailed);
        return Status::kOk;
    }
    const ssize_t result = waits(what.peer) ? -FI_EAGAIN : start(operation);
    if (result == -FI_EAGAIN) {
        operation.place = Place::kWaiting;
        waiting_.push_back(&operation);
    } else if (result != 0) {
        end(operation, Status::kFailed);
    }
    return Status::kOk;
}

ssize_t RmaUnit::start(Operation& operation) {
    const RmaOperation& what = operation.what;
    VELO_DCHECK(operation.place == Place::kFree || operation.place == Place::kWaiting,
                "an operation begins twice");
    operation.place = Place::kProvider;
    const ssize_t result = begin(operation);
    if (result != 0) return result;
    if (what.peer >= moving_.size()) moving_.resize(size_t{what.peer} + 1);
    if (moving_[what.peer].count++ == 0) moving_[what.peer].still_ns = 0;
    return 0;
}

ssize_t RmaUnit::begin(Operation& operation) {
    const RmaOperation& what = operation.what;
    void* descriptor = Endpoint::descriptor(operation.local);
    if (what.kind == RmaKind::kGet) {
        return fi_read(endpoint_.ep(), what.local, what.bytes, descriptor, operation.to, what.nla, what.key,
                       &operation.context);
    }
    iovec part = {what.local, what.bytes};
    fi_rma_iov target = {what.nla, what.bytes, what.key};
    fi_msg_rma message = {};
    message.msg_iov = &part;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = operation.to;
    message.rma_iov = &target;
    message.rma_iov_count = 1;
    message.context = &operation.context;
    return fi_writemsg(endpoint_.ep(), &message, FI_DELIVERY_COMPLETE | FI_COMPLETION);
}

bool RmaUnit::waits(DeviceAddr peer) const {
    return std::ranges::any_of(waiting_, [peer](const Operation* one) { return one->what.peer == peer; });
}

uint32_t RmaUnit::progress(uint64_t now_ns) {
    // A process that was stopped has not listened.
    if (now_ns > now_ns_ && now_ns - now_ns_ <= kGapNs) polled_ns_ += now_ns - now_ns_;
    now_ns_ = now_ns;
    if (waiting_.empty()) return 0;
    uint32_t taken = 0;
    // An operation that is refused holds back those behind it to the same peer, and no others.
    std::deque<Operation*> left;
    const auto held_back = [&left](DeviceAddr peer) {
        return std::ranges::any_of(left, [peer](const Operation* one) { return one->what.peer == peer; });
    };
    for (Operation* operation : std::exchange(waiting_, {})) {
        const ssize_t result = held_back(operation->what.peer) ? -FI_EAGAIN : start(*operation);
        if (result == -FI_EAGAIN) {
            operation->place = Place::kWaiting;
            left.push_back(operation);
        } else {
            ++taken;
            if (result != 0) end(*operation, Status::kFailed);
        }
    }
    waiting_.swap(left);
    return taken;
}

void RmaUnit::completed(Context& context, int error) {
    Operation& operation = reinterpret_cast<Operation&>(context);
    ++completions_;
    if (operation.place == Place::kAbandoned) return release(operation);
    if (operation.place != Place::kProvider) return;
    left_provider(operation.what.peer);
    end(operation, error == 0 ? Status::kOk : error == FI_EFAULT ? Status::kBadMemory : Status::kFailed);
}

void RmaUnit::fail_waiting(DeviceAddr peer) {
    for (Operation& operation : operations_) {
        if (operation.what.peer != peer || operation.place != Place::kWaiting) continue;
        std::erase(waiting_, &operation);
        end(operation, Status::kFailed);
    }
}

void RmaUnit::peer_died(DeviceAddr peer) {
    give_up(peer, Status::kPeerDead);
}

/// Ends all operations of a peer. Those that the provider has come back to us by their completion only.
void RmaUnit::give_up(DeviceAddr peer, Status status) {
    for (Operation& operation : operations_) {
        if (operation.what.peer != peer) continue;
        if (operation.place == Place::kWaiting) {
            std::erase(waiting_, &operation);
            end(operation, status);
        } else if (operation.place == Place::kProvider) {
            left_provider(peer);
            operation.place = Place::kAbandoned;
            end(operation, status);
        }
    }
}

/// The place of an operation that the provider still has is kAbandoned.
void RmaUnit::end(Operation& operation, Status status) {
    const RmaOperation& what = operation.what;
    VELO_DCHECK(under_way_ != 0 && port_operations_[what.port] != 0, "an operation of port %u ends, of none",
                what.port);
    --under_way_;
    counters_.rma_completed += status == Status::kOk;
    counters_.rma_bytes += status == Status::kOk ? what.bytes : 0;
    counters_.rma_failed += status != Status::kOk;
    if ((what.notify & kNotifyRequester) != 0) {
        const Notification notification = {.value = status == Status::kOk ? what.bytes : 0,
                                           .cookie = what.cookie,
                                           .node = operation.node,
                                           .vpid = operation.vpid,
                                           .operation = what.kind,
                                           .status = status};
        told_.push_back({notification, what.port});
    } else {
        --port_operations_[what.port];
    }
    if (operation.place != Place::kAbandoned) release(operation);
}

void RmaUnit::release(Operation& operation) {
    VELO_DCHECK(free_.size() < operations_.size(), "%zu operations are free", free_.size());
    operation.local.reset();
    operation.place = Place::kFree;
    free_.push_back(&operation);
}

bool RmaUnit::poll_notification(Notification& notification) {
    if (told_.empty()) return false;
    VELO_DCHECK(port_operations_[told_.front().port] != 0, "an operation of port %u is told twice",
                told_.front().port);
    notification = told_.front().notification;
    --port_operations_[told_.front().port];
    told_.pop_front();
    return true;
}

uint32_t RmaUnit::operations(DeviceAddr peer) const {
    return static_cast<uint32_t>(std::ranges::count_if(operations_, [peer](const Operation& operation) {
        const bool open = operation.place == Place::kWaiting || operation.place == Place::kProvider;
        return open && operation.what.peer == peer;
    }));
}

void RmaUnit::add_counters(DeviceCounters& counters) const {
    static_cast<RmaCounters&>(counters) = counters_;
    counters.registrations = static_cast<uint32_t>(published_.size());
}

}  // namespace velo::ofi
