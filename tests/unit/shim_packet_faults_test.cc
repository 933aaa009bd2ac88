// The software device under injected faults: packets, without a device (which leave late, and what is shown), and the
// order of atomics.
#include "sim_device/shim/packet_faults.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "sim_device/shim/shim_device.h"
#include "velo/os/clock.h"

namespace velo::shim {
namespace {

constexpr DeviceAddr kPeer{3};
constexpr DeviceAddr kOther{4};

/// Packets whose first byte is a number.
auto numbered(uint8_t number) {
    return [number](uint32_t, std::byte* payload) {
        payload[0] = std::byte{number};
        return PacketStatus{};
    };
}

class PacketFaultsOf : public testing::Test {
  protected:
    void use(const char* text) {
        faults_ = base::Faults::parse(text, 1, 0);
        packet_faults_ = std::make_unique<PacketFaults>(faults_.get());
    }
    Status admit(DeviceAddr to, uint32_t packets, Admission admission, bool& now) {
        sent_ += packets;
        return packet_faults_->admit(to, packets, admission, 8, sent_, now);
    }
    /// The numbers of what leaves by this time.
    std::vector<uint8_t> released(uint64_t now_ns) {
        std::vector<uint8_t> numbers;
        packet_faults_->release(now_ns, [&](DeviceAddr, const base::DelayLine::Message& message) {
            numbers.push_back(std::to_integer<uint8_t>(message.packets[0].payload[0]));
            return Status::kOk;
        });
        return numbers;
    }

    std::unique_ptr<base::Faults> faults_;
    std::unique_ptr<PacketFaults> packet_faults_;
    uint64_t sent_ = 0;
};

TEST_F(PacketFaultsOf, a_delayed_message_leaves_when_it_is_due) {
    use("delay=1:100ns");
    bool now = true;
    ASSERT_EQ(admit(kPeer, 2, Admission::kCredited, now), Status::kOk);
    EXPECT_FALSE(now);
    packet_faults_->delay(kPeer, 2, Admission::kCredited, 1000, numbered(7));
    EXPECT_EQ(packet_faults_->held(kPeer), 2u);
    EXPECT_EQ(packet_faults_->held(kOther), 0u);
    EXPECT_TRUE(released(1099).empty());
    EXPECT_EQ(released(1100), std::vector<uint8_t>{7});
    EXPECT_EQ(packet_faults_->held(kPeer), 0u);
}

TEST_F(PacketFaultsOf, a_guarded_sender_is_held_back_by_what_waits_and_a_credited_one_is_not) {
    use("delay=1:100ns");
    bool now = true;
    ASSERT_EQ(admit(kPeer, 6, Admission::kCredited, now), Status::kOk);
    packet_faults_->delay(kPeer, 6, Admission::kCredited, 0, numbered(1));
    EXPECT_EQ(admit(kPeer, 3, Admission::kGuarded, now), Status::kAgain) << "9 of 8 slots";
    EXPECT_EQ(admit(kPeer, 2, Admission::kGuarded, now), Status::kOk);
    EXPECT_EQ(admit(kPeer, 3, Admission::kCredited, now), Status::kOk);
    EXPECT_EQ(admit(kOther, 3, Admission::kGuarded, now), Status::kOk);
}

TEST_F(PacketFaultsOf, what_waits_for_a_peer_that_died_is_dropped) {
    use("delay=1:100ns");
    bool now = true;
    for (const DeviceAddr to : {kPeer, kOther}) {
        ASSERT_EQ(admit(to, 1, Admission::kCredited, now), Status::kOk);
        packet_faults_->delay(to, 1, Admission::kCredited, 0, numbered(to == kPeer ? 1 : 2));
    }
    packet_faults_->drop(kPeer);
    EXPECT_EQ(released(UINT64_MAX), std::vector<uint8_t>{2});
}

TEST_F(PacketFaultsOf, a_process_dies_rather_than_send_its_last_packet) {
    use("die_after=4");
    bool now = false;
    EXPECT_EQ(admit(kPeer, 4, Admission::kCredited, now), Status::kOk);
    EXPECT_TRUE(now);
    EXPECT_EQ(admit(kPeer, 1, Admission::kCredited, now), Status::kPeerDead);
    EXPECT_TRUE(packet_faults_->stalled(0, 0)) << "and sees nothing more";
}

TEST_F(PacketFaultsOf, a_stall_is_drawn_once_a_packet) {
    use("stall=1:100ns");
    EXPECT_TRUE(packet_faults_->stalled(5, 1000));
    EXPECT_TRUE(packet_faults_->stalled(5, 1099));
    EXPECT_FALSE(packet_faults_->stalled(5, 1100));
    EXPECT_FALSE(packet_faults_->stalled(5, 9000)) << "the same packet is shown";
    EXPECT_TRUE(packet_faults_->stalled(6, 9000));
}

void connect(ShimDevice& from, ShimDevice& to, DeviceAddr& peer) {
    std::byte bytes[kDeviceAddressBytesMax];
    const size_t length = to.address(bytes);
    ASSERT_EQ(from.connect({bytes, length}, peer), Status::kOk);
}

/// A port that works again before the next operation is posted must not let that one overtake.
TEST(ShimFaults, atomics_behind_one_that_was_not_begun_are_not_begun_either) {
    DeviceConfig with_faults = {.node = 1, .job_token = 5, .faults = {}};
    with_faults.faults = "seed=1,port_flap=0.2:1us,rma_late=0.2:1ms";
    ShimDevice device(with_faults);
    ShimDevice target({.node = 2, .job_token = 5, .faults = {}});
    DeviceAddr to = kNoAddr;
    DeviceAddr back = kNoAddr;
    connect(device, target, to);
    connect(target, device, back);
    uint64_t word = 0;
    Registration registration;
    ASSERT_EQ(target.register_memory(&word, 8, kAccessAny, registration), Status::kOk);
    constexpr uint64_t kTotal = 1000;
    uint64_t posted = 0;
    uint64_t ended = 0;
    uint64_t done = 0;
    uint64_t held_back = 0;  // those posted before this one are not to be begun
    uint64_t behind = 0;     // of these, those that were behind another one
    while (ended < kTotal) {
        if (posted < kTotal && device.post({.kind = RmaKind::kFetchAdd,
                                            .cookie = static_cast<uint16_t>(posted),
                                            .peer = to,
                                            .nla = registration.nla,
                                            .key = registration.key,
                                            .bytes = 8,
                                            .operand = 1}) == Status::kOk)
            ++posted;
        usleep(3);  // the port is up again
        device.progress(base::monotonic_ns());
        target.progress(base::monotonic_ns());
        for (Notification notification; device.poll_notification(notification); ++ended) {
            ASSERT_EQ(notification.cookie, ended);
            behind += ended < held_back;
            if (notification.status == Status::kNotBegun) held_back = posted;
            ASSERT_EQ(notification.status, ended < held_back ? Status::kNotBegun : Status::kOk) << ended;
            if (ended < held_back) continue;
            ASSERT_EQ(notification.value, done);
            ++done;
        }
    }
    EXPECT_GT(behind, 50u);
    EXPECT_GT(done, 50u);
    EXPECT_EQ(word, done);
}

}  // namespace
}  // namespace velo::shim
