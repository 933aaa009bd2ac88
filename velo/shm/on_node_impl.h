/// The definitions of BasicOnNode's functions off the short way, for those that instantiate it.
#pragma once

#include <algorithm>
#include <utility>

#include "velo/shm/on_node.h"

namespace velo::shm {

template <class Node>
BasicOnNode<Node>::BasicOnNode(const OnNodeConfig& config, const Node& node)
    : config_(config), node_(node), ring_memory_(segment_, config_.geometry), rings_(peers_), life_(node_) {
    if (!config.geometry.valid() || config.registrations_max == 0) {
        throw base::SetupError("an on-node ring of " + std::to_string(config.geometry.lines) + " lines and " +
                               std::to_string(config.geometry.body_bytes) +
                               " bytes is not possible: both must be powers of two, lines 2 to 1048576, "
                               "bytes 4096 to 1073741824.");
    }
    segment_ = node_.create("velo-on-node", SegmentParts::bytes(Segment::kHeaderBytes, config.registrations_max));
    own_ = SegmentParts(segment_.bytes().data(), Segment::kHeaderBytes);
    atu_ = base::AtuTable(own_.atu(), config.registrations_max);
}

template <class Node>
OnNodeAddress BasicOnNode<Node>::address() const {
    return {.segment = segment_.address(),
            .name = config_.name,
            .registrations_max = config_.registrations_max,
            .place = config_.place};
}

template <class Node>
Status BasicOnNode<Node>::connect(const OnNodeAddress& address, PeerIndex& peer, base::Failure* failure) {
    if (const auto known = by_token_.find(address.segment.token); known != by_token_.end()) {
        peer = known->second;
        return Status::kOk;
    }
    constexpr uint32_t kRegistrationsBelievable = 1u << 24;
    if (address.segment.pid <= 0 || address.registrations_max == 0 ||
        address.registrations_max > kRegistrationsBelievable) {
        return Status::kBadParam;
    }
    auto entry = std::make_unique<Peer>();
    const auto index = spare_peers_.empty() ? static_cast<PeerIndex>(peers_.size()) : spare_peers_.back();
    if (const Status status = life_.add(address.segment.pid, index, failure); status != Status::kOk) {
        return status;
    }
    const size_t bytes = SegmentParts::bytes(Segment::kHeaderBytes, address.registrations_max);
    if (const Status status = node_.attach(address.segment, entry->segment, bytes, failure); status != Status::kOk) {
        life_.remove(index);
        return status;
    }
    entry->name = address.name;
    entry->place = address.place;
    entry->parts = SegmentParts(entry->segment.bytes().data(), Segment::kHeaderBytes);
    entry->atu = base::AtuView(entry->parts.atu(), address.registrations_max);
    peer = index;
    if (index == peers_.size()) {
        peers_.push_back(std::move(entry));
    } else {
        peers_[index] = std::move(entry);
        spare_peers_.pop_back();
    }
    by_token_.emplace(address.segment.token, peer);
    return Status::kOk;
}

/// False: not yet. Memory may come back, so it is asked for until the time is over.
template <class Node>
bool BasicOnNode<Node>::ring_made(PeerIndex index) {
    Peer& peer = *peers_[index];
    const uint64_t now = node_.now_ns();
    if (now < peer.next_try_ns) return false;
    // Near the peer: it polls there, and reads each line later than it was written.
    const int numa_node = config_.place_rings ? peer.place.numa_node : -1;
    base::Failure failure;
    if (ring_memory_.take(numa_node, peer.out_offset, peer.out_memory, failure) == Status::kOk) {
        ++counters_.rings_created;
        peer.short_since_ns = peer.next_try_ns = 0;
        return true;
    }
    if (peer.short_since_ns == 0) peer.short_since_ns = now;
    peer.next_try_ns = now + kRetryNs;
    if (now - peer.short_since_ns >= config_.timeout_ns) lose(index, Loss::Cause::kNoRing, failure);
    return false;
}

/// Once a peer.
template <class Node>
void BasicOnNode<Node>::lose(PeerIndex index, Loss::Cause cause, base::Failure failure) {
    Peer& peer = *peers_[index];
    if (std::exchange(peer.lost, true)) return;
    losses_.push_back({.cause = cause,
                       .known = true,
                       .peer = index,
                       .name = peer.name,
                       .pid = pid(index),
                       .failure = failure});
}

template <class Node>
Status BasicOnNode<Node>::first_contact(PeerIndex index) {
    Peer& peer = *peers_[index];
    if (!peer.out_memory && !ring_made(index)) return Status::kAgain;
    const Contact contact = {.sender = address(),
                             .proof = peer.segment.address().token,
                             .ring_offset = peer.out_offset,
                             .geometry = config_.geometry};
    const Status status = peer.parts.contacts.push(contact);
    if (status == Status::kOk) peer.out = RingProducer(RingView(peer.out_memory.data(), config_.geometry));
    return status;
}

/// kAgain: another try may succeed. kProtocol: none can.
template <class Node>
Status BasicOnNode<Node>::answer_contact(const Contact& contact, base::Failure& failure) {
    if (!contact.geometry.valid()) return Status::kProtocol;
    PeerIndex index = 0;
    if (const Status status = connect(contact.sender, index, &failure); status != Status::kOk) {
        return status == Status::kBadParam ? Status::kProtocol : Status::kAgain;
    }
    Peer& peer = *peers_[index];
    // A second ring of the same peer would leave the first one's messages unread.
    if (peer.in) return Status::kProtocol;
    const Status status =
        peer.segment.map(contact.ring_offset, ring_bytes(contact.geometry), peer.in_memory, &failure);
    if (status != Status::kOk) return status == Status::kBadParam ? Status::kProtocol : Status::kAgain;
    peer.in = RingConsumer(RingView(peer.in_memory.data(), contact.geometry));
    peer.in.tell_attached();
    rings_.add(index);
    ++counters_.rings_attached;
    return Status::kOk;
}

/// Answers a contact, keeps it for another try, or gives it up with the messages in its ring.
template <class Node>
void BasicOnNode<Node>::try_contact(UnansweredContact waiting, uint64_t now) {
    // Without the proof it comes from none that was given the address, and carries nothing for this process.
    if (waiting.contact.proof != segment_.address().token) {
        ++counters_.contacts_refused;
        return;
    }
    const Status status = answer_contact(waiting.contact, waiting.failure);
    if (status == Status::kOk) return;
    if (status == Status::kProtocol) return refuse_contact(waiting, Loss::Cause::kGarbage);
    const auto known = by_token_.find(waiting.contact.sender.segment.token);
    const bool gone = known != by_token_.end()
                          ? peers_[known->second]->dead
                          : !node_.exists(waiting.contact.sender.segment.pid);
    if (gone) return refuse_contact(waiting, Loss::Cause::kSenderGone);
    if (now - waiting.since_ns >= config_.timeout_ns || unanswered_.size() == kUnansweredMax) {
        return refuse_contact(waiting, Loss::Cause::kNotAttached);
    }
    unanswered_.push_back(waiting);
}

template <class Node>
void BasicOnNode<Node>::refuse_contact(const UnansweredContact& waiting, Loss::Cause cause) {
    ++counters_.contacts_refused;
    const OnNodeAddress& sender = waiting.contact.sender;
    if (const auto known = by_token_.find(sender.segment.token); known != by_token_.end()) {
        return lose(known->second, cause, waiting.failure);
    }
    if (losses_.size() == kLossesMax) return;
    losses_.push_back({.cause = cause,
                       .known = false,
                       .peer = 0,
                       .name = sender.name,
                       .pid = sender.segment.pid,
                       .failure = waiting.failure});
}

template <class Node>
bool BasicOnNode<Node>::disconnect(PeerIndex index) {
    // Its first word may lie unread.
    take_contacts();
    Peer& peer = *peers_[index];
    VELO_CHECK(peer.dead, "process %d", pid(index));
    Message unread;
    if (peer.in && (peer.in.in_use() || peer.in.peek(unread) == RingConsumer::Peek::kMessage)) return false;
    rings_.remove(index);
    life_.remove(index);
    by_token_.erase(peer.segment.address().token);
    // A range that was never mapped stays unused: to keep it for another peer is not worth a case of its own.
    if (peer.out_memory) ring_memory_.give_back(peer.out_offset, std::move(peer.out_memory));
    // A holder of the index finds a peer that has ended, until another one gets it.
    peers_[index] = std::make_unique<Peer>();
    peers_[index]->dead = true;
    spare_peers_.push_back(index);
    return true;
}

template <class Node>
bool BasicOnNode<Node>::has_unattached() const {
    return std::any_of(peers_.begin(), peers_.end(),
                       [](const auto& peer) { return !peer->dead && peer->out && !peer->out.attached(); });
}

template <class Node>
void BasicOnNode<Node>::poll_liveness(std::vector<PeerIndex>& died) {
    std::vector<uint32_t> ended;
    life_.poll(ended);
    for (const uint32_t index : ended) {
        peers_[index]->dead = true;
        died.emplace_back(index);
    }
    const uint64_t now = node_.now_ns();
    for (const UnansweredContact& waiting : std::exchange(unanswered_, {})) try_contact(waiting, now);
}

template <class Node>
void BasicOnNode<Node>::fall_asleep(PeerIndex index) {
    peers_[index]->silent_polls = 0;
    rings_.put_to_sleep(index);
}

template <class Node>
void BasicOnNode<Node>::ring_doorbell(Peer& peer) {
    const uint32_t doorbell = peer.out.doorbell_index() % kDoorbells;  // the peer's word may be anything
    peer.parts.doorbells[doorbell / 64].fetch_or(uint64_t{1} << doorbell % 64, std::memory_order_release);
    ++counters_.doorbells_rung;
}

template <class Node>
void BasicOnNode<Node>::close_ring(PeerIndex index) {
    if (!rings_.stop(index)) return;
    ++counters_.garbage;
    lose(index, Loss::Cause::kGarbage);
}

}  // namespace velo::shm
