/// How near two CPUs are, over time: virtual CPUs move about, and every latency through shared memory moves with them.
///
///   velo_bench distance                                  an hour, a reading a second: each change, and a summary
///   velo_bench distance --seconds 60 --every 100 --csv   each reading
///   velo_bench distance --until far --seconds 600        ends as soon as they are far; status 1 if they never were
///
/// A row of the CSV has the ms since the start as its size, and near or far as its place. Status 2: wrong usage.
#include <cstdio>
#include <string>
#include <thread>

#include "commands.h"
#include "measuring.h"

namespace {

struct Options {
    uint32_t seconds = 3600;
    uint32_t every_ms = 1000;
    std::string until;
    bool csv = false;
};

/// Readings of one place.
struct Place {
    const char* name;
    std::vector<double> ns{};

    void print() const {
        if (ns.empty()) {
            std::printf("%-5s no reading\n", name);
            return;
        }
        const auto [low, high] = std::ranges::minmax(ns);
        std::printf("%-5s %6zu readings, median %.0f ns (%.0f to %.0f)\n", name, ns.size(), measuring::median(ns), low,
                    high);
    }
};

}  // namespace

int bench::distance(int argc, char** argv) {
    Options options;
    take_options(argc, argv,
                 {{"--seconds", &options.seconds, {.smallest = 1, .largest = 1'000'000}},
                  {"--every", &options.every_ms, {.smallest = 1, .largest = 1'000'000}},
                  {"--until", &options.until},
                  {"--csv", &options.csv}});
    if (!options.until.empty() && options.until != "near" && options.until != "far")
        fail("--until=" + options.until + " is neither near nor far");
    const measuring::Cpus cpus = two_cpus();

    Place places[] = {{"near"}, {"far"}, {"mixed"}};
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
        Place& place = places[static_cast<size_t>(measuring::cores_of(ns, ns))];
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
