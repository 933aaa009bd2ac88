// Stalls, and their reports.
#include "velo/report/stall_report.h"

#include <unistd.h>

#include "tests/unit/job.h"

namespace velo {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;

/// One look at one waiter.
StallWatch::Outcome look(StallWatch& watch, uint64_t now_ns, uint64_t fingerprint) {
    static const int key = 0;
    watch.begin(now_ns);
    watch.saw(&key, fingerprint);
    return watch.end();
}

TEST(StallWatch, what_does_not_move_for_the_limit_is_reported_once) {
    StallWatch watch(5 * kSecond);
    EXPECT_FALSE(look(watch, 1 * kSecond, 7).stalled);
    EXPECT_FALSE(look(watch, 5 * kSecond, 7).stalled);
    EXPECT_TRUE(look(watch, 6 * kSecond, 7).stalled);
    watch.reported();
    EXPECT_FALSE(look(watch, 60 * kSecond, 7).stalled);
    EXPECT_EQ(look(watch, 61 * kSecond, 7).resumed_ns, 0u);
}

TEST(StallWatch, what_moves_is_never_reported) {
    StallWatch watch(5 * kSecond);
    for (uint64_t second = 1; second < 60; ++second) {
        EXPECT_FALSE(look(watch, second * kSecond, second).stalled);
    }
}

TEST(StallWatch, a_stall_that_was_reported_and_moves_may_stall_again) {
    StallWatch watch(5 * kSecond);
    (void)look(watch, 1 * kSecond, 7);
    EXPECT_TRUE(look(watch, 6 * kSecond, 7).stalled);
    watch.reported();
    EXPECT_EQ(look(watch, 8 * kSecond, 8).resumed_ns, 7 * kSecond);
    EXPECT_FALSE(look(watch, 12 * kSecond, 8).stalled);
    EXPECT_TRUE(look(watch, 13 * kSecond, 8).stalled);
}

TEST(StallWatch, what_is_not_pending_any_more_has_moved) {
    StallWatch watch(5 * kSecond);
    (void)look(watch, 1 * kSecond, 7);
    (void)look(watch, 6 * kSecond, 7);
    watch.reported();
    watch.begin(7 * kSecond);
    EXPECT_EQ(watch.end().resumed_ns, 6 * kSecond);
    EXPECT_FALSE(look(watch, 20 * kSecond, 7).stalled);
}

TEST(StallWatch, without_a_limit_ages_are_kept_and_nothing_stalls) {
    StallWatch watch(0);
    const int key = 0;
    for (const uint64_t now : {1 * kSecond, 100 * kSecond}) {
        watch.begin(now);
        watch.saw(&key, 7);
        EXPECT_FALSE(watch.end().stalled);
    }
    EXPECT_EQ(watch.age_ns(&key), 99 * kSecond);
}

TEST(StallReport, nothing_pending_is_said_so) {
    EXPECT_EQ(to_text({.rank = 3, .asked_for = true}),
              "velo: rank 3 waits for, as asked:\n  nothing of it is pending in velo");
}

TEST(StallReport, a_sender_without_credits_is_said_so) {
    StallReport report = {.rank = 0, .stall_ns = 5 * kSecond};
    report.peers.push_back({.process = {.known = true, .rank = 1, .pid = getpid(), .path = VELO_PATH_DEVICE},
                            .age_ns = 5 * kSecond,
                            .seen_ns = 4 * kSecond,
                            .queue = {.messages = 2, .bytes = 3000, .first_bytes = 2000, .first_done = 1008},
                            .credits = {.used = true, .quota = 54, .needed = 18},
                            .device = {.mailbox_written = 158, .mailbox_read = 100, .mailbox_slots = 58}});
    EXPECT_EQ(
        to_text(report),
        "velo: rank 0 has made no progress for 5.0 s and waits for:\n"
        "  rank 1 (pid " +
            std::to_string(getpid()) +
            ", VELO packets, was last in MPI 4.0 s ago), for 5.0 s:\n"
            "    2 messages queued, 3000 bytes; the first one (Open MPI's, tag 0) has sent 1008 of 2000 "
            "bytes\n"
            "      credits at it: 0 of 54, and the rest of the first message needs 18: waits for credits\n"
            "      its mailbox: 58 of 58 slots not read (positions: 158 written, 100 read)");
}

TEST(StallReport, rails_are_named_with_the_peer_that_holds_most_of_them) {
    StallReport report = {.rank = 0};
    report.peers.push_back({.process = {.path = VELO_PATH_DEVICE},
                            .operations = {.device_chunks = {.count = 3, .bytes = 196608}},
                            .rails = {{.rail = 0, .out = true, .retry_ns = kSecond / 2},
                                      {.rail = 2,
                                       .own = {.count = 3, .bytes = 196608},
                                       .others = {.count = 4, .bytes = 4096},
                                       .holder = 7}}});
    const std::string text = to_text(report);
    EXPECT_NE(text.find("      rail 0: 0 operations on it, 0 bytes; out of use, tried again in 0.5 s\n"
                        "      rail 2: 3 operations on it, 196608 bytes; 4 on others, 4096 bytes, most of them on "
                        "rank 7"),
              std::string::npos)
        << text;
}

TEST(StallReport, rails_that_are_asked_for_are_named_with_both_ends) {
    using State = PeerReport::Reservation::State;
    StallReport report = {.rank = 0};
    report.peers.push_back(
        {.process = {.path = VELO_PATH_DEVICE},
         .operations = {.gets = {.count = 1, .bytes = 4096}},
         .rails = {{.rail = 1,
                    .reservations = {{{.state = State::kAsked, .known = true, .rank = 3},
                                      {.state = State::kGranted, .known = true, .rank = 2},
                                      {.state = State::kHeld, .puts = true, .known = true, .rank = 5},
                                      {.state = State::kGranted, .puts = true}}}}}});
    const std::string text = to_text(report);
    EXPECT_NE(text.find("      rail 1: 0 operations on it, 0 bytes; asked of rank 3, for gets; set aside for rank 2, "
                        "for its gets; set aside by rank 5, for puts; set aside for a process that this one has not "
                        "connected to, for its puts"),
              std::string::npos)
        << text;
}

TEST(StallReport, a_pid_of_another_container_is_not_looked_for) {
    StallReport report = {.rank = 0};
    report.peers.push_back({.process = {.known = true, .rank = 1, .pid = INT32_MAX, .path = VELO_PATH_DEVICE},
                            .queue = {.messages = 1}});
    EXPECT_NE(to_text(report).find("has ended"), std::string::npos) << to_text(report);
    report.peers[0].process.pid_known_here = false;
    EXPECT_EQ(to_text(report).find("has ended"), std::string::npos) << to_text(report);
}

TEST(StallReport, who_owns_no_slots_there_is_told_so) {
    StallReport report = {.rank = 0};
    report.peers.push_back({.process = {.path = VELO_PATH_DEVICE},
                            .queue = {.messages = 1},
                            .credits = {.used = true, .by_contact = true},
                            .device = {.mailbox_slots = 58}});
    const std::string text = to_text(report);
    EXPECT_NE(text.find("owns no slots at it"), std::string::npos) << text;
    EXPECT_EQ(text.find("credits at it"), std::string::npos) << text;
}

TEST(StallReport, what_was_not_consumed_is_listed) {
    StallReport report = {.rank = 2, .asked_for = true};
    report.device = {.mailbox_written = 9, .mailbox_read = 4, .mailbox_slots = 58};
    report.peers.push_back({.process = {.path = VELO_PATH_ON_NODE}, .ring = {.unread = true}});
    const std::string text = to_text(report);
    EXPECT_NE(text.find("rank 2 has not consumed:"), std::string::npos) << text;
    EXPECT_NE(text.find("its mailbox: 5 of 58 slots"), std::string::npos) << text;
    EXPECT_NE(text.find("messages in its ring"), std::string::npos) << text;
}

/// Each field shows in the text, on either path.
TEST(StallReport, all_that_waits_for_a_peer_is_listed) {
    const PeerReport peer = {.process = {.rank = 1, .path = VELO_PATH_ON_NODE},
                       .age_ns = 2 * kSecond,
                       .queue = {.messages = 3, .bytes = 70, .first_bytes = 9, .first_done = 4, .first_class = 1,
                                 .first_tag = 6},
                       .ring = {.made = true,
                                .fill = {.lines_written = 12, .lines_read = 5, .body_written = 900, .body_read = 100},
                                .lines = 64,
                                .bytes = 4096,
                                .unread = true},
                       .credits = {.used = true, .available = 3, .quota = 8, .needed = 5, .retrieved = 2,
                                   .threshold = 4, .deferred = 7},
                       .device = {.mailbox_written = 30, .mailbox_read = 10, .mailbox_slots = 58, .held_packets = 2,
                                  .operations = 1},
                       .operations = {.gets = {1, 10},
                                      .puts = {2, 20},
                                      .device_chunks = {3, 30},
                                      .pulls = {4, 40},
                                      .pushes = {5, 50},
                                      .coop_blocks = {6, 60},
                                      .atomics = {7, 0},
                                      .assists = {8, 80}},
                       .copies = {{.bytes = 0, .method = CoopMethod::kDirect, .ps_a_byte = {130, 52, 0}},
                                  {.bytes = 262144,
                                   .both = true,
                                   .far = true,
                                   .method = CoopMethod::kRing,
                                   .switches = 1,
                                   .ps_a_byte = {60, 90, 140}}},
                       .partial_bytes = 11};
    const std::string waits =
        "    3 messages queued, 70 bytes; the first one (engine's, tag 6) has sent 4 of 9 bytes\n"
        "    1 gets not fully started, 10 bytes\n"
        "    2 puts not fully started, 20 bytes\n"
        "    3 RMA operations wait for the device's notification, 30 bytes\n"
        "    4 chunks asked for (pull) wait for their data (pull data), 40 bytes\n"
        "    5 chunks sent (put data) wait for their end (done), 50 bytes\n"
        "    6 blocks fetched jointly wait for data of its part (joint data), 60 bytes\n"
        "    7 atomics wait for their answer\n"
        "    8 blocks that it fetches from here have parts left to send, 80 bytes\n"
        "    7 credits for it cannot leave\n";
    const auto text = [](const char* path, const std::string& own) {
        return "velo: rank 0 waits for, as asked:\n"
               "  a process that this one has not connected to (" +
               std::string(path) +
               "), for 2.0 s:\n" + own +
               "      credits kept for it: 2, returned at 4\n"
               "  rank 0 has not consumed:\n"
               "    its mailbox: 1 of 9 slots (positions: 3 written, 2 read)\n"
               "    4 first contacts that could not be answered\n"
               "    a process that this one has not connected to (" +
               path + "): messages in its ring 11 bytes of a message whose rest has not come";
    };
    StallReport report = {.asked_for = true,
                          .device = {.mailbox_written = 3, .mailbox_read = 2, .mailbox_slots = 9},
                          .unanswered_contacts = 4,
                          .peers = {peer}};
    EXPECT_EQ(to_text(report),
              text("on-node ring", waits + "      ring to it: 7 of 64 lines and 800 of 4096 bytes not read (positions: "
                                           "lines 12 written, 5 read; bytes 900, 100)\n"
                                           "      blocks of 0 bytes and more are fetched by direct copies (changed 0 "
                                           "times): in the ring 130 ps a byte, by direct copies 52 ps a byte, in the "
                                           "ring past the caches not measured\n"
                                           "      blocks of 262144 bytes and more, while it fetches too, from a far "
                                           "core, are fetched in the ring (changed 1 times): in the ring 60 ps a byte, "
                                           "by direct copies 90 ps a byte, in the ring past the caches 140 ps a "
                                           "byte\n"));
    report.peers[0].process.path = VELO_PATH_DEVICE;
    EXPECT_EQ(to_text(report),
              text("VELO packets",
                   waits + "      credits at it: 3 of 8, and the rest of the first message needs 5\n"
                           "      its mailbox: 20 of 58 slots not read (positions: 30 written, 10 read)\n"
                           "      2 packets to it are held back by the device\n"
                           "      1 operations on it are with the device\n"));
}

class EngineStall : public testing::TestWithParam<int> {};

TEST_P(EngineStall, a_silent_receiver_is_reported_once_and_its_return_is_told) {
    velo_params_t params = test::default_params();
    params.ranks_per_node = GetParam();
    params.stall_report = "1";
    test::Job job(2, params);
    std::vector<std::byte> data(1024);
    std::vector<velo_send_t> sends(9000);
    for (velo_send_t& send : sends) {
        send = {};
        send.data[0] = data.data();
        send.bytes[0] = 1024;
        (void)velo_send(job[0].engine, job[0].peers[1], &send, 1);
    }
    for (int round = 0; round < 170; ++round) {
        usleep(10'000);
        for (int polls = 0; polls < 32; ++polls) velo_progress(job[0].engine);
    }
    ASSERT_EQ(job[0].log.size(), 1u);
    EXPECT_NE(job[0].log[0].find("velo: rank 0 has made no progress for 1."), std::string::npos)
        << job[0].log[0];
    EXPECT_NE(job[0].log[0].find("rank 1 ("), std::string::npos);
    EXPECT_NE(job[0].log[0].find("messages queued"), std::string::npos);
    const auto resumed = [&] { return job[0].log.size() > 1; };
    for (int round = 0; round < 3000 && !resumed(); ++round) {
        usleep(1000);
        for (int polls = 0; polls < 32; ++polls) {
            velo_progress(job[0].engine);
            velo_progress(job[1].engine);
        }
    }
    ASSERT_EQ(job[0].log.size(), 2u);
    EXPECT_NE(job[0].log[1].find("velo: rank 0 goes on after"), std::string::npos) << job[0].log[1];
    EXPECT_TRUE(job[1].log.empty());
}

INSTANTIATE_TEST_SUITE_P(Paths, EngineStall, testing::Values(0, 1),
                         [](const auto& info) { return info.param == 0 ? "on_node" : "device"; });

}  // namespace
}  // namespace velo
