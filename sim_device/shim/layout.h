/// Layout of a process's shared segment (software EXTOLL device; FC 2).
///
/// One segment a process, created by it and mapped by every process that has talked to it. All of it may be
/// written by peers: whoever reads checks what it read, and nothing here is a pointer.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "sim_device/shim/link.h"
#include "sim_device/shim/offer.h"
#include "velo/base/mpsc_ring.h"
#include "velo/device/device.h"
#include "velo/os/shared_segment.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/packet.h"

namespace velo::shim {

inline constexpr uint32_t kPortsMax = 8;  ///< EXTOLL's links are six; spec 2 asks for 1 to 8
/// 64 x 2^26 = 4 GiB, far past what flow control plans; keeps every size computation far from overflow.
inline constexpr uint32_t kMailboxSlotsMax = 1u << 26;
inline constexpr uint32_t kAtuEntries = 4096;
inline constexpr uint32_t kNotificationCells = 512;  ///< of peers' responder and completer notifications
inline constexpr uint32_t kRequestCells = 64;        ///< a port
inline constexpr uint32_t kContactCells = 64;
/// Requests that a process may have at others' request rings. Each has its answer's cell set aside, so an
/// answer always finds a cell; as many cells again take the late answers of processes believed dead.
inline constexpr uint32_t kAnswersMax = 128;
inline constexpr uint32_t kAnswerCells = 2 * kAnswersMax;

/// State of the process behind a segment; anything but kOpen is the end.
enum class Life : uint32_t {
    kOpen = 1,
    kClosed,
    kDead,  ///< injected (faults.h): to others it is as if the process had ended
};

/// A source as packets carry it: VPID << 16 | node, as in EXTOLL.
[[nodiscard]] constexpr uint32_t source_id(uint16_t node, uint8_t vpid) {
    return uint32_t{vpid} << 16 | node;
}

/// Identity of a process. In a segment it is what its owner said; the owner keeps its own copy elsewhere.
struct Identity {
    uint64_t host_name = 0;
    uint64_t job_token = 0;
    uint32_t mailbox_slots = 0;
    uint32_t contact_slots = 0;
    uint32_t ports = 1;
    uint16_t node = 0;
    uint8_t vpid = 0;

    [[nodiscard]] uint32_t source() const { return source_id(node, vpid); }
};

/// "velshim" and the version of this layout.
inline constexpr uint64_t kShimMagic = 0x76656c7368696d06;

/// Owner: the segment's creator. Peers read it once, at attach, but for `life`, `ports_down`, `claims`, `copying`
/// and `link`, which they also write.
struct DeviceHeader {
    uint64_t magic;
    Identity identity;
    std::atomic<Life> life;
    std::atomic<uint32_t> ports_down;  ///< bit i: port i; by injected faults
    /// Odd while the owner stands between claiming cells in someone's ring or mailbox and publishing them
    /// (abandoned_claims.h). On a line of its own: it changes with every send.
    alignas(64) std::atomic<uint64_t> claims;
    /// Odd while the owner moves a part of a peer's operation, from before the claim until after the report
    /// (copy_helper.h).
    alignas(64) std::atomic<uint64_t> copying;
    alignas(64) LinkClocks link;
};

struct MailboxControl {
    alignas(64) std::atomic<uint64_t> written;  ///< next position to claim; senders
    alignas(64) std::atomic<uint64_t> read;     ///< next position to read; the owner
    /// Contact slots that are taken: senders add, the owner subtracts. The owner finds those of senders that died
    /// before their packet (abandoned_claims.h).
    alignas(64) std::atomic<uint32_t> contacts;
};

/// A process that has just connected to the owner of the ring.
struct Contact {
    base::SegmentAddress segment;
};

/// The key of a registration as a request carries it: those of the ATU have 32 bits, and a longer one fits none.
[[nodiscard]] constexpr uint32_t short_key(uint64_t key) {
    return key <= UINT32_MAX ? static_cast<uint32_t>(key) : 0;
}

/// An RMA operation that its target executes: it needs the target's CPU for atomicity or order. A put or get
/// is an offer (offer.h) instead, and not answered: `operand` is the requester's address, `compare` the
/// terms.
struct Request {
    uint64_t nla = 0;
    uint64_t operand = 0;
    uint64_t compare = 0;
    uint32_t key = 0;           ///< short_key()
    uint32_t operation_id = 0;  ///< the requester's; handed back in the answer
    uint16_t node = 0;          ///< requester
    uint16_t cookie = 0;
    uint8_t vpid = 0;  ///< requester
    uint8_t kind = 0;  ///< RmaKind
    uint8_t bytes = 0;
    uint8_t notify = 0;
};

/// The target's word on a Request.
struct Answer {
    uint64_t value;
    uint32_t operation_id;
    uint16_t node;  ///< target
    uint8_t vpid;   ///< target
    uint8_t status;
};

using NotificationRing = base::MpscRing<Notification, 32>;
using AnswerRing = base::MpscRing<Answer, 32>;
using RequestRing = base::MpscRing<Request, 64>;
using ContactRing = base::MpscRing<Contact, 64>;
static_assert(NotificationRing::bytes_for(1) - NotificationRing::bytes_for(0) == 32);
static_assert(AnswerRing::bytes_for(1) - AnswerRing::bytes_for(0) == 32);
static_assert(RequestRing::bytes_for(1) - RequestRing::bytes_for(0) == 64);
static_assert(ContactRing::bytes_for(1) - ContactRing::bytes_for(0) == 64);

/// Offsets, in bytes from the segment's beginning. Equal arguments give equal layouts in every process.
struct Layout {
    size_t mailbox_control, contacts, notifications, answers, requests, offers, atu, slots, bytes;

    constexpr Layout(uint32_t mailbox_slots, uint32_t ports) {
        size_t at = base::SharedSegment::kHeaderBytes;
        const auto place = [&at](size_t length) {
            const size_t offset = at;
            at = base::round_up(at + length, 64);
            return offset;
        };
        place(sizeof(DeviceHeader));
        mailbox_control = place(sizeof(MailboxControl));
        contacts = place(ContactRing::bytes_for(kContactCells));
        notifications = place(NotificationRing::bytes_for(kNotificationCells));
        answers = place(AnswerRing::bytes_for(kAnswerCells));
        requests = place(RequestRing::bytes_for(kRequestCells) * ports);
        offers = place(sizeof(OfferSlot) * kOfferSlots);
        atu = place(base::AtuTable::bytes_for(kAtuEntries));
        // A process without a mailbox keeps one slot that is never written: its reader needs no special case.
        slots = place(kPacketBytes * std::max<size_t>(mailbox_slots, 1));
        bytes = at;
    }
};
static_assert(RequestRing::bytes_for(kRequestCells) % 64 == 0);
static_assert(Layout(256, 1).bytes < 192 * 1024, "an idle process costs little");

/// Typed access to a mapped segment whose size was checked against its layout. Does not own it.
class SegmentView {
  public:
    SegmentView() = default;
    SegmentView(std::byte* memory, const Layout& layout) : memory_(memory), layout_(layout) {}

    [[nodiscard]] DeviceHeader& header() const {
        return *reinterpret_cast<DeviceHeader*>(memory_ + base::SharedSegment::kHeaderBytes);
    }
    [[nodiscard]] MailboxControl* mailbox_control() const {
        return reinterpret_cast<MailboxControl*>(memory_ + layout_.mailbox_control);
    }
    [[nodiscard]] Packet* slots() const { return reinterpret_cast<Packet*>(memory_ + layout_.slots); }
    [[nodiscard]] ContactRing contacts() const { return {memory_ + layout_.contacts, kContactCells}; }
    [[nodiscard]] NotificationRing notifications() const {
        return {memory_ + layout_.notifications, kNotificationCells};
    }
    [[nodiscard]] AnswerRing answers() const { return {memory_ + layout_.answers, kAnswerCells}; }
    [[nodiscard]] RequestRing requests(uint32_t port) const {
        return {memory_ + layout_.requests + port * RequestRing::bytes_for(kRequestCells), kRequestCells};
    }
    [[nodiscard]] OfferSlot* offers() const { return reinterpret_cast<OfferSlot*>(memory_ + layout_.offers); }
    [[nodiscard]] std::byte* atu_memory() const { return memory_ + layout_.atu; }
    [[nodiscard]] base::AtuView atu() const { return {atu_memory(), kAtuEntries}; }

  private:
    std::byte* memory_ = nullptr;
    Layout layout_{0, 1};
};

}  // namespace velo::shim
