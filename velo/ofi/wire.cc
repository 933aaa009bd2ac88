#include "velo/ofi/wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace velo::ofi {
namespace {

constexpr uint64_t kMagic = 0x01'69'66'6f'6f'6c'65'76;  // "veloofi" and a byte that swapped integers show

/// FNV-1a: each step is a bijection of the state, so that one damaged byte always shows.
uint64_t add_to_checksum(uint64_t sum, std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) sum = (sum ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
    return sum;
}

uint64_t checksum_of(AddressHead head, std::span<const std::byte> name) {
    head.checksum = 0;
    const uint64_t sum = add_to_checksum(0xcbf29ce484222325, std::as_bytes(std::span(&head, 1)));
    return add_to_checksum(sum, name);
}

/// The names of further rails belong to one address, so its token goes in.
uint64_t section_checksum(uint64_t token, std::span<const std::byte> section) {
    return add_to_checksum(add_to_checksum(0xcbf29ce484222325, std::as_bytes(std::span(&token, 1))), section);
}

/// Whether every slot is of the device, with this tag, and whole.
bool slots_are(std::span<const std::byte> message, SlotTag tag) {
    for (size_t at = 0; at < message.size(); at += kPacketBytes) {
        uint64_t word = 0;
        std::memcpy(&word, message.data() + at + kPayloadBytes, sizeof word);
        const PacketStatus status = PacketStatus::unpack(word);
        if (status.message_class != kDeviceClass || status.tag != static_cast<uint8_t>(tag)) return false;
        if (status.length > kPayloadBytes) return false;
    }
    return !message.empty() && message.size() % kPacketBytes == 0;
}

uint64_t status_of(SlotTag tag, uint32_t source, size_t length) {
    const PacketStatus status = {.node = static_cast<uint16_t>(source),
                                 .vpid = static_cast<uint8_t>(source >> 16),
                                 .message_class = kDeviceClass,
                                 .tag = static_cast<uint8_t>(tag),
                                 .length = static_cast<uint8_t>(length)};
    return status.pack();
}

}  // namespace

std::string_view Address::provider() const {
    const auto end = std::find(head.provider.begin(), head.provider.end(), '\0');
    return {head.provider.data(), static_cast<size_t>(end - head.provider.begin())};
}

void Address::set_provider(std::string_view provider) {
    head.provider = {};
    std::copy_n(provider.data(), std::min(provider.size(), head.provider.size()), head.provider.data());
}

size_t write_address(Address address, std::span<std::byte> out) {
    address.head.magic = kMagic;
    address.head.version = kProtocolVersion;
    address.head.checksum = checksum_of(address.head, address.endpoint());
    const size_t bytes = sizeof address.head + address.head.name_bytes;
    if (out.size() < bytes) return 0;
    std::memcpy(out.data(), &address.head, sizeof address.head);
    std::memcpy(out.data() + sizeof address.head, address.name.data(), address.head.name_bytes);
    return bytes;
}

Status read_address(std::span<const std::byte> in, Address& out) {
    Address address;
    if (in.size() < sizeof address.head) return Status::kBadParam;
    std::memcpy(&address.head, in.data(), sizeof address.head);
    const std::span<const std::byte> name = in.subspan(sizeof address.head);
    if (address.head.magic != kMagic || address.head.name_bytes != name.size()) return Status::kBadParam;
    if (name.size() > address.name.size()) return Status::kBadParam;
    if (address.head.checksum != checksum_of(address.head, name)) return Status::kBadParam;
    if (address.head.version != kProtocolVersion) return Status::kUnsupported;
    std::ranges::copy(name, address.name.begin());
    out = address;
    return Status::kOk;
}

size_t write_rails_address(const RailsAddress& address, std::span<std::byte> out) {
    Address first = address.first;
    first.head.other_rails = 0;
    const size_t first_bytes = sizeof first.head + first.head.name_bytes;
    const size_t room = std::min(out.size(), kDeviceAddressBytesMax);
    std::vector<std::byte> section;
    for (const std::vector<std::byte>& name : address.others) {
        const auto name_bytes = static_cast<uint16_t>(name.size());
        const size_t bytes = first_bytes + sizeof(uint64_t) + section.size() + sizeof name_bytes + name.size();
        if (bytes > room || first.head.other_rails == kRailsMax - 1) break;
        const auto length = std::as_bytes(std::span(&name_bytes, 1));
        section.insert(section.end(), length.begin(), length.end());
        section.insert(section.end(), name.begin(), name.end());
        ++first.head.other_rails;
    }
    const size_t written = write_address(first, out);
    if (written == 0 || section.empty()) return written;
    const uint64_t sum = section_checksum(first.head.token, section);
    std::memcpy(&out[first_bytes], &sum, sizeof sum);
    std::ranges::copy(section, out.begin() + static_cast<ptrdiff_t>(first_bytes + sizeof sum));
    return first_bytes + sizeof sum + section.size();
}

Status read_rails_address(std::span<const std::byte> in, RailsAddress& out) {
    RailsAddress address;
    AddressHead head;
    if (in.size() < sizeof head) return Status::kBadParam;
    std::memcpy(&head, in.data(), sizeof head);
    const size_t first_bytes = std::min(sizeof head + head.name_bytes, in.size());
    const Status status = read_address(in.first(first_bytes), address.first);
    if (status != Status::kOk) return status;
    std::span<const std::byte> section = in.subspan(first_bytes);
    if (head.other_rails == 0) {
        if (!section.empty()) return Status::kBadParam;
        out = std::move(address);
        return Status::kOk;
    }
    uint64_t sum = 0;
    if (head.other_rails >= kRailsMax || section.size() < sizeof sum) return Status::kBadParam;
    std::memcpy(&sum, section.data(), sizeof sum);
    section = section.subspan(sizeof sum);
    if (sum != section_checksum(head.token, section)) return Status::kBadParam;
    for (uint8_t rail = 0; rail < head.other_rails; ++rail) {
        uint16_t bytes = 0;
        if (section.size() < sizeof bytes) return Status::kBadParam;
        std::memcpy(&bytes, section.data(), sizeof bytes);
        section = section.subspan(sizeof bytes);
        if (bytes > kEndpointNameBytesMax || bytes > section.size()) return Status::kBadParam;
        address.others.emplace_back(section.begin(), section.begin() + bytes);
        section = section.subspan(bytes);
    }
    if (!section.empty()) return Status::kBadParam;
    out = std::move(address);
    return Status::kOk;
}

uint32_t write_hello(const Hello& hello, uint32_t source, std::span<Packet, kHelloSlotsMax> slots) {
    std::array<std::byte, sizeof(uint64_t) + kAddressBytesMax> text;
    std::memcpy(text.data(), &hello.receiver_token, sizeof(uint64_t));
    const size_t bytes = sizeof(uint64_t) + write_address(hello.sender, std::span(text).subspan(sizeof(uint64_t)));
    uint32_t count = 0;
    for (size_t at = 0; at < bytes; at += kPayloadBytes, ++count) {
        const size_t here = std::min(bytes - at, kPayloadBytes);
        std::memset(slots[count].payload, 0, kPayloadBytes);
        std::memcpy(slots[count].payload, text.data() + at, here);
        slots[count].status = status_of(SlotTag::kHello, source, here);
    }
    return count;
}

Status read_hello(std::span<const std::byte> message, Hello& hello) {
    if (message.size() > kHelloSlotsMax * kPacketBytes || !slots_are(message, SlotTag::kHello)) {
        return Status::kBadParam;
    }
    std::array<std::byte, kHelloSlotsMax * kPayloadBytes> text;
    size_t bytes = 0;
    for (size_t at = 0; at < message.size(); at += kPacketBytes) {
        uint64_t word = 0;
        std::memcpy(&word, message.data() + at + kPayloadBytes, sizeof word);
        const size_t here = PacketStatus::unpack(word).length;
        std::memcpy(text.data() + bytes, message.data() + at, here);
        bytes += here;
    }
    if (bytes < sizeof(uint64_t)) return Status::kBadParam;
    std::memcpy(&hello.receiver_token, text.data(), sizeof(uint64_t));
    return read_address(std::span(text).first(bytes).subspan(sizeof(uint64_t)), hello.sender);
}

void write_signal(const Signal& signal, uint32_t source, Packet& slot) {
    std::memset(slot.payload, 0, kPayloadBytes);
    std::memcpy(slot.payload, &signal, sizeof signal);
    slot.status = status_of(SlotTag::kSignal, source, sizeof signal);
}

Status read_signal(std::span<const std::byte> message, Signal& signal) {
    if (message.size() != kPacketBytes || !slots_are(message, SlotTag::kSignal)) return Status::kBadParam;
    std::memcpy(&signal, message.data(), sizeof signal);
    return Status::kOk;
}

}  // namespace velo::ofi
