// Shared by all MPI conformance programs: named checks, data patterns, guarded buffers.
//
// A program is a Suite of checks. Each check runs on every rank, on a communicator of its own, so that what
// one check leaves behind cannot match in the next. Failures are gathered, and rank 0 alone prints the
// verdict: `PASS name` or `FAIL name: details`. A check that hangs is ended by a watchdog that names the
// check and the rank.
//
// Units: sizes and offsets in bytes, unless a name says elements. Thread: Check::fail may be called by any
// thread.
#pragma once

// Open MPI's C++ bindings are deprecated, absent from 5.0, and would need another library to link.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <csignal>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace mpi_test {

constexpr std::uint64_t mix(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/// Identity of a message; two messages that differ in any field differ in every word of their content.
struct Message {
    int source = 0;
    int destination = 0;
    std::size_t bytes = 0;
    std::uint64_t iteration = 0;

    [[nodiscard]] constexpr std::uint64_t key() const {
        const auto ends = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(source)) << 32) |
                          static_cast<std::uint32_t>(destination);
        return mix(mix(mix(ends) ^ bytes) ^ iteration);
    }
};

/// The 8 bytes of content at word `index`; cheap, because 64 MiB of it are made and compared.
constexpr std::uint64_t pattern_word(std::uint64_t key, std::uint64_t index) {
    std::uint64_t x = (key + index) * 0x9e3779b97f4a7c15;
    return x ^ (x >> 29);
}

inline std::byte pattern_byte(std::uint64_t key, std::size_t offset) {
    return static_cast<std::byte>(pattern_word(key, offset / 8) >> (8 * (offset % 8)));
}

inline void fill(std::byte* data, const Message& message) {
    const std::uint64_t key = message.key();
    const std::size_t words = message.bytes / 8;
    for (std::size_t i = 0; i < words; ++i) {
        const std::uint64_t word = pattern_word(key, i);
        std::memcpy(data + 8 * i, &word, 8);
    }
    for (std::size_t i = words * 8; i < message.bytes; ++i) data[i] = pattern_byte(key, i);
}

/// First offset below `bytes` at which data differs from the message's content, or `bytes`.
inline std::size_t first_difference(const std::byte* data, const Message& message, std::size_t bytes) {
    const std::uint64_t key = message.key();
    const std::size_t words = bytes / 8;
    std::size_t offset = bytes - bytes % 8;
    for (std::size_t i = 0; i < words; ++i) {
        std::uint64_t word;
        std::memcpy(&word, data + 8 * i, 8);
        if (word != pattern_word(key, i)) {
            offset = 8 * i;
            break;
        }
    }
    while (offset < bytes && data[offset] == pattern_byte(key, offset)) ++offset;
    return offset;
}

/// A receive buffer between two guard regions. Everything starts as kPoison, so that a byte that never
/// arrived and a byte that was written where none belongs are both seen.
class GuardedBuffer {
  public:
    static constexpr std::size_t kGuardBytes = 128;
    static constexpr std::byte kPoison{0xa5};

    explicit GuardedBuffer(std::size_t bytes) : storage_(bytes + 2 * kGuardBytes, kPoison) {}

    [[nodiscard]] std::byte* data() { return storage_.data() + kGuardBytes; }
    [[nodiscard]] const std::byte* data() const { return storage_.data() + kGuardBytes; }
    [[nodiscard]] std::size_t bytes() const { return storage_.size() - 2 * kGuardBytes; }
    void poison() { std::memset(storage_.data(), static_cast<int>(kPoison), storage_.size()); }

    /// Offset, relative to data(), of the first byte outside [0, used) that is not poison; `fallback` if
    /// none.
    [[nodiscard]] std::ptrdiff_t first_overrun(std::size_t used, std::ptrdiff_t fallback) const {
        for (std::size_t i = 0; i < kGuardBytes; ++i) {
            if (storage_[i] != kPoison) return static_cast<std::ptrdiff_t>(i) - std::ptrdiff_t{kGuardBytes};
        }
        for (std::size_t i = kGuardBytes + used; i < storage_.size(); ++i) {
            if (storage_[i] != kPoison) return static_cast<std::ptrdiff_t>(i) - std::ptrdiff_t{kGuardBytes};
        }
        return fallback;
    }

  private:
    std::vector<std::byte> storage_;
};

inline std::vector<std::byte> filled(const Message& message) {
    std::vector<std::byte> data(message.bytes);
    fill(data.data(), message);
    return data;
}

struct Options {
    bool quick = false;
    bool times = false;
    std::uint64_t seed = 20240607;
    unsigned watchdog_s = 100;
    std::vector<std::string> only;
    std::vector<std::string> skip;
};

/// Context of a running check: its communicator, its scale, its random numbers, and where it reports.
class Check {
  public:
    Check(MPI_Comm communicator, const Options& options) : comm(communicator), quick(options.quick) {
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        seed = options.seed;
        random.seed(mix(options.seed + static_cast<std::uint64_t>(rank)));
    }

    /// Records a failure; printf-like. Only the first few texts are kept, all are counted.
    __attribute__((format(printf, 2, 3))) void fail(const char* format, ...) {
        char text[256];
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        const std::lock_guard lock(mutex_);
        if (failure_count_++ < kTextsKept) texts_ += "rank " + std::to_string(rank) + ": " + text + "; ";
    }

    bool equal(long long got, long long expected, const char* what) {
        if (got != expected) fail("%s: expected %lld, got %lld", what, expected, got);
        return got == expected;
    }

    /// The received prefix is the message's, and nothing past `bytes` nor in the guards was written.
    bool received(const GuardedBuffer& buffer, const Message& message, std::size_t bytes,
                  const char* what = "data") {
        const std::size_t at = first_difference(buffer.data(), message, bytes);
        if (at < bytes) {
            fail("%s: peer %d size %zu iteration %llu offset %zu expected 0x%02x got 0x%02x", what,
                 message.source, message.bytes, static_cast<unsigned long long>(message.iteration), at,
                 std::to_integer<unsigned>(pattern_byte(message.key(), at)),
                 std::to_integer<unsigned>(buffer.data()[at]));
            return false;
        }
        constexpr std::ptrdiff_t kNone = PTRDIFF_MIN;
        const std::ptrdiff_t overrun = buffer.first_overrun(bytes, kNone);
        if (overrun != kNone) {
            fail("%s: peer %d size %zu: byte at offset %td overwritten", what, message.source, message.bytes,
                 overrun);
        }
        return overrun == kNone;
    }
    bool received(const GuardedBuffer& buffer, const Message& message) {
        return received(buffer, message, message.bytes);
    }

    bool status(const MPI_Status& got, int source, int tag, std::size_t bytes) {
        int count = -1;
        MPI_Get_count(&got, MPI_BYTE, &count);
        const bool ok = got.MPI_SOURCE == source && got.MPI_TAG == tag && count == static_cast<int>(bytes);
        if (!ok) {
            fail("status: expected source %d tag %d size %zu, got source %d tag %d size %d", source, tag,
                 bytes, got.MPI_SOURCE, got.MPI_TAG, count);
        }
        return ok;
    }

    [[nodiscard]] int next() const { return (rank + 1) % size; }
    [[nodiscard]] int previous() const { return (rank + size - 1) % size; }
    [[nodiscard]] long failure_count() const { return failure_count_; }
    [[nodiscard]] const std::string& texts() const { return texts_; }

    MPI_Comm comm;
    int rank = 0;
    int size = 0;
    bool quick;
    std::uint64_t seed = 0;
    std::mt19937_64 random;

  private:
    static constexpr long kTextsKept = 2;
    std::mutex mutex_;
    long failure_count_ = 0;
    std::string texts_;
};

class Suite {
  public:
    Suite(int argc, char** argv) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
        for (int i = 1; i < argc; ++i) {
            const std::string_view argument = argv[i];
            const bool has_value = i + 1 < argc;
            if (argument == "--quick") {
                options_.quick = true;
            } else if (argument == "--times") {
                options_.times = true;
            } else if (argument == "--only" && has_value) {
                options_.only.emplace_back(argv[++i]);
            } else if (argument == "--skip" && has_value) {
                options_.skip.emplace_back(argv[++i]);
            } else if (argument == "--seed" && has_value) {
                options_.seed = std::strtoull(argv[++i], nullptr, 0);
            } else if (argument == "--watchdog" && has_value) {
                options_.watchdog_s = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 0));
            } else {
                usage(argv[0]);
            }
        }
        if (size_ < 2) {
            std::fprintf(stderr, "%s: needs at least 2 ranks\n", argv[0]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        if (rank_ == 0) {
            std::printf("seed %llu ranks %d\n", static_cast<unsigned long long>(options_.seed), size_);
        }
        std::signal(SIGALRM, on_alarm);
    }

    /// For what the host is known not to do: runs when `--only` gives the full name, never by a prefix.
    void check_if_named(const std::string& name, const std::function<void(Check&)>& body) {
        for (const std::string& wanted : options_.only) {
            if (wanted == name) return check(name, body);
        }
    }

    void check(const std::string& name, const std::function<void(Check&)>& body) {
        if (!watch(name)) return;
        const double start_s = MPI_Wtime();
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        {
            Check check(comm, options_);
            body(check);
            report(name, check, start_s);
        }
        MPI_Comm_free(&comm);
        alarm(0);
    }

    /// Counts a check and starts its watchdog, if it is selected. For one that reports by itself.
    [[nodiscard]] bool watch(const std::string& name) {
        if (!selected(name)) return false;
        ++run_count_;
        std::snprintf(watched_, sizeof watched_, "FAIL %s: rank %d: no end after %u s\n", name.c_str(), rank_,
                      options_.watchdog_s);
        alarm(options_.watchdog_s);
        return true;
    }

    [[nodiscard]] const Options& options() const { return options_; }

    /// The process's exit status; a selection that ran nothing is a failure, lest a wrong name look like
    /// success.
    [[nodiscard]] int finish() {
        if (rank_ == 0 && run_count_ == 0) std::printf("FAIL selection: no check of that name\n");
        return failed_count_ == 0 && run_count_ > 0 ? 0 : 1;
    }

  private:
    static constexpr std::size_t kTextBytes = 1024;

    [[noreturn]] void usage(const char* program) const {
        if (rank_ == 0) {
            std::fprintf(
                stderr,
                "usage: %s [--quick] [--times] [--seed N] [--watchdog SECONDS] [--only NAME]...\n"
                "  --only runs the checks whose name is NAME or, if NAME ends with *, starts with it\n",
                program);
        }
        MPI_Finalize();
        std::exit(2);
    }

    static bool matches(std::string_view name, const std::vector<std::string>& patterns) {
        for (const std::string_view pattern : patterns) {
            if (pattern == name) return true;
            if (pattern.ends_with('*') && name.starts_with(pattern.substr(0, pattern.size() - 1)))
                return true;
            if (pattern.starts_with('*') && name.ends_with(pattern.substr(1))) return true;
        }
        return false;
    }

    [[nodiscard]] bool selected(std::string_view name) const {
        return (options_.only.empty() || matches(name, options_.only)) && !matches(name, options_.skip);
    }

    void report(const std::string& name, Check& check, double start_s) {
        long failures = check.failure_count();
        long total = 0;
        MPI_Allreduce(&failures, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        const double elapsed_s = MPI_Wtime() - start_s;
        if (total != 0) {
            ++failed_count_;
            std::vector<char> mine(kTextBytes, '\0');
            check.texts().copy(mine.data(), kTextBytes - 1);
            std::vector<char> all(rank_ == 0 ? kTextBytes * static_cast<std::size_t>(size_) : 0);
            MPI_Gather(mine.data(), kTextBytes, MPI_CHAR, all.data(), kTextBytes, MPI_CHAR, 0,
                       MPI_COMM_WORLD);
            if (rank_ == 0) {
                std::printf("FAIL %s: %ld failures: ", name.c_str(), total);
                for (int i = 0; i < size_; ++i) {
                    std::printf("%s", all.data() + kTextBytes * static_cast<std::size_t>(i));
                }
                std::printf("\n");
            }
        } else if (rank_ == 0) {
            if (options_.times) {
                std::printf("PASS %s %.2f\n", name.c_str(), elapsed_s);
            } else {
                std::printf("PASS %s\n", name.c_str());
            }
        }
        std::fflush(stdout);
    }

    // The hung rank cannot be trusted to make progress, so it says its name and dies; mpirun ends the others.
    static void on_alarm(int) {
        const ssize_t written = write(STDERR_FILENO, watched_, std::strlen(watched_));
        _exit(written < 0 ? 4 : 3);
    }

    inline static char watched_[256] = "";
    Options options_;
    int rank_ = 0;
    int size_ = 0;
    int run_count_ = 0;
    int failed_count_ = 0;
};

/// main() of an ordinary program: initialise, run, finalise.
inline int run(int argc, char** argv, const std::function<void(Suite&)>& body) {
    MPI_Init(&argc, &argv);
    int result = 0;
    {
        Suite suite(argc, argv);
        body(suite);
        result = suite.finish();
    }
    MPI_Finalize();
    return result;
}

}  // namespace mpi_test
