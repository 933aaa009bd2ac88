/// The cost of matching a message behind others that wait, for each kind of receive.
///
///   velo_bench matching [--depths 0,10,1000,10000,100000] [--rounds 5] [--csv]
///
/// One process, one CPU; no message moves. A message and its receive meet 1,000 times while `depth` others are in
/// the same queue, each with a tag of its own. Measures, in ns a message, the median over rounds:
///   posted, exact           a receive is posted behind the others, and its message comes
///   posted, any source      a receive is posted behind the others, all of which leave the source open
///   unexpected, exact       a message comes behind the others, and its receive is posted
///   unexpected, any source  a message comes behind the others, and a receive of any source is posted
///   drain, reverse          as many messages as the depth come, and are received from the last to the first
///   drain, any source       as many messages as the depth come, and receives of any source take them
/// --csv: rows of measuring.h, with the depth as size.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>

#include "commands.h"
#include "match/posted_queue.h"
#include "match/unexpected_queue.h"
#include "measuring.h"

namespace {

using namespace velo::match;

constexpr uint32_t kMeetings = 1000;
constexpr uint64_t kPlenty = uint64_t{1} << 40;

struct Options {
    std::vector<uint32_t> depths = {0, 10, 1000, 10000, 100000};
    uint32_t rounds = 5;
    bool csv = false;
};

Envelope message(uint32_t tag) { return {.context = 1, .source = 3, .tag = static_cast<int32_t>(tag)}; }
Envelope receive(uint32_t tag, Kind kind) { return opened(message(tag), kind); }

double ns_each(double begin, uint32_t count) { return 1e9 * (measuring::seconds() - begin) / count; }

double posted(uint32_t depth, Kind kind) {
    PostedQueue<> queue;
    std::vector<Posted> others(depth);
    for (uint32_t i = 0; i < depth; ++i) queue.post(others[i], receive(i, kind));
    Posted own;
    const double begin = measuring::seconds();
    for (uint32_t i = 0; i < kMeetings; ++i) {
        queue.post(own, receive(depth + i, kind));
        if (queue.take(message(depth + i)) != &own) bench::fail("another receive was found");
    }
    return ns_each(begin, kMeetings);
}

void arrive(UnexpectedQueue<>& queue, uint32_t tag) {
    if (queue.add(message(tag)) == kNoRecord) bench::fail("there is no memory for a record");
}

void expect(UnexpectedQueue<>& queue, uint32_t tag, Kind kind) {
    const RecordRef found = queue.find(receive(tag, kind));
    const bool right = found != kNoRecord && queue.at(found).envelope.tag == static_cast<int32_t>(tag);
    if (!right) bench::fail("another message was found");
    queue.remove(found);
}

double unexpected(uint32_t depth, Kind kind) {
    UnexpectedQueue<> queue(kPlenty);
    for (uint32_t i = 0; i < depth; ++i) arrive(queue, i);
    // The lists are made once, for all that come.
    arrive(queue, depth);
    expect(queue, depth, kind);
    const double begin = measuring::seconds();
    for (uint32_t i = 0; i < kMeetings; ++i) {
        arrive(queue, depth + i);
        expect(queue, depth + i, kind);
    }
    return ns_each(begin, kMeetings);
}

double drain(uint32_t depth, Kind kind) {
    UnexpectedQueue<> queue(kPlenty);
    double ns = 0;
    // The second time, with memory that has been used.
    for (uint32_t round = 0; round < 2; ++round) {
        const double begin = measuring::seconds();
        for (uint32_t i = 0; i < depth; ++i) arrive(queue, i);
        for (uint32_t i = depth; i-- > 0;) expect(queue, i, kind);
        ns = ns_each(begin, std::max(depth, 1u));
    }
    return ns;
}

}  // namespace

int bench::matching(int argc, char** argv) {
    Options options;
    take_options(argc, argv,
                 {{"--depths", &options.depths, {.smallest = 0, .largest = 10'000'000}},
                  {"--rounds", &options.rounds, kRounds},
                  {"--csv", &options.csv}});
    measuring::pin(measuring::choose_cpus().first);
    struct Measure {
        const char* name;
        double (*measure)(uint32_t depth, Kind kind);
        Kind kind;
    };
    constexpr Measure kMeasures[] = {
        {"posted, exact", posted, Kind::kExact},         {"posted, any source", posted, Kind::kOpenSource},
        {"unexpected, exact", unexpected, Kind::kExact}, {"unexpected, any source", unexpected, Kind::kOpenSource},
        {"drain, reverse", drain, Kind::kExact},         {"drain, any source", drain, Kind::kOpenSource},
    };
    std::map<std::pair<const Measure*, uint32_t>, std::vector<double>> values;
    for (uint32_t round = 0; round < options.rounds; ++round) {
        for (const uint32_t depth : options.depths) {
            for (const Measure& one : kMeasures) values[{&one, depth}].push_back(one.measure(depth, one.kind));
        }
    }
    if (!options.csv) std::printf("%-24s %10s %16s\n", "", "depth", "ns a message");
    for (const auto& [key, all] : values) {
        const auto& [one, depth] = key;
        const double ns = measuring::median(all);
        if (options.csv) {
            std::string measure = one->name;
            measure.erase(std::remove(measure.begin(), measure.end(), ','), measure.end());
            measuring::print(measuring::row("match", "-", measure, depth, ns));
        } else {
            std::printf("%-24s %10u %16.1f\n", one->name, depth, ns);
        }
    }
    return 0;
}
