/// Probes of messages that were refused, and so have no record here (MEM does not mention them; without this
/// a probe of such a message never ends).
///
/// Each pattern that is probed has a watch, which is offered once to each flagged sender that the pattern may
/// mean, as receives are, and from then on sees each request of that sender that is refused with the present
/// age. One that fits, and no posted receive, answers the probe. The message stays with its sender; a receive
/// of its exact envelope gets it, since it is the first there that fits.
///
/// Threads probe at the same time, and a program may ask for a thousand sources in turn. So a watch keeps its
/// place until what it found is received, or another pattern wants the place and its answer was fetched, or is known
/// not to be there; a pattern without a place asks again.
///
/// Pure. Owner: the receiver. Thread: the engine's, under its lock. Explored:
/// tests/exhaustive/unexpected_memory_test.cc.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "match/envelope.h"
#include "match/refusals.h"
#include "velo/base/check.h"

namespace velo::match {

class ProbeWatches {
  public:
    static constexpr uint32_t kPlaces = 16;
    /// Patterns in one message to a sender.
    static constexpr uint32_t kOfferedMax = 4;
    static constexpr uint32_t kAnyPeer = ~uint32_t{0};

    /// A message that is with its sender.
    struct Found {
        Envelope envelope;
        uint32_t peer = 0;
        uint64_t message = 0;  ///< the sender's number for it
        uint64_t bytes = 0;
    };

    struct Watch {
        Envelope pattern;
        uint32_t peer = kAnyPeer;
        uint64_t asked = 0;  ///< which probe asked last
        Found found = {};
        uint32_t round = 0;
        bool answered = false;
        bool fetched = false;  ///< the answer was
        bool wanted = true;    ///< a probe has asked in this round
    };

    /// Small ones are for tests.
    struct Limits {
        uint32_t places = kPlaces;
        /// An answer is kept for a probe that does not come again during this number of others.
        uint64_t forgotten_after = 1 << 18;
        uint32_t first_round = 0;  ///< each round of a watch has a number of its own, behind this one
    };

    explicit ProbeWatches(Limits limits) : limits_(limits), round_(limits.first_round) {
        VELO_CHECK(limits.places >= 1 && limits.places <= kPlaces, "%u places for probes", limits.places);
    }

    /// A probe that no record answers. Gives the message that was found for it, and again until that is received.
    [[nodiscard]] std::optional<Found> ask(const Envelope& pattern) {
        ++asked_;
        for (uint32_t i = 0; i < count_; ++i) {
            Watch& watch = watches_[i];
            // The first that fits a pattern is also that of one which leaves less open, if it fits that.
            if (!watch.answered || !covers(watch.pattern, pattern) || !fits(pattern, watch.found.envelope)) continue;
            watch.asked = asked_;
            watch.fetched = true;
            // When this message is received, no other one is wanted before the next probe.
            watch.wanted = false;
            return watch.found;
        }
        if (Watch* const watch = find(pattern)) {
            watch->asked = asked_;
            watch->wanted = true;
        }
        return {};
    }
    /// The pattern has a watch from now on, if there is a place. `peer`: the process that its source is.
    /// `has_seen(peer, round)`: that one, or each that is flagged, was offered the round, and has ended the
    /// pass.
    template <class HasSeen>
    void watch(const Envelope& pattern, uint32_t peer, HasSeen&& has_seen) {
        if (find(pattern) != nullptr) return;
        Watch* const place = count_ < limits_.places ? &watches_[count_++] : replaceable(has_seen);
        if (place == nullptr) return;
        *place = {.pattern = pattern, .peer = peer, .asked = asked_};
        begin(*place);
    }
    void end(const Envelope& pattern) {
        if (Watch* const watch = find(pattern)) remove(*watch);
    }

    [[nodiscard]] std::span<const Watch> all() const { return {watches_.data(), count_}; }
    [[nodiscard]] uint32_t size() const { return count_; }
    /// How often a probe has asked.
    [[nodiscard]] uint64_t asked() const { return asked_; }

    /// Whether there is a round behind this one for the sender.
    [[nodiscard]] bool unoffered(uint32_t peer, uint32_t after) const {
        return next_round(peer, after) != nullptr;
    }
    /// Calls visit(pattern) for these rounds, oldest first. Gives the last round that the sender has been
    /// offered then.
    template <class Visit>
    [[nodiscard]] uint32_t offer(uint32_t peer, uint32_t after, Visit&& visit) const {
        for (uint32_t i = 0; i < kOfferedMax; ++i) {
            const Watch* const next = next_round(peer, after);
            if (next == nullptr) return round_;
            visit(next->pattern);
            after = next->round;
        }
        return after;
    }

    /// A request of the present age was refused; `fit` is the oldest posted receive that fits it. `told`: the
    /// last round that was offered to its sender; kAllRounds, if no message of the sender was refused before.
    /// For a pattern of a later round, an earlier message may be the first that fits.
    void on_refused(const Found& message, PostNumber fit, uint32_t told) {
        for (uint32_t i = count_; i-- != 0;) {
            Watch& watch = watches_[i];
            if (watch.answered || watch.round > told || !fits(watch.pattern, message.envelope)) continue;
            if (fit != kNoPost) {
                // The message will be that receive's, and another one behind it may be the probe's.
                begin(watch);
            } else {
                watch.found = message;
                watch.answered = true;
            }
        }
    }
    static constexpr uint32_t kAllRounds = ~uint32_t{0};

    /// A receive was posted. It is before the probe, if it fits what was found.
    void on_posted(const Envelope& receive) {
        for (uint32_t i = count_; i-- != 0;) {
            Watch& watch = watches_[i];
            if (watch.answered && fits(receive, watch.found.envelope)) begin(watch);
        }
    }
    /// A request was accepted: the message was matched, or has a record, by which a probe finds it. If it is
    /// the one that its sender chose for a probe, another one behind it may be the probe's.
    void on_accepted(const Found& message) {
        for (uint32_t i = count_; i-- != 0;) {
            Watch& watch = watches_[i];
            const bool other = watch.answered &&
                               (watch.found.peer != message.peer || watch.found.message != message.message);
            if (!other && fits(watch.pattern, message.envelope)) begin(watch);
        }
    }
    void on_ended(uint32_t peer) {
        for (uint32_t i = count_; i-- != 0;) {
            Watch& watch = watches_[i];
            if (watch.peer == peer) {
                remove(watch);
            } else if (watch.answered && watch.found.peer == peer) {
                begin(watch);
            }
        }
    }

    /// There are few numbers of rounds left: the senders are to have seen round 0 from now on, and no later
    /// one.
    [[nodiscard]] bool rounds_run_out() const { return round_ > kAllRounds - 4 * kPlaces; }
    void count_rounds_anew() {
        VELO_CHECK(rounds_run_out(), "rounds are counted anew after round %u", round_);
        round_ = 0;
        for (uint32_t i = 0; i < count_; ++i) watches_[i].round = ++round_;
    }

  private:
    [[nodiscard]] const Watch* find(const Envelope& pattern) const {
        for (uint32_t i = 0; i < count_; ++i) {
            if (watches_[i].pattern == pattern) return &watches_[i];
        }
        return nullptr;
    }
    [[nodiscard]] Watch* find(const Envelope& pattern) {
        return const_cast<Watch*>(static_cast<const ProbeWatches*>(this)->find(pattern));
    }
    [[nodiscard]] const Watch* next_round(uint32_t peer, uint32_t after) const {
        const Watch* next = nullptr;
        for (uint32_t i = 0; i < count_; ++i) {
            const Watch& watch = watches_[i];
            if (watch.answered || watch.round <= after || (watch.peer != kAnyPeer && watch.peer != peer))
                continue;
            if (next == nullptr || watch.round < next->round) next = &watch;
        }
        return next;
    }
    template <class HasSeen>
    [[nodiscard]] Watch* replaceable(HasSeen&& has_seen) {
        for (uint32_t i = 0; i < count_; ++i) {
            Watch& watch = watches_[i];
            if (watch.answered ? watch.fetched || asked_ - watch.asked > limits_.forgotten_after
                               : has_seen(watch.peer, watch.round))
                return &watch;
        }
        return nullptr;
    }
    /// A pattern for which no probe has asked since its last round is given up.
    void begin(Watch& watch) {
        if (!watch.wanted) return remove(watch);
        watch.answered = watch.fetched = watch.wanted = false;
        VELO_CHECK(round_ < kAllRounds - 1, "round %u is the last one", round_);
        watch.round = ++round_;
    }
    void remove(Watch& watch) {
        VELO_CHECK(&watch - watches_.data() < count_, "one of %u watches is removed that is not there",
                   count_);
        watch = watches_[--count_];
    }

    std::array<Watch, kPlaces> watches_;
    Limits limits_;
    uint32_t count_ = 0;
    uint32_t round_;
    uint64_t asked_ = 0;
};

}  // namespace velo::match
