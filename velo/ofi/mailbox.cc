#include "velo/base/copy.h"
#include "velo/ofi/mailbox.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "velo/base/check.h"
#include "velo/os/shared_segment.h"

namespace velo::ofi {

Mailbox::Mailbox(const Endpoint& endpoint, uint32_t slots, size_t control_bytes)
    : endpoint_(endpoint),
      space_(slots, control_bytes, endpoint.part_packets(slots)),
      arrivals_(std::bit_ceil(slots + size_t{64})) {
    for (uint32_t i = 0; i < space_.buffers(); ++i) post(make_buffer());
    if (refused()) {
        throw base::SetupError(std::string("libfabric's provider ") + endpoint.title() +
                               " takes no receive buffers. Choose another one with btl_velo_provider_include.");
    }
}

void Mailbox::cancel() {
    for (ReceiveBuffer& buffer : buffers_) {
        if (buffer.posted) fi_cancel(&endpoint_.ep()->fid, &buffer.context);
    }
}

ReceiveBuffer& Mailbox::make_buffer() {
    ReceiveBuffer& buffer = buffers_.emplace_back();
    const size_t bytes = space_.buffer_bytes();
    buffer.memory.reset(static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kPacketBytes})));
    // If this fails, the provider refuses the buffer.
    (void)endpoint_.register_local(buffer.memory.get(), bytes, buffer.registration);
    return buffer;
}

size_t Mailbox::extend() {
    post(make_buffer());
    return space_.buffer_bytes();
}

void Mailbox::post(ReceiveBuffer& buffer) {
    VELO_DCHECK(!buffer.posted && buffer.state.unread() == 0, "a buffer with %u packets is posted",
                buffer.state.unread());
    iovec part = {buffer.memory.get(), space_.buffer_bytes()};
    void* descriptor = Endpoint::descriptor(buffer.registration);
    fi_msg message = {};
    message.msg_iov = &part;
    message.desc = &descriptor;
    message.iov_count = 1;
    message.addr = FI_ADDR_UNSPEC;
    message.context = &buffer.context;
    buffer.state.posted();
    if (fi_recvmsg(endpoint_.ep(), &message, FI_MULTI_RECV) == 0) {
        buffer.posted = true;
        ++posted_;
    } else {
        refused_.push_back(&buffer);
    }
}

uint32_t Mailbox::post_refused() {
    const std::vector<ReceiveBuffer*> again = std::exchange(refused_, {});
    for (ReceiveBuffer* buffer : again) post(*buffer);
    return static_cast<uint32_t>(again.size() - refused_.size());
}

/// Messages may still come into a damaged buffer, so another one takes its place.
void Mailbox::reuse(ReceiveBuffer& buffer) {
    if (!buffer.state.is_damaged()) return post(buffer);
    buffer.state.replaced();
    damaged_.push_back(&buffer);
    ReceiveBuffer* oldest = damaged_.front();
    if (damaged_.size() <= kDamagedMax || oldest->state.unread() != 0) return post(make_buffer());
    damaged_.pop_front();
    post(*oldest);
}

bool Mailbox::holds(const ReceiveBuffer& buffer, const std::byte* at, size_t bytes) const {
    const auto first = reinterpret_cast<uintptr_t>(buffer.memory.get());
    const auto place = reinterpret_cast<uintptr_t>(at);
    return place >= first && bytes <= space_.buffer_bytes() && place - first <= space_.buffer_bytes() - bytes;
}

void Mailbox::arrived(ReceiveBuffer& buffer, const std::byte* at, size_t bytes, uint32_t packets, DeviceAddr from,
                      bool contact) {
    VELO_DCHECK(holds(buffer, at, bytes), "a message of %zu bytes lies outside of its buffer", bytes);
    buffer.state.arrived(static_cast<size_t>(at - buffer.memory.get()), bytes, packets);
    if (packets == 0) {
        // The buffer may have been given back, and this message alone have been missing.
        if (buffer.state.spent()) reuse(buffer);
        return;
    }
    packets_arrived_ += packets;
    if (behind_ - first_ == arrivals_.size()) grow();
    arrivals_[behind_++ & (arrivals_.size() - 1)] = {
        .at = at, .buffer = &buffer, .packets = packets, .from = from, .contact = contact};
}

void Mailbox::given_back(ReceiveBuffer& buffer) {
    if (!buffer.posted) return;
    buffer.posted = false;
    VELO_DCHECK(posted_ != 0, "one of %zu buffers is given back, of none", buffers_.size());
    if (--posted_ == 0) ++starved_;
    buffer.state.given_back();
    if (buffer.state.spent()) reuse(buffer);
}

void Mailbox::read(Arrival& arrival, uint32_t packets) {
    VELO_DCHECK(packets != 0 && packets <= arrival.packets, "%u packets are read of %u", packets,
                arrival.packets);
    VELO_DCHECK(arrival.run == 0 || packets <= arrival.run, "%u packets are read of a run of %u", packets,
                arrival.run);
    ReceiveBuffer& buffer = *arrival.buffer;
    if (arrival.run == 0) {
        arrival.at += packets * kPacketBytes;
    } else {
        arrival.payload += packets * kPayloadBytes;
        arrival.run -= packets;
        if (arrival.run == 0) arrival.at += run_bytes(run_packets(arrival.at));
    }
    arrival.packets -= packets;
    if (arrival.packets == 0) ++first_;
    buffer.state.read(packets);
    if (buffer.state.spent()) reuse(buffer);
}

bool Mailbox::advance() {
    VELO_DCHECK(first_ != behind_, "a packet is advanced that was not shown");
    Arrival& arrival = front();
    const bool contact = arrival.contact;
    read(arrival, 1);
    return contact;
}

uint32_t Mailbox::take_run(std::byte* to, uint32_t packets_max) {
    VELO_DCHECK(first_ != behind_ && packets_max != 0, "a run of %u packets is taken that was not shown",
                packets_max);
    Arrival& arrival = front();
    if (arrival.contact) return 0;
    if (arrival.run != 0) {
        const uint32_t packets = std::min(packets_max, arrival.run);
        base::copy_long(to, arrival.payload, packets * kPayloadBytes);
        read(arrival, packets);
        return packets;
    }
    const uint32_t most = std::min(packets_max, arrival.packets);
    const uint64_t first = status_at(arrival.at);
    const uint8_t lap = PacketStatus::unpack(first).lap;
    uint32_t taken = 0;
    for (; taken < most; ++taken) {
        const std::byte* packet = arrival.at + taken * kPacketBytes;
        if (status_at(packet) != PacketStatus::with_lap(first, static_cast<uint8_t>(lap + taken))) break;
        std::memcpy(to + size_t{taken} * kPayloadBytes, packet, kPayloadBytes);
    }
    read(arrival, taken);
    return taken;
}

const Packet* Mailbox::shown(const std::byte* at) {
    if (reinterpret_cast<uintptr_t>(at) % alignof(Packet) == 0) [[likely]] {
        return reinterpret_cast<const Packet*>(at);
    }
    std::memcpy(&shown_, at, sizeof shown_);
    return &shown_;
}

void Mailbox::begin_run(Arrival& arrival) {
    arrival.run = run_packets(arrival.at);
    VELO_DCHECK(arrival.run <= arrival.packets, "a run of %u packets in a message of %u", arrival.run,
                arrival.packets);
    arrival.payload = arrival.at + kPacketBytes;
}

const Packet* Mailbox::shown_of_run(const Arrival& arrival) {
    std::memcpy(shown_.payload, arrival.payload, kPayloadBytes);
    shown_.status = with_length(status_at(arrival.at), kPayloadBytes);
    return &shown_;
}

void Mailbox::grow() {
    VELO_CHECK(behind_ - first_ == arrivals_.size() && std::has_single_bit(arrivals_.size()),
               "%zu places for messages are too few", arrivals_.size());
    std::vector<Arrival> larger(arrivals_.size() * 2);
    for (uint64_t at = first_; at != behind_; ++at) {
        larger[at & (larger.size() - 1)] = arrivals_[at & (arrivals_.size() - 1)];
    }
    arrivals_.swap(larger);
}

}  // namespace velo::ofi
