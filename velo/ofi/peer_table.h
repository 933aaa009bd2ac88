/// The processes that the device knows: by DeviceAddr, by source and by token.
///
/// A peer is known from its address on. Nothing is resolved and nothing is sent before the first message to it, so a
/// silent peer costs memory only: its entry, and the mailbox's slots for its first messages.
///
/// Owner: the device. Thread: the device's. Invariant: of the peers with one source, one at most has not ended.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "velo/base/check.h"
#include "velo/device/device.h"
#include "velo/ofi/contact_gate.h"
#include "velo/ofi/endpoint.h"
#include "velo/ofi/frames.h"
#include "velo/ofi/host_probe.h"
#include "velo/ofi/mailbox.h"
#include "velo/ofi/peer_health.h"
#include "velo/ofi/wire.h"

namespace velo::ofi {

struct Peer {
    /// Written by Transmitter.
    struct Outgoing {
        Frame* held = nullptr;  ///< accepted by send(), and not taken by the provider yet; the first of them
        uint32_t signals = 0;   ///< SignalBits to send
        uint32_t messages = 0;  ///< sent after the hello
        uint8_t packets = 0;    ///< sent, modulo 256
        bool hello_sent = false;
        bool driven = false;  ///< in Transmitter's list
        bool said_closing = false;
        bool closing_heard = false;  ///< by the peer, with all before it
        ContactSender contact;
        Packet contact_packet = {};
    };
    /// Written by Arrivals and identify().
    struct Incoming {
        uint32_t messages = 0;  ///< received after its hello
        uint8_t packets = 0;    ///< received, modulo 256
        bool hello_received = false;
        bool source_seen = false;  ///< its messages come with its address
    };
    /// Written by PeerWatch.
    struct Watched {
        PeerHealth::Peer health;
        std::unique_ptr<HostProbe> probe;  ///< while it is watched and silent
        bool listed = false;               ///< in PeerWatch's list
    };

    DevicePeer facts;
    uint64_t token = 0;
    fi_addr_t at = FI_ADDR_NOTAVAIL;
    std::vector<std::byte> endpoint;  ///< its name
    uint32_t part_packets = 0;        ///< of the longest message to it
    bool dead = false;
    base::Ending ending = base::Ending::kNone;
    Incoming in;
    Watched watch;
    Outgoing out;
};

class PeerTable {
  public:
    /// `own`: this process's address. `planned`: peers whose own messages the mailbox has slots for. `other_jobs`:
    /// processes of other jobs may be peers. References are borrowed.
    PeerTable(const Endpoint& endpoint, Mailbox& mailbox, ContactGate& gate, const Address& own, size_t planned,
              bool other_jobs)
        : endpoint_(endpoint),
          mailbox_(mailbox),
          gate_(gate),
          own_(own),
          with_room_(planned),
          other_jobs_(other_jobs) {}

    /// The peer of an address that is well formed, which is new or known. kUnsupported: it cannot be one; `failure`,
    /// unless nullptr, then says why.
    Status know(const Address& address, DeviceAddr& peer, base::Failure* failure);
    /// Tells libfabric of the peer, once. False: it is no name of this provider, or there is no memory.
    bool resolve(DeviceAddr addr) { return peers_[addr]->at != FI_ADDR_NOTAVAIL || insert(*peers_[addr]); }
    /// The peer that a message is of; kNoAddr: none whose hello has come. The provider's word for where it came from
    /// counts more than what the message says. It has none for messages that came before the peer was inserted.
    [[nodiscard]] DeviceAddr identify(uint32_t source, fi_addr_t from) {
        const auto found = by_source_.find(source);
        if (found == by_source_.end()) return kNoAddr;
        Peer& peer = *peers_[found->second];
        if (!peer.in.hello_received || peer.dead) return kNoAddr;
        if (from == peer.at) {
            peer.in.source_seen = true;
        } else if (from != FI_ADDR_NOTAVAIL || peer.in.source_seen) {
            return kNoAddr;
        }
        return found->second;
    }
    /// Messages of the peer can be distinguished from those in its name.
    [[nodiscard]] bool place_known(const Peer& peer) const {
        return peer.in.source_seen || !endpoint_.has_source();
    }

    [[nodiscard]] DeviceAddr size() const { return static_cast<DeviceAddr>(peers_.size()); }
    [[nodiscard]] Peer& operator[](DeviceAddr addr) {
        VELO_DCHECK(addr < peers_.size(), "device address %u of %zu", uint32_t{addr}, peers_.size());
        return *peers_[addr];
    }
    [[nodiscard]] const Peer& operator[](DeviceAddr addr) const { return *peers_[addr]; }
    /// An address that the caller was given, as far as this process's own code keeps to that.
    [[nodiscard]] Peer& checked(DeviceAddr addr) {
        VELO_CHECK(addr < peers_.size(), "device address %u of %zu", uint32_t{addr}, peers_.size());
        return *peers_[addr];
    }
    [[nodiscard]] const Peer& checked(DeviceAddr addr) const {
        VELO_CHECK(addr < peers_.size(), "device address %u of %zu", uint32_t{addr}, peers_.size());
        return *peers_[addr];
    }

  private:
    /// Why the address is no peer's; nullptr: it may be one.
    [[nodiscard]] const char* why_refused(const AddressHead& head, std::string_view provider) const;
    bool insert(Peer& peer) const;

    const Endpoint& endpoint_;
    Mailbox& mailbox_;
    ContactGate& gate_;
    const Address& own_;
    size_t with_room_;  ///< peers whose own messages the mailbox has slots for
    bool other_jobs_;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::unordered_map<uint32_t, DeviceAddr> by_source_;
    std::unordered_map<uint64_t, DeviceAddr> by_token_;
};

}  // namespace velo::ofi
