/// Whole engines that match, under random programs: named and open sources and tags on several communicators,
/// truncation, cancels, probes, matched probes, synchronous sends and messages to oneself, with memory for
/// unexpected messages that is plenty, little or none. Processes that end in good order on the way have others receive
/// what they sent. The rules of MPI judge what each process has seen (tests/match_rules.h).
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <stdexcept>
#include <string>

#include "tests/soak/match_player.h"
#include "tests/unit/match_leave.h"

namespace velo::test {
namespace {

struct Config {
    uint64_t seed = 1;
    int records = 0;  ///< unexpected messages that there is memory for; below 0: the default
    int ranks_per_node = 0;
    friend void PrintTo(const Config& config, std::ostream* out) {
        *out << "seed " << config.seed << " records " << config.records << " ranks_per_node "
             << config.ranks_per_node;
    }
};

/// A seed that found a fault is kept here, with its cause.
constexpr uint64_t kSeeds = 6;

std::vector<Config> configs() {
    std::vector<Config> all;
    for (const int records : {-1, 0, 1, 8}) {
        for (const int ranks_per_node : {0, 1, 2}) {
            for (uint64_t seed = 1; seed <= kSeeds; ++seed)
                all.push_back(
                    {.seed = seed + 100 * all.size(), .records = records, .ranks_per_node = ranks_per_node});
        }
    }
    return all;
}

velo_params_t params_of(const Config& config) {
    velo_params_t params = default_params();
    params.ranks_per_node = config.ranks_per_node;
    if (config.records >= 0) {
        params.unexpected_records = 64 * config.records;
        params.unexpected_bytes = 512 * config.records;
    }
    // Rings that are soon full, and rooms that are soon used up.
    if (config.seed % 3 == 0) params.ring_bytes = 131072;
    params.unexpected_granted = std::array{128, 0, 2}[config.seed % 3];
    return params;
}

/// All processes, in one thread. Time is the number of the step.
class World final : public MatchPlayer::World {
  public:
    explicit World(const Config& config)
        : dice_(config.seed, kRanks),
          job_(kRanks, params_of(config), {.ring_lines = config.seed % 2 == 0 ? 16u : 0}) {
        for (uint32_t i = 0; i < kRanks; ++i) {
            if (job_[i].engine == nullptr) throw std::runtime_error(job_[i].error);
            players_.emplace_back(*this, dice_, job_[i].engine, static_cast<int>(i));
        }
        for (uint32_t i = 0; i < kRanks; ++i) {
            for (uint32_t j = 0; j < kRanks; ++j) players_[i].meet(i == j ? nullptr : job_[i].peers[j]);
        }
    }

    void run() {
        for (int step = 0; step < kSteps; ++step) {
            ++now_;
            players_[dice_.process()].act();
            // Rings fill meanwhile, and events come in heaps.
            if (dice_.below(3) != 0) velo_progress(job_[dice_.process()].engine);
        }
        finish();
        for (MatchPlayer& player : players_) {
            for (const std::string& fault : player.rules.faults())
                ADD_FAILURE() << "process " << player.rank() << ": " << fault;
            EXPECT_TRUE(job_[static_cast<size_t>(player.rank())].failures.empty());
        }
    }

    std::optional<PlannedMessage> next(int from) override {
        PlannedMessage message = dice_.message(from);
        MatchRules& rules = players_[static_cast<size_t>(message.to)].rules;
        while (!rules.sent(message.context, from, message.tag, message.bytes, now_)) ++message.bytes;
        return message;
    }
    void progress() override {
        for (auto& rank : job_.ranks) velo_progress(rank->engine);
    }
    [[nodiscard]] uint64_t now() const override { return now_; }
    void matched(const PlannedMessage& message) override { synchronous_.push_back({message, now_}); }

  private:
    static constexpr uint32_t kRanks = 3;
    static constexpr int kSteps = 1500;

    /// Until all that was sent is received and all sends are done; what still waits then is cancelled.
    void finish() {
        constexpr int kRoundsMax = 20000;
        const auto open = [](const MatchPlayer& player) {
            return !player.has_received_all() || !player.has_sent_all();
        };
        int rounds = 0;
        for (; std::any_of(players_.begin(), players_.end(), open) && rounds < kRoundsMax; ++rounds) {
            ++now_;
            players_[dice_.process()].take_any();
            progress();
        }
        EXPECT_LT(rounds, kRoundsMax) << "not all messages come, or not all sends end";
        for (MatchPlayer& player : players_) {
            player.finish();
            EXPECT_FALSE(velo_busy(player.engine()));
        }
        for (const Synchronous& send : synchronous_) {
            const PlannedMessage& message = send.message;
            const MatchRules& rules = players_[static_cast<size_t>(message.to)].rules;
            EXPECT_LE(rules.posted_at(message.context, message.from, message.tag, message.bytes), send.done_at)
                << "a synchronous send is done before its receive is posted";
        }
    }

    struct Synchronous {
        PlannedMessage message;
        uint64_t done_at;
    };

    Dice dice_;
    Job job_;
    std::deque<MatchPlayer> players_;
    std::vector<Synchronous> synchronous_;
    uint64_t now_ = 0;
};

class MatchSoak : public testing::TestWithParam<Config> {};

TEST_P(MatchSoak, keeps_the_rules_of_mpi) {
    World(GetParam()).run();
}

INSTANTIATE_TEST_SUITE_P(Seeds, MatchSoak, testing::ValuesIn(configs()));

/// Processes of their own: two stay, and two leave MPI and end as soon as they have received what is for them. Some
/// of their sends may be open then, as those that a program has given up.
constexpr uint32_t kProcesses = 4;
constexpr uint32_t kStay = 2;

/// Memory that the processes of a trial share.
struct Common {
    struct Published {
        std::array<std::byte, VELO_ADDRESS_BYTES_MAX> address;
        size_t bytes;
    };
    std::array<Published, kProcesses> published;
    std::atomic<uint32_t> opened;
    std::atomic<uint32_t> connected;
    std::array<std::atomic<bool>, kProcesses> closed;
    std::atomic<uint32_t> received_of_closed;
};

/// Every process knows what all of them send. To one that leaves nothing is sent late, or it would stay for it.
std::vector<PlannedMessage> plan_of(const Config& config, int from, bool brief) {
    constexpr uint32_t kMessages = 120;
    Dice dice(config.seed * kProcesses + static_cast<uint64_t>(from), kProcesses);
    std::vector<PlannedMessage> plan;
    for (uint32_t i = 0; i < kMessages; ++i) {
        PlannedMessage next = dice.message(from);
        if (i > kMessages / 4) next.to = static_cast<int>(dice.below(kStay));
        // So that none of what it sends needs the process itself, where there is memory.
        if (brief && from >= static_cast<int>(kStay)) {
            next.bytes %= 500;
            next.synchronous = false;
        }
        const auto alike = [&next](const PlannedMessage& other) {
            return other.to == next.to && other.context == next.context && other.tag == next.tag &&
                   other.bytes == next.bytes;
        };
        while (std::any_of(plan.begin(), plan.end(), alike)) ++next.bytes;
        plan.push_back(next);
    }
    return plan;
}

class Process final : public MatchPlayer::World {
  public:
    /// `brief`: those that stay receive the most when the others have ended.
    Process(const Config& config, Common& common, uint32_t index, bool brief)
        : config_(config),
          common_(common),
          index_(index),
          brief_(brief),
          dice_(~config.seed * kProcesses + index, kProcesses),
          rank_(params_of(config), index, kProcesses, job_of(config, index)),
          plan_(plan_of(config, static_cast<int>(index), brief)) {
        if (rank_.engine == nullptr) throw std::runtime_error(rank_.error);
        Common::Published& own = common_.published[index_];
        own.bytes = velo_address(rank_.engine, own.address.data(), own.address.size());
        player_.emplace(*this, dice_, rank_.engine, static_cast<int>(index_));
        await_all(common_.opened);
        for (uint32_t peer = 0; peer < kProcesses; ++peer) player_->meet(peer == index_ ? nullptr : connect(peer));
        for (uint32_t from = 0; from < kProcesses; ++from) {
            for (const PlannedMessage& message : plan_of(config, static_cast<int>(from), brief)) {
                if (message.to == static_cast<int>(index_))
                    player_->rules.sent(message.context, message.from, message.tag, message.bytes, 0);
            }
        }
        await_all(common_.connected);
    }

    void run() {
        while (sent_ < plan_.size()) {
            player_->act();
            progress();
        }
        if (brief_ && index_ < kStay) {
            while (!(common_.closed[2] && common_.closed[3])) progress();
        }
        const bool gives_up = index_ >= kStay && dice_.below(2) == 0;
        while (!player_->has_received_all() || !(gives_up || player_->has_sent_all())) {
            player_->take_any();
            progress();
        }
        player_->finish();
        leave_mpi(rank_.engine, [this] { progress(); });
        for (const std::string& fault : player_->rules.faults()) ADD_FAILURE() << "process " << index_ << ": " << fault;
        for (const Failed& failure : rank_.failures) ADD_FAILURE() << "process " << index_ << ": " << failure.line;
        EXPECT_TRUE(rank_.ended.empty()) << "process " << index_ << " takes an end for a failure";
    }

    std::optional<PlannedMessage> next(int) override {
        if (sent_ == plan_.size()) return std::nullopt;
        return plan_[sent_++];
    }
    void progress() override {
        ++now_;
        velo_progress(rank_.engine);
    }
    [[nodiscard]] uint64_t now() const override { return now_; }
    void received(int source) override {
        if (common_.closed[static_cast<size_t>(source)]) ++common_.received_of_closed;
    }

  private:
    /// In every second trial the processes that leave were spawned.
    static uint64_t job_of(const Config& config, uint32_t index) {
        return config.seed % 2 == 0 && index >= kStay ? 78 : 77;
    }
    static void await_all(std::atomic<uint32_t>& count) {
        ++count;
        while (count < kProcesses) usleep(100);
    }
    velo_peer_t* connect(uint32_t to) {
        velo_peer_t* peer = nullptr;
        char error[512] = "";
        const Common::Published& other = common_.published[to];
        if (velo_connect(rank_.engine, other.address.data(), other.bytes, true, nullptr, &peer, error,
                         sizeof error) != VELO_OK)
            throw std::runtime_error(error);
        return peer;
    }

    Config config_;
    Common& common_;
    uint32_t index_;
    bool brief_;
    Dice dice_;
    Rank rank_;
    std::vector<PlannedMessage> plan_;
    size_t sent_ = 0;
    std::optional<MatchPlayer> player_;
    uint64_t now_ = 0;
};

class MatchSoakThatEnds : public testing::TestWithParam<Config> {
  protected:
    MatchSoakThatEnds() {
        void* const memory =
            mmap(nullptr, sizeof(Common), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw std::runtime_error("no memory to share");
        common_ = new (memory) Common{};
    }
    ~MatchSoakThatEnds() override {
        for (const pid_t pid : running_) kill(pid, SIGKILL);
        for (const pid_t pid : running_) waitpid(pid, nullptr, 0);
        munmap(common_, sizeof(Common));
    }
    void start(uint32_t index, bool brief) {
        const pid_t pid = fork();
        if (pid == 0) {
            try {
                std::optional<Process> process;
                process.emplace(GetParam(), *common_, index, brief);
                process->run();
                process.reset();
                common_->closed[index] = true;
            } catch (const std::exception& error) {
                ADD_FAILURE() << error.what();
            }
            std::fflush(nullptr);
            _exit(HasFailure() ? 1 : 0);
        }
        running_.push_back(pid);
    }
    void wait_for_all() {
        constexpr int kSecondsMax = 60;
        for (int i = 0; i < kSecondsMax * 1000 && !running_.empty(); ++i) {
            std::erase_if(running_, [](pid_t pid) {
                int status = 0;
                if (waitpid(pid, &status, WNOHANG) != pid) return false;
                EXPECT_EQ(status, 0) << "its faults stand above";
                return true;
            });
            usleep(1000);
        }
        EXPECT_TRUE(running_.empty()) << "processes that do not end: " << running_.size();
    }

    Common* common_;

  private:
    std::vector<pid_t> running_;
};

TEST_P(MatchSoakThatEnds, keeps_the_rules_of_mpi) {
    for (uint32_t i = 0; i < kProcesses; ++i) start(i, false);
    wait_for_all();
}

INSTANTIATE_TEST_SUITE_P(Seeds, MatchSoakThatEnds, testing::ValuesIn(configs()));

/// With memory for what they sent, processes end before it is received.
class MatchSoakOfEnded : public MatchSoakThatEnds {};

TEST_P(MatchSoakOfEnded, keeps_the_rules_of_mpi) {
    for (uint32_t i = 0; i < kProcesses; ++i) start(i, true);
    wait_for_all();
    EXPECT_GT(common_->received_of_closed, 10u);
}

INSTANTIATE_TEST_SUITE_P(Seeds, MatchSoakOfEnded, testing::ValuesIn([] {
                             std::vector<Config> plenty = configs();
                             std::erase_if(plenty, [](const Config& config) { return config.records >= 0; });
                             return plenty;
                         }()));

}  // namespace
}  // namespace velo::test
