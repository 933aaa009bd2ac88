/// The first message of a process that this one has not connected: one look-up finds the sender.
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/unit/job.h"
#include "velo/core/peer.h"
#include "velo/shm/on_node.h"

namespace velo::test {
namespace {

constexpr uint64_t kFirstName = uint64_t{77} << 32;

/// Ranks of which none has connected another, and a receiver that connects the process that a message names.
struct Strangers {
    std::vector<std::unique_ptr<Rank>> ranks;
    uint32_t connects = 0;
    std::vector<bool> proved;  ///< by report: the named process is the sender

    Strangers(uint32_t count, int ranks_per_node) {
        velo_params_t params = default_params();
        params.ranks_per_node = ranks_per_node;
        for (uint32_t rank = 0; rank < count; ++rank) {
            ranks.push_back(std::make_unique<Rank>(params, rank, count));
            EXPECT_NE(ranks.back()->engine, nullptr) << ranks.back()->error;
        }
        receiver().on_unconnected = [this](velo_peer_t* peer, uint64_t name) {
            ASSERT_GE(name, kFirstName);
            ASSERT_LT(name, kFirstName + ranks.size());
            ++connects;
            proved.push_back(Job::connect(receiver(), *ranks[name - kFirstName]) == peer);
        };
    }
    Rank& receiver() { return *ranks[0]; }
    void drive(size_t messages) {
        for (int i = 0; i < 1'000'000 && receiver().inbox.size() < messages; ++i) {
            for (const auto& rank : ranks) velo_progress(rank->engine);
        }
        ASSERT_EQ(receiver().inbox.size(), messages);
    }
};

class FirstMessage : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Paths, FirstMessage, testing::Values(0, 1), [](const auto& info) {
    return info.param == 0 ? "on_node" : "device";
});

TEST_P(FirstMessage, its_sender_is_connected_and_no_other_process_is) {
    Strangers job(16, GetParam());
    const std::array<uint32_t, 3> senders = {15, 9, 1};
    std::array<velo_send_t, 6> sends = {};
    for (size_t i = 0; i < sends.size(); ++i) {
        Rank& sender = *job.ranks[senders[i % senders.size()]];
        (void)velo_send(sender.engine, Job::connect(sender, job.receiver()), &sends[i], 1);
    }
    job.drive(sends.size());
    EXPECT_EQ(job.connects, senders.size()) << "one for each, at its first message";
    for (const bool proved : job.proved) EXPECT_TRUE(proved);
    for (const auto& message : job.receiver().inbox) EXPECT_NE(message.peer_context, nullptr);
}

/// A process that was given the receiver's address, and says that it is another one.
TEST(FirstMessageForged, a_message_under_a_false_name_is_that_of_nobody) {
    Strangers job(4, 0);
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
    EngineAddress address;
    ASSERT_TRUE(address.parse(bytes.data(), velo_address(job.receiver().engine, bytes.data(), bytes.size())));
    shm::OnNode forger({.name = kFirstName + 3});
    shm::PeerIndex to = 0;
    ASSERT_EQ(forger.connect(address.on_node, to), Status::kOk);
    for (size_t i = 1; i <= 2; ++i) {
        Status status = Status::kOk;
        ASSERT_NE(forger.reserve_whole(to, 8, status), nullptr) << to_string(status);
        forger.commit(to, MessageClass::kHost, 1, 8, true);
        job.drive(i);
        EXPECT_EQ(job.receiver().inbox.back().peer_context, nullptr);
    }
    EXPECT_EQ(job.connects, 2u) << "one look-up a message, of the process that was named";
    EXPECT_EQ(job.proved, (std::vector<bool>{false, false}));
    // The process of that name is not taken for the forger, nor the forger for it.
    velo_send_t send = {};
    Rank& sender = *job.ranks[3];
    (void)velo_send(sender.engine, Job::connect(sender, job.receiver()), &send, 1);
    job.drive(3);
    EXPECT_EQ(job.receiver().inbox.back().peer_context, &sender);
    EXPECT_EQ(job.connects, 2u);
}

}  // namespace
}  // namespace velo::test
