// The notation of faults, and their draws.
#include <gtest/gtest.h>

#include "velo/device/faults.h"
#include "velo/os/shared_segment.h"

namespace velo::base {
namespace {

std::string refusal(const std::string& text) {
    try {
        Faults::parse(text, 0, 0);
    } catch (const SetupError& error) {
        return error.what();
    }
    return "";
}

TEST(Faults, no_text_is_no_faults) {
    EXPECT_EQ(Faults::parse("", 1, 2), nullptr);
}

TEST(Faults, every_setting_is_understood) {
    EXPECT_NE(Faults::parse("seed=7,delay=0.01:200us,stall=0.001:1ms,rma_late=0.05:1ms,rma_fail=0.01,"
                            "rma_denied=1,atu_fault=0.01,port_down=1:500,die_after=1000",
                            0, 0),
              nullptr);
    EXPECT_EQ(Faults::parse("delay=1:5ns", 0, 0)->packet_delay_ns(), 5u);
    EXPECT_EQ(Faults::parse("delay=1:5us", 0, 0)->packet_delay_ns(), 5'000u);
    EXPECT_EQ(Faults::parse("stall=1:5ms", 0, 0)->mailbox_stall_ns(), 5'000'000u);
    EXPECT_EQ(Faults::parse("rma_late=1:5s", 0, 0)->rma(0).late_ns, 5'000'000'000u);
}

TEST(Faults, what_is_not_understood_is_named_and_the_valid_settings_listed) {
    for (const std::string token : {"sede=7",
                                    "delay",
                                    "delay=0.1",
                                    "delay=0.1:",
                                    "delay=0.1:5",
                                    "delay=0.1:5m",
                                    "delay=2:5us",
                                    "delay=-1:5us",
                                    "delay=x:5us",
                                    "delay=nan:5us",
                                    "rma_fail=",
                                    "rma_fail=0.5x",
                                    "rma_fail=0.1:3us",
                                    "seed=-1",
                                    "seed=1.5",
                                    "die_after=many",
                                    "port_down=1",
                                    "port_down=a:1",
                                    "=1",
                                    "stall=0.1:99999999999999999999s",
                                    "stall=0.1:18446744073709551615s"}) {
        for (const std::string& text : {token, "seed=1," + token, token + ",seed=1"}) {
            const std::string why = refusal(text);
            EXPECT_NE(why.find("'" + token + "'"), std::string::npos) << text << " -> " << why;
            EXPECT_NE(why.find("die_after=N"), std::string::npos) << why;
        }
    }
    EXPECT_NE(refusal("seed=1,,rma_fail=1"), "");
    EXPECT_NE(refusal("seed=1,"), "");
}

TEST(Faults, what_a_device_does_not_inject_is_named_and_what_it_does_is_listed) {
    constexpr std::string_view kSome = "seed=N, stall=P:T, rma_fail=P";
    EXPECT_NE(Faults::parse("seed=7,stall=0.1:1ms,rma_fail=1", 0, 0, kSome), nullptr);
    for (const std::string token :
         {"delay=1:1us", "rma_late=1:1us", "rma_denied=1", "atu_fault=1", "port_down=1:5", "die_after=3", "foo=3"}) {
        std::string why;
        try {
            Faults::parse("seed=1," + token, 0, 0, kSome);
        } catch (const SetupError& error) {
            why = error.what();
        }
        EXPECT_NE(why.find("'" + token + "'"), std::string::npos) << token << " -> " << why;
        EXPECT_NE(why.find(token == "foo=3" ? "there is no setting" : "this device injects no"), std::string::npos);
        EXPECT_NE(why.find("settings: seed=N, stall=P:T, rma_fail=P,"), std::string::npos) << why;
    }
}

TEST(Faults, frequencies_are_those_asked_for) {
    const auto faults = Faults::parse("seed=3,delay=0.1:1us,rma_fail=0.5", 0, 0);
    int delays = 0;
    int fails = 0;
    for (int i = 0; i < 100'000; ++i) {
        delays += faults->packet_delay_ns() != 0;
        fails += faults->rma(0).status == Status::kFailed;
    }
    // Six standard deviations: 570 and 950.
    EXPECT_NEAR(delays, 10'000, 600);
    EXPECT_NEAR(fails, 50'000, 1000);
    EXPECT_EQ(faults->injected(), static_cast<uint64_t>(delays + fails));
}

TEST(Faults, zero_never_hits_and_one_always_does) {
    const auto never = Faults::parse("delay=0:1us,rma_fail=0", 0, 0);
    const auto always = Faults::parse("delay=1:1us,rma_fail=1", 0, 0);
    for (int i = 0; i < 10'000; ++i) {
        ASSERT_EQ(never->packet_delay_ns(), 0u);
        ASSERT_EQ(never->rma(0).status, Status::kOk);
        ASSERT_EQ(always->packet_delay_ns(), 1'000u);
        ASSERT_EQ(always->rma(0).status, Status::kFailed);
    }
}

TEST(Faults, a_seed_repeats_and_processes_kinds_and_seeds_differ) {
    const auto draws = [](const std::string& text, uint16_t node, uint8_t vpid) {
        const auto faults = Faults::parse(text, node, vpid);
        std::vector<bool> hits;
        for (int i = 0; i < 500; ++i) hits.push_back(faults->packet_delay_ns() != 0);
        return hits;
    };
    const auto base = draws("seed=1,delay=0.5:1us", 3, 4);
    EXPECT_EQ(base, draws("seed=1,delay=0.5:1us", 3, 4));
    EXPECT_EQ(base, draws("delay=0.5:1us,stall=0.5:1us,seed=1", 3, 4)) << "other kinds do not disturb";
    EXPECT_NE(base, draws("seed=2,delay=0.5:1us", 3, 4));
    EXPECT_NE(base, draws("seed=1,delay=0.5:1us", 4, 4));
    EXPECT_NE(base, draws("seed=1,delay=0.5:1us", 3, 5));
}

TEST(Faults, a_port_goes_down_after_its_operations_and_stays_down) {
    const auto faults = Faults::parse("port_down=2:3", 0, 0);
    for (int i = 0; i < 10; ++i) {
        EXPECT_EQ(faults->rma(2).status, i < 3 ? Status::kOk : Status::kNotBegun);
        EXPECT_EQ(faults->ports_down(0), i < 2 ? 0u : 0b100u);
        EXPECT_EQ(faults->rma(1).status, Status::kOk);
    }
}

TEST(Faults, a_port_that_flaps_is_down_for_its_time_with_what_is_under_way) {
    const auto faults = Faults::parse("seed=1,port_flap=0.1:50ns", 0, 0);
    uint64_t up_ns = 0;
    int deaths = 0;
    for (uint64_t now = 1; now < 20'000; now += 7) {
        const RmaFault fault = faults->rma(3, now);
        if (fault.takes_port) {
            ++deaths;
            up_ns = now + 50;
        }
        ASSERT_EQ(fault.status, now < up_ns ? Status::kNotBegun : Status::kOk);
        ASSERT_EQ(faults->ports_down(now), now < up_ns ? 0b1000u : 0u);
    }
    EXPECT_GT(deaths, 200);
    EXPECT_LT(deaths, 400);
}

TEST(DelayLine, what_is_kept_back_keeps_what_follows_it) {
    DelayLine line;
    line.push(1, {.due_ns = 100, .packets = std::vector<Packet>(2)});
    line.push(1, {.due_ns = 50, .packets = std::vector<Packet>(1)});
    line.push(2, {.due_ns = 50, .packets = std::vector<Packet>(4)});
    EXPECT_EQ(line.waiting(1), 3u);
    std::vector<DeviceAddr> left;
    const auto send = [&left](DeviceAddr to, const DelayLine::Message&) {
        left.push_back(to);
        return Status::kOk;
    };
    EXPECT_EQ(line.release(60, send), 1u);
    EXPECT_EQ(left, std::vector<DeviceAddr>{2});
    const auto refuse = [](DeviceAddr, const DelayLine::Message&) { return Status::kAgain; };
    EXPECT_EQ(line.release(100, refuse), 0u);
    EXPECT_EQ(line.waiting(1), 3u);
    EXPECT_EQ(line.release(100, send), 2u);
    EXPECT_EQ(line.waiting(1), 0u);
    line.push(3, {.due_ns = 0, .packets = std::vector<Packet>(1)});
    line.drop(3);
    EXPECT_EQ(line.release(UINT64_MAX, send), 0u);
}

}  // namespace
}  // namespace velo::base
