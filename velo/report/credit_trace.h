/// The file in which a rank leaves credits and stalls over time (docs/trace.md has its format).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "flowctl/plan.h"
#include "velo/channels/credit_stalls.h"
#include "velo/velo.h"

namespace velo {

/// One device peer at one moment.
struct PeerCredits {
    uint32_t credits = 0;  ///< that this process holds there
    uint32_t granted = 0;  ///< slots here that it holds, that are under way to it, or that it has filled
    uint32_t quota = 0;    ///< slots here that it owns
    uint64_t stalls = 0;   ///< messages to it that waited for credits
    uint64_t stall_ns = 0;

    friend constexpr bool operator==(const PeerCredits&, const PeerCredits&) = default;
};

/// Owner: the engine. Thread: the engine's. Lines are collected in memory of a fixed size and written when
/// that is full, each second, and at the end; the first failure ends the trace.
class CreditTrace {
  public:
    struct Header {
        velo_identity_t identity{};
        flowctl::Plan plan;
        uint64_t period_ms = 0;
        uint64_t start_ns = 0;    ///< CLOCK_MONOTONIC
        uint64_t start_unix = 0;  ///< seconds, for people
    };

    /// Path of the rank's file: %r is its rank, %j its job, %% a percent sign; without %r, ".RANK" is added.
    [[gnu::cold]] static std::string path_of(std::string_view pattern, uint64_t job, uint32_t rank);

    /// Whether `pattern`, without the ".RANK" that may be added, names a directory, in which no file is named.
    [[gnu::cold]] static bool names_directory(std::string_view pattern, uint64_t job, uint32_t rank);

    /// Creates the file, over one that is there. nullptr: why stands in `error`, and in `common` whether
    /// other processes of the job can be expected to fail likewise.
    [[gnu::cold]] static std::unique_ptr<CreditTrace> open(const std::string& path, const Header& header,
                                                           std::string& error, bool& common);
    ~CreditTrace();
    CreditTrace(const CreditTrace&) = delete;
    CreditTrace& operator=(const CreditTrace&) = delete;

    /// A line, unless nothing has changed since the last one of this peer. With contact slots, `index` may be that of a
    /// peer that the plan does not have.
    void sample(uint64_t now_ns, uint32_t index, uint32_t rank, const PeerCredits& now);
    /// Data slots here that are granted to no sender; a line if that has changed.
    void sample_available(uint64_t now_ns, uint32_t slots);
    /// Writes what has been kept for a second, for a job that does not reach its end.
    void write_old(uint64_t now_ns);

    void total(uint32_t rank, const PeerCredits& credits);
    void total(const CreditStalls::Histogram& waits);
    void total(const velo_counters_t& counters);
    /// The last line. Nothing may follow.
    void finish(uint64_t now_ns);

    /// Not empty: writing has failed, as is said here once, and nothing is written any more.
    [[nodiscard]] std::string take_error();
    [[nodiscard]] bool failed() const { return failed_; }

  private:
    CreditTrace(int fd, std::string path, const Header& header);
    [[gnu::format(printf, 2, 3)]] void line(const char* format, ...);
    void flush();
    [[nodiscard]] unsigned long long time_us(uint64_t now_ns) const;

    int fd_;
    std::string path_;
    pid_t pid_;  ///< a child of fork() writes nothing
    uint64_t start_ns_;
    uint64_t written_ns_ = 0;
    uint64_t lines_ = 0;
    std::string buffer_;
    struct Last {
        bool seen = false;
        PeerCredits credits;
    };
    std::vector<Last> last_;
    int64_t last_available_ = -1;
    bool failed_ = false;
    std::string error_;
};

}  // namespace velo
