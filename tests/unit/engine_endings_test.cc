// Processes that are notified that another has ended, and those that are not.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/job.h"

namespace velo::test {
namespace {

enum class How { kKilled, kClosed, kFollowed, kExited };

/// A rank in a process of its own, which ends in the way that the test says.
class OtherRank {
  public:
    OtherRank(const velo_params_t& params, uint32_t rank, uint32_t size, How how) {
        int address[2], word[2];
        EXPECT_EQ(pipe(address), 0);
        EXPECT_EQ(pipe(word), 0);
        pid_ = fork();
        if (pid_ == 0) {
            close(word[1]);
            end(params, rank, size, how, address[1], word[0]);
        }
        EXPECT_EQ(read(address[0], &published_, sizeof published_), ssize_t{sizeof published_});
        close(address[0]);
        close(address[1]);
        close(word[0]);
        word_ = word[1];
    }
    OtherRank(const OtherRank&) = delete;
    OtherRank& operator=(const OtherRank&) = delete;
    ~OtherRank() { end_now(); }

    void connect(Rank& from) const {
        velo_peer_t* peer = nullptr;
        char error[512] = "";
        EXPECT_EQ(velo_connect(from.engine, published_.address.data(), published_.bytes, true, nullptr, &peer,
                               error, sizeof error),
                  VELO_OK)
            << error;
        from.peers.push_back(peer);
    }
    void end_now() {
        if (word_ < 0) return;
        close(word_);
        word_ = -1;
        waitpid(pid_, nullptr, 0);
    }
    [[nodiscard]] pid_t pid() const { return pid_; }

  private:
    struct Published {
        std::array<std::byte, VELO_ADDRESS_BYTES_MAX> address;
        size_t bytes;
    };

    [[noreturn]] static void end(const velo_params_t& params, uint32_t rank, uint32_t size, How how, int out,
                                 int in) {
        auto* self = new Rank(params, rank, size);
        Published published = {};
        published.bytes = velo_address(self->engine, published.address.data(), published.address.size());
        (void)!write(out, &published, sizeof published);
        char word = 0;
        (void)!read(in, &word, 1);
        if (how == How::kKilled) raise(SIGKILL);
        if (how == How::kClosed) delete self;
        if (how == How::kFollowed) velo_follow(self->engine);
        _exit(0);
    }

    pid_t pid_ = -1;
    int word_ = -1;
    Published published_ = {};
};

class EngineEndings : public testing::TestWithParam<int> {
  protected:
    EngineEndings() { params_.ranks_per_node = GetParam(); }

    /// Far longer than a look at the peers takes to be due.
    static void drive(Rank& rank) {
        for (int round = 0; round < 200 && rank.ended.empty(); ++round) {
            usleep(1000);
            for (int polls = 0; polls < 64; ++polls) velo_progress(rank.engine);
        }
    }

    velo_params_t params_ = default_params();
};

TEST_P(EngineEndings, who_died_is_told_of_once_with_its_rank_and_pid) {
    for (const How how : {How::kKilled, How::kExited}) {
        OtherRank other(params_, 1, 2, how);
        Rank rank(params_, 0, 2);
        other.connect(rank);
        drive(rank);
        EXPECT_TRUE(rank.ended.empty());
        other.end_now();
        drive(rank);
        drive(rank);
        ASSERT_EQ(rank.ended.size(), 1u);
        EXPECT_EQ(rank.ended[0].peer, rank.peers[0]);
        EXPECT_EQ(rank.ended[0].rank, 1u);
        EXPECT_EQ(rank.ended[0].pid, other.pid());
        EXPECT_EQ(rank.ended[0].job, 77u);
        EXPECT_EQ(rank.ended[0].path, GetParam() == 0 ? VELO_PATH_ON_NODE : VELO_PATH_DEVICE);
        EXPECT_FALSE(rank.ended[0].followed);
    }
}

TEST_P(EngineEndings, who_closed_its_engine_is_not_told_of) {
    OtherRank other(params_, 1, 2, How::kClosed);
    Rank rank(params_, 0, 2);
    other.connect(rank);
    other.end_now();
    drive(rank);
    EXPECT_TRUE(rank.ended.empty());
}

TEST_P(EngineEndings, who_followed_another_one_says_so) {
    OtherRank other(params_, 1, 2, How::kFollowed);
    Rank rank(params_, 0, 2);
    other.connect(rank);
    other.end_now();
    drive(rank);
    ASSERT_EQ(rank.ended.size(), 1u);
    EXPECT_TRUE(rank.ended[0].followed);
}

TEST_P(EngineEndings, one_of_all_survivors_is_the_first_to_tell) {
    OtherRank other(params_, 2, 3, How::kKilled);
    Rank one(params_, 0, 3);
    Rank two(params_, 1, 3);
    other.connect(one);
    other.connect(two);
    other.end_now();
    drive(one);
    drive(two);
    ASSERT_EQ(one.ended.size(), 1u);
    ASSERT_EQ(two.ended.size(), 1u);
    EXPECT_TRUE(one.claim_report[0]);
    EXPECT_FALSE(two.claim_report[0]);
    EXPECT_FALSE(velo_claim_report(one.engine, one.peers[0])) << "the memory may be gone by now";
}

/// The host may end this process for the operation's failure, so it has to know why first.
TEST_P(EngineEndings, a_death_is_told_before_what_it_ends) {
    OtherRank other(params_, 1, 2, How::kKilled);
    Rank rank(params_, 0, 2);
    other.connect(rank);
    std::vector<velo_send_t> sends(3000);
    std::vector<std::byte> data(1024);
    size_t queued = 0;
    for (velo_send_t& send : sends) {
        send = {};
        send.data[0] = data.data();
        send.bytes[0] = 1024;
        queued += !velo_send(rank.engine, rank.peers[0], &send, 1);
    }
    ASSERT_GT(queued, 0u);
    other.end_now();
    for (int round = 0; round < 1'000'000 && rank.sent_list.empty(); ++round) {
        velo_progress(rank.engine);
        if (!rank.sent_list.empty()) {
            EXPECT_EQ(rank.ended.size(), 1u);
        }
    }
    EXPECT_FALSE(rank.sent_list.empty());
}

INSTANTIATE_TEST_SUITE_P(Paths, EngineEndings, testing::Values(0, 1),
                         [](const auto& info) { return info.param == 0 ? "on_node" : "device"; });

}  // namespace
}  // namespace velo::test
