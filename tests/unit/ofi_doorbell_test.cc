// The thread that sleeps until something comes.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "tests/conformance/ofi_fabric.h"
#include "velo/ofi/doorbell.h"

namespace velo::ofi {
namespace {

using conformance::address_of;

using Clock = std::chrono::steady_clock;

class OfiDoorbell : public testing::Test {
  protected:
    OfiDoorbell() { EXPECT_EQ(pipe(pipe_), 0); }
    ~OfiDoorbell() override {
        close(pipe_[0]);
        close(pipe_[1]);
    }
    [[nodiscard]] int ready() const { return pipe_[0]; }
    void come() { ASSERT_EQ(write(pipe_[1], "x", 1), 1); }
    void take() {
        char byte = 0;
        ASSERT_EQ(read(pipe_[0], &byte, 1), 1);
    }
    static bool rings_within(Doorbell& doorbell, std::chrono::milliseconds time) {
        for (const auto end = Clock::now() + time; Clock::now() < end; usleep(100)) {
            if (doorbell.rang()) return true;
        }
        return false;
    }

  private:
    int pipe_[2] = {-1, -1};
};

constexpr std::chrono::milliseconds kSoon(10'000);
constexpr std::chrono::milliseconds kNotSoon(20);

TEST_F(OfiDoorbell, rings_once_for_each_time_that_it_is_armed) {
    Doorbell doorbell(ready());
    come();
    EXPECT_FALSE(rings_within(doorbell, kNotSoon)) << "it was not armed";
    take();
    for (int round = 0; round < 20; ++round) {
        doorbell.arm();
        if (round == 0) {
            EXPECT_FALSE(rings_within(doorbell, kNotSoon)) << "nothing has come";
        }
        EXPECT_TRUE(doorbell.armed());
        come();
        ASSERT_TRUE(rings_within(doorbell, kSoon)) << round;
        EXPECT_FALSE(doorbell.armed());
        EXPECT_FALSE(doorbell.rang());
        take();
    }
}

TEST_F(OfiDoorbell, rings_at_once_for_what_was_there_before) {
    Doorbell doorbell(ready());
    come();
    doorbell.arm();
    EXPECT_TRUE(rings_within(doorbell, kSoon));
}

TEST_F(OfiDoorbell, ends_in_every_state) {
    { const Doorbell fresh(ready()); }
    {
        Doorbell armed(ready());
        armed.arm();
    }
    come();
    Doorbell rung(ready());
    rung.arm();
    EXPECT_TRUE(rings_within(rung, kSoon));
}

TEST_F(OfiDoorbell, leaves_signals_to_the_programs_own_threads) {
    const Doorbell doorbell(ready());
    sigset_t usual;
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &blocked, &usual), 0);
    kill(getpid(), SIGUSR1);  // would end the process in any thread that does not block it
    usleep(10'000);
    sigset_t pending;
    sigpending(&pending);
    EXPECT_TRUE(sigismember(&pending, SIGUSR1));
    int taken = 0;
    EXPECT_EQ(sigwait(&blocked, &taken), 0);
    EXPECT_EQ(pthread_sigmask(SIG_SETMASK, &usual, nullptr), 0);
}

/// Time stands still after the quiet, so that the device asks its provider for no other reason.
TEST(OfiQuietDevice, takes_a_packet_that_comes_after_a_quiet_time) {
    constexpr NetworkOptions kOptions = {.provider_include = "net", .interface_include = "lo", .doorbell = true};
    OfiDevice receiver({.node = 0, .mailbox_slots = 64, .faults = {}}, kOptions);
    OfiDevice sender({.node = 1, .mailbox_slots = 64, .faults = {}}, kOptions);
    DeviceAddr to = kNoAddr;
    ASSERT_EQ(sender.connect(address_of(receiver).span(), to, nullptr), Status::kOk);
    const auto fill = [](uint32_t, std::byte*) { return PacketStatus{.end_of_message = true, .length = 8}; };
    uint64_t now_ns = 1'000'000'000;
    for (uint64_t number = 0; number < 20; ++number) {
        for (int i = 0; i < 1000; ++i) receiver.progress(now_ns += 1000);
        Status status = Status::kAgain;
        const auto end = Clock::now() + kSoon;
        DeviceAddr from = kNoAddr;
        while (receiver.peek(from) == nullptr && Clock::now() < end) {
            if (status != Status::kOk) status = sender.send(to, 1, Admission::kCredited, PacketFill(fill));
            sender.progress(now_ns += 1000 * uint64_t{number == 0});
            receiver.progress(now_ns);
        }
        ASSERT_NE(receiver.peek(from), nullptr) << number;
        receiver.advance();
    }
}

}  // namespace
}  // namespace velo::ofi
