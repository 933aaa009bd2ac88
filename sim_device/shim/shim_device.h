/// The software EXTOLL device for many processes of one host (FC 2; velo/device/device.h is its contract).
///
/// It needs no hardware, daemon or privilege: each process creates one shared segment (layout.h), and
/// whoever talks to it maps that segment. VELO packets are stored straight into the receiver's mailbox; puts
/// and gets copy between the two processes' memories; atomics are served by their target's progress().
/// Work that the hardware would do by itself happens in progress(), so a process that does not call it neither
/// moves its own operations nor serves requests; packets and others' puts and gets reach it all the same. One
/// that does call it moves parts of others' long puts and gets, so that two processors copy (copy_helper.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sim_device/shim/abandoned_claims.h"
#include "sim_device/shim/hole_watch.h"
#include "sim_device/shim/packet_faults.h"
#include "sim_device/shim/peer_table.h"
#include "sim_device/shim/request_server.h"
#include "sim_device/shim/rma_unit.h"
#include "velo/device/device.h"
#include "velo/device/faults.h"

namespace velo::shim {

/// Events that DeviceCounters has no field for.
struct ShimCounters {
    uint64_t contacts_accepted = 0;
    uint64_t contacts_refused = 0;
    uint64_t malformed = 0;         ///< requests, answers and notifications that made no sense; dropped
    uint64_t abandoned_claims = 0;  ///< times that a ring went on without what a dead process had claimed
};

/// Thread: one at a time. Not to be used by a child of fork(), which shares none of its memory.
class ShimDevice {
  public:
    /// Throws base::SetupError.
    [[gnu::cold]] explicit ShimDevice(const DeviceConfig& config);
    ShimDevice(const ShimDevice&) = delete;
    ShimDevice& operator=(const ShimDevice&) = delete;
    /// To peers a device that was closed is a process that ended.
    ~ShimDevice();

    size_t address(std::span<std::byte> out) const { return peers_.address(out); }
    [[nodiscard]] const DeviceTraits& traits() const { return kTraits; }
    /// Attaches to a process and announces this one to it. A process of another job, on another host, of
    /// another user or in another PID namespace is kUnsupported, as is one whose node and VPID are those of
    /// a living peer.
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure = nullptr) {
        return peers_.connect(address, peer, failure);
    }
    [[nodiscard]] DevicePeer peer(DeviceAddr peer) const { return checked(peer).facts; }
    /// As of the last look, which progress() takes every kLifeCheckNs.
    [[nodiscard]] bool alive(DeviceAddr peer) const { return !checked(peer).dead && !dead(); }

    void announce_ending(base::Ending ending) { segment_.announce_ending(ending); }
    [[nodiscard]] base::Ending announced_ending(DeviceAddr peer) const;
    bool claim_report(DeviceAddr peer) { return checked(peer).segment.claim_report(); }

    /// Besides what the contract says: kUnsupported when the peer has no mailbox, kBadParam when `packets` is
    /// none or more than its mailbox holds.
    template <class Fill>
    Status send(DeviceAddr to, uint32_t packets, Admission admission, Fill&& fill) {
        Peer& peer = checked(to);
        if (peer.dead) [[unlikely]]
            return Status::kPeerDead;
        if (packets - 1 >= peer.facts.mailbox_slots) [[unlikely]] {
            return peer.facts.mailbox_slots == 0 ? Status::kUnsupported : Status::kBadParam;
        }
        if (!peer.announced && peers_.announce(peer) != Status::kOk) [[unlikely]]
            return Status::kAgain;
        if (admission == Admission::kContact) [[unlikely]] {
            if (packets != 1) return Status::kBadParam;
            if (!faults_) [[likely]]
                return send_contact(peer, fill);
            if (!peer.mailbox.take_contact_slot(peer.contact_slots)) return Status::kAgain;
            admission = Admission::kCredited;  // its slot is certain now
        }
        if (faults_) [[unlikely]] {
            bool now = true;
            const Status status = admit_under_faults(to, packets, admission, now);
            if (status != Status::kOk) return status;
            if (!now) {
                packet_faults_.delay(to, packets, admission, now_ns_, fill);
                counters_.packets_sent += packets;
                return Status::kOk;
            }
        }
        const Status status = transmit(peer, packets, admission, fill);
        if (status == Status::kOk) counters_.packets_sent += packets;
        return status;
    }

    const Packet* peek(DeviceAddr& from) {
        const Packet* packet = mailbox_.peek();
        if (packet == nullptr) return nullptr;
        const auto source = static_cast<uint32_t>(mailbox_.shown_status() & kSourceMask);
        if (source != last_source_ || mailbox_.after_hole()) [[unlikely]] {
            packet = find_source(packet);
            if (packet == nullptr) return nullptr;
        }
        if (faults_ && packet_faults_.stalled(mailbox_.position(), now_ns_)) [[unlikely]]
            return nullptr;
        from = last_from_;
        return packet;
    }

    void advance() {
        mailbox_.advance();
        ++counters_.packets_received;
    }

    uint32_t take_run(std::byte* to, uint32_t packets_max) {
        if (faults_) [[unlikely]]
            return 0;  // they strike single packets
        const uint32_t taken = mailbox_.take_run(to, packets_max);
        counters_.packets_received += taken;
        return taken;
    }

    /// kBadParam: an empty or wrapping range, or rights that are none or unknown.
    Status register_memory(void* base, size_t bytes, uint32_t access, Registration& out);
    Status deregister(const Registration& registration);

    Status post(const RmaOperation& operation) { return rma_.post(operation, now_ns_); }
    bool poll_notification(Notification& notification) { return rma_.poll_notification(notification); }
    uint32_t progress(uint64_t now_ns);

    [[nodiscard]] DeviceReport report(DeviceAddr peer) const;
    [[nodiscard]] DeviceLimits limits() const;
    [[nodiscard]] DeviceCounters counters() const;
    [[nodiscard]] ShimCounters shim_counters() const;

    static constexpr DeviceTraits kTraits = {};
    /// Bytes of a connected peer, without the mapping of its segment.
    static constexpr uint32_t kPeerBytes = sizeof(Peer) + sizeof(void*);
    /// How often processes are looked at; a death is noticed after this much of progress()'s time.
    static constexpr uint64_t kLifeCheckNs = 10'000'000;
    /// Contacts taken by one call of progress(): each costs system calls.
    static constexpr uint32_t kContactsPerProgress = 4;

  private:
    static constexpr uint64_t kSourceMask = 0xffffff;
    static constexpr uint32_t kNoSource = UINT32_MAX;

    Peer& checked(DeviceAddr addr) {
        VELO_CHECK(addr < peers_.size(), "device address %u of %u", uint32_t{addr}, peers_.size());
        return peers_[addr];
    }
    [[nodiscard]] const Peer& checked(DeviceAddr addr) const {
        VELO_CHECK(addr < peers_.size(), "device address %u of %u", uint32_t{addr}, peers_.size());
        return peers_[addr];
    }

    template <class Fill>
    Status send_contact(Peer& peer, Fill&& fill) {
        const OpenClaim claim(peers_.claims());
        if (!peer.mailbox.take_contact_slot(peer.contact_slots)) return Status::kAgain;
        peer.mailbox.write(1, source_, fill);
        ++counters_.packets_sent;
        return Status::kOk;
    }
    template <class Fill>
    Status transmit(Peer& peer, uint32_t packets, Admission admission, Fill&& fill) {
        const OpenClaim claim(peers_.claims());
        if (admission == Admission::kCredited) {
            peer.mailbox.write(packets, source_, fill);
            return Status::kOk;
        }
        const Status status = peer.mailbox.write_guarded(packets, source_, fill);
        counters_.backpressure += status == Status::kAgain;
        return status;
    }

    [[nodiscard]] bool dead() const { return faults_ && faults_->dead(); }
    Status admit_under_faults(DeviceAddr to, uint32_t packets, Admission admission, bool& now);
    uint32_t release_delayed(uint64_t now_ns);
    const Packet* find_source(const Packet* packet);
    [[gnu::cold]] void check_life();
    void report_overflow();

    std::unique_ptr<base::Faults> faults_;
    base::SharedSegment segment_;
    SegmentView own_;
    uint32_t source_;
    MailboxReader mailbox_;
    PeerTable peers_;
    base::AtuTable atu_;
    RmaUnit rma_;
    CopyHelper helper_;
    RequestServer server_;
    uint64_t now_ns_ = 0;  ///< of the last progress()
    uint64_t next_life_check_ns_ = 0;
    uint32_t last_source_ = kNoSource;  ///< of the packet that came last, and its peer
    DeviceAddr last_from_ = kNoAddr;
    DeviceCounters counters_;
    uint64_t overflows_reported_ = 0;
    int32_t owner_pid_;
    HoleWatch holes_;
    PacketFaults packet_faults_;
};

static_assert(Device<ShimDevice>);

}  // namespace velo::shim
