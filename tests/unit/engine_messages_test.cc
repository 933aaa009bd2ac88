/// Messages between engines, over every path and layout.
#include <algorithm>
#include <array>
#include <map>

#include "tests/unit/job.h"

namespace velo::test {
namespace {

struct Layout {
    const char* name;
    int ranks_per_node;
    const char* flow_control;
    int slots;
    bool piggyback;
};

class EngineMessages : public testing::TestWithParam<Layout> {
  protected:
    velo_params_t params() const {
        velo_params_t params = default_params();
        params.ranks_per_node = GetParam().ranks_per_node;
        params.flow_control = GetParam().flow_control;
        params.slots = GetParam().slots;
        return params;
    }
    static Tuning tuning() {
        Tuning tuning;
        tuning.flow.piggyback = GetParam().piggyback;
        return tuning;
    }
    bool on_node(uint32_t a, uint32_t b) const {
        const auto per_node = static_cast<uint32_t>(GetParam().ranks_per_node);
        return per_node == 0 || a / per_node == b / per_node;
    }
    size_t bytes_max(uint32_t a, uint32_t b) const { return on_node(a, b) ? 32768 : 2104; }
};

/// A message that owns its bytes until it has left.
struct Outgoing {
    velo_send_t send{};
    std::vector<std::byte> data;

    explicit Outgoing(std::vector<std::byte> bytes, size_t split = 0) : data(std::move(bytes)) {
        send.data[0] = data.data();
        send.bytes[0] = static_cast<uint32_t>(split);
        send.data[1] = data.data() + split;
        send.bytes[1] = static_cast<uint32_t>(data.size() - split);
    }
};

TEST_P(EngineMessages, every_size_arrives_whole_and_in_order) {
    Job job(3, params(), tuning());
    std::vector<std::unique_ptr<Outgoing>> out;
    std::vector<size_t> sizes;
    for (size_t size = 0; size <= 260; ++size) sizes.push_back(size);
    for (size_t size : {511, 512, 513, 1023, 2047, 2048, 2049, 2064, 2103, 2104}) sizes.push_back(size);
    for (uint32_t from = 0; from < 3; ++from) {
        for (uint32_t to = 0; to < 3; ++to) {
            if (from == to) continue;
            for (size_t i = 0; i < sizes.size(); ++i) {
                out.push_back(std::make_unique<Outgoing>(
                    pattern(sizes[i], from * 1000 + static_cast<uint32_t>(i)), sizes[i] / 3));
                velo_send(job[from].engine, job[from].peers[to], &out.back()->send, static_cast<uint8_t>(i));
                if (i % 7 == 0) velo_progress(job[to].engine);
            }
        }
    }
    job.drive([&] {
        size_t received = 0;
        for (auto& rank : job.ranks) received += rank->inbox.size();
        return received == 6 * sizes.size();
    });
    for (uint32_t to = 0; to < 3; ++to) {
        std::map<void*, size_t> next;
        for (const Received& message : job[to].inbox) {
            uint32_t from = 0;
            while (job.ranks[from].get() != message.peer_context) ++from;
            const size_t i = next[message.peer_context]++;
            ASSERT_EQ(message.tag, static_cast<uint8_t>(i));
            ASSERT_EQ(message.data, pattern(sizes[i], from * 1000 + static_cast<uint32_t>(i)));
            ASSERT_EQ(message.path, on_node(from, to) ? VELO_PATH_ON_NODE : VELO_PATH_DEVICE);
        }
    }
}

TEST_P(EngineMessages, longest_messages_arrive_whole) {
    Job job(2, params(), tuning());
    const size_t bytes = bytes_max(0, 1);
    Outgoing out(pattern(bytes, 9), 100);
    velo_send(job[0].engine, job[0].peers[1], &out.send, 3);
    job.drive([&] { return job[1].inbox.size() == 1; });
    EXPECT_EQ(job[1].inbox[0].data, pattern(bytes, 9));
}

TEST_P(EngineMessages, flood_against_a_sleeping_receiver_waits_and_loses_nothing) {
    Job job(2, params(), tuning());
    std::vector<std::unique_ptr<Outgoing>> out;
    size_t left_at_once = 0;
    for (uint32_t i = 0; i < 3000; ++i) {
        out.push_back(std::make_unique<Outgoing>(pattern(i % 400, i)));
        left_at_once += velo_send(job[0].engine, job[0].peers[1], &out.back()->send, 1);
        if (i % 100 == 0) velo_progress(job[0].engine);
    }
    EXPECT_LT(left_at_once, out.size()) << "the receiver's memory has no bound";
    EXPECT_TRUE(velo_busy(job[0].engine));
    job.drive([&] { return job[1].inbox.size() == out.size(); });
    for (uint32_t i = 0; i < 3000; ++i)
        ASSERT_EQ(job[1].inbox[i].data, pattern(i % 400, i)) << "message " << i;
    EXPECT_EQ(job[0].sent_list.size(), out.size() - left_at_once);
    for (const auto& [send, status] : job[0].sent_list) EXPECT_EQ(status, VELO_OK);
    EXPECT_EQ(job[1].counters().velo_overflows, 0u);
    const std::string flow_control = GetParam().flow_control;
    if (flow_control == "hardware") {
        EXPECT_GT(job[0].counters().velo_backpressure, 0u);
    } else if (flow_control != "none") {
        EXPECT_EQ(job[0].counters().velo_backpressure, 0u);
    }
}

TEST_P(EngineMessages, send_now_refuses_without_doing_anything_while_others_wait) {
    Job job(2, params(), tuning());
    const uint64_t marker = 42;
    const auto try_send = [&] {
        return velo_try_send(job[0].engine, job[0].peers[1], 2, &marker, sizeof marker, nullptr, 0);
    };
    // Short ones have left before, and on the node a ring takes others where a long one waits for its own.
    const size_t bytes = velo_peer_path(job[0].peers[1]) == VELO_PATH_ON_NODE ? 20000 : 500;
    size_t sent = 0;
    for (; sent < 3; ++sent) {
        job.drive([&] { return try_send() == VELO_OK; });
        job.drive([&] { return job[1].inbox.size() == sent + 1; });
    }
    std::vector<std::unique_ptr<Outgoing>> out;
    for (uint32_t i = 0; i < 4000; ++i, ++sent) {
        out.push_back(std::make_unique<Outgoing>(pattern(bytes, i)));
        if (!velo_send(job[0].engine, job[0].peers[1], &out.back()->send, 1)) break;
    }
    ++sent;
    EXPECT_EQ(try_send(), VELO_AGAIN);
    job.drive([&] { return job[1].inbox.size() == sent && !velo_busy(job[0].engine); });
    // Credits of the last ones may still be on their way.
    job.drive([&] { return try_send() == VELO_OK; });
    job.drive([&] { return job[1].inbox.size() == sent + 1; });
    EXPECT_EQ(job[1].inbox.back().tag, 2);
}

TEST_P(EngineMessages, short_messages_behind_one_that_waits_are_copied_and_keep_their_order) {
    Job job(2, params(), tuning());
    std::vector<std::unique_ptr<Outgoing>> out;
    std::vector<std::vector<std::byte>> expected;
    const auto offer_copy = [&] {
        std::vector<std::byte> data = pattern(expected.size() % 300, static_cast<uint32_t>(expected.size()));
        const size_t header = data.size() / 3;
        const int status = velo_try_send_or_copy(job[0].engine, job[0].peers[1], 1, data.data(), header,
                                             data.data() + header, data.size() - header);
        if (status == VELO_OK) expected.push_back(data);
        std::ranges::fill(data, std::byte{0xee});
        return status == VELO_OK;
    };
    const auto send = [&] {
        out.push_back(std::make_unique<Outgoing>(pattern(200, static_cast<uint32_t>(expected.size()))));
        expected.push_back(out.back()->data);
        return velo_send(job[0].engine, job[0].peers[1], &out.back()->send, 1);
    };
    while (offer_copy()) ASSERT_LT(expected.size(), 20000u) << "copied although nothing waits";
    while (send()) ASSERT_LT(out.size(), 20000u) << "the receiver's memory has no bound";
    size_t copies = 0;
    size_t queued = 1;
    for (; copies < 20000; ++copies) {
        if (offer_copy()) continue;
        ASSERT_FALSE(send());
        ++queued;
        ASSERT_TRUE(offer_copy());
    }
    EXPECT_LT(queued, 20u) << "messages that keep a descriptor";
    job.drive([&] { return job[1].inbox.size() == expected.size() && !velo_busy(job[0].engine); });
    for (size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(job[1].inbox[i].data, expected[i]) << "message " << i;
    EXPECT_EQ(job[0].sent_list.size(), queued);
}

TEST_P(EngineMessages, a_host_that_waits_for_each_message_is_granted_no_copies) {
    Job job(2, params(), tuning());
    const auto data = pattern(100, 1);
    size_t waited = 0;
    for (int i = 0; i < 3000; ++i) {
        if (velo_try_send_or_copy(job[0].engine, job[0].peers[1], 1, data.data(), data.size(), nullptr, 0) == VELO_OK) {
            continue;
        }
        Outgoing out(data);
        if (velo_send(job[0].engine, job[0].peers[1], &out.send, 1)) continue;
        ++waited;
        job.drive([&] { return job[0].sent_list.size() == waited; });
    }
    EXPECT_GT(waited, 0u);
    EXPECT_EQ(job[0].counters().pending_count, waited);
}

TEST_P(EngineMessages, credits_that_lie_unread_are_used_before_a_send_is_refused) {
    Job job(2, params(), tuning());
    const auto send = [&] {
        const std::array<std::byte, 8> data = {};
        return velo_try_send(job[0].engine, job[0].peers[1], 1, data.data(), data.size(), nullptr, 0);
    };
    job.drive([&] { return send() == VELO_OK; });  // from here on nothing has to be set up
    job.drive([&] { return job[1].inbox.size() == 1; });
    uint32_t sent = 1;
    for (; sent < 5000 && send() == VELO_OK; ++sent) {
    }
    ASSERT_LT(sent, 5000u) << "the receiver's memory has no bound";
    for (int i = 0; i < 100000 && job[1].inbox.size() < sent; ++i) velo_progress(job[1].engine);
    ASSERT_EQ(job[1].inbox.size(), sent);
    EXPECT_EQ(send(), VELO_OK) << "although this engine has not been polled";
}

TEST_P(EngineMessages, a_message_that_is_not_accepted_yet_stays_and_comes_later) {
    Job job(2, params(), tuning());
    job[1].accepts = false;
    Outgoing out(pattern(200, 5));
    velo_send(job[0].engine, job[0].peers[1], &out.send, 7);
    for (int i = 0; i < 1000; ++i) {
        velo_progress(job[0].engine);
        velo_progress(job[1].engine);
    }
    EXPECT_TRUE(job[1].inbox.empty());
    job[1].accepts = true;
    job.drive([&] { return job[1].inbox.size() == 1; });
    EXPECT_EQ(job[1].inbox[0].data, pattern(200, 5));
}

TEST_P(EngineMessages, a_handler_may_answer_and_poll_again) {
    Job job(2, params(), tuning());
    std::vector<std::unique_ptr<Outgoing>> out;
    int depth = 0;
    int deepest = 0;
    job[1].on_receive = [&](const Received& message) {
        deepest = std::max(deepest, ++depth);
        out.push_back(std::make_unique<Outgoing>(message.data));
        velo_send(job[1].engine, job[1].peers[0], &out.back()->send, message.tag);
        if (depth < 5) velo_progress(job[1].engine);
        --depth;
    };
    std::vector<std::unique_ptr<Outgoing>> requests;
    for (uint32_t i = 0; i < 200; ++i) {
        requests.push_back(std::make_unique<Outgoing>(pattern(i * 9, i)));
        velo_send(job[0].engine, job[0].peers[1], &requests.back()->send, static_cast<uint8_t>(i));
    }
    job.drive([&] { return job[0].inbox.size() == 200; });
    EXPECT_GT(deepest, 1);
    std::vector<bool> seen(200);
    for (const Received& message : job[0].inbox) {
        EXPECT_EQ(message.data, pattern(message.tag * 9u, message.tag));
        seen[message.tag] = true;
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 200);
}

INSTANTIATE_TEST_SUITE_P(Paths, EngineMessages,
                         testing::Values(Layout{"on_node", 0, "static", 58, true},
                                         Layout{"device_static", 1, "static", 58, true},
                                         Layout{"device_static_no_piggyback", 1, "static", 58, false},
                                         Layout{"device_smallest_mailbox", 1, "static", 4, true},
                                         Layout{"device_odd_mailbox", 1, "static", 13, true},
                                         Layout{"device_none", 1, "none", 58, true},
                                         Layout{"device_hardware", 1, "hardware", 8, true},
                                         Layout{"device_growing", 1, "growing", 16, true},
                                         Layout{"device_growing_smallest_mailbox", 1, "growing", 4, true},
                                         Layout{"device_dynamic", 1, "dynamic", 16, true},
                                         Layout{"device_dynamic_no_piggyback", 1, "dynamic", 13, false},
                                         Layout{"device_dynamic_smallest_mailbox", 1, "dynamic", 4, true},
                                         Layout{"two_a_node", 2, "static", 16, true},
                                         Layout{"two_a_node_dynamic", 2, "dynamic", 8, true}),
                         [](const auto& info) { return info.param.name; });

TEST(EngineCredits, piggybacking_saves_credit_packets) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.flow_control = "static";
    uint64_t packets[2] = {};
    for (const bool piggyback : {false, true}) {
        Tuning tuning;
        tuning.flow.piggyback = piggyback;
        Job job(2, params, tuning);
        const auto data = pattern(40, 1);
        for (int i = 0; i < 5000; ++i) {
            for (int from : {0, 1}) {
                ASSERT_EQ(velo_try_send(job[from].engine, job[from].peers[1 - from], 1, data.data(),
                                        data.size(), nullptr, 0),
                          VELO_OK);
                velo_progress(job[1 - from].engine);
            }
        }
        packets[piggyback] = job[0].counters().credits_tx_packets;
        if (piggyback) {
            EXPECT_GT(job[0].counters().credits_tx_piggybacked, 4000u);
        }
    }
    EXPECT_GT(packets[0], 200u);
    EXPECT_LT(packets[1], packets[0] / 10);
}

TEST(EngineCredits, one_way_traffic_returns_every_credit_in_time) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.slots = 4;
    Job job(2, params);
    const auto data = pattern(40, 1);
    for (int i = 0; i < 20000; ++i) {
        job.drive([&] {
            return velo_try_send(job[0].engine, job[0].peers[1], 1, data.data(), data.size(), nullptr, 0) ==
                   VELO_OK;
        });
    }
    job.drive([&] {
        return job[1].inbox.size() == 20000 &&
               job[0].counters().credits_rx == job[1].counters().credits_tx_explicit;
    });
    EXPECT_GT(job[0].counters().credits_rx, 19990u);
    EXPECT_EQ(job[0].counters().velo_overflows + job[1].counters().velo_overflows, 0u);
}

TEST(EngineCredits, a_return_that_a_messages_middle_makes_due_does_not_wait_for_its_end) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.flow_control = "static";
    params.device_message_bytes_max = 4096;
    params.slots = 100;  // a share of 98, returned by the third
    for (const uint32_t packets : {20u, 60u}) {
        Job job(2, params);
        const auto data = pattern(packets * 56, 1);
        ASSERT_EQ(
            velo_try_send(job[0].engine, job[0].peers[1], 1, data.data(), data.size(), nullptr, 0),
            VELO_OK);
        ASSERT_EQ(job[0].counters().velo_tx_packets, packets);
        velo_progress(job[1].engine);
        ASSERT_EQ(job[1].inbox.size(), 1u);
        EXPECT_EQ(job[1].counters().credits_tx_explicit, packets == 20 ? 0 : packets - 1);
    }
}

TEST(EngineHardware, a_message_goes_whole_while_there_is_room_and_in_parts_otherwise) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    params.flow_control = "hardware";
    params.slots = 100;
    Job job(2, params);
    const auto data = pattern(2000, 1);  // 36 packets
    const auto try_send = [&] {
        return velo_try_send(job[0].engine, job[0].peers[1], 1, data.data(), data.size(), nullptr, 0);
    };
    EXPECT_EQ(try_send(), VELO_OK);
    EXPECT_EQ(try_send(), VELO_OK);
    // No sender would be left for the rest.
    EXPECT_EQ(try_send(), VELO_AGAIN);
    EXPECT_EQ(job[0].counters().velo_tx_packets, 72u);
    velo_send_t queued = {};
    queued.data[0] = data.data();
    queued.bytes[0] = static_cast<uint32_t>(data.size());
    EXPECT_FALSE(velo_send(job[0].engine, job[0].peers[1], &queued, 1));
    EXPECT_EQ(job[0].counters().velo_tx_packets, 72u + 25);
    job.drive([&] { return job[1].inbox.size() == 3; });
    for (const auto& message : job[1].inbox) EXPECT_EQ(message.data, data);
}

TEST(EngineContact, slots_follow_the_conversation) {
    velo_params_t params = default_params();
    params.ranks_per_node = 1;
    Job job(4, params);
    for (int rank = 0; rank < 4; ++rank) {
        const velo_counters_t counters = job[rank].counters();
        EXPECT_EQ(counters.slot_owners + counters.credits_granted + counters.idle_peer_bytes, 0u) << rank;
        EXPECT_GT(counters.peer_bytes, 64u);
    }
    const auto data = pattern(40, 1);
    ASSERT_EQ(velo_try_send(job[0].engine, job[0].peers[1], 1, data.data(), data.size(), nullptr, 0), VELO_OK);
    job.drive([&] { return job[1].inbox.size() == 1; });
    EXPECT_EQ(job[0].counters().contacts_tx, 1u);
    EXPECT_EQ(job[1].counters().contacts_rx, 1u);
    // The opening rode in it; its answer is for who goes on.
    EXPECT_EQ(job[1].counters().opens_rx, 1u);
    EXPECT_EQ(job[0].counters().slot_owners, 1u);
    EXPECT_EQ(job[1].counters().slot_owners, 0u);
    ASSERT_EQ(velo_try_send(job[0].engine, job[0].peers[1], 1, data.data(), data.size(), nullptr, 0), VELO_OK);
    job.drive([&] { return job[0].counters().opens_rx == 1; });
    EXPECT_EQ(job[0].counters().contacts_tx, 2u);
    for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(job[rank].counters().slot_owners, rank < 2 ? 1u : 0u) << rank;
    // With slots of its own the next one costs a credit.
    ASSERT_EQ(velo_try_send(job[0].engine, job[0].peers[1], 1, data.data(), data.size(), nullptr, 0), VELO_OK);
    job.drive([&] { return job[1].inbox.size() == 3; });
    EXPECT_EQ(job[0].counters().contacts_tx, 2u);
}

}  // namespace
}  // namespace velo::test
