/// Processes that send each other packets through mailboxes under flow control: a model for explorer.h.
///
/// The world owns what flow control does not: the wire (a FIFO for each ordered pair, any delay), the
/// mailboxes (one FIFO for each process, shared by all its senders), the device's refusals, and the work. It
/// drives the production FlowControl, its outbox included, and counts every slot and every credit by itself,
/// from the packets it sees.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "flowctl/flow_control.h"
#include "tests/exhaustive/bugs.h"
#include "tests/exhaustive/explorer.h"
#include "tests/exhaustive/packets.h"
#include "velo/base/check.h"

namespace velo::exhaustive {

/// Messages without end: the model then has cycles, and its goals are that each flow can go on.
inline constexpr uint16_t kEndless = 0xffff;

/// kDepth bounds the packets in one queue; Flow is FlowControl, or a model with its interface.
template <uint32_t kProcesses, uint32_t kDepth, class Flow = flowctl::FlowControl>
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
        /// One of this number of messages of a flow has one packet; 0: none.
        uint8_t short_every = 0;
        /// Report retrieved packets later and together, instead of each with its poll.
        bool batched_reports = false;
        /// The device refuses every control packet at first, and takes it at any later time, one at a time.
        bool refusals = false;
        /// Body packets that follow each other in a mailbox are taken together, ahead of their end.
        bool runs = false;
        /// A packet is polled when it is delivered. A mailbox keeps the order of delivery, so polls happen in
        /// all the orders that they can happen in otherwise; what is on the wires counts as if it were in the
        /// mailbox. Far fewer states.
        bool direct = false;
        /// Whether to fail on the bound of the credit region, or only on a full mailbox.
        bool check_credit_region = true;
        /// Whether to fail on what flow control says of itself, or only on what goes wrong in the end.
        bool check_invariants = true;
        /// Links that each process may close, at any time.
        uint8_t closings = 0;
        /// Control packets that end links and that each process sends by mistake. The only goal then is that
        /// everything comes to rest.
        uint8_t strays = 0;
        Bug bug = Bug::kNone;
    };

    struct State {
        std::vector<Flow> flow_control;
        std::array<PacketQueue<kDepth>, kProcesses> mailboxes;
        PerFlow<PacketQueue<kDepth>> wires;
        PerFlow<uint16_t> messages_left{};
        /// Packets of the present message that have gone.
        PerFlow<uint8_t> packets_gone{};
        /// [receiver][sender]: polled and not yet reported (batched_reports, Bug::kRunLate).
        PerFlow<uint8_t> unreported{};
        /// The messages' ends among them.
        PerFlow<flowctl::MessageEnd> unreported_end{};
        std::array<uint8_t, kProcesses> closings_left{};
        std::array<uint8_t, kProcesses> strays_left{};
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
        kSendRefused,
        kTakeEarly,
        kDeliver,
        kPoll,
        kSettle,
        kReport,
        kControl,
        kClose,
        kStrayClose,
        kStrayClosed,
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
        state.flow_control.assign(kProcesses, Flow(options_.plan));
        state.messages_left = options_.messages;
        state.closings_left.fill(options_.closings);
        state.strays_left.fill(options_.strays);
        for (Flow& flow : state.flow_control) flow.know(kProcesses - 2);
        return state;
    }

    void append_steps(const State& state, std::vector<Step>& steps) const {
        for (Process self = 0; self < kProcesses; ++self) {
            if (!state.mailboxes[self].empty()) steps.push_back({StepKind::kPoll, self, self});
            if (polls(state, self)) steps.push_back({StepKind::kSettle, self, self});
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
            case StepKind::kSendRefused:
                state.flow_control[self].contact_sent(index_of(self, other), true);
                send_control(state, self);
                break;
            case StepKind::kTakeEarly: state.early_credits[self][other] = take(state, self, other); break;
            case StepKind::kDeliver:
                state.mailboxes[other].push(state.wires[self][other].pop());
                if (options_.direct) poll(state, other);
                break;
            case StepKind::kPoll: poll(state, self); break;
            case StepKind::kSettle:
                state.flow_control[self].settle_run();
                send_control(state, self);
                break;
            case StepKind::kReport: report(state, self, other); break;
            case StepKind::kControl: resend_one(state, self, other); break;
            case StepKind::kClose:
                --state.closings_left[self];
                state.flow_control[self].close(index_of(self, other));
                send_control(state, self);
                if (options_.bug == Bug::kForgetsAtOnce)
                    state.flow_control[self].reset_peer(index_of(self, other));
                break;
            case StepKind::kStrayClose:
            case StepKind::kStrayClosed:
                --state.strays_left[self];
                state.wires[self][other].push(control_packet(
                    kind == StepKind::kStrayClose ? ControlKind::kClose : ControlKind::kClosed, self, 0));
                break;
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
            if (!state.mailboxes[self].empty() || polls(state, self)) return 0;
            for (Process other = 0; other < kProcesses; ++other) {
                if (self == other) continue;
                if (!state.wires[self][other].empty() || state.unreported[self][other] != 0) return 0;
                if (options_.strays != 0) {
                    // A process that makes mistakes may not get its messages through; it stops nevertheless.
                    if (can_send_control(state, self, other)) return 0;
                    continue;
                }
                if (state.messages_left[self][other] != 0) return 0;
                if (!rests(state, self, other)) return 0;
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
                if (self == other) continue;
                count(state.wires[other][self], to_self);
                if (options_.direct) filled += state.wires[other][self].size();
                Travelling& here = travelling[other][self];
                here.credits += state.early_credits[other][self];
                count_due(state.flow_control[other], index_of(other, self), here);
            }
            if (options_.strays != 0) continue;
            if (filled > options_.plan.mailbox_slots) {
                return "overflow: mailbox " + std::to_string(self) + " holds more than its slots";
            }
            if (options_.plan.mode == flowctl::Mode::kDynamic) {
                uint32_t slots =
                    state.flow_control[self].available_slots() + state.flow_control[self].lent_slots();
                for (flowctl::PeerIndex peer = 0; peer + 1 < kProcesses; ++peer) {
                    slots += state.flow_control[self].granted(peer);
                }
                if (slots != options_.plan.data_region_slots) return "conservation: slots lost or made";
            }
        }
        if (options_.plan.quota == 0 || options_.strays != 0) return {};
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
                put(packet.credits * 128u + packet.contact * 64u + packet.ends * 32u + packet.waited * 16u +
                    packet.data * 8u + static_cast<uint32_t>(packet.kind));
                if (packet.contact) put(packet.opens);
                if constexpr (kProcesses > 2) put(packet.from);
            }
        };
        for (Process self = 0; self < kProcesses; ++self) {
            state.flow_control[self].visit_state(put);
            put_queue(state.mailboxes[self]);
            put(state.unfreed[self]);
            put(state.closings_left[self] * 16u + state.strays_left[self]);
            for (Process other = 0; other < kProcesses; ++other) {
                if (self == other) continue;
                put_queue(state.wires[self][other]);
                put(state.messages_left[self][other]);
                put(state.packets_gone[self][other]);
                put(state.unreported[self][other]);
                put(state.unreported_end[self][other].ended + 2u * state.unreported_end[self][other].waited);
                put(state.early_credits[self][other]);
            }
        }
        key.push_back(state.failure != nullptr);
    }

    [[nodiscard]] std::string describe(Step step) const {
        static constexpr const char* kNames[] = {
            "send",   "send+credits", "send-waited", "send-refused", "take-early",  "deliver",      "poll",
            "settle", "report",       "control",     "close",        "stray-close", "stray-closed", "free"};
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

    /// Whether a process is in the middle of its poll: a run is dequeued and not accounted for.
    [[nodiscard]] bool polls(const State& state, Process self) const {
        for (flowctl::PeerIndex peer = 0; peer + 1 < kProcesses; ++peer) {
            if (state.flow_control[self].run_packets(peer) != 0) return true;
        }
        return false;
    }

    [[nodiscard]] bool can_send_control(const State& state, Process self, Process other) const {
        typename Flow::Control control;
        return state.flow_control[self].next_control(index_of(self, other), control) &&
               (!flowctl::fills_contact_slot(control.kind) || contact_slot(state, other));
    }

    void append_pair_steps(const State& state, Process self, Process other, std::vector<Step>& steps) const {
        // Under `hardware` a full mailbox holds the wire back.
        const bool held_back = options_.plan.mode == flowctl::Mode::kHardware &&
                               state.mailboxes[other].size() == options_.plan.mailbox_slots;
        if (!state.wires[self][other].empty() && !held_back) {
            steps.push_back({StepKind::kDeliver, self, other});
        }
        if (state.unreported[self][other] != 0 && options_.bug != Bug::kRunLate) {
            steps.push_back({StepKind::kReport, self, other});
        }
        // A poll that has begun does nothing else before it ends.
        if (polls(state, self)) return;
        if (can_send_control(state, self, other)) steps.push_back({StepKind::kControl, self, other});
        const Flow& mine = state.flow_control[self];
        const flowctl::PeerIndex peer = index_of(self, other);
        if (state.closings_left[self] != 0 && lends(mine.link(peer))) {
            steps.push_back({StepKind::kClose, self, other});
        }
        const bool room_for_contact = contact_slot(state, other);
        if (state.strays_left[self] != 0 && room_for_contact) {
            steps.push_back({StepKind::kStrayClose, self, other});
            steps.push_back({StepKind::kStrayClosed, self, other});
        }
        if (state.messages_left[self][other] == 0 || mine.response_due(peer)) return;
        const bool last = state.packets_gone[self][other] + 1u == packets_of(state, self, other);
        // Only static flow control allows a piggyback to overtake a return.
        const bool in_order = options_.plan.mode == flowctl::Mode::kStatic ||
                              options_.bug == Bug::kPiggybackOvertakes || mine.deferred_credits(peer) == 0;
        // Bursts are granted whether packets have been retrieved or not.
        const bool something =
            mine.retrieved(peer) != 0 || (options_.plan.mode == flowctl::Mode::kDynamic &&
                                          options_.plan.stealing == flowctl::Stealing::kTurns);
        const bool room =
            last && state.early_credits[self][other] == 0 && options_.plan.piggyback && something && in_order;
        if (room && options_.bug == Bug::kPiggybackEarly) {
            steps.push_back({StepKind::kTakeEarly, self, other});
        }
        // A device that refuses the packet that makes the contact, after the opening has become due.
        if (options_.refusals && mine.by_contact(peer) && state.packets_gone[self][other] == 0 &&
            next_state(mine.link(peer), flowctl::LinkEvent::kOpens)) {
            steps.push_back({StepKind::kSendRefused, self, other});
        }
        if (mine.by_contact(peer) ? !room_for_contact : mine.sendable(peer, 1) == 0) return;
        // The content of a wire is bounded under the modes that bound nothing.
        if (state.wires[self][other].size() + 1 >= kDepth) return;
        // Whether a last packet has two bytes left depends on the message, so both happen.
        steps.push_back({StepKind::kSend, self, other});
        if (room) steps.push_back({StepKind::kSendPiggybacked, self, other});
        // And whether it had waited depends on when it was asked for.
        if (last && options_.plan.mode == flowctl::Mode::kGrowing) {
            steps.push_back({StepKind::kSendWaited, self, other});
        }
    }

    /// Packets of the message that is under way or next.
    [[nodiscard]] uint32_t packets_of(const State& state, Process from, Process to) const {
        const bool is_short =
            options_.short_every != 0 && state.messages_left[from][to] % options_.short_every == 0;
        return is_short ? 1 : options_.message_packets;
    }

    uint8_t take(State& state, Process self, Process other) const {
        Flow& mine = state.flow_control[self];
        const flowctl::PeerIndex peer = index_of(self, other);
        if (options_.bug == Bug::kReturnTwice) return static_cast<uint8_t>(mine.retrieved(peer));
        const uint32_t credits = mine.take_piggyback(peer, flowctl::kReturnMax);
        send_control(state, self);
        return static_cast<uint8_t>(credits);
    }

    uint32_t send(State& state, Process self, Process other, uint8_t credits, bool waited) const {
        Flow& mine = state.flow_control[self];
        const flowctl::PeerIndex peer = index_of(self, other);
        const bool contact = mine.by_contact(peer);
        uint32_t opens = 0;
        if (contact) {
            mine.contact_sent(peer, state.packets_gone[self][other] == 0);
            opens = opening(mine, peer);
        } else {
            mine.packets_sent(peer, 1);
        }
        state.early_credits[self][other] = 0;
        const bool ends = ++state.packets_gone[self][other] == packets_of(state, self, other);
        state.wires[self][other].push({.from = self,
                                       .ends = ends,
                                       .waited = waited,
                                       .credits = credits,
                                       .contact = contact,
                                       .opens = static_cast<uint16_t>(opens)});
        if (opens != 0) mine.opening_left(peer);
        if (ends) {
            state.packets_gone[self][other] = 0;
            if (state.messages_left[self][other] != kEndless) --state.messages_left[self][other];
        }
        if (contact) send_control(state, self);
        return flow_goal(self, other);
    }

    /// First credits of our opening, if it may ride in a packet to the peer.
    [[nodiscard]] uint32_t opening(const Flow& mine, flowctl::PeerIndex peer) const {
        if (options_.bug == Bug::kOpenOvertakes) return mine.deferred_first_credits(peer);
        return mine.opening_due(peer, flowctl::kReturnMax);
    }

    void poll(State& state, Process self) const {
        const Packet packet = state.mailboxes[self].pop();
        Flow& mine = state.flow_control[self];
        const flowctl::PeerIndex from = index_of(self, packet.from);
        if (options_.bug == Bug::kReportBeforeFree) ++state.unfreed[self];
        if (packet.body() && options_.bug == Bug::kRunLate) {
            ++state.unreported[self][packet.from];
            return;
        }
        if (packet.body() && options_.runs) {
            uint32_t run = 1;
            while (!state.mailboxes[self].empty() && state.mailboxes[self].begin()->body() &&
                   state.mailboxes[self].begin()->from == packet.from) {
                state.mailboxes[self].pop();
                ++run;
            }
            expect_ok(state, mine.run_retrieved(from, run));
            send_control(state, self);
            return;
        }
        if (!packet.data) return take_control(state, self, packet);
        if (packet.contact) {
            report(state, self, packet.from);
            expect_ok(state, mine.contact_retrieved(from, 1, packet.ends));
            send_control(state, self);
            if (packet.opens != 0) {
                expect_ok(state, mine.control_arrived(from, ControlKind::kOpen, packet.opens));
                send_control(state, self);
            }
            take_credits(state, self, packet);
            return;
        }
        ++state.unreported[self][packet.from];
        state.unreported_end[self][packet.from].ended |= packet.ends;
        state.unreported_end[self][packet.from].waited |= packet.waited;
        const bool later = options_.batched_reports;
        if (later) take_credits(state, self, packet);
        if (!later) report(state, self, packet.from);
        if (!later) take_credits(state, self, packet);
        // The poll ends.
        if (!options_.runs) mine.settle_run();
    }

    void take_credits(State& state, Process self, const Packet& packet) const {
        if (packet.credits == 0) return;
        const uint32_t lost = options_.bug == Bug::kDropCredit && packet.credits > 1 ? 1 : 0;
        expect_ok(state, state.flow_control[self].credits_arrived(index_of(self, packet.from),
                                                                  packet.credits - lost));
        send_control(state, self);
    }

    void take_control(State& state, Process self, const Packet& packet) const {
        if (packet.kind == ControlKind::kCredits) return take_credits(state, self, packet);
        Flow& mine = state.flow_control[self];
        const flowctl::PeerIndex from = index_of(self, packet.from);
        if (options_.bug != Bug::kRunLate || !packet.contact) report(state, self, packet.from);
        if (packet.costs_a_credit()) {
            expect_ok(state, mine.packets_retrieved(from, 1, {.control = true}));
            send_control(state, self);
        }
        expect_ok(state, mine.control_arrived(from, packet.kind, packet.credits));
        send_control(state, self);
        if (options_.bug == Bug::kRunLate) report(state, self, packet.from);
    }

    void report(State& state, Process self, Process from) const {
        if (state.unreported[self][from] == 0) return;
        expect_ok(state,
                  state.flow_control[self].packets_retrieved(
                      index_of(self, from), state.unreported[self][from], state.unreported_end[self][from]));
        state.unreported[self][from] = 0;
        state.unreported_end[self][from] = {};
        send_control(state, self);
    }

    /// Contact slots of a mailbox that are taken, from the sending of a packet until it is polled.
    [[nodiscard]] bool contact_slot(const State& state, Process to) const {
        uint32_t taken = 0;
        const auto count = [&taken](const auto& queue) {
            for (const Packet& packet : queue) taken += packet.contact;
        };
        count(state.mailboxes[to]);
        for (Process from = 0; from < kProcesses; ++from) count(state.wires[from][to]);
        return taken < options_.plan.contact_slots;
    }

    Status put_on_wire(State& state, Process self, flowctl::PeerIndex peer, ControlKind kind,
                       uint32_t value) const {
        const Process to = process_of(self, peer);
        if (flowctl::fills_contact_slot(kind) && !contact_slot(state, to)) return Status::kAgain;
        if (kind == ControlKind::kCredits && (value == 0 || value > options_.plan.return_max)) {
            state.failure = "an explicit return outside 1 .. return_max";
        }
        state.wires[self][to].push(control_packet(kind, self, value));
        return Status::kOk;
    }
    void send_control(State& state, Process self) const {
        state.flow_control[self].send_control([&](flowctl::PeerIndex peer, ControlKind kind, uint32_t value) {
            return options_.refusals ? Status::kAgain : put_on_wire(state, self, peer, kind, value);
        });
    }
    /// The device takes one packet to one process, and refuses all others.
    void resend_one(State& state, Process self, Process other) const {
        bool taken = false;
        state.flow_control[self].resend_control(
            [&](flowctl::PeerIndex peer, ControlKind kind, uint32_t value) {
                if (taken || process_of(self, peer) != other) return Status::kAgain;
                const Status status = put_on_wire(state, self, peer, kind, value);
                taken = status == Status::kOk;
                return status;
            });
        if (!taken) state.failure = "a control packet that was due did not leave";
    }

    void expect_ok(State& state, Status status) const {
        if (status != Status::kOk && options_.strays == 0) {
            state.failure = "an honest peer was found to break the protocol";
        }
    }

    [[nodiscard]] std::string pair_violation(const State& state, Process from, Process to,
                                             const Travelling& there, const Travelling& back) const {
        const Flow& sender = state.flow_control[from];
        const Flow& receiver = state.flow_control[to];
        const flowctl::PeerIndex to_index = index_of(from, to);
        const flowctl::PeerIndex from_index = index_of(to, from);
        const uint32_t taken = state.unreported[to][from] + receiver.run_packets(from_index);
        const uint32_t elsewhere = sender.credits(to_index) + sender.offered_credits(to_index) +
                                   there.packets + there.given_up + taken + back.credits;
        const bool closing = there.ends + back.ends != 0 ||
                             sender.link(to_index) == flowctl::LinkState::kClosing ||
                             receiver.link(from_index) == flowctl::LinkState::kClosing;
        // Credits under way to a process that closes are void; those in packets, and those that can be used,
        // are not.
        const uint32_t granted = receiver.granted(from_index);
        const uint32_t usable = sender.credits(to_index) + there.packets + taken;
        if (closing ? usable > granted : elsewhere != granted) return "conservation: credits lost or made";
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
        if (!closing && back.requests + there.responses != receiver.blocked(from_index)) {
            return "requests without a response, or responses without a request";
        }
        return {};
    }

    /// Nothing is due, no process waits for an answer, and a sender has at least its minimum quota.
    [[nodiscard]] bool rests(const State& state, Process self, Process other) const {
        const Flow& mine = state.flow_control[self];
        const flowctl::PeerIndex peer = index_of(self, other);
        if (mine.any_control_due(peer)) return false;
        if (options_.plan.mode != flowctl::Mode::kDynamic) return true;
        if (!lends(mine.link(peer))) return mine.link(peer) != flowctl::LinkState::kClosing;
        return !mine.blocked(peer) && mine.granted(peer) >= options_.plan.quota;
    }

    Options options_;
};

}  // namespace velo::exhaustive
