// Two processes that send to each other, receive, leave MPI and end, in every interleaving of small programs: what was
// accepted is received while its reader lives, no part of a host is called after it has gone, nothing is waited for
// that cannot come, and a loss is said where a program needs what is lost, and nowhere else.
#include "velo/base/endings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>
#include <vector>

#include "tests/exhaustive/explorer.h"

namespace velo::exhaustive {
namespace {

enum class Kind : uint8_t {
    kEager,  ///< done as soon as it has arrived
    kLong,   ///< its data is with the sender until the receiver has fetched it
};

struct Program {
    std::vector<Kind> sends;
    uint8_t receives = 0;
};

struct Options {
    std::array<Program, 2> programs;
    bool failure = false;  ///< of process 1, at any time
    /// Of each guard, whether it is taken out: the exploration has to notice.
    bool forgets_unread = false;
    bool calls_gone_host = false;
    bool leaves_early = false;

    /// Each message has a receive.
    [[nodiscard]] bool agrees() const {
        return programs[0].sends.size() == programs[1].receives && programs[1].sends.size() == programs[0].receives;
    }
};

class EndingsWorld {
  public:
    enum class What : uint8_t { kSend, kArrive, kReceive, kHear, kNotice, kLeave, kCloseMatching, kEnd, kFail };
    struct Step {
        What what;
        uint8_t process;
    };
    enum class Signal : uint8_t { kDone, kLeft };
    struct Process {
        uint8_t sent = 0;
        uint8_t received = 0;
        HostState host = HostState::kPresent;
        bool ended = false;
        bool failed = false;
        bool told_left = false;
        PeerState peer = PeerState::kPresent;
        std::deque<Kind> queue;      ///< accepted, and not in memory of the receiver's
        std::deque<Kind> unread;     ///< in this process's memory
        std::deque<Signal> signals;  ///< from the other process
        uint8_t waiting = 0;         ///< long messages that were sent, and of which no end was heard
    };
    struct State {
        std::array<Process, 2> processes;
        bool lost = false;  ///< said; the job ends
        std::string wrong;
    };

    explicit EndingsWorld(Options options) : options_(std::move(options)) {}

    [[nodiscard]] State initial() const { return {}; }

    void append_steps(const State& state, std::vector<Step>& steps) const {
        if (state.lost || !state.wrong.empty()) return;
        for (uint8_t i = 0; i < 2; ++i) {
            const Process& self = state.processes[i];
            const Process& other = state.processes[1 - i];
            const Program& program = options_.programs[i];
            const auto add = [&](bool possible, What what) {
                if (possible) steps.push_back({what, i});
            };
            if (self.ended) continue;
            const bool present = self.host == HostState::kPresent;
            add(present && self.sent < program.sends.size(), What::kSend);
            add(!self.queue.empty(), What::kArrive);
            add(present && self.received < program.receives && !self.unread.empty(), What::kReceive);
            add(!self.signals.empty(), What::kHear);
            add(other.ended && !has_ended(self.peer) &&
                    (other.failed || options_.forgets_unread || (self.unread.empty() && self.signals.empty()) ||
                     (self.signals.empty() && !present)),
                What::kNotice);
            // A program that agrees with the other one has received all before it ends MPI.
            const bool all_received = self.received == program.receives || !options_.agrees();
            add(present && self.sent == program.sends.size() && (all_received || has_ended(self.peer)), What::kLeave);
            add(self.host == HostState::kLeaving && (options_.leaves_early || !matching_owes(self)),
                What::kCloseMatching);
            add(self.host == HostState::kGone && (options_.leaves_early || self.queue.empty()), What::kEnd);
            add(options_.failure && i == 1, What::kFail);
        }
    }

    [[nodiscard]] uint32_t apply(State& state, Step step) const {
        Process& self = state.processes[step.process];
        Process& other = state.processes[1 - step.process];
        switch (step.what) {
            case What::kSend: send(state, self, options_.programs[step.process].sends[self.sent++]); break;
            case What::kArrive: arrive(state, self, other); break;
            case What::kReceive: receive(state, self, other); break;
            case What::kHear: hear(state, self); break;
            case What::kNotice:
                self.peer = after(self.peer, other.failed ? PeerEvent::kFailed : PeerEvent::kClosed);
                if (other.failed || options_.forgets_unread) self.unread.clear();
                settle(state, self);
                break;
            case What::kLeave:
                self.host = HostState::kLeaving;
                if (asks(self)) tell_left(self, other);
                settle(state, self);
                break;
            case What::kCloseMatching: self.host = HostState::kGone; break;
            case What::kEnd: self.ended = true; break;
            case What::kFail: self.ended = self.failed = true; break;
        }
        return 0;
    }

    /// All end; and where the programs agree and none fails, all is received.
    [[nodiscard]] uint32_t goals() const { return 3; }
    [[nodiscard]] uint32_t goals_met(const State& state) const {
        const auto& [a, b] = state.processes;
        const bool ended = (a.ended && b.ended) || state.lost;
        const bool received =
            !options_.agrees() || options_.failure ||
            (a.received == options_.programs[0].receives && b.received == options_.programs[1].receives);
        return (ended ? 1u : 0u) | (received ? 2u : 0u);
    }
    [[nodiscard]] std::string violation(const State& state) const {
        if (!state.wrong.empty()) return state.wrong;
        if (state.lost && (options_.agrees() || options_.failure)) return "a loss is said, and nothing is lost";
        return "";
    }
    void append_key(const State& state, Key& key) const {
        for (const Process& process : state.processes) {
            const auto add = [&key](auto value) { key.push_back(static_cast<uint8_t>(value)); };
            add(process.sent), add(process.received), add(process.host), add(process.peer), add(process.waiting);
            add(process.ended | process.failed << 1 | process.told_left << 2 | state.lost << 3);
            const auto add_all = [&](const auto& all) {
                add(all.size());
                for (const auto one : all) add(one);
            };
            add_all(process.queue), add_all(process.unread), add_all(process.signals);
        }
        key.push_back(state.wrong.empty());
    }
    [[nodiscard]] std::string describe(Step step) const {
        constexpr std::array kNames = {"sends",  "has a message arrive", "receives",        "hears",  "notices the end",
                                       "leaves", "closes its matching",  "ends in good order", "fails"};
        return "process " + std::to_string(step.process) + " " + kNames[static_cast<size_t>(step.what)];
    }
    [[nodiscard]] uint32_t step_class(Step step) const { return static_cast<uint32_t>(step.what); }

  private:
    /// Something of the other process waits here for its receive.
    [[nodiscard]] static bool asks(const Process& self) {
        return std::ranges::find(self.unread, Kind::kLong) != self.unread.end();
    }
    static void tell_left(Process& self, Process& other) {
        if (self.told_left || other.ended) return;
        self.told_left = true;
        other.signals.push_back(Signal::kLeft);
    }
    [[nodiscard]] static bool matching_owes(const Process& self) {
        return (self.waiting != 0 && fate(Owed::kReceive, self.host, self.peer) == Fate::kWaits) ||
               (!self.queue.empty() && fate(Owed::kArrival, self.host, self.peer) == Fate::kWaits);
    }
    void decide(State& state, Fate fate) const {
        if (fate == Fate::kLost) state.lost = true;
    }
    void send(State& state, Process& self, Kind kind) const {
        if (kind == Kind::kLong) ++self.waiting;
        self.queue.push_back(kind);
        settle(state, self);
    }
    void arrive(State& state, Process& self, Process& other) const {
        const Kind kind = self.queue.front();
        self.queue.pop_front();
        if (other.ended) {
            // The sending fails before the end is noticed.
            const PeerState peer = after(self.peer, other.failed ? PeerEvent::kFailed : PeerEvent::kClosed);
            return decide(state, fate(Owed::kArrival, self.host, peer));
        }
        if (other.host == HostState::kPresent) return other.unread.push_back(kind);
        if (kind == Kind::kLong) tell_left(other, self);
    }
    void receive(State& state, Process& self, Process& other) const {
        const Kind kind = self.unread.front();
        if (kind == Kind::kLong && other.ended) {
            const PeerState peer = after(self.peer, other.failed ? PeerEvent::kFailed : PeerEvent::kClosed);
            const Fate decided = fate(Owed::kSource, self.host, peer);
            if (decided != Fate::kLost) self.unread.pop_front();
            return decide(state, decided);
        }
        self.unread.pop_front();
        ++self.received;
        if (kind == Kind::kLong) other.signals.push_back(Signal::kDone);
    }
    void hear(State& state, Process& self) const {
        const Signal signal = self.signals.front();
        self.signals.pop_front();
        if (signal == Signal::kLeft) {
            self.peer = after(self.peer, PeerEvent::kLeft);
            return settle(state, self);
        }
        if (self.host == HostState::kGone) {
            if (options_.calls_gone_host) state.wrong = "a part of the host is called that has gone";
            return;
        }
        if (self.waiting != 0) --self.waiting;
    }
    /// Sends that the other process will never receive end.
    void settle(State& state, Process& self) const {
        if (self.waiting == 0) return;
        const Fate decided = fate(Owed::kReceive, self.host, self.peer);
        decide(state, decided);
        if (decided == Fate::kVoid && self.host != HostState::kPresent) self.waiting = 0;
    }

    Options options_;
};

Verdict explore(const Options& options) {
    const EndingsWorld world(options);
    return Explorer<EndingsWorld>(world, 4'000'000).run();
}

std::vector<std::vector<Kind>> lists(size_t longest) {
    std::vector<std::vector<Kind>> all = {{}};
    for (size_t from = 0, length = 1; length <= longest; ++length) {
        const size_t end = all.size();
        for (; from < end; ++from) {
            for (const Kind kind : {Kind::kEager, Kind::kLong}) {
                all.push_back(all[from]);
                all.back().push_back(kind);
            }
        }
    }
    return all;
}

TEST(Endings, programs_that_agree_lose_nothing_and_end) {
    for (const auto& there : lists(3)) {
        for (const auto& back : lists(2)) {
            const Options options = {.programs = {{{there, static_cast<uint8_t>(back.size())},
                                                   {back, static_cast<uint8_t>(there.size())}}}};
            const Verdict verdict = explore(options);
            ASSERT_TRUE(verdict.holds()) << there.size() << " there, " << back.size() << " back: " << verdict.what;
        }
    }
}

TEST(Endings, programs_that_disagree_end) {
    for (const auto& there : lists(2)) {
        for (const auto& back : lists(2)) {
            for (uint8_t receives = 0; receives <= there.size(); ++receives) {
                const Options options = {.programs = {{{there, 0}, {back, receives}}}};
                const Verdict verdict = explore(options);
                ASSERT_TRUE(verdict.holds()) << verdict.what;
            }
        }
    }
}

TEST(Endings, a_process_that_fails_keeps_no_other_one_from_ending) {
    for (const auto& there : lists(2)) {
        for (const auto& back : lists(2)) {
            const Options options = {.programs = {{{there, static_cast<uint8_t>(back.size())},
                                                   {back, static_cast<uint8_t>(there.size())}}},
                                     .failure = true};
            const Verdict verdict = explore(options);
            ASSERT_TRUE(verdict.holds()) << verdict.what;
        }
    }
}

/// A message that waits for a receiver which will never post a receive, while the sender is in the program.
TEST(Endings, a_loss_is_said_to_a_program_that_needs_it) {
    EXPECT_EQ(fate(Owed::kReceive, HostState::kPresent, PeerState::kLeft), Fate::kLost);
    EXPECT_EQ(fate(Owed::kReceive, HostState::kLeaving, PeerState::kLeft), Fate::kVoid);
    EXPECT_EQ(fate(Owed::kArrival, HostState::kPresent, PeerState::kLeft), Fate::kWaits);
    EXPECT_EQ(fate(Owed::kArrival, HostState::kPresent, PeerState::kClosed), Fate::kLost);
    EXPECT_EQ(fate(Owed::kSource, HostState::kPresent, PeerState::kClosed), Fate::kLost);
    EXPECT_EQ(fate(Owed::kSource, HostState::kGone, PeerState::kClosed), Fate::kVoid);
    EXPECT_EQ(after(PeerState::kClosed, PeerEvent::kFailed), PeerState::kClosed);
    EXPECT_EQ(after(PeerState::kFailed, PeerEvent::kLeft), PeerState::kFailed);
}

/// Each guard that is taken out is noticed.
TEST(Endings, mistakes_are_found) {
    const std::array<Program, 2> programs = {{{{Kind::kLong, Kind::kEager}, 1}, {{Kind::kLong}, 2}}};
    EXPECT_TRUE(explore({.programs = programs}).holds());
    EXPECT_FALSE(explore({.programs = programs, .forgets_unread = true}).holds());
    EXPECT_FALSE(explore({.programs = programs, .leaves_early = true}).holds());
    EXPECT_FALSE(explore({.programs = programs, .calls_gone_host = true, .leaves_early = true}).holds());
}

}  // namespace
}  // namespace velo::exhaustive
