/// A network's device: whatever strangers, and peers that keep to nothing, send to its endpoint.
#include <algorithm>
#include <array>
#include <vector>

#include "tests/conformance/ofi_names.h"
#include "tests/fuzz/fuzz.h"
#include "velo/ofi/ofi_device.h"

namespace velo::fuzz {

namespace {

using ofi::Address;
using ofi::OfiDevice;

constexpr uint32_t kSlots = 64;
constexpr size_t kBytesMax = ofi::kPartPacketsMin * kPacketBytes + 100;
constexpr int kMessagesMax = 24;
constexpr uint16_t kVictim = 1;
constexpr uint16_t kFriend = 2;
constexpr NetworkOptions kOptions = {.provider_include = conformance::kTcpProvider, .interface_include = "lo"};

DeviceConfig config(uint16_t node) {
    return {.node = node, .job_token = 7, .mailbox_slots = kSlots, .contact_slots = 2, .faults = {}, .peers_max = 2};
}

Address address_of(const OfiDevice& device) {
    std::array<std::byte, kDeviceAddressBytesMax> bytes;
    Address address;
    require(ofi::read_address(std::span(bytes).first(device.address(bytes)), address) == Status::kOk, "an address");
    return address;
}

/// A process that is written to, one that keeps to the protocol, and a bare endpoint that does not.
class Scene {
  public:
    Scene() : victim_address_(address_of(victim_)), to_(bare_.insert(victim_address_.endpoint())) {
        std::array<std::byte, kDeviceAddressBytesMax> bytes;
        require(friend_.connect(std::span(bytes).first(victim_.address(bytes)), name_, nullptr) == Status::kOk,
                "connect");
        // The first packet may come before the provider knows where its sender is.
        talk();
        talk();
    }

    void write(const void* message, size_t bytes) {
        ofi::Context context(ofi::Context::Kind::kFrame);
        fi_cq_data_entry done;
        bool accepted = false;
        for (int tries = 0; tries < 100'000; ++tries) {
            if (!accepted) accepted = fi_send(bare_.ep(), message, bytes, nullptr, to_, &context) == 0;
            const bool sent = fi_cq_read(bare_.cq(), &done, 1) == 1;
            step();
            if (accepted && sent) break;
        }
        for (int i = 0; i < 8; ++i) step();
    }

    /// The friend's next packet comes, whatever else lies in the mailbox.
    void talk() {
        const uint64_t number = ++number_;
        const auto fill = [number](uint32_t, std::byte* payload) {
            std::memcpy(payload, &number, sizeof number);
            return PacketStatus{.end_of_message = true, .length = sizeof number};
        };
        bool sent = false;
        for (int tries = 0; tries < 200'000; ++tries) {
            sent = sent || friend_.send(name_, 1, Admission::kCredited, PacketFill(fill)) == Status::kOk;
            step();
            if (take(1) != 0 && came_ == number) return;
        }
        require(false, "a peer's packets come, whatever others write");
    }

    /// Dequeues packets from the mailbox; returns how many.
    uint32_t take(uint32_t most, bool alike = false) {
        std::array<std::byte, 4 * kPayloadBytes> out;
        uint32_t taken = 0;
        DeviceAddr from = kNoAddr;
        for (const Packet* packet = nullptr; taken < most && (packet = victim_.peek(from)) != nullptr; ++taken) {
            const PacketStatus status = PacketStatus::unpack(packet->status);
            require(victim_.peer(from).node == status.node, "a packet is of whom it says");
            if (status.node == kFriend) std::memcpy(&came_, packet->payload, sizeof came_);
            if (alike && victim_.take_run(out.data(), 4) != 0) continue;
            victim_.advance();
        }
        return taken;
    }

    /// The bare endpoint's address, as that of a process of this job.
    [[nodiscard]] Address own(uint16_t node) const {
        Address own;
        own.head = victim_address_.head;
        own.head.token = 4711 + node;
        own.head.node = node;
        own.head.name_bytes = static_cast<uint16_t>(bare_.name().size());
        std::ranges::copy(bare_.name(), own.name.begin());
        return own;
    }
    [[nodiscard]] uint64_t token() const { return victim_address_.head.token; }
    void finish() {
        talk();
        require(friend_.alive(name_), "a peer that keeps to the protocol goes on");
    }

  private:
    void step() {
        now_ns_ += 10'000;
        victim_.progress(now_ns_);
        friend_.progress(now_ns_);
    }

    OfiDevice victim_{config(kVictim), kOptions};
    OfiDevice friend_{config(kFriend), kOptions};
    ofi::Endpoint bare_{ofi::choose_provider(kOptions), 64, kSlots};
    Address victim_address_;
    fi_addr_t to_;
    DeviceAddr name_ = kNoAddr;
    uint64_t number_ = 0;
    uint64_t came_ = 0;
    uint64_t now_ns_ = 1;
};

uint16_t any_node(Input& input) {
    return static_cast<uint16_t>(input.below(6));
}

void write_slots(Input& input, Scene& scene) {
    std::array<Packet, 4> slots = {};
    const auto count = static_cast<uint32_t>(1 + input.below(slots.size()));
    for (uint32_t i = 0; i < count; ++i) {
        PacketStatus status = PacketStatus::unpack(input.take<uint64_t>());
        if (input.flag()) {
            // About what a peer of this number would send.
            status = {.node = any_node(input), .lap = static_cast<uint8_t>(input.below(4)), .end_of_message = true};
            status.contact = input.below(4) == 0;
        }
        slots[i].status = status.pack();
    }
    scene.write(slots.data(), count * kPacketBytes - (input.below(8) == 0 ? input.below(kPacketBytes) : 0));
}

/// A run, which may name more or fewer packets than there are, and one packet behind it.
void write_run(Input& input, Scene& scene) {
    std::array<Packet, ofi::kPartPacketsMin + 2> slots = {};
    const auto packets = static_cast<uint32_t>(ofi::kRunPacketsMin - 1 + input.below(40));
    const uint32_t said = input.below(3) == 0 ? input.take<uint32_t>() : packets;
    std::memcpy(slots[0].payload, &said, sizeof said);
    PacketStatus status = {.node = any_node(input), .lap = static_cast<uint8_t>(input.below(4))};
    status.contact = input.below(4) == 0;
    slots[0].status = ofi::with_length(status.pack(), ofi::kRunLength);
    const size_t behind = std::min(ofi::run_bytes(packets) / kPacketBytes, slots.size() - 1);
    status.lap = static_cast<uint8_t>(status.lap + packets);
    status.end_of_message = true;
    slots[behind].status = status.pack();
    const size_t cut = input.below(4) == 0 ? input.below(static_cast<uint32_t>(behind)) : 0;
    scene.write(slots.data(), (behind + 1 - cut) * kPacketBytes);
}

void write_hello(Input& input, Scene& scene) {
    std::array<Packet, ofi::kHelloSlotsMax> slots;
    Address sender = scene.own(any_node(input));
    if (input.below(4) == 0) damage(input, std::as_writable_bytes(std::span(&sender, 1)));
    sender.head.name_bytes = std::min<uint16_t>(sender.head.name_bytes, ofi::kEndpointNameBytesMax);
    const uint64_t token = input.below(8) == 0 ? input.take<uint64_t>() : scene.token();
    const ofi::Hello hello = {.receiver_token = token, .sender = sender};
    const uint32_t count = ofi::write_hello(hello, ofi::source_of(any_node(input), 0), slots);
    if (input.below(4) == 0) damage(input, std::as_writable_bytes(std::span(slots).first(count)));
    scene.write(slots.data(), count * kPacketBytes);
}

void write_signal(Input& input, Scene& scene) {
    Packet slot;
    const ofi::Signal signal = {.receiver_token = input.below(8) == 0 ? input.take<uint64_t>() : scene.token(),
                                .bits = input.byte(),
                                .ending = input.byte(),
                                .messages = static_cast<uint32_t>(input.below(4))};
    ofi::write_signal(signal, ofi::source_of(any_node(input), 0), slot);
    if (input.below(4) == 0) damage(input, std::as_writable_bytes(std::span(&slot, 1)));
    scene.write(&slot, sizeof slot);
}

}  // namespace

/// Arrivals at an endpoint: the device stays whole, and its other peers' packets come.
void arrivals(Input& input) {
    Scene scene;
    for (int message = 0; message < kMessagesMax && !input.empty(); ++message) {
        switch (input.below(7)) {
            case 0: {
                std::vector<std::byte> bytes(input.below(kBytesMax));
                const auto some = input.bytes(bytes.size());
                std::ranges::copy(some, bytes.begin());
                scene.write(bytes.data(), bytes.size());
                break;
            }
            case 1: write_slots(input, scene); break;
            case 2: write_hello(input, scene); break;
            case 3: write_signal(input, scene); break;
            case 4: scene.talk(); break;
            case 5: scene.take(static_cast<uint32_t>(input.below(8)), input.flag()); break;
            case 6: write_run(input, scene); break;
        }
    }
    scene.finish();
}

}  // namespace velo::fuzz
