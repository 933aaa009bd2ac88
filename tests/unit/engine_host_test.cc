// velo.h's promises about locks and callbacks.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <new>
#include <thread>

#include "tests/unit/job.h"

namespace {

std::atomic<bool> no_memory{false};

void* allocate(size_t bytes) {
    void* memory = no_memory ? nullptr : std::malloc(bytes);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

}  // namespace

void* operator new(size_t bytes) {
    return allocate(bytes);
}
void* operator new[](size_t bytes) {
    return allocate(bytes);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}
void operator delete[](void* memory) noexcept {
    std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
    std::free(memory);
}

namespace velo::test {
namespace {

velo_params_t threaded(int ranks_per_node) {
    velo_params_t params = default_params();
    params.threads = true;
    params.timeout = 1;
    params.ranks_per_node = ranks_per_node;
    return params;
}

/// Waits for the lock of an engine, if another thread has it.
void use_from_another_thread(velo_engine_t* engine) {
    std::thread([engine] {
        (void)velo_busy(engine);
        velo_counters_t counters;
        velo_counters(engine, &counters);
    }).join();
}

TEST(EngineHostPromise, a_question_waits_while_another_thread_has_the_lock) {
    Job job(2, threaded(0));
    void* room = velo_reserve(job[0].engine, job[0].peers[1], 8);
    ASSERT_NE(room, nullptr);
    std::atomic<bool> answered{false};
    std::thread other([&] {
        (void)velo_busy(job[0].engine);
        answered = true;
    });
    // Longer than an answer takes that does not wait.
    for (int i = 0; i < 100 && !answered; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(answered);
    std::memset(room, 0, 8);
    velo_commit(job[0].engine, job[0].peers[1], 1, 8);
    other.join();
    EXPECT_TRUE(answered);
}

class EngineHost : public testing::TestWithParam<int> {};

/// A callback that ran with the lock would wait here without end.
TEST_P(EngineHost, callbacks_run_without_the_lock) {
    Job job(2, threaded(GetParam()));
    job[1].on_receive = [&](const Received&) { use_from_another_thread(job[1].engine); };
    job[0].on_sent = [&] { use_from_another_thread(job[0].engine); };
    job[0].on_done = [&] { use_from_another_thread(job[0].engine); };
    const auto data = pattern(1500, 3);
    std::vector<velo_send_t> sends(1000);
    size_t queued = 0;
    for (velo_send_t& send : sends) {
        send = {};
        send.data[0] = data.data();
        send.bytes[0] = 1500;
        queued += !velo_send(job[0].engine, job[0].peers[1], &send, 1);
    }
    ASSERT_GT(queued, 0u);
    auto memory = pattern(100'000, 4);
    velo_handle_t handle{};
    ASSERT_EQ(velo_register(job[1].engine, memory.data(), memory.size(), 7, &handle), VELO_OK);
    std::vector<std::byte> local(memory.size());
    velo_rma_t get{};
    get.kind = VELO_RMA_GET;
    get.local = local.data();
    get.remote = handle;
    get.remote_address = handle.base;
    get.bytes = memory.size();
    velo_rma(job[0].engine, job[0].peers[1], &get);
    job.drive([&] {
        return job[1].inbox.size() == sends.size() && job[0].sent_list.size() == queued &&
               !job[0].done.empty();
    });
    EXPECT_EQ(local, memory);
}

TEST(EngineHostPromise, the_end_of_the_job_is_told_without_the_lock) {
    Job job(2, threaded(0));
    rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit little = {4096, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
    job[0].on_failure = [&] { use_from_another_thread(job[0].engine); };
    velo_send_t send = {};
    (void)velo_send(job[0].engine, job[0].peers[1], &send, 1);
    job.drive([&] { return !job[0].failures.empty(); }, 200'000'000);
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/// A peer may use a process that has not connected to it; the host may connect before it is given the message.
TEST_P(EngineHost, a_peer_can_be_connected_when_its_first_message_is_here) {
    Rank sender(threaded(GetParam()), 0, 2);
    Rank receiver(threaded(GetParam()), 1, 2);
    std::vector<velo_peer_t*> unknown;
    velo_peer_t* connected = nullptr;
    receiver.on_unconnected = [&](velo_peer_t* peer, uint64_t name) {
        EXPECT_EQ(name, uint64_t{77} << 32);
        unknown.push_back(peer);
        if (unknown.size() == 2) connected = Job::connect(receiver, sender);
    };
    velo_peer_t* const peer = Job::connect(sender, receiver);
    std::array<velo_send_t, 3> sends = {};
    for (velo_send_t& send : sends) (void)velo_send(sender.engine, peer, &send, 1);
    for (int i = 0; i < 1'000'000 && receiver.inbox.size() < sends.size(); ++i) {
        velo_progress(sender.engine);
        velo_progress(receiver.engine);
    }
    ASSERT_EQ(receiver.inbox.size(), sends.size());
    ASSERT_EQ(unknown.size(), 2u);
    EXPECT_EQ(unknown[0], unknown[1]);
    EXPECT_EQ(unknown[1], connected);
    EXPECT_EQ(receiver.inbox[0].peer_context, nullptr);
    EXPECT_EQ(receiver.inbox[1].peer_context, &sender);
    EXPECT_EQ(receiver.inbox[2].peer_context, &sender);
}

size_t threads_of_this_process() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

/// Open MPI unloads the plugin while its own threads run: one of velo's would run unloaded code.
TEST_P(EngineHost, the_engine_makes_no_thread) {
    const size_t before = threads_of_this_process();
    Job job(2, threaded(GetParam()));
    velo_send_t send = {};
    (void)velo_send(job[0].engine, job[0].peers[1], &send, 1);
    job.drive([&] { return job[1].inbox.size() == 1; });
    EXPECT_EQ(threads_of_this_process(), before);
}

/// The first message of a peer makes the engine allocate.
void run_out_of_memory() {
    Job job(2, default_params());
    Rank late(default_params(), 2, 3);
    velo_send_t send = {};
    (void)velo_send(late.engine, Job::connect(late, job[1]), &send, 1);
    job[1].on_failure = [] { no_memory = false; };
    no_memory = true;
    for (int i = 0; i < 1000; ++i) velo_progress(job[1].engine);
}

TEST(EngineHostPromiseDeathTest, a_process_without_memory_ends_the_job_with_a_line) {
    EXPECT_DEATH(run_out_of_memory(), "velo: rank 1: the process has no memory left");
}

/// Optional arguments may be NULL.
TEST(EngineHostPromise, needs_no_log) {
    velo_params_t params = default_params();
    params.stats = 1;
    params.show_paths = 1;
    const velo_identity_t identity = {
        .name = 1, .job = 77, .rank = 2, .job_size = 3, .local_rank = 2, .local_size = 3,
        .host = 0, .hosts = 1, .host_ranks_min = 3, .more_hosts = false, .other_host = {}};
    velo_host_t host = {};
    host.accepts = [](void*, uint8_t) { return true; };
    char error[512] = "";
    velo_engine_t* engine = velo_open(&params, &identity, &host, error, sizeof error);
    ASSERT_NE(engine, nullptr) << error;
    Job job(2, default_params());
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> address;
    const size_t bytes = velo_address(job[0].engine, address.data(), address.size());
    velo_peer_t* peer = nullptr;
    ASSERT_EQ(velo_connect(engine, address.data(), bytes, true, nullptr, &peer, error, sizeof error),
              VELO_OK);
    ASSERT_EQ(velo_try_send(engine, peer, 1, "x", 1, nullptr, 0), VELO_OK);
    velo_close(engine);
}

INSTANTIATE_TEST_SUITE_P(Paths, EngineHost, testing::Values(0, 1),
                         [](const auto& info) { return info.param == 0 ? "on_node" : "device"; });

}  // namespace
}  // namespace velo::test
