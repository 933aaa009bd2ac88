#include "velo/ofi/ofi_device.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <utility>

#include "velo/ofi/connections.h"
#include "velo/os/clock.h"
#include "velo/os/shared_segment.h"

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

/// Slots for the device's own messages are set aside for this many peers, if their number is not given.
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

DeviceTraits traits_of(const Endpoint& endpoint) {
    DeviceTraits traits = OfiDevice::kTraits;
    if (over_stream(endpoint.provider())) {
        traits.get_header_bytes = OfiDevice::kGetHeaderBytes;
        traits.put_header_bytes = OfiDevice::kPutHeaderBytes;
    }
    return traits;
}

Address address_of(const DeviceConfig& config, const Endpoint& endpoint) {
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

OfiDevice::OfiDevice(const DeviceConfig& config, Choice choice)
    : endpoint_(std::move(choice), completions_max(prepared(config)), config.mailbox_slots),
      own_(address_of(config, endpoint_)),
      log_(config.log, endpoint_.title()),
      mailbox_(endpoint_, config.mailbox_slots, control_bytes(config)),
      gate_(config.contact_slots),
      peers_(endpoint_, mailbox_, gate_, own_, peers_planned(config), config.contact_slots != 0),
      transmitter_(endpoint_, peers_, own_, log_, mailbox_.space().part_bytes()),
      rma_(endpoint_, config.ports),
      endings_(endpoint_, peers_, transmitter_, gate_, rma_, log_),
      watch_(endpoint_, peers_, transmitter_, endings_, config.peer_timeout_ns),
      arrivals_(endpoint_, mailbox_, rma_, peers_, gate_, transmitter_, endings_, watch_, own_, log_),
      traits_(traits_of(endpoint_)),
      ports_(config.ports),
      operation_timeout_ns_(config.operation_timeout_ns),
      linger_ns_(config.peer_timeout_ns / kLingerShare) {}

OfiDevice::~OfiDevice() {
    if (!transmitter_.closing()) announce_ending(base::Ending::kClosed);
    settle();
    mailbox_.cancel();
    endpoint_.close();
}

/// Until all that was reported as sent is with its receivers, or these have ended. The provider has it, but some of it
/// leaves by its progress only, and what a connection still holds when it is closed may be dropped: so peers answer the
/// last word. One that computes does not; its kernel has all of it then, and keeps it for the peer.
void OfiDevice::settle() {
    const uint64_t begin_ns = base::monotonic_ns();
    Connections connections(endpoint_.name());
    for (DeviceAddr peer = 0; peer < peers_.size(); ++peer) connections.know(peers_[peer].endpoint);
    const bool waits = transmitter_.ending() == base::Ending::kClosed;
    for (;;) {
        now_ns_ = base::monotonic_ns();
        arrivals_.read();
        if (mailbox_.refused()) mailbox_.post_refused();
        transmitter_.progress();
        bool unheard = false;
        if (waits) {
            transmitter_.for_each_unheard([&](DeviceAddr peer) {
                unheard = true;
                watch_.watch(peer);
            });
        }
        if (!unheard && !transmitter_.under_way()) return;
        const bool linger_over = now_ns_ - begin_ns >= kCloseNs;
        if (!unheard && linger_over) return;
        watch_.polled(now_ns_);
        if (watch_.take_due(now_ns_)) {
            watch_.check();
            if (now_ns_ - begin_ns >= linger_ns_ && !transmitter_.under_way() && connections.acknowledged()) return;
        }
        if (linger_over) sched_yield();
    }
}

Status OfiDevice::connect(std::span<const std::byte> bytes, DeviceAddr& peer, base::Failure* failure) {
    const auto explain = [failure](const char* why) {
        if (failure != nullptr) *failure = {.call = why, .error = 0};
    };
    // A peer with several rails is reached by its first one.
    RailsAddress address;
    const Status status = read_rails_address(bytes, address);
    if (status == Status::kUnsupported) explain("its velo is of another version");
    if (status == Status::kBadParam) explain("its address is damaged");
    return status == Status::kOk ? peers_.know(address.first, peer, failure) : status;
}

void OfiDevice::announce_ending(base::Ending ending) {
    if (transmitter_.closing()) return;
    // A peer that has closed is not written to.
    arrivals_.read();
    transmitter_.close(ending);
}

Status OfiDevice::send(DeviceAddr to, uint32_t packets, Admission admission, PacketFill fill) {
    const Status status = transmitter_.send(to, packets, admission, fill);
    if (status == Status::kOk) [[likely]]
        pacer_.traffic(now_ns_);
    return status;
}

void OfiDevice::advance() {
    ++packets_read_;
    if (mailbox_.advance()) [[unlikely]] {
        gate_.left();
        call_contacts();
    }
}

uint32_t OfiDevice::take_run(std::byte* to, uint32_t packets_max) {
    const uint32_t taken = mailbox_.take_run(to, packets_max);
    packets_read_ += taken;
    return taken;
}

/// Notifies senders of refused contact packets that there are slots now.
void OfiDevice::call_contacts() {
    for (;;) {
        const DeviceAddr addr = gate_.next_call(now_ns_ + kContactCallNs);
        if (addr == kNoAddr) return;
        transmitter_.say(addr, kContactCalled);
    }
}

Status OfiDevice::post(const RmaOperation& operation) {
    if (operation.peer >= peers_.size()) return Status::kBadParam;
    const Peer& peer = peers_[operation.peer];
    if (!peer.dead && !peers_.resolve(operation.peer)) return Status::kNoResource;
    return rma_.post(operation, peer.at, peer.facts, peer.dead ? Status::kPeerDead : Status::kOk);
}

uint32_t OfiDevice::progress(uint64_t now_ns) {
    now_ns_ = now_ns;
    if (!pacer_.due(now_ns, busy())) return 0;
    watch_.polled(now_ns);
    transmitter_.forget_refusals();
    const uint64_t seen = events();
    if (arrivals_.read() != 0) pacer_.traffic(now_ns);
    rma_.progress(now_ns);
    if (mailbox_.refused()) mailbox_.post_refused();
    if (watch_.take_due(now_ns)) [[unlikely]] {
        gate_.expire(now_ns);
        call_contacts();
        watch_.check();
        rma_.end_overdue(operation_timeout_ns_, [this](DeviceAddr peer) { return responsive(peer); });
    }
    transmitter_.progress();
    // Signals between devices are no event: a process that pings, or is pinged, may still be one to which nothing
    // happens.
    return static_cast<uint32_t>(events() - seen);
}

DeviceReport OfiDevice::report(DeviceAddr addr) const {
    if (addr == kNoAddr) {
        return {.mailbox_written = mailbox_.packets_arrived(),
                .mailbox_read = packets_read_,
                .mailbox_slots = own_.head.mailbox_slots,
                .beat_ns = now_ns_};
    }
    const Peer& peer = peers_.checked(addr);
    return {.mailbox_slots = peer.facts.mailbox_slots,
            .held_packets = Transmitter::held_packets(peer),
            .operations = rma_.operations(addr),
            .unreached = peer.dead && peer.ending == base::Ending::kNone && !peer.in.hello_received};
}

DeviceLimits OfiDevice::limits() const {
    return {.ports = ports_,
            .mailbox_slots = own_.head.mailbox_slots,
            .rma_bytes_max = rma_.bytes_max(),
            .rma_outstanding_max = rma_.outstanding_max(),
            .registrations_max = RmaUnit::kRegistrationsMax,
            .send_packets_max = transmitter_.packets_max()};
}

DeviceCounters OfiDevice::counters() const {
    DeviceCounters counters;
    counters.packets_sent = transmitter_.counters().packets;
    counters.packets_received = packets_read_;
    counters.packets_unknown_source = arrivals_.counters().unknown_source;
    counters.contacts_refused = arrivals_.counters().contacts_refused;
    counters.starved = mailbox_.starved();
    rma_.add_counters(counters);
    return counters;
}

OfiCounters OfiDevice::ofi_counters() const {
    return {.malformed = arrivals_.counters().malformed,
            .strangers = arrivals_.counters().strangers,
            .broken_streams = endings_.broken_streams(),
            .lost_receives = arrivals_.counters().lost_receives,
            .hellos_sent = transmitter_.counters().hellos,
            .hellos_received = arrivals_.counters().hellos,
            .pings_sent = transmitter_.counters().pings,
            .pings_received = arrivals_.counters().pings};
}

}  // namespace velo::ofi
