#include "sim_device/shim/request_server.h"

#include <cstring>

#include "sim_device/shim/abandoned_claims.h"

namespace velo::shim {

static_assert(static_cast<uint8_t>(RmaKind::kPut) == 0 && static_cast<uint8_t>(RmaKind::kGet) == 1);

RequestServer::RequestServer(PeerTable& peers, SegmentView own, uint32_t ports, base::AtuView atu,
                             CopyHelper& helper)
    : peers_(peers), notifications_(own.notifications()), atu_(atu), helper_(helper), ports_(ports) {
    for (uint32_t port = 0; port < ports; ++port) ports_[port].ring = own.requests(port);
}

uint32_t RequestServer::progress() {
    uint32_t served = 0;
    for (Port& port : ports_) {
        if (port.notifying && !finish(port)) continue;
        for (uint32_t i = 0; i < kRequestsPerProgress && port.ring.pop(port.request); ++i) {
            ++served;
            port.from = peers_.find_source(source_id(port.request.node, port.request.vpid));
            if (port.from == kNoAddr) {
                ++unknown_source_;
                continue;
            }
            if (port.request.kind <= static_cast<uint8_t>(RmaKind::kGet)) {
                if (!helper_.take(port.request, port.from)) ++malformed_;
                continue;
            }
            execute(port);
            if (!finish(port)) break;
        }
    }
    return served;
}

void RequestServer::execute(Port& port) {
    const Request& request = port.request;
    const auto kind = static_cast<RmaKind>(request.kind);
    Status status = Status::kOk;
    uint64_t value = 0;
    bool completer = false;
    switch (kind) {
        case RmaKind::kNotification:
            value = request.operand;
            completer = true;
            break;
        case RmaKind::kImmediatePut:
        case RmaKind::kFetchAdd:
        case RmaKind::kCompareSwap:
        case RmaKind::kLock: {
            const bool put = kind == RmaKind::kImmediatePut;
            uint64_t address = 0;
            if (request.bytes == 0 || request.bytes > 8 || (!put && request.bytes != 8)) {
                status = Status::kFailed;
                ++malformed_;
                break;
            }
            status = atu_.translate(request.nla, request.bytes, request.key,
                                    put ? kAccessWrite : kAccessAtomic, address);
            if (status == Status::kOk) status = apply(request, address, value);
            completer = put && status == Status::kOk && (request.notify & kNotifyCompleter) != 0;
            break;
        }
        default:
            status = Status::kFailed;
            ++malformed_;
            break;
    }
    port.notifying = completer;
    const Identity& own = peers_.identity();
    port.answer = {.value = status == Status::kOk ? value : 0,
                   .operation_id = request.operation_id,
                   .node = own.node,
                   .vpid = own.vpid,
                   .status = static_cast<uint8_t>(status)};
}

/// Does the operation at a translated address. `value`: bytes moved, or the old value.
Status RequestServer::apply(const Request& request, uint64_t address, uint64_t& value) const {
    if (static_cast<RmaKind>(request.kind) == RmaKind::kImmediatePut) {
        // One store where the hardware would make one, so that a polling owner sees all or nothing.
        if (request.bytes == 8 && address % 8 == 0) {
            __atomic_store_n(reinterpret_cast<uint64_t*>(address), request.operand, __ATOMIC_RELEASE);
        } else {
            std::memcpy(reinterpret_cast<void*>(address), &request.operand, request.bytes);
        }
        value = request.bytes;
        return Status::kOk;
    }
    // The requester checked alignment; that it comes here misaligned is what a stale or false NLA does.
    if (address % 8 != 0) return Status::kAtuFault;
    auto* target = reinterpret_cast<uint64_t*>(address);
    switch (static_cast<RmaKind>(request.kind)) {
        case RmaKind::kFetchAdd:
            value = __atomic_fetch_add(target, request.operand, __ATOMIC_SEQ_CST);
            return Status::kOk;
        case RmaKind::kCompareSwap:
            value = request.compare;
            __atomic_compare_exchange_n(target, &value, request.operand, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST);
            return Status::kOk;
        case RmaKind::kLock:
            value = __atomic_load_n(target, __ATOMIC_SEQ_CST);
            while (value <= request.compare &&
                   !__atomic_compare_exchange_n(target, &value, value + request.operand, false,
                                                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            }
            return Status::kOk;
        default: return Status::kFailed;
    }
}

/// Places the completer's notification, which is in this process, and then the answer. False: the ring is full.
bool RequestServer::finish(Port& port) {
    const OpenClaim claim(peers_.claims());
    Peer& peer = peers_[port.from];
    if (port.notifying) {
        const bool put = static_cast<RmaKind>(port.request.kind) == RmaKind::kImmediatePut;
        const Notification notification = {.value = port.answer.value,
                                           .cookie = port.request.cookie,
                                           .node = peer.facts.node,
                                           .vpid = peer.facts.vpid,
                                           .kind = kNotifyCompleter,
                                           .operation = put ? RmaKind::kImmediatePut : RmaKind::kNotification,
                                           .status = Status::kOk};
        if (notifications_.push(notification) != Status::kOk) return false;
        port.notifying = false;
    }
    if (!peer.dead && peer.view.answers().push(port.answer) != Status::kOk) ++malformed_;
    return true;
}

}  // namespace velo::shim
