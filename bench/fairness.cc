/// A receiver that fetches from a fast sender and from slow ones at a time: what the fast one keeps.
///
///   mpirun -np N … fairness LABEL SLOW BYTES SECONDS RATE FACTOR
///
/// Rank 0 receives. Rank 1 brings RATE bytes per microsecond, and each rank behind it the FACTORth part of that
/// (source=N, added to btl_velo_emulate=link=N). SLOW of these send, the others sleep. Every sender keeps two messages
/// under way, so that its next transfer is there when one ends. Slow senders sleep in between, so two ranks need a CPU.
/// Rank 0 prints a row of measuring.h for each sender, `rate` in MB/s: of the fast one by what was
/// complete in the last two thirds of the time, of a slow one by all that it sent.
#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "arguments.h"
#include "ranks.h"

namespace {

constexpr int kReceiver = 0;
constexpr int kFast = 1;
constexpr size_t kDepth = 2;  ///< messages of a sender under way
constexpr int kTag = 1;
constexpr int kLastTag = 2;

struct Plan {
    int slow = 0;
    int bytes = 0;
    double seconds = 0;

    [[nodiscard]] int senders() const { return 1 + slow; }
};

/// Returns which one has ended.
size_t wait_any(std::array<MPI_Request, kDepth>& requests, bool napping) {
    int which = 0;
    if (!napping) {
        MPI_Waitany(kDepth, requests.data(), &which, MPI_STATUS_IGNORE);
        return static_cast<size_t>(which);
    }
    for (int done = 0;;) {
        MPI_Testany(kDepth, requests.data(), &which, &done, MPI_STATUS_IGNORE);
        if (done != 0) return static_cast<size_t>(which);
        usleep(measuring::kNapUs);
    }
}

/// Each place's last message, after the time, says that it is the last.
void send(const Plan& plan, bool napping) {
    const std::vector<char> message(static_cast<size_t>(plan.bytes), 1);
    std::array<MPI_Request, kDepth> requests{};
    std::array<bool, kDepth> last{};
    const auto post = [&](size_t i) {
        MPI_Isend(message.data(), plan.bytes, MPI_BYTE, kReceiver, last[i] ? kLastTag : kTag, MPI_COMM_WORLD,
                  &requests[i]);
    };
    for (size_t i = 0; i < kDepth; ++i) post(i);
    const double end = measuring::seconds() + plan.seconds;
    for (size_t ended = 0; ended < kDepth;) {
        const size_t i = wait_any(requests, napping);
        if (last[i]) {
            ++ended;
            continue;
        }
        last[i] = measuring::seconds() >= end;
        post(i);
    }
}

/// Returns MB/s by sender.
std::vector<double> receive(const Plan& plan) {
    const auto senders = static_cast<size_t>(plan.senders());
    const size_t count = senders * kDepth;
    std::vector<std::vector<char>> memory(count, std::vector<char>(static_cast<size_t>(plan.bytes)));
    std::vector<MPI_Request> requests(count);
    const auto post = [&](size_t i) {
        MPI_Irecv(memory[i].data(), plan.bytes, MPI_BYTE, kFast + static_cast<int>(i / kDepth), MPI_ANY_TAG,
                  MPI_COMM_WORLD, &requests[i]);
    };
    for (size_t i = 0; i < count; ++i) post(i);
    const double begin = measuring::seconds();
    const double warm = begin + plan.seconds / 3;
    const double end = begin + plan.seconds;
    std::vector<double> got(senders), latest(senders, begin);
    double fast = 0;
    for (size_t ended = 0; ended < count;) {
        int which = 0;
        MPI_Status status{};
        MPI_Waitany(static_cast<int>(count), requests.data(), &which, &status);
        const auto i = static_cast<size_t>(which);
        const size_t sender = i / kDepth;
        latest[sender] = measuring::seconds();
        got[sender] += plan.bytes;
        if (sender == 0 && latest[0] >= warm && latest[0] < end) fast += plan.bytes;
        if (status.MPI_TAG == kLastTag) {
            ++ended;
        } else {
            post(i);
        }
    }
    std::vector<double> rates = {fast / (end - warm) / 1e6};
    for (size_t i = 1; i < senders; ++i) rates.push_back(got[i] / (latest[i] - begin) / 1e6);
    return rates;
}

/// Before MPI_Init.
void limit_source(int argc, char** argv) {
    const char* text = std::getenv("OMPI_COMM_WORLD_RANK");
    int self = 0, rate = 0, factor = 0;
    if (argc != 7 || text == nullptr) return;
    bool known = measuring::parse_number("", text, {}, self).empty();
    known = known && measuring::parse_number("", argv[5], {.smallest = 1}, rate).empty();
    known = known && measuring::parse_number("", argv[6], {.smallest = 1}, factor).empty();
    if (!known || self == kReceiver) return;
    const int source = self == kFast ? rate : std::max(rate / factor, 1);
    measuring::emulate("source=" + std::to_string(source));
}

}  // namespace

int main(int argc, char** argv) {
    limit_source(argc, argv);
    const measuring::Session session(argc, argv);
    measuring::Places given("fairness", "LABEL SLOW BYTES SECONDS RATE FACTOR", argc, argv);
    const std::string label = given.text();
    Plan plan;
    plan.slow = given.number<int>({.smallest = 0, .largest = 1024});
    plan.bytes = given.number<int>();
    plan.seconds = given.number<int>({.smallest = 1, .largest = 3600});
    const int rate = given.number<int>({.smallest = 1, .largest = 1'000'000});
    const int factor = given.number<int>();
    given.require(factor <= rate, "a slow sender brings a byte per microsecond or more: lower FACTOR");
    given.require(session.ranks >= 1 + plan.senders(), "two ranks and SLOW more are needed");
    if (!given.error().empty()) return session.refuse(given.error());
    measuring::print(measuring::line_row(session, label, session.name()));
    if (session.self == kReceiver) {
        std::string rows;
        int sender = kFast;
        for (const double value : receive(plan)) {
            rows += measuring::row(label, std::to_string(sender++) + "-0", "rate", static_cast<size_t>(plan.bytes),
                                   value);
        }
        measuring::print(rows);
    } else if (session.self <= plan.senders()) {
        send(plan, session.self != kFast);
    }
    measuring::nap_at_barrier();
    return 0;
}
