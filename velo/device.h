/// The contract between the engine and whatever moves its packets and its RMA operations.
///
/// A device is a class that models `Device`. There are two: the software EXTOLL device (sim_device/shim) and the
/// simulated cluster (sim_device/cluster). The engine is a template over it, so nothing here is virtual.
/// tests/conformance holds every device to this page.
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

#include "velo/base/shared_segment.h"
#include "velo/base/status.h"
#include "velo/packet.h"

namespace velo {

/// The device's name of a connected peer: dense, from 0, never reused while the device is open.
using DeviceAddr = uint32_t;
inline constexpr DeviceAddr kNoAddr = UINT32_MAX;

/// Longest opaque address that a device publishes.
inline constexpr size_t kDeviceAddressBytesMax = 128;

/// How packets are admitted to the receiver's mailbox.
enum class Admission : uint8_t {
    /// The caller holds credits: room is certain, and the reader's index is not looked at.
    kCredited,
    /// The device looks for room first; a full mailbox is back-pressure, counted, answered by kAgain.
    kGuarded,
    /// One packet, without credits, in one of the mailbox's contact slots. All senders share them, and at most
    /// so many of these packets are under way to the mailbox or in it; kAgain when all are taken. The packet's
    /// status says so (PacketStatus::contact).
    kContact,
};

/// Rights of a registration; the values are bits.
enum Access : uint8_t {
    kAccessRead = 1,    ///< source of a remote get
    kAccessWrite = 2,   ///< target of a remote put
    kAccessAtomic = 4,  ///< target of remote atomics
    kAccessAny = 7,
};

/// A registered range, as its owner published it. Flat and position-independent.
struct Registration {
    uint64_t nla = 0;    ///< network logical address of the first byte
    uint64_t bytes = 0;  ///< length of the range
    uint32_t key = 0;    ///< generation; an access with a revoked key is an ATU fault
    uint32_t access = 0;
    bool operator==(const Registration&) const = default;
};
static_assert(sizeof(Registration) == 24);

enum class RmaKind : uint8_t {
    kPut,
    kGet,
    kImmediatePut,  ///< 1 to 8 bytes out of `operand`
    kFetchAdd,      ///< 64 bits at 8-byte alignment; the old value is notified
    kCompareSwap,   ///< 64 bits at 8-byte alignment; the old value is notified
    kLock,          ///< FCAA: if *d <= compare then *d += operand; the old value is notified
    kNotification,  ///< moves nothing; a notification with `operand` at the completer
};

/// Where notifications of an operation go; the values are bits, as in librma2.
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
    uint32_t key = 0;
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

/// What a device is opened with.
struct DeviceConfig {
    uint16_t node = 0;
    uint8_t vpid = 0;
    uint64_t host_name = 0;  ///< opaque; handed to whoever we connect to
    uint64_t job_token = 0;  ///< peers with another token are refused, unless both are 0
    uint32_t mailbox_slots = 0;
    uint32_t contact_slots = 0;  ///< of the mailbox, for Admission::kContact
    uint32_t ports = 1;
    std::string faults;  ///< faults to inject, in the device's own notation; empty: none
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
};

/// Facts about an open device.
struct DeviceLimits {
    uint32_t ports = 1;
    uint32_t mailbox_slots = 0;
    uint32_t rma_bytes_max = 8u << 20;  ///< FC 2: 8 MiB an operation
    uint32_t rma_outstanding_max = 0;   ///< operations that may lack their requester's notification
    uint32_t registrations_max = 0;
};

/// Events that a device counts; each has one cause.
struct DeviceCounters {
    uint64_t packets_sent = 0;
    uint64_t packets_received = 0;
    uint64_t packets_unknown_source = 0;  ///< dropped: from a process that never connected
    uint64_t backpressure = 0;            ///< guarded sends that found the mailbox full
    uint64_t mailbox_overflows = 0;       ///< slots overwritten before they were read: a credit bug
    uint64_t rma_posted = 0;
    uint64_t rma_completed = 0;
    uint64_t rma_bytes = 0;
    uint64_t rma_failed = 0;
    uint64_t atu_faults = 0;
    uint64_t registrations = 0;  ///< now valid
    uint64_t faults_injected = 0;
};

/// See each requirement's comment. `D` is opened by its constructor, D(const DeviceConfig&), which throws
/// base::SetupError, and closed by its destructor.
template <class D>
concept Device = requires(D device, const D& view, DeviceAddr peer, std::span<std::byte> out,
                          std::span<const std::byte> in, uint32_t packets, Registration registration,
                          base::Failure* failure, const RmaOperation& operation, Notification& notification,
                          uint64_t now_ns, PacketStatus (*fill)(uint32_t, std::byte*)) {
    /// Writes this process's opaque address, at most kDeviceAddressBytesMax; returns its length.
    { view.address(out) } -> std::same_as<size_t>;

    /// Connects to a published address; idempotent. kBadParam: not an address of this device;
    /// kUnsupported: unreachable from here. `failure`, unless nullptr, then says why.
    { device.connect(in, peer, failure) } -> std::same_as<Status>;

    /// Facts about a connected peer.
    { view.peer(peer) } -> std::same_as<DevicePeer>;

    /// False once the peer process is known to have ended.
    { view.alive(peer) } -> std::same_as<bool>;

    /// Says how this process is going to end; to be called at most shortly before it does. Closing the
    /// device says kClosed.
    { device.announce_ending(base::Ending::kClosed) } -> std::same_as<void>;

    /// What a peer has said of its end; kNone for one that is not alive: it died.
    { view.announced_ending(peer) } -> std::same_as<base::Ending>;

    /// True for the first process that asks about a peer, so that one tells for all that it has died.
    { device.first_to_tell(peer) } -> std::same_as<bool>;

    /// Sends `packets` packets in order, all or none. `fill(i, payload)` writes packet i's payload and
    /// returns its status; it is called once for each packet, in any order, and the device adds the source.
    /// A fill may also have `alike()` (AlikePackets): those need no call.
    /// kAgain: no room (kGuarded) or not connected through yet, fill was not called; kPeerDead.
    { device.send(peer, packets, Admission::kCredited, fill) } -> std::same_as<Status>;

    /// The oldest unread packet and its source, or nullptr. It stays until advance(). Packets of one source
    /// come in the order sent. A source that never connected is dropped and counted.
    { device.peek(peer) } -> std::same_as<const Packet*>;

    /// Frees the slot that peek() showed.
    { device.advance() } -> std::same_as<void>;

    /// Frees the slot that peek() showed and those behind it that are of the same source and status, up to
    /// `packets` in all, and copies their payloads, kPayloadBytes each, to `out`. Returns how many; a device
    /// for which this is not faster than peek() and advance() returns 0 and does nothing.
    { device.take_alike(out.data(), packets) } -> std::same_as<uint32_t>;

    /// Names [base, base + bytes) to the network. kNoResource: the table is full, use another way.
    {
        device.register_memory(static_cast<void*>(nullptr), size_t{}, kAccessAny, registration)
        } -> std::same_as<Status>;

    /// Revokes; later accesses with its key are ATU faults. kBadParam: not a valid registration.
    { device.deregister(registration) } -> std::same_as<Status>;

    /// Queues an operation at its port. kAgain: the port's queue is full; kBadParam: too long, bad port,
    /// bad alignment. Every accepted operation notifies its requester exactly once, if asked to.
    { device.post(operation) } -> std::same_as<Status>;

    /// Takes the oldest notification; false when there is none.
    { device.poll_notification(notification) } -> std::same_as<bool>;

    /// Does what the hardware would do by itself. Returns how many things happened.
    { device.progress(now_ns) } -> std::same_as<uint32_t>;

    /// A peer's mailbox as far as it can be seen from here, and this process's own for kNoAddr.
    { view.report(peer) } -> std::same_as<DeviceReport>;

    { view.limits() } -> std::same_as<DeviceLimits>;
    { view.counters() } -> std::same_as<DeviceCounters>;
};

}  // namespace velo
