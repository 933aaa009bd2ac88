/// Conformance: addresses, connections, and the end of peers.
#pragma once

#include "tests/conformance/fabric.h"

namespace velo::conformance {

template <class Fabric>
class DeviceConnect : public DeviceTest<Fabric> {};
TYPED_TEST_SUITE_P(DeviceConnect);

TYPED_TEST_P(DeviceConnect, an_address_fits_and_does_not_change) {
    this->open(1);
    const PublishedAddress first = address_of(this->device(0));
    const PublishedAddress second = address_of(this->device(0));
    EXPECT_GT(first.length, 0u);
    EXPECT_LE(first.length, kDeviceAddressBytesMax);
    ASSERT_EQ(first.length, second.length);
    EXPECT_EQ(std::memcmp(first.bytes.data(), second.bytes.data(), first.length), 0);
}

TYPED_TEST_P(DeviceConnect, names_are_dense_from_zero_and_connecting_again_gives_the_same) {
    this->open(5, [](DeviceConfig&, size_t) {});
    for (size_t i = 0; i < 5; ++i) {
        std::vector<bool> used(4, false);
        for (size_t j = 0; j < 5; ++j) {
            if (i == j) continue;
            ASSERT_LT(this->name(i, j), 4u);
            EXPECT_FALSE(used[this->name(i, j)]);
            used[this->name(i, j)] = true;
            EXPECT_EQ(this->connect(i, j), this->name(i, j));
        }
    }
}

TYPED_TEST_P(DeviceConnect, peers_facts_are_those_it_was_opened_with) {
    this->open(3,
               [](DeviceConfig& config, size_t i) { config.mailbox_slots = 10 + static_cast<uint32_t>(i); });
    for (size_t i = 0; i < 3; ++i) {
        for (size_t j = 0; j < 3; ++j) {
            if (i == j) continue;
            const DevicePeer peer = this->device(i).peer(this->name(i, j));
            EXPECT_EQ(peer.node, this->config(j).node);
            EXPECT_EQ(peer.vpid, this->config(j).vpid);
            EXPECT_EQ(peer.host_name, this->config(j).host_name);
            EXPECT_EQ(peer.mailbox_slots, 10 + j);
            EXPECT_TRUE(this->device(i).alive(this->name(i, j)));
        }
    }
}

TYPED_TEST_P(DeviceConnect, limits_are_what_the_device_was_opened_with) {
    this->open(1, [](DeviceConfig& config, size_t) {
        config.mailbox_slots = 21;
        config.ports = 3;
    });
    const DeviceLimits limits = this->device(0).limits();
    EXPECT_EQ(limits.mailbox_slots, 21u);
    EXPECT_EQ(limits.ports, 3u);
    EXPECT_GE(limits.rma_bytes_max, 1u);
    EXPECT_GE(limits.rma_outstanding_max, 1u);
    EXPECT_GE(limits.registrations_max, 1u);
}

TYPED_TEST_P(DeviceConnect, a_receiver_that_did_not_connect_itself_learns_one_name_for_its_sender) {
    this->fabric_.open(this->config(0));
    this->fabric_.open(this->config(1));
    const DeviceAddr to = this->connect(0, 1);
    ASSERT_EQ(this->send(0, to, 0, 5, 1), Status::kOk);
    DeviceAddr from = kNoAddr;
    const Packet* packet = this->receive(1, from);
    ASSERT_NE(packet, nullptr);
    EXPECT_TRUE(TestPacket::is(*packet, 0, 5));
    this->device(1).advance();
    EXPECT_EQ(this->device(1).peer(from).node, this->config(0).node);
    EXPECT_EQ(this->connect(1, 0), from);
    // And the way back is open.
    ASSERT_EQ(this->send(1, from, 1, 6, 1), Status::kOk);
    DeviceAddr back = kNoAddr;
    packet = this->receive(0, back);
    ASSERT_NE(packet, nullptr);
    EXPECT_EQ(back, to);
    EXPECT_EQ(this->device(1).counters().packets_unknown_source, 0u);
}

TYPED_TEST_P(DeviceConnect, lengths_that_no_address_has_are_bad_parameters) {
    this->fabric_.open(this->config(0));
    this->fabric_.open(this->config(1));
    PublishedAddress address = address_of(this->device(1));
    DeviceAddr peer = kNoAddr;
    for (size_t length = 0; length <= kDeviceAddressBytesMax; ++length) {
        if (length == address.length) continue;
        EXPECT_EQ(this->device(0).connect({address.bytes.data(), length}, peer), Status::kBadParam) << length;
        EXPECT_EQ(peer, kNoAddr);
    }
}

TYPED_TEST_P(DeviceConnect, damaged_and_random_addresses_are_refused) {
    this->fabric_.open(this->config(0));
    this->fabric_.open(this->config(1));
    const PublishedAddress address = address_of(this->device(1));
    DeviceAddr peer = kNoAddr;
    for (size_t bit = 0; bit < address.length * 8; ++bit) {
        PublishedAddress damaged = address;
        damaged.bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        const Status status = this->device(0).connect(damaged.span(), peer);
        EXPECT_TRUE(status == Status::kBadParam || status == Status::kUnsupported) << to_string(status);
    }
    std::mt19937_64 random(1);
    for (int i = 0; i < 2000; ++i) {
        PublishedAddress garbage = address;
        for (std::byte& byte : garbage.bytes) byte = static_cast<std::byte>(random());
        EXPECT_NE(this->device(0).connect(garbage.span(), peer), Status::kOk);
    }
    EXPECT_EQ(peer, kNoAddr);
    EXPECT_EQ(this->connect(0, 1), 0u) << "a refused address uses no name up";
}

TYPED_TEST_P(DeviceConnect, another_jobs_process_is_refused) {
    for (const uint64_t token : {uint64_t{1}, uint64_t{2}, uint64_t{0}}) {
        DeviceConfig config = this->config(token);
        config.job_token = token;
        this->fabric_.open(config);
    }
    DeviceAddr peer = kNoAddr;
    for (size_t i = 0; i < 3; ++i) {
        for (size_t j = 0; j < 3; ++j) {
            if (i == j) continue;
            EXPECT_EQ(this->device(i).connect(address_of(this->device(j)).span(), peer),
                      Status::kUnsupported);
        }
    }
    EXPECT_EQ(peer, kNoAddr);
}

TYPED_TEST_P(DeviceConnect, processes_without_token_are_of_one_job) {
    this->open(2, [](DeviceConfig& config, size_t) { config.job_token = 0; });
    ASSERT_EQ(this->send(0, this->name(0, 1), 0, 1, 1), Status::kOk);
    EXPECT_TRUE(this->take(1, 0, 1));
}

TYPED_TEST_P(DeviceConnect, an_ended_peer_is_dead_to_everybody_else) {
    this->open(3);
    this->fabric_.close(1);
    for (const size_t i : {0, 2}) {
        EXPECT_TRUE(this->drive_watching(i, this->name(i, 1),
                                         [&] { return !this->device(i).alive(this->name(i, 1)); }));
    }
    EXPECT_TRUE(this->device(0).alive(this->name(0, 2)));
    EXPECT_EQ(send_numbered(this->device(0), this->name(0, 1), 0, 0, 1), Status::kPeerDead);
    EXPECT_EQ(send_numbered(this->device(0), this->name(0, 1), 0, 0, 1, Admission::kGuarded),
              Status::kPeerDead);
    ASSERT_EQ(this->send(0, this->name(0, 2), 0, 0, 1), Status::kOk);
    EXPECT_TRUE(this->take(2, 0, 0));
}

TYPED_TEST_P(DeviceConnect, packets_sent_before_the_senders_end_still_arrive) {
    this->open(2);
    ASSERT_EQ(this->send(0, this->name(0, 1), 0, 0, 9), Status::kOk);
    this->step(1);
    this->fabric_.close(0);
    EXPECT_TRUE(this->drive_watching(1, this->name(1, 0),
                                     [&] { return !this->device(1).alive(this->name(1, 0)); }));
    EXPECT_EQ(this->device(1).announced_ending(this->name(1, 0)), base::Ending::kClosed);
    for (uint64_t number = 0; number < 9; ++number) ASSERT_TRUE(this->take(1, 0, number));
}

/// The optional parts of PeerHealth are there for those devices whose traits ask for them.
TYPED_TEST_P(DeviceConnect, traits_agree_with_the_parts_that_the_device_has) {
    using Device = typename TypeParam::Device;
    this->open(1);
    EXPECT_EQ(this->device(0).traits().sees_processes, !PeerWatch<Device>);
    EXPECT_EQ(this->device(0).traits().elects, ReportElection<Device>);
}

/// With DeviceTraits::elects one process, and without it each one.
TYPED_TEST_P(DeviceConnect, an_elected_process_reports_a_peers_end) {
    this->open(3);
    this->fabric_.close(1);
    for (const size_t i : {0, 2}) {
        EXPECT_TRUE(this->drive_watching(i, this->name(i, 1),
                                         [&] { return !this->device(i).alive(this->name(i, 1)); }));
    }
    const auto claims = [this](size_t i) { return health::claim_report(this->device(i), this->name(i, 1)); };
    const bool elects = this->device(0).traits().elects;
    EXPECT_TRUE(claims(2));
    EXPECT_EQ(claims(0), !elects);
    EXPECT_EQ(claims(2), !elects) << "it was the first, and has been told so";
}

TYPED_TEST_P(DeviceConnect, more_contacts_than_fit_at_once_get_through_in_time) {
    constexpr bool kRealTime = requires { TypeParam::kDriveNs; };
    constexpr size_t kSenders = kRealTime ? 20 : 90;
    for (size_t i = 0; i <= kSenders; ++i) this->fabric_.open(this->config(i));
    const PublishedAddress address = address_of(this->device(0));
    for (size_t i = 1; i <= kSenders; ++i) {
        DeviceAddr peer = kNoAddr;
        Status status = Status::kAgain;
        ASSERT_TRUE(this->drive([&] {
            status = this->device(i).connect(address.span(), peer);
            return status != Status::kAgain;
        }));
        ASSERT_EQ(status, Status::kOk);
        ASSERT_EQ(peer, 0u);
    }
    for (size_t i = 1; i <= kSenders; ++i) {
        ASSERT_EQ(this->send(i, 0, static_cast<uint32_t>(i), i, 1), Status::kOk);
        DeviceAddr from = kNoAddr;
        const Packet* packet = this->receive(0, from);
        ASSERT_NE(packet, nullptr);
        EXPECT_TRUE(TestPacket::is(*packet, static_cast<uint32_t>(i), i));
        this->device(0).advance();
    }
}

REGISTER_TYPED_TEST_SUITE_P(DeviceConnect, an_address_fits_and_does_not_change,
                            names_are_dense_from_zero_and_connecting_again_gives_the_same,
                            peers_facts_are_those_it_was_opened_with,
                            limits_are_what_the_device_was_opened_with,
                            a_receiver_that_did_not_connect_itself_learns_one_name_for_its_sender,
                            lengths_that_no_address_has_are_bad_parameters,
                            damaged_and_random_addresses_are_refused, another_jobs_process_is_refused,
                            processes_without_token_are_of_one_job, an_ended_peer_is_dead_to_everybody_else,
                            packets_sent_before_the_senders_end_still_arrive,
                            traits_agree_with_the_parts_that_the_device_has, an_elected_process_reports_a_peers_end,
                            more_contacts_than_fit_at_once_get_through_in_time);

/// With DeviceTraits::sees_processes: connecting finds out whether the peer runs.
template <class Fabric>
class DeviceSight : public DeviceTest<Fabric> {};
TYPED_TEST_SUITE_P(DeviceSight);

TYPED_TEST_P(DeviceSight, an_address_whose_process_has_ended_is_unreachable) {
    this->fabric_.open(this->config(0));
    this->fabric_.open(this->config(1));
    const PublishedAddress address = address_of(this->device(1));
    this->fabric_.close(1);
    DeviceAddr peer = kNoAddr;
    EXPECT_EQ(this->device(0).connect(address.span(), peer), Status::kUnsupported);
    EXPECT_EQ(peer, kNoAddr);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceSight, an_address_whose_process_has_ended_is_unreachable);

/// Without it: a peer that is watched and does not answer is taken for ended, and one that answers is not.
template <class Fabric>
class DeviceWatch : public DeviceTest<Fabric> {};
TYPED_TEST_SUITE_P(DeviceWatch);

TYPED_TEST_P(DeviceWatch, an_idle_peer_that_answers_stays_alive) {
    this->open(3);
    const uint64_t end_ns = this->fabric_.now_ns() + 3 * TypeParam::kPeerTimeoutNs;
    EXPECT_TRUE(this->drive([&] {
        this->device(0).watch(this->name(0, 1));
        this->device(1).watch(this->name(1, 2));
        return this->fabric_.now_ns() >= end_ns;
    }));
    EXPECT_TRUE(this->device(0).alive(this->name(0, 1)));
    EXPECT_TRUE(this->device(1).alive(this->name(1, 2)));
    EXPECT_EQ(this->send(0, this->name(0, 1), 0, 0, 1), Status::kOk);
    EXPECT_TRUE(this->take(1, 0, 0));
}

TYPED_TEST_P(DeviceWatch, a_peer_that_computes_has_not_ended_until_it_ends) {
    this->open(2);
    ASSERT_EQ(this->send(0, this->name(0, 1), 0, 0, 1), Status::kOk);
    ASSERT_TRUE(this->take(1, 0, 0));
    const auto watch_alone = [this](uint64_t ns) {
        const uint64_t end_ns = this->fabric_.now_ns() + ns;
        while (this->device(0).alive(this->name(0, 1)) && this->fabric_.now_ns() < end_ns) {
            this->device(0).watch(this->name(0, 1));
            this->device(0).progress(this->fabric_.now_ns());
        }
        return this->device(0).alive(this->name(0, 1));
    };
    EXPECT_TRUE(watch_alone(4 * TypeParam::kPeerTimeoutNs)) << "it makes no progress, and its host knows it";
    EXPECT_EQ(this->send(0, this->name(0, 1), 0, 1, 1), Status::kOk);
    EXPECT_TRUE(this->take(1, 0, 1));
    EXPECT_TRUE(watch_alone(4 * TypeParam::kPeerTimeoutNs)) << "and once more";
    this->fabric_.close(1);
    EXPECT_FALSE(watch_alone(20 * TypeParam::kPeerTimeoutNs));
}

TYPED_TEST_P(DeviceWatch, a_peer_that_was_never_reached_is_taken_for_ended_after_the_timeout) {
    this->fabric_.open(this->config(0));
    this->fabric_.open(this->config(1));
    const DeviceAddr peer = this->connect(0, 1);
    this->fabric_.close(1);
    EXPECT_TRUE(this->drive_watching(0, peer, [&] { return !this->device(0).alive(peer); }));
    EXPECT_EQ(this->device(0).announced_ending(peer), base::Ending::kNone);
    EXPECT_EQ(send_numbered(this->device(0), peer, 0, 1, 1), Status::kPeerDead);
}

REGISTER_TYPED_TEST_SUITE_P(DeviceWatch, an_idle_peer_that_answers_stays_alive,
                            a_peer_that_computes_has_not_ended_until_it_ends,
                            a_peer_that_was_never_reached_is_taken_for_ended_after_the_timeout);

}  // namespace velo::conformance
