// Contact packets between processes that share no counter: each is delivered once and in order, and no more than the
// contact slots are in the mailbox, in every interleaving of small cases, senders that die and slots that are given
// back because a called sender is slow included.
#include "velo/ofi/contact_gate.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "tests/exhaustive/explorer.h"

namespace velo::exhaustive {
namespace {

using ofi::ContactGate;
using ofi::ContactSender;

constexpr size_t kSendersMax = 3;

struct Options {
    size_t senders = 2;
    uint32_t slots = 1;
    uint8_t packets = 2;    ///< of each sender
    bool credited = false;  ///< each contact packet is followed by one that has a credit
    bool expiry = false;
    bool death = false;  ///< of sender 0, at any time
};

/// A network keeps the order of each pair's messages. A contact packet's number is even where credited ones are odd.
class GateWorld {
  public:
    enum class Kind : uint8_t { kSend, kResend, kDeliver, kSignal, kHear, kRead, kExpire, kDie };
    struct Step {
        Kind kind;
        uint8_t sender;
    };
    enum Signal : uint8_t { kAdmitted = 1, kCalled = 2 };

    struct Sender {
        uint8_t next = 0;  ///< packet to send
        uint8_t kept = 0;  ///< contact packet that was not answered
        ContactSender contact;
        std::deque<uint8_t> packets;  ///< on their way
        std::deque<uint8_t> signals;  ///< on their way back
        uint8_t due = 0;              ///< what the receiver has to say
        uint8_t expected = 0;
        uint8_t read = 0;
        bool dead = false;
    };
    struct State {
        std::array<Sender, kSendersMax> senders;
        ContactGate gate{0};
        std::deque<std::array<uint8_t, 2>> mailbox;  ///< sender and number
        std::string wrong;
    };

    explicit GateWorld(const Options& options) : options_(options) {}

    [[nodiscard]] State initial() const {
        State state;
        state.gate = ContactGate(options_.slots);
        state.gate.know(static_cast<DeviceAddr>(options_.senders - 1));
        return state;
    }

    void append_steps(const State& state, std::vector<Step>& steps) const {
        for (uint8_t i = 0; i < options_.senders; ++i) {
            const Sender& sender = state.senders[i];
            const auto add = [&](bool possible, Kind kind) {
                if (possible) steps.push_back({kind, i});
            };
            if (sender.dead) continue;
            add(sender.next < total() && !sender.contact.blocks(), Kind::kSend);
            add(sender.contact.to_resend(), Kind::kResend);
            add(!sender.packets.empty(), Kind::kDeliver);
            add(sender.due != 0, Kind::kSignal);
            add(!sender.signals.empty(), Kind::kHear);
            add(options_.death && i == 0, Kind::kDie);
        }
        if (!state.mailbox.empty()) steps.push_back({Kind::kRead, 0});
        if (options_.expiry && state.gate.set_aside() != 0) steps.push_back({Kind::kExpire, 0});
    }

    uint32_t apply(State& state, Step step) const {
        Sender& sender = state.senders[step.sender];
        switch (step.kind) {
            case Kind::kSend:
                if (is_contact(sender.next)) {
                    sender.kept = sender.next;
                    sender.contact.sent();
                }
                sender.packets.push_back(sender.next++);
                break;
            case Kind::kResend:
                sender.packets.push_back(sender.kept);
                sender.contact.sent();
                break;
            case Kind::kDeliver: deliver(state, step.sender); break;
            case Kind::kSignal:
                sender.signals.push_back(sender.due);
                sender.due = 0;
                break;
            case Kind::kHear:
                if ((sender.signals.front() & kAdmitted) != 0) sender.contact.admitted();
                if ((sender.signals.front() & kCalled) != 0) sender.contact.called();
                sender.signals.pop_front();
                break;
            case Kind::kRead: read(state); break;
            case Kind::kExpire:
                state.gate.expire(kExpiresNs);
                call(state);
                break;
            case Kind::kDie:
                sender.dead = true;
                state.gate.peer_died(DeviceAddr(step.sender));
                call(state);
                break;
        }
        return 0;
    }

    static constexpr uint32_t kAllDelivered = 1;
    [[nodiscard]] uint32_t goals() const { return kAllDelivered; }
    [[nodiscard]] uint32_t goals_met(const State& state) const {
        if (!state.mailbox.empty() || state.gate.taken() != 0) return 0;
        for (size_t i = 0; i < options_.senders; ++i) {
            const Sender& sender = state.senders[i];
            if (!sender.dead && (sender.read != total() || sender.contact.blocks())) return 0;
        }
        return kAllDelivered;
    }
    [[nodiscard]] std::string violation(const State& state) const {
        if (!state.wrong.empty()) return state.wrong;
        uint32_t contacts = 0;
        for (const auto& packet : state.mailbox) contacts += is_contact(packet[1]);
        if (contacts != state.gate.taken()) return "the gate counts other packets than there are";
        if (contacts + state.gate.set_aside() > options_.slots) return "more contact packets than slots";
        return "";
    }
    void append_key(const State& state, Key& key) const {
        const auto add_all = [&key](const auto& numbers) {
            key.push_back(static_cast<uint8_t>(numbers.size()));
            key.insert(key.end(), numbers.begin(), numbers.end());
        };
        for (size_t i = 0; i < options_.senders; ++i) {
            const Sender& sender = state.senders[i];
            key.insert(key.end(), {sender.next, sender.kept, static_cast<uint8_t>(sender.contact.state()), sender.due,
                                   sender.expected, sender.read, static_cast<uint8_t>(sender.dead)});
            add_all(sender.packets);
            add_all(sender.signals);
        }
        const auto add = [&key](DeviceAddr peer) { key.push_back(static_cast<uint8_t>(peer)); };
        state.gate.visit_waiting(add);
        key.push_back(0xff);
        state.gate.visit_called(add);
        key.push_back(0xff);
        for (const auto& packet : state.mailbox) key.insert(key.end(), packet.begin(), packet.end());
    }
    [[nodiscard]] std::string describe(Step step) const {
        constexpr std::array kNames = {"send", "resend", "deliver", "signal", "hear", "read", "expire", "die"};
        return kNames[static_cast<size_t>(step.kind)] + std::to_string(step.sender);
    }
    [[nodiscard]] uint32_t step_class(Step step) const { return static_cast<uint32_t>(step.kind); }

  private:
    static constexpr uint64_t kExpiresNs = 1;

    [[nodiscard]] uint8_t total() const {
        return static_cast<uint8_t>(options_.credited ? 2 * options_.packets : options_.packets);
    }
    [[nodiscard]] bool is_contact(uint8_t number) const { return !options_.credited || number % 2 == 0; }

    void deliver(State& state, uint8_t from) const {
        Sender& sender = state.senders[from];
        const uint8_t number = sender.packets.front();
        sender.packets.pop_front();
        if (number != sender.expected) state.wrong = "a packet that is not the next one";
        if (is_contact(number)) {
            if (!state.gate.arrived(DeviceAddr(from))) return;
            sender.due |= kAdmitted;
        }
        ++sender.expected;
        state.mailbox.push_back({from, number});
    }
    void read(State& state) const {
        const auto [from, number] = state.mailbox.front();
        state.mailbox.pop_front();
        if (state.senders[from].read++ != number) state.wrong = "a packet is read out of order";
        if (!is_contact(number)) return;
        state.gate.left();
        call(state);
    }
    static void call(State& state) {
        for (DeviceAddr peer; (peer = state.gate.next_call(kExpiresNs)) != kNoAddr;) {
            state.senders[peer].due |= kCalled;
        }
    }

    Options options_;
};

void expect_holds(const Options& options, uint64_t states_min) {
    const Verdict verdict = explore(GateWorld(options));
    EXPECT_TRUE(verdict.holds()) << verdict.what;
    EXPECT_GE(verdict.states, states_min);
}

TEST(ContactGate, two_senders_and_one_slot) {
    expect_holds({.senders = 2, .slots = 1, .packets = 3}, 500);
}

TEST(ContactGate, two_senders_and_two_slots) {
    expect_holds({.senders = 2, .slots = 2, .packets = 3}, 500);
}

TEST(ContactGate, three_senders_and_one_slot) {
    expect_holds({.senders = 3, .slots = 1, .packets = 2}, 5'000);
}

TEST(ContactGate, three_senders_and_two_slots) {
    expect_holds({.senders = 3, .slots = 2, .packets = 2}, 5'000);
}

TEST(ContactGate, no_credited_packet_overtakes_one_that_was_refused) {
    expect_holds({.senders = 2, .slots = 1, .packets = 2, .credited = true}, 500);
}

TEST(ContactGate, slots_that_are_given_back_are_lost_for_no_sender) {
    expect_holds({.senders = 2, .slots = 1, .packets = 3, .credited = true, .expiry = true}, 500);
    expect_holds({.senders = 3, .slots = 1, .packets = 2, .expiry = true}, 5'000);
    expect_holds({.senders = 3, .slots = 2, .packets = 2, .expiry = true}, 5'000);
}

TEST(ContactGate, a_sender_that_dies_holds_nothing) {
    expect_holds({.senders = 2, .slots = 1, .packets = 3, .expiry = true, .death = true}, 500);
    expect_holds({.senders = 3, .slots = 1, .packets = 2, .expiry = true, .death = true}, 5'000);
}

}  // namespace
}  // namespace velo::exhaustive
