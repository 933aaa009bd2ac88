/// The VELO packet: one 64-byte mailbox slot, 56 bytes of payload and a status word that is written last.
///
/// Source: FC 2; the status word keeps EXTOLL's bit positions (libvelo2), with spare bits used for
/// the piggyback flag (FC 5.4), the flag of a message that waited (IBFC 4.3), and the lap, by which a
/// software mailbox tells a fresh slot from an old one. EXTOLL's length counts 8-byte units; ours counts
/// bytes, because piggybacking needs the exact end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace velo {

inline constexpr size_t kPacketBytes = 64;
inline constexpr size_t kPayloadBytes = 56;
/// Piggybacked credits are the last two bytes of the payload (FC 5.4), so they need a packet that is
/// at most this full.
inline constexpr size_t kPiggybackBytes = 2;
inline constexpr size_t kPiggybackOffset = kPayloadBytes - kPiggybackBytes;

/// EXTOLL's two-bit message type (mtt).
enum class MessageClass : uint8_t {
    kHost = 0,    ///< a message of the host (an active message of a BTL)
    kEngine = 1,  ///< a message between engines: copied RMA and its answers
    kCredit = 2,  ///< a flow control packet, not part of any message; its tag is a CreditTag
};

/// Kinds of flow control packets (flowctl/outbox.h). The payload is one value of 32 bits, 0 where none is named.
enum class CreditTag : uint8_t {
    kCredits = 0,         ///< returned credits
    kReturnRequest = 1,   ///< compulsory request (FC 6.1)
    kReturnResponse = 2,  ///< its response: credits given up
    kOpen = 3,            ///< the receiver owns slots at the sender; its first credits
    kClose = 4,           ///< it owns none there any more, and gets its own back
    kClosed = 5,          ///< the answer to kClose
};

/// A message of the host's, in two parts.
struct MessageParts {
    const void* header = nullptr;
    const void* payload = nullptr;
    uint32_t header_bytes = 0;
    uint32_t payload_bytes = 0;

    [[nodiscard]] uint32_t bytes() const { return header_bytes + payload_bytes; }
};

/// The status word, unpacked.
struct PacketStatus {
    uint16_t node = 0;  ///< source
    uint8_t vpid = 0;   ///< source
    uint8_t lap = 0;    ///< low bits of 1 + position / mailbox slots
    MessageClass message_class = MessageClass::kHost;
    bool piggyback = false;
    bool waited = false;  ///< of a message's last packet: it had to wait for credits
    bool end_of_message = false;
    bool error = false;
    bool contact = false;  ///< fills a contact slot (Admission::kContact)
    uint8_t tag = 0;
    uint8_t length = 0;  ///< bytes of payload, 0 to 56
    /// First credits of an opening that rides in a message's packet with `contact` (CreditTag::kOpen); 0: none does.
    uint16_t opens = 0;

    static constexpr uint32_t kContactBit = 38;
    static constexpr uint32_t kLengthBit = 48;
    static constexpr uint32_t kOpensBit = 55;
    static constexpr uint32_t kOpensMax = 511;

    [[nodiscard]] constexpr uint64_t pack() const {
        return uint64_t{node} | uint64_t{vpid} << 16 | uint64_t{lap} << 24 |
               static_cast<uint64_t>(message_class) << 32 | uint64_t{piggyback} << 34 |
               uint64_t{waited} << 35 | uint64_t{end_of_message} << 36 | uint64_t{error} << 37 |
               uint64_t{contact} << kContactBit | uint64_t{tag} << 40 | uint64_t{length} << kLengthBit |
               uint64_t{opens} << kOpensBit;
    }
    [[nodiscard]] static constexpr bool fills_contact_slot(uint64_t word) {
        return (word >> kContactBit & 1) != 0;
    }
    /// A status word with another lap, and all else as it is.
    [[nodiscard]] static constexpr uint64_t with_lap(uint64_t word, uint8_t lap) {
        return (word & ~(uint64_t{0xff} << 24)) | uint64_t{lap} << 24;
    }
    /// Any 64 bits unpack; the reader checks what it depends on (class, length).
    [[nodiscard, gnu::always_inline]] static constexpr PacketStatus unpack(uint64_t word) {
        return {.node = static_cast<uint16_t>(word),
                .vpid = static_cast<uint8_t>(word >> 16),
                .lap = static_cast<uint8_t>(word >> 24),
                .message_class = static_cast<MessageClass>(word >> 32 & 3),
                .piggyback = (word >> 34 & 1) != 0,
                .waited = (word >> 35 & 1) != 0,
                .end_of_message = (word >> 36 & 1) != 0,
                .error = (word >> 37 & 1) != 0,
                .contact = fills_contact_slot(word),
                .tag = static_cast<uint8_t>(word >> 40),
                .length = static_cast<uint8_t>(word >> kLengthBit & 0x7f),
                .opens = static_cast<uint16_t>(word >> kOpensBit)};
    }
    constexpr bool operator==(const PacketStatus&) const = default;
};

struct alignas(kPacketBytes) Packet {
    std::byte payload[kPayloadBytes];
    uint64_t status;
};
static_assert(sizeof(Packet) == kPacketBytes && offsetof(Packet, status) == kPayloadBytes);

/// Packets [first, first + count) of a send whose payloads are whole and lie one behind the other from `data`
/// on, under one status.
struct BodyPackets {
    const std::byte* data = nullptr;
    PacketStatus status = {};
    uint32_t first = 0;
    uint32_t count = 0;
};

/// Packets of a send from an index on that are of one message, whole and under one status, and whose payloads lie one
/// behind the other in two places.
struct PacketRun {
    const std::byte* data[2] = {};
    size_t bytes[2] = {};  ///< `count` payloads in all
    PacketStatus status = {};
    uint32_t count = 0;
};

/// Packets that a message of `bytes` takes; an empty message takes one.
[[nodiscard]] constexpr uint32_t packets_for(size_t bytes) {
    return bytes == 0 ? 1 : static_cast<uint32_t>((bytes + kPayloadBytes - 1) / kPayloadBytes);
}
static_assert(packets_for(2048 + 16) == 37);  // FC 5.3

}  // namespace velo
