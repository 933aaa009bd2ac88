// The tracer of credits, alone: over flow control that the test drives, into a file that it reads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <variant>

#include "tests/unit/fake_core.h"
#include "velo/report/credit_tracer_impl.h"

namespace velo {
namespace {

struct FakePackets {
    explicit FakePackets(const flowctl::Plan& plan) : control(plan), peers(plan.peers) {}
    [[nodiscard]] const flowctl::FlowControl& flow() const { return control; }
    [[nodiscard]] const CreditStalls& stalls() const { return waits; }
    [[nodiscard]] bool admits(DeviceAddr peer) const { return peer < peers; }

    flowctl::FlowControl control;
    CreditStalls waits;
    uint32_t peers;
};

struct FakeCore : test::PlainCore {
    explicit FakeCore(const std::string& file) : path(file) {
        options.identity.rank = 3;
        options.identity.job = 5;
        options.plan = std::get<flowctl::Plan>(flowctl::plan({.mode = flowctl::Mode::kStatic, .peers = 4}));
        options.params.trace = path.c_str();
        options.tuning.trace_period_ms = 10;
        packets.emplace(options.plan);
    }
    std::string path;
    std::optional<FakePackets> packets;
};

class TracerAlone : public testing::Test {
  protected:
    TracerAlone() : path_(testing::TempDir() + "velo_tracer_" + std::to_string(getpid())) {}
    ~TracerAlone() override { unlink((path_ + ".3").c_str()); }
    velo_peer& peer(uint32_t index) {
        velo_peer& found = peers_.of(VELO_PATH_DEVICE, index);
        found.rank = 10 + index;
        found.pid = 1000;
        return found;
    }
    /// Lines of the file that begin with `kind`.
    [[nodiscard]] std::string lines(const std::string& kind) const {
        std::ifstream file(path_ + ".3");
        std::string all;
        for (std::string line; std::getline(file, line);) {
            if (line.find(kind) == 0) all += line + "\n";
        }
        return all;
    }
    static size_t count(const std::string& text) {
        return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
    }

    std::string path_;
    Peers peers_;
};

TEST_F(TracerAlone, nothing_is_written_without_a_name_and_no_sample_is_due) {
    FakeCore core("");
    CreditTracer<FakeCore> tracer(core, peers_);
    EXPECT_EQ(tracer.next_sample_ns(), UINT64_MAX);
    tracer.finish(core.counters);
    EXPECT_TRUE(core.lines.empty());
}

TEST_F(TracerAlone, job_without_a_device_has_no_credits_to_trace_and_one_line_says_so) {
    FakeCore core(path_);
    core.packets.reset();
    CreditTracer<FakeCore> tracer(core, peers_);
    EXPECT_EQ(tracer.next_sample_ns(), UINT64_MAX);
    ASSERT_EQ(core.lines.size(), 1u);
    EXPECT_EQ(core.lines[0].find("btl_velo_trace: no rank is reached through the device"), 0u);
}

TEST_F(TracerAlone, directory_is_no_file_and_costs_the_trace_alone) {
    FakeCore core(testing::TempDir());
    CreditTracer<FakeCore> tracer(core, peers_);
    EXPECT_EQ(tracer.next_sample_ns(), UINT64_MAX);
    ASSERT_EQ(core.lines.size(), 1u);
    EXPECT_NE(core.lines[0].find("is a directory; name a file in it"), std::string::npos);
    tracer.finish(core.counters);
}

TEST_F(TracerAlone, file_that_cannot_be_made_costs_the_trace_alone) {
    FakeCore core("/nonexistent/trace");
    CreditTracer<FakeCore> tracer(core, peers_);
    EXPECT_EQ(tracer.next_sample_ns(), UINT64_MAX);
    ASSERT_EQ(core.lines.size(), 1u);
    EXPECT_NE(core.lines[0].find("this job goes on without a trace"), std::string::npos);
}

TEST_F(TracerAlone, sums_are_over_all_peers_and_add_up_to_the_mailbox) {
    FakeCore core("");
    CreditTracer<FakeCore> tracer(core, peers_);
    const uint32_t quota = core.options.plan.quota;
    EXPECT_EQ(tracer.sums().held, 4 * quota);
    EXPECT_EQ(tracer.sums().granted, 4 * quota);
    EXPECT_EQ(tracer.sums().available, core.options.plan.data_region_slots - 4 * quota);
    core.packets->control.packets_sent(1, 5);
    ASSERT_EQ(core.packets->control.packets_retrieved(2, 3, {}), Status::kOk);
    EXPECT_EQ(tracer.sums().held, 4 * quota - 5);
    EXPECT_EQ(tracer.sums().granted, 4 * quota - 3);
}

TEST_F(TracerAlone, peers_whose_rank_is_known_are_sampled_and_others_are_not) {
    FakeCore core(path_);
    CreditTracer<FakeCore> tracer(core, peers_);
    peer(0);
    peer(1).pid = 0;  // it has only written so far
    peer(9);          // beyond the plan
    EXPECT_EQ(tracer.next_sample_ns(), 0u) << "the first sample is due at once";
    tracer.sample(core.clock.ns);
    EXPECT_EQ(tracer.next_sample_ns(), core.clock.ns + 10'000'000);
    core.clock.ns += 5'000'000;
    tracer.finish(core.counters);
    EXPECT_EQ(tracer.next_sample_ns(), core.clock.ns + 10'000'000);
    const std::string state = std::to_string(core.options.plan.quota);
    EXPECT_EQ(lines("p "), "p 10 " + state + " " + state + " " + state + " 0 0\n");
    EXPECT_EQ(lines("s "), "s 0 10 " + state + " " + state + " " + state + " 0 0\n")
        << "once, as it did not change";
    EXPECT_EQ(count(lines("e ")), 1u);
    tracer.finish(core.counters);  // nothing follows the last line
    EXPECT_EQ(count(lines("e ")), 1u);
    EXPECT_TRUE(core.lines.empty());
}

/// With contact slots, processes of other jobs are in no plan.
TEST_F(TracerAlone, peer_that_no_plan_has_is_sampled_as_well) {
    FakeCore core(path_);
    core.options.plan = std::get<flowctl::Plan>(
        flowctl::plan({.mode = flowctl::Mode::kDynamic, .peers = 2, .contact_slots = 4}));
    core.packets.emplace(core.options.plan);
    core.packets->peers = UINT32_MAX;
    core.packets->control.know(4000);
    CreditTracer<FakeCore> tracer(core, peers_);
    peer(4000);
    tracer.sample(core.clock.ns);
    tracer.finish(core.counters);
    EXPECT_EQ(lines("s "), "s 0 4010 0 0 0 0 0\n");
    EXPECT_EQ(count(lines("e ")), 1u);
}

}  // namespace
}  // namespace velo
