// Processes that send, leave MPI and end in good order, to one that receives later: nothing is lost, and none waits for
// what cannot come.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <csignal>
#include <deque>

#include "tests/unit/job.h"
#include "tests/unit/match_leave.h"
#include "velo/velo_match.h"

namespace velo::test {
namespace {

struct Published {
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> address;
    size_t bytes;
};

/// A rank that matches, connected to one in another process.
class Matcher {
  public:
    Matcher(const velo_params_t& params, uint32_t rank, int to_other, uint64_t job = 77)
        : rank_(params, rank, 2, job), to_other_(to_other) {
        EXPECT_NE(rank_.engine, nullptr) << rank_.error;
        host_.context = this;
        host_.send_done = [](void* self, velo_match_send_t*) { ++static_cast<Matcher*>(self)->sends_done; };
        host_.receive_done = [](void* self, velo_match_receive_t*) { ++static_cast<Matcher*>(self)->receives_done; };
        velo_match_open(rank_.engine, &host_);
        Published own = {}, other = {};
        own.bytes = velo_address(rank_.engine, own.address.data(), own.address.size());
        EXPECT_EQ(write(to_other, &own, sizeof own), ssize_t{sizeof own});
        EXPECT_EQ(read(to_other, &other, sizeof other), ssize_t{sizeof other});
        velo_peer_t* peer = nullptr;
        char error[512] = "";
        EXPECT_EQ(velo_connect(rank_.engine, other.address.data(), other.bytes, true, nullptr, &peer, error,
                               sizeof error),
                  VELO_OK)
            << error;
        peer_ = velo_match_peer_of(rank_.engine, peer);
    }

    /// The data stays with the caller, and the request here. True: it is done.
    bool send(int tag, const std::vector<std::byte>& data, bool synchronous = false) {
        return velo_match_send(rank_.engine, peer_, velo_place(3, 0), tag, data.data(), data.size(), synchronous,
                               &sends_.emplace_back());
    }
    void receive(int tag, std::vector<std::byte>& buffer) {
        receives_done += velo_match_receive(rank_.engine, peer_, velo_place(3, 0), tag, buffer.data(), buffer.size(),
                                            &receives_.emplace_back());
    }
    void progress(int milliseconds) {
        for (int i = 0; i < milliseconds; ++i) {
            for (int polls = 0; polls < 64; ++polls) velo_progress(rank_.engine);
            usleep(1000);
        }
    }
    /// A word to the other process, beside velo.
    void tell() const { EXPECT_EQ(write(to_other_, "", 1), 1); }
    [[nodiscard]] bool told() const {
        char word = 0;
        return recv(to_other_, &word, 1, MSG_DONTWAIT) == 1;
    }
    /// The end of MPI, as the component makes it, but for velo_close.
    void leave() {
        leave_mpi(rank_.engine, [this] { velo_progress(rank_.engine); });
    }
    [[nodiscard]] const std::vector<Failed>& failures() const { return rank_.failures; }
    [[nodiscard]] const std::vector<velo_end_t>& ended() const { return rank_.ended; }
    [[nodiscard]] velo_engine_t* engine() { return rank_.engine; }

    uint32_t sends_done = 0;
    uint32_t receives_done = 0;

  private:
    Rank rank_;
    int to_other_;
    velo_match_host_t host_ = {};
    velo_match_peer_t* peer_ = nullptr;
    std::deque<velo_match_send_t> sends_;
    std::deque<velo_match_receive_t> receives_;
};

/// A process of its own, which does as `program` says, and ends in good order where that returns true.
class Worker {
  public:
    using Program = std::function<bool(Matcher&)>;
    Worker(const velo_params_t& params, const Program& program, uint64_t job = 77) {
        std::array<int, 2> pair;
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
        pid_ = fork();
        if (pid_ == 0) {
            close(pair[1]);
            {
                Matcher self(params, 0, pair[0], job);
                if (!program(self)) _exit(1);
            }
            _exit(0);
        }
        close(pair[0]);
        socket_ = pair[1];
    }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;
    ~Worker() {
        if (!ended()) {
            kill(pid_, SIGKILL);
            waitpid(pid_, nullptr, 0);
        }
        close(socket_);
    }
    [[nodiscard]] int socket() const { return socket_; }
    [[nodiscard]] bool ended() {
        if (!ended_) ended_ = waitpid(pid_, nullptr, WNOHANG) == pid_;
        return ended_;
    }

  private:
    pid_t pid_ = -1;
    int socket_ = -1;
    bool ended_ = false;
};

/// By path, and by memory for unexpected messages.
class MatchEndings : public testing::TestWithParam<std::tuple<int, int>> {
  protected:
    MatchEndings() {
        params_.ranks_per_node = std::get<0>(GetParam());
        const int records = std::get<1>(GetParam());
        if (records < 0) return;
        params_.unexpected_records = 64 * records;
        params_.unexpected_bytes = 512 * records;
    }
    /// Until the worker has ended and that was noticed.
    static void wait_for_end(Worker& worker, Matcher& self) {
        for (int i = 0; i < 20'000 && !worker.ended(); ++i) self.progress(1);
        EXPECT_TRUE(worker.ended());
        self.progress(60);
    }
    static constexpr std::array kSizes = {4, 800, 4, 0, 56, 1900};

    velo_params_t params_ = default_params();
};

TEST_P(MatchEndings, messages_of_a_process_that_ended_are_received) {
    Worker worker(params_, [](Matcher& self) {
        std::vector<std::vector<std::byte>> data;
        for (size_t i = 0; i < kSizes.size(); ++i) data.push_back(pattern(static_cast<size_t>(kSizes[i]), 1 + i));
        for (size_t i = 0; i < kSizes.size(); ++i) self.send(static_cast<int>(i), data[i]);
        self.leave();
        return true;
    });
    Matcher self(params_, 1, worker.socket());
    // Without memory its messages wait in its process, which stays for them.
    const bool plenty = std::get<1>(GetParam()) < 0;
    if (plenty) {
        wait_for_end(worker, self);
    } else {
        self.progress(100);
        EXPECT_FALSE(worker.ended());
    }
    std::vector<std::vector<std::byte>> buffers;
    for (const int bytes : kSizes) buffers.emplace_back(static_cast<size_t>(bytes) + 8);
    for (size_t i = kSizes.size(); i-- != 0;) self.receive(static_cast<int>(i), buffers[i]);
    wait_for_end(worker, self);
    EXPECT_EQ(self.receives_done, kSizes.size());
    for (size_t i = 0; i < kSizes.size(); ++i) {
        const std::vector<std::byte> sent = pattern(static_cast<size_t>(kSizes[i]), 1 + i);
        EXPECT_TRUE(std::equal(sent.begin(), sent.end(), buffers[i].begin())) << i;
    }
    EXPECT_TRUE(self.failures().empty()) << self.failures()[0].line;
    EXPECT_TRUE(self.ended().empty());
}

/// A ring holds what its receiver has not polled for.
class MatchEndingsOnNode : public MatchEndings {};

/// Some polls look for ends, and each takes sixteen messages: whichever it is that looks, others lie unread.
TEST_P(MatchEndingsOnNode, messages_that_lie_unread_when_the_end_is_noticed_are_received) {
    constexpr int kMessages = 112;
    for (int polls_before = 0; polls_before < 64; polls_before += 6) {
        Worker worker(params_, [](Matcher& self) {
            const std::vector<std::byte> data = pattern(16, 1);
            self.send(0, data);
            while (self.sends_done == 0) self.progress(1);  // and room was granted
            self.tell();
            while (!self.told()) usleep(1000);
            for (int i = 1; i < kMessages; ++i) self.send(i, data);
            self.leave();
            return true;
        });
        Matcher self(params_, 1, worker.socket());
        while (!self.told()) self.progress(1);
        for (int i = 0; i < polls_before; ++i) velo_progress(self.engine());
        self.tell();
        for (int i = 0; i < 20'000 && !worker.ended(); ++i) usleep(1000);
        ASSERT_TRUE(worker.ended());
        usleep(20'000);  // so that a look is due
        self.progress(60);
        std::vector<std::vector<std::byte>> buffers(kMessages, std::vector<std::byte>(16));
        for (int i = 0; i < kMessages; ++i) self.receive(i, buffers[static_cast<size_t>(i)]);
        self.progress(20);
        EXPECT_EQ(self.receives_done, uint32_t{kMessages}) << polls_before;
        for (const auto& buffer : buffers) EXPECT_EQ(buffer, pattern(16, 1));
    }
}

TEST_P(MatchEndings, data_that_is_fetched_keeps_its_process) {
    Worker worker(params_, [](Matcher& self) {
        const std::vector<std::byte> data = pattern(300'000, 7);
        self.send(5, data);
        self.leave();
        return true;
    });
    Matcher self(params_, 1, worker.socket());
    self.progress(100);
    EXPECT_FALSE(worker.ended());
    std::vector<std::byte> buffer(300'000);
    self.receive(5, buffer);
    wait_for_end(worker, self);
    EXPECT_EQ(self.receives_done, 1u);
    EXPECT_EQ(buffer, pattern(300'000, 7));
    EXPECT_TRUE(self.failures().empty());
}

/// The sender's host is called no more when it hears of the receive.
TEST_P(MatchEndings, a_synchronous_send_that_was_given_up_ends_with_its_receive) {
    Worker worker(params_, [](Matcher& self) {
        const std::vector<std::byte> data = pattern(40, 3);
        self.send(5, data, true);
        self.leave();
        return self.sends_done == 1;
    });
    Matcher self(params_, 1, worker.socket());
    self.progress(100);
    EXPECT_FALSE(worker.ended());
    std::vector<std::byte> buffer(40);
    self.receive(5, buffer);
    wait_for_end(worker, self);
    EXPECT_EQ(buffer, pattern(40, 3));
}

TEST_P(MatchEndings, a_receiver_that_leaves_lets_senders_leave) {
    for (const bool before : {true, false}) {
        Worker worker(params_, [before](Matcher& self) {
            const std::vector<std::byte> data = pattern(300'000, 7);
            const std::vector<std::byte> line = pattern(40, 3);
            if (before) self.progress(50);
            self.send(5, data);
            self.send(6, line, true);
            self.leave();
            return true;
        });
        Matcher self(params_, 1, worker.socket());
        if (!before) self.progress(100);
        self.leave();
        for (int i = 0; i < 20'000 && !worker.ended(); ++i) self.progress(1);
        EXPECT_TRUE(worker.ended()) << before;
        EXPECT_TRUE(self.failures().empty());
    }
}

TEST_P(MatchEndings, both_leave_with_messages_for_each_other) {
    Worker worker(params_, [](Matcher& self) {
        const std::vector<std::byte> data = pattern(300'000, 7);
        self.send(5, data);
        self.leave();
        return true;
    });
    Matcher self(params_, 1, worker.socket());
    const std::vector<std::byte> data = pattern(300'000, 7);
    self.send(5, data);
    self.leave();
    for (int i = 0; i < 20'000 && !worker.ended(); ++i) self.progress(1);
    EXPECT_TRUE(worker.ended());
}

/// Processes that were spawned, or that this one's job was spawned by.
class MatchEndingsOfAnotherJob : public MatchEndings {
  protected:
    static constexpr uint64_t kOtherJob = 78;
};

TEST_P(MatchEndingsOfAnotherJob, a_message_that_its_receiver_left_behind_is_told_of) {
    Worker worker(
        params_,
        [](Matcher& self) {
            self.progress(50);
            self.leave();
            return true;
        },
        kOtherJob);
    Matcher self(params_, 1, worker.socket());
    const std::vector<std::byte> data = pattern(300'000, 7);
    self.send(5, data);
    for (int i = 0; i < 20'000 && self.failures().empty(); ++i) self.progress(1);
    ASSERT_EQ(self.failures().size(), 1u);
    EXPECT_NE(self.failures()[0].line.find("rank 0 of job 78 (pid "), std::string::npos) << self.failures()[0].line;
    EXPECT_NE(self.failures()[0].line.find("MPI_Finalize"), std::string::npos) << self.failures()[0].line;
    EXPECT_TRUE(self.ended().empty());
    EXPECT_EQ(self.sends_done, 0u);
}

/// Within a job each process has passed the barrier of MPI_Finalize by then, and may have left messages behind.
TEST_P(MatchEndings, a_message_that_was_left_behind_within_a_job_ends_nothing) {
    Worker worker(params_, [](Matcher& self) {
        self.progress(50);
        self.leave();
        return true;
    });
    Matcher self(params_, 1, worker.socket());
    const std::vector<std::byte> data = pattern(300'000, 7);
    self.send(5, data);
    wait_for_end(worker, self);
    EXPECT_TRUE(self.failures().empty());
    self.leave();
    EXPECT_EQ(self.sends_done, 1u);
}

/// A sender that does not keep to the protocol: it leaves without its data.
TEST_P(MatchEndingsOfAnotherJob, data_that_left_with_its_process_is_told_of) {
    Worker worker(
        params_,
        [](Matcher& self) {
            const std::vector<std::byte> data = pattern(300'000, 7);
            self.send(5, data);
            self.progress(100);
            return true;  // closes its engine
        },
        kOtherJob);
    Matcher self(params_, 1, worker.socket());
    wait_for_end(worker, self);
    std::vector<std::byte> buffer(300'000);
    self.receive(5, buffer);
    self.progress(60);
    ASSERT_EQ(self.failures().size(), 1u);
    EXPECT_NE(self.failures()[0].line.find("still to be received"), std::string::npos) << self.failures()[0].line;
    EXPECT_EQ(self.receives_done, 0u);
}

std::string name_of(const testing::TestParamInfo<std::tuple<int, int>>& info) {
    return std::string(std::get<0>(info.param) == 0 ? "on_node" : "device") +
           (std::get<1>(info.param) < 0 ? "_plenty" : "_no_memory");
}

INSTANTIATE_TEST_SUITE_P(Ways, MatchEndings, testing::Combine(testing::Values(0, 1), testing::Values(-1, 0)), name_of);
INSTANTIATE_TEST_SUITE_P(Ways, MatchEndingsOnNode, testing::Combine(testing::Values(0), testing::Values(-1)), name_of);
INSTANTIATE_TEST_SUITE_P(Ways, MatchEndingsOfAnotherJob, testing::Combine(testing::Values(0), testing::Values(-1)),
                         name_of);

}  // namespace
}  // namespace velo::test
