/// A probe of messages that were refused, and so have no record here (MEM does not mention it; without this a probe of
/// such a message never ends).
///
/// The watch has the probe's pattern. It is offered once to each flagged sender, as receives are, and from then on sees
/// each request of that sender that is refused with the present age. One that fits, and no posted receive, answers
/// the probe. The message
/// stays with its sender; a receive of its exact envelope gets it, since it is the first there that fits.
///
/// Pure. Owner: the engine, one for each pattern that is probed at a time. Explored:
/// tests/exhaustive/unexpected_memory_test.cc.
#pragma once

#include <cstdint>

#include "match/envelope.h"
#include "match/refusals.h"

namespace velo::match {

class ProbeWatch {
  public:
    /// A message that is with its sender.
    struct Found {
        Envelope envelope;
        uint32_t peer = 0;
        uint64_t message = 0;  ///< the sender's number for it
        uint64_t bytes = 0;
    };

    /// There is a probe, and no record answers it. Nothing changes if it is the one that was there before.
    void watch(const Envelope& pattern) {
        if (active_ && pattern == pattern_) return;
        pattern_ = pattern;
        active_ = true;
        begin();
    }
    void end() { active_ = false; }

    [[nodiscard]] bool active() const { return active_; }
    [[nodiscard]] const Envelope& pattern() const { return pattern_; }
    /// nullptr: none has been found yet.
    [[nodiscard]] const Found* found() const { return active_ && answered_ ? &found_ : nullptr; }
    /// A sender to which an earlier round was offered, or none, is offered this one. 0: none is under way.
    [[nodiscard]] uint32_t round() const { return active_ && !answered_ ? round_ : 0; }

    /// A request of the present age was refused; `fit` is the oldest posted receive that fits it. `told`: this round
    /// was offered to its sender before, or no message of the sender was refused before. Otherwise an earlier one, of
    /// which this round knows nothing, may fit as well.
    void on_refused(const Found& message, PostNumber fit, bool told) {
        if (!active_ || answered_ || !told || !fits(pattern_, message.envelope)) return;
        // It will be that receive's, and another one behind it may be the probe's.
        if (fit != kNoPost) return begin();
        found_ = message;
        answered_ = true;
    }
    /// A receive was posted. It is before the probe, if it fits what was found.
    void on_posted(const Envelope& receive) {
        if (active_ && answered_ && fits(receive, found_.envelope)) begin();
    }

    /// A request was accepted: the message was matched, or has a record, by which the probe finds it. If it is the one
    /// that its sender chose for the probe, another one behind it may be the probe's.
    void on_accepted(const Found& message) {
        if (!active_ || !fits(pattern_, message.envelope)) return;
        if (!answered_ || (found_.peer == message.peer && found_.message == message.message)) begin();
    }

  private:
    void begin() {
        answered_ = false;
        if (++round_ == 0) round_ = 1;
    }

    Envelope pattern_;
    Found found_;
    uint32_t round_ = 0;
    bool active_ = false;
    bool answered_ = false;
};

}  // namespace velo::match
