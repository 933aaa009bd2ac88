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
#include "tests/exhaustive/packets.h"
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
    /// Credits are piggybacked while an earlier return to the same peer still waits, and so overtake it.
    kPiggybackOvertakes,
    /// Who parts takes its slots back at once, instead of with the peer's farewell.
    kForgetsAtOnce,
};

/// Messages without end: the model then has cycles, and its goals are that each flow can go on.
inline constexpr uint16_t kEndless = 0xffff;

/// kDepth bounds the packets in one queue; kReading is how flow control reads the paper.
template <uint32_t kProcesses, uint32_t kDepth, flowctl::DynamicReading kReading = flowctl::DynamicReading{}>
class MailboxWorld {
  public:
    using FlowControl = flowctl::BasicFlowControl<kReading>;
    using Process = uint8_t;
    template <typename Value>
    using PerFlow = std::array<std::array<Value, kProcesses>, kProcesses>;

    struct Options {
        flowctl::Plan plan;
        /// Messages from the first index to the second: a number, or kEndless. All endless or none.
        PerFlow<uint16_t> messages{};
        uint8_t message_packets = 1;
        /// Of each so many messages of a flow one has one packet; 0: none.
        uint8_t short_every = 0;
        /// Report retrieved packets later and together, instead of each with its poll.
        bool batched_reports = false;
        /// Carry out a return later, after data that was sent since, merged with returns that still wait; and
        /// a control packet later, in the order asked for.
        bool delayed_returns = false;
        /// A packet is polled when it is delivered. A mailbox keeps the order of delivery, so polls happen in
        /// all the orders that they can happen in otherwise; what is on the wires counts as if it were in the
        /// mailbox. Far fewer states.
        bool direct = false;
        /// Whether to fail on the bound of the credit region, or only on a full mailbox.
        bool check_credit_region = true;
        /// Whether to fail on what flow control says of itself, or only on what goes wrong in the end.
        bool check_invariants = true;
        /// Partings from anybody, at any time, that each process may begin.
        uint8_t partings = 0;
        Bug bug = Bug::kNone;
    };

    struct State {
        std::vector<FlowControl> flow_control;
        std::array<PacketQueue<kDepth>, kProcesses> mailboxes;
        PerFlow<PacketQueue<kDepth>> wires;
        PerFlow<uint16_t> messages_left{};
        /// Packets of the present message that have gone.
        PerFlow<uint8_t> packets_gone{};
        /// [receiver][sender]: polled and not yet reported (batched_reports).
        PerFlow<uint8_t> unreported{};
        /// The messages' ends among them.
        PerFlow<flowctl::MessageEnd> unreported_end{};
        /// Credits of a return not yet carried out (delayed_returns).
        PerFlow<uint8_t> waiting_credits{};
        /// Control packets not yet sent (delayed_returns).
        PerFlow<PacketQueue<4>> waiting_control{};
        std::array<uint8_t, kProcesses> partings_left{};
        /// Credits already in the next packet (Bug::kPiggybackEarly).
        PerFlow<uint8_t> early_credits{};
        /// Slots whose packet was reported and which are not free yet (Bug::kReportBeforeFree).
        std::array<uint8_t, kProcesses> unfreed{};
        const char* failure = nullptr;
    };

    enum class StepKind : uint8_t {
        kSend,
        kSendPiggybacked,
        kSendWaited,
        kTakeEarly,
        kDeliver,
        kPoll,
        kReport,
        kReturn,
        kControl,
        kPart,
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
        state.flow_control.assign(kProcesses, FlowControl(options_.plan));
        state.messages_left = options_.messages;
        state.partings_left.fill(options_.partings);
        for (FlowControl& flow : state.flow_control) flow.know(kProcesses - 2);
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
            case StepKind::kSend: return send(state, self, other, state.early_credits[self][other], false);
            case StepKind::kSendPiggybacked: return send(state, self, other, take(state, self, other), false);
            case StepKind::kSendWaited:
                return send(state, self, other, state.early_credits[self][other], true);
            case StepKind::kTakeEarly: state.early_credits[self][other] = take(state, self, other); break;
            case StepKind::kDeliver:
                deliver(state, self, other);
                if (options_.direct) poll(state, other);
                break;
            case StepKind::kPoll: poll(state, self); break;
            case StepKind::kReport: report(state, self, other); break;
            case StepKind::kReturn: send_waiting(state, self, other); break;
            case StepKind::kControl:
                state.wires[self][other].push(state.waiting_control[self][other].pop());
                break;
            case StepKind::kPart: {
                --state.partings_left[self];
                flowctl::Actions actions;
                state.flow_control[self].part(index_of(self, other), actions);
                if (options_.bug == Bug::kForgetsAtOnce) {
                    state.flow_control[self].reset_peer(index_of(self, other));
                }
                perform(state, self, actions);
                break;
            }
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
                if (state.waiting_credits[self][other] != 0 || !state.waiting_control[self][other].empty()) {
                    return 0;
                }
                if (self != other && !rests(state, self, other)) return 0;
            }
        }
        return 1;
    }

    [[nodiscard]] std::string violation(const State& state) const {
        if (state.failure != nullptr) return state.failure;
        PerFlow<Travelling> travelling{};
        for (Process self = 0; self < kProcesses; ++self) {
            const auto to_self = [&travelling, self](Process from) -> Travelling& {
                return travelling[from][self];
            };
            count(state.mailboxes[self], to_self);
            uint32_t filled = state.mailboxes[self].size() + state.unfreed[self];
            for (Process other = 0; other < kProcesses; ++other) {
                count(state.wires[other][self], to_self);
                if (options_.direct) filled += state.wires[other][self].size();
                count(state.waiting_control[other][self], to_self);
                Travelling& here = travelling[other][self];
                here.credits += state.early_credits[other][self] + state.waiting_credits[other][self];
                here.credit_packets += state.waiting_credits[other][self] != 0;
            }
            if (filled > options_.plan.mailbox_slots) {
                return "overflow: mailbox " + std::to_string(self) + " holds more than its slots";
            }
            if (const auto* dynamic = state.flow_control[self].dynamic(); dynamic != nullptr) {
                uint32_t slots = dynamic->available_slots();
                for (flowctl::PeerIndex peer = 0; peer + 1 < kProcesses; ++peer) {
                    slots += state.flow_control[self].granted(peer);
                }
                slots += dynamic->lent_credit_slots();
                if (slots != options_.plan.data_region_slots) return "conservation: slots lost or made";
            }
        }
        if (options_.plan.quota == 0) return {};
        for (Process from = 0; from < kProcesses; ++from) {
            for (Process to = 0; to < kProcesses; ++to) {
                if (from == to) continue;
                const std::string what =
                    pair_violation(state, from, to, travelling[from][to], travelling[to][from]);
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
                put(packet.credits * 64u + packet.contact * 32u + packet.ends * 16u + packet.waited * 8u +
                    static_cast<uint32_t>(packet.kind));
                if constexpr (kProcesses > 2) put(packet.from);
            }
        };
        for (Process self = 0; self < kProcesses; ++self) {
            state.flow_control[self].visit_state(put);
            put_queue(state.mailboxes[self]);
            put(state.unfreed[self]);
            put(state.partings_left[self]);
            for (Process other = 0; other < kProcesses; ++other) {
                if (self == other) continue;
                put_queue(state.wires[self][other]);
                put(state.messages_left[self][other]);
                put(state.packets_gone[self][other]);
                put(state.unreported[self][other]);
                put(state.unreported_end[self][other].ended + 2u * state.unreported_end[self][other].waited);
                put_queue(state.waiting_control[self][other]);
                put(state.waiting_credits[self][other]);
                put(state.early_credits[self][other]);
            }
        }
        key.push_back(state.failure != nullptr);
    }

    [[nodiscard]] std::string describe(Step step) const {
        static constexpr const char* kNames[] = {"send",    "send+credits", "send-waited", "take-early",
                                                 "deliver", "poll",         "report",      "return",
                                                 "control", "part",         "free"};
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
        // Under `hardware` a full mailbox holds the wire back.
        const bool held_back = options_.plan.mode == flowctl::Mode::kHardware &&
                               state.mailboxes[other].size() == options_.plan.mailbox_slots;
        if (!state.wires[self][other].empty() && !held_back) {
            steps.push_back({StepKind::kDeliver, self, other});
        }
        const auto& control = state.waiting_control[self][other];
        const bool contact_slot = contacts(state, other) < options_.plan.contact_slots;
        if (!control.empty() && (!control.begin()->contact || contact_slot)) {
            steps.push_back({StepKind::kControl, self, other});
        }
        if (state.partings_left[self] != 0 &&
            state.flow_control[self].dynamic()->peer(index_of(self, other)).met) {
            steps.push_back({StepKind::kPart, self, other});
        }
        if (state.waiting_credits[self][other] != 0) steps.push_back({StepKind::kReturn, self, other});
        if (state.unreported[self][other] != 0) steps.push_back({StepKind::kReport, self, other});
        if (state.messages_left[self][other] == 0) return;
        for (const Packet& packet : control) {
            if (packet.kind == PacketKind::kReturnResponse) return;
        }
        const FlowControl& mine = state.flow_control[self];
        const flowctl::PeerIndex peer = index_of(self, other);
        const bool last = state.packets_gone[self][other] + 1u == packets_of(state, self, other);
        // Only static flow control allows a piggyback to overtake a return.
        const bool in_order = options_.plan.mode == flowctl::Mode::kStatic ||
                              options_.bug == Bug::kPiggybackOvertakes ||
                              state.waiting_credits[self][other] == 0;
        // Turns are given whether packets have been retrieved or not.
        const bool something = mine.retrieved(peer) != 0 || (options_.plan.mode == flowctl::Mode::kDynamic &&
                                                             options_.plan.stealing == flowctl::Stealing::kTurns);
        const bool room = last && state.early_credits[self][other] == 0 && options_.plan.piggyback &&
                          something && in_order;
        if (room && options_.bug == Bug::kPiggybackEarly) {
            steps.push_back({StepKind::kTakeEarly, self, other});
        }
        if (mine.by_contact(peer) ? !contact_slot : mine.sendable(peer, 1) == 0) return;
        // What a wire can hold is bounded under the modes that bound nothing.
        if (state.wires[self][other].size() + 1 >= kDepth) return;
        // Whether a last packet has two bytes left depends on the message, so both happen.
        steps.push_back({StepKind::kSend, self, other});
        if (room) steps.push_back({StepKind::kSendPiggybacked, self, other});
        // And whether it had waited depends on when it was asked for.
        if (last && options_.plan.mode == flowctl::Mode::kGrowing) {
            steps.push_back({StepKind::kSendWaited, self, other});
        }
    }

    /// Of the message that is under way or next.
    [[nodiscard]] uint32_t packets_of(const State& state, Process from, Process to) const {
        const bool is_short = options_.short_every != 0 && state.messages_left[from][to] % options_.short_every == 0;
        return is_short ? 1 : options_.message_packets;
    }

    uint8_t take(State& state, Process self, Process other) const {
        FlowControl& mine = state.flow_control[self];
        const flowctl::PeerIndex peer = index_of(self, other);
        if (options_.bug == Bug::kReturnTwice) return static_cast<uint8_t>(mine.retrieved(peer));
        flowctl::Actions actions;
        const uint32_t credits = mine.take_piggyback(peer, flowctl::kReturnMax, actions);
        perform(state, self, actions);
        return static_cast<uint8_t>(credits);
    }

    uint32_t send(State& state, Process self, Process other, uint8_t credits, bool waited) const {
        FlowControl& mine = state.flow_control[self];
        const bool contact = mine.by_contact(index_of(self, other));
        if (!contact) mine.packets_sent(index_of(self, other), 1);
        state.early_credits[self][other] = 0;
        const bool ends = ++state.packets_gone[self][other] == packets_of(state, self, other);
        state.wires[self][other].push({PacketKind::kData, self, ends, waited, credits, contact});
        if (ends) {
            state.packets_gone[self][other] = 0;
            if (state.messages_left[self][other] != kEndless) --state.messages_left[self][other];
        }
        if (contact) {
            flowctl::Actions actions;
            mine.contact_sent(index_of(self, other), actions);
            perform(state, self, actions);
        }
        return flow_goal(self, other);
    }

    void deliver(State& state, Process from, Process to) const {
        state.mailboxes[to].push(state.wires[from][to].pop());
    }

    void poll(State& state, Process self) const {
        const Packet packet = state.mailboxes[self].pop();
        if (options_.bug == Bug::kReportBeforeFree) ++state.unfreed[self];
        if (packet.kind == PacketKind::kReturnRequest || packet.kind == PacketKind::kReturnResponse) {
            take_control(state, self, packet);
            return;
        }
        if (packet.contact) {
            report(state, self, packet.from);
            take_contact(state, self, packet);
        }
        const bool returned = packet.credits != 0 && packet.kind != PacketKind::kWelcome;
        if (returned || packet.kind == PacketKind::kCredits) {
            const uint32_t lost = options_.bug == Bug::kDropCredit && packet.credits > 1 ? 1 : 0;
            flowctl::Actions actions;
            expect_ok(state, state.flow_control[self].credits_arrived(index_of(self, packet.from),
                                                                      packet.credits - lost, actions));
            perform(state, self, actions);
        }
        if (packet.kind != PacketKind::kData || packet.contact) return;
        ++state.unreported[self][packet.from];
        state.unreported_end[self][packet.from].ended |= packet.ends;
        state.unreported_end[self][packet.from].waited |= packet.waited;
        if (!options_.batched_reports) report(state, self, packet.from);
    }

    void take_contact(State& state, Process self, const Packet& packet) const {
        FlowControl& mine = state.flow_control[self];
        const flowctl::PeerIndex from = index_of(self, packet.from);
        flowctl::Actions actions;
        expect_ok(state, packet.kind == PacketKind::kWelcome    ? mine.welcome_arrived(from, packet.credits, actions)
                         : packet.kind == PacketKind::kFarewell ? mine.farewell_arrived(from, actions)
                                                                : mine.contact_retrieved(from, 1, packet.ends,
                                                                                         actions));
        perform(state, self, actions);
    }

    void take_control(State& state, Process self, const Packet& packet) const {
        report(state, self, packet.from);
        state.unreported[self][packet.from] = 1;
        state.unreported_end[self][packet.from] = {.control = true};
        report(state, self, packet.from);
        const auto kind = packet.kind == PacketKind::kReturnRequest ? flowctl::ControlKind::kReturnRequest
                                                                    : flowctl::ControlKind::kReturnResponse;
        flowctl::Actions actions;
        expect_ok(state, state.flow_control[self].control_arrived(index_of(self, packet.from), kind,
                                                                  packet.credits, actions));
        perform(state, self, actions);
    }

    void report(State& state, Process self, Process from) const {
        if (state.unreported[self][from] == 0) return;
        flowctl::Actions actions;
        expect_ok(state, state.flow_control[self].packets_retrieved(
                             index_of(self, from), state.unreported[self][from],
                             state.unreported_end[self][from], actions));
        state.unreported[self][from] = 0;
        state.unreported_end[self][from] = {};
        perform(state, self, actions);
    }

    void perform(State& state, Process self, const flowctl::Actions& actions) const {
        for (const flowctl::Action& action : actions) {
            const Process to = process_of(self, action.peer);
            switch (action.kind) {
                case flowctl::ActionKind::kSendCredits:
                    if (action.credits == 0 || action.credits > options_.plan.return_max) {
                        state.failure = "an explicit return outside 1 .. return_max";
                    }
                    state.waiting_credits[self][to] += static_cast<uint8_t>(action.credits);
                    if (!options_.delayed_returns) send_waiting(state, self, to);
                    break;
                case flowctl::ActionKind::kSendReturnRequest:
                    send_control(state, self, to, {PacketKind::kReturnRequest, self});
                    break;
                case flowctl::ActionKind::kSendReturnResponse:
                    send_control(state, self, to,
                                 {.kind = PacketKind::kReturnResponse,
                                  .from = self,
                                  .credits = static_cast<uint16_t>(action.credits)});
                    break;
                case flowctl::ActionKind::kSendFarewell:
                    state.waiting_credits[self][to] = 0;
                    drop_void(state.waiting_control[self][to]);
                    send_contact(state, self, to, PacketKind::kFarewell);
                    break;
                case flowctl::ActionKind::kSendWelcome:
                    send_contact(state, self, to, PacketKind::kWelcome, action.credits);
                    break;
            }
        }
    }

    void send_contact(State& state, Process self, Process to, PacketKind kind, uint32_t credits = 0) const {
        auto& waiting = state.waiting_control[self][to];
        waiting.push(
            {.kind = kind, .from = self, .credits = static_cast<uint16_t>(credits), .contact = true});
        const bool at_once = !options_.delayed_returns && waiting.size() == 1 &&
                             contacts(state, to) < options_.plan.contact_slots;
        if (at_once) state.wires[self][to].push(waiting.pop());
    }

    /// Contact slots of a mailbox that are taken, from the sending of a packet until it is polled.
    [[nodiscard]] static uint32_t contacts(const State& state, Process to) {
        uint32_t taken = 0;
        const auto count = [&taken](const auto& queue) {
            for (const Packet& packet : queue) taken += packet.contact;
        };
        count(state.mailboxes[to]);
        for (Process from = 0; from < kProcesses; ++from) count(state.wires[from][to]);
        return taken;
    }

    void send_control(State& state, Process self, Process to, Packet packet) const {
        if (options_.delayed_returns || !state.waiting_control[self][to].empty()) {
            state.waiting_control[self][to].push(packet);
        } else {
            state.wires[self][to].push(packet);
        }
    }

    void send_waiting(State& state, Process self, Process to) const {
        state.wires[self][to].push(
            {.kind = PacketKind::kCredits, .from = self, .credits = state.waiting_credits[self][to]});
        state.waiting_credits[self][to] = 0;
    }

    static void expect_ok(State& state, Status status) {
        if (status != Status::kOk) state.failure = "an honest peer was found to break the protocol";
    }

    [[nodiscard]] std::string pair_violation(const State& state, Process from, Process to,
                                             const Travelling& there, const Travelling& back) const {
        const FlowControl& sender = state.flow_control[from];
        const FlowControl& receiver = state.flow_control[to];
        const flowctl::PeerIndex to_index = index_of(from, to);
        const flowctl::PeerIndex from_index = index_of(to, from);
        uint32_t elsewhere = sender.credits(to_index) + there.packets + there.given_up +
                             state.unreported[to][from] + back.credits;
        bool parting = there.farewells + back.farewells != 0;
        if (const auto* dynamic = sender.dynamic(); dynamic != nullptr) {
            const flowctl::DynamicPeer& peer = dynamic->peer(to_index);
            if (peer.welcomed && !peer.met) elsewhere += peer.offered_credits;
            parting |= peer.leaving || receiver.dynamic()->peer(from_index).leaving;
        }
        // Credits under way to who parts are void; those in packets, and those that can be used, are not.
        const uint32_t granted = receiver.granted(from_index);
        const uint32_t usable = sender.credits(to_index) + there.packets + state.unreported[to][from];
        if (parting ? usable > granted : elsewhere != granted) return "conservation: credits lost or made";
        if (options_.plan.mode == flowctl::Mode::kStatic &&
            elsewhere + receiver.retrieved(from_index) != options_.plan.quota_of(from_index)) {
            return "conservation: a quota that changed";
        }
        if (options_.check_invariants &&
            !(sender.check_invariants(to_index) && receiver.check_invariants(from_index))) {
            return "invariants";
        }
        if (options_.check_credit_region && back.credit_packets > options_.plan.credit_slots) {
            return "overflow: more unread credit packets than credit slots";
        }
        if (const auto* dynamic = receiver.dynamic(); dynamic != nullptr && !parting) {
            const flowctl::DynamicPeer& mine = dynamic->peer(from_index);
            const flowctl::DynamicPeer& theirs = sender.dynamic()->peer(to_index);
            const uint32_t open =
                mine.request_waits + back.requests + theirs.response_waits + there.responses;
            if (open != mine.blocked) return "requests without a response, or responses without a request";
        }
        return {};
    }

    /// Nobody waits for an answer, and a sender has at least its static slots.
    [[nodiscard]] bool rests(const State& state, Process self, Process other) const {
        const FlowControl& mine = state.flow_control[self];
        const auto* dynamic = mine.dynamic();
        if (dynamic == nullptr) return true;
        const flowctl::PeerIndex peer = index_of(self, other);
        if (!dynamic->peer(peer).met) return !dynamic->peer(peer).leaving;
        return !dynamic->peer(peer).blocked && mine.granted(peer) >= options_.plan.quota;
    }

    Options options_;
};

}  // namespace velo::exhaustive
