/// The packets of messages, for Device::send().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "velo/channels/control_packets.h"
#include "velo/channels/gather.h"
#include "velo/device/device.h"
#include "velo/velo.h"
#include "velo/wire/packet.h"

namespace velo {

/// The packets of a part of a message, from `send.done` on. Each one is asked for as fill(index, payload), where those
/// that are whole and alike may be taken as body() or run(index) instead. Asking for a message's last packet takes
/// credits for it.
template <class D>
struct PartFill {
    static constexpr auto kPayload = static_cast<uint32_t>(kPayloadBytes);

    ControlPackets<D>& control;
    DeviceAddr to;
    const velo_send_t& send;
    bool contact;    ///< fills a contact slot
    uint16_t opens;  ///< first credits of an opening that rides along; 0: none does

    PacketStatus operator()(uint32_t index, std::byte* payload) const {
        return PacketStatus::unpack(word(index, payload));
    }
    /// Out of line, so that it does not slow the loop over those that are alike; and as a word, because a status that
    /// is returned is put together on the stack, and read from there only after every store before it is done: those
    /// into the mailbox, whose lines the receiver has.
    [[gnu::noinline]] uint64_t word(uint32_t index, std::byte* payload) const;
    [[nodiscard]] BodyPackets body() const;
    [[nodiscard]] PacketRun run(uint32_t index) const;
    [[nodiscard]] PacketStatus status() const {
        return {.message_class = static_cast<MessageClass>(send.message_class),
                .contact = contact,
                .tag = send.tag,
                .length = static_cast<uint8_t>(kPayload),
                .opens = opens};
    }
};

/// The packets of several messages, none of which has begun.
template <class D>
struct TogetherFill {
    ControlPackets<D>& control;
    DeviceAddr to;
    std::span<velo_send_t* const> sends;
    mutable size_t at = 0;       ///< message of the packet that was filled last
    mutable uint32_t first = 0;  ///< its first packet

    PacketStatus operator()(uint32_t index, std::byte* payload) const { return of(index)(index - first, payload); }
    [[nodiscard]] PacketRun run(uint32_t index) const { return of(index).run(index - first); }
    /// The message that the packet is of.
    [[nodiscard]] PartFill<D> of(uint32_t index) const;
};

/// Credits are taken ahead of a longer message's last payload: the mailbox's lines, which the receiver has, come over
/// one another's latency only while nothing else is stored between them (measured: 20 ns less at 256 bytes). If the
/// packet is the first one as well, its line comes while credits are taken.
template <class D>
uint64_t PartFill<D>::word(uint32_t index, std::byte* payload) const {
    const uint32_t offset = send.done + index * kPayload;
    const uint32_t length = std::min(send.total - offset, kPayload);
    PacketStatus status = this->status();
    status.length = static_cast<uint8_t>(length);
    status.end_of_message = offset + length == send.total;
    if (index == 0) gather(send, offset, payload, length);
    uint16_t credits = 0;
    if (status.end_of_message) {
        status.waited = send.stalled;
        // FC 5.4. The packet goes at once, so the credits in it cannot wait for a credit themselves; and they do not
        // overtake a return that waits.
        if (length <= kPiggybackOffset && control.flow().deferred_credits(to) == 0)
            credits = static_cast<uint16_t>(control.flow().take_piggyback(to, UINT16_MAX));
        status.piggyback = credits != 0;
        control.counters().credits_returned_piggyback += credits;
    }
    if (index != 0) gather(send, offset, payload, length);
    if (status.piggyback) std::memcpy(payload + kPiggybackOffset, &credits, sizeof credits);
    return status.pack();
}

/// Packets that lie in the last part that has bytes, whole, and are not the message's last. A queued message
/// may have all its bytes in the first part.
template <class D>
BodyPackets PartFill<D>::body() const {
    const uint32_t part = send.bytes[1] != 0 ? 1 : 0;
    const uint32_t start = part == 0 ? 0 : send.bytes[0];
    const uint32_t before = start - std::min(start, send.done);
    const uint32_t first = (before + kPayload - 1) / kPayload;
    const uint32_t offset = send.done + first * kPayload;
    if (offset >= send.total) return {};
    return {.data = static_cast<const std::byte*>(send.data[part]) + (offset - start),
            .status = status(),
            .first = first,
            .count = packets_for(send.total - offset) - 1};
}

template <class D>
PacketRun PartFill<D>::run(uint32_t index) const {
    const uint32_t offset = send.done + index * kPayload;
    if (contact || offset >= send.total) return {};
    const uint32_t count = packets_for(send.total - offset) - 1;
    PacketRun run = {.status = status(), .count = count};
    size_t left = size_t{count} * kPayload;
    size_t at = offset;
    for (uint32_t part = 0; part < 2; ++part) {
        const size_t skipped = std::min<size_t>(at, send.bytes[part]);
        run.data[part] = static_cast<const std::byte*>(send.data[part]) + skipped;
        run.bytes[part] = std::min(left, send.bytes[part] - skipped);
        at -= skipped;
        left -= run.bytes[part];
    }
    return run;
}

template <class D>
PartFill<D> TogetherFill<D>::of(uint32_t index) const {
    if (index < first) at = first = 0;
    for (uint32_t packets; index - first >= (packets = packets_for(sends[at]->total)); ++at) first += packets;
    return {.control = control, .to = to, .send = *sends[at], .contact = false, .opens = 0};
}

}  // namespace velo
