/// Ends of processes are found with descriptors and without, and the program keeps half of the descriptors.
#include "velo/os/life_watch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <vector>

namespace velo::base {
namespace {

TEST(ProcessFacts, state_and_start_are_found_behind_any_name) {
    const std::string after = " S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n";
    for (const std::string name : {"sh", "a) Z 1", ") Z ) Z", ""}) {
        const ProcessFacts facts = facts_in("12 (" + name + ")" + after);
        EXPECT_EQ(facts.state, ProcessState::kRuns) << name;
        EXPECT_EQ(facts.started, 4711u) << name;
    }
    EXPECT_EQ(facts_in("12 (sh) Z 1 2").state, ProcessState::kEnded);
    EXPECT_EQ(facts_in("12 (sh) T 1 2").state, ProcessState::kStopped);
    for (const char* text : {"", "12", "12 (sh)", "12 (sh) ", "12 (sh) S 1 2"}) {
        EXPECT_EQ(facts_in(text).state, ProcessState::kRuns) << text;
        EXPECT_EQ(facts_in(text).started, 0u) << text;
    }
    EXPECT_NE(process_facts(getpid()).started, 0u);
}

/// Processes that are there as long as a test says so.
struct World {
    std::map<pid_t, ProcessFacts> processes;
    uint32_t asked = 0;
    uint32_t read = 0;
};
World world;

constexpr ProcessCalls kNoPidfds = {.open_pidfd = [](pid_t) noexcept {
                                        errno = ENOSYS;
                                        return -1;
                                    },
                                    .exists = [](pid_t pid) noexcept {
                                        ++world.asked;
                                        return world.processes.contains(pid);
                                    },
                                    .facts = [](pid_t pid) {
                                        ++world.read;
                                        const auto found = world.processes.find(pid);
                                        return found != world.processes.end()
                                                   ? found->second
                                                   : ProcessFacts{.state = ProcessState::kEnded};
                                    }};

struct WithoutPidfds : testing::Test {
    static constexpr uint32_t kPeers = 1023;
    LifeWatch watch{kNoPidfds};
    std::vector<uint32_t> ended;

    WithoutPidfds() {
        world = {};
        for (uint32_t id = 0; id < kPeers; ++id) {
            world.processes[pid_of(id)] = {.state = ProcessState::kRuns, .started = 100 + id};
            EXPECT_EQ(watch.add(pid_of(id), id), Status::kOk);
        }
        world.asked = world.read = 0;
    }
    static pid_t pid_of(uint32_t id) { return static_cast<pid_t>(5000 + id); }
    /// Polls that are as many as needed to come round.
    void poll(uint32_t polls) {
        for (uint32_t i = 0; i < polls; ++i) watch.poll(ended);
    }
};

TEST_F(WithoutPidfds, a_poll_asks_for_few_of_1023_and_a_round_for_all) {
    for (uint32_t i = 0; i < 100; ++i) {
        world.asked = world.read = 0;
        watch.poll(ended);
        ASSERT_LE(world.asked, LifeWatch::kAskedAPoll);
        ASSERT_LE(world.read, 1u);
    }
    EXPECT_TRUE(ended.empty());
}

TEST_F(WithoutPidfds, ends_are_told_once_and_soon_however_many_there_are) {
    constexpr uint32_t kRound = (kPeers + LifeWatch::kAskedAPoll - 1) / LifeWatch::kAskedAPoll;
    for (const uint32_t id : {0u, 1u, 511u, 1022u}) world.processes.erase(pid_of(id));
    poll(kRound + 1);
    std::ranges::sort(ended);
    EXPECT_EQ(ended, (std::vector<uint32_t>{0, 1, 511, 1022}));
    world.processes.clear();
    poll(2 * kRound);
    EXPECT_EQ(ended.size(), kPeers);
    EXPECT_EQ(std::set<uint32_t>(ended.begin(), ended.end()).size(), kPeers);
    EXPECT_EQ(watch.by_pid(), 0u);
    poll(3);
    EXPECT_EQ(ended.size(), kPeers);
}

TEST_F(WithoutPidfds, a_zombie_and_another_process_of_the_same_pid_have_ended) {
    world.processes[pid_of(7)].state = ProcessState::kEnded;
    world.processes[pid_of(700)].started = 1;
    world.processes[pid_of(8)].started = 0;  // not known is not another one
    world.processes[pid_of(9)].state = ProcessState::kStopped;
    poll(kPeers);
    std::ranges::sort(ended);
    EXPECT_EQ(ended, (std::vector<uint32_t>{7, 700}));
}

TEST_F(WithoutPidfds, one_that_is_removed_is_asked_for_no_more_and_its_id_is_anothers) {
    watch.remove(5);
    world.processes.erase(pid_of(5));
    world.processes[42] = {.state = ProcessState::kRuns, .started = 1};
    EXPECT_EQ(watch.add(42, 5), Status::kOk);
    EXPECT_EQ(watch.by_pid(), kPeers);
    poll(kPeers);
    EXPECT_TRUE(ended.empty());
    world.processes.erase(42);
    poll(kPeers);
    EXPECT_EQ(ended, std::vector<uint32_t>{5});
    watch.remove(5);
    EXPECT_EQ(watch.add(77, 5), Status::kUnsupported) << "there is none";
}

/// Children that wait for a signal, under a limit of descriptors.
struct FewDescriptors : testing::Test {
    static constexpr uint32_t kLimit = 64;
    static constexpr uint32_t kChildren = 100;
    rlimit before{};
    std::vector<pid_t> children;

    FewDescriptors() {
        EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
        const rlimit few = {kLimit, before.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        for (uint32_t i = 0; i < kChildren; ++i) {
            const pid_t child = fork();
            if (child == 0) {
                for (;;) pause();
            }
            children.push_back(child);
        }
    }
    ~FewDescriptors() override {
        for (const pid_t child : children) {
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
        }
        setrlimit(RLIMIT_NOFILE, &before);
    }
};

TEST_F(FewDescriptors, the_program_keeps_half_of_them_and_no_end_is_lost) {
    LifeWatch watch;
    for (uint32_t id = 0; id < kChildren; ++id) ASSERT_EQ(watch.add(children[id], id), Status::kOk);
    EXPECT_GT(watch.by_pid(), 0u);
    EXPECT_LT(watch.by_pid(), kChildren) << "some descriptors are there";
    std::vector<int> own;
    for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) own.push_back(fd);
    EXPECT_GE(own.size(), kLimit / 2 - 1);
    // Even with none left.
    std::set<uint32_t> killed;
    for (uint32_t id = 0; id < kChildren; id += 3) {
        kill(children[id], SIGKILL);
        waitpid(children[id], nullptr, 0);
        killed.insert(id);
    }
    std::vector<uint32_t> ended;
    for (uint32_t i = 0; i < kChildren; ++i) watch.poll(ended);
    EXPECT_EQ(std::set<uint32_t>(ended.begin(), ended.end()), killed);
    EXPECT_EQ(ended.size(), killed.size());
    for (const int fd : own) close(fd);
}

TEST_F(FewDescriptors, one_that_was_not_waited_for_has_ended) {
    LifeWatch watch;
    for (uint32_t id = 0; id < kChildren; ++id) ASSERT_EQ(watch.add(children[id], id), Status::kOk);
    for (const uint32_t id : {1u, kChildren - 1}) {
        kill(children[id], SIGKILL);
        siginfo_t info;
        ASSERT_EQ(waitid(P_PID, static_cast<id_t>(children[id]), &info, WEXITED | WNOWAIT), 0);
    }
    std::vector<uint32_t> ended;
    for (uint32_t i = 0; i < 2 * kChildren; ++i) watch.poll(ended);
    std::ranges::sort(ended);
    EXPECT_EQ(ended, (std::vector<uint32_t>{1, kChildren - 1}));
}

}  // namespace
}  // namespace velo::base
