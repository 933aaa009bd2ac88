#include "velo/ofi/transmitter.h"

#include <array>
#include <utility>

namespace velo::ofi {

/// Handles a send that the provider refused. Errors that are none of ordinary back-pressure are treated like it: only
/// silence tells a peer's death.
bool Transmitter::refused(ssize_t result, DeviceAddr to) {
    refused_ = true;
    if (result != -FI_EAGAIN && result != -FI_ENOMEM) {
        const DevicePeer& facts = peers_[to].facts;
        log_(2, "sending to node %u, VPID %u: %s", facts.node, facts.vpid, fi_strerror(static_cast<int>(-result)));
    }
    return false;
}

/// The provider has not taken what send() accepted: progress() tries again, and nothing overtakes it.
void Transmitter::hold(DeviceAddr to, Frame* frames) {
    VELO_CHECK(peers_[to].out.held == nullptr && frames != nullptr,
               "frames overtake those that peer %u waits for", uint32_t{to});
    peers_[to].out.held = frames;
    drive(to);
}

uint32_t Transmitter::held_packets(const Peer& peer) {
    uint32_t held = peer.out.contact.blocks() ? 1 : 0;
    for (const Frame* frame = peer.out.held; frame != nullptr; frame = frame->next) held += frame->packets;
    return held;
}

bool Transmitter::send_hello(DeviceAddr to) {
    Peer& peer = peers_[to];
    if (!peers_.resolve(to)) return false;
    std::array<Packet, kHelloSlotsMax> slots;
    const uint32_t count = write_hello({.receiver_token = peer.token, .sender = own_}, source_, slots);
    VELO_CHECK(!peer.out.hello_sent && peer.out.messages == 0, "a second hello to peer %u", uint32_t{to});
    if (!transmit(to, slots.data(), count)) return false;
    peer.out.hello_sent = true;
    peer.out.messages = 0;
    ++counters_.hellos;
    return true;
}

/// Queues this peer: what is left for it leaves as soon as the provider takes it.
void Transmitter::drive(DeviceAddr to) {
    Peer& peer = peers_[to];
    if (peer.out.driven || (peer.dead && peer.out.signals == 0)) return;
    peer.out.driven = true;
    driven_.push_back(to);
}

/// Returns whether all of it has left.
bool Transmitter::drive_peer(DeviceAddr to) {
    Peer& peer = peers_[to];
    Peer::Outgoing& out = peer.out;
    if (peer.dead && out.signals == 0) return true;
    if (!out.hello_sent && !send_hello(to)) return false;
    while (out.held != nullptr) {
        // A frame comes back with its completion, perhaps at once.
        Frame* next = out.held->next;
        if (!transmit_frame(*out.held)) return false;
        out.held = next;
    }
    if (out.contact.to_resend()) {
        if (!transmit(to, &out.contact_packet, 1)) return false;
        out.contact.sent();
    }
    if (out.signals == 0) return true;
    Packet slot;
    const Signal signal = {.receiver_token = peer.token,
                           .bits = out.signals,
                           .ending = static_cast<uint32_t>(ending_),
                           .messages = out.messages};
    write_signal(signal, source_, slot);
    // The last word waits for its completion: then all before it has left as well.
    const bool last = (out.signals & (kClosing | kClosingHeard)) != 0;
    if (!transmit(to, &slot, 1, last)) return false;
    counters_.pings += (out.signals & kPing) != 0;
    out.said_closing = out.said_closing || (out.signals & kClosing) != 0;
    out.signals = 0;
    return true;
}

void Transmitter::progress() {
    for (size_t i = 0; i < driven_.size();) {
        const DeviceAddr to = driven_[i];
        if (!drive_peer(to)) {
            ++i;
            continue;
        }
        peers_[to].out.driven = false;
        driven_[i] = driven_.back();
        driven_.pop_back();
    }
}

void Transmitter::contact_called(DeviceAddr by) {
    ContactSender& contact = peers_[by].out.contact;
    contact.called();
    if (contact.to_resend()) drive(by);
}

void Transmitter::close(base::Ending ending) {
    VELO_CHECK(!closing_, "the last word is said twice");
    closing_ = true;
    ending_ = ending;
    for (DeviceAddr to = 0; to < peers_.size(); ++to) {
        const Peer& peer = peers_[to];
        if (!peer.dead && knows(peer)) say(to, kClosing);
    }
    progress();
}

/// A peer that has said its last word may wait for an answer.
void Transmitter::peer_died(Peer& peer) {
    peer.out.signals &= kClosingHeard;
    peer.out.contact.peer_died();
    while (peer.out.held != nullptr) {
        Frame* next = peer.out.held->next;
        frames_.put(*std::exchange(peer.out.held, next));
    }
}

}  // namespace velo::ofi
