/// How near two CPUs are, over time: virtual CPUs move about, and every latency through shared memory moves with them.
///
///   distance                                  an hour, a reading a second: each change, and a summary
///   distance --seconds 60 --every 100 --csv   each reading
///   distance --until far --seconds 600        ends as soon as they are far; status 1 if they never were
///
/// A row of the CSV has the ms since the start as its size, and near or far as its place: near is a transfer of a cache
/// line below 110 ns, as in bench/run compare.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

#include "arguments.h"
#include "measuring.h"

namespace {

/// bench/velobench/compare_tables.py has the same number.
constexpr double kNearNs = 110;

struct Options {
    uint32_t seconds = 3600;
    uint32_t every_ms = 1000;
    std::string until;
    bool csv = false;
};

[[noreturn]] void fail(const std::string& why) {
    std::fprintf(stderr, "distance: %s\n", why.c_str());
    std::exit(2);
}

Options parse(int argc, char** argv) {
    Options options;
    const std::string error = measuring::parse_options(
        argc, argv, "distance [--seconds N] [--every MS] [--until near|far] [--csv]", &options.csv,
        [&](std::string_view name, std::string_view value) -> std::string {
            if (name == "--seconds")
                return measuring::parse_number(name, value, {.smallest = 1, .largest = 1'000'000},
                                               options.seconds);
            if (name == "--every")
                return measuring::parse_number(name, value, {.smallest = 1, .largest = 1'000'000},
                                               options.every_ms);
            if (name == "--until") {
                options.until = value;
                if (value != "near" && value != "far")
                    return "--until=" + std::string(value) + " is neither near nor far";
                return {};
            }
            return measuring::unknown_option(name);
        });
    if (!error.empty()) fail(error);
    return options;
}

/// Readings of one place.
struct Place {
    const char* name;
    std::vector<double> ns{};

    void print() const {
        if (ns.empty()) {
            std::printf("%-4s no reading\n", name);
            return;
        }
        const auto [low, high] = std::ranges::minmax(ns);
        std::printf("%-4s %6zu readings, median %.0f ns (%.0f to %.0f)\n", name, ns.size(), measuring::median(ns), low,
                    high);
    }
};

}  // namespace

int main(int argc, char** argv) {
    const Options options = parse(argc, argv);
    const measuring::Cpus cpus = measuring::choose_cpus();
    if (cpus.second < 0) fail("there is one CPU only, so there is no distance");
    measuring::pin(cpus.first);

    Place places[] = {{"near"}, {"far"}};
    const Place* last = nullptr;
    uint32_t changes = 0;
    bool found = false;
    const double start = measuring::seconds();
    for (uint64_t reading = 0; !found; ++reading) {
        const double due = static_cast<double>(reading * options.every_ms) / 1e3;
        const double late = start + due - measuring::seconds();
        if (late > 0) std::this_thread::sleep_for(std::chrono::duration<double>(late));
        const double at = measuring::seconds() - start;
        if (at >= options.seconds && reading != 0) break;
        const double ns = measuring::line_transfer_ns(cpus);
        Place& place = places[ns < kNearNs ? 0 : 1];
        place.ns.push_back(ns);
        if (options.csv) {
            measuring::print(measuring::row("distance", place.name, "line", static_cast<size_t>(at * 1e3), ns));
        } else if (last != &place) {
            measuring::print(std::to_string(static_cast<uint64_t>(at)) + " s: " + place.name + ", " +
                             std::to_string(static_cast<uint64_t>(ns)) + " ns\n");
        }
        if (last != nullptr && last != &place) ++changes;
        last = &place;
        found = options.until == place.name;
    }
    if (!options.csv) {
        std::printf("CPUs %d and %d, %.0f s, %u changes\n", cpus.first, cpus.second, measuring::seconds() - start,
                    changes);
        for (const Place& place : places) place.print();
    }
    return options.until.empty() || found ? 0 : 1;
}
