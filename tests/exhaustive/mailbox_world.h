/// Processes that send each other packets through mailboxes under flow control: a model for explorer.h.
///
/// The world owns what flow control does not: the wire (a FIFO for each ordered pair, any delay), the
/// mailboxes (one FIFO for each process, shared by all its senders) and the work. It drives the production
/// FlowControl and counts every slot and every credit by itself, from the packets it sees.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "flowctl/flow_control.h"
#include "tests/exhaustive/explorer.h"
#include "velo/base/check.h"

namespace velo::exhaustive {

/// A mistake made on purpose, to see that it is found.
enum class Bug : uint8_t {
    kNone,
    /// One credit of each return is lost on the way.
    kDropCredit,
    /// Piggybacked credits are not taken out of the receiver's counter, and so return twice.
    kReturnTwice,
    /// Credits are put into a message's last packet while that packet still waits for a credit.
    kPiggybackEarly,
    /// Events are reported while the packet still fills its slot.
    kReportBeforeFree,
};

enum class PacketKind : uint8_t { kData, kCredits };

struct Packet {
    PacketKind kind = PacketKind::kData;
    uint8_t from = 0;
    /// Credits returned: piggybacked in data, 0 for none.
    uint16_t credits = 0;
};

/// First in, first out, within itself, so that a state is copied as bytes.
template <uint32_t kCapacity>
class PacketQueue {
  public:
    void push(Packet packet) {
        VELO_CHECK(size_ < kCapacity, "a queue of more than %u packets; give the world more depth",
                   kCapacity);
        packets_[size_++] = packet;
    }
    Packet pop() {
        const Packet head = packets_[0];
        for (uint32_t at = 1; at < size_; ++at) packets_[at - 1] = packets_[at];
        --size_;
        return head;
    }
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] uint32_t size() const { return size_; }
    [[nodiscard]] const Packet* begin() const { return packets_.data(); }
    [[nodiscard]] const Packet* end() const { return packets_.data() + size_; }

  private:
    std::array<Packet, kCapacity> packets_;
    uint32_t size_ = 0;
};

/// Messages without end: the model then has cycles, and its goals are that each flow can go on.
inline constexpr uint16_t kEndless = 0xffff;

/// kDepth bounds the packets in one queue.
template <uint32_t kProcesses, uint32_t kDepth>
class MailboxWorld {
  public:
    using Process = uint8_t;
    template <typename Value>
    using PerFlow = std::array<std::array<Value, kProcesses>, kProcesses>;

    struct Options {
        flowctl::Plan plan;
        /// Messages from the first index to the second: a number, or kEndless. All endless or none.
        PerFlow<uint16_t> messages{};
        uint8_t message_packets = 1;
        /// Report retrieved packets later and together, instead of each with its poll.
        bool batched_reports = false;
        /// Carry out a return later, after data that was sent since, merged with returns that still wait.
        bool delayed_returns = false;
        /// Whether to fail on the bound of the credit region, or only on a full mailbox.
        bool check_credit_region = true;
        Bug bug = Bug::kNone;
    };

    struct State {
        std::vector<flowctl::FlowControl> flow_control;
        std::array<PacketQueue<kDepth>, kProcesses> mailboxes;
        PerFlow<PacketQueue<kDepth>> wires;
        PerFlow<uint16_t> messages_left{};
        /// Packets of the present message that have gone.
        PerFlow<uint8_t> packets_gone{};
        /// [receiver][sender]: polled and not yet reported (batched_reports).
        PerFlow<uint8_t> unreported{};
        /// Credits of a return not yet carried out (delayed_returns).
        PerFlow<uint8_t> waiting_credits{};
        /// Credits already in the next packet (Bug::kPiggybackEarly).
        PerFlow<uint8_t> early_credits{};
        /// Slots whose packet was reported and which are not free yet (Bug::kReportBeforeFree).
        std::array<uint8_t, kProcesses> unfreed{};
        const char* failure = nullptr;
    };

    enum class StepKind : uint8_t {
        kSend,
        kSendPiggybacked,
        kTakeEarly,
        kDeliver,
        kPoll,
        kReport,
        kReturn,
        kFree
    };
    struct Step {
        StepKind kind = StepKind::kSend;
        /// The process that acts, or the wire's sender.
        Process process = 0;
        Process other = 0;
    };

    explicit MailboxWorld(const Options& options) : options_(options) {}

    [[nodiscard]] State initial() const {
        State state;
        state.flow_control.assign(kProcesses, flowctl::FlowControl(options_.plan));
        state.messages_left = options_.messages;
        return state;
    }

    void append_steps(const State& state, std::vector<Step>& steps) const {
        for (Process self = 0; self < kProcesses; ++self) {
            if (!state.mailboxes[self].empty()) steps.push_back({StepKind::kPoll, self, self});
            if (state.unfreed[self] != 0) steps.push_back({StepKind::kFree, self, self});
            for (Process other = 0; other < kProcesses; ++other) {
                if (self != other) append_pair_steps(state, self, other, steps);
            }
        }
    }

    uint32_t apply(State& state, Step step) const {
        const auto [kind, self, other] = step;
        switch (kind) {
            case StepKind::kSend: return send(state, self, other, state.early_credits[self][other]);
            case StepKind::kSendPiggybacked: return send(state, self, other, take(state, self, other));
            case StepKind::kTakeEarly: state.early_credits[self][other] = take(state, self, other); break;
            case StepKind::kDeliver: deliver(state, self, other); break;
            case StepKind::kPoll: poll(state, self); break;
            case StepKind::kReport: report(state, self, other); break;
            case StepKind::kReturn: send_waiting(state, self, other); break;
            case StepKind::kFree: state.unfreed[self] = 0; break;
        }
        return 0;
    }

    /// With endless work, one goal for each flow: it sends again. Otherwise one: all is sent and read.
    [[nodiscard]] uint32_t goals() const {
        uint32_t flows = 0;
        for (Process from = 0; from < kProcesses; ++from) {
            for (Process to = 0; to < kProcesses; ++to) flows |= flow_goal(from, to);
        }
        return flows != 0 ? flows : 1;
    }

    [[nodiscard]] uint32_t goals_met(const State& state) const {
        for (Process self = 0; self < kProcesses; ++self) {
            if (!state.mailboxes[self].empty()) return 0;
            for (Process other = 0; other < kProcesses; ++other) {
                if (state.messages_left[self][other] != 0 || !state.wires[self][other].empty()) return 0;
                if (state.unreported[self][other] != 0) return 0;
            }
        }
        return 1;
    }

    [[nodiscard]] std::string violation(const State& state) const {
        if (state.failure != nullptr) return state.failure;
        PerFlow<uint32_t> data{}, credits{}, credit_packets{};
        for (Process self = 0; self < kProcesses; ++self) {
            count(state.mailboxes[self], self, data, credits, credit_packets);
            if (state.mailboxes[self].size() + state.unfreed[self] > options_.plan.mailbox_slots) {
                return "overflow: mailbox " + std::to_string(self) + " holds more than its slots";
            }
            for (Process other = 0; other < kProcesses; ++other) {
                count(state.wires[other][self], self, data, credits, credit_packets);
                credits[other][self] += state.early_credits[other][self] + state.waiting_credits[other][self];
                credit_packets[other][self] += state.waiting_credits[other][self] != 0;
            }
        }
        if (options_.plan.mode == flowctl::Mode::kNone) return {};
        for (Process from = 0; from < kProcesses; ++from) {
            for (Process to = 0; to < kProcesses; ++to) {
                if (from == to) continue;
                const std::string what = pair_violation(state, from, to, data[from][to], credits[to][from],
                                                        credit_packets[to][from]);
                if (!what.empty())
                    return what + " (" + std::to_string(from) + " to " + std::to_string(to) + ")";
            }
        }
        return {};
    }

    void append_key(const State& state, Key& key) const {
        const auto put = [&key](uint32_t word) {
            for (; word >= 0x80; word >>= 7) key.push_back(static_cast<uint8_t>(word | 0x80));
            key.push_back(static_cast<uint8_t>(word));
        };
        const auto put_queue = [&put](const auto& queue) {
            put(queue.size());
            for (const Packet& packet : queue) {
                put(packet.credits * 2u + static_cast<uint32_t>(packet.kind));
                if constexpr (kProcesses > 2) put(packet.from);
            }
        };
        for (Process self = 0; self < kProcesses; ++self) {
            state.flow_control[self].visit_state(put);
            put_queue(state.mailboxes[self]);
            put(state.unfreed[self]);
            for (Process other = 0; other < kProcesses; ++other) {
                if (self == other) continue;
                put_queue(state.wires[self][other]);
                put(state.messages_left[self][other]);
                put(state.packets_gone[self][other]);
                put(state.unreported[self][other]);
                put(state.waiting_credits[self][other]);
                put(state.early_credits[self][other]);
            }
        }
        key.push_back(state.failure != nullptr);
    }

    [[nodiscard]] std::string describe(Step step) const {
        static constexpr const char* kNames[] = {"send", "send+credits", "take-early", "deliver",
                                                 "poll", "report",       "return",     "free"};
        return std::string(kNames[static_cast<size_t>(step.kind)]) + "(" + std::to_string(step.process) +
               (step.process == step.other ? "" : ">" + std::to_string(step.other)) + ")";
    }

    [[nodiscard]] uint32_t step_class(Step step) const {
        return static_cast<uint32_t>(step.kind) * kProcesses + step.process;
    }

  private:
    /// Peers of a process are all others in order, without itself.
    [[nodiscard]] static constexpr flowctl::PeerIndex index_of(Process self, Process other) {
        return other < self ? other : other - 1u;
    }
    [[nodiscard]] static constexpr Process process_of(Process self, flowctl::PeerIndex peer) {
        return static_cast<Process>(peer < self ? peer : peer + 1);
    }

    [[nodiscard]] uint32_t flow_goal(Process from, Process to) const {
        return options_.messages[from][to] == kEndless ? 1u << (from * kProcesses + to) : 0;
    }

    void append_pair_steps(const State& state, Process self, Process other, std::vector<Step>& steps) const {
        if (!state.wires[self][other].empty()) steps.push_back({StepKind::kDeliver, self, other});
        if (state.waiting_credits[self][other] != 0) steps.push_back({StepKind::kReturn, self, other});
        if (state.unreported[self][other] != 0) steps.push_back({StepKind::kReport, self, other});
        if (state.messages_left[self][other] == 0) return;
        const flowctl::FlowControl& mine = state.flow_control[self];
        const flowctl::PeerIndex peer = index_of(self, other);
        const bool last = state.packets_gone[self][other] + 1 == options_.message_packets;
        const bool room = last && state.early_credits[self][other] == 0 && options_.plan.piggyback &&
                          mine.retrieved(peer) != 0;
        if (room && options_.bug == Bug::kPiggybackEarly) {
            steps.push_back({StepKind::kTakeEarly, self, other});
        }
        if (mine.sendable(peer, 1) == 0) return;
        // Whether a last packet has two bytes left depends on the message, so both happen.
        steps.push_back({StepKind::kSend, self, other});
        if (room) steps.push_back({StepKind::kSendPiggybacked, self, other});
    }

    uint8_t take(State& state, Process self, Process other) const {
        flowctl::FlowControl& mine = state.flow_control[self];
        const flowctl::PeerIndex peer = index_of(self, other);
        if (options_.bug == Bug::kReturnTwice) return static_cast<uint8_t>(mine.retrieved(peer));
        flowctl::Actions actions;
        const uint32_t credits = mine.take_piggyback(peer, flowctl::kReturnMax, actions);
        perform(state, self, actions);
        return static_cast<uint8_t>(credits);
    }

    uint32_t send(State& state, Process self, Process other, uint8_t credits) const {
        state.flow_control[self].packets_sent(index_of(self, other), 1);
        state.early_credits[self][other] = 0;
        state.wires[self][other].push({PacketKind::kData, self, credits});
        if (++state.packets_gone[self][other] == options_.message_packets) {
            state.packets_gone[self][other] = 0;
            if (state.messages_left[self][other] != kEndless) --state.messages_left[self][other];
        }
        return flow_goal(self, other);
    }

    void deliver(State& state, Process from, Process to) const {
        state.mailboxes[to].push(state.wires[from][to].pop());
    }

    void poll(State& state, Process self) const {
        const Packet packet = state.mailboxes[self].pop();
        if (options_.bug == Bug::kReportBeforeFree) ++state.unfreed[self];
        if (packet.credits != 0 || packet.kind == PacketKind::kCredits) {
            const uint32_t lost = options_.bug == Bug::kDropCredit && packet.credits > 1 ? 1 : 0;
            flowctl::Actions actions;
            expect_ok(state, state.flow_control[self].credits_arrived(index_of(self, packet.from),
                                                                      packet.credits - lost, actions));
            perform(state, self, actions);
        }
        if (packet.kind != PacketKind::kData) return;
        ++state.unreported[self][packet.from];
        if (!options_.batched_reports) report(state, self, packet.from);
    }

    void report(State& state, Process self, Process from) const {
        flowctl::Actions actions;
        expect_ok(state, state.flow_control[self].packets_retrieved(index_of(self, from),
                                                                    state.unreported[self][from], actions));
        state.unreported[self][from] = 0;
        perform(state, self, actions);
    }

    void perform(State& state, Process self, const flowctl::Actions& actions) const {
        for (const flowctl::Action& action : actions) {
            switch (action.kind) {
                case flowctl::ActionKind::kSendCredits:
                    if (action.credits == 0 || action.credits > options_.plan.return_max) {
                        state.failure = "an explicit return outside 1 .. return_max";
                    }
                    const Process to = process_of(self, action.peer);
                    state.waiting_credits[self][to] += static_cast<uint8_t>(action.credits);
                    if (!options_.delayed_returns) send_waiting(state, self, to);
                    break;
            }
        }
    }

    void send_waiting(State& state, Process self, Process to) const {
        state.wires[self][to].push({PacketKind::kCredits, self, state.waiting_credits[self][to]});
        state.waiting_credits[self][to] = 0;
    }

    static void expect_ok(State& state, Status status) {
        if (status != Status::kOk) state.failure = "an honest peer was found to break the protocol";
    }

    static void count(const PacketQueue<kDepth>& queue, Process to, PerFlow<uint32_t>& data,
                      PerFlow<uint32_t>& credits, PerFlow<uint32_t>& credit_packets) {
        for (const Packet& packet : queue) {
            ++(packet.kind == PacketKind::kData ? data : credit_packets)[packet.from][to];
            credits[packet.from][to] += packet.credits;
        }
    }

    /// `credits` and `credit_packets` travel from `to` back to `from`.
    [[nodiscard]] std::string pair_violation(const State& state, Process from, Process to, uint32_t data,
                                             uint32_t credits, uint32_t credit_packets) const {
        const flowctl::FlowControl& sender = state.flow_control[from];
        const flowctl::FlowControl& receiver = state.flow_control[to];
        const flowctl::PeerIndex to_index = index_of(from, to);
        const flowctl::PeerIndex from_index = index_of(to, from);
        const uint32_t elsewhere = sender.credits(to_index) + data + state.unreported[to][from] + credits;
        const uint32_t owned = options_.plan.quota_of(from_index);
        if (elsewhere + receiver.retrieved(from_index) != owned) return "conservation: credits lost or made";
        if (elsewhere != receiver.granted(from_index)) return "the receiver misjudges what it granted";
        if (!sender.check_invariants(to_index) || !receiver.check_invariants(from_index)) return "invariants";
        if (options_.check_credit_region && credit_packets > options_.plan.credit_slots) {
            return "overflow: more unread credit packets than credit slots";
        }
        return {};
    }

    Options options_;
};

}  // namespace velo::exhaustive
