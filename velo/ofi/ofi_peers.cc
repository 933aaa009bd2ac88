// Peers of the device over libfabric: how they are known, contacted, answered, watched, and how they end.
#include <algorithm>
#include <utility>

#include "velo/ofi/interfaces.h"
#include "velo/ofi/ofi_device.h"
#include "velo/ofi/provider.h"

namespace velo::ofi {
namespace {

void explain(base::Failure* failure, const char* why) {
    if (failure != nullptr) *failure = {.call = why, .error = 0};
}

}  // namespace

Status OfiDevice::connect(std::span<const std::byte> bytes, DeviceAddr& peer, base::Failure* failure) {
    Address address;
    const Status status = read_address(bytes, address);
    if (status == Status::kUnsupported) explain(failure, "its velo is of another version");
    if (status == Status::kBadParam) explain(failure, "its address is damaged");
    return status == Status::kOk ? know(address, peer, failure) : status;
}

/// A peer by an address that is well formed. Nothing is resolved, and nothing is sent.
Status OfiDevice::know(const Address& address, DeviceAddr& out, base::Failure* failure) {
    const AddressHead& head = address.head;
    if (const auto known = by_token_.find(head.token); known != by_token_.end()) {
        out = known->second;
        return Status::kOk;
    }
    if (address.provider() != endpoint_.provider() || head.name_format != endpoint_.info().addr_format) {
        explain(failure, "its device uses another provider of libfabric, or other addresses");
        return Status::kUnsupported;
    }
    if (head.job_token != config_.job_token && config_.contact_slots == 0) {
        explain(failure, "it is of another job");
        return Status::kUnsupported;
    }
    const uint32_t source = source_of(head.node, head.vpid);
    const auto same = by_source_.find(source);
    if (source == source_ || (same != by_source_.end() && !peers_[same->second]->dead)) {
        explain(failure, "another process has its node and VPID");
        return Status::kUnsupported;
    }
    auto peer = std::make_unique<Peer>();
    peer->facts = {
        .node = head.node, .vpid = head.vpid, .host_name = head.host_name, .mailbox_slots = head.mailbox_slots};
    peer->token = head.token;
    // Frames hold no more than this process's own mailbox takes.
    peer->part_packets =
        std::min(endpoint_.part_packets(head.mailbox_slots), endpoint_.part_packets(config_.mailbox_slots));
    peer->endpoint.assign(address.endpoint().begin(), address.endpoint().end());
    const auto addr = static_cast<DeviceAddr>(peers_.size());
    peers_.push_back(std::move(peer));
    // Those of other jobs come beside the ones that were planned for.
    while (peers_.size() > peers_with_room_) peers_with_room_ += mailbox_.extend() / kControlBytesPerPeer;
    by_source_[source] = addr;
    by_token_[head.token] = addr;
    gate_.know(addr);
    out = addr;
    return Status::kOk;
}

/// Tells libfabric of the peer, if it was not done yet.
bool OfiDevice::resolve(DeviceAddr addr) {
    Peer& peer = *peers_[addr];
    if (peer.at != FI_ADDR_NOTAVAIL) return true;
    peer.at = endpoint_.insert(peer.endpoint);
    if (peer.at == FI_ADDR_NOTAVAIL) return false;
    by_address_[peer.at] = addr;
    return true;
}

bool OfiDevice::send_hello(DeviceAddr addr) {
    Peer& peer = *peers_[addr];
    if (!resolve(addr)) return false;
    std::array<Packet, kHelloSlotsMax> slots;
    const uint32_t count = write_hello({.receiver_token = peer.token, .sender = own_}, source_, slots);
    if (!transmit(addr, slots.data(), count)) return false;
    peer.hello_sent = true;
    peer.messages_sent = 0;
    ++ofi_counters_.hellos_sent;
    return true;
}

/// Queues this peer: its due messages leave as soon as the provider takes them.
void OfiDevice::drive(DeviceAddr addr) {
    Peer& peer = *peers_[addr];
    if (peer.driven || peer.dead) return;
    peer.driven = true;
    driven_.push_back(addr);
}

/// Returns whether all of it was said.
bool OfiDevice::drive_peer(DeviceAddr addr) {
    Peer& peer = *peers_[addr];
    if (peer.dead) return true;
    if (!peer.hello_sent && !send_hello(addr)) return false;
    while (peer.held != nullptr) {
        // A frame comes back with its completion, perhaps at once.
        Frame* next = peer.held->next;
        if (!transmit_frame(*peer.held)) return false;
        peer.held = next;
    }
    if (peer.contact.to_resend()) {
        if (!transmit(addr, &peer.contact_packet, 1)) return false;
        peer.contact.sent();
    }
    if (peer.due == 0) return true;
    Packet slot;
    const Signal signal = {.receiver_token = peer.token,
                           .bits = peer.due,
                           .ending = static_cast<uint32_t>(ending_),
                           .messages = peer.messages_sent};
    write_signal(signal, source_, slot);
    // The last word waits for its completion: then all before it has left as well.
    const bool last = (peer.due & kClosing) != 0;
    if (!transmit(addr, &slot, 1, last)) return false;
    ofi_counters_.pings_sent += (peer.due & kPing) != 0;
    peer.due = 0;
    return true;
}

void OfiDevice::drive_peers() {
    for (size_t i = 0; i < driven_.size();) {
        const DeviceAddr addr = driven_[i];
        if (!drive_peer(addr)) {
            ++i;
            continue;
        }
        peers_[addr]->driven = false;
        driven_[i] = driven_.back();
        driven_.pop_back();
    }
}

void OfiDevice::watch(DeviceAddr addr) {
    if (addr == kNoAddr) return watch_known();
    Peer& peer = checked(addr);
    if (peer.dead) return;
    health_.watch(peer.health);
    if (peer.watched) return;
    peer.watched = true;
    watched_.push_back(addr);
}

/// Those that were never written to, and have not written, are not connected to for this.
void OfiDevice::watch_known() {
    for (DeviceAddr addr = 0; addr < peers_.size(); ++addr) {
        if (peers_[addr]->at != FI_ADDR_NOTAVAIL || peers_[addr]->hello_received) watch(addr);
    }
}

void OfiDevice::check_health() {
    gate_.expire(now_ns_);
    call_contacts();
    for (size_t i = 0; i < watched_.size();) {
        const DeviceAddr addr = watched_[i];
        if (check_health(addr)) {
            ++i;
            continue;
        }
        peers_[addr]->watched = false;
        peers_[addr]->probe.reset();
        watched_[i] = watched_.back();
        watched_.pop_back();
    }
}

/// Returns whether the peer is still watched.
bool OfiDevice::check_health(DeviceAddr addr) {
    Peer& peer = *peers_[addr];
    if (peer.dead) return false;
    switch (health_.due(peer.health)) {
        case PeerHealth::Due::kDead: peer_died(addr, base::Ending::kNone, "it does not answer"); return false;
        case PeerHealth::Due::kProbe: probe(addr); break;
        case PeerHealth::Due::kPing:
            PeerHealth::pinged(peer.health);
            peer.due |= kPing;
            drive(addr);
            break;
        case PeerHealth::Due::kNothing:
            // Heard of, perhaps after a long silence.
            if (peer.health.pings == 0) peer.probe.reset();
            break;
    }
    return !peer.dead && health_.watches(peer.health);
}

/// Asks its host whether a silent process runs.
void OfiDevice::probe(DeviceAddr addr) {
    Peer& peer = *peers_[addr];
    if (!HostProbe::possible(endpoint_.info().addr_format)) return;
    if (!peer.probe) peer.probe = std::make_unique<HostProbe>();
    switch (peer.probe->ask(peer.endpoint)) {
        case HostProbe::Answer::kRuns: health_.runs(peer.health); break;
        case HostProbe::Answer::kGone: peer_died(addr, base::Ending::kNone, "its host says that it has ended"); break;
        case HostProbe::Answer::kPending: break;
    }
}

/// Tells senders of refused contact packets that there is room now.
void OfiDevice::call_contacts() {
    for (;;) {
        const DeviceAddr addr = gate_.next_call(now_ns_ + kContactCallNs);
        if (addr == kNoAddr) return;
        peers_[addr]->due |= kContactCalled;
        drive(addr);
    }
}

void OfiDevice::announce_ending(base::Ending ending) {
    if (closing_) return;
    // A peer that has closed is not written to.
    read_completions();
    closing_ = true;
    ending_ = ending;
    for (DeviceAddr addr = 0; addr < peers_.size(); ++addr) {
        Peer& peer = *peers_[addr];
        if (peer.dead || (!peer.hello_sent && !peer.hello_received)) continue;
        peer.due |= kClosing;
        drive(addr);
    }
    drive_peers();
}

/// A peer that has never answered was perhaps never reached: that its address is of another network says why.
void OfiDevice::tell_other_network(const Peer& peer) const {
    const uint32_t format = endpoint_.info().addr_format;
    const std::string clause =
        other_network(ip_text(format, endpoint_.name().data()), ip_text(format, peer.endpoint.data()));
    if (clause.empty()) return;
    log(0,
        "%s: node %u, VPID %u never answered: %s. btl_velo_if_include=NETWORK/BITS names a network that all hosts "
        "are in.",
        endpoint_.title(), peer.facts.node, peer.facts.vpid, clause.c_str());
}

void OfiDevice::peer_died(DeviceAddr addr, base::Ending ending, const char* why) {
    Peer& peer = *peers_[addr];
    if (peer.dead) return;
    if (!peer.hello_received && ending == base::Ending::kNone) tell_other_network(peer);
    log(ending == base::Ending::kNone ? 1 : 2, "%s: the peer of node %u, VPID %u has ended: %s", endpoint_.title(),
        peer.facts.node, peer.facts.vpid, why);
    peer.dead = true;
    peer.ending = ending;
    peer.due = 0;
    peer.contact.peer_died();
    while (peer.held != nullptr) {
        Frame* next = peer.held->next;
        frames_.put(*std::exchange(peer.held, next));
    }
    gate_.peer_died(addr);
    rma_.peer_died(addr);
}

}  // namespace velo::ofi
