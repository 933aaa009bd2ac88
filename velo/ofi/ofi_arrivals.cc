// Arrivals at the device over libfabric: completions, packets, hellos and signals. Nothing of it is trusted.
#include <cstring>

#include "velo/ofi/ofi_device.h"

namespace velo::ofi {
namespace {

constexpr size_t kBatch = 32;
/// Batches of one call of progress(), so that a flood does not hold the process.
constexpr uint32_t kBatchesMax = 8;

}  // namespace

uint32_t OfiDevice::read_completions() {
    std::array<fi_cq_data_entry, kBatch> entries;
    std::array<fi_addr_t, kBatch> from;
    uint32_t events = 0;
    for (uint32_t batch = 0; batch < kBatchesMax; ++batch) {
        const ssize_t count = endpoint_.has_source()
                                  ? fi_cq_readfrom(endpoint_.cq(), entries.data(), kBatch, from.data())
                                  : fi_cq_read(endpoint_.cq(), entries.data(), kBatch);
        if (count == -FI_EAVAIL) {
            if (!read_error()) break;
            ++events;
            continue;
        }
        if (count <= 0) break;
        for (ssize_t i = 0; i < count; ++i) {
            completed(entries[i], endpoint_.has_source() ? from[i] : FI_ADDR_NOTAVAIL);
        }
        events += static_cast<uint32_t>(count);
        if (static_cast<size_t>(count) < kBatch) break;
    }
    return events;
}

void OfiDevice::completed(const fi_cq_data_entry& entry, fi_addr_t from) {
    auto* context = static_cast<Context*>(entry.op_context);
    if (context == nullptr) return;
    if (context->kind == Context::Kind::kFrame) return frames_.put(reinterpret_cast<Frame&>(*context));
    if (context->kind == Context::Kind::kOperation) {
        ++operations_done_;
        return rma_.completed(*context, 0);
    }
    auto& buffer = reinterpret_cast<ReceiveBuffer&>(*context);
    const auto* at = static_cast<const std::byte*>(entry.buf);
    // A buffer may come back by itself, without a message.
    if ((entry.flags & FI_RECV) != 0 && mailbox_.holds(buffer, at, entry.len)) {
        message_arrived(buffer, at, entry.len, from);
    }
    if ((entry.flags & FI_MULTI_RECV) != 0) mailbox_.given_back(buffer);
}

bool OfiDevice::read_error() {
    fi_cq_err_entry error = {};
    if (fi_cq_readerr(endpoint_.cq(), &error, 0) != 1) return false;
    auto* context = static_cast<Context*>(error.op_context);
    if (context == nullptr) return true;
    if (context->kind == Context::Kind::kFrame) {
        frame_failed(reinterpret_cast<Frame&>(*context), error.err);
    } else if (context->kind == Context::Kind::kOperation) {
        ++operations_done_;
        rma_.completed(*context, error.err);
    } else {
        auto& buffer = reinterpret_cast<ReceiveBuffer&>(*context);
        if (error.err == FI_ECANCELED && closing_) return true;
        ++ofi_counters_.lost_receives;
        mailbox_.damaged(buffer);
        if ((error.flags & FI_MULTI_RECV) != 0) mailbox_.given_back(buffer);
    }
    return true;
}

/// Packets that were reported as sent are lost.
void OfiDevice::frame_failed(Frame& frame, int error) {
    const DeviceAddr to = frame.to;
    frames_.put(frame);
    if (closing_ || peers_[to]->dead) return;
    ++ofi_counters_.broken_streams;
    peer_died(to, base::Ending::kNone, fi_strerror(error));
}

void OfiDevice::message_arrived(ReceiveBuffer& buffer, const std::byte* at, size_t bytes, fi_addr_t from) {
    DeviceAddr peer = kNoAddr;
    bool contact = false;
    uint32_t packets = 0;
    if (bytes == 0 || bytes % kPacketBytes != 0 || bytes > mailbox_.space().part_bytes()) [[unlikely]] {
        ++ofi_counters_.malformed;
    } else if (const PacketStatus first = PacketStatus::unpack(status_at(at)); first.message_class != kDeviceClass)
        [[likely]] {
        packets = packets_arrived({at, bytes}, from, peer, contact);
    } else if (first.tag == static_cast<uint8_t>(SlotTag::kHello)) {
        hello_arrived({at, bytes}, from);
    } else {
        signal_arrived({at, bytes}, from);
    }
    mailbox_.arrived(buffer, at, bytes, packets, peer, contact);
}

/// The peer that a message is of; kNoAddr: none whose hello has come. The provider's word for where it came from counts
/// more than what the message says; it has none for the messages that came before it was told of the peer.
DeviceAddr OfiDevice::identify(uint32_t source, fi_addr_t from) {
    const auto found = by_source_.find(source);
    if (found == by_source_.end()) return kNoAddr;
    Peer& peer = *peers_[found->second];
    if (!peer.hello_received || peer.dead) return kNoAddr;
    if (from == peer.at) {
        peer.source_seen = true;
    } else if (from != FI_ADDR_NOTAVAIL || peer.source_seen) {
        return kNoAddr;
    }
    return found->second;
}

/// Returns how many packets there are to read: all or none.
uint32_t OfiDevice::packets_arrived(std::span<const std::byte> part, fi_addr_t from, DeviceAddr& addr, bool& contact) {
    const uint64_t first = status_at(part.data());
    addr = identify(source_of(first), from);
    if (addr == kNoAddr) [[unlikely]] {
        counters_.packets_unknown_source += part.size() / kPacketBytes;
        stranger("packets");
        return 0;
    }
    Peer& peer = *peers_[addr];
    contact = PacketStatus::fills_contact_slot(first);
    const uint64_t part_packets = mailbox_.space().part_bytes() / kPacketBytes;
    bool right = true;
    uint64_t packets = 0;
    for (size_t at = 0; at < part.size();) {
        const uint64_t word = status_at(&part[at]);
        const auto lap = static_cast<uint8_t>(peer.received + packets);
        const bool run = is_run(word);
        const uint32_t here = run ? run_packets(&part[at]) : 1;
        if (run && (here < kRunPacketsMin || here > part_packets || run_bytes(here) > part.size() - at)) [[unlikely]] {
            return ++ofi_counters_.malformed, 0;
        }
        packets += here;
        at += run ? run_bytes(here) : kPacketBytes;
        if (word == PacketStatus::with_lap(first, lap)) continue;
        const PacketStatus status = PacketStatus::unpack(word);
        right = right && source_of(word) == source_of(first) && status.message_class != kDeviceClass &&
                status.contact == contact;
        if (status.lap == lap) continue;
        // Only a peer whose place is known can spoil its own stream.
        if (!place_known(peer)) return ++ofi_counters_.malformed, 0;
        return stream_broke(addr), 0;
    }
    if (!right || packets > (contact ? 1 : part_packets)) [[unlikely]]
        return ++ofi_counters_.malformed, 0;
    ++peer.messages_received;
    health_.heard(peer.health);
    if (contact) [[unlikely]] {
        if (!gate_.arrived(addr)) return ++counters_.contacts_refused, 0;
        peer.due |= kContactAdmitted;
        drive(addr);
    }
    peer.received = static_cast<uint8_t>(peer.received + packets);
    return static_cast<uint32_t>(packets);
}

void OfiDevice::stream_broke(DeviceAddr peer) {
    ++ofi_counters_.broken_streams;
    peer_died(peer, base::Ending::kNone, "messages from it were lost");
}

void OfiDevice::hello_arrived(std::span<const std::byte> message, fi_addr_t from) {
    Hello hello;
    const Status status = read_hello(message, hello);
    if (status == Status::kUnsupported) return stranger("a hello of another version of velo");
    if (status != Status::kOk) return void(++ofi_counters_.malformed);
    DeviceAddr addr = kNoAddr;
    if (hello.receiver_token != own_.head.token || know(hello.sender, addr, nullptr) != Status::kOk) {
        ++ofi_counters_.strangers;
        return stranger("a hello");
    }
    Peer& peer = *peers_[addr];
    // The sender's place is in its address, and the provider may know it already.
    if (peer.dead || !resolve(addr) || (from != FI_ADDR_NOTAVAIL && from != peer.at)) {
        ++ofi_counters_.strangers;
        return stranger("a hello in another process's name");
    }
    peer.hello_received = true;
    ++ofi_counters_.hellos_received;
    health_.heard(peer.health);
}

void OfiDevice::signal_arrived(std::span<const std::byte> message, fi_addr_t from) {
    Signal signal;
    if (read_signal(message, signal) != Status::kOk) return void(++ofi_counters_.malformed);
    const DeviceAddr addr = identify(source_of(status_at(message.data())), from);
    if (signal.receiver_token != own_.head.token || addr == kNoAddr) {
        ++ofi_counters_.strangers;
        return stranger("a signal");
    }
    Peer& peer = *peers_[addr];
    if (signal.messages != peer.messages_received) {
        if (!place_known(peer)) return void(++ofi_counters_.malformed);
        return stream_broke(addr);
    }
    ++peer.messages_received;
    health_.heard(peer.health);
    if ((signal.bits & kPing) != 0) {
        ++ofi_counters_.pings_received;
        peer.due |= kPong;
        drive(addr);
    }
    if ((signal.bits & kContactAdmitted) != 0) peer.contact.admitted();
    if ((signal.bits & kContactCalled) != 0) {
        peer.contact.called();
        if (peer.contact.to_resend()) drive(addr);
    }
    if ((signal.bits & kClosing) == 0) return;
    const bool followed = signal.ending == static_cast<uint32_t>(base::Ending::kFollowed);
    peer_died(addr, followed ? base::Ending::kFollowed : base::Ending::kClosed, "it said so");
}

void OfiDevice::stranger(const char* what) {
    if (stranger_told_) return;
    stranger_told_ = true;
    log(1,
        "%s: %s came from a process that was not given this one's address; it was dropped, and so is whatever "
        "comes like it",
        endpoint_.title(), what);
}

}  // namespace velo::ofi
