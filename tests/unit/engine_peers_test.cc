/// Peers that are many, silent, short of something, or gone.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>

#include "tests/unit/job.h"
#include "velo/core/peer.h"
#include "velo/wire/engine_wire.h"

namespace velo::test {
namespace {

velo_params_t params_for(int ranks_per_node, const char* single_copy = "cma") {
    velo_params_t params = default_params();
    params.ranks_per_node = ranks_per_node;
    params.single_copy = single_copy;
    return params;
}

/// Drives one engine until `done`, for two seconds at most: what is waited for is noticed by time.
template <class Done>
bool drive_alone(velo_engine_t* engine, Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    while (!done() && std::chrono::steady_clock::now() < end) {
        for (int i = 0; i < 1024; ++i) velo_progress(engine);
    }
    return done();
}

velo_rma_t operation(velo_rma_kind_t kind, std::vector<std::byte>& local, const velo_handle_t& remote) {
    velo_rma_t op = {};
    op.kind = kind;
    op.local = local.data();
    op.remote = remote;
    op.remote_address = remote.base;
    op.bytes = remote.bytes;
    op.width = 8;
    op.atomic = VELO_ATOMIC_XOR;
    return op;
}

velo_handle_t registered(Rank& rank, std::vector<std::byte>& memory) {
    velo_handle_t handle = {};
    EXPECT_EQ(velo_register(rank.engine, memory.data(), memory.size(), 7, &handle), VELO_OK);
    return handle;
}

TEST(EnginePeers, more_ranks_than_a_contact_ring_holds_connect_before_any_of_them_makes_progress) {
    constexpr uint32_t kRanks = 80;
    Job job(kRanks, params_for(1));
    const uint64_t text = 42;
    for (uint32_t rank = 1; rank < kRanks; ++rank) {
        job.drive([&] {
            return velo_try_send(job[rank].engine, job[rank].peers[0], 1, &text, sizeof text, nullptr, 0) ==
                   VELO_OK;
        });
    }
    job.drive([&] { return job[0].inbox.size() == kRanks - 1; });
}

TEST(EnginePeers, a_message_of_no_class_is_counted_and_dropped) {
    Job job(1, params_for(0));
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
    EngineAddress address;
    ASSERT_TRUE(address.parse(bytes.data(), velo_address(job[0].engine, bytes.data(), bytes.size())));
    shm::OnNode liar({.name = 5, .geometry = {.lines = 16, .body_bytes = 16384}, .registrations_max = 16});
    shm::PeerIndex to = 0;
    ASSERT_EQ(liar.connect(address.on_node, to), Status::kOk);
    const PullHeader pull = {.bytes = 8};
    for (const uint8_t message_class : {2, 3}) {
        Status status = Status::kOk;
        std::byte* room = liar.reserve_whole(to, sizeof pull, status);
        ASSERT_NE(room, nullptr);
        std::memcpy(room, &pull, sizeof pull);
        liar.commit(to, static_cast<MessageClass>(message_class), 0, sizeof pull, true);
        velo_progress(job[0].engine);
    }
    EXPECT_EQ(job[0].counters().engine_malformed, 2u);
    EXPECT_EQ(job[0].counters().atu_faults, 0u);
}

TEST(EnginePeers, a_silent_peer_does_not_hold_up_transfers_with_others) {
    for (int ranks_per_node : {0, 1}) {
        Job job(3, params_for(ranks_per_node, "none"));
        std::vector<std::byte> large(4u << 20);
        std::vector<std::byte> small(4096);
        std::vector<std::byte> large_here(large.size());
        std::vector<std::byte> small_here(small.size());
        velo_rma_t from_silent = operation(VELO_RMA_GET, large_here, registered(job[1], large));
        velo_rma_t from_other = operation(VELO_RMA_GET, small_here, registered(job[2], small));
        velo_rma(job[0].engine, job[0].peers[1], &from_silent);
        velo_rma(job[0].engine, job[0].peers[2], &from_other);
        for (int i = 0; i < 100000 && job[0].done.empty(); ++i) {
            velo_progress(job[0].engine);
            velo_progress(job[2].engine);
        }
        ASSERT_EQ(job[0].done.size(), 1u);
        EXPECT_EQ(job[0].done[0].first, &from_other);
        job.drive([&] { return job[0].done.size() == 2; });
    }
}

TEST(EnginePeers, a_completion_may_wait_for_another_transfer) {
    struct Host {
        velo_engine_t* engine = nullptr;
        velo_peer_t* peer = nullptr;
        velo_rma_t second = {};
        bool second_done = false;
        bool first = true;
    } context;
    Job job(2, params_for(0));
    const velo_identity_t identity = {
        .name = 1, .job = 77, .rank = 2, .job_size = 3, .local_rank = 2, .local_size = 3,
        .host = 0, .hosts = 1, .host_ranks_min = 3, .more_hosts = false, .other_host = {}};
    const velo_host_t host = {.context = &context,
                              .topology = nullptr,
                              .accepts = [](void*, uint8_t) { return true; },
                              .receive = [](void*, velo_path_t, void*, uint8_t, void*, size_t) {},
                              .unconnected = nullptr,
                              .sent = [](void*, velo_send_t*, int) {},
                              .rma_done =
                                  [](void* self, velo_rma_t* op, int) {
                                      auto& host = *static_cast<Host*>(self);
                                      if (op == &host.second) host.second_done = true;
                                      if (!std::exchange(host.first, false)) return;
                                      velo_rma(host.engine, host.peer, &host.second);
                                      for (int i = 0; i < 100000 && !host.second_done; ++i) {
                                          velo_progress(host.engine);
                                      }
                                      EXPECT_TRUE(host.second_done);
                                  },
                              .peer_ended = nullptr,
                              .log = [](void*, int, const char*) {},
                              .job_failed = nullptr};
    const velo_params_t params = params_for(0);
    char error[512] = "";
    context.engine = velo_open(&params, &identity, &host, error, sizeof error);
    ASSERT_NE(context.engine, nullptr) << error;
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> address;
    const size_t bytes = velo_address(job[0].engine, address.data(), address.size());
    ASSERT_EQ(velo_connect(context.engine, address.data(), bytes, true, nullptr, &context.peer, error,
                           sizeof error),
              VELO_OK);
    std::vector<std::byte> source(4096);
    std::vector<std::byte> here(4096);
    velo_rma_t first = operation(VELO_RMA_GET, here, registered(job[0], source));
    context.second = first;
    velo_rma(context.engine, context.peer, &first);
    EXPECT_TRUE(context.second_done);
    velo_close(context.engine);
}

TEST(EnginePeers, a_first_contact_that_can_not_be_answered_is_answered_later) {
    const velo_params_t params = params_for(0);
    Rank sender(params, 0, 2);
    Rank receiver(params, 1, 2);
    velo_peer_t* peer = Job::connect(sender, receiver);
    ASSERT_EQ(velo_try_send(sender.engine, peer, 1, "hi", 2, nullptr, 0), VELO_OK);
    rlimit before = {};
    getrlimit(RLIMIT_NOFILE, &before);
    rlimit few = before;
    few.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &few);
    std::vector<int> taken;
    for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) taken.push_back(fd);
    velo_progress(receiver.engine);
    EXPECT_TRUE(receiver.inbox.empty());
    for (int fd : taken) close(fd);
    setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_TRUE(drive_alone(receiver.engine, [&] { return receiver.inbox.size() == 1; }));
    EXPECT_EQ(receiver.counters().on_node_contacts_refused, 0u);
}

/// A rank in a process of its own, which does nothing, except to send a few messages, and is killed.
class DoomedRank {
  public:
    static constexpr size_t kMessages = 3;

    DoomedRank(const velo_params_t& params, uint32_t rank, uint32_t size, Rank* sends_to = nullptr) {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        pid_ = fork();
        if (pid_ == 0) {
            Rank child(params, rank, size);
            std::vector<std::byte> memory(65536);
            Published published = {};
            published.bytes = velo_address(child.engine, published.address.data(), published.address.size());
            (void)velo_register(child.engine, memory.data(), memory.size(), 7, &published.handle);
            if (sends_to != nullptr) {
                velo_peer_t* peer = Job::connect(child, *sends_to);
                for (size_t i = 0; i < kMessages; ++i)
                    (void)velo_try_send(child.engine, peer, 1, "hi", 2, nullptr, 0);
            }
            (void)!write(ends[1], &published, sizeof published);
            for (;;) pause();
        }
        EXPECT_EQ(read(ends[0], &published_, sizeof published_), static_cast<ssize_t>(sizeof published_));
        close(ends[0]);
        close(ends[1]);
    }
    DoomedRank(const DoomedRank&) = delete;
    DoomedRank& operator=(const DoomedRank&) = delete;
    ~DoomedRank() { kill_now(); }

    void kill_now() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    velo_peer_t* connect(Rank& from) const {
        velo_peer_t* peer = nullptr;
        char error[512] = "";
        EXPECT_EQ(velo_connect(from.engine, published_.address.data(), published_.bytes, true, nullptr, &peer,
                               error, sizeof error),
                  VELO_OK)
            << error;
        return peer;
    }
    const velo_handle_t& handle() const { return published_.handle; }

  private:
    struct Published {
        std::array<std::byte, VELO_ADDRESS_BYTES_MAX> address;
        size_t bytes;
        velo_handle_t handle;
    };
    pid_t pid_ = -1;
    Published published_ = {};
};

/// Mappings of processes' segments, and bytes of this process's own.
struct Held {
    size_t mappings = 0;
    long bytes = 0;

    static Held now() {
        Held held;
        std::ifstream maps("/proc/self/maps");
        for (std::string line; std::getline(maps, line);) {
            held.mappings += line.find("velo-on-node") != std::string::npos;
        }
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code none;
            struct stat info = {};
            const std::string target = std::filesystem::read_symlink(entry.path(), none).string();
            if (target.find("velo-on-node") != std::string::npos && stat(entry.path().c_str(), &info) == 0)
                held.bytes += info.st_blocks;
        }
        return held;
    }
    bool operator==(const Held&) const = default;
};

TEST(EnginePeersGone, what_processes_held_that_ended_is_used_for_others) {
    const velo_params_t params = params_for(0);
    Rank rank(params, 0, 2);
    std::vector<std::byte> here(65536);
    Held first;
    for (uint32_t round = 0; round < 6; ++round) {
        DoomedRank doomed(params, round + 1, 2, &rank);
        velo_peer_t* peer = doomed.connect(rank);
        for (int i = 0; i < 3; ++i) ASSERT_EQ(velo_try_send(rank.engine, peer, 1, "hi", 2, nullptr, 0), VELO_OK);
        ASSERT_TRUE(drive_alone(rank.engine,
                                [&] { return rank.inbox.size() == (round + 1) * DoomedRank::kMessages; }));
        velo_rma_t get = operation(VELO_RMA_GET, here, doomed.handle());
        doomed.kill_now();
        ASSERT_TRUE(drive_alone(rank.engine, [&] { return rank.counters().peers_gone == round + 1; }));
        // Until the host has said that it is finished with it, the peer can be asked, and fails.
        EXPECT_EQ(velo_try_send(rank.engine, peer, 1, "hi", 2, nullptr, 0), VELO_PEER_DEAD);
        EXPECT_EQ(velo_reserve(rank.engine, peer, 100), nullptr);
        velo_rma(rank.engine, peer, &get);
        EXPECT_TRUE(drive_alone(rank.engine, [&] { return rank.done.size() == round + 1; }));
        EXPECT_EQ(rank.done.back().second, VELO_PEER_DEAD);
        EXPECT_TRUE(velo_disconnect(rank.engine, peer));
        if (round == 0) first = Held::now();
    }
    EXPECT_TRUE(Held::now() == first) << Held::now().mappings << " mappings, were " << first.mappings;
}

TEST(EnginePeersGone, messages_of_a_process_that_ended_are_read_before_their_ring_goes) {
    const velo_params_t params = params_for(0);
    Rank rank(params, 0, 2);
    rank.accepts = false;
    DoomedRank doomed(params, 1, 2, &rank);
    for (int i = 0; i < 100; ++i) velo_progress(rank.engine);
    doomed.kill_now();
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < end) velo_progress(rank.engine);
    EXPECT_EQ(rank.counters().peers_gone, 0u);
    rank.accepts = true;
    EXPECT_TRUE(drive_alone(rank.engine, [&] { return rank.counters().peers_gone == 1; }));
    EXPECT_EQ(rank.inbox.size(), DoomedRank::kMessages);
}

TEST(EnginePeersGone, a_peer_with_something_pending_stays_until_that_has_ended) {
    const velo_params_t params = params_for(0);
    Rank rank(params, 0, 2);
    DoomedRank doomed(params, 1, 2);
    velo_peer_t* peer = doomed.connect(rank);
    std::vector<std::byte> here(1024);
    std::deque<velo_send_t> sends(3000);
    size_t queued = 0;
    for (velo_send_t& send : sends) {
        send.data[0] = here.data();
        send.bytes[0] = 1024;
        queued += !velo_send(rank.engine, peer, &send, 1);
    }
    ASSERT_GT(queued, 0u);
    EXPECT_FALSE(velo_disconnect(rank.engine, peer));
    EXPECT_EQ(rank.counters().peers_gone, 0u);
    doomed.kill_now();
    EXPECT_TRUE(drive_alone(rank.engine, [&] { return rank.counters().peers_gone == 1; }));
    EXPECT_EQ(rank.sent_list.size(), queued);
}

TEST(EnginePeersGone, a_peer_that_was_disconnected_and_lives_can_be_connected_again) {
    Job job(2, params_for(0));
    EXPECT_TRUE(velo_disconnect(job[0].engine, job[0].peers[1]));
    velo_peer_t* again = Job::connect(job[0], job[1]);
    EXPECT_EQ(again, job[0].peers[1]);
    ASSERT_EQ(velo_try_send(job[0].engine, again, 1, "hi", 2, nullptr, 0), VELO_OK);
    job.drive([&] { return job[1].inbox.size() == 1; });
}

TEST(EnginePeersGone, a_peer_does_not_wait_for_what_others_have_pending) {
    Job job(3, params_for(0));
    std::vector<std::byte> here(64 << 20), there(64 << 20);
    const velo_handle_t handle = registered(job[1], there);
    velo_rma_t put = operation(VELO_RMA_PUT, here, handle);
    velo_rma(job[0].engine, job[0].peers[1], &put);
    ASSERT_TRUE(job[0].done.empty()) << "the transfer is over before the question";
    EXPECT_FALSE(velo_disconnect(job[0].engine, job[0].peers[1]));
    EXPECT_TRUE(velo_disconnect(job[0].engine, job[0].peers[2]));
    job.drive([&] { return job[0].done.size() == 1; });
    EXPECT_TRUE(velo_disconnect(job[0].engine, job[0].peers[1]));
}

struct Death {
    const char* name;
    int ranks_per_node;
    const char* single_copy;
};

class EnginePeerDeath : public testing::TestWithParam<Death> {};

TEST_P(EnginePeerDeath, whatever_waits_for_a_killed_peer_ends_with_an_error) {
    const velo_params_t params = params_for(GetParam().ranks_per_node, GetParam().single_copy);
    DoomedRank doomed(params, 1, 2);
    Rank rank(params, 0, 2);
    velo_peer_t* peer = doomed.connect(rank);
    std::vector<std::byte> here(65536);
    velo_rma_t get = operation(VELO_RMA_GET, here, doomed.handle());
    velo_rma_t put = operation(VELO_RMA_PUT, here, doomed.handle());
    velo_rma_t atomic = operation(VELO_RMA_ATOMIC, here, doomed.handle());
    std::deque<velo_send_t> sends(3000);
    size_t queued = 0;
    velo_rma(rank.engine, peer, &atomic);
    if (std::string(GetParam().single_copy) == "none") {
        velo_rma(rank.engine, peer, &get);
        velo_rma(rank.engine, peer, &put);
    } else {
        doomed.kill_now();
        velo_rma(rank.engine, peer, &get);
        velo_rma(rank.engine, peer, &put);
    }
    for (velo_send_t& send : sends) {
        send.data[0] = here.data();
        send.bytes[0] = 1024;
        queued += !velo_send(rank.engine, peer, &send, 1);
    }
    ASSERT_GT(queued, 0u);
    doomed.kill_now();
    EXPECT_TRUE(drive_alone(rank.engine, [&] { return rank.done.size() == 3 && !velo_busy(rank.engine); }));
    for (const auto& [op, status] : rank.done) EXPECT_EQ(status, VELO_PEER_DEAD) << op->kind;
    ASSERT_EQ(rank.sent_list.size(), queued);
    for (const auto& [send, status] : rank.sent_list) ASSERT_EQ(status, VELO_PEER_DEAD);
}

INSTANTIATE_TEST_SUITE_P(Ways, EnginePeerDeath,
                         testing::Values(Death{"on_node_direct", 0, "cma"},
                                         Death{"on_node_copied", 0, "none"}, Death{"device_direct", 1, "cma"},
                                         Death{"device_copied", 1, "none"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace velo::test
