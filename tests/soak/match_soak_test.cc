/// Whole engines that match, under random programs: named and open sources and tags on several communicators,
/// truncation, cancels, probes, matched probes, synchronous sends and messages to oneself, with memory for
/// unexpected messages that is plenty, little or none. The rules of MPI judge what each process has seen
/// (tests/match_rules.h).
#include <algorithm>
#include <deque>
#include <random>
#include <stdexcept>
#include <string>

#include "tests/match_rules.h"
#include "tests/unit/job.h"
#include "velo/velo_match.h"

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
constexpr uint32_t kRanks = 3;
constexpr int kSteps = 1500;
constexpr size_t kUnderWayMax = 48;
constexpr std::byte kUntouched{0xa5};

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
    if (config.seed % 2 == 0) params.ring_lines = 16;
    if (config.seed % 3 == 0) params.ring_bytes = 131072;
    params.unexpected_granted = std::array{128, 0, 2}[config.seed % 3];
    return params;
}

/// All processes, in one thread. Time is the number of the step.
class World {
  public:
    explicit World(const Config& config)
        : config_(config), random_(config.seed), job_(kRanks, params_of(config)), ranks_(kRanks) {
        for (uint32_t i = 0; i < kRanks; ++i) {
            ranks_[i].world = this;
            ranks_[i].rank = static_cast<int>(i);
            ranks_[i].host = {
                .context = &ranks_[i],
                .send_done = [](void* rank, velo_match_send_t* send) { of(rank).sent(*send); },
                .receive_done = [](void* rank, velo_match_receive_t* face) { of(rank).received(*face); },
                .send_rest = [](void*, velo_match_peer_t*, uint64_t, int32_t, const void*,
                                uint64_t) { return 1; },
                .post_rest = [](void*, uint64_t, int32_t, void*, uint64_t,
                                velo_match_receive_t*) { return 1; }};
            if (job_[i].engine == nullptr) throw std::runtime_error(job_[i].error);
            velo_match_open(job_[i].engine, &ranks_[i].host);
        }
        for (uint32_t i = 0; i < kRanks; ++i) {
            for (uint32_t j = 0; j < kRanks; ++j)
                ranks_[i].peers.push_back(
                    velo_match_peer_of(job_[i].engine, i == j ? nullptr : job_[i].peers[j]));
        }
    }

    void run() {
        for (int step = 0; step < kSteps; ++step) {
            ++now_;
            act(ranks_[below(kRanks)]);
            // Rings fill meanwhile, and events come in heaps.
            if (below(3) != 0) velo_progress(job_[below(kRanks)].engine);
        }
        finish();
        for (Rank& rank : ranks_) {
            for (const std::string& fault : rank.rules.faults())
                ADD_FAILURE() << "process " << rank.rank << ": " << fault;
            EXPECT_TRUE(job_[static_cast<size_t>(rank.rank)].failures.empty());
        }
    }

  private:
    struct Send {
        velo_match_send_t face;
        uint32_t context;
        int to;
        int tag;
        bool synchronous;
        bool done = false;
        std::vector<std::byte> data;
    };
    struct Receive {
        velo_match_receive_t face;
        int number;  ///< in the rules
        MatchRules::Pattern pattern;
        uint64_t capacity;
        bool done = false;
        bool cancelled = false;
        std::vector<std::byte> buffer;  ///< longer than its capacity
    };
    struct Taken {
        velo_match_message_t* message;
        MatchRules::Pattern pattern;
        velo_match_status_t status;
        int number;
    };
    struct Rank {
        World* world = nullptr;
        int rank = 0;
        velo_match_host_t host = {};
        std::vector<velo_match_peer_t*> peers;
        std::deque<Send> sends;
        std::deque<Receive> receives;
        std::vector<Taken> taken;
        MatchRules rules;

        void sent(velo_match_send_t& face) {
            for (Send& send : sends) {
                if (&send.face == &face) return world->sent(*this, send);
            }
            ADD_FAILURE() << "an unknown send is done";
        }
        void received(velo_match_receive_t& face) {
            for (Receive& receive : receives) {
                if (&receive.face == &face) return world->received(*this, receive);
            }
            ADD_FAILURE() << "an unknown receive is done";
        }
    };
    static Rank& of(void* rank) { return *static_cast<Rank*>(rank); }

    uint32_t below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
    velo_engine_t* engine(const Rank& rank) { return job_[static_cast<size_t>(rank.rank)].engine; }
    static constexpr std::array<int, 4> kTags = {0, 1, 2, -17};
    static uint32_t key(int from, int to, uint32_t context, int tag, uint64_t bytes) {
        return static_cast<uint32_t>(((((from * 7 + to) * 31 + static_cast<int>(context)) * 67 + tag) * 131) +
                                     static_cast<int>(bytes) * 977);
    }
    uint32_t context() { return std::array{3u, 4u, 9u}[below(3)]; }
    uint64_t bytes() {
        switch (below(10)) {
            case 0: return 0;
            case 1: return 17000 + below(20000);
            case 2: return 66000 + below(60000);
            case 3: return 2000 + below(200);
            case 4:
            case 5: return 200 + below(300);
            default: return below(60);
        }
    }
    MatchRules::Pattern pattern() {
        return {.context = context(),
                .source = below(2) == 0 ? MatchRules::kAny : static_cast<int>(below(kRanks)),
                .tag = below(3) == 0 ? MatchRules::kAny : kTags[below(4)]};
    }
    [[nodiscard]] static uint64_t place(const MatchRules::Pattern& pattern) {
        return velo_place(pattern.context, pattern.source);
    }
    [[nodiscard]] static velo_match_peer_t* named(const Rank& rank, const MatchRules::Pattern& pattern) {
        return pattern.source < 0 ? nullptr : rank.peers[static_cast<size_t>(pattern.source)];
    }

    void act(Rank& rank) {
        switch (below(16)) {
            case 0:
            case 1:
            case 2:
            case 3:
            case 4: return send(rank);
            case 5:
            case 6:
            case 7:
            case 8:
            case 9: return receive(rank, pattern());
            case 10:
            case 11: return cancel(rank);
            case 12: return probe(rank);
            case 13: (void)take(rank, pattern()); return;
            case 14: return receive_taken(rank);
            default: return send(rank);
        }
    }

    void send(Rank& rank) {
        const auto open = [](const Send& send) { return !send.done; };
        const auto under_way = std::count_if(rank.sends.begin(), rank.sends.end(), open);
        if (static_cast<size_t>(under_way) >= kUnderWayMax) return;
        Send& send = rank.sends.emplace_back();
        send.context = context();
        send.to = static_cast<int>(below(kRanks));
        send.tag = kTags[below(4)];
        send.synchronous = below(4) == 0;
        Rank& receiver = ranks_[static_cast<size_t>(send.to)];
        uint64_t bytes = this->bytes();
        while (!receiver.rules.sent(send.context, rank.rank, send.tag, bytes, now_)) ++bytes;
        send.data = pattern_of(rank.rank, send.to, send.context, send.tag, bytes);
        velo_match_peer_t* const to = rank.peers[static_cast<size_t>(send.to)];
        const uint64_t place = velo_place(send.context, rank.rank);
        const bool left = !send.synchronous && below(4) != 0 &&
                          velo_match_send_now(engine(rank), to, place, send.tag, send.data.data(), bytes);
        if (left || velo_match_send(engine(rank), to, place, send.tag, send.data.data(), bytes,
                                    send.synchronous, &send.face))
            sent(rank, send);
    }
    void sent(Rank& rank, Send& send) {
        EXPECT_FALSE(send.done) << "a send is done twice";
        send.done = true;
        if (send.synchronous) {
            // It has matched then, so the receive was posted; what it has got may not be known yet.
            synchronous_.push_back({send.to, send.context, rank.rank, send.tag, send.data.size(), now_});
        }
        std::fill(send.data.begin(), send.data.end(), kUntouched);
    }

    void receive(Rank& rank, const MatchRules::Pattern& pattern) {
        const uint64_t capacity = below(3) == 0 ? below(3000) : 200'000;
        Receive& receive = add(rank, pattern, capacity, rank.rules.posted(pattern, now_));
        const bool done = velo_match_post(engine(rank), place(pattern), pattern.tag, receive.buffer.data(),
                                          capacity, &receive.face) != 0 &&
                          velo_match_receive(engine(rank), named(rank, pattern), place(pattern), pattern.tag,
                                             receive.buffer.data(), capacity, &receive.face);
        if (done) received(rank, receive);
    }
    Receive& add(Rank& rank, const MatchRules::Pattern& pattern, uint64_t capacity, int number) {
        Receive& receive = rank.receives.emplace_back();
        receive.number = number;
        receive.pattern = pattern;
        receive.capacity = capacity;
        receive.buffer.assign(capacity + 64, kUntouched);
        return receive;
    }
    void received(Rank& rank, Receive& receive) {
        EXPECT_FALSE(receive.done) << "a receive is done twice";
        EXPECT_FALSE(receive.cancelled) << "a receive that was cancelled is done";
        EXPECT_EQ(receive.face.status, VELO_OK);
        receive.done = true;
        const velo_match_receive_t& face = receive.face;
        if (rank.rules.got(receive.number, {face.source, face.tag, face.bytes}, now_) < 0) return;
        const std::vector<std::byte> data =
            pattern_of(face.source, rank.rank, receive.pattern.context, face.tag, face.bytes);
        const auto here = static_cast<ptrdiff_t>(std::min(face.bytes, receive.capacity));
        EXPECT_TRUE(std::equal(data.begin(), data.begin() + here, receive.buffer.begin()))
            << "other data, of " << face.bytes << " bytes into " << receive.capacity;
        EXPECT_TRUE(std::all_of(receive.buffer.begin() + here, receive.buffer.end(),
                                [](std::byte byte) { return byte == kUntouched; }))
            << "written behind the end, of " << face.bytes << " bytes into " << receive.capacity;
        std::vector<std::byte>().swap(receive.buffer);
    }
    std::vector<std::byte> pattern_of(int from, int to, uint32_t context, int tag, uint64_t bytes) {
        return test::pattern(bytes, key(from, to, context, tag, bytes));
    }
    void cancel(Rank& rank) {
        if (!rank.receives.empty())
            cancel(rank, rank.receives[below(static_cast<uint32_t>(rank.receives.size()))]);
    }
    /// Of one that is posted, has matched, is done, or was cancelled already.
    bool cancel(Rank& rank, Receive& receive) {
        const bool cancelled = velo_match_cancel(engine(rank), &receive.face);
        EXPECT_FALSE(cancelled && (receive.done || receive.cancelled));
        if (!cancelled) return false;
        receive.cancelled = true;
        rank.rules.cancelled(receive.number, now_);
        return true;
    }
    void probe(Rank& rank) {
        const MatchRules::Pattern pattern = this->pattern();
        velo_match_status_t status;
        for (uint32_t tries = 1 + below(6); tries != 0; --tries) {
            if (velo_match_probe(engine(rank), named(rank, pattern), place(pattern), pattern.tag, &status,
                                 nullptr)) {
                rank.rules.probed(pattern, {status.source, status.tag, status.bytes}, now_);
                if (below(2) == 0) receive(rank, {pattern.context, status.source, status.tag});
                return;
            }
            for (auto& other : job_.ranks) velo_progress(other->engine);
        }
    }
    bool take(Rank& rank, const MatchRules::Pattern& pattern) {
        Taken taken = {.message = nullptr, .pattern = pattern, .status = {}, .number = 0};
        if (!velo_match_probe(engine(rank), named(rank, pattern), place(pattern), pattern.tag, &taken.status,
                              &taken.message))
            return false;
        taken.number = rank.rules.posted(pattern, now_);
        rank.taken.push_back(taken);
        return true;
    }
    void receive_taken(Rank& rank) {
        if (rank.taken.empty()) return;
        const uint32_t at = below(static_cast<uint32_t>(rank.taken.size()));
        const Taken taken = rank.taken[at];
        rank.taken.erase(rank.taken.begin() + at);
        const uint64_t capacity = below(3) == 0 ? below(3000) : 200'000;
        Receive& receive = add(rank, taken.pattern, capacity, taken.number);
        if (velo_match_receive_message(engine(rank), taken.message, receive.buffer.data(), capacity,
                                       &receive.face))
            received(rank, receive);
        expected_.push_back({&receive, taken.status});
    }

    /// Until all that was sent is received and all sends are done; what still waits then is cancelled.
    void finish() {
        constexpr int kRoundsMax = 20000;
        const auto open = [this] {
            return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
                return rank.rules.unreceived() != 0 || !rank.taken.empty() ||
                       std::any_of(rank.sends.begin(), rank.sends.end(),
                                   [](const Send& send) { return !send.done; });
            });
        };
        int rounds = 0;
        for (; open() && rounds < kRoundsMax; ++rounds) {
            ++now_;
            Rank& rank = ranks_[below(kRanks)];
            const int tag = below(4) == 0 ? -17 : MatchRules::kAny;
            if (below(8) == 0) cancel(rank);
            take(rank, {context(), MatchRules::kAny, tag});
            receive_taken(rank);
            for (auto& other : job_.ranks) velo_progress(other->engine);
        }
        EXPECT_LT(rounds, kRoundsMax) << "not all messages come, or not all sends end";
        for (Rank& rank : ranks_) {
            for (Receive& receive : rank.receives) {
                if (receive.done || receive.cancelled) continue;
                EXPECT_TRUE(cancel(rank, receive)) << "a receive has matched and is not done";
            }
            EXPECT_FALSE(velo_busy(engine(rank)));
        }
        for (const auto& [receive, status] : expected_) {
            EXPECT_EQ(receive->face.source, status.source);
            EXPECT_EQ(receive->face.tag, status.tag);
            EXPECT_EQ(receive->face.bytes, status.bytes);
        }
        for (const Synchronous& send : synchronous_) {
            const MatchRules& rules = ranks_[static_cast<size_t>(send.to)].rules;
            EXPECT_LE(rules.posted_at(send.context, send.from, send.tag, send.bytes), send.done_at)
                << "a synchronous send is done before its receive is posted";
        }
    }

    struct Expected {
        const Receive* receive;
        velo_match_status_t status;
    };
    struct Synchronous {
        int to;
        uint32_t context;
        int from;
        int tag;
        uint64_t bytes;
        uint64_t done_at;
    };

    Config config_;
    std::mt19937_64 random_;
    Job job_;
    std::deque<Rank> ranks_;
    std::vector<Expected> expected_;  ///< of matched probes
    std::vector<Synchronous> synchronous_;
    uint64_t now_ = 0;
};

class MatchSoak : public testing::TestWithParam<Config> {};

TEST_P(MatchSoak, keeps_the_rules_of_mpi) {
    World(GetParam()).run();
}

INSTANTIATE_TEST_SUITE_P(Seeds, MatchSoak, testing::ValuesIn(configs()));

}  // namespace
}  // namespace velo::test
