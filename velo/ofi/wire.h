/// The messages of the device itself, and the address that a process publishes.
///
/// Every message is a number of slots (velo/wire/packet.h), status words included. Messages of the engine have its
/// classes (velo/ofi/parts.h), those of the device have kDeviceClass; their tag says which:
///
///   kHello   1 to kHelloSlotsMax slots whose payloads, one behind the other, are the receiver's token and the sender's
///            address. It goes ahead of everything else to a peer.
///   kSignal  1 slot: the receiver's token, SignalBits, and an Ending.
///
/// The receiver's token is in its address alone, so that a message with it comes from a process that was given the
/// address. The status words of the engine's packets have the sender's count of packets to this peer in place of the
/// lap, by which a lost message is found.
///
/// Integers are in the host's order: all processes of a job run on one architecture, and the magic tells where not.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "velo/device/device.h"
#include "velo/wire/packet.h"

namespace velo::ofi {

/// Counts up with every change of what is said here, or of ReceiveSpace::part_packets().
inline constexpr uint16_t kProtocolVersion = 5;

/// Longest name of an endpoint: IPv6 28 bytes, efa 32, shm a string of up to 108.
inline constexpr size_t kEndpointNameBytesMax = 128;

/// An address as it is published, without the endpoint's name behind it.
struct AddressHead {
    uint64_t magic = 0;
    uint64_t checksum = 0;  ///< of everything, with this field 0
    uint64_t token = 0;     ///< random; other ones each time
    uint64_t job_token = 0;
    uint64_t host_name = 0;
    uint32_t mailbox_slots = 0;
    uint32_t name_format = 0;  ///< libfabric's addr_format
    uint16_t version = 0;
    uint16_t node = 0;
    uint16_t name_bytes = 0;
    uint8_t vpid = 0;
    uint8_t other_rails = 0;  ///< endpoints beside this one (RailsAddress); not said in a hello
    std::array<char, 24> provider = {};  ///< padded with zeros
};
static_assert(sizeof(AddressHead) == 80);

struct Address {
    AddressHead head;
    std::array<std::byte, kEndpointNameBytesMax> name = {};

    [[nodiscard]] std::span<const std::byte> endpoint() const { return {name.data(), head.name_bytes}; }
    [[nodiscard]] std::string_view provider() const;
    void set_provider(std::string_view provider);
};
inline constexpr size_t kAddressBytesMax = sizeof(AddressHead) + kEndpointNameBytesMax;
static_assert(kAddressBytesMax <= kDeviceAddressBytesMax);

/// Writes magic, version and checksum as well; returns the length, 0 if `out` is too short.
size_t write_address(Address address, std::span<std::byte> out);
/// kBadParam: no address, or a damaged one; kUnsupported: of another version of velo.
Status read_address(std::span<const std::byte> in, Address& out);

/// Interfaces of one process, each with an endpoint of its own: the first has the mailbox, the others carry RMA
/// operations alone.
inline constexpr uint32_t kRailsMax = 4;

/// The address that a process publishes: that of its first rail, and behind it, if there are others, a checksum and for
/// each of them two bytes of length and the endpoint's name. All else they have in common.
struct RailsAddress {
    Address first;
    std::vector<std::vector<std::byte>> others;
};

/// Leaves out the last rails as far as `out` is too short; returns the length, 0 where not even the first fits.
size_t write_rails_address(const RailsAddress& address, std::span<std::byte> out);
/// As read_address().
Status read_rails_address(std::span<const std::byte> in, RailsAddress& out);

/// Of the two bits of a status word's class, the value that no message of the engine has.
inline constexpr auto kDeviceClass = static_cast<MessageClass>(3);
enum class SlotTag : uint8_t { kHello = 1, kSignal = 2 };

inline constexpr uint32_t kHelloSlotsMax = packets_for(sizeof(uint64_t) + kAddressBytesMax);

struct Hello {
    uint64_t receiver_token = 0;
    Address sender;
};
/// Returns how many of `slots` it takes.
uint32_t write_hello(const Hello& hello, uint32_t source, std::span<Packet, kHelloSlotsMax> slots);
/// As read_address(); kBadParam also for slots that are no hello.
Status read_hello(std::span<const std::byte> message, Hello& hello);

/// The values are bits; several may be said at once.
enum SignalBit : uint32_t {
    kPing = 1,
    kPong = 2,
    kContactAdmitted = 4,
    kContactCalled = 8,
    kClosing = 16,
    kClosingHeard = 32,  ///< all that the other one has sent is here; the last word to it
};
struct Signal {
    uint64_t receiver_token = 0;
    uint32_t bits = 0;
    uint32_t ending = 0;  ///< a base::Ending, with kClosing
    /// Messages from its sender to its receiver before this one, without the hello. A provider that connects again does
    /// not say what was lost with the old connection: where nothing follows it, this does.
    uint32_t messages = 0;
    uint32_t reserved = 0;
};
void write_signal(const Signal& signal, uint32_t source, Packet& slot);
Status read_signal(std::span<const std::byte> message, Signal& signal);

/// The source of packets as a number: the low bits of a status word.
inline constexpr uint64_t kSourceMask = 0xffffff;
[[nodiscard]] constexpr uint32_t source_of(uint16_t node, uint8_t vpid) {
    return node | uint32_t{vpid} << 16;
}
[[nodiscard]] constexpr uint32_t source_of(uint64_t status) {
    return static_cast<uint32_t>(status & kSourceMask);
}

/// Slots that the device's own messages take in a mailbox at once, for each process that may send here: its hello, one
/// contact packet that is not admitted, its unanswered pings, a pong, an answer, a closing signal and the answer to one
/// (at most as many signals as each of these by itself).
inline constexpr uint32_t kControlSlotsPerPeer = kHelloSlotsMax + 1 + 5 + 4;
inline constexpr size_t kControlBytesPerPeer = kControlSlotsPerPeer * kPacketBytes;

}  // namespace velo::ofi
