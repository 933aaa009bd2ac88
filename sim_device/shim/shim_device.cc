#include "sim_device/shim/shim_device.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "velo/base/text.h"

namespace velo::shim {
namespace {

std::string name_of(const DeviceConfig& config) {
    return "the device of node " + std::to_string(config.node) + ", VPID " + std::to_string(config.vpid);
}

Identity identity_of(const DeviceConfig& config) {
    return {.host_name = config.host_name,
            .job_token = config.job_token,
            .mailbox_slots = config.mailbox_slots,
            .contact_slots = config.contact_slots,
            .ports = config.ports,
            .node = config.node,
            .vpid = config.vpid};
}

base::SharedSegment create_segment(const DeviceConfig& config) {
    if (config.ports == 0 || config.ports > kPortsMax) {
        throw base::SetupError(name_of(config) + " has 1 to " + std::to_string(kPortsMax) + " ports, not " +
                               std::to_string(config.ports) + ".");
    }
    if (config.mailbox_slots > kMailboxSlotsMax) {
        throw base::SetupError(name_of(config) + " has at most " + std::to_string(kMailboxSlotsMax) +
                               " mailbox slots, not " + std::to_string(config.mailbox_slots) + ".");
    }
    if (config.contact_slots > config.mailbox_slots) {
        throw base::SetupError(name_of(config) + " cannot have " + std::to_string(config.contact_slots) +
                               " contact slots in a mailbox of " + std::to_string(config.mailbox_slots) +
                               " slots.");
    }
    base::SharedSegment segment =
        base::SharedSegment::create("velo-device", Layout(config.mailbox_slots, config.ports).bytes);
    DeviceHeader& header =
        *reinterpret_cast<DeviceHeader*>(segment.bytes().data() + base::SharedSegment::kHeaderBytes);
    header.identity = identity_of(config);
    header.magic = kShimMagic;
    header.link.sink_bytes_per_us.store(config.link.sink_bytes_per_us, std::memory_order_relaxed);
    header.link.source_bytes_per_us.store(config.link.source_bytes_per_us, std::memory_order_relaxed);
    header.life.store(Life::kOpen, std::memory_order_release);
    return segment;
}

}  // namespace

ShimDevice::ShimDevice(const DeviceConfig& config)
    : faults_(base::Faults::parse(config.faults, config.node, config.vpid)),
      segment_(create_segment(config)),
      own_(segment_.bytes().data(), Layout(config.mailbox_slots, config.ports)),
      source_(source_id(config.node, config.vpid)),
      mailbox_(own_.mailbox_control(), own_.slots(), std::max(config.mailbox_slots, 1u)),
      peers_(segment_.address(), own_, identity_of(config), config.log),
      atu_(own_.atu_memory(), kAtuEntries),
      rma_(peers_, own_, config, faults_.get()),
      helper_(peers_, own_, atu_.view()),
      server_(peers_, own_, config.ports, atu_.view(), helper_),
      owner_pid_(getpid()),
      holes_(peers_, mailbox_, rma_, server_),
      packet_faults_(faults_.get()) {}

ShimDevice::~ShimDevice() {
    // In a child of fork() the segments are not mapped.
    if (getpid() != owner_pid_) return;
    release_delayed(UINT64_MAX);
    announce_ending(base::Ending::kClosed);
    Life open = Life::kOpen;
    own_.header().life.compare_exchange_strong(open, Life::kClosed, std::memory_order_release,
                                               std::memory_order_relaxed);
}

base::Ending ShimDevice::announced_ending(DeviceAddr peer) const {
    const Peer& of = checked(peer);
    // An injected death is one without a word.
    const bool injected = of.view.header().life.load(std::memory_order_acquire) == Life::kDead;
    return injected ? base::Ending::kNone : of.segment.announced_ending();
}

/// The shown packet is of another source than the one before. Returns the next packet of a known source.
const Packet* ShimDevice::find_source(const Packet* packet) {
    // At most a mailbox of them, so that a flood from strangers does not hold us.
    for (uint32_t dropped = 0; packet != nullptr && dropped < kMailboxSlotsMax; ++dropped) {
        const auto source = static_cast<uint32_t>(mailbox_.shown_status() & kSourceMask);
        const DeviceAddr from = peers_.find_source(source);
        const bool after_hole = mailbox_.after_hole();
        mailbox_.forget_hole();
        if (from != kNoAddr && after_hole && peers_[from].dead) {
            // It died while it wrote these packets: this is the end of a message whose beginning is the hole.
            peers_.forget_source(from);
        } else if (from != kNoAddr) {
            last_source_ = source;
            last_from_ = from;
            return packet;
        }
        ++counters_.packets_unknown_source;
        mailbox_.advance();
        packet = mailbox_.peek();
    }
    return nullptr;
}

Status ShimDevice::register_memory(void* base, size_t bytes, uint32_t access, Registration& out) {
    const auto first = reinterpret_cast<uint64_t>(base);
    if (base == nullptr || bytes == 0 || first + bytes < first) return Status::kBadParam;
    if (access == 0 || (access & ~uint32_t{kAccessAny}) != 0) return Status::kBadParam;
    return atu_.add(base, bytes, access, out);
}

Status ShimDevice::deregister(const Registration& registration) {
    return atu_.remove(registration);
}

uint32_t ShimDevice::progress(uint64_t now_ns) {
    now_ns_ = now_ns;
    if (dead()) [[unlikely]]
        return rma_.progress(now_ns);
    if (now_ns >= next_life_check_ns_) [[unlikely]] {
        next_life_check_ns_ = now_ns + kLifeCheckNs;
        check_life();
        holes_.check(now_ns);
        if (!faults_) holes_.check_contacts(now_ns);
    }
    uint32_t events = peers_.take_contacts(kContactsPerProgress);
    if (faults_) [[unlikely]] {
        events += release_delayed(now_ns);
        own_.header().ports_down.store(faults_->ports_down(now_ns), std::memory_order_relaxed);
    }
    events += server_.progress();
    // Its own operations come first; a process that has none to move helps others with theirs.
    const uint32_t own = rma_.progress(now_ns);
    return events + (own != 0 ? own : helper_.progress());
}

void ShimDevice::check_life() {
    segment_.beat(now_ns_);
    helper_.beat();
    std::vector<DeviceAddr> died;
    peers_.check_life(died);
    for (const DeviceAddr peer : died) {
        rma_.peer_died(peer);
        packet_faults_.drop(peer);
    }
    if (!mailbox_.readable()) mailbox_.skip_overwritten();
    if (mailbox_.overflows() != overflows_reported_) report_overflow();
}

void ShimDevice::report_overflow() {
    if (overflows_reported_ == 0) {
        const Identity& own = peers_.identity();
        std::string line;
        base::append(line,
                     "velo: internal error: %llu packets for node %u, VPID %u were overwritten in its mailbox of "
                     "%u slots before they were read: a sender used credits that it did not have. Messages are "
                     "lost; the job's results cannot be relied on.",
                     static_cast<unsigned long long>(mailbox_.overflows()), own.node, own.vpid, own.mailbox_slots);
        peers_.log()(0, line);
    }
    overflows_reported_ = mailbox_.overflows();
}

Status ShimDevice::admit_under_faults(DeviceAddr to, uint32_t packets, Admission admission, bool& now) {
    const uint64_t last = counters_.packets_sent + packets;
    const Status status =
        packet_faults_.admit(to, packets, admission, peers_[to].facts.mailbox_slots, last, now);
    if (status == Status::kPeerDead) own_.header().life.store(Life::kDead, std::memory_order_release);
    counters_.backpressure += status == Status::kAgain;
    return status;
}

uint32_t ShimDevice::release_delayed(uint64_t now_ns) {
    return packet_faults_.release(now_ns, [this](DeviceAddr to, const base::DelayLine::Message& message) {
        const auto fill = [&message](uint32_t i, std::byte* payload) {
            std::memcpy(payload, message.packets[i].payload, kPayloadBytes);
            return PacketStatus::unpack(message.packets[i].status);
        };
        return transmit(peers_[to], static_cast<uint32_t>(message.packets.size()), message.admission, fill);
    });
}

DeviceReport ShimDevice::report(DeviceAddr addr) const {
    if (addr == kNoAddr) {
        return {.mailbox_written = mailbox_.claimed(),
                .mailbox_read = mailbox_.position(),
                .mailbox_slots = peers_.identity().mailbox_slots,
                .beat_ns = segment_.last_beat_ns()};
    }
    const Peer& peer = checked(addr);
    const MailboxControl& mailbox = *peer.view.mailbox_control();
    return {.mailbox_written = mailbox.written.load(std::memory_order_relaxed),
            .mailbox_read = mailbox.read.load(std::memory_order_relaxed),
            .mailbox_slots = peer.facts.mailbox_slots,
            .held_packets = packet_faults_.held(addr),
            .operations = rma_.operations(addr),
            .beat_ns = peer.segment.last_beat_ns()};
}

DeviceLimits ShimDevice::limits() const {
    return {.ports = peers_.identity().ports,
            .rails = peers_.identity().ports,
            .mailbox_slots = peers_.identity().mailbox_slots,
            .rma_bytes_max = RmaUnit::kBytesMax,
            .rma_outstanding_max = peers_.identity().ports * RmaUnit::kPortOperationsMax,
            .registrations_max = kAtuEntries};
}

DeviceCounters ShimDevice::counters() const {
    DeviceCounters counters = counters_;
    rma_.add_counters(counters);
    counters.packets_unknown_source += server_.unknown_source();
    counters.mailbox_overflows = mailbox_.overflows();
    counters.helped_bytes = helper_.moved_bytes();
    counters.registrations = atu_.registrations();
    counters.faults_injected = faults_ ? faults_->injected() : 0;
    return counters;
}

ShimCounters ShimDevice::shim_counters() const {
    return {.contacts_accepted = peers_.contact_counters().accepted,
            .contacts_refused = peers_.contact_counters().refused,
            .malformed = rma_.malformed() + server_.malformed(),
            .abandoned_claims = holes_.abandoned()};
}

}  // namespace velo::shim
