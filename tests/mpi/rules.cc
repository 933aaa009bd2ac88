// Matching under random programs: named and open sources and tags on several communicators, truncation,
// cancels, probes and matched probes in one stream of calls. Each rank knows all that is sent to it, and MPI's
// rules judge what it has got (tests/match_rules.h). The seed of a trial stands in the line of its failure.
#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "mpi_test.h"
#include "tests/match_rules.h"

namespace {

using mpi_test::Check;
using mpi_test::filled;
using mpi_test::first_difference;
using mpi_test::GuardedBuffer;
using mpi_test::Message;
using mpi_test::mix;
using mpi_test::Suite;
using velo::test::MatchRules;

constexpr int kComms = 3;
constexpr int kTags = 3;

/// One message of a rank in a trial. Every rank knows the messages of all, in their order. Those of two
/// ranks, one communicator and one tag differ in length.
struct Planned {
    int destination;
    uint32_t comm;
    int tag;
    std::size_t bytes;
    bool synchronous;
};

/// `to_self`: also to itself.
std::vector<Planned> plan_of(std::uint64_t trial, int source, int size, int messages, bool to_self) {
    std::mt19937_64 random(mix(trial ^ mix(static_cast<std::uint64_t>(source))));
    const auto below = [&random](std::uint64_t end) { return random() % end; };
    std::vector<Planned> plan;
    for (int i = 0; i < messages; ++i) {
        Planned next = {static_cast<int>(below(static_cast<std::uint64_t>(size))),
                        static_cast<uint32_t>(below(kComms)), static_cast<int>(below(kTags)), 0,
                        below(4) == 0};
        switch (below(10)) {
            case 0: next.bytes = 0; break;
            case 1: next.bytes = 17000 + below(20000); break;
            case 2: next.bytes = 66000 + below(60000); break;
            case 3: next.bytes = 2000 + below(200); break;
            case 4: next.bytes = 200 + below(300); break;
            default: next.bytes = below(60); break;
        }
        const auto alike = [&next](const Planned& other) {
            return other.destination == next.destination && other.comm == next.comm &&
                   other.tag == next.tag && other.bytes == next.bytes;
        };
        if (next.destination == source && !to_self) next.destination = (source + 1) % size;
        while (std::any_of(plan.begin(), plan.end(), alike)) ++next.bytes;
        plan.push_back(next);
    }
    return plan;
}

/// One rank's calls in one trial.
class Trial {
  public:
    Trial(Check& check, std::uint64_t seed, bool truncates)
        : check_(check),
          seed_(seed),
          truncates_(truncates),
          random_(mix(seed ^ (static_cast<std::uint64_t>(check.rank) << 32))) {
        const int messages = check.quick ? 60 : 100;
        for (MPI_Comm& comm : comms_) {
            MPI_Comm_dup(check.comm, &comm);
            MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        }
        for (int source = 0; source < check.size; ++source) {
            // Of a message to oneself that is too long, ob1 and btl/self write behind the buffer (requests.cc).
            const std::vector<Planned> plan = plan_of(seed, source, check.size, messages, !truncates);
            if (source == check.rank) plan_ = plan;
            for (const Planned& next : plan) {
                if (next.destination != check.rank) continue;
                rules_.sent(next.comm, source, next.tag, next.bytes, 0);
                coming_.push_back({source, next});
            }
        }
    }

    void run() {
        while (sends_.size() < plan_.size()) {
            ++now_;
            switch (below(12)) {
                case 0:
                case 1:
                case 2:
                case 3: send(); break;
                case 4:
                case 5:
                case 6: receive(pattern()); break;
                case 7: cancel(); break;
                case 8: probe(); break;
                case 9: take(pattern()); break;
                case 10: receive_taken(); break;
                default: test(); break;
            }
        }
        finish();
        for (const std::string& fault : rules_.faults()) fail(fault);
        for (MPI_Comm& comm : comms_) MPI_Comm_free(&comm);
    }

  private:
    struct Send {
        MPI_Request request;
        std::vector<std::byte> data;
    };
    struct Receive {
        MPI_Request request;
        int number;  ///< in the rules
        MatchRules::Pattern pattern;
        std::size_t room;
        int stride;  ///< of its bytes
        GuardedBuffer buffer;
        bool open = true;
    };
    struct Taken {
        MPI_Message message;
        int number;
        MatchRules::Pattern pattern;
    };
    struct Coming {
        int source;
        Planned message;
        bool received = false;
    };
    static constexpr std::size_t kRoom = 140000;

    void fail(const std::string& text) {
        check_.fail("trial seed %llu: %s", static_cast<unsigned long long>(seed_), text.c_str());
    }
    std::uint64_t below(std::uint64_t end) { return random_() % end; }
    MatchRules::Pattern pattern() {
        return {static_cast<uint32_t>(below(kComms)),
                below(2) == 0 ? MatchRules::kAny
                              : static_cast<int>(below(static_cast<std::uint64_t>(check_.size))),
                below(3) == 0 ? MatchRules::kAny : static_cast<int>(below(kTags))};
    }
    static int source_of(const MatchRules::Pattern& pattern) {
        return pattern.source < 0 ? MPI_ANY_SOURCE : pattern.source;
    }
    static int tag_of(const MatchRules::Pattern& pattern) {
        return pattern.tag < 0 ? MPI_ANY_TAG : pattern.tag;
    }
    /// The content follows from these; communicator and tag are part of the iteration.
    static Message content(int source, const Planned& message) {
        return {source, message.destination, message.bytes,
                message.comm * std::uint64_t{kTags} + static_cast<std::uint64_t>(message.tag)};
    }

    void send() {
        const Planned& next = plan_[sends_.size()];
        Send& send = sends_.emplace_back();
        send.data = filled(content(check_.rank, next));
        const auto isend = next.synchronous ? MPI_Issend : MPI_Isend;
        isend(send.data.data(), static_cast<int>(next.bytes), MPI_BYTE, next.destination, next.tag,
              comms_[next.comm], &send.request);
    }

    std::size_t room() { return truncates_ && below(3) == 0 ? 8 + below(3000) : kRoom; }
    Receive& add(const MatchRules::Pattern& pattern, int number) {
        const std::size_t room = this->room();
        const int stride = below(4) == 0 ? 2 : 1;
        return receives_.emplace_back(Receive{MPI_REQUEST_NULL, number, pattern, room, stride,
                                              GuardedBuffer(room * static_cast<std::size_t>(stride))});
    }
    /// Bytes of which every second one is received.
    MPI_Datatype type_of(const Receive& receive) {
        if (receive.stride == 1) return MPI_BYTE;
        if (gapped_ == MPI_DATATYPE_NULL) {
            MPI_Type_create_resized(MPI_BYTE, 0, 2, &gapped_);
            MPI_Type_commit(&gapped_);
        }
        return gapped_;
    }
    void receive(const MatchRules::Pattern& pattern) {
        Receive& receive = add(pattern, rules_.posted(pattern, now_));
        MPI_Irecv(receive.buffer.data(), static_cast<int>(receive.room), type_of(receive), source_of(pattern),
                  tag_of(pattern), comms_[pattern.context], &receive.request);
    }
    void cancel() {
        if (Receive* const receive = some_open()) cancel(*receive);
    }
    bool cancel(Receive& receive) {
        MPI_Status status;
        int cancelled = 0;
        MPI_Cancel(&receive.request);
        const std::uint64_t then = now_++;
        MPI_Wait(&receive.request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        if (!cancelled) {
            done(receive, status);
            return false;
        }
        receive.open = false;
        rules_.cancelled(receive.number, then);
        if (receive.buffer.first_overrun(0, PTRDIFF_MIN) != PTRDIFF_MIN)
            fail("a receive that was cancelled is written to");
        return true;
    }
    void test() {
        if (Receive* const receive = some_open()) test(*receive);
    }
    bool test(Receive& receive) {
        MPI_Status status;
        int flag = 0;
        MPI_Test(&receive.request, &flag, &status);
        if (flag) done(receive, status);
        return flag != 0;
    }
    Receive* some_open() {
        if (receives_.empty()) return nullptr;
        Receive& receive = receives_[below(receives_.size())];
        return receive.open ? &receive : nullptr;
    }
    void probe() {
        const MatchRules::Pattern pattern = this->pattern();
        MPI_Status status;
        int flag = 0;
        MPI_Iprobe(source_of(pattern), tag_of(pattern), comms_[pattern.context], &flag, &status);
        if (!flag) return;
        rules_.probed(pattern, {status.MPI_SOURCE, status.MPI_TAG, bytes_of(status)}, now_);
        if (below(2) == 0) receive({pattern.context, status.MPI_SOURCE, status.MPI_TAG});
    }
    bool take(const MatchRules::Pattern& pattern) {
        MPI_Status status;
        MPI_Message message;
        int flag = 0;
        MPI_Improbe(source_of(pattern), tag_of(pattern), comms_[pattern.context], &flag, &message, &status);
        if (!flag) return false;
        const int number = rules_.posted(pattern, now_);
        taken_.push_back({message, number, pattern});
        got(number, pattern, {status.MPI_SOURCE, status.MPI_TAG, bytes_of(status)});
        return true;
    }
    void receive_taken() {
        if (taken_.empty()) return;
        const std::size_t at = below(taken_.size());
        Taken taken = taken_[at];
        taken_.erase(taken_.begin() + static_cast<std::ptrdiff_t>(at));
        Receive& receive = add(taken.pattern, taken.number);
        MPI_Imrecv(receive.buffer.data(), static_cast<int>(receive.room), type_of(receive), &taken.message,
                   &receive.request);
        // It has matched, and no cancel changes that.
        if (below(3) == 0) MPI_Cancel(&receive.request);
    }

    static std::uint64_t bytes_of(const MPI_Status& status) {
        int count = 0;
        MPI_Get_count(&status, MPI_BYTE, &count);
        return static_cast<std::uint64_t>(count);
    }
    void got(int number, const MatchRules::Pattern& pattern, const MatchRules::Found& found) {
        if (rules_.got(number, found, now_) < 0) return;
        for (Coming& coming : coming_) {
            const Planned& message = coming.message;
            if (coming.source == found.source && message.comm == pattern.context &&
                message.tag == found.tag && message.bytes == found.bytes) {
                coming.received = true;
                of_[number] = &coming;
            }
        }
    }
    /// Of one that truncates, the status does not tell the length, and the data names the message.
    void done(Receive& receive, const MPI_Status& status) {
        receive.open = false;
        GuardedBuffer dense(receive.room);
        const auto stride = static_cast<std::size_t>(receive.stride);
        for (std::size_t i = 0; i < receive.room; ++i) dense.data()[i] = receive.buffer.data()[i * stride];
        if (of_.find(receive.number) == of_.end()) {
            std::uint64_t bytes = bytes_of(status);
            for (const Coming& coming : coming_) {
                const Planned& message = coming.message;
                if (coming.source != status.MPI_SOURCE || message.comm != receive.pattern.context ||
                    message.tag != status.MPI_TAG || coming.received || message.bytes <= receive.room)
                    continue;
                const Message from = content(coming.source, message);
                if (first_difference(dense.data(), from, receive.room) == receive.room) bytes = message.bytes;
            }
            got(receive.number, receive.pattern, {status.MPI_SOURCE, status.MPI_TAG, bytes});
        }
        const auto of = of_.find(receive.number);
        if (of == of_.end()) return;
        const Message message = content(of->second->source, of->second->message);
        const std::size_t here = std::min(message.bytes, receive.room);
        if (first_difference(dense.data(), message, here) != here) fail("other data");
        for (std::size_t i = here; i < receive.room; ++i) {
            if (dense.data()[i] != GuardedBuffer::kPoison) return fail("written behind the message");
        }
        if (receive.buffer.first_overrun(receive.room * stride, PTRDIFF_MIN) != PTRDIFF_MIN)
            fail("written behind the buffer");
        receive.buffer = GuardedBuffer(0);
    }

    /// Until all that was sent is here; what waits then is cancelled.
    void finish() {
        const auto open = [](const Receive& receive) { return receive.open; };
        while (rules_.unreceived() != 0 || !taken_.empty()) {
            ++now_;
            if (below(8) == 0) cancel();
            take({static_cast<uint32_t>(below(kComms)), MatchRules::kAny, MatchRules::kAny});
            receive_taken();
            for (Receive& receive : receives_) {
                if (receive.open) test(receive);
            }
        }
        for (Send& send : sends_) MPI_Wait(&send.request, MPI_STATUS_IGNORE);
        MPI_Barrier(check_.comm);
        for (Receive& receive : receives_) {
            if (!receive.open) continue;
            if (of_.find(receive.number) != of_.end()) {
                MPI_Status status;
                MPI_Wait(&receive.request, &status);
                done(receive, status);
            } else if (!cancel(receive)) {
                fail("a receive has got a message behind the last one");
            }
        }
        if (std::any_of(receives_.begin(), receives_.end(), open)) fail("a receive is open");
        if (gapped_ != MPI_DATATYPE_NULL) MPI_Type_free(&gapped_);
    }

    Check& check_;
    std::uint64_t seed_;
    bool truncates_;
    std::mt19937_64 random_;
    std::array<MPI_Comm, kComms> comms_;
    MPI_Datatype gapped_ = MPI_DATATYPE_NULL;
    std::vector<Planned> plan_;
    std::vector<Coming> coming_;
    std::deque<Send> sends_;
    std::deque<Receive> receives_;
    std::vector<Taken> taken_;
    std::map<int, Coming*> of_;  ///< the message of a receive, once that is known
    MatchRules rules_;
    std::uint64_t now_ = 0;
};

void trials(Check& check, bool truncates) {
    const int count = check.quick ? 3 : 6;
    for (int i = 0; i < count; ++i)
        Trial(check, mix(check.seed + static_cast<std::uint64_t>(i)), truncates).run();
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        suite.check("random_calls", [](Check& check) { trials(check, false); });
        suite.check("random_calls_that_truncate_exact", [](Check& check) { trials(check, true); });
    });
}
