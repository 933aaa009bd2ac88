/// Packets on the wire of a network: what one message of the provider carries of one send().
///
/// A part is a row of slots (velo/wire/packet.h) and of runs. A run is many packets of one message that differ in
/// nothing but their payloads: one slot whose status word is theirs, but for kRunLength in the place of their length,
/// and whose payload is their number; then their payloads, one behind the other, and as many bytes as are missing to
/// a whole slot. So they are copied as one piece, and no part is longer than a slot for each packet.
///
/// Pure. Source: velo/wire/packet.h; the length is free because a payload has at most kPayloadBytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "velo/base/copy.h"
#include "velo/device/network_device.h"
#include "velo/ofi/wire.h"
#include "velo/wire/packet.h"

namespace velo::ofi {

/// The status word of a packet that may lie at any address.
[[nodiscard]] inline uint64_t status_at(const std::byte* packet) {
    uint64_t word = 0;
    std::memcpy(&word, packet + kPayloadBytes, sizeof word);
    return word;
}

inline constexpr uint64_t kLengthMask = 0x7f;
/// A length that no packet has.
inline constexpr uint64_t kRunLength = kLengthMask;
/// Fewer packets go as slots: from this number on a run is shorter than they are.
inline constexpr uint32_t kRunPacketsMin = 8;

[[nodiscard]] constexpr uint64_t with_length(uint64_t word, uint64_t length) {
    return (word & ~(kLengthMask << PacketStatus::kLengthBit)) | length << PacketStatus::kLengthBit;
}
[[nodiscard]] constexpr bool is_run(uint64_t word) {
    return (word >> PacketStatus::kLengthBit & kLengthMask) == kRunLength;
}
/// The packets of a run whose first slot is there, as its sender says.
[[nodiscard]] inline uint32_t run_packets(const std::byte* slot) {
    uint32_t packets = 0;
    std::memcpy(&packets, slot, sizeof packets);
    return packets;
}
/// Bytes of a run of this number of packets on the wire.
[[nodiscard]] constexpr size_t run_bytes(uint32_t packets) {
    return (kPacketBytes + size_t{packets} * kPayloadBytes + kPacketBytes - 1) / kPacketBytes * kPacketBytes;
}
static_assert(run_bytes(kRunPacketsMin) <= kRunPacketsMin * kPacketBytes);

/// Writes packets [first, first + count) of a send and returns how many slots they take. `own`: the sender's bits of
/// each status word; `lap`: of the first.
inline uint32_t write_part(Packet* slots, const PacketFill& fill, uint32_t first, uint32_t count, uint64_t own,
                           uint8_t lap) {
    Packet* slot = slots;
    for (uint32_t done = 0; done < count;) {
        const uint8_t here = static_cast<uint8_t>(lap + done);
        const PacketRun run = count - done < kRunPacketsMin ? PacketRun{} : fill.run(first + done);
        const uint32_t packets = std::min(run.count, count - done);
        if (packets < kRunPacketsMin) {
            const uint64_t word = fill(first + done, slot->payload);
            slot->status = PacketStatus::with_lap((word & ~kSourceMask) | own, here);
            ++slot;
            ++done;
            continue;
        }
        std::memcpy(slot->payload, &packets, sizeof packets);
        slot->status = PacketStatus::with_lap(with_length((run.status.pack() & ~kSourceMask) | own, kRunLength), here);
        const size_t bytes = size_t{packets} * kPayloadBytes;
        const size_t front = std::min(bytes, run.bytes[0]);
        auto* const to = reinterpret_cast<std::byte*>(slot + 1);
        if (front != 0) base::copy_long(to, run.data[0], front);
        if (front != bytes) base::copy_long(to + front, run.data[1], bytes - front);
        slot += run_bytes(packets) / kPacketBytes;
        done += packets;
    }
    return static_cast<uint32_t>(slot - slots);
}

/// The content of a part that came, and whether a process of this version can have written it.
struct PartReading {
    enum class Verdict : uint8_t {
        kWhole,
        kMalformed,
        kGap,  ///< packets before these were lost, or the message is not of the sender that it names
    };
    Verdict verdict;
    bool contact = false;  ///< one packet that fills a contact slot
    uint32_t packets = 0;
};

/// Reads a part of whole slots. `lap`: the sender's count of the packets before it; `packets_max`: of a part.
[[nodiscard]] inline PartReading read_part(std::span<const std::byte> part, uint8_t lap, uint64_t packets_max) {
    using Verdict = PartReading::Verdict;
    const uint64_t first = status_at(part.data());
    const bool contact = PacketStatus::fills_contact_slot(first);
    bool right = true;
    uint64_t packets = 0;
    for (size_t at = 0; at < part.size();) {
        const uint64_t word = status_at(&part[at]);
        const auto here_lap = static_cast<uint8_t>(lap + packets);
        const bool run = is_run(word);
        const uint32_t here = run ? run_packets(&part[at]) : 1;
        if (run && (here < kRunPacketsMin || here > packets_max || run_bytes(here) > part.size() - at)) [[unlikely]] {
            return {Verdict::kMalformed};
        }
        packets += here;
        at += run ? run_bytes(here) : kPacketBytes;
        if (word == PacketStatus::with_lap(first, here_lap)) continue;
        const PacketStatus status = PacketStatus::unpack(word);
        right = right && source_of(word) == source_of(first) && status.message_class != kDeviceClass &&
                status.contact == contact;
        if (status.lap != here_lap) return {Verdict::kGap};
    }
    if (!right || packets > (contact ? 1 : packets_max)) [[unlikely]]
        return {Verdict::kMalformed};
    return {Verdict::kWhole, contact, static_cast<uint32_t>(packets)};
}

}  // namespace velo::ofi
