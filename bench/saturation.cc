/// Senders that keep a message under way to every receiver, one of which may be slow: what the others get.
///
///   mpirun -np N … saturation LABEL SENDERS BYTES SECONDS SINK
///
/// Ranks below SENDERS send, the others receive. The first receiver takes SINK bytes per microsecond (0: no limit),
/// which is added to btl_velo_emulate=link=N. Rank 0 prints, as rows of measuring.h, `slow`, what that
/// receiver got, and `others`, the median of the rest, in MB/s: of what was complete in the last two thirds of the
/// time.
#include <cstdio>
#include <vector>

#include "arguments.h"
#include "ranks.h"

namespace {

constexpr int kTag = 1;
constexpr int kLastTag = 2;

struct Plan {
    int senders = 0;
    int bytes = 0;
    double seconds = 0;
};

/// A message to each receiver is under way until the time is over; the last one says so.
void send(const Plan& plan, int ranks) {
    const auto receivers = static_cast<size_t>(ranks - plan.senders);
    const std::vector<char> message(static_cast<size_t>(plan.bytes), 1);
    std::vector<MPI_Request> requests(receivers);
    std::vector<bool> last(receivers);
    const auto post = [&](size_t i) {
        MPI_Isend(message.data(), plan.bytes, MPI_BYTE, plan.senders + static_cast<int>(i), last[i] ? kLastTag : kTag,
                  MPI_COMM_WORLD, &requests[i]);
    };
    for (size_t i = 0; i < receivers; ++i) post(i);
    const double end = measuring::seconds() + plan.seconds;
    for (size_t ended = 0; ended < receivers;) {
        int which = 0;
        MPI_Waitany(ranks - plan.senders, requests.data(), &which, MPI_STATUS_IGNORE);
        const auto i = static_cast<size_t>(which);
        if (last[i]) {
            ++ended;
            continue;
        }
        last[i] = measuring::seconds() >= end;
        post(i);
    }
}

/// Returns MB/s.
double receive(const Plan& plan) {
    const auto senders = static_cast<size_t>(plan.senders);
    std::vector<std::vector<char>> memory(senders, std::vector<char>(static_cast<size_t>(plan.bytes)));
    std::vector<MPI_Request> requests(senders);
    const auto post = [&](size_t i) {
        MPI_Irecv(memory[i].data(), plan.bytes, MPI_BYTE, static_cast<int>(i), MPI_ANY_TAG, MPI_COMM_WORLD,
                  &requests[i]);
    };
    for (size_t i = 0; i < senders; ++i) post(i);
    const double begin = measuring::seconds();
    const double warm = begin + plan.seconds / 3;
    const double end = begin + plan.seconds;
    double got = 0;
    for (size_t ended = 0; ended < senders;) {
        int which = 0;
        MPI_Status status{};
        MPI_Waitany(plan.senders, requests.data(), &which, &status);
        const double now = measuring::seconds();
        if (now >= warm && now < end) got += plan.bytes;
        if (status.MPI_TAG == kLastTag) {
            ++ended;
        } else {
            post(static_cast<size_t>(which));
        }
    }
    return got / (end - warm) / 1e6;
}

/// Before MPI_Init.
void limit_first_receiver(int argc, char** argv) {
    const char* self = std::getenv("OMPI_COMM_WORLD_RANK");
    if (argc == 6 && self != nullptr && std::string_view(self) == argv[2]) {
        measuring::emulate("sink=" + std::string(argv[5]));
    }
}

}  // namespace

int main(int argc, char** argv) {
    limit_first_receiver(argc, argv);
    const measuring::Session session(argc, argv);
    measuring::Places given("saturation", "LABEL SENDERS BYTES SECONDS SINK", argc, argv);
    const std::string label = given.text();
    Plan plan;
    plan.senders = given.number<int>();
    plan.bytes = given.number<int>();
    plan.seconds = given.number<int>({.smallest = 1, .largest = 3600});
    (void)given.number<int>({.smallest = 0, .largest = 1'000'000});
    given.require(session.ranks >= plan.senders + 2, "two receivers or more are needed");
    if (!given.error().empty()) return session.refuse(given.error());
    measuring::print(measuring::line_row(session, label, session.name()));
    double rate = 0;
    if (session.self < plan.senders) {
        send(plan, session.ranks);
    } else {
        rate = receive(plan);
    }
    std::vector<double> rates(static_cast<size_t>(session.ranks));
    MPI_Gather(&rate, 1, MPI_DOUBLE, rates.data(), 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (session.self != 0) return 0;
    const auto row = [&](const char* measure, double value) {
        return measuring::row(label, session.name(), measure, static_cast<size_t>(plan.bytes),
                              value);
    };
    const auto first = rates.begin() + plan.senders;
    measuring::print(row("slow", *first) + row("others", measuring::median({first + 1, rates.end()})));
    return 0;
}
