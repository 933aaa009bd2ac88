/// The contract between the engine and whatever moves its packets and its RMA operations.
///
/// The contract is three concepts: PacketDevice, RmaDevice, and PeerHealth, which is optional. The engine requires the
/// first two (`Device`), and asks for the third through namespace health, where its defaults are. Promises that shared
/// memory alone can keep are traits (DeviceTraits), and not asked of a network.
///
/// Devices: the software EXTOLL device (sim_device/shim), the simulated cluster (sim_device/cluster), and those of
/// networks, which live in libraries of their own (velo/device/network_device.h). The engine is a template over its
/// device, so nothing here is virtual. tests/conformance holds every device to this page.
///
/// Thread: one at a time; the engine serialises. No call blocks, and none calls back into the engine except
/// `fill` of send().
///
/// Source: FC 2 and 3 for the units; libvelo2 and librma2 for the vocabulary.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "velo/base/ids.h"
#include "velo/base/status.h"
#include "velo/os/shared_segment.h"
#include "velo/wire/packet.h"
#include "velo/wire/registration.h"

namespace velo {

/// Longest opaque address that a device publishes: a few rails, of up to some 64 bytes each.
inline constexpr size_t kDeviceAddressBytesMax = 512;

/// Properties that some devices have and others lack. Each is read in one place of the engine or of its options, and
/// by the conformance suite.
struct DeviceTraits {
    /// Peers on other hosts can be reached.
    bool other_hosts = false;
    /// The free slots of a peer's mailbox can be seen from here: Admission::kGuarded has a bound. Without it guarded
    /// packets are sent without a look, and those that find no slot wait in memory that this device does not count.
    bool sees_room = true;
    /// Connecting attaches to the peer's process, and so finds out whether it runs. Without it an address that is well
    /// formed connects, and a peer that is not there is found out by PeerWatch.
    bool sees_processes = true;
    /// All processes of a host see one word of a peer's, by which they elect the one that reports its end
    /// (ReportElection).
    bool elects = true;
    /// The peer's table of registrations is looked at before each access: a revoked key and an access past the end of a
    /// region end as kAtuFault and harm nothing else. Without it they must not be tried.
    bool checks_keys = true;
    /// kFetchAdd and kCompareSwap, executed by the target's CPU.
    bool atomics = true;
    /// kImmediatePut, kLock, kNotification, and notifications at responder and completer.
    bool notifies_targets = true;
    /// A packet costs less the more of them one send() has, by so much that short messages should wait for one another.
    bool gathers = false;
    /// To look whether something came costs a part of what a message on the node costs: a process to which nothing
    /// comes this way looks seldom.
    bool dear_to_poll = false;
    /// Bytes of the header that goes ahead of a get's data, and of a put's, in a stream into which the kernel copies
    /// both (rma/stream_lead.h); 0: there is no such copy.
    uint8_t get_header_bytes = 0;
    uint8_t put_header_bytes = 0;
    bool operator==(const DeviceTraits&) const = default;
};

/// How packets are admitted to the receiver's mailbox.
enum class Admission : uint8_t {
    /// The caller holds credits: there are slots for certain, and the reader's index is not looked at.
    kCredited,
    /// The device looks for free slots first; a full mailbox is back-pressure, counted, answered by kAgain.
    kGuarded,
    /// One packet, without credits, in one of the mailbox's contact slots, which all senders share; no more of
    /// these packets than that are ever in it. A device that sees none free answers kAgain. One that cannot see
    /// them keeps the packet until the receiver has admitted it, and answers kAgain to every later packet for that
    /// peer until then, so that nothing overtakes it. The packet's status says that it is one
    /// (PacketStatus::contact).
    kContact,
};

enum class RmaKind : uint8_t {
    kPut,
    kGet,
    kImmediatePut,  ///< 1 to 8 bytes out of `operand`
    kFetchAdd,      ///< 64 bits at 8-byte alignment; the old value is notified
    kCompareSwap,   ///< 64 bits at 8-byte alignment; the old value is notified
    kLock,          ///< FCAA: if *d <= compare then *d += operand; the old value is notified
    kNotification,  ///< moves nothing; a notification with `operand` at the completer
};

/// Receivers of an operation's notifications; the values are bits, as in librma2.
enum Notify : uint8_t {
    kNotifyRequester = 1,
    kNotifyResponder = 2,  ///< a get, at the process whose memory was read; a put raises none
    kNotifyCompleter = 4,  ///< a put, at the process whose memory was written
};

/// One operation, at most rma_bytes_max long. `local` stays untouched by its owner until the requester's
/// notification; a put's requester is notified when the data is visible at the target.
struct RmaOperation {
    RmaKind kind = RmaKind::kGet;
    uint8_t port = 0;
    uint8_t notify = kNotifyRequester;
    uint16_t cookie = 0;  ///< handed back in the requester's notification
    DeviceAddr peer = kNoAddr;
    std::byte* local = nullptr;
    uint64_t nla = 0;  ///< target address: the registration's nla plus an offset
    uint64_t key = 0;
    uint32_t bytes = 0;
    uint64_t operand = 0;
    uint64_t compare = 0;
};

/// 16 bytes, as in EXTOLL. `value`: bytes moved, the old value of an atomic, or a notification's operand.
struct Notification {
    uint64_t value = 0;
    uint16_t cookie = 0;
    uint16_t node = 0;  ///< the other side
    uint8_t vpid = 0;   ///< the other side
    Notify kind = kNotifyRequester;
    RmaKind operation = RmaKind::kGet;
    /// kOk, kAtuFault, kUnsupported (this way of copying is denied here; nothing moved), kPeerDead, kFailed,
    /// kBadMemory.
    Status status = Status::kOk;
};
static_assert(sizeof(Notification) == 16);

struct NetworkOptions;

/// The network that a device emulates by the clock, for one that has none: rates, so that what a slow receiver or
/// a busy rail costs others is seen. Nothing of it is for users' jobs.
struct LinkOptions {
    uint32_t bytes_per_us = 0;         ///< of a port, each way; 0: nothing is emulated
    uint32_t sink_bytes_per_us = 0;    ///< taken by this process, from all ports; 0: as fast as they bring it
    uint32_t source_bytes_per_us = 0;  ///< brought by this process, to all ports; 0: as fast as they take it
    uint32_t buffer_bytes = 0;         ///< on the way to a process, until a sender's port is held up
};

/// The host's log, of lines for the user; levels as those of velo_host_t::log.
struct DeviceLog {
    void (*write)(void* context, int level, const char* line) = nullptr;
    void* context = nullptr;

    void operator()(int level, const std::string& line) const {
        if (write != nullptr) write(context, level, line.c_str());
    }
};

/// Arguments that a device is opened with.
struct DeviceConfig {
    uint16_t node = 0;
    uint8_t vpid = 0;
    uint64_t host_name = 0;  ///< opaque; handed to whoever we connect to
    /// Peers with another token are refused, but by a network's device (DeviceTraits::other_hosts) that has contact
    /// slots: processes of other jobs are in no plan, and own nothing before their first contact.
    uint64_t job_token = 0;
    uint32_t mailbox_slots = 0;
    uint32_t contact_slots = 0;  ///< of the mailbox, for Admission::kContact
    uint32_t ports = 1;
    LinkOptions link{};
    bool shares_cpus = false;  ///< processes take turns: what is asked of one may be late
    std::string faults;  ///< faults to inject, in the device's own notation; empty: none
    uint64_t operation_timeout_ns = 20'000'000'000;  ///< of a network: a put or get that a living peer does not end
    uint64_t peer_timeout_ns = 20'000'000'000;  ///< watch()
    uint32_t peers_max = 0;  ///< processes of the job that may send here: slots are set aside for their first words
    DeviceLog log{};
    const NetworkOptions* network = nullptr;  ///< set: the device of a network is wanted (velo/engine/any_device.h)
};

/// Facts about a connected peer.
struct DevicePeer {
    uint16_t node = 0;
    uint8_t vpid = 0;
    uint64_t host_name = 0;
    uint32_t mailbox_slots = 0;
};

/// A mailbox and what is under way to it, for reports.
struct DeviceReport {
    uint64_t mailbox_written = 0;  ///< positions
    uint64_t mailbox_read = 0;
    uint32_t mailbox_slots = 0;
    uint32_t held_packets = 0;  ///< accepted by send(), and not written yet
    uint32_t operations = 0;    ///< accepted by post(), and not ended
    uint64_t beat_ns = 0;       ///< when its owner was last in progress(); 0: not known
    bool unreached = false;     ///< it counts as ended, and nothing ever came from it: it may run all the same
};

/// Facts about an open device.
struct DeviceLimits {
    uint32_t ports = 1;
    uint32_t rails = 1;  ///< the first ports, which are ways of their own; the others share these
    uint32_t mailbox_slots = 0;
    uint32_t rma_bytes_max = 8u << 20;  ///< FC 2: 8 MiB an operation
    uint32_t rma_outstanding_max = 0;   ///< operations that may lack their requester's notification
    uint32_t registrations_max = 0;
    uint32_t send_packets_max = UINT32_MAX;  ///< of one send(); more are kBadParam
};

/// Events that a device's RMA unit counts; each has one cause.
struct RmaCounters {
    uint64_t rma_posted = 0;
    uint64_t rma_completed = 0;
    uint64_t rma_bytes = 0;
    uint64_t rma_failed = 0;
    uint64_t atu_faults = 0;
};

/// Events that a device counts, those of its RMA unit included; each has one cause.
struct DeviceCounters : RmaCounters {
#define VELO_DEVICE_COUNTER(name, field, text) uint64_t field = 0;
#include "velo/counters.def"
    uint64_t packets_unknown_source = 0;  ///< dropped: from a process that never connected
    uint64_t registrations = 0;  ///< now valid
    uint64_t faults_injected = 0;
};

/// The part that every device has. `D` is opened by its owner, in most cases by its constructor, D(const
/// DeviceConfig&), which throws base::SetupError; its destructor closes it.
template <class D>
concept PacketDevice =
    requires(D device, const D& view, DeviceAddr peer, std::span<std::byte> out, std::span<const std::byte> in,
             uint32_t packets, base::Failure* failure, uint64_t now_ns, PacketStatus (*fill)(uint32_t, std::byte*)) {
        /// Writes this process's opaque address, at most kDeviceAddressBytesMax; returns its length.
        { view.address(out) } -> std::same_as<size_t>;

        /// The device's properties that others may lack.
        { view.traits() } -> std::same_as<const DeviceTraits&>;

        /// Connects to a published address; idempotent. kBadParam: not an address of this device;
        /// kUnsupported: unreachable from here. `failure`, unless nullptr, then says why.
        { device.connect(in, peer, failure) } -> std::same_as<Status>;

        /// Facts about a connected peer.
        { view.peer(peer) } -> std::same_as<DevicePeer>;

        /// Sends `packets` packets in order, all or none. `fill(i, payload)` writes packet i's payload and returns
        /// its status; it is called once for each packet, in any order, and the device adds the source. A fill may
        /// also have `body()` (BodyPackets), or `run(i)` (PacketRun): those need no call.
        /// kOk: they go in this order, before what is sent later. A network that refuses them after all has them held
        /// by the device until its next progress() (DeviceReport::held_packets); a device answers kAgain where it can
        /// foresee that. kAgain: fill was not called; no free slots (kGuarded, kContact), too much on its way, or not
        /// connected through yet. kPeerDead.
        { device.send(peer, packets, Admission::kCredited, fill) } -> std::same_as<Status>;

        /// The oldest unread packet and its source, or nullptr. It stays until advance(). Packets of one source
        /// come in the order sent. A source that never connected is dropped and counted.
        { device.peek(peer) } -> std::same_as<const Packet*>;

        /// Frees the slot that peek() showed.
        { device.advance() } -> std::same_as<void>;

        /// Frees the slot that peek() showed and those behind it that are of the same source and status, up to
        /// `packets` in all, and copies their payloads, kPayloadBytes each, to `out`. Returns how many; a device
        /// for which this is not faster than peek() and advance() returns 0 and does nothing.
        { device.take_run(out.data(), packets) } -> std::same_as<uint32_t>;

        /// Does what the hardware would do by itself. Returns how many things happened.
        { device.progress(now_ns) } -> std::same_as<uint32_t>;

        /// A peer's mailbox as far as it can be seen from here, and this process's own for kNoAddr.
        { view.report(peer) } -> std::same_as<DeviceReport>;

        { view.limits() } -> std::same_as<DeviceLimits>;
        { view.counters() } -> std::same_as<DeviceCounters>;
    };

/// Registrations and operations. A device without RMA answers kUnsupported, and the engine sends messages instead.
template <class D>
concept RmaDevice = requires(D device, Registration registration, const RmaOperation& operation,
                             Notification& notification) {
    /// Names [base, base + bytes) to the network. kNoResource: the table is full, use another way.
    {
        device.register_memory(static_cast<void*>(nullptr), size_t{}, kAccessAny, registration)
        } -> std::same_as<Status>;

    /// Revokes; later accesses with its key are ATU faults, with DeviceTraits::checks_keys. Without it, there must be
    /// none any more. kBadParam: not a valid registration.
    { device.deregister(registration) } -> std::same_as<Status>;

    /// Queues an operation at its port. kAgain: the port's queue is full; kBadParam: too long, bad port,
    /// bad alignment. Every accepted operation notifies its requester exactly once, if asked to. Atomics with
    /// one peer by one port are carried out in order: when one ends with kNotBegun, so do those that were
    /// posted behind it by then.
    { device.post(operation) } -> std::same_as<Status>;

    /// Takes the oldest notification; false when there is none.
    { device.poll_notification(notification) } -> std::same_as<bool>;
};

/// The end of processes, as far as the device knows of it. Without it peers live as long as this process.
template <class D>
concept PeerHealth = requires(D device, const D& view, DeviceAddr peer) {
    /// False once the peer process is known to have ended.
    { view.alive(peer) } -> std::same_as<bool>;

    /// Says how this process is going to end; to be called at most shortly before it does. Closing the
    /// device says kClosed.
    { device.announce_ending(base::Ending::kClosed) } -> std::same_as<void>;

    /// A peer's announcement of its end; kNone for one that is not alive: it died.
    { view.announced_ending(peer) } -> std::same_as<base::Ending>;
};

/// The watch over peers, which devices with PeerHealth have as well, unless they have DeviceTraits::sees_processes.
template <class D>
concept PeerWatch = PeerHealth<D> && requires(D device, DeviceAddr peer) {
    /// Something of the engine's waits for this peer now. The device finds out whether the peer answers, and takes one
    /// for ended that is not heard of for peer_timeout_ns, and of which nothing else says that it runs: a process that
    /// computes answers nothing. To be called again every so often as long as that is so; a peer that was not watched
    /// for a second is asked no more. kNoAddr: any peer that a packet was exchanged with may be the one that is waited
    /// for.
    { device.watch(peer) } -> std::same_as<void>;
};

/// The election of the one that reports an end, which devices with PeerHealth have as well, if they have
/// DeviceTraits::elects.
template <class D>
concept ReportElection = PeerHealth<D> && requires(D device, DeviceAddr peer) {
    /// True for the first process that asks about a peer, so that one reports for all that it has died.
    { device.claim_report(peer) } -> std::same_as<bool>;
};

/// A device with a part of PeerHealth is one whose signatures are wrong.
template <class D>
concept PeerHealthOrNone = PeerHealth<D> || !(requires(const D& view) { view.alive(kNoAddr); } ||
                                              requires(D device) { device.announce_ending(base::Ending::kClosed); } ||
                                              requires(const D& view) { view.announced_ending(kNoAddr); } ||
                                              requires(D device) { device.watch(kNoAddr); } ||
                                              requires(D device) { device.claim_report(kNoAddr); });

/// The device of an engine.
template <class D>
concept Device = PacketDevice<D> && RmaDevice<D> && PeerHealthOrNone<D>;

/// The health of peers over any device; a device leaves out what it has nothing to do for.
namespace health {

template <class D>
[[nodiscard]] bool alive(const D& device, DeviceAddr peer) {
    if constexpr (PeerHealth<D>) {
        return device.alive(peer);
    } else {
        return true;
    }
}

template <class D>
void announce_ending(D& device, base::Ending ending) {
    if constexpr (PeerHealth<D>) device.announce_ending(ending);
}

template <class D>
[[nodiscard]] base::Ending announced_ending(const D& device, DeviceAddr peer) {
    if constexpr (PeerHealth<D>) {
        return device.announced_ending(peer);
    } else {
        return base::Ending::kNone;
    }
}

template <class D>
void watch(D& device, DeviceAddr peer) {
    if constexpr (PeerWatch<D>) device.watch(peer);
}

/// Without an election each process is the first one.
template <class D>
[[nodiscard]] bool claim_report(D& device, DeviceAddr peer) {
    if constexpr (ReportElection<D>) {
        return device.claim_report(peer);
    } else {
        return true;
    }
}

}  // namespace health

}  // namespace velo
