/// The processes that this one has talked to: attached segments, names, and whether they live.
///
/// Nothing exists for a process until one of the two connects. The one that does writes a contact entry into
/// the other's contact ring before its first packet; the other attaches in return when it reads the entry.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "sim_device/shim/layout.h"
#include "sim_device/shim/mailbox.h"
#include "sim_device/shim/source_index.h"
#include "velo/os/life_watch.h"

namespace velo::shim {

struct Peer {
    MailboxWriter mailbox;
    SegmentView view;
    uint32_t source;  ///< layout.h
    uint32_t contact_slots;
    uint32_t ports;
    bool dead = false;
    bool announced = false;  ///< it has our contact entry, or sent us its own
    DevicePeer facts;
    base::SharedSegment segment;
};

/// Events that no other layer has a counter for.
struct ContactCounters {
    uint64_t accepted = 0;
    uint64_t refused = 0;  ///< not attachable, of another job, or of a name that is taken
};

/// Thread: the owner's. A device address is an index here and stays valid.
class PeerTable {
  public:
    /// `own`: this process's segment, open, its header filled in with `identity`.
    PeerTable(const base::SegmentAddress& own_address, SegmentView own, const Identity& identity, DeviceLog log);

    /// Device::address() and Device::connect().
    size_t address(std::span<std::byte> out) const;
    Status connect(std::span<const std::byte> address, DeviceAddr& peer, base::Failure* failure);

    /// Announces this process to a peer, before anything that it would have to answer. kAgain: its contact ring
    /// is full.
    Status announce(Peer& peer);

    /// Reads up to `budget` contact entries. Returns how many there were.
    uint32_t take_contacts(uint32_t budget);

    /// The peer that a packet or a request comes from, or kNoAddr. Looks into the contact ring when the
    /// source is not known yet.
    DeviceAddr find_source(uint32_t source);

    /// Packets that still come from this peer, which has ended, are of an unknown source from now on.
    void forget_source(DeviceAddr peer) { by_source_.set(peers_[peer]->source, kNoAddr); }

    /// Marks processes that have ended and appends them to `died`. One system call, and a look at each
    /// peer's liveness word.
    void check_life(std::vector<DeviceAddr>& died);

    [[nodiscard]] Peer& operator[](DeviceAddr addr) { return *peers_[addr]; }
    [[nodiscard]] const Peer& operator[](DeviceAddr addr) const { return *peers_[addr]; }
    [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(peers_.size()); }
    /// This process.
    [[nodiscard]] const Identity& identity() const { return identity_; }
    [[nodiscard]] const DeviceLog& log() const { return log_; }
    /// This process's DeviceHeader::claims.
    [[nodiscard]] std::atomic<uint64_t>& claims() { return own_.header().claims; }
    [[nodiscard]] ContactRing& contact_ring() { return contacts_; }
    [[nodiscard]] const ContactCounters& contact_counters() const { return counters_; }

  private:
    [[gnu::cold]] Status attach(const base::SegmentAddress& address, DeviceAddr& peer, base::Failure& why);
    [[gnu::cold]] Status admit(base::SharedSegment segment, DeviceAddr addr);

    base::SegmentAddress own_address_;
    SegmentView own_;
    Identity identity_;
    DeviceLog log_;
    ContactRing contacts_;
    base::LifeWatch life_;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::unordered_map<uint64_t, DeviceAddr> by_token_;  ///< set-up only
    SourceIndex by_source_;
    ContactCounters counters_;
};

}  // namespace velo::shim
