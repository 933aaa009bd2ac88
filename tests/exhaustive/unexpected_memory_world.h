/// Senders and one receiver that has little memory for unexpected messages, for the explorer: MPI programs
/// in, and every interleaving of their calls and of the messages between them. Each match is compared with
/// MPI's rules; each program must be able to end from every state.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "match/envelope.h"
#include "match/pending_sends.h"
#include "match/probe_watches.h"
#include "match/refusals.h"
#include "tests/exhaustive/explorer.h"
#include "tests/exhaustive/unexpected_memory_program.h"

namespace velo::exhaustive {

class MemoryWorld {
  public:
    enum class Kind : uint8_t { kSend, kTransmit, kReceiverHears, kSenderHears, kCall, kOffer, kResendAll };
    struct Step {
        Kind kind = Kind::kCall;
        uint8_t sender = 0;  ///< of a call: the thread
    };
    struct Message {
        enum class Kind : uint8_t {
            kEager,
            kRequest,
            kEnd,
            kGrant,
            kAccepted,
            kRefused,
            kOffers,
            kResendAll
        };

        Kind kind;
        uint8_t id = 0;
        bool first = false;
        uint8_t waiting_width = 0;  ///< of a request, where room is granted
        uint32_t grants = 0;        ///< that come with an answer
        uint32_t age = 0;
        std::vector<match::Envelope> receives = {};
    };
    /// All messages of a sender by their number, and which of them are not accepted yet.
    struct Queue {
        using Ref = int;
        static constexpr Ref kNone = -1;

        [[nodiscard]] match::Pending<Ref>& at(Ref ref) { return all[static_cast<size_t>(ref)]; }
        [[nodiscard]] bool has(uint64_t id) const { return (waiting >> id & 1) != 0; }
        [[nodiscard]] Ref first_fit(const match::Envelope& receive, uint32_t age) const {
            for (const match::Pending<Ref>& one : all) {
                const bool fits = has(one.number) && match::fits(receive, one.envelope);
                if (fits && one.chosen_age != age) return static_cast<Ref>(one.number);
            }
            return kNone;
        }

        std::vector<match::Pending<Ref>> all;
        uint64_t waiting = 0;
    };
    struct Sender {
        Queue queue;
        match::PendingSends<Queue> machine;
        match::Refusals refusals;  ///< the receiver's
        std::vector<Message> to_receiver;
        std::vector<Message> to_sender;
        uint32_t grants = 0;  ///< that it knows of, and has not used
        match::Room held;     ///< granted to it, as the receiver knows
        uint32_t probe_round = 0;  ///< that was offered to it
        uint8_t sent = 0;
        uint64_t matched = 0;  ///< bits
    };
    struct Posted {
        match::Envelope envelope;
        match::PostNumber number;
        uint8_t thread = 0;
        int expected = -1;  ///< sender and message, of a receive for a message that was probed
    };
    struct Record {
        uint8_t sender;
        uint8_t id;
        bool granted;
    };
    struct Thread {
        uint8_t calls = 0;
        bool waiting = false;
        int probed = -1;  ///< sender and message
    };
    struct State {
        std::vector<Sender> senders;
        std::vector<Thread> threads;
        std::vector<Posted> posted;
        std::vector<Record> records;
        match::PostNumber next_post = 0;
        match::ProbeWatches watches{{}};
        match::Grants grants{{}};
        uint32_t requests = 0;  ///< not part of the key
        std::string error;
    };

    explicit MemoryWorld(MemoryProgram program) : program_(std::move(program)) {
        calls_.push_back(program_.calls);
        calls_.insert(calls_.end(), program_.other_calls.begin(), program_.other_calls.end());
    }
    [[nodiscard]] const MemoryProgram::Call& next_call(const State& state, uint8_t thread) const {
        return calls_[thread][state.threads[thread].calls];
    }

    [[nodiscard]] State initial() const {
        State state;
        state.watches = match::ProbeWatches(program_.probes);
        state.threads.resize(calls_.size());
        state.senders.resize(program_.senders.size());
        state.grants = match::Grants(program_.grant_terms());
        return state;
    }

    void append_steps(const State& state, std::vector<Step>& steps) const {
        for (uint8_t s = 0; s < state.senders.size(); ++s) {
            const Sender& sender = state.senders[s];
            const auto& program = program_.senders[s];
            const uint32_t last = sender.sent - 1u;
            const bool blocked = sender.sent != 0 && program[last].waits && sender.queue.has(last);
            if (sender.sent < program.size() && !blocked) steps.push_back({Kind::kSend, s});
            if (sender.to_receiver.size() < program_.channel_max) {
                Sender copy = sender;
                if (copy.machine.next(copy.queue, program_.window).kind != Next::Kind::kNothing) {
                    steps.push_back({Kind::kTransmit, s});
                }
            }
            if (!sender.to_receiver.empty()) steps.push_back({Kind::kReceiverHears, s});
            if (!sender.to_sender.empty()) steps.push_back({Kind::kSenderHears, s});
            const match::Refusals& refusals = sender.refusals;
            const bool open = refusals.pass_open() && program_.reading != Reading::kOffersUnended;
            if (!refusals.flagged() || open) continue;
            const bool wanted = !unoffered(state, s).empty() || probe_unoffered(state, s);
            if (program_.reading != Reading::kNoOffers && sender.to_sender.size() < 8 && wanted) {
                steps.push_back({Kind::kOffer, s});
            }
            if (program_.full_passes && has_record(state))
                steps.push_back({Kind::kResendAll, s});
        }
        for (uint8_t t = 0; t < state.threads.size(); ++t) {
            const Thread& thread = state.threads[t];
            const bool waits =
                thread.waiting && std::ranges::find(state.posted, t, &Posted::thread) != state.posted.end();
            if (thread.calls != calls_[t].size() && !waits) steps.push_back({Kind::kCall, t});
        }
    }

    uint32_t apply(State& state, Step step) const {
        Sender* const sender = step.kind == Kind::kCall ? nullptr : &state.senders[step.sender];
        switch (step.kind) {
            case Kind::kSend: send(*sender, step.sender); break;
            case Kind::kTransmit: transmit(state, *sender); break;
            case Kind::kReceiverHears: receiver_hears(state, step.sender); break;
            case Kind::kSenderHears: sender_hears(state, *sender); break;
            case Kind::kCall: call(state, step.sender); break;
            case Kind::kOffer: offer(state, step.sender); break;
            case Kind::kResendAll:
                sender->to_sender.push_back(
                    {.kind = Message::Kind::kResendAll, .age = sender->refusals.resend_all()});
                break;
        }
        return 0;
    }

    [[nodiscard]] uint32_t goals() const { return 1; }
    [[nodiscard]] uint32_t goals_met(const State& state) const {
        for (size_t t = 0; t < calls_.size(); ++t) {
            if (state.threads[t].calls < calls_[t].size() || !state.posted.empty()) return 0;
        }
        for (size_t s = 0; s < state.senders.size(); ++s) {
            if (state.senders[s].sent < program_.senders[s].size() || state.senders[s].queue.waiting != 0)
                return 0;
        }
        return 1;
    }

    [[nodiscard]] std::string violation(const State& state) const {
        if (!state.error.empty()) return state.error;
        if (taken(state) > program_.records_in_all()) return "more records than the budget has";
        if (state.grants.records() > program_.grants * state.senders.size()) return "more grants than the limit";
        if (state.requests > program_.requests_max) return "more requests than the limit";
        for (const Sender& sender : state.senders) {
            if (sender.grants > sender.held.records()) return "a sender with more grants than it holds";
            // One answer for each request, and one pass: with so much space the receiver never waits for any.
            const auto answers = std::ranges::count_if(
                sender.to_sender, [](const Message& one) { return one.kind != Message::Kind::kGrant; });
            if (program_.reading == Reading::kProduction && answers > program_.window + 1) {
                return "more to a sender than its window and a pass";
            }
        }
        return {};
    }

    void append_key(const State& state, Key& key) const {
        const auto put = [&key](uint64_t value) { key.push_back(static_cast<uint8_t>(value)); };
        for (const Sender& sender : state.senders) {
            const uint32_t age = sender.refusals.age();
            put(sender.sent);
            put(sender.grants);
            put(sender.held.records());
            for (const auto& watch : state.watches.all()) put(sender.probe_round >= watch.round);
            put(sender.matched);
            put(sender.matched >> 8);
            put(sender.refusals.flagged() + 2 * sender.refusals.pass_open() + 4 * sender.machine.end_owed());
            put(sender.refusals.flagged() ? sender.refusals.seen() : 0);
            put(age - sender.machine.age());
            put(sender.machine.unanswered());
            put(sender.machine.end_owed() ? sender.machine.pass_end() : 0);
            put(sender.queue.waiting);
            put(sender.queue.waiting >> 8);
            Queue queue = sender.queue;
            for (const auto& one : sender.queue.all) {
                if (!queue.has(one.number)) continue;
                const auto of = sender.machine.state_of(queue, static_cast<int>(one.number));
                put(static_cast<uint32_t>(of) + 4 * (one.chosen_age == sender.machine.age()));
            }
            for (const auto* channel : {&sender.to_receiver, &sender.to_sender}) {
                put(channel->size());
                for (const Message& message : *channel) {
                    put(static_cast<uint32_t>(message.kind) + 16 * message.first + 32 * message.waiting_width);
                    put(message.id);
                    put(message.grants);
                    put(age - message.age);
                    put(message.receives.size());
                    for (const match::Envelope& one : message.receives)
                        put(one.context), put(one.source), put(one.tag);
                }
            }
        }
        put(state.posted.size());
        for (const Posted& one : state.posted) put(one.number);
        put(state.records.size());
        for (const Record& one : state.records) put(one.sender), put(one.id), put(one.granted);
        for (const Thread& one : state.threads)
            put(one.calls), put(one.waiting), put(static_cast<uint32_t>(one.probed));
        const std::span watches = state.watches.all();
        put(watches.size());
        for (const auto& watch : watches) {
            put(watch.pattern.context), put(watch.pattern.source), put(watch.pattern.tag);
            put(watch.wanted + 2 * watch.answered + 4 * watch.fetched);
            put(std::ranges::count_if(watches, [&](const auto& other) { return other.round < watch.round; }));
            if (!watch.answered) continue;
            put(name(watch.found.peer, watch.found.message));
            put(std::min(state.watches.asked() - watch.asked, program_.probes.forgotten_after + 1));
        }
        for (const Posted& one : state.posted) put(one.thread), put(static_cast<uint32_t>(one.expected));
        put(state.error.size());
    }

    [[nodiscard]] std::string describe(Step step) const {
        static constexpr const char* kNames[] = {"send", "transmit", "receiver-hears", "sender-hears",
                                                 "call", "offer",    "resend-all"};
        return std::string(kNames[static_cast<size_t>(step.kind)]) + std::to_string(step.sender);
    }
    [[nodiscard]] uint32_t step_class(Step step) const {
        return static_cast<uint32_t>(step.kind) + 8u * step.sender;
    }

  private:
    using Next = match::PendingSends<Queue>::Next;

    /// Records in use or set aside.
    [[nodiscard]] static uint64_t taken(const State& state) {
        return static_cast<uint64_t>(std::ranges::count(state.records, false, &Record::granted)) +
               state.grants.records();
    }
    [[nodiscard]] bool has_record(const State& state) const { return taken(state) < program_.records_in_all(); }
    [[nodiscard]] match::Envelope envelope(uint8_t s, uint32_t id) const {
        const MemoryProgram::Send& send = program_.senders[s][id];
        return {.context = send.context, .source = s, .tag = send.tag};
    }
    [[nodiscard]] static std::vector<Posted>::iterator oldest_fit(State& state,
                                                                  const match::Envelope& message) {
        return std::ranges::find_if(state.posted,
                                    [&](const Posted& one) { return match::fits(one.envelope, message); });
    }
    [[nodiscard]] static match::Envelope envelope(const MemoryProgram::Call& call) {
        return {.context = call.context, .source = call.source, .tag = call.tag};
    }
    [[nodiscard]] std::vector<Posted> unoffered(const State& state, uint8_t s) const {
        std::vector<Posted> found;
        for (const Posted& one : state.posted) {
            const bool of_sender = one.envelope.source == match::kAnySource || one.envelope.source == s;
            if (one.number >= state.senders[s].refusals.seen() && of_sender) found.push_back(one);
        }
        return found;
    }

    [[nodiscard]] bool probe_unoffered(const State& state, uint8_t s) const {
        return state.watches.unoffered(s, state.senders[s].probe_round) &&
               program_.reading != Reading::kProbeUnoffered;
    }
    static int name(uint32_t s, uint64_t id) { return static_cast<int>(64 * s + id); }
    /// The sender and message of a record that a probe finds, or -1.
    [[nodiscard]] int recorded(const State& state, const match::Envelope& pattern) const {
        for (const Record& one : state.records) {
            if (match::fits(pattern, envelope(one.sender, one.id))) return name(one.sender, one.id);
        }
        return -1;
    }

    void send(Sender& sender, uint8_t s) const {
        const bool alone = sender.queue.waiting == 0 || program_.reading == Reading::kEagerPastQueue;
        const uint8_t id = sender.sent++;
        sender.queue.all.push_back({});
        match::Pending<int>& pending = sender.queue.all.back();
        pending.number = id;
        pending.envelope = envelope(s, id);
        if (alone && sender.grants != 0) {
            --sender.grants;
            sender.to_receiver.push_back({.kind = Message::Kind::kEager, .id = id});
            return;
        }
        sender.queue.waiting |= uint64_t{1} << id;
        sender.machine.add(sender.queue, id);
    }

    void transmit(State& state, Sender& sender) const {
        const Next next = sender.machine.next(sender.queue, program_.window);
        if (next.kind == Next::Kind::kEnd) {
            sender.to_receiver.push_back({.kind = Message::Kind::kEnd, .age = next.age});
            return;
        }
        ++state.requests;
        const auto id = static_cast<uint8_t>(sender.queue.at(next.ref).number);
        const bool first = next.first || program_.reading == Reading::kAllAreFirst;
        const int width = program_.grants == 0 ? 0 : std::bit_width(next.waiting - 1);
        sender.to_receiver.push_back({.kind = Message::Kind::kRequest,
                                      .id = id,
                                      .first = first,
                                      .waiting_width = static_cast<uint8_t>(width),
                                      .age = next.age});
    }

    void receiver_hears(State& state, uint8_t s) const {
        Sender& sender = state.senders[s];
        const Message message = sender.to_receiver.front();
        sender.to_receiver.erase(sender.to_receiver.begin());
        if (message.kind == Message::Kind::kEnd) {
            if (!sender.refusals.on_end(message.age) && program_.reading != Reading::kOffersUnended) {
                state.error = "an end of no pass";
            }
            return;
        }
        if (message.kind == Message::Kind::kEager) {
            const auto fit = oldest_fit(state, envelope(s, message.id));
            if (fit == state.posted.end()) {
                state.records.push_back({s, message.id, true});
                return;
            }
            matched(state, s, message.id, *fit);
            state.posted.erase(fit);
            sender.to_sender.push_back({.kind = Message::Kind::kGrant});
            return;
        }
        const bool accepted = receive_request(state, s, message);
        sender.to_sender.push_back({.kind = accepted ? Message::Kind::kAccepted : Message::Kind::kRefused,
                                    .id = message.id,
                                    .grants = accepted ? grant_more(state, s) : 0,
                                    .age = message.age});
    }
    /// Grants as match::Receiver does. Room that is free again is reported at once. Returns records granted.
    uint32_t grant_more(State& state, uint8_t s) const {
        Sender& sender = state.senders[s];
        const auto used = std::ranges::count_if(
            state.records, [s](const Record& one) { return one.sender == s && one.granted; });
        const match::Room room = state.grants.next(
            sender.held, {.told_records = sender.held.records() - static_cast<uint32_t>(used),
                          .waiting = sender.refusals.waiting_max()});
        if (taken(state) + room.records() > program_.records_in_all()) return 0;
        state.grants.grant(room);
        sender.held += room;
        return room.records();
    }

    bool receive_request(State& state, uint8_t s, const Message& message) const {
        using Answer = match::Refusals::Verdict;
        match::Refusals& refusals = state.senders[s].refusals;
        refusals.told_waiting(message.waiting_width);
        const match::Envelope envelope = this->envelope(s, message.id);
        const auto fit = oldest_fit(state, envelope);
        const match::PostNumber number = fit == state.posted.end() ? match::kNoPost : fit->number;
        const uint32_t age = program_.reading == Reading::kAgeIgnored ? refusals.age() : message.age;
        Answer verdict = refusals.on_request(age, message.first, number);
        const bool right_age = age == refusals.age();
        if (right_age && refusals.flagged()) {
            if (program_.reading == Reading::kNotSticky && fit == state.posted.end())
                verdict = Answer::kRecord;
            if (program_.reading == Reading::kSeesAll && fit != state.posted.end()) verdict = Answer::kMatch;
            if (program_.reading == Reading::kFlaggedRefused) verdict = Answer::kRefuse;
        }
        if (verdict == Answer::kMatch) {
            matched(state, s, message.id, *fit);
            state.posted.erase(fit);
            return true;
        }
        if (verdict == Answer::kRefuse) {
            if (right_age) refused(state, s, message.id, number, true);
            return false;
        }
        if (fit != state.posted.end()) state.error = "a message gets a record although a receive fits";
        if (!has_record(state)) {
            const bool flagged = refusals.flagged();
            if (!flagged) state.senders[s].probe_round = 0;
            refusals.refuse(state.next_post);
            refused(state, s, message.id, number, flagged);
            return false;
        }
        state.records.push_back({s, message.id, false});
        state.watches.on_accepted(found(s, message.id));
        return true;
    }
    [[nodiscard]] match::ProbeWatches::Found found(uint8_t s, uint8_t id) const {
        return {.envelope = envelope(s, id), .peer = s, .message = id};
    }
    void refused(State& state, uint8_t s, uint8_t id, match::PostNumber fit, bool flagged) const {
        if (program_.reading == Reading::kProbePassesBy) fit = match::kNoPost;
        const bool told = !flagged || program_.reading == Reading::kProbeUntold;
        state.watches.on_refused(found(s, id), fit,
                                 told ? match::ProbeWatches::kAllRounds : state.senders[s].probe_round);
    }

    /// Against MPI's rules: no message of the same sender that was sent before and fits, and no receive that
    /// was posted before and fits.
    void matched(State& state, uint8_t s, uint8_t id, const Posted& posted) const {
        for (uint8_t earlier = 0; earlier < id; ++earlier) {
            const bool open = (state.senders[s].matched >> earlier & 1) == 0;
            if (open && match::fits(posted.envelope, envelope(s, earlier)))
                state.error = "a message was overtaken";
        }
        for (const Posted& other : state.posted) {
            if (other.number < posted.number && match::fits(other.envelope, envelope(s, id))) {
                state.error = "a receive was passed over";
            }
        }
        if (posted.expected >= 0 && posted.expected != name(s, id)) {
            state.error = "another message than the probe found";
        }
        if (program_.reading != Reading::kAcceptedUnseen) state.watches.on_accepted(found(s, id));
        state.senders[s].matched |= uint64_t{1} << id;
    }

    void sender_hears(State& state, Sender& sender) const {
        const Message message = sender.to_sender.front();
        sender.to_sender.erase(sender.to_sender.begin());
        const bool answer =
            message.kind == Message::Kind::kAccepted || message.kind == Message::Kind::kRefused;
        if (answer && !sender.queue.has(message.id)) {
            state.error = "an answer for a message that has left";
            return;
        }
        switch (message.kind) {
            case Message::Kind::kGrant: ++sender.grants; break;
            case Message::Kind::kAccepted:
                sender.grants += message.grants;
                if (!sender.machine.on_accepted(sender.queue, message.id)) {
                    state.error = "a message is taken that was requested with an older age";
                }
                sender.queue.waiting &= ~(uint64_t{1} << message.id);
                break;
            case Message::Kind::kRefused: {
                const bool counts = program_.reading == Reading::kOldRefusalCounts;
                const uint32_t age = counts ? sender.machine.age() : message.age;
                if (!sender.machine.on_refused(sender.queue, message.id, age))
                    state.error = "a refusal of nothing";
                break;
            }
            case Message::Kind::kOffers:
                if (program_.reading == Reading::kOneFitForTwo) {
                    // As if each were offered alone.
                    for (const match::Envelope& receive : message.receives) {
                        for (auto& pending : sender.queue.all) pending.chosen_age = 0;
                        sender.machine.on_offers(sender.queue, message.age, &receive, 1);
                    }
                } else {
                    sender.machine.on_offers(sender.queue, message.age, message.receives.data(),
                                             static_cast<uint32_t>(message.receives.size()));
                }
                if (program_.reading == Reading::kEndsAtOnce) {
                    sender.to_receiver.push_back({.kind = Message::Kind::kEnd, .age = message.age});
                }
                break;
            default: sender.machine.on_resend_all(sender.queue, message.age); break;
        }
    }

    void call(State& state, uint8_t t) const {
        const MemoryProgram::Call& call = next_call(state, t);
        if (call.kind != MemoryProgram::Kind::kReceive) return probe(state, t, call);
        Thread& thread = state.threads[t];
        ++thread.calls;
        thread.waiting = call.waits;
        Posted posted = {.envelope = envelope(call), .number = state.next_post, .thread = t};
        if (call.probed) {
            const auto s = static_cast<uint8_t>(thread.probed / 64);
            posted.expected = thread.probed;
            posted.envelope = envelope(s, static_cast<uint32_t>(thread.probed % 64));
            thread.probed = -1;
        }
        const auto record = std::ranges::find_if(state.records, [&](const Record& one) {
            return match::fits(posted.envelope, envelope(one.sender, one.id));
        });
        if (record != state.records.end()) {
            matched(state, record->sender, record->id, posted);
            Sender& sender = state.senders[record->sender];
            if (record->granted) sender.to_sender.push_back({.kind = Message::Kind::kGrant});
            state.records.erase(record);
            return;
        }
        ++state.next_post;
        state.posted.push_back(posted);
        if (program_.reading != Reading::kProbeStays) state.watches.on_posted(posted.envelope);
    }

    void probe(State& state, uint8_t t, const MemoryProgram::Call& call) const {
        const match::Envelope pattern = envelope(call);
        int found = recorded(state, pattern);
        if (found >= 0) {
            state.watches.end(pattern);
        } else if (const auto answer = state.watches.ask(pattern)) {
            found = name(answer->peer, answer->message);
        } else {
            watch(state, pattern);
        }
        Thread& thread = state.threads[t];
        if (call.kind == MemoryProgram::Kind::kProbe && found < 0) return;
        ++thread.calls;
        thread.waiting = false;
        if (call.kind == MemoryProgram::Kind::kPoll) return;
        thread.probed = found;
        const auto s = static_cast<uint8_t>(found / 64);
        for (int earlier = 0; earlier < found % 64; ++earlier) {
            const bool open = (state.senders[s].matched >> earlier & 1) == 0;
            if (open && match::fits(pattern, envelope(s, static_cast<uint32_t>(earlier)))) {
                state.error = "a probe finds a message before an earlier one";
            }
        }
        for (const Posted& one : state.posted) {
            if (match::fits(one.envelope, envelope(s, static_cast<uint32_t>(found % 64)))) {
                state.error = "a probe finds a message that is a receive's";
            }
        }
    }
    static void watch(State& state, const match::Envelope& pattern) {
        const auto is_meant = [&](const Sender& sender, uint32_t peer) {
            const bool any = peer == match::ProbeWatches::kAnyPeer;
            return sender.refusals.flagged() && (any || &sender == &state.senders[peer]);
        };
        const uint32_t peer = pattern.source == match::kAnySource ? match::ProbeWatches::kAnyPeer
                                                                  : static_cast<uint32_t>(pattern.source);
        if (std::ranges::none_of(state.senders, [&](const Sender& sender) { return is_meant(sender, peer); }))
            return;
        if (state.watches.rounds_run_out()) {
            for (Sender& sender : state.senders) sender.probe_round = 0;
            state.watches.count_rounds_anew();
        }
        state.watches.watch(pattern, peer, [&](uint32_t other, uint32_t round) {
            return std::ranges::none_of(state.senders, [&](const Sender& sender) {
                return is_meant(sender, other) && (sender.probe_round < round || sender.refusals.pass_open());
            });
        });
    }

    void offer(State& state, uint8_t s) const {
        std::vector<Posted> open = unoffered(state, s);
        match::PostNumber end = state.next_post;
        if (open.size() > program_.offers_max) {
            end = open[program_.offers_max].number;
            open.resize(program_.offers_max);
        }
        Message message = {.kind = Message::Kind::kOffers};
        match::Refusals& refusals = state.senders[s].refusals;
        if (refusals.pass_open() && !refusals.on_end(refusals.age())) return;
        message.age = refusals.offer(end);
        for (const Posted& one : open) message.receives.push_back(one.envelope);
        if (probe_unoffered(state, s)) {
            uint32_t& round = state.senders[s].probe_round;
            round = state.watches.offer(
                s, round, [&](const match::Envelope& pattern) { message.receives.push_back(pattern); });
        }
        state.senders[s].to_sender.push_back(std::move(message));
    }

    MemoryProgram program_;
    std::vector<std::vector<MemoryProgram::Call>> calls_;
};

}  // namespace velo::exhaustive
