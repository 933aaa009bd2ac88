/// A process below an engine, which speaks to one by the software device as it likes.
#pragma once

#include <cstring>
#include <vector>

#include "rma/rail_reservation.h"
#include "sim_device/shim/shim_device.h"
#include "tests/unit/job.h"
#include "velo/core/peer.h"
#include "velo/wire/engine_wire.h"
#include "velo/wire/handle.h"

namespace velo::test {

using rma::RailMessageKind;

constexpr uint64_t kJob = 77;

/// Thread: one at a time.
class RawPeer {
  public:
    explicit RawPeer(const EngineAddress& victim, uint64_t rank = 1)
        : device_({.node = static_cast<uint16_t>(rank),
                   .host_name = kJob << 32 | rank,
                   .job_token = kJob,
                   .mailbox_slots = victim.mailbox.slots,
                   .ports = 4,
                   .faults = {}}),
          rank_(rank) {
        EXPECT_EQ(device_.connect({victim.device, victim.device_bytes}, to_), Status::kOk);
    }
    static EngineAddress address_of(const Rank& rank) {
        std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
        EngineAddress address;
        EXPECT_TRUE(address.parse(bytes.data(), velo_address(rank.engine, bytes.data(), bytes.size())));
        return address;
    }
    velo_peer_t* connect_from(Rank& rank, const EngineAddress& victim) {
        EngineAddress address = victim;
        address.process.node = static_cast<uint32_t>(rank_);
        address.process.name = kJob << 32 | rank_;
        address.process.rank = static_cast<uint32_t>(rank_);
        address.device_bytes = static_cast<uint32_t>(device_.address(address.device));
        velo_peer_t* peer = nullptr;
        char error[512] = "";
        EXPECT_EQ(
            velo_connect(rank.engine, &address, address.bytes(), true, this, &peer, error, sizeof error),
            VELO_OK)
            << error;
        return peer;
    }
    template <class Header>
    [[nodiscard]] bool send(const Header& header) {
        const auto fill = [&](uint32_t, std::byte* payload) {
            write_header(payload, header);
            return PacketStatus{.message_class = MessageClass::kEngine,
                                .end_of_message = true,
                                .length = static_cast<uint8_t>(sizeof header)};
        };
        return device_.send(to_, 1, Admission::kGuarded, fill) == Status::kOk;
    }
    static RailHeader about(uint8_t rail, RailMessageKind kind, uint32_t number, bool put = false,
                            Status status = Status::kOk) {
        return {.kind = kind, .rail = rail, .status = status, .sends = put, .number = number};
    }
    /// Messages about rails that have come.
    std::vector<RailHeader> take() {
        std::vector<RailHeader> taken;
        device_.progress(0);
        DeviceAddr from = kNoAddr;
        while (const Packet* packet = device_.peek(from)) {
            const PacketStatus status = PacketStatus::unpack(packet->status);
            RailHeader header;
            if (status.message_class == MessageClass::kEngine && read_header(header, packet->payload, status.length))
                taken.push_back(header);
            device_.advance();
        }
        return taken;
    }
    velo_handle_t registered(std::vector<std::byte>& memory) {
        Registration range;
        EXPECT_EQ(device_.register_memory(memory.data(), memory.size(), kAccessAny, range), Status::kOk);
        velo_handle_t handle = {.base = reinterpret_cast<uint64_t>(memory.data()),
                                .bytes = range.bytes,
                                .nla = {0, range.nla},
                                .device_key = range.key,
                                .on_node_key = 1,
                                .reserved = 0,
                                .check = 0};
        handle.check = check_of(handle);
        return handle;
    }

  private:
    shim::ShimDevice device_;
    DeviceAddr to_ = kNoAddr;
    uint64_t rank_;
};

}  // namespace velo::test
