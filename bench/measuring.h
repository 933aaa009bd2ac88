/// Parts that the measuring programs share: time, medians, the two CPUs and how near they are.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace measuring {

/// The two CPUs that the measured ranks are pinned to; -1: not pinned.
struct Cpus {
    int first = -1;
    int second = -1;
};

inline double seconds() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

inline double median(std::vector<double> values) {
    std::ranges::sort(values);
    const size_t middle = values.size() / 2;
    return values.size() % 2 != 0 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

inline std::vector<std::string> split(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (!text.empty()) {
        const size_t end = std::min(text.find(separator), text.size());
        parts.emplace_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return parts;
}

/// Two allowed CPUs that are not threads of one core, if there are such.
inline Cpus choose_cpus() {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2) return {};
    std::vector<int> cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
    }
    const auto core_of = [](int cpu) {
        std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                           "/topology/thread_siblings_list");
        std::string text;
        std::getline(file, text);
        return text;
    };
    const std::string core = core_of(cpus[0]);
    for (size_t i = 1; i < cpus.size(); ++i) {
        if (core.empty() || core_of(cpus[i]) != core) return {cpus[0], cpus[i]};
    }
    return {cpus[0], cpus[1]};
}

inline void pin(int cpu) {
    if (cpu < 0) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

/// Gives the thread back, at the end, the CPUs that it had at first.
class KeptAffinity {
  public:
    KeptAffinity() : known_(sched_getaffinity(0, sizeof before_, &before_) == 0) {}
    KeptAffinity(const KeptAffinity&) = delete;
    KeptAffinity& operator=(const KeptAffinity&) = delete;
    ~KeptAffinity() {
        if (known_) sched_setaffinity(0, sizeof before_, &before_);
    }

  private:
    cpu_set_t before_;
    bool known_;
};

/// Prints lines in one piece, also beside other ranks.
inline void print(const std::string& lines) {
    std::fwrite(lines.data(), 1, lines.size(), stdout);
    std::fflush(stdout);
}

/// Nanoseconds for one cache line from one CPU to the other. The calling thread must be pinned to `first`.
inline double line_transfer_ns(const Cpus& cpus) {
    constexpr uint32_t kRoundTrips = 1000;
    constexpr int kBatches = 31;
    // Two lines' worth of alignment: adjacent lines are prefetched together.
    struct alignas(128) {
        std::atomic<uint32_t> turn{0};
    } line;
    std::thread other([&] {
        pin(cpus.second);
        for (uint32_t i = 0; i < kRoundTrips * kBatches; ++i) {
            while (line.turn.load(std::memory_order_acquire) != 2 * i + 1) {
            }
            line.turn.store(2 * i + 2, std::memory_order_release);
        }
    });
    std::vector<double> batches;
    uint32_t turn = 0;
    for (int batch = 0; batch < kBatches; ++batch) {
        const double start = seconds();
        for (uint32_t i = 0; i < kRoundTrips; ++i) {
            line.turn.store(++turn, std::memory_order_release);
            ++turn;
            while (line.turn.load(std::memory_order_acquire) != turn) {
            }
        }
        batches.push_back((seconds() - start) / (2.0 * kRoundTrips) * 1e9);
    }
    other.join();
    return median(batches);
}

/// CPUs are near below this number of ns for a cache line, and far above the other one (bench/velobench/distance.py).
inline constexpr double kNearNs = 110;
inline constexpr double kFarNs = 160;

/// Figures with near CPUs and with far ones do not compare, and those between, or while the CPUs moved, with none.
enum class Cores { kNear, kFar, kMixed };
/// By readings before and after a figure.
inline Cores cores_of(double before_ns, double after_ns) {
    if (std::max(before_ns, after_ns) < kNearNs) return Cores::kNear;
    return std::min(before_ns, after_ns) > kFarNs ? Cores::kFar : Cores::kMixed;
}
inline const char* to_string(Cores cores) {
    return cores == Cores::kNear ? "near" : cores == Cores::kFar ? "far" : "mixed";
}

/// A line of the CSV that every probe prints, and bench/velobench/rows.py reads: label,where,measure,size,value.
///   label    the caller's name of the job or the way: a transport, a mode of flow control
///   where    the ranks: a pair (0-1), all of a job (np8), the active ones of it (np16/8); or the cores (near, far)
///   measure  its name, which has a unit in the probe's comment; NAME-N in windows of N messages
///   size     bytes of a message, or what else the measure counts by; 0 without either
inline std::string row(std::string_view label, std::string_view where, std::string_view measure, size_t size,
                       double value) {
    char text[64];
    std::snprintf(text, sizeof text, ",%zu,%.9g\n", size, value);
    return std::string(label).append(",").append(where).append(",").append(measure).append(text);
}

/// The measure that stands beside all others: ns for one cache line from one CPU to the other.
inline std::string line_transfer_row(std::string_view label, std::string_view where, const Cpus& cpus) {
    return row(label, where, "line", 0, line_transfer_ns(cpus));
}

}  // namespace measuring
