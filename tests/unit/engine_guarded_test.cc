/// Memory that the kernel lets no other process touch, and memory that is gone: both end a direct copy in EFAULT.
/// prctl of this program is its own.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <functional>
#include <thread>
#include <tuple>

#include "tests/unit/job.h"
#include "tests/unit/own_copies.h"
#include "velo/core/peer.h"
#include "velo/shm/on_node.h"

namespace {

bool denied = false;  ///< all direct copies
std::function<void()> during;  ///< called in each direct copy
uint64_t secret_begin = 0;
uint64_t secret_end = 0;
int permits = 0;       ///< calls that let others copy
bool permits_right = true;

}  // namespace

extern "C" {
/// As a kernel without Yama answers.
int prctl(int option, ...) noexcept {
    va_list arguments;
    va_start(arguments, option);
    const unsigned long first = va_arg(arguments, unsigned long);
    va_end(arguments);
    if (option == PR_SET_PTRACER) {
        ++permits;
        permits_right = permits_right && first == static_cast<unsigned long>(PR_SET_PTRACER_ANY);
    }
    errno = EINVAL;
    return -1;
}
}

namespace velo::test {

/// As for memfd_secret: the calling process reaches its own memory, and no other process's.
ssize_t do_copy(const DirectCopy& copy) {
    if (denied) {
        errno = EPERM;
        return -1;
    }
    for (unsigned long i = 0; i < copy.remotes; ++i) {
        const auto begin = reinterpret_cast<uint64_t>(copy.remote[i].iov_base);
        if (begin >= secret_end || begin + copy.remote[i].iov_len <= secret_begin) continue;
        errno = EFAULT;
        return -1;
    }
    if (const auto call = during) call();  // which may set another one
    return copy.run();
}

namespace {

/// Pages of their own, which can be taken away.
class Pages {
  public:
    explicit Pages(size_t bytes)
        : bytes_(bytes),
          at_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
        EXPECT_NE(at_, MAP_FAILED);
    }
    Pages(const Pages&) = delete;
    Pages& operator=(const Pages&) = delete;
    ~Pages() { munmap(at_, bytes_); }

    void fill(const std::vector<std::byte>& data) const { std::memcpy(at_, data.data(), data.size()); }
    [[nodiscard]] std::vector<std::byte> content() const { return {data(), data() + bytes_}; }
    [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(at_); }
    [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(at_); }
    void make_secret() const {
        secret_begin = address();
        secret_end = address() + bytes_;
    }
    /// Each access to them faults, `from` a page on.
    void take_away(size_t from = 0) const { EXPECT_EQ(mprotect(data() + from, bytes_ - from, PROT_NONE), 0); }

  private:
    size_t bytes_;
    void* at_;
};

/// An operation of rank 0 on memory of rank 1.
struct Operation {
    Operation(const velo_params_t& params, velo_rma_kind_t kind, size_t bytes)
        : job(2, params), ours(bytes), theirs(bytes) {
        ours.fill(pattern(bytes, 5));
        theirs.fill(pattern(bytes, 4));
        EXPECT_EQ(velo_register(job[1].engine, theirs.data(), bytes, 7, &handle), VELO_OK);
        op.kind = kind;
        op.local = ours.data();
        op.remote = handle;
        op.remote_address = handle.base;
        op.bytes = bytes;
    }
    ~Operation() {
        denied = false;
        during = nullptr;
        secret_begin = secret_end = 0;
    }
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    /// Its status.
    int run() {
        velo_rma(job[0].engine, job[0].peers[1], &op);
        job.drive([&] { return !job[0].done.empty(); });
        return job[0].done.empty() ? -1 : job[0].done[0].second;
    }

    Job job;
    Pages ours;
    Pages theirs;
    velo_handle_t handle{};
    velo_rma_t op{};
};

velo_params_t on(int ranks_per_node) {
    velo_params_t params = default_params();
    params.ranks_per_node = ranks_per_node;
    return params;
}

/// Kind, ranks a node, bytes.
class EngineGuarded : public testing::TestWithParam<std::tuple<velo_rma_kind_t, int, size_t>> {
  protected:
    static velo_rma_kind_t kind() { return std::get<0>(GetParam()); }
    static int layout() { return std::get<1>(GetParam()); }
    static size_t bytes() { return std::get<2>(GetParam()); }
    /// The data that both ends have afterwards.
    static std::vector<std::byte> expected() { return pattern(bytes(), kind() == VELO_RMA_GET ? 4 : 5); }
};

TEST_P(EngineGuarded, memory_that_no_other_process_may_touch_is_moved_all_the_same) {
    for (const bool there : {true, false}) {
        Operation secret(on(layout()), kind(), bytes());
        (there ? secret.theirs : secret.ours).make_secret();
        EXPECT_EQ(secret.run(), VELO_OK);
        EXPECT_EQ(secret.ours.content(), expected());
        EXPECT_EQ(secret.theirs.content(), expected());
        EXPECT_TRUE(secret.job[0].failures.empty());
        EXPECT_TRUE(secret.job[0].log.empty()) << secret.job[0].log[0];
        if (there) {
            EXPECT_GT(secret.job[0].counters().rma_guarded, 0u);
        }
        EXPECT_EQ(secret.job[0].counters().rma_fallbacks, 0u) << "other memory is still copied directly";
        EXPECT_EQ(secret.job[0].counters().engine_malformed + secret.job[1].counters().engine_malformed, 0u);
    }
}

TEST_P(EngineGuarded, memory_of_the_peer_that_is_gone_ends_the_job_and_is_named) {
    Operation gone(on(layout()), kind(), bytes());
    gone.theirs.take_away();
    EXPECT_EQ(gone.run(), VELO_BAD_MEMORY);
    ASSERT_EQ(gone.job[0].failures.size(), 1u);
    char address[64];
    std::snprintf(address, sizeof address, "rank 1, at address 0x%llx there, failed: memory that is unmapped",
                  static_cast<unsigned long long>(gone.theirs.address()));
    EXPECT_NE(gone.job[0].failures[0].line.find(address), std::string::npos) << gone.job[0].failures[0].line;
}

TEST_P(EngineGuarded, memory_of_this_process_that_is_gone_ends_the_job_and_is_named) {
    Operation gone(on(layout()), kind(), bytes());
    gone.ours.take_away();
    EXPECT_EQ(gone.run(), VELO_BAD_LOCAL_MEMORY);
    ASSERT_EQ(gone.job[0].failures.size(), 1u);
    char address[64];
    std::snprintf(address, sizeof address, "at address 0x%llx of this process, failed: memory that is unmapped",
                  static_cast<unsigned long long>(gone.ours.address()));
    EXPECT_NE(gone.job[0].failures[0].line.find(address), std::string::npos) << gone.job[0].failures[0].line;
}

INSTANTIATE_TEST_SUITE_P(Ways, EngineGuarded,
                         testing::Combine(testing::Values(VELO_RMA_GET, VELO_RMA_PUT), testing::Values(0, 1),
                                          testing::Values(size_t{8}, size_t{3000}, size_t{100'000},
                                                          size_t{3'000'000})),
                         [](const auto& info) {
                             return std::string(std::get<0>(info.param) == VELO_RMA_GET ? "get" : "put") +
                                    (std::get<1>(info.param) == 0 ? "_on_the_node_" : "_by_the_device_") +
                                    std::to_string(std::get<2>(info.param));
                         });

TEST(EngineGuardedCoop, a_block_whose_memory_is_secret_for_a_part_arrives_whole) {
    for (const size_t from : {size_t{0}, size_t{1} << 20, (size_t{3} << 20) - 4096}) {
        constexpr size_t kBytes = 3u << 20;
        Operation partly(on(0), VELO_RMA_GET, kBytes);
        secret_begin = partly.theirs.address() + from;
        secret_end = secret_begin + 4096;
        EXPECT_EQ(partly.run(), VELO_OK);
        EXPECT_EQ(partly.ours.content(), partly.theirs.content());
        EXPECT_LE(partly.job[0].counters().rma_guarded, 1u) << "its owner may have moved that part";
    }
}

/// A rail that fails may have failed because the memory is gone: this process's end must not be that of the other.
TEST(EngineGuardedRails, what_a_rail_failed_is_repeated_without_a_fault_where_the_memory_is_gone) {
    for (const char* faults : {"rma_fail=1", "port_down=0:0"}) {
        for (const velo_rma_kind_t kind : {VELO_RMA_GET, VELO_RMA_PUT}) {
            velo_params_t params = on(1);
            params.faults = faults;
            params.chunk = 4096;
            for (const size_t page : {0u, 70u}) {
                Operation gone(params, kind, 300'000);
                gone.theirs.take_away(page * 4096);
                EXPECT_EQ(gone.run(), VELO_BAD_MEMORY);
                EXPECT_EQ(gone.job[0].failures.size(), 1u);
            }
        }
    }
}

TEST(EngineGuardedRails, a_process_that_may_not_ask_the_kernel_repeats_what_a_rail_failed_as_well) {
    for (const velo_rma_kind_t kind : {VELO_RMA_GET, VELO_RMA_PUT}) {
        velo_params_t params = on(1);
        params.faults = "rma_fail=1";
        Operation repeated(params, kind, 300'000);
        denied = true;
        EXPECT_EQ(repeated.run(), VELO_OK);
        EXPECT_EQ(repeated.ours.content(), repeated.theirs.content());
        EXPECT_TRUE(repeated.job[0].failures.empty());
    }
}

TEST(EngineGuardedAtomics, of_memory_that_no_other_process_may_touch_are_right) {
    for (const int layout : {0, 1}) {
        Operation secret(on(layout), VELO_RMA_ATOMIC, 4096);
        secret.theirs.make_secret();
        uint64_t before = 0;
        uint64_t sum = 5;
        std::memcpy(secret.theirs.data(), &sum, sizeof sum);
        secret.op.atomic = VELO_ATOMIC_ADD;
        secret.op.width = 8;
        secret.op.operand = 4;
        secret.op.local = &before;
        EXPECT_EQ(secret.run(), VELO_OK);
        std::memcpy(&sum, secret.theirs.data(), sizeof sum);
        EXPECT_EQ(before, 5u);
        EXPECT_EQ(sum, 9u);
    }
}

/// Of one copy, and of a block of two chunks.
TEST(EngineRevoked, memory_that_is_deregistered_in_the_midst_of_the_last_copy_does_not_count) {
    for (const size_t bytes : {size_t{8192}, size_t{20'000}}) {
        for (const velo_rma_kind_t kind : {VELO_RMA_GET, VELO_RMA_PUT}) {
            Operation revoked(on(0), kind, bytes);
            int copies_left = kind == VELO_RMA_GET && bytes > 16384 ? 2 : 1;
            during = [&] {
                if (--copies_left == 0) velo_deregister(revoked.job[1].engine, &revoked.handle);
            };
            velo_rma(revoked.job[0].engine, revoked.job[0].peers[1], &revoked.op);
            // The owner computes, so that this process finds it out alone.
            for (int i = 0; i < 10'000 && revoked.job[0].done.empty(); ++i) velo_progress(revoked.job[0].engine);
            during = nullptr;
            revoked.job.drive([&] { return !revoked.job[0].done.empty(); });
            EXPECT_LE(copies_left, 0);
            EXPECT_EQ(revoked.job[0].done[0].second, VELO_ATU_FAULT) << bytes;
        }
    }
}

TEST(EngineRevoked, a_block_that_fails_ends_after_the_copies_of_it_that_other_threads_make) {
    velo_params_t params = on(0);
    params.threads = true;
    Operation failing(params, VELO_RMA_GET, 3u << 20);
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
    EngineAddress address;
    ASSERT_TRUE(address.parse(bytes.data(), velo_address(failing.job[0].engine, bytes.data(), bytes.size())));
    shm::OnNode other({.name = (uint64_t{77} << 32) + 7});
    shm::PeerIndex to = 0;
    ASSERT_EQ(other.connect(address.on_node, to), Status::kOk);
    bool ended_before = false;
    during = [&] {
        during = nullptr;
        for (uint32_t slot = 0; slot < shm::kCoopBlocks; ++slot) other.coop_claims_of(to, slot).word = UINT64_MAX;
        std::thread([&] {
            for (int i = 0; i < 100; ++i) velo_progress(failing.job[0].engine);
        }).join();
        ended_before = !failing.job[0].done.empty();
    };
    EXPECT_EQ(failing.run(), VELO_PROTOCOL);
    EXPECT_FALSE(ended_before) << "its memory is still written to";
    EXPECT_FALSE(velo_busy(failing.job[0].engine));
}

TEST(EnginePermits, copies_by_other_processes_are_permitted_where_they_are_wanted) {
    velo_params_t params = default_params();
    for (const char* single_copy : {"none", "cma"}) {
        params.single_copy = single_copy;
        permits = 0;
        Job job(2, params);
        EXPECT_EQ(permits, std::string(single_copy) == "cma" ? 2 : 0) << "one for each engine";
        EXPECT_TRUE(permits_right);
        EXPECT_TRUE(job[0].log.empty()) << "the kernel does not know the call, which is no loss: " << job[0].log[0];
    }
}

}  // namespace
}  // namespace velo::test
