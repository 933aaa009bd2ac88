#include "sim_device/cluster/cluster_device.h"

#include <algorithm>

#include "sim_device/cluster/cluster.h"

namespace velo::cluster {
namespace {

/// An address: which process of the cluster.
struct Address {
    uint64_t magic = 0x3172657473756c63;  // "cluster1"
    uint32_t process = 0;
    uint32_t reserved = 0;
};

bool of_flow_control(uint64_t status) {
    return PacketStatus::unpack(status).message_class == MessageClass::kCredit;
}

}  // namespace

ClusterDevice::ClusterDevice(Cluster& cluster, uint32_t process, uint32_t at_node, const DeviceConfig& config)
    : cluster_(cluster),
      host_name_(config.host_name),
      job_token_(config.job_token),
      process_(process),
      at_node_(at_node),
      slots_(config.mailbox_slots),
      contact_slots_(config.contact_slots),
      node_(config.node),
      vpid_(config.vpid),
      ports_(static_cast<uint8_t>(config.ports)) {
    if (config.ports == 0 || config.ports > RmaUnit::kPortsMax) {
        throw base::SetupError("process " + std::to_string(process) + " with " + std::to_string(config.ports) +
                               " ports; give 1 to " + std::to_string(RmaUnit::kPortsMax));
    }
    if (!config.faults.empty()) used().faults = base::Faults::parse(config.faults, config.node, config.vpid);
}

ClusterDevice::Used& ClusterDevice::used() {
    if (!used_) used_ = std::make_unique<Used>();
    return *used_;
}

RmaUnit& ClusterDevice::rma() {
    Used& u = used();
    if (!u.rma) u.rma = std::make_unique<RmaUnit>(cluster_, *this, ports_, u.faults.get());
    return *u.rma;
}

ClusterDevice& ClusterDevice::target(DeviceAddr peer) const {
    VELO_CHECK(peer < peers(), "process %u has met %u peers and names number %u", process_, peers(), uint32_t{peer});
    return cluster_[used_->peers[peer].process];
}

DeviceAddr ClusterDevice::meet(uint32_t process) {
    PeerTable& peers = used().peers;
    DeviceAddr address = peers.find(process);
    if (address != kNoAddr) return address;
    address = peers.add(process);
    PeerTable& theirs = cluster_[process].used().peers;
    const DeviceAddr reverse = theirs.add(process_);
    peers[address].reverse = reverse;
    theirs[reverse].reverse = address;
    return address;
}

void ClusterDevice::work(uint64_t ns) {
    spend(cluster_.jittered(ns));
}

void ClusterDevice::sleep() {
    asleep_ = true;
    if (!used_) return;
    uint64_t next_ns = std::max(used_->mailbox.next_ns(), used_->stalled_until_ns);
    if (used_->rma) next_ns = std::min(next_ns, used_->rma->next_ns(clock_ns_));
    if (next_ns != Cluster::kNever) wake(next_ns);
}

void ClusterDevice::wake(uint64_t at_ns) {
    if (asleep_) cluster_.schedule(*this, std::max(at_ns, clock_ns_));
}

/// Peers that wait for it look again, and find it dead.
void ClusterDevice::die(uint64_t at_ns) {
    dead_ = true;
    due_ns_ = Cluster::kNever;
    advance_clock(at_ns);
    if (!used_) return;
    wake_contact_waiters();
    for (DeviceAddr peer = 0; peer < peers(); ++peer) target(peer).wake(clock_ns_);
}

size_t ClusterDevice::address(std::span<std::byte> out) const {
    const Address address = {.process = process_};
    VELO_CHECK(out.size() >= sizeof address, "room for %zu bytes of address", out.size());
    std::memcpy(out.data(), &address, sizeof address);
    return sizeof address;
}

Status ClusterDevice::connect(std::span<const std::byte> bytes, DeviceAddr& peer,
                              base::Failure* /*failure*/) {
    Address address;
    if (bytes.size() != sizeof address) return Status::kBadParam;
    std::memcpy(&address, bytes.data(), sizeof address);
    if (address.magic != Address{}.magic || address.reserved != 0 || address.process >= cluster_.processes() ||
        address.process == process_) {
        return Status::kBadParam;
    }
    if (used().peers.find(address.process) == kNoAddr) {
        const ClusterDevice& other = cluster_[address.process];
        if (other.job_token_ != job_token_ || other.ended()) return Status::kUnsupported;
    }
    peer = meet(address.process);
    return Status::kOk;
}

DevicePeer ClusterDevice::peer(DeviceAddr peer) const {
    const ClusterDevice& other = target(peer);
    return {.node = other.node_,
            .vpid = other.vpid_,
            .host_name = other.host_name_,
            .mailbox_slots = other.slots_};
}

bool ClusterDevice::alive(DeviceAddr peer) const {
    return !dead_ && !target(peer).ended();
}

base::Ending ClusterDevice::announced_ending(DeviceAddr peer) const {
    return target(peer).ending();
}

bool ClusterDevice::claim_report(DeviceAddr peer) {
    std::vector<bool>& told = target(peer).used().told;
    const bool first = told.empty();
    told.resize(1, true);
    return first;
}

Status ClusterDevice::refuse_full(ClusterDevice& target, uint32_t packets, Admission admission) {
    if (!cluster_.held(at_node_)) {
        if (admission == Admission::kCredited) {
            ++target.used().counters.mailbox_overflows;
            throw SimulationError("process " + std::to_string(process_) + " had credits for " +
                                  std::to_string(packets) + " packets at " + std::to_string(clock_ns_) +
                                  " ns, but process " + std::to_string(target.process_) +
                                  " has a mailbox of " + std::to_string(target.slots_) + " slots, of which " +
                                  std::to_string(target.used().mailbox.fill()) +
                                  " are filled or claimed: flow control is wrong");
        }
        cluster_.trace().add(TraceEvent::kHold, process_, clock_ns_, target.process_);
        cluster_.hold(at_node_, target, packets);
    }
    ++used().counters.backpressure;
    return Status::kAgain;
}

Status ClusterDevice::launch(Used& sender, DeviceAddr to, uint32_t packets, std::vector<Entry>& entries) {
    ClusterPeer& peer = sender.peers[to];
    ClusterDevice& receiver = cluster_[peer.process];
    const bool control = of_flow_control(entries.front().status);
    const CpuConfig& cpu = cluster_.config().cpu;
    const uint64_t packet_ns =
        control && cpu.control_free ? 0 : cluster_.jittered(cpu.send_ns + (control ? cpu.credit_ns : 0));
    static thread_local std::vector<uint64_t> times_ns;  // one sender is at work at a time
    times_ns.resize(packets);
    const uint64_t late_ns = sender.faults ? sender.faults->packet_delay_ns() : 0;
    clock_ns_ =
        cluster_.carry(at_node_, receiver.at_node_, {.start_ns = clock_ns_, .packet_ns = packet_ns}, times_ns,
                       peer.last_arrival_ns, late_ns, control && cluster_.config().network.control_free);
    const uint64_t first_ns = times_ns.front();
    const uint64_t last_ns = times_ns.back();
    VELO_CHECK(first_ns >= peer.last_arrival_ns && first_ns <= last_ns,
               "packets from %u overtook others to %u", process_, peer.process);
    peer.last_arrival_ns = last_ns;

    sender.counters.packets_sent += packets;
    if (PacketStatus::unpack(entries.front().status).message_class != MessageClass::kHost) {
        sender.other_packets_sent += packets;
    }
    cluster_.trace().add(TraceEvent::kSend, process_, clock_ns_, uint64_t{peer.process} << 32 | packets);
    cluster_.trace().add(TraceEvent::kDeliver, peer.process, first_ns, last_ns);

    const auto gap_ns = static_cast<uint32_t>(packets == 1 ? 0 : (last_ns - first_ns) / (packets - 1));
    Mailbox& mailbox = receiver.used().mailbox;
    mailbox.claim(packets);
    uint32_t index = 0;
    for (Entry& entry : entries) {
        entry.next_ns = index + 1 == packets ? last_ns : first_ns + uint64_t{index} * gap_ns;
        entry.gap_ns = gap_ns;
        entry.source = peer.reverse;
        index += entry.packets;
        mailbox.push(std::move(entry));
    }
    receiver.wake(first_ns);
    return Status::kOk;
}

/// Whether an injected fault kills this process rather than let it send these packets.
bool ClusterDevice::dies_by_fault(uint32_t packets) {
    if (!used_->faults->dies(used_->counters.packets_sent + packets)) return false;
    cluster_.kill(process_, 0);
    return true;
}

/// Whether an injected fault hides the next packet. It is drawn once for each packet that is about to be shown.
bool ClusterDevice::stalled(Used& receiver) const {
    if (receiver.stall_drawn_at != receiver.mailbox.taken()) {
        receiver.stall_drawn_at = receiver.mailbox.taken();
        if (const uint64_t stall_ns = receiver.faults->mailbox_stall_ns(); stall_ns != 0) {
            receiver.stalled_until_ns = clock_ns_ + stall_ns;
        }
    }
    return clock_ns_ < receiver.stalled_until_ns;
}

const Packet* ClusterDevice::peek(DeviceAddr& from) {
    if (!used_) return nullptr;
    Mailbox& mailbox = used_->mailbox;
    const bool fresh = !mailbox.shown();
    if (fresh) {
        const uint64_t next_ns = mailbox.next_ns();
        if (next_ns == Mailbox::kNever || next_ns > clock_ns_ + cluster_.config().cpu.poll_ns) return nullptr;
        advance_clock(next_ns);
        if (used_->faults && stalled(*used_)) return nullptr;
    }
    const Entry& entry = mailbox.show();
    from = DeviceAddr(entry.source);
    Packet& packet = used_->packet;
    if (fresh) {
        if (entry.whole) {
            packet = *entry.whole;
        } else {
            if (!entry.begun) std::memcpy(packet.payload, entry.head.data(), kHeadBytes);
            std::memcpy(packet.payload + kPiggybackOffset, entry.tail.data(), kPiggybackBytes);
        }
        packet.status = entry.status;
    }
    return &packet;
}

void ClusterDevice::pay_for_taking(uint64_t status) {
    const CpuConfig& cpu = cluster_.config().cpu;
    const bool control = of_flow_control(status);
    if (control && cpu.control_free) return;
    clock_ns_ += cluster_.jittered(cpu.receive_ns + (control ? cpu.credit_ns : 0));
}

bool ClusterDevice::take_contact_slot(ClusterDevice& target) {
    Used& there = target.used();
    if (there.contacts < target.contact_slots_) {
        ++there.contacts;
        return true;
    }
    if (std::find(there.contact_waiters.begin(), there.contact_waiters.end(), process_) ==
        there.contact_waiters.end()) {
        there.contact_waiters.push_back(process_);
    }
    return false;
}

void ClusterDevice::free_contacts(uint32_t count) {
    VELO_CHECK(count <= used_->contacts, "%u contact slots of %u", count, used_->contacts);
    used_->contacts -= count;
    wake_contact_waiters();
}

/// A sender that found all of them taken looks again.
void ClusterDevice::wake_contact_waiters() {
    for (const uint32_t process : used_->contact_waiters) {
        ClusterDevice& waiter = cluster_[process];
        ++waiter.used().contact_wakes;
        waiter.wake(clock_ns_);
    }
    used_->contact_waiters.clear();
}

void ClusterDevice::advance() {
    Mailbox& mailbox = used_->mailbox;
    const uint64_t status = mailbox.show().status;
    pay_for_taking(status);
    mailbox.take(1);
    if (PacketStatus::fills_contact_slot(status)) free_contacts(1);
    ++used_->counters.packets_received;
    if (cluster_.holds()) cluster_.freed(*this);
}

uint32_t ClusterDevice::take_run(std::byte* out, uint32_t packets) {
    if (cluster_.config().whole_payloads) return 0;
    const Entry& entry = used_->mailbox.show();
    const uint64_t status = entry.status;
    const uint32_t most = std::min({packets, entry.packets, cluster_.config().cpu.take_packets});
    uint64_t arrival_ns = entry.next_ns;
    uint32_t taken = 0;
    while (taken < most && arrival_ns <= clock_ns_) {
        pay_for_taking(entry.status);
        ++taken;
        arrival_ns += entry.gap_ns;
    }
    if (!entry.begun) std::memcpy(out, entry.head.data(), kHeadBytes);
    used_->mailbox.take(taken);
    if (PacketStatus::fills_contact_slot(status)) free_contacts(taken);
    used_->counters.packets_received += taken;
    if (cluster_.holds()) cluster_.freed(*this);
    return taken;
}

DeviceReport ClusterDevice::report(DeviceAddr peer) const {
    const ClusterDevice& device = peer == kNoAddr ? *this : target(peer);
    const RmaUnit* const rma = peer == kNoAddr ? nullptr : rma_if_used();
    const uint32_t operations = rma == nullptr ? 0 : rma->operations(peer);
    if (!device.used_) return {.mailbox_slots = device.slots_, .operations = operations};
    return {.mailbox_written = device.used_->mailbox.claimed(),
            .mailbox_read = device.used_->mailbox.taken(),
            .mailbox_slots = device.slots_,
            .operations = operations};
}

DeviceLimits ClusterDevice::limits() const {
    return {.ports = ports_,
            .rails = ports_,
            .mailbox_slots = slots_,
            .rma_bytes_max = RmaUnit::kBytesMax,
            .rma_outstanding_max = ports_ * RmaUnit::kPortOperationsMax,
            .registrations_max = RegistrationTable::kEntriesMax};
}

DeviceCounters ClusterDevice::counters() const {
    if (!used_) return {};
    DeviceCounters counters = used_->counters;
    if (used_->rma) used_->rma->add_counters(counters);
    if (used_->faults) counters.faults_injected += used_->faults->injected();
    return counters;
}

}  // namespace velo::cluster
