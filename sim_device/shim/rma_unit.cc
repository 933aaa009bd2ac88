#include "sim_device/shim/rma_unit.h"

#include <algorithm>

#include "sim_device/shim/abandoned_claims.h"
#include "velo/os/clock.h"

namespace velo::shim {
namespace {

bool is_atomic(RmaKind kind) {
    return kind == RmaKind::kFetchAdd || kind == RmaKind::kCompareSwap || kind == RmaKind::kLock;
}

}  // namespace

RmaUnit::RmaUnit(PeerTable& peers, SegmentView own, const DeviceConfig& config, base::Faults* faults)
    : peers_(peers),
      faults_(faults),
      answers_(own.answers()),
      notifications_(own.notifications()),
      own_(own),
      link_(config.link),
      // A target that shares this CPU is no help.
      mover_(peers, own, !config.shares_cpus),
      operations_(size_t{config.ports} * kPortOperationsMax),
      ports_(config.ports) {
    static_assert(kPortsMax * kPortOperationsMax <= UINT16_MAX + 1, "an operation's id holds its index");
    for (Operation& operation : operations_) free_.push_back(&operation);
}

bool RmaUnit::acceptable(const RmaOperation& operation) const {
    if (operation.port >= ports_.size() || operation.peer >= peers_.size()) return false;
    if (operation.kind > RmaKind::kNotification) return false;
    if (operation.notify > (kNotifyRequester | kNotifyResponder | kNotifyCompleter)) return false;
    if (moves_block(operation.kind)) {
        return operation.bytes != 0 && operation.bytes <= kBytesMax && operation.local != nullptr;
    }
    if (operation.kind == RmaKind::kNotification) return true;
    if (operation.kind == RmaKind::kImmediatePut) return operation.bytes >= 1 && operation.bytes <= 8;
    if (operation.bytes != sizeof(uint64_t)) return false;
    // Alignment is the address's, which only the target's table knows; what the table does not hold is an
    // ATU fault, later, and not a bad parameter.
    uint64_t address = 0;
    const Status status = peers_[operation.peer].view.atu().translate(operation.nla, operation.bytes,
                                                                      operation.key, kAccessAtomic, address);
    return status != Status::kOk || address % alignof(uint64_t) == 0;
}

Flow& RmaUnit::flow_of(const RmaOperation& operation) {
    if (operation.peer >= flows_.size()) flows_.resize(peers_.size());
    std::unique_ptr<Flow[]>& flows = flows_[operation.peer];
    if (!flows) {
        flows = std::make_unique<Flow[]>(ports_.size());
        for (size_t port = 0; port < ports_.size(); ++port) flows[port].peer = operation.peer;
    }
    return flows[operation.port];
}

Status RmaUnit::post(const RmaOperation& what, uint64_t now_ns) {
    if (!acceptable(what)) return Status::kBadParam;
    Port& port = ports_[what.port];
    if (port.outstanding == kPortOperationsMax) return Status::kAgain;
    Operation& operation = *free_.pop_front();
    operation.what = what;
    operation.not_before_ns = 0;
    operation.value = 0;
    operation.moved = 0;
    operation.stage = Stage::kQueued;
    operation.status = Status::kOk;
    operation.offer = Operation::kNoOffer;
    operation.copied = Status::kOk;
    operation.astray = false;
    if (faults_ != nullptr) [[unlikely]] {
        const base::RmaFault fault = faults_->rma(what.port, now_ns);
        operation.status = faults_->dead() ? Status::kPeerDead : fault.status;
        if (fault.late_ns != 0) operation.not_before_ns = now_ns + fault.late_ns;
        if (fault.takes_port) fail_port(what.port);
        own_.header().ports_down.store(faults_->ports_down(now_ns), std::memory_order_relaxed);
    }
    if (link_.bytes_per_us != 0 && moves_block(what.kind)) [[unlikely]]
        operation.not_before_ns = std::max(operation.not_before_ns, link_arrival(what));
    ++port.outstanding;
    ++counters_.rma_posted;
    Flow& flow = flow_of(what);
    if (flow.operations.empty()) {
        port.active.push_back(&flow);
        ++port.active_count;
    }
    flow.operations.push_back(&operation);
    return Status::kOk;
}

uint64_t RmaUnit::link_arrival(const RmaOperation& what) const {
    const Peer& peer = peers_[what.peer];
    return link_arrival_ns(link_, link_use(what, own_.header().link, peer.view.header().link, peer.ports),
                           base::monotonic_ns());
}

/// A port of ours has gone down under what it does. Requests that a target executes have left it.
void RmaUnit::fail_port(uint8_t port) {
    for (Operation& operation : operations_) {
        const bool under_way = operation.stage == Stage::kQueued || operation.stage == Stage::kMoved;
        if (!under_way || operation.what.port != port || operation.status != Status::kOk) continue;
        if (operation.offered()) {
            // It ends when the target does nothing more for it.
            mover_.fail(operation, peers_[operation.what.peer]);
        } else if (operation.stage == Stage::kQueued) {
            operation.status = operation.moved == 0 ? Status::kNotBegun : Status::kFailed;
        }
    }
}

/// Whether the port that an operation arrives at is down.
bool RmaUnit::path_down(const RmaOperation& what, const Peer& peer) {
    return (peer.view.header().ports_down.load(std::memory_order_relaxed) >> what.port % peer.ports & 1) != 0;
}

uint32_t RmaUnit::progress(uint64_t now_ns) {
    uint32_t events = take_answers();
    uint32_t bytes_left = kBytesPerProgress;
    uint32_t steps = 0;
    bool moved = true;
    while (moved && bytes_left != 0 && steps < kOperationsPerProgress) {
        moved = false;
        for (size_t i = 0; i < ports_.size() && bytes_left != 0; ++i) {
            Port& port = ports_[next_port_];
            next_port_ = next_port_ + 1 == ports_.size() ? 0 : next_port_ + 1;
            if (port.active_count != 0 && advance_port(port, now_ns, bytes_left)) {
                moved = true;
                ++steps;
            }
        }
    }
    return events + steps;
}

/// Takes one step for the first flow that can take one. False when all are blocked.
bool RmaUnit::advance_port(Port& port, uint64_t now_ns, uint32_t& bytes_left) {
    for (uint32_t tries = port.active_count; tries != 0; --tries) {
        Flow* flow = port.active.pop_front();
        const Step step = advance(*flow, now_ns, bytes_left);
        if (step == Step::kLeft && flow->operations.empty()) {
            --port.active_count;
        } else {
            port.active.push_back(flow);
        }
        if (step != Step::kBlocked) return true;
    }
    return false;
}

/// Takes the head of a flow further, and pops it before it can be released; or, where the head only waits for
/// the target's part of it, the one behind it.
RmaUnit::Step RmaUnit::advance(Flow& flow, uint64_t now_ns, uint32_t& bytes_left) {
    Operation& head = *flow.operations.front();
    Peer& peer = peers_[head.what.peer];
    if (now_ns < head.not_before_ns && !peer.dead) return Step::kBlocked;
    if (peer.dead && head.status == Status::kOk) head.status = Status::kPeerDead;
    if (head.stage == Stage::kQueued && !head.offered() && path_down(head.what, peer)) [[unlikely]] {
        if (head.status == Status::kOk) head.status = head.moved == 0 ? Status::kNotBegun : Status::kFailed;
    }
    if (head.status != Status::kOk) {
        if (head.status == Status::kNotBegun) hold_back_atomics(flow);
        mover_.withdraw(head);
        flow.operations.pop_front();
        end(head, head.status, 0);
        return Step::kLeft;
    }
    if (!moves_block(head.what.kind)) return request(flow, head, peer);
    if (head.stage == Stage::kNotifyingPeer) return notify_peer(flow, head, peer);
    if (head.stage == Stage::kMoved && mover_.settled(head, peer)) return settle(flow, head, peer);
    return mover_.move(flow, peer, bytes_left) ? Step::kMoved : Step::kBlocked;
}

/// Both sides' parts have moved, or failed.
RmaUnit::Step RmaUnit::settle(Flow& flow, Operation& operation, Peer& peer) {
    if (!mover_.finish(flow, operation)) return Step::kMoved;
    if (operation.copied != Status::kOk) {
        flow.operations.pop_front();
        end(operation, operation.copied, 0);
        return Step::kLeft;
    }
    counters_.rma_bytes += operation.what.bytes;
    operation.stage = Stage::kNotifyingPeer;
    const Step step = notify_peer(flow, operation, peer);
    return step == Step::kBlocked ? Step::kMoved : step;
}

/// Atomics of a flow stay in order: those behind an operation that was not begun are not begun either, whatever the
/// port does by then, so that their requester can post all of them again.
void RmaUnit::hold_back_atomics(Flow& flow) {
    for (Operation* operation = flow.operations.front(); operation != nullptr; operation = operation->next) {
        if (operation->status == Status::kOk && !moves_block(operation->what.kind))
            operation->status = Status::kNotBegun;
    }
}

/// All data has moved; the operation ends once the other side's notification is placed.
RmaUnit::Step RmaUnit::notify_peer(Flow& flow, Operation& operation, Peer& peer) {
    const RmaOperation& what = operation.what;
    const Notify side = what.kind == RmaKind::kGet ? kNotifyResponder : kNotifyCompleter;
    if ((what.notify & side) != 0) {
        const Identity& own = peers_.identity();
        const Notification notification = {.value = what.bytes,
                                           .cookie = what.cookie,
                                           .node = own.node,
                                           .vpid = own.vpid,
                                           .kind = side,
                                           .operation = what.kind,
                                           .status = Status::kOk};
        const OpenClaim claim(peers_.claims());
        if (peer.view.notifications().push(notification) != Status::kOk) return Step::kBlocked;
    }
    flow.operations.pop_front();
    end(operation, Status::kOk, what.bytes);
    return Step::kLeft;
}

RmaUnit::Step RmaUnit::request(Flow& flow, Operation& operation, Peer& peer) {
    // The answer's cell is set aside before the target can answer.
    if (awaiting_ == kAnswersMax || peers_.announce(peer) != Status::kOk) return Step::kBlocked;
    const RmaOperation& what = operation.what;
    const Identity& own = peers_.identity();
    const auto index = static_cast<uint32_t>(&operation - operations_.data());
    const Request request = {.nla = what.nla,
                             .operand = what.operand,
                             .compare = what.compare,
                             .key = short_key(what.key),
                             .operation_id = uint32_t{operation.generation} << 16 | index,
                             .node = own.node,
                             .cookie = what.cookie,
                             .vpid = own.vpid,
                             .kind = static_cast<uint8_t>(what.kind),
                             .bytes = static_cast<uint8_t>(what.bytes),
                             .notify = what.notify};
    {
        const OpenClaim claim(peers_.claims());
        // A target with fewer ports serves ours with those it has.
        if (peer.view.requests(what.port % peer.ports).push(request) != Status::kOk) return Step::kBlocked;
    }
    flow.operations.pop_front();
    operation.stage = Stage::kAwaitingAnswer;
    ++awaiting_;
    return Step::kLeft;
}

uint32_t RmaUnit::take_answers() {
    uint32_t taken = 0;
    Answer answer;
    // As many as there are cells, so that a peer that keeps writing cannot hold us.
    while (taken < kAnswerCells && answers_.pop(answer)) {
        ++taken;
        const uint32_t index = answer.operation_id & UINT16_MAX;
        Operation* operation = index < operations_.size() ? &operations_[index] : nullptr;
        if (operation == nullptr || operation->stage != Stage::kAwaitingAnswer ||
            operation->generation != answer.operation_id >> 16 ||
            peers_[operation->what.peer].source != source_id(answer.node, answer.vpid) ||
            answer.status > static_cast<uint8_t>(kLastStatus)) {
            ++malformed_;
            continue;
        }
        if (operation->what.kind == RmaKind::kImmediatePut && answer.status == 0) {
            counters_.rma_bytes += operation->what.bytes;
        }
        end(*operation, static_cast<Status>(answer.status), answer.value);
    }
    return taken;
}

void RmaUnit::peer_died(DeviceAddr peer) {
    for (Operation& operation : operations_) {
        if (operation.stage != Stage::kAwaitingAnswer || operation.what.peer != peer) continue;
        end(operation, Status::kPeerDead, 0);
    }
}

uint32_t RmaUnit::operations(DeviceAddr peer) const {
    return static_cast<uint32_t>(
        std::count_if(operations_.begin(), operations_.end(), [peer](const Operation& operation) {
            return operation.stage != Stage::kFree && operation.stage != Stage::kDone &&
                   operation.what.peer == peer;
        }));
}

void RmaUnit::end(Operation& operation, Status status, uint64_t value) {
    if (operation.stage == Stage::kAwaitingAnswer) --awaiting_;
    ++(status == Status::kOk ? counters_.rma_completed : counters_.rma_failed);
    if (status == Status::kAtuFault) ++counters_.atu_faults;
    operation.stage = Stage::kDone;
    operation.status = status;
    operation.value = value;
    if ((operation.what.notify & kNotifyRequester) != 0) {
        done_.push_back(&operation);
    } else {
        release(operation);
    }
}

void RmaUnit::release(Operation& operation) {
    --ports_[operation.what.port].outstanding;
    operation.stage = Stage::kFree;
    ++operation.generation;
    free_.push_back(&operation);
}

bool RmaUnit::poll_notification(Notification& notification) {
    // Turn about, so that neither a flood from peers nor one of our own starves the other.
    own_notifications_next_ = !own_notifications_next_;
    for (int kinds = 0; kinds < 2; ++kinds, own_notifications_next_ = !own_notifications_next_) {
        if (own_notifications_next_) {
            Operation* operation = done_.pop_front();
            if (operation == nullptr) continue;
            const DevicePeer& peer = peers_[operation->what.peer].facts;
            notification = {.value = operation->value,
                            .cookie = operation->what.cookie,
                            .node = peer.node,
                            .vpid = peer.vpid,
                            .kind = kNotifyRequester,
                            .operation = operation->what.kind,
                            .status = operation->status};
            release(*operation);
            return true;
        }
        for (uint32_t dropped = 0; dropped < kNotificationCells && notifications_.pop(notification);
             ++dropped) {
            const bool known = peers_.find_source(source_id(notification.node, notification.vpid)) != kNoAddr;
            if (known && notification.status == Status::kOk &&
                notification.operation <= RmaKind::kNotification && !is_atomic(notification.operation) &&
                (notification.kind == kNotifyResponder || notification.kind == kNotifyCompleter)) {
                return true;
            }
            ++malformed_;
        }
    }
    return false;
}

void RmaUnit::add_counters(DeviceCounters& out) const {
    static_cast<RmaCounters&>(out) = counters_;
}

}  // namespace velo::shim
