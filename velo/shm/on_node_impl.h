/// The definitions of BasicOnNode's functions off the short way, for those that instantiate it.
#pragma once

#include <algorithm>
#include <bit>
#include <utility>

#include "velo/shm/on_node.h"

namespace velo::shm {

/// Places of the fixed parts in a process's segment.
template <class Node>
struct OnNodeLayout {
    size_t contacts = Node::Segment::kHeaderBytes;
    size_t doorbells = contacts + base::round_up(base::MpscRing<Contact>::bytes_for(kContacts), kLineBytes);
    size_t coop_claims = doorbells + base::round_up(kDoorbells / 8, kLineBytes);
    size_t atu = coop_claims + kCoopBlocks * sizeof(ClaimLine);
    size_t bytes;

    explicit OnNodeLayout(uint32_t registrations_max)
        : bytes(base::round_up(atu + base::AtuTable::bytes_for(registrations_max), 4096)) {}
};

template <class Node>
BasicOnNode<Node>::BasicOnNode(const OnNodeConfig& config, const Node& node)
    : config_(config), node_(node), life_(node_) {
    if (!config.geometry.valid() || config.registrations_max == 0) {
        throw base::SetupError("an on-node ring of " + std::to_string(config.geometry.lines) + " lines and " +
                               std::to_string(config.geometry.body_bytes) +
                               " bytes is not possible: both must be powers of two, lines 2 to 1048576, "
                               "bytes 4096 to 1073741824.");
    }
    const OnNodeLayout<Node> layout(config.registrations_max);
    segment_ = node_.create("velo-on-node", layout.bytes);
    std::byte* memory = segment_.bytes().data();
    contacts_ = ContactRing(memory + layout.contacts, kContacts);
    doorbells_ = reinterpret_cast<std::atomic<uint64_t>*>(memory + layout.doorbells);
    coop_claims_ = reinterpret_cast<ClaimLine*>(memory + layout.coop_claims);
    atu_ = base::AtuTable(memory + layout.atu, config.registrations_max);
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
    const OnNodeLayout<Node> layout(address.registrations_max);
    auto entry = std::make_unique<Peer>();
    const auto index = spare_peers_.empty() ? static_cast<PeerIndex>(peers_.size()) : spare_peers_.back();
    if (const Status status = life_.add(address.segment.pid, index, failure); status != Status::kOk) {
        return status;
    }
    if (const Status status =
            node_.attach(address.segment, entry->segment, layout.bytes, failure);
        status != Status::kOk) {
        life_.remove(index);
        return status;
    }
    std::byte* memory = entry->segment.bytes().data();
    entry->name = address.name;
    entry->place = address.place;
    entry->contacts = ContactRing(memory + layout.contacts, kContacts);
    entry->doorbells = reinterpret_cast<std::atomic<uint64_t>*>(memory + layout.doorbells);
    entry->coop_claims = reinterpret_cast<ClaimLine*>(memory + layout.coop_claims);
    entry->atu = base::AtuView(memory + layout.atu, address.registrations_max);
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

/// Memory for the ring to a peer, near the peer: it polls there, and reads each line later than it was
/// written.
template <class Node>
Status BasicOnNode<Node>::make_ring(Peer& peer, base::Failure& failure) {
    const size_t bytes = ring_bytes(config_.geometry);
    const int node = config_.place_rings ? peer.place.numa_node : -1;
    if (peer.out_offset == 0 && !spare_rings_.empty()) {
        SpareRing& spare = spare_rings_.back();
        if (node >= 0) base::prefer_node(spare.memory.data(), bytes, node);
        std::memset(spare.memory.data(), 0, ring_zero_bytes(config_.geometry));
        peer.out_offset = spare.offset;
        peer.out_memory = std::move(spare.memory);
        spare_rings_.pop_back();
        return Status::kOk;
    }
    // A range that could not be mapped before is there already.
    if (peer.out_offset == 0) {
        const Status status = segment_.grow(bytes, peer.out_offset, node, &failure);
        if (status != Status::kOk) return status;
    }
    return segment_.map(peer.out_offset, bytes, peer.out_memory, &failure);
}

/// False: not yet. Memory may come back, so it is asked for until the time is over.
template <class Node>
bool BasicOnNode<Node>::ring_made(PeerIndex index) {
    Peer& peer = *peers_[index];
    const uint64_t now = node_.now_ns();
    if (now < peer.next_try_ns) return false;
    base::Failure failure;
    if (make_ring(peer, failure) == Status::kOk) {
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
    const Status status = peer.contacts.push(contact);
    if (status == Status::kOk) {
        peer.out =
            RingProducer(RingView(peer.out_memory.data(), config_.geometry), config_.nontemporal_bytes_min);
    }
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
    active_.push_back(index);
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
    stop_polling(index);
    std::erase(dormant_, index);
    life_.remove(index);
    by_token_.erase(peer.segment.address().token);
    // A range that was never mapped stays unused: to keep it for another peer is not worth a case of its own.
    if (peer.out_memory) {
        spare_rings_.push_back({.offset = peer.out_offset, .memory = std::move(peer.out_memory)});
    }
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

/// Takes a ring out of those that are polled each time. False: it is not among them.
template <class Node>
bool BasicOnNode<Node>::stop_polling(PeerIndex index) {
    const auto at = std::find(active_.begin(), active_.end(), index);
    if (at == active_.end()) return false;
    *at = active_.back();
    active_.pop_back();
    return true;
}

template <class Node>
void BasicOnNode<Node>::fall_asleep(PeerIndex index) {
    Peer& peer = *peers_[index];
    peer.silent_polls = 0;
    if (!stop_polling(index)) return;
    peer.in.set_dormant(true, index);
    dormant_.push_back(index);
}

template <class Node>
void BasicOnNode<Node>::ring_doorbell(Peer& peer) {
    const uint32_t doorbell = peer.out.doorbell_index() % kDoorbells;  // the peer's word may be anything
    peer.doorbells[doorbell / 64].fetch_or(uint64_t{1} << doorbell % 64, std::memory_order_release);
    ++counters_.doorbells_rung;
}

template <class Node>
void BasicOnNode<Node>::wake(PeerIndex index) {
    for (size_t i = 0; i < dormant_.size(); ++i) {
        if (dormant_[i] != index) continue;
        dormant_[i] = dormant_.back();
        dormant_.pop_back();
        peers_[index]->in.set_dormant(false, index);
        active_.push_back(index);
        return;
    }
}

template <class Node>
void BasicOnNode<Node>::answer_doorbells() {
    const auto peers = static_cast<uint32_t>(peers_.size());
    for (uint32_t first = 0; first < std::min(peers, kDoorbells); first += 64) {
        std::atomic<uint64_t>& word = doorbells_[first / 64];
        if (word.load(std::memory_order_relaxed) == 0) continue;
        for (uint64_t rung = word.exchange(0, std::memory_order_acquire); rung != 0; rung &= rung - 1) {
            uint32_t index = first + static_cast<uint32_t>(std::countr_zero(rung));
            for (; index < peers; index += kDoorbells) wake(PeerIndex(index));  // all of this bell
        }
    }
    if (dormant_.empty()) return;
    // A producer may have looked at the flag just before it was set: look at one sleeper each time.
    sweep_ = (sweep_ + 1) % dormant_.size();
    const PeerIndex index = dormant_[sweep_];
    Message message;
    if (peers_[index]->in.peek(message) != RingConsumer::Peek::kNothing) wake(index);
}

template <class Node>
void BasicOnNode<Node>::close_ring(PeerIndex index) {
    if (!stop_polling(index)) return;
    ++counters_.garbage;
    lose(index, Loss::Cause::kGarbage);
}

}  // namespace velo::shm
