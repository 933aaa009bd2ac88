#include "velo/ofi/arrivals.h"

#include <array>

#include "velo/ofi/parts.h"

namespace velo::ofi {
namespace {

constexpr size_t kBatch = 32;
/// Batches of one call of progress(), so that a flood does not hold the process.
constexpr uint32_t kBatchesMax = 8;

}  // namespace

uint32_t Arrivals::read() {
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

void Arrivals::completed(const fi_cq_data_entry& entry, fi_addr_t from) {
    auto* context = static_cast<Context*>(entry.op_context);
    if (context == nullptr) return;
    if (context->kind == Context::Kind::kFrame) return transmitter_.sent(reinterpret_cast<Frame&>(*context));
    if (context->kind == Context::Kind::kOperation) return rma_.completed(*context, 0);
    VELO_DCHECK(context->kind == Context::Kind::kBuffer, "a completion of kind %u",
                static_cast<unsigned>(context->kind));
    auto& buffer = reinterpret_cast<ReceiveBuffer&>(*context);
    const auto* at = static_cast<const std::byte*>(entry.buf);
    // A buffer may come back by itself, without a message.
    if ((entry.flags & FI_RECV) != 0 && mailbox_.holds(buffer, at, entry.len)) message(buffer, at, entry.len, from);
    if ((entry.flags & FI_MULTI_RECV) != 0) mailbox_.given_back(buffer);
}

bool Arrivals::read_error() {
    fi_cq_err_entry error = {};
    if (fi_cq_readerr(endpoint_.cq(), &error, 0) != 1) return false;
    auto* context = static_cast<Context*>(error.op_context);
    if (context == nullptr) return true;
    if (context->kind == Context::Kind::kFrame) {
        frame_failed(reinterpret_cast<Frame&>(*context), error.err);
    } else if (context->kind == Context::Kind::kOperation) {
        rma_.completed(*context, error.err);
    } else {
        auto& buffer = reinterpret_cast<ReceiveBuffer&>(*context);
        if (error.err == FI_ECANCELED && transmitter_.closing()) return true;
        ++counters_.lost_receives;
        mailbox_.damaged(buffer);
        if ((error.flags & FI_MULTI_RECV) != 0) mailbox_.given_back(buffer);
    }
    return true;
}

/// Packets that were reported as sent are lost.
void Arrivals::frame_failed(Frame& frame, int error) {
    const DeviceAddr to = frame.to;
    transmitter_.sent(frame);
    if (transmitter_.closing() || peers_[to].dead) return;
    endings_.stream_broke(to, fi_strerror(error));
}

void Arrivals::message(ReceiveBuffer& buffer, const std::byte* at, size_t bytes, fi_addr_t from) {
    DeviceAddr peer = kNoAddr;
    bool contact = false;
    uint32_t count = 0;
    if (bytes == 0 || bytes % kPacketBytes != 0 || bytes > mailbox_.space().part_bytes()) [[unlikely]] {
        ++counters_.malformed;
    } else if (const PacketStatus first = PacketStatus::unpack(status_at(at)); first.message_class != kDeviceClass)
        [[likely]] {
        count = packets({at, bytes}, from, peer, contact);
    } else if (first.tag == static_cast<uint8_t>(SlotTag::kHello)) {
        hello({at, bytes}, from);
    } else {
        signal({at, bytes}, from);
    }
    mailbox_.arrived(buffer, at, bytes, count, peer, contact);
}

/// Returns how many packets there are to read: all or none.
uint32_t Arrivals::packets(std::span<const std::byte> part, fi_addr_t from, DeviceAddr& addr, bool& contact) {
    addr = peers_.identify(source_of(status_at(part.data())), from);
    if (addr == kNoAddr) [[unlikely]] {
        counters_.unknown_source += part.size() / kPacketBytes;
        stranger("packets");
        return 0;
    }
    Peer& peer = peers_[addr];
    const PartReading reading = read_part(part, peer.in.packets, mailbox_.space().part_bytes() / kPacketBytes);
    if (reading.verdict == PartReading::Verdict::kGap) return gap(addr), 0;
    if (reading.verdict == PartReading::Verdict::kMalformed) [[unlikely]]
        return ++counters_.malformed, 0;
    contact = reading.contact;
    ++peer.in.messages;
    watch_.heard(peer);
    if (contact) [[unlikely]] {
        if (!gate_.arrived(addr)) return ++counters_.contacts_refused, 0;
        transmitter_.say(addr, kContactAdmitted);
    }
    peer.in.packets = static_cast<uint8_t>(peer.in.packets + reading.packets);
    return reading.packets;
}

void Arrivals::gap(DeviceAddr addr) {
    // Only a peer whose place is known can spoil its own stream.
    if (!peers_.place_known(peers_[addr])) return void(++counters_.malformed);
    endings_.stream_broke(addr, "messages from it were lost");
}

void Arrivals::hello(std::span<const std::byte> message, fi_addr_t from) {
    Hello hello;
    const Status status = read_hello(message, hello);
    if (status == Status::kUnsupported) return stranger("a hello of another version of velo");
    if (status != Status::kOk) return void(++counters_.malformed);
    DeviceAddr addr = kNoAddr;
    if (hello.receiver_token != own_.head.token || peers_.know(hello.sender, addr, nullptr) != Status::kOk) {
        ++counters_.strangers;
        return stranger("a hello");
    }
    Peer& peer = peers_[addr];
    // The sender's place is in its address, and the provider may know it already.
    if (peer.dead || !peers_.resolve(addr) || (from != FI_ADDR_NOTAVAIL && from != peer.at)) {
        ++counters_.strangers;
        return stranger("a hello in another process's name");
    }
    peer.in.hello_received = true;
    ++counters_.hellos;
    watch_.heard(peer);
}

void Arrivals::signal(std::span<const std::byte> message, fi_addr_t from) {
    Signal signal;
    if (read_signal(message, signal) != Status::kOk) return void(++counters_.malformed);
    const DeviceAddr addr = peers_.identify(source_of(status_at(message.data())), from);
    if (signal.receiver_token != own_.head.token || addr == kNoAddr) {
        ++counters_.strangers;
        return stranger("a signal");
    }
    Peer& peer = peers_[addr];
    if (signal.messages != peer.in.messages) return gap(addr);
    ++peer.in.messages;
    watch_.heard(peer);
    if ((signal.bits & kPing) != 0) {
        ++counters_.pings;
        transmitter_.say(addr, kPong);
    }
    if ((signal.bits & kContactAdmitted) != 0) transmitter_.contact_admitted(addr);
    if ((signal.bits & kContactCalled) != 0) transmitter_.contact_called(addr);
    if ((signal.bits & kClosingHeard) != 0) peer.out.closing_heard = true;
    if ((signal.bits & kClosing) == 0) return;
    transmitter_.hear_closing(addr);
    const bool followed = signal.ending == static_cast<uint32_t>(base::Ending::kFollowed);
    endings_.ended(addr, followed ? base::Ending::kFollowed : base::Ending::kClosed, "it said so");
}

void Arrivals::stranger(const char* what) {
    if (stranger_reported_) return;
    stranger_reported_ = true;
    log_(1,
         "%s came from a process that was not given this one's address; it was dropped, and so is whatever "
         "comes like it",
         what);
}

}  // namespace velo::ofi
