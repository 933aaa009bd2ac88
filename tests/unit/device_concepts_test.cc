// The device's contract (velo/device/device.h): minimal devices of each concept, and the defaults for those without
// health.
#include <gtest/gtest.h>

#include "velo/device/device.h"
#include "velo/engine/any_device.h"

namespace velo {
namespace {

struct Packets {
    static constexpr DeviceTraits kTraits = {};

    size_t address(std::span<std::byte>) const { return 0; }
    [[nodiscard]] const DeviceTraits& traits() const { return kTraits; }
    Status connect(std::span<const std::byte>, DeviceAddr&, base::Failure*) { return Status::kUnsupported; }
    [[nodiscard]] DevicePeer peer(DeviceAddr) const { return {}; }
    template <class Fill>
    Status send(DeviceAddr, uint32_t, Admission, Fill&&) {
        return Status::kAgain;
    }
    const Packet* peek(DeviceAddr&) { return nullptr; }
    void advance() {}
    uint32_t take_run(std::byte*, uint32_t) { return 0; }
    uint32_t progress(uint64_t) { return 0; }
    [[nodiscard]] DeviceReport report(DeviceAddr) const { return {}; }
    [[nodiscard]] DeviceLimits limits() const { return {}; }
    [[nodiscard]] DeviceCounters counters() const { return {}; }
};
struct Rma {
    Status register_memory(void*, size_t, uint32_t, Registration&) { return Status::kUnsupported; }
    Status deregister(const Registration&) { return Status::kBadParam; }
    Status post(const RmaOperation&) { return Status::kUnsupported; }
    bool poll_notification(Notification&) { return false; }
};
struct Health {
    [[nodiscard]] bool alive(DeviceAddr peer) const { return peer != 1; }
    void announce_ending(base::Ending ending) { announced = ending; }
    [[nodiscard]] base::Ending announced_ending(DeviceAddr) const { return base::Ending::kFollowed; }
    base::Ending announced = base::Ending::kNone;
};
struct Watch {
    void watch(DeviceAddr peer) { watched = peer; }
    DeviceAddr watched = kNoAddr;
};
struct Election {
    bool claim_report(DeviceAddr) { return !claimed++; }
    int claimed = 0;
};

template <class... Parts>
struct Made : Parts... {};

static_assert(PacketDevice<Packets> && !RmaDevice<Packets> && !PeerHealth<Packets> && !Device<Packets>);
static_assert(RmaDevice<Rma> && !PacketDevice<Rma> && !Device<Rma>);
static_assert(PeerHealth<Health> && !PeerWatch<Health> && !ReportElection<Health>);
static_assert(!PeerHealth<Watch> && !PeerWatch<Watch> && !ReportElection<Election>);

// Health is optional, and so is each part of it that a trait asks for.
static_assert(Device<Made<Packets, Rma>>);
static_assert(Device<Made<Packets, Rma, Health>>);
static_assert(Device<Made<Packets, Rma, Health, Watch>> && PeerWatch<Made<Packets, Rma, Health, Watch>>);
static_assert(Device<Made<Packets, Rma, Health, Election>> && ReportElection<Made<Packets, Rma, Health, Election>>);

// A part of it, or one with another signature, is a mistake.
struct OnlyAlive {
    [[nodiscard]] bool alive(DeviceAddr) const { return true; }
};
struct AliveAsNumber : Health {
    [[nodiscard]] int alive(DeviceAddr) const { return 1; }
};
static_assert(!Device<Made<Packets, Rma, OnlyAlive>>);
static_assert(!Device<Made<Packets, Rma, AliveAsNumber>>);
static_assert(!Device<Made<Packets, Rma, Watch>>);
static_assert(!Device<Made<Packets, Rma, Election>>);

// The run-time choice has all parts of both devices; each of those has the parts that it can serve.
static_assert(PeerWatch<AnyDevice> && ReportElection<AnyDevice>);
static_assert(ReportElection<shim::ShimDevice> && !PeerWatch<shim::ShimDevice>);

TEST(DeviceHealth, without_it_peers_live_and_nothing_is_asked_of_the_device) {
    Made<Packets, Rma> device;
    EXPECT_TRUE(health::alive(device, 1));
    EXPECT_EQ(health::announced_ending(device, 1), base::Ending::kNone);
    health::announce_ending(device, base::Ending::kClosed);
    health::watch(device, 1);
    EXPECT_TRUE(health::claim_report(device, 1));
    EXPECT_TRUE(health::claim_report(device, 1));
}

TEST(DeviceHealth, a_device_that_has_it_is_asked) {
    Made<Packets, Rma, Health, Watch, Election> device;
    EXPECT_TRUE(health::alive(device, 0));
    EXPECT_FALSE(health::alive(device, 1));
    EXPECT_EQ(health::announced_ending(device, 1), base::Ending::kFollowed);
    health::announce_ending(device, base::Ending::kClosed);
    EXPECT_EQ(device.announced, base::Ending::kClosed);
    health::watch(device, 7);
    EXPECT_EQ(device.watched, 7u);
    EXPECT_TRUE(health::claim_report(device, 1));
    EXPECT_FALSE(health::claim_report(device, 1));
}

}  // namespace
}  // namespace velo
