#include "velo/ofi/peer_table.h"

#include <algorithm>

namespace velo::ofi {

const char* PeerTable::why_refused(const AddressHead& head, std::string_view provider) const {
    if (provider != endpoint_.provider() || head.name_format != own_.head.name_format) {
        return "its device uses another provider of libfabric, or other addresses";
    }
    const size_t name_bytes = address_bytes(head.name_format);
    if (name_bytes != 0 && head.name_bytes != name_bytes) return "its address is damaged";
    if (head.job_token != own_.head.job_token && !other_jobs_) return "it is of another job";
    const uint32_t source = source_of(head.node, head.vpid);
    const auto same = by_source_.find(source);
    if (source == source_of(own_.head.node, own_.head.vpid) ||
        (same != by_source_.end() && !peers_[same->second]->dead)) {
        return "another process has its node and VPID";
    }
    return nullptr;
}

Status PeerTable::know(const Address& address, DeviceAddr& out, base::Failure* failure) {
    const AddressHead& head = address.head;
    if (const auto known = by_token_.find(head.token); known != by_token_.end()) {
        out = known->second;
        return Status::kOk;
    }
    if (const char* why = why_refused(head, address.provider()); why != nullptr) {
        if (failure != nullptr) *failure = {.call = why, .error = 0};
        return Status::kUnsupported;
    }
    auto peer = std::make_unique<Peer>();
    peer->facts = {
        .node = head.node, .vpid = head.vpid, .host_name = head.host_name, .mailbox_slots = head.mailbox_slots};
    peer->token = head.token;
    // Frames hold no more than this process's own mailbox takes.
    peer->part_packets =
        std::min(endpoint_.part_packets(head.mailbox_slots), endpoint_.part_packets(own_.head.mailbox_slots));
    peer->endpoint.assign(address.endpoint().begin(), address.endpoint().end());
    const DeviceAddr addr = size();
    peers_.push_back(std::move(peer));
    // Those of other jobs come beside the ones that were planned for.
    while (peers_.size() > with_room_) with_room_ += mailbox_.extend() / kControlBytesPerPeer;
    by_source_[source_of(head.node, head.vpid)] = addr;
    by_token_[head.token] = addr;
    VELO_CHECK(by_token_.size() == peers_.size(), "%zu tokens of %zu peers", by_token_.size(), peers_.size());
    gate_.know(addr);
    out = addr;
    return Status::kOk;
}

bool PeerTable::insert(Peer& peer) const {
    peer.at = endpoint_.insert(peer.endpoint);
    return peer.at != FI_ADDR_NOTAVAIL;
}

}  // namespace velo::ofi
