// Segments: who gets in, who does not, and what a mapping may cover.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "velo/os/life_watch.h"
#include "velo/os/shared_segment.h"

namespace velo::base {
namespace {

TEST(SharedSegment, an_attacher_sees_what_the_creator_wrote) {
    const SharedSegment created = SharedSegment::create("velo-test", 3 * 4096 + 1);
    EXPECT_EQ(created.bytes().size(), 4u * 4096);
    SharedSegment attached;
    ASSERT_EQ(SharedSegment::attach(created.address(), attached), Status::kOk);
    ASSERT_EQ(attached.bytes().size(), created.bytes().size());
    created.bytes()[4096 + 17] = std::byte{42};
    EXPECT_EQ(attached.bytes()[4096 + 17], std::byte{42});
    attached.bytes().back() = std::byte{43};
    EXPECT_EQ(created.bytes().back(), std::byte{43});
}

TEST(SharedSegment, another_process_attaches) {
    const SharedSegment created = SharedSegment::create("velo-test", 8192);
    const pid_t child = fork();
    if (child == 0) {
        SharedSegment attached;
        if (SharedSegment::attach(created.address(), attached) != Status::kOk) _exit(1);
        attached.bytes()[5000] = std::byte{7};
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(created.bytes()[5000], std::byte{7});
}

TEST(SharedSegment, no_process_can_shrink_it_or_keep_it_from_growing) {
    SharedSegment created = SharedSegment::create("velo-test", 8192);
    const pid_t child = fork();
    if (child == 0) {
        const std::string path =
            "/proc/" + std::to_string(created.address().pid) + "/fd/" + std::to_string(created.address().fd);
        const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
        if (file < 0) _exit(1);
        if (ftruncate(file, 4096) == 0 || errno != EPERM) _exit(2);
        if (fcntl(file, F_ADD_SEALS, F_SEAL_GROW) == 0 || errno != EPERM) _exit(3);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    created.bytes()[8191] = std::byte{1};  // SIGBUS if it was shrunk
    uint64_t offset = 0;
    EXPECT_EQ(created.grow(4096, offset), Status::kOk);
    EXPECT_EQ(offset, 8192u);
}

TEST(SharedSegment, a_range_that_was_refused_can_be_had_later_on_any_node) {
    rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    SharedSegment segment = SharedSegment::create("velo-test", 8192);
    rlimit low = before;
    low.rlim_cur = 16384;
    uint64_t offset = 0;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
    EXPECT_EQ(segment.grow(1u << 20, offset, 0), Status::kNoResource);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(segment.grow(4096, offset, 0), Status::kOk);
    EXPECT_EQ(offset, 8192u);
    Mapping memory;
    ASSERT_EQ(segment.map(offset, 4096, memory), Status::kOk);
    memory.data()[4095] = std::byte{1};
}

TEST(SharedSegment, a_child_of_fork_does_not_have_its_parents_mapping) {
    const SharedSegment created = SharedSegment::create("velo-test", 8192);
    const pid_t child = fork();
    if (child == 0) {
        unsigned char resident = 0;
        _exit(mincore(created.bytes().data(), 4096, &resident) == 0 ? 0 : errno);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), ENOMEM) << "the page should not be mapped";
}

TEST(SharedSegment, an_address_with_any_field_wrong_is_refused) {
    const SharedSegment created = SharedSegment::create("velo-test", 8192);
    const SegmentAddress good = created.address();
    std::vector<SegmentAddress> bad(10, good);
    bad[0].token ^= 1;
    bad[1].inode += 1;
    bad[2].bytes += 4096;
    bad[3].namespaces += 1;
    bad[4].pid = 0;
    bad[5].pid = -1;
    bad[6].pid = INT32_MAX;
    bad[7].fd = -1;
    bad[8].fd = 0;
    bad[9].bytes = 100;
    for (const SegmentAddress& address : bad) {
        SharedSegment attached;
        EXPECT_NE(SharedSegment::attach(address, attached), Status::kOk) << &address - bad.data();
        EXPECT_FALSE(attached);
    }
    SharedSegment attached;
    EXPECT_EQ(SharedSegment::attach(good, attached, 4096), Status::kOk);
    EXPECT_EQ(attached.bytes().size(), 4096u);
}

TEST(SharedSegment, grown_memory_is_reached_by_those_attached_before) {
    SharedSegment created = SharedSegment::create("velo-test", 4096);
    SharedSegment attached;
    ASSERT_EQ(SharedSegment::attach(created.address(), attached), Status::kOk);
    Mapping theirs;
    EXPECT_EQ(attached.map(4096, 4096, theirs), Status::kBadParam);
    uint64_t offset = 0;
    ASSERT_EQ(created.grow(5000, offset), Status::kOk);
    EXPECT_EQ(offset, 4096u);
    Mapping ours;
    ASSERT_EQ(created.map(offset, 8192, ours), Status::kOk);
    ASSERT_EQ(attached.map(offset, 8192, theirs), Status::kOk);
    ours.data()[8191] = std::byte{5};
    EXPECT_EQ(theirs.data()[8191], std::byte{5});
    EXPECT_EQ(attached.map(offset, 8193, theirs), Status::kBadParam);
    EXPECT_EQ(attached.map(offset + 1, 100, theirs), Status::kBadParam);
    EXPECT_EQ(attached.map(UINT64_MAX / 4096 * 4096, 4096, theirs), Status::kBadParam);
    EXPECT_EQ(attached.map(0, 0, theirs), Status::kBadParam);
}

/// The limit keeps the kernel from trying, should create() ask for it: it would take all memory there is.
TEST(SharedSegment, a_size_that_cannot_be_had_is_a_readable_error) {
    rlimit before = {};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit low = {.rlim_cur = 1u << 20, .rlim_max = before.rlim_max};
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &low);
    std::string text;
    try {
        SharedSegment::create("velo-test", size_t{1} << 55);
    } catch (const SetupError& error) {
        text = error.what();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    EXPECT_NE(text.find("36028797018963968 bytes"), std::string::npos) << text;
    EXPECT_NE(text.find("velo-test"), std::string::npos) << text;
    EXPECT_NE(text.find(std::strerror(ENOMEM)), std::string::npos) << text;
}

TEST(SharedSegment, a_limit_of_file_sizes_is_an_error_and_not_the_end_of_the_process) {
    rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    SharedSegment segment = SharedSegment::create("velo-test", 8192);
    rlimit low = before;
    low.rlim_cur = 16384;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
    uint64_t offset = 0;
    EXPECT_EQ(segment.grow(8192, offset), Status::kOk);
    EXPECT_EQ(segment.grow(4096, offset), Status::kNoResource);
    std::string text;
    try {
        (void)SharedSegment::create("velo-test", 20480);
    } catch (const SetupError& error) {
        text = error.what();
    }
    EXPECT_NE(text.find("ulimit -f"), std::string::npos) << text;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
}

/// The exception of `set_up` in a thread where the system call `number` is denied, as by a container's
/// profile.
template <class SetUp>
std::string error_where_denied(long number, SetUp set_up) {
    std::string text;
    std::thread([&] {
        sock_filter program[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const sock_fprog filter = {.len = std::size(program), .filter = program};
        ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        ASSERT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter), 0);
        try {
            set_up();
        } catch (const SetupError& error) {
            text = error.what();
        }
    }).join();
    return text;
}

TEST(SharedSegment, a_call_that_is_denied_is_named_with_a_remedy_that_helps) {
    const std::string memory =
        error_where_denied(SYS_memfd_create, [] { (void)SharedSegment::create("velo-test", 4096); });
    EXPECT_NE(memory.find("memfd_create: Operation not permitted. The kernel, or a seccomp profile"),
              std::string::npos)
        << memory;
    const std::string watch = error_where_denied(SYS_epoll_create1, [] { const LifeWatch watch; });
    EXPECT_NE(watch.find("epoll_create1: Operation not permitted. The kernel, or a seccomp profile"),
              std::string::npos)
        << watch;
    for (const std::string& text : {memory, watch}) EXPECT_EQ(text.find("ulimit"), std::string::npos) << text;
}

TEST(SharedSegment, a_peer_that_cannot_be_attached_is_a_call_and_its_errno) {
    const SharedSegment created = SharedSegment::create("velo-test", 8192);
    SharedSegment attached;
    Failure failure;
    rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none = {3, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    EXPECT_EQ(SharedSegment::attach(created.address(), attached, 0, &failure), Status::kUnsupported);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(to_text(failure), "open of /proc/PID/fd: Too many open files");
    EXPECT_NE(remedy(failure).find("ulimit -n"), std::string::npos);

    SegmentAddress address = created.address();
    ++address.namespaces;
    EXPECT_EQ(SharedSegment::attach(address, attached, 0, &failure), Status::kUnsupported);
    EXPECT_EQ(to_text(failure), "the peer is in another PID or user namespace");
    EXPECT_NE(remedy(failure), "");
}

TEST(SharedSegment, of_another_user_is_called_so) {
    const SharedSegment created = SharedSegment::create("velo-test", 8192);
    ASSERT_EQ(geteuid(), getuid());
    SharedSegment attached;
    Failure failure;
    if (fchown(created.address().fd, 65534, static_cast<gid_t>(-1)) != 0)
        return;  // only root gives files away
    EXPECT_EQ(SharedSegment::attach(created.address(), attached, 0, &failure), Status::kUnsupported);
    EXPECT_EQ(to_text(failure), "the peer's shared memory belongs to another user");
}

TEST(LifeWatch, a_process_that_has_ended_is_named_so) {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, nullptr, 0);
    LifeWatch watch;
    Failure failure;
    EXPECT_EQ(watch.add(child, 0, &failure), Status::kUnsupported);
    EXPECT_EQ(failure.error, ESRCH);
    EXPECT_NE(remedy(failure).find("ended"), std::string::npos);
}

TEST(SharedSegment, an_address_that_names_something_else_does_not_open_it) {
    // The writing end of a pipe would see that the reading one was opened.
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    SharedSegment segment = SharedSegment::create("velo-test", 8192);
    SegmentAddress address = segment.address();
    address.fd = ends[0];
    ASSERT_EQ(close(ends[1]), 0);
    SharedSegment attached;
    EXPECT_EQ(SharedSegment::attach(address, attached), Status::kUnsupported);
    address.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    EXPECT_EQ(SharedSegment::attach(address, attached), Status::kUnsupported);
    close(address.fd);
    close(ends[0]);
}

TEST(RandomToken, tokens_differ_and_are_never_zero) {
    const uint64_t first = random_token();
    EXPECT_NE(first, 0u);
    EXPECT_NE(first, random_token());
}

}  // namespace
}  // namespace velo::base
