#include "velo/shm/on_node.h"

#include <bit>

namespace velo::shm {

/// Where the fixed parts lie in a process's segment.
struct OnNode::Layout {
    size_t contacts = base::SharedSegment::kHeaderBytes;
    size_t bells = contacts + base::round_up(ContactRing::bytes_for(kContacts), kLineBytes);
    size_t atu = bells + base::round_up(kBellWords * sizeof(std::atomic<uint64_t>), kLineBytes);
    size_t bytes;

    explicit Layout(uint32_t registrations_max)
        : bytes(base::round_up(atu + base::AtuTable::bytes_for(registrations_max), 4096)) {}
};

OnNode::OnNode(const OnNodeConfig& config) : config_(config) {
    if (!config.geometry.valid() || config.registrations_max == 0) {
        throw base::SetupError("an on-node ring of " + std::to_string(config.geometry.lines) + " lines and " +
                               std::to_string(config.geometry.body_bytes) +
                               " bytes is not possible: both must be powers of two, lines 2 to 1048576, "
                               "bytes 4096 to 1073741824.");
    }
    const Layout layout(config.registrations_max);
    segment_ = base::SharedSegment::create("velo-on-node", layout.bytes);
    std::byte* memory = segment_.bytes().data();
    contacts_ = ContactRing(memory + layout.contacts, kContacts);
    bells_ = reinterpret_cast<std::atomic<uint64_t>*>(memory + layout.bells);
    atu_ = base::AtuTable(memory + layout.atu, config.registrations_max);
}

OnNodeAddress OnNode::address() const {
    return {
        .segment = segment_.address(), .name = config_.name, .registrations_max = config_.registrations_max};
}

Status OnNode::connect(const OnNodeAddress& address, PeerIndex& peer) {
    if (const auto known = by_name_.find(address.name); known != by_name_.end()) {
        peer = known->second;
        return Status::kOk;
    }
    constexpr uint32_t kRegistrationsBelievable = 1u << 24;
    if (address.registrations_max == 0 || address.registrations_max > kRegistrationsBelievable) {
        return Status::kBadParam;
    }
    const Layout layout(address.registrations_max);
    auto entry = std::make_unique<Peer>();
    if (const Status status = base::SharedSegment::attach(address.segment, entry->segment, layout.bytes);
        status != Status::kOk) {
        return status;
    }
    std::byte* memory = entry->segment.bytes().data();
    entry->name = address.name;
    entry->contacts = ContactRing(memory + layout.contacts, kContacts);
    entry->bells = reinterpret_cast<std::atomic<uint64_t>*>(memory + layout.bells);
    entry->atu = base::AtuView(memory + layout.atu, address.registrations_max);
    peer = static_cast<PeerIndex>(peers_.size());
    peers_.push_back(std::move(entry));
    by_name_.emplace(address.name, peer);
    return Status::kOk;
}

Status OnNode::first_contact(Peer& peer) {
    uint64_t offset = 0;
    if (!peer.out_memory) {
        const size_t bytes = ring_bytes(config_.geometry);
        if (const Status status = segment_.grow(bytes, offset); status != Status::kOk) return status;
        if (const Status status = segment_.map(offset, bytes, peer.out_memory); status != Status::kOk) {
            return status;
        }
        peer.out_offset = offset;
        ++counters_.rings_created;
    }
    const Contact contact = {.sender = address(),
                             .proof = peer.segment.address().token,
                             .ring_offset = peer.out_offset,
                             .geometry = config_.geometry};
    const Status status = peer.contacts.push(contact);
    if (status == Status::kOk) peer.out = RingProducer(RingView(peer.out_memory.data(), config_.geometry));
    return status;
}

void OnNode::take_contacts() {
    Contact contact;
    while (contacts_.pop(contact)) [[unlikely]] answer_contact(contact);
}

void OnNode::answer_contact(const Contact& contact) {
    PeerIndex index = 0;
    if (contact.proof != segment_.address().token || !contact.geometry.valid() ||
        connect(contact.sender, index) != Status::kOk) {
        ++counters_.contacts_refused;
        return;
    }
    Peer& peer = *peers_[index];
    // A second ring of the same peer would leave the first one's messages unread.
    if (peer.in ||
        peer.segment.map(contact.ring_offset, ring_bytes(contact.geometry), peer.in_memory) != Status::kOk) {
        ++counters_.contacts_refused;
        return;
    }
    peer.in = RingConsumer(RingView(peer.in_memory.data(), contact.geometry));
    active_.push_back(index);
    ++counters_.rings_attached;
}

void OnNode::fall_asleep(size_t active_position) {
    const PeerIndex index = active_[active_position];
    Peer& peer = *peers_[index];
    peer.silent_polls = 0;
    if (index >= kBellWords * 64) return;  // no bell for it: it stays polled
    active_[active_position] = active_.back();
    active_.pop_back();
    peer.in.set_dormant(true, index);
    dormant_.push_back(index);
}

void OnNode::ring_bell(Peer& peer) {
    const uint32_t bell = peer.out.bell_index();
    if (bell >= kBellWords * 64) return;
    peer.bells[bell / 64].fetch_or(uint64_t{1} << bell % 64, std::memory_order_release);
    ++counters_.bells_rung;
}

void OnNode::wake(PeerIndex index) {
    for (size_t i = 0; i < dormant_.size(); ++i) {
        if (dormant_[i] != index) continue;
        dormant_[i] = dormant_.back();
        dormant_.pop_back();
        peers_[index]->in.set_dormant(false, index);
        active_.push_back(index);
        return;
    }
}

void OnNode::answer_bells() {
    for (uint32_t word = 0; word * 64 < peers_.size() && word < kBellWords; ++word) {
        if (bells_[word].load(std::memory_order_relaxed) == 0) continue;
        uint64_t rung = bells_[word].exchange(0, std::memory_order_acquire);
        for (; rung != 0; rung &= rung - 1) {
            wake(word * 64 + static_cast<uint32_t>(std::countr_zero(rung)));
        }
    }
    if (dormant_.empty()) return;
    // A producer may have looked at the flag just before it was set: look at one sleeper each time.
    sweep_ = (sweep_ + 1) % dormant_.size();
    const PeerIndex index = dormant_[sweep_];
    Message message;
    if (peers_[index]->in.peek(message) != RingConsumer::Peek::kNothing) wake(index);
}

void OnNode::close_ring(size_t active_position) {
    active_[active_position] = active_.back();
    active_.pop_back();
    ++counters_.garbage;
}

}  // namespace velo::shm
