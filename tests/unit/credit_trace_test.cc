// The trace of credits: its file, its totals, and what moves each counter of credits and stalls.
#include "velo/report/credit_trace.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "tests/unit/job.h"

namespace velo::test {
namespace {

/// A sample every millisecond, so that a short test has many.
const Tuning kOften = {.trace_period_ms = 1};

class CreditTraceFiles : public testing::Test {
  protected:
    CreditTraceFiles() {
        std::string pattern = testing::TempDir() + "velo-trace-XXXXXX";
        directory = mkdtemp(pattern.data());
    }
    ~CreditTraceFiles() override { std::filesystem::remove_all(directory); }

    /// Two ranks, with a node each and a small mailbox.
    velo_params_t params(const std::string& trace) {
        text = trace;
        velo_params_t params = default_params();
        params.ranks_per_node = 1;
        params.flow_control = "static";
        params.slots = 8;
        params.trace = text.c_str();
        return params;
    }
    bool empty() const { return std::filesystem::is_empty(directory); }

    std::string directory;
    std::string text;
};

struct File {
    std::string header;
    std::map<uint32_t, PeerCredits> totals;
    std::map<uint32_t, PeerCredits> last_samples;
    std::map<std::string, uint64_t> counters;
    uint64_t samples = 0;
    uint64_t waits = 0;
    uint64_t lines = 0;  ///< before the last
    uint64_t lines_told = 0;
};

File read(const std::string& path) {
    File file;
    std::ifstream in(path);
    EXPECT_TRUE(in) << path;
    std::getline(in, file.header);
    std::string line;
    for (file.lines = 1; std::getline(in, line); ++file.lines) {
        std::istringstream words(line);
        char kind = 0;
        uint64_t us = 0;
        words >> kind;
        if (kind == 's' || kind == 'p') {
            uint32_t peer = 0;
            PeerCredits credits;
            if (kind == 's') words >> us;
            words >> peer >> credits.credits >> credits.granted >> credits.quota >> credits.stalls >>
                credits.stall_ns;
            (kind == 's' ? file.last_samples : file.totals)[peer] = credits;
            file.samples += kind == 's';
        } else if (kind == 'c') {
            std::string name;
            words >> name;
            words >> file.counters[name];
        } else if (kind == 'w') {
            uint64_t power = 0, count = 0;
            words >> power >> count;
            file.waits += count;
        } else if (kind == 'e') {
            words >> us >> file.lines_told;
            break;
        } else {
            EXPECT_EQ(kind, 'a') << line;
        }
        EXPECT_TRUE(words) << line;
    }
    EXPECT_FALSE(std::getline(in, line)) << "behind the end: " << line;
    return file;
}

/// Queues messages that own their bytes, and drives until all have arrived.
void flood(Job& job, uint32_t from, uint32_t to, uint32_t messages, uint32_t bytes) {
    const std::vector<std::byte> data = pattern(bytes, 1);
    std::vector<velo_send_t> sends(messages);
    const size_t before = job[to].inbox.size();
    for (velo_send_t& send : sends) {
        send = {};
        send.data[1] = data.data();
        send.bytes[1] = bytes;
        velo_send(job[from].engine, job[from].peers[to], &send, 1);
    }
    job.drive([&] { return job[to].inbox.size() == before + messages && !velo_busy(job[from].engine); });
}

/// The last return has been taken.
void settle(Job& job) {
    int rounds = 0;
    job.drive([&] { return ++rounds > 1000; });
}

TEST_F(CreditTraceFiles, totals_are_those_of_the_counters) {
    std::vector<velo_counters_t> counters;
    {
        Job job(2, params(directory + "/t"), kOften);
        flood(job, 0, 1, 200, 300);
        flood(job, 1, 0, 20, 2000);
        settle(job);
        for (auto& rank : job.ranks) counters.push_back(rank->counters());
    }
    for (uint32_t rank = 0; rank < 2; ++rank) {
        const File file = read(directory + "/t." + std::to_string(rank));
        const velo_counters_t& counted = counters[rank];
        EXPECT_EQ(file.header.find(
                      "velo-trace 1 job=77 rank=" + std::to_string(rank) +
                      " size=2 mode=static peers=1 mailbox_slots=8 data_slots=6 credit_slots=2 quota=6 "
                      "period_ms=1 start_ns="),
                  0u)
            << file.header;
        EXPECT_EQ(file.lines, file.lines_told);
        ASSERT_EQ(file.totals.size(), 1u);
        const PeerCredits& total = file.totals.at(1 - rank);
        EXPECT_EQ(total, file.last_samples.at(1 - rank));
        EXPECT_GT(counted.stall_count, 0u);
        EXPECT_EQ(total.stalls, counted.stall_count);
        EXPECT_EQ(total.stall_ns, counted.stall_ns);
        EXPECT_EQ(file.waits, counted.stall_count);
        EXPECT_EQ(total.credits, counted.credits_held);
        EXPECT_EQ(total.granted, counted.credits_granted);
        EXPECT_EQ(total.quota, 6u);
#define VELO_COUNTER(name, text) EXPECT_EQ(file.counters.at(#name), counted.name) << #name;
#include "velo/counters.def"
#undef VELO_COUNTER
    }
}

TEST_F(CreditTraceFiles, a_peer_whose_state_stays_gives_one_sample) {
    {
        Job job(2, params(directory + "/t"), kOften);
        timespec pause = {.tv_sec = 0, .tv_nsec = 3'000'000};
        for (int round = 0; round < 10; ++round) {
            nanosleep(&pause, nullptr);
            for (int polls = 0; polls < 100; ++polls) velo_progress(job[0].engine);
        }
    }
    EXPECT_EQ(read(directory + "/t.0").samples, 1u);
}

/// A trace without an engine, of one peer.
std::unique_ptr<CreditTrace> open_trace(const std::string& path) {
    CreditTrace::Header header;
    header.identity.job_size = 2;
    header.plan.peers = 1;
    std::string error;
    bool common = false;
    auto trace = CreditTrace::open(path, header, error, common);
    EXPECT_NE(trace, nullptr) << error;
    return trace;
}

TEST_F(CreditTraceFiles, a_long_trace_is_written_whole) {
    constexpr uint64_t kSamples = 10'000;
    const auto trace = open_trace(directory + "/t");
    for (uint64_t i = 0; i < kSamples; ++i) trace->sample(i * 1000, 0, 1, {.stalls = i});
    trace->finish(kSamples * 1000);
    const File file = read(directory + "/t");
    EXPECT_GT(std::filesystem::file_size(directory + "/t"), 200'000u);
    EXPECT_EQ(file.samples, kSamples);
    EXPECT_EQ(file.lines, kSamples + 1);
    EXPECT_EQ(file.lines_told, file.lines);
    EXPECT_EQ(file.last_samples.at(1).stalls, kSamples - 1);
    EXPECT_FALSE(trace->failed());
}

TEST_F(CreditTraceFiles, what_is_kept_is_written_each_second) {
    const auto trace = open_trace(directory + "/t");
    trace->write_old(2'000'000'000);
    const auto header_bytes = std::filesystem::file_size(directory + "/t");
    trace->sample(2'100'000'000, 0, 1, {.stalls = 1});
    trace->write_old(2'999'000'000);
    EXPECT_EQ(std::filesystem::file_size(directory + "/t"), header_bytes);
    trace->write_old(3'000'000'000);
    EXPECT_GT(std::filesystem::file_size(directory + "/t"), header_bytes);
}

TEST_F(CreditTraceFiles, a_file_that_can_not_grow_ends_the_trace) {
    const auto trace = open_trace(directory + "/t");
    rlimit before = {};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    const rlimit small = {.rlim_cur = 100'000, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (uint64_t i = 0; i < 10'000; ++i) trace->sample(i * 1000, 0, 1, {.stalls = i});
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    EXPECT_TRUE(trace->failed());
    const std::string error = trace->take_error();
    EXPECT_NE(error.find("cannot be written any more (File too large); its trace ends here"),
              std::string::npos)
        << error;
    EXPECT_EQ(trace->take_error(), "");
    trace->finish(1);
    EXPECT_EQ(std::filesystem::file_size(directory + "/t"), 100'000u) << "written again after a failure";
}

TEST_F(CreditTraceFiles, without_the_parameter_there_is_no_file) {
    {
        Job job(2, params(""), kOften);
        flood(job, 0, 1, 100, 300);
        EXPECT_GT(job[0].counters().stall_count, 0u);
    }
    EXPECT_TRUE(empty());
}

TEST_F(CreditTraceFiles, without_a_device_there_is_no_file_and_one_line_says_so) {
    velo_params_t on_node = params(directory + "/t");
    on_node.ranks_per_node = 0;
    Job job(2, on_node, kOften);
    EXPECT_TRUE(empty());
    ASSERT_EQ(job[0].log.size(), 1u);
    EXPECT_NE(job[0].log[0].find("btl_velo_trace: no rank is reached through the device"), std::string::npos);
}

TEST_F(CreditTraceFiles, a_path_that_can_not_be_written_costs_the_trace_and_not_the_job) {
    Job job(2, params(directory + "/missing/t"), kOften);
    flood(job, 0, 1, 100, 300);
    for (auto& rank : job.ranks) {
        ASSERT_EQ(rank->log.size(), 1u);
        EXPECT_NE(rank->log[0].find("btl_velo_trace: " + directory + "/missing/t."), std::string::npos)
            << rank->log[0];
        EXPECT_NE(rank->log[0].find("No such file or directory"), std::string::npos) << rank->log[0];
        EXPECT_NE(rank->log[0].find("name a file in a directory"), std::string::npos) << rank->log[0];
    }
    EXPECT_EQ(job[1].inbox.size(), 100u);
}

/// Files do not grow while it lives.
class FullDisk {
  public:
    FullDisk() {
        signal(SIGXFSZ, SIG_IGN);
        getrlimit(RLIMIT_FSIZE, &before_);
        const rlimit none = {.rlim_cur = 1, .rlim_max = before_.rlim_max};
        setrlimit(RLIMIT_FSIZE, &none);
    }
    FullDisk(const FullDisk&) = delete;
    FullDisk& operator=(const FullDisk&) = delete;
    ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

  private:
    rlimit before_{};
};

TEST_F(CreditTraceFiles, a_write_that_fails_is_told_once_and_ends_the_trace) {
    Job job(2, params(directory + "/t"), kOften);
    flood(job, 0, 1, 100, 300);
    const FullDisk full;
    timespec pause = {.tv_sec = 1, .tv_nsec = 10'000'000};
    nanosleep(&pause, nullptr);
    flood(job, 1, 0, 100, 300);
    for (auto& rank : job.ranks) {
        ASSERT_EQ(rank->log.size(), 1u);
        EXPECT_NE(rank->log[0].find("File too large"), std::string::npos) << rank->log[0];
    }
}

TEST_F(CreditTraceFiles, what_is_no_file_is_neither_waited_for_nor_written) {
    ASSERT_EQ(mkfifo((directory + "/t.0").c_str(), 0600), 0);
    const std::string target = directory + "/target";
    std::ofstream(target) << "precious";
    std::filesystem::create_symlink(target, directory + "/t.1");
    std::filesystem::create_symlink(directory + "/new", directory + "/t.2");
    Job job(3, params(directory + "/t"), kOften);
    for (auto& rank : job.ranks) {
        ASSERT_EQ(rank->log.size(), 1u);
        EXPECT_NE(rank->log[0].find("btl_velo_trace: " + directory + "/t."), std::string::npos) << rank->log[0];
    }
    for (int rank : {1, 2}) {
        EXPECT_NE(job[rank].log[0].find("it is a link); name"), std::string::npos) << job[rank].log[0];
    }
    std::string content;
    std::ifstream(target) >> content;
    EXPECT_EQ(content, "precious");
    EXPECT_FALSE(std::filesystem::exists(directory + "/new"));
}

TEST_F(CreditTraceFiles, a_fifo_that_is_read_is_no_file_either) {
    const std::string path = directory + "/t.0";
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
    ASSERT_GE(reader, 0);
    Job job(2, params(directory + "/t"), kOften);
    close(reader);
    ASSERT_EQ(job[0].log.size(), 1u);
    EXPECT_NE(job[0].log[0].find("it is no file); name"), std::string::npos) << job[0].log[0];
}

TEST_F(CreditTraceFiles, two_processes_do_not_write_one_file) {
    Job job(2, params(directory + "/t%%"), kOften);
    const velo_params_t same = params(directory + "/t%%");
    Rank other(same, 0, 2);
    ASSERT_NE(other.engine, nullptr);
    ASSERT_EQ(other.log.size(), 1u);
    EXPECT_NE(other.log[0].find("%j"), std::string::npos) << other.log[0];
    EXPECT_TRUE(std::filesystem::exists(directory + "/t%.0"));
}

TEST_F(CreditTraceFiles, an_older_file_is_replaced) {
    std::ofstream(directory + "/t.0") << std::string(100000, 'x');
    { Job job(2, params(directory + "/t"), kOften); }
    const File file = read(directory + "/t.0");
    EXPECT_EQ(file.lines, file.lines_told);
}

TEST(CreditTracePath, rank_and_job_have_their_places) {
    EXPECT_EQ(CreditTrace::path_of("out/t", 7, 3), "out/t.3");
    EXPECT_EQ(CreditTrace::path_of("out/%r/t", 7, 3), "out/3/t");
    EXPECT_EQ(CreditTrace::path_of("t-%j", 7, 3), "t-7.3");
    EXPECT_EQ(CreditTrace::path_of("t-%j-%r.txt", 7, 3), "t-7-3.txt");
    EXPECT_EQ(CreditTrace::path_of("100%%r%", 7, 3), "100%r%.3");
    EXPECT_EQ(CreditTrace::path_of("%x", 7, 3), "%x.3");
}

TEST_F(CreditTraceFiles, a_name_of_a_directory_is_refused_and_nothing_is_made_beside_it) {
    for (const std::string& name : {directory, directory + "/", directory + "/none/", directory + "/%r/"}) {
        Job job(2, params(name.c_str()), kOften);
        ASSERT_FALSE(job[0].log.empty()) << name;
        EXPECT_NE(job[0].log[0].find(name + " is a directory; name a file in it"), std::string::npos) << job[0].log[0];
    }
    EXPECT_FALSE(std::filesystem::exists(directory + ".0")) << "beside the directory";
    EXPECT_FALSE(std::filesystem::exists(directory + "/.0")) << "hidden in it";
    EXPECT_FALSE(std::filesystem::exists(directory + "/none"));
}

class CreditCounters : public CreditTraceFiles {};

TEST_F(CreditCounters, messages_that_find_credits_stall_nothing) {
    Job job(2, params(""), kOften);
    flood(job, 0, 1, 1, 50);
    EXPECT_EQ(job[0].counters().stall_count, 0u);
    EXPECT_EQ(job[0].counters().stall_ns, 0u);
}

TEST_F(CreditCounters, a_message_without_credits_stalls_once_and_for_as_long_as_it_waits) {
    Job job(2, params(""), kOften);
    const std::vector<std::byte> data = pattern(2000, 1);  // 36 packets, and there are 6 credits
    velo_send_t send = {};
    send.data[1] = data.data();
    send.bytes[1] = 2000;
    EXPECT_FALSE(velo_send(job[0].engine, job[0].peers[1], &send, 1));
    timespec pause = {.tv_sec = 0, .tv_nsec = 2'000'000};
    nanosleep(&pause, nullptr);
    EXPECT_GE(job[0].counters().stall_ns, 2'000'000u) << "it still waits";
    job.drive([&] { return job[1].inbox.size() == 1 && !velo_busy(job[0].engine); });
    const velo_counters_t counters = job[0].counters();
    EXPECT_EQ(counters.stall_count, 1u);
    EXPECT_GE(counters.stall_ns, 2'000'000u);
    EXPECT_EQ(job[0].counters().stall_ns, counters.stall_ns) << "it waits no longer";
    EXPECT_EQ(job[1].counters().stall_count, 0u);
}

TEST_F(CreditCounters, one_way_credits_return_explicitly_and_replies_take_them_along) {
    Job job(2, params(""), kOften);
    flood(job, 0, 1, 40, 50);
    settle(job);
    velo_counters_t receiver = job[1].counters();
    EXPECT_GT(receiver.credits_tx_packets, 0u);
    EXPECT_EQ(receiver.credits_tx_piggybacked, 0u);
    EXPECT_EQ(receiver.credits_tx_explicit, job[0].counters().credits_rx);
    EXPECT_EQ(receiver.credits_tx_packets, job[0].counters().credits_rx_packets);
    flood(job, 1, 0, 1, 50);
    const uint64_t before = receiver.credits_tx_explicit;
    receiver = job[1].counters();
    EXPECT_GT(receiver.credits_tx_piggybacked, 0u);
    EXPECT_EQ(receiver.credits_tx_explicit, before);
    EXPECT_EQ(receiver.credits_tx_explicit + receiver.credits_tx_piggybacked, job[0].counters().credits_rx);
}

TEST_F(CreditCounters, levels_add_up_to_the_data_region) {
    Job job(2, params(""), kOften);
    EXPECT_EQ(job[0].counters().credits_held, 6u);
    EXPECT_EQ(job[1].counters().credits_granted, 6u);
    EXPECT_EQ(job[1].counters().credits_available, 0u);
    const std::array<std::byte, 8> data = {};
    job.drive([&] {
        return velo_try_send(job[0].engine, job[0].peers[1], 1, data.data(), data.size(), nullptr, 0) ==
               VELO_OK;
    });
    EXPECT_EQ(job[0].counters().credits_held, 5u);
    EXPECT_EQ(job[1].counters().credits_granted, 6u) << "not retrieved yet";
    job.drive([&] { return job[1].inbox.size() == 1; });
    EXPECT_EQ(job[1].counters().credits_granted, 5u);
    EXPECT_EQ(job[1].counters().credits_available, 1u) << "below the threshold";
}

TEST_F(CreditCounters, without_credits_all_levels_are_0) {
    velo_params_t none = params("");
    none.flow_control = "none";
    Job job(2, none, kOften);
    flood(job, 0, 1, 10, 50);
    const velo_counters_t counters = job[0].counters();
    EXPECT_EQ(counters.credits_held + counters.credits_granted + counters.credits_available, 0u);
    EXPECT_EQ(counters.stall_count, 0u);
}

}  // namespace
}  // namespace velo::test
