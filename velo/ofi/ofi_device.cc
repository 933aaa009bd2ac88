#include "velo/ofi/ofi_device.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "velo/base/clock.h"
#include "velo/base/shared_segment.h"

namespace velo::ofi {
namespace {

std::string name_of(const DeviceConfig& config) {
    return "the device of node " + std::to_string(config.node) + ", VPID " + std::to_string(config.vpid);
}

const DeviceConfig& checked_config(const DeviceConfig& config) {
    if (config.ports == 0 || config.ports > OfiDevice::kPortsMax) {
        throw base::SetupError(name_of(config) + " has 1 to " + std::to_string(OfiDevice::kPortsMax) + " ports, not " +
                               std::to_string(config.ports) + ".");
    }
    if (config.mailbox_slots > OfiDevice::kMailboxSlotsMax) {
        throw base::SetupError(name_of(config) + " has at most " + std::to_string(OfiDevice::kMailboxSlotsMax) +
                               " mailbox slots, not " + std::to_string(config.mailbox_slots) + ".");
    }
    if (config.contact_slots > config.mailbox_slots) {
        throw base::SetupError(name_of(config) + " cannot have " + std::to_string(config.contact_slots) +
                               " contact slots in a mailbox of " + std::to_string(config.mailbox_slots) + " slots.");
    }
    return config;
}

/// Over TCP each peer that is talked to takes a descriptor.
void raise_descriptor_limit() {
    rlimit limit = {};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

const DeviceConfig& prepared(const DeviceConfig& config) {
    raise_descriptor_limit();
    return checked_config(config);
}

/// Room for the device's own messages is set aside for this many peers, if their number is not given.
constexpr uint32_t kPeersUnknown = 16;

uint32_t peers_planned(const DeviceConfig& config) {
    return config.peers_max != 0 ? config.peers_max : kPeersUnknown;
}

size_t control_bytes(const DeviceConfig& config) {
    return peers_planned(config) * kControlBytesPerPeer;
}

/// Completions that can lie unread: a message for each slot that is posted, and what is under way from here.
size_t completions_max(const DeviceConfig& config) {
    const ReceiveSpace space(config.mailbox_slots, control_bytes(config));
    constexpr size_t kMost = 1u << 16;
    const size_t sends = Frames::kCount + size_t{config.ports} * RmaUnit::kPortOperationsMax;
    return std::min(space.posted_bytes() / kPacketBytes, kMost) + sends;
}

Address own_address(const DeviceConfig& config, const Endpoint& endpoint) {
    Address own;
    own.head.token = base::random_token();
    own.head.job_token = config.job_token;
    own.head.host_name = config.host_name;
    own.head.mailbox_slots = config.mailbox_slots;
    own.head.name_format = endpoint.info().addr_format;
    own.head.node = config.node;
    own.head.vpid = config.vpid;
    own.head.name_bytes = static_cast<uint16_t>(endpoint.name().size());
    own.set_provider(endpoint.provider());
    std::ranges::copy(endpoint.name(), own.name.begin());
    return own;
}

}  // namespace

OfiDevice::OfiDevice(const DeviceConfig& config, const NetworkOptions& options)
    : config_(prepared(config)),
      endpoint_(options, completions_max(config), config.mailbox_slots),
      mailbox_(endpoint_, config.mailbox_slots, control_bytes(config)),
      frames_(endpoint_, mailbox_.space().part_bytes()),
      rma_(endpoint_, config.ports),
      own_(own_address(config, endpoint_)),
      source_(source_of(config.node, config.vpid)),
      send_packets_max_(kSendPartsMax * endpoint_.part_packets(config.mailbox_slots)),
      peers_with_room_(peers_planned(config)),
      gate_(config.contact_slots),
      health_(config.peer_timeout_ns),
      health_check_ns_(std::min(kHealthCheckNs, config.peer_timeout_ns / 32)),
      scratch_(std::min(endpoint_.inject_bytes(), mailbox_.space().part_bytes()) / kPacketBytes) {}

OfiDevice::~OfiDevice() {
    if (!closing_) announce_ending(base::Ending::kClosed);
    // The provider has all that was reported as sent, but some of it leaves by its progress only.
    const uint64_t end_ns = base::monotonic_ns() + kCloseNs;
    do {
        read_completions();
        drive_peers();
    } while ((frames_.used() != 0 || !driven_.empty()) && base::monotonic_ns() < end_ns);
    mailbox_.cancel();
    endpoint_.close();
}

void OfiDevice::log(int level, const char* format, ...) const {
    if (config_.log.write == nullptr) return;
    std::array<char, 512> line;
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line.data(), line.size(), format, arguments);
    va_end(arguments);
    config_.log(level, line.data());
}

/// Handles a send that the provider refused. Errors that are none of ordinary back-pressure are treated like it: only
/// silence tells a peer's death.
bool OfiDevice::refused(ssize_t result, DeviceAddr to) {
    refused_ = true;
    if (result != -FI_EAGAIN && result != -FI_ENOMEM) {
        const DevicePeer& facts = peers_[to]->facts;
        log(2, "%s: sending to node %u, VPID %u: %s", endpoint_.title(), facts.node, facts.vpid,
            fi_strerror(static_cast<int>(-result)));
    }
    return false;
}

/// False: the frame stays the caller's.
bool OfiDevice::transmit_frame(Frame& frame) {
    const ssize_t result = fi_send(endpoint_.ep(), frame.slots, frame.count * kPacketBytes, frames_.descriptor(),
                                   peers_[frame.to]->at, &frame.context);
    if (result != 0) return refused(result, frame.to);
    ++peers_[frame.to]->messages_sent;
    return true;
}

/// Sends slots that stay the caller's; `completion`: the provider is to tell when it is done with them.
bool OfiDevice::transmit(DeviceAddr to, const Packet* slots, uint32_t count, bool completion) {
    const size_t bytes = count * kPacketBytes;
    if (bytes <= endpoint_.inject_bytes() && !completion) {
        const ssize_t result = fi_inject(endpoint_.ep(), slots, bytes, peers_[to]->at);
        if (result != 0) return refused(result, to);
        ++peers_[to]->messages_sent;
        return true;
    }
    if (frames_.free() == 0) return refused(-FI_EAGAIN, to);
    Frame* frame = frames_.take(to, count);
    std::memcpy(frame->slots, slots, bytes);
    if (transmit_frame(*frame)) return true;
    frames_.put(*frame);
    return false;
}

/// The provider has not taken what send() accepted: drive_peers() tries again, and nothing overtakes it.
void OfiDevice::hold(DeviceAddr to, Frame* frames) {
    peers_[to]->held = frames;
    drive(to);
}

/// Writes packets [first, first + count) of a send, which is one message of the provider. Returns its slots.
uint32_t OfiDevice::fill_part(Peer& peer, Packet* slots, uint32_t first, uint32_t count, bool contact,
                              const PacketFill& fill) {
    const uint64_t own = source_ | uint64_t{contact} << PacketStatus::kContactBit;
    const uint32_t written = write_part(slots, fill, first, count, own, peer.sent);
    peer.sent = static_cast<uint8_t>(peer.sent + count);
    if (contact) [[unlikely]] {
        peer.contact_packet = slots[0];
        peer.contact.sent();
    }
    return written;
}

Status OfiDevice::send(DeviceAddr to, uint32_t packets, Admission admission, PacketFill fill) {
    Peer& peer = checked(to);
    if (peer.dead) [[unlikely]]
        return Status::kPeerDead;
    if (peer.facts.mailbox_slots == 0) [[unlikely]]
        return Status::kUnsupported;
    const bool contact = admission == Admission::kContact;
    if (packets - 1 >= (contact ? 1 : send_packets_max_)) [[unlikely]]
        return Status::kBadParam;
    // Once fill was called the packets have to go, if need be in frames. A smaller mailbox takes them in several.
    const uint32_t frames = (packets + peer.part_packets - 1) / peer.part_packets;
    if (peer.held != nullptr || peer.contact.blocks() || frames_.free() < frames) [[unlikely]]
        return again();
    if (!peer.hello_sent && (!send_hello(to) || frames_.free() < frames)) [[unlikely]]
        return again();
    counters_.packets_sent += packets;
    pacer_.traffic(now_ns_);
    if (packets <= scratch_.size()) {
        const uint32_t slots = fill_part(peer, scratch_.data(), 0, packets, contact, fill);
        if (transmit(to, scratch_.data(), slots)) return Status::kOk;
        Frame* frame = frames_.take(to, packets);
        frame->count = slots;
        std::memcpy(frame->slots, scratch_.data(), slots * kPacketBytes);
        hold(to, frame);
        return Status::kOk;
    }
    Frame** last = nullptr;
    for (uint32_t done = 0; done < packets;) {
        Frame* frame = frames_.take(to, std::min(packets - done, peer.part_packets));
        frame->count = fill_part(peer, frame->slots, done, frame->packets, contact, fill);
        done += frame->packets;
        if (last == nullptr && transmit_frame(*frame)) continue;
        if (last == nullptr) {
            hold(to, frame);
        } else {
            *last = frame;
        }
        last = &frame->next;
    }
    return Status::kOk;
}

void OfiDevice::advance() {
    ++counters_.packets_received;
    if (mailbox_.advance()) [[unlikely]] {
        gate_.left();
        call_contacts();
    }
}

Status OfiDevice::post(const RmaOperation& operation) {
    if (operation.peer >= peers_.size()) return Status::kBadParam;
    Peer& peer = *peers_[operation.peer];
    if (!peer.dead && !resolve(operation.peer)) return Status::kNoResource;
    return rma_.post(operation, peer.at, peer.facts, peer.dead);
}

uint32_t OfiDevice::take_run(std::byte* to, uint32_t packets_max) {
    const uint32_t taken = mailbox_.take_run(to, packets_max);
    counters_.packets_received += taken;
    return taken;
}

uint32_t OfiDevice::progress(uint64_t now_ns) {
    now_ns_ = now_ns;
    if (!pacer_.due(now_ns, busy())) return 0;
    health_.polled(now_ns);
    refused_ = false;
    const uint64_t seen = mailbox_.packets_arrived() + operations_done_;
    if (read_completions() != 0) pacer_.traffic(now_ns);
    rma_.progress();
    if (mailbox_.refused()) mailbox_.post_refused();
    if (now_ns >= next_health_check_ns_) [[unlikely]] {
        next_health_check_ns_ = now_ns + health_check_ns_;
        check_health();
    }
    drive_peers();
    // Signals between devices are no event: a process that pings, or is pinged, may still be one to which nothing
    // happens.
    return static_cast<uint32_t>(mailbox_.packets_arrived() + operations_done_ - seen);
}

DeviceReport OfiDevice::report(DeviceAddr addr) const {
    if (addr == kNoAddr) {
        return {.mailbox_written = mailbox_.packets_arrived(),
                .mailbox_read = counters_.packets_received,
                .mailbox_slots = config_.mailbox_slots,
                .beat_ns = now_ns_};
    }
    const Peer& peer = checked(addr);
    uint32_t held = peer.contact.blocks() ? 1 : 0;
    for (const Frame* frame = peer.held; frame != nullptr; frame = frame->next) held += frame->packets;
    return {.mailbox_slots = peer.facts.mailbox_slots,
            .held_packets = held,
            .operations = rma_.operations(addr)};
}

DeviceLimits OfiDevice::limits() const {
    return {.ports = config_.ports,
            .mailbox_slots = config_.mailbox_slots,
            .rma_bytes_max = rma_.bytes_max(),
            .rma_outstanding_max = rma_.outstanding_max(),
            .registrations_max = RmaUnit::kRegistrationsMax,
            .send_packets_max = send_packets_max_};
}

DeviceCounters OfiDevice::counters() const {
    DeviceCounters counters = counters_;
    rma_.add_counters(counters);
    counters.starved = mailbox_.starved();
    return counters;
}

}  // namespace velo::ofi
