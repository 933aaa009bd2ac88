/// ClusterDevice::send: the template part. The end of cluster.h, which alone includes it.
#pragma once

namespace velo::cluster {

/// Calls fill() for every packet; those that are alike and carry nothing but data become one entry.
template <class Fill>
void ClusterDevice::pack(uint32_t packets, Fill& fill, std::vector<Entry>& entries) {
    const bool whole = cluster_.config().whole_payloads;
    Packet packet{};
    for (uint32_t i = 0; i < packets; ++i) {
        PacketStatus status = fill(i, packet.payload);
        status.node = node_;
        status.vpid = vpid_;
        const uint64_t word = status.pack();
        if (!whole && i != 0 && !status.end_of_message && !status.piggyback &&
            word == entries.back().status) {
            ++entries.back().packets;
            continue;
        }
        Entry& entry = entries.emplace_back();
        entry.status = word;
        entry.packets = 1;
        std::memcpy(entry.head.data(), packet.payload, kHeadBytes);
        std::memcpy(entry.tail.data(), packet.payload + kPiggybackOffset, kPiggybackBytes);
        if (whole) entry.whole = std::make_unique<Packet>(packet);
    }
}

template <class Fill>
Status ClusterDevice::send(DeviceAddr to, uint32_t packets, Admission admission, Fill&& fill) {
    ClusterDevice& receiver = target(to);
    if (receiver.ended() || dead_ || (used_->faults && dies_by_fault(packets))) return Status::kPeerDead;
    if (cluster_.held(at_node_) || !receiver.has_room(packets)) [[unlikely]] {
        return refuse_full(receiver, packets, admission);
    }
    if (admission == Admission::kContact && !take_contact_slot(receiver)) return Status::kAgain;
    // One sender is at work at a time, and fill() sends nothing.
    static thread_local std::vector<Entry> entries;
    entries.clear();
    pack(packets, fill, entries);
    return launch(*used_, to, packets, entries);
}

}  // namespace velo::cluster
