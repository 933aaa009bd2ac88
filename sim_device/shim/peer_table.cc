#include "sim_device/shim/peer_table.h"

#include <cstring>
#include <string>

#include "sim_device/shim/abandoned_claims.h"
#include "velo/base/text.h"

namespace velo::shim {
namespace {

/// Published by a process. The sum tells damaged bytes from an address that does not answer.
struct PublishedAddress {
    uint64_t magic;
    base::SegmentAddress segment;
    uint64_t sum;
};
static_assert(sizeof(PublishedAddress) == 56 && sizeof(PublishedAddress) <= kDeviceAddressBytesMax);

/// FNV-1a over everything before the sum.
uint64_t sum_of(const PublishedAddress& address) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&address);
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < offsetof(PublishedAddress, sum); ++i) sum = (sum ^ bytes[i]) * 1099511628211u;
    return sum;
}

}  // namespace

PeerTable::PeerTable(const base::SegmentAddress& own_address, SegmentView own, const Identity& identity,
                     DeviceLog log)
    : own_address_(own_address), own_(own), identity_(identity), log_(log), contacts_(own.contacts()) {}

size_t PeerTable::address(std::span<std::byte> out) const {
    PublishedAddress address = {.magic = kShimMagic, .segment = own_address_, .sum = 0};
    address.sum = sum_of(address);
    VELO_CHECK(out.size() >= sizeof address, "room for an address: %zu bytes", out.size());
    std::memcpy(out.data(), &address, sizeof address);
    return sizeof address;
}

Status PeerTable::connect(std::span<const std::byte> bytes, DeviceAddr& peer, base::Failure* failure) {
    base::Failure ignored;
    base::Failure& why = failure == nullptr ? ignored : *failure;
    why = {.call = "the peer published an address of another device", .error = 0};
    PublishedAddress address;
    if (bytes.size() != sizeof address) return Status::kBadParam;
    std::memcpy(&address, bytes.data(), sizeof address);
    if (address.magic != kShimMagic || address.sum != sum_of(address)) return Status::kBadParam;

    DeviceAddr addr = kNoAddr;
    if (const auto known = by_token_.find(address.segment.token); known != by_token_.end()) {
        addr = known->second;
    } else if (const Status status = attach(address.segment, addr, why); status != Status::kOk) {
        return status;
    }
    // A peer that does not take its contacts now may have no cell for ours: the first send tries again.
    (void)announce(*peers_[addr]);
    peer = addr;
    return Status::kOk;
}

Status PeerTable::announce(Peer& peer) {
    if (peer.announced || peer.dead) return Status::kOk;
    const OpenClaim claim(claims());
    const Status status = peer.view.contacts().push({.segment = own_address_});
    peer.announced = status == Status::kOk;
    return status;
}

Status PeerTable::attach(const base::SegmentAddress& address, DeviceAddr& peer, base::Failure& why) {
    const auto addr = static_cast<DeviceAddr>(peers_.size());
    if (const Status status = life_.add(address.pid, addr, &why); status != Status::kOk) return status;
    base::SharedSegment segment;
    Status status = base::SharedSegment::attach(address, segment, 0, &why);
    if (status == Status::kOk) {
        why = {.call = "the peer's device is closed, of another job, or of a node and VPID that are taken",
               .error = 0};
        status = admit(std::move(segment), addr);
    }
    if (status != Status::kOk) {
        life_.remove(addr);
        return status == Status::kBadParam ? Status::kBadParam : Status::kUnsupported;
    }
    by_token_.emplace(address.token, addr);
    peer = addr;
    return Status::kOk;
}

/// Checks what an attached segment says of itself, and makes it a peer.
Status PeerTable::admit(base::SharedSegment segment, DeviceAddr addr) {
    const std::span<std::byte> memory = segment.bytes();
    if (memory.size() < base::SharedSegment::kHeaderBytes + sizeof(DeviceHeader)) return Status::kBadParam;
    const DeviceHeader& header = SegmentView(memory.data(), Layout(0, 1)).header();
    // Read once: the other process could change them after they were checked.
    const Identity identity = header.identity;
    if (header.magic != kShimMagic || identity.mailbox_slots > kMailboxSlotsMax ||
        identity.contact_slots > identity.mailbox_slots || identity.ports == 0 ||
        identity.ports > kPortsMax) {
        return Status::kBadParam;
    }
    const Layout layout(identity.mailbox_slots, identity.ports);
    if (layout.bytes > memory.size()) return Status::kBadParam;
    if (identity.job_token != identity_.job_token) return Status::kUnsupported;
    if (header.life.load(std::memory_order_acquire) != Life::kOpen) return Status::kUnsupported;
    const uint32_t source = identity.source();
    if (const DeviceAddr taken = by_source_.find(source); taken != kNoAddr && !peers_[taken]->dead) {
        std::string line;
        base::append(line,
                     "velo: process %d names itself node %u, VPID %u, as process %d does already. It is not "
                     "connected. Give each process of a node a VPID of its own.",
                     segment.address().pid, identity.node, identity.vpid, peers_[taken]->segment.address().pid);
        log_(0, line);
        return Status::kUnsupported;
    }
    const SegmentView view(memory.data(), layout);
    peers_.push_back(std::make_unique<Peer>(Peer{
        .mailbox = MailboxWriter(view.mailbox_control(), view.slots(), std::max(identity.mailbox_slots, 1u)),
        .view = view,
        .source = source,
        .contact_slots = identity.contact_slots,
        .ports = identity.ports,
        .facts = {.node = identity.node,
                  .vpid = identity.vpid,
                  .host_name = identity.host_name,
                  .mailbox_slots = identity.mailbox_slots},
        .segment = std::move(segment),
    }));
    by_source_.set(source, addr);
    return Status::kOk;
}

uint32_t PeerTable::take_contacts(uint32_t budget) {
    uint32_t taken = 0;
    Contact contact;
    base::Failure why;
    while (taken < budget && contacts_.pop(contact)) {
        ++taken;
        DeviceAddr addr = kNoAddr;
        if (const auto known = by_token_.find(contact.segment.token); known != by_token_.end()) {
            addr = known->second;
        } else if (attach(contact.segment, addr, why) != Status::kOk) {
            ++counters_.refused;
            continue;
        }
        ++counters_.accepted;
        peers_[addr]->announced = true;
    }
    return taken;
}

DeviceAddr PeerTable::find_source(uint32_t source) {
    DeviceAddr addr = by_source_.find(source);
    if (addr == kNoAddr && take_contacts(kContactCells) != 0) addr = by_source_.find(source);
    return addr;
}

void PeerTable::check_life(std::vector<DeviceAddr>& died) {
    std::vector<uint32_t> ended;
    life_.poll(ended);
    for (const uint32_t index : ended) {
        peers_[index]->dead = true;
        died.emplace_back(index);
    }
    for (DeviceAddr addr = 0; addr < size(); ++addr) {
        Peer& peer = *peers_[addr];
        if (peer.dead || peer.view.header().life.load(std::memory_order_acquire) == Life::kOpen) continue;
        peer.dead = true;
        died.push_back(addr);
    }
}

}  // namespace velo::shim
