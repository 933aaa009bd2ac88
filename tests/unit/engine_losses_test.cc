// Messages that can never be carried end the job, with a line that names the peer, the cause and a remedy.
#include <sys/resource.h>

#include "tests/unit/job.h"
#include "velo/core/peer.h"

namespace velo::test {
namespace {

/// A limit of this process for the time of a test.
class Limit {
  public:
    Limit(__rlimit_resource resource, rlim_t value) : resource_(resource) {
        EXPECT_EQ(getrlimit(resource, &before_), 0);
        const rlimit limit = {value, before_.rlim_max};
        EXPECT_EQ(setrlimit(resource, &limit), 0);
    }
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;
    ~Limit() { setrlimit(resource_, &before_); }

  private:
    __rlimit_resource resource_;
    rlimit before_{};
};

/// Two ranks of one node, of which the first sends to the second.
class EngineLosses : public testing::Test {
  protected:
    static constexpr shm::RingGeometry kRing = {.lines = 64, .body_bytes = 128u << 10};

    static velo_params_t params() {
        velo_params_t params = default_params();
        params.timeout = 1;
        params.ring_bytes = kRing.body_bytes;
        return params;
    }
    void send() {
        send_ = {};
        send_.data[0] = data_.data();
        send_.bytes[0] = static_cast<uint32_t>(data_.size());
        sent_ = velo_send(job_[0].engine, job_[0].peers[1], &send_, 1);
    }
    bool failed(size_t rank) { return !job_[rank].failures.empty(); }
    /// The line of a rank that cannot go on.
    std::string line(size_t rank) { return failed(rank) ? job_[rank].failures[0].line : ""; }

    Job job_{2, params(), {.ring_lines = kRing.lines}};
    std::vector<std::byte> data_ = pattern(1000, 1);
    velo_send_t send_{};
    bool sent_ = false;
};

bool has(const std::string& text, const std::string& word) {
    return text.find(word) != std::string::npos;
}

TEST_F(EngineLosses, a_ring_that_cannot_be_made_ends_the_job) {
    const Limit limit(RLIMIT_FSIZE, 4096);
    send();
    EXPECT_FALSE(sent_);
    job_.drive([&] { return failed(0); }, 200'000'000);
    ASSERT_EQ(job_[0].failures.size(), 1u);
    EXPECT_EQ(job_[0].failures[0].path, VELO_PATH_ON_NODE);
    EXPECT_EQ(job_[0].failures[0].name, (uint64_t{77} << 32) + 1);
    for (const char* word : {"rank 0", "rank 1", "File too large", "ulimit -f", "posix_fallocate"}) {
        EXPECT_TRUE(has(line(0), word)) << word << " in " << line(0);
    }
    EXPECT_TRUE(job_[0].sent_list.empty()) << "the host takes an error of some messages for success";
}

TEST(EngineConnect, says_which_call_failed_and_what_to_do) {
    for (const int ranks_per_node : {0, 1}) {
        velo_params_t params = default_params();
        params.ranks_per_node = ranks_per_node;
        Rank one(params, 0, 2);
        Rank two(params, 1, 2);
        std::array<std::byte, VELO_ADDRESS_BYTES_MAX> address;
        const size_t bytes = velo_address(two.engine, address.data(), address.size());
        velo_peer_t* peer = nullptr;
        char error[512] = "";
        const Limit limit(RLIMIT_NOFILE, 3);
        EXPECT_NE(velo_connect(one.engine, address.data(), bytes, true, nullptr, &peer, error, sizeof error),
                  VELO_OK);
        for (const char* word : {"open of /proc/PID/fd", "Too many open files", "ulimit -n"}) {
            EXPECT_TRUE(has(error, word)) << word << " in " << error;
        }
    }
}

TEST_F(EngineLosses, a_message_goes_once_there_is_room_for_its_ring) {
    {
        const Limit limit(RLIMIT_FSIZE, 4096);
        send();
        for (int i = 0; i < 1000; ++i) velo_progress(job_[0].engine);
        EXPECT_TRUE(job_[0].sent_list.empty());
    }
    job_.drive([&] { return !job_[1].inbox.empty(); }, 200'000'000);
    EXPECT_EQ(job_[1].inbox[0].data, data_);
    EXPECT_FALSE(failed(0));
}

TEST_F(EngineLosses, a_ring_that_cannot_be_attached_ends_the_job) {
    send();
    EXPECT_TRUE(sent_);
    const Limit limit(RLIMIT_NOFILE, 3);
    job_.drive([&] { return failed(1); }, 200'000'000);
    for (const char* word : {"rank 1", "rank 0", "Too many open files", "ulimit -n", "btl_velo_timeout"}) {
        EXPECT_TRUE(has(line(1), word)) << word << " in " << line(1);
    }
    EXPECT_FALSE(failed(0));
}

TEST_F(EngineLosses, garbage_in_a_ring_ends_the_job) {
    send();
    job_.drive([&] { return job_[1].inbox.size() == 1; });
    EngineAddress address;
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
    ASSERT_TRUE(address.parse(bytes.data(), velo_address(job_[0].engine, bytes.data(), bytes.size())));
    base::SharedSegment segment;
    base::Mapping memory;
    ASSERT_EQ(base::SharedSegment::attach(address.on_node.segment, segment), Status::kOk);
    ASSERT_EQ(segment.map(segment.address().bytes, shm::ring_bytes(kRing), memory), Status::kOk);
    const shm::RingView ring(memory.data(), kRing);
    for (uint32_t line = 0; line < kRing.lines; ++line) {
        ring.line(line).header.store(shm::LineHeader{.bytes = UINT32_MAX}.pack());
    }
    job_.drive([&] { return failed(1); }, 200'000'000);
    EXPECT_EQ(job_[1].counters().on_node_garbage, 1u);
    for (const char* word : {"velo: rank 1: rank 0 (pid ", "lost"}) {
        EXPECT_TRUE(has(line(1), word)) << word << " in " << line(1);
    }
}

}  // namespace
}  // namespace velo::test
