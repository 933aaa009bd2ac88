/// The receiver that velo has (match/receiver.h), with its hashed queues, pools and lists, walks in step with
/// the model that is explored (unexpected_memory_world.h): the same outcome, offers and ages at every step.
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <span>

#include "match/receiver.h"
#include "tests/exhaustive/unexpected_memory_world.h"

namespace velo::exhaustive {
namespace {

using match::Arrival;
using match::Offers;
using match::PostedReceive;
using match::Receiver;
using match::Record;

constexpr uint32_t kLongBytes = 300;  // two cells
constexpr uint16_t kCellsEach = 2;

/// Of message `id`: inside its record, in cells, or without data and with a number to be kept.
struct Content {
    explicit Content(uint8_t id)
        : bytes(id % 3 == 0   ? 0
                : id % 3 == 1 ? 4
                              : kLongBytes),
          data{},
          keeps_number(id % 3 == 0) {
        std::iota(data, data + bytes, id);
    }

    uint32_t bytes;
    uint8_t data[kLongBytes];
    bool keeps_number;
};

class TwinWorld {
  public:
    using Step = MemoryWorld::Step;
    using Kind = MemoryWorld::Kind;
    using Message = MemoryWorld::Message;
    struct Twin {
        explicit Twin(Receiver::Limits limits) : receiver(limits) {}

        Receiver receiver;
        std::vector<Receiver::Sender> senders;
        std::vector<match::Room> held;
        std::deque<PostedReceive> receives;
    };
    struct State {
        MemoryWorld::State model;
        std::shared_ptr<Twin> twin;
        std::string error;
    };

    TwinWorld(MemoryProgram program, uint32_t spare_cells)
        : program_(program), model_(std::move(program)), spare_cells_(spare_cells) {}

    [[nodiscard]] State initial() const {
        const auto senders = static_cast<uint32_t>(program_.senders.size());
        match::Grants::Terms terms = program_.grant_terms();
        terms.cells_max = kCellsEach * terms.records_max;
        State state;
        state.model = model_.initial();
        state.twin = std::make_shared<Twin>(
            Receiver::Limits{.record_bytes = sizeof(Record) * program_.records_in_all(),
                             .data_bytes = match::DataCells::kCellBytes * (terms.cells_max + spare_cells_),
                             .probes = program_.probes,
                             .grants = terms});
        state.twin->senders.resize(senders);
        state.twin->held.resize(senders);
        for (uint32_t s = 0; s < senders; ++s) {
            Receiver::Sender& sender = state.twin->senders[s];
            sender.peer = s;
            // The model has records only. Cells for all that may be granted are the sender's from the beginning on.
            EXPECT_TRUE(state.twin->receiver.grant(sender, {0, kCellsEach * program_.grants}));
            EXPECT_EQ(sender.granted.take_untold().records(), 0u);
        }
        return state;
    }
    void append_steps(const State& state, std::vector<Step>& steps) const {
        model_.append_steps(state.model, steps);
    }

    uint32_t apply(State& state, Step step) const {
        MemoryWorld::State& model = state.model;
        Twin& twin = *state.twin;
        const MemoryWorld::State before = model;
        if (step.kind == Kind::kCall) return call(state, before);
        MemoryWorld::Sender& sender = model.senders[step.sender];
        Receiver::Sender& known = twin.senders[step.sender];
        model_.apply(model, step);
        switch (step.kind) {
            case Kind::kReceiverHears:
                hears(state, before, step.sender, before.senders[step.sender].to_receiver.front());
                break;
            case Kind::kOffer: {
                Offers::Batch batch;
                const Message& offer = sender.to_sender.back();
                const bool same =
                    twin.receiver.next_offer(known, batch) && batch.age == offer.age && !batch.resend_all &&
                    std::ranges::equal(std::span(batch.receives).first(batch.count), offer.receives);
                if (!same) state.error = "another offer";
                break;
            }
            case Kind::kResendAll:
                if (twin.receiver.resend_all(known) != sender.to_sender.back().age)
                    state.error = "another age";
                break;
            default: break;
        }
        return 0;
    }

    [[nodiscard]] uint32_t goals() const { return model_.goals(); }
    [[nodiscard]] uint32_t goals_met(const State& state) const {
        const Receiver& receiver = state.twin->receiver;
        if (model_.goals_met(state.model) == 0) return 0;
        return receiver.posted().size() == 0 && receiver.unexpected() == 0 ? 1 : 0;
    }
    [[nodiscard]] std::string violation(const State& state) const {
        if (!state.error.empty()) return state.error;
        if (std::string what = model_.violation(state.model); !what.empty()) return what;
        Receiver& receiver = state.twin->receiver;
        if (receiver.posted().size() != state.model.posted.size()) return "other receives are posted";
        if (receiver.unexpected() != state.model.records.size()) return "other messages have records";
        std::vector<Step> steps;
        model_.append_steps(state.model, steps);
        uint32_t flagged = 0;
        for (uint8_t s = 0; s < state.model.senders.size(); ++s) {
            const MemoryWorld::Sender& sender = state.model.senders[s];
            flagged += sender.refusals.flagged() ? 1 : 0;
            if (state.twin->senders[s].offers.refusals.flagged() != sender.refusals.flagged())
                return "other flags";
            const bool offers = std::ranges::any_of(
                steps, [&](const Step& step) { return step.kind == Kind::kOffer && step.sender == s; });
            Offers::Batch batch;
            const bool silent = !offers && sender.to_sender.size() < 8;
            if (silent && receiver.next_offer(state.twin->senders[s], batch)) return "an offer of nothing";
        }
        uint32_t visited = 0;
        receiver.for_each_flagged([&](const Receiver::Sender&) { ++visited; });
        return visited == flagged && receiver.flagged() == flagged ? "" : "another number of flagged senders";
    }
    void append_key(const State& state, Key& key) const { model_.append_key(state.model, key); }
    [[nodiscard]] std::string describe(Step step) const { return model_.describe(step); }
    [[nodiscard]] uint32_t step_class(Step step) const { return model_.step_class(step); }

  private:
    using Outcome = Receiver::Outcome;

    [[nodiscard]] match::Envelope envelope(uint8_t s, uint8_t id) const {
        const MemoryProgram::Send& send = program_.senders[s][id];
        return {.context = send.context, .source = s, .tag = send.tag};
    }

    /// As the engine asks: first for what most messages need.
    [[nodiscard]] static Receiver::Result eager_result(Receiver& receiver, Receiver::Sender& sender,
                                                       const Arrival& arrival) {
        PostedReceive* const plain = match::Unmatched::fits_inside(arrival.bytes, arrival.keeps_number)
                                         ? receiver.match_plain(sender, arrival.envelope)
                                         : nullptr;
        return plain != nullptr ? Receiver::Result{Outcome::kMatched, plain} : receiver.on_eager(sender, arrival);
    }
    void hears(State& state, const MemoryWorld::State& before, uint8_t s, const Message& message) const {
        Twin& twin = *state.twin;
        Receiver::Sender& sender = twin.senders[s];
        if (message.kind == Message::Kind::kEnd) {
            if (!twin.receiver.on_end(sender, message.age)) state.error = "an end of no pass";
            return;
        }
        const Content content(message.id);
        const bool eager = message.kind == Message::Kind::kEager;
        // Some requests bring no data, or a part of it.
        const uint32_t along = eager ? content.bytes : content.bytes * (message.id % 4) / 3;
        const Arrival arrival = {.envelope = envelope(s, message.id),
                                 .number = message.id + 1u,
                                 .bytes = content.bytes,
                                 .data = reinterpret_cast<const std::byte*>(content.data),
                                 .data_bytes = std::min(along, content.bytes),
                                 .keeps_number = content.keeps_number,
                                 .waiting_width = message.waiting_width};
        const Receiver::Result result =
            eager ? eager_result(twin.receiver, sender, arrival)
                  : twin.receiver.on_request(sender, arrival, message.age, message.first);
        const bool matches = state.model.posted.size() != before.posted.size();
        const bool records = state.model.records.size() != before.records.size();
        const bool refuses = !matches && !records;
        const bool recorded = result.outcome == Outcome::kRecorded || result.outcome == Outcome::kDataless;
        if (matches != (result.outcome == Outcome::kMatched) || records != recorded ||
            refuses != (result.outcome == Outcome::kRefused)) {
            state.error = "another outcome";
            return;
        }
        if (!eager && !refuses) {
            twin.receiver.grant_more(sender, twin.held[s], 0);  // lengths are not in the model
            const uint32_t granted = state.model.senders[s].to_sender.back().grants;
            if (sender.granted.take_untold().records() != granted) state.error = "another grant";
        }
        if (!matches) return;
        const auto gone = std::ranges::find_if(before.posted, [&](const MemoryWorld::Posted& posted) {
            return std::ranges::find(state.model.posted, posted.number, &MemoryWorld::Posted::number) ==
                   state.model.posted.end();
        });
        if (result.receive->posted.number != gone->number) state.error = "another receive";
        if (eager && sender.granted.take_untold().records() != 1) state.error = "a grant that was lost";
    }

    uint32_t call(State& state, const MemoryWorld::State& before) const {
        MemoryWorld::State& model = state.model;
        Receiver& receiver = state.twin->receiver;
        const MemoryProgram::Call& call = model_.next_call(before, 0);
        const match::Envelope pattern = {.context = call.context, .source = call.source, .tag = call.tag};
        const auto named = [&](int32_t source) {
            return source == match::kAnySource ? nullptr : &state.twin->senders[static_cast<size_t>(source)];
        };
        model_.apply(model, {});
        if (call.kind == MemoryProgram::Kind::kPoll) {
            (void)receiver.probe(pattern, named(pattern.source));
            return 0;
        }
        if (call.kind == MemoryProgram::Kind::kProbe) {
            const Receiver::Probed probed = receiver.probe(pattern, named(pattern.source));
            const bool found = model.threads[0].calls != before.threads[0].calls;
            if (probed.found != found) state.error = "another result of a probe";
            if (!found || !probed.found) return 0;
            const int message = model.threads[0].probed;
            const auto id = static_cast<uint8_t>(message % 64);
            const bool same = probed.peer == static_cast<uint32_t>(message / 64) &&
                              probed.bytes == Content(id).bytes &&
                              probed.envelope == envelope(static_cast<uint8_t>(probed.peer), id);
            if (!same) state.error = "a probe that finds another message";
            return 0;
        }
        match::Envelope receive = pattern;
        if (call.probed) {
            const int message = before.threads[0].probed;
            receive = envelope(static_cast<uint8_t>(message / 64), static_cast<uint8_t>(message % 64));
        }
        PostedReceive& posted = state.twin->receives.emplace_back();
        const match::RecordRef found = receiver.post(posted, receive, named(receive.source));
        const bool came_before = found != match::kNoRecord;
        if (came_before != (model.records.size() != before.records.size())) {
            state.error = "a receive with another outcome";
        } else if (came_before) {
            check_taken(state, before, receiver.take(found));
        } else if (posted.posted.number != model.posted.back().number) {
            state.error = "another number of a receive";
        }
        return 0;
    }

    void check_taken(State& state, const MemoryWorld::State& before, const Record& taken) const {
        const auto gone =
            std::ranges::mismatch(before.records, state.model.records,
                                  [](const MemoryWorld::Record& a, const MemoryWorld::Record& b) {
                                      return a.sender == b.sender && a.id == b.id;
                                  })
                .in1;
        const Content content(gone->id);
        const match::Unmatched message(taken);
        std::vector<uint8_t> data;
        state.twin->receiver.for_each_piece(taken, [&](const std::byte* piece, uint32_t bytes) {
            data.insert(data.end(), reinterpret_cast<const uint8_t*>(piece),
                        reinterpret_cast<const uint8_t*>(piece) + bytes);
        });
        const bool same = message.peer() == gone->sender && message.bytes() == content.bytes &&
                          message.granted() == gone->granted && data.size() == message.bytes_here() &&
                          (message.inside() || message.number() == gone->id + 1u) &&
                          data.size() <= content.bytes &&
                          std::equal(data.begin(), data.end(), content.data) &&
                          (!gone->granted || data.size() == content.bytes);
        if (!same) state.error = "another message, or other data";
        Receiver::Sender& sender = state.twin->senders[gone->sender];
        state.twin->receiver.release(taken, &sender);
        if (sender.granted.take_untold().records() != (gone->granted ? 1u : 0u))
            state.error = "a grant that was lost";
    }

    MemoryProgram program_;
    MemoryWorld model_;
    uint32_t spare_cells_;
};

TEST(MatchReceiver, walks_in_step_with_the_explored_model) {
    for (uint64_t seed = 1; seed <= 4000; ++seed) {
        Random random(seed);
        MemoryProgram program = long_program(random, seed % 2 == 0);
        program.offers_max = Offers::kReceivesMax;
        // Their numbers run out in some.
        if (seed % 8 == 0)
            program.probes.first_round = ~0u - match::ProbeWatches::kPlaces * 4 - random.below(8);
        const Verdict verdict = walk(TwinWorld(program, random.below(4)), seed, 100'000);
        ASSERT_TRUE(verdict.holds()) << verdict.what;
    }
}

}  // namespace
}  // namespace velo::exhaustive
