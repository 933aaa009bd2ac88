/// The receiver's memory of one sender whose messages it refused for want of unexpected memory (MEM 4.2 to 4.4).
///
/// A refused message stays with its sender and is offered again. Two rules keep MPI's order meanwhile:
///
/// - *Sticky*: once a message was refused, no later one of that sender gets a record before all are sent
///   again, in a full pass. Each may still match a posted receive.
/// - *Offers*: a receive that is posted while the sender is flagged is not seen by its messages until it was
///   offered, which makes the sender repeat the first refused message that fits. An offer, and a full pass,
///   change the age; a message of an older age, sent before its sender knew, is refused, and repeated as if
///   it had not been sent.
///
/// The paper changes the age with every receive and has all refused messages repeated each time (MEM 4.3);
/// that is safe, but a queue of n messages is then sent n^2 / 2 times. Here the sender is notified of each
/// change of the age, so nothing is refused only because another receive was posted meanwhile.
///
/// A message before which its sender has no other one that waits, a *first* one, cannot overtake, and none of this
/// holds for it but the age.
///
/// Pure. Owner: the engine's state of a peer that talks. Explored: tests/exhaustive/unexpected_memory_test.cc.
#pragma once

#include <algorithm>
#include <cstdint>

#include "velo/base/check.h"

namespace velo::match {

/// The number that a receive gets when it is posted.
using PostNumber = uint64_t;
inline constexpr PostNumber kNoPost = ~PostNumber{0};

class Refusals {
  public:
    enum class Verdict : uint8_t {
        kMatch,   ///< with the oldest receive that fits
        kRecord,  ///< as an unexpected message; if there is no memory, refuse() comes next
        kRefuse,
    };

    /// A request to send comes; `fit` is the oldest posted receive that fits it, or kNoPost.
    [[nodiscard]] Verdict on_request(uint32_t age, bool first, PostNumber fit) const {
        if (age != age_) return Verdict::kRefuse;
        const bool sees_all = first || !flagged_;
        if (fit != kNoPost && (sees_all || fit < seen_)) return Verdict::kMatch;
        return sees_all ? Verdict::kRecord : Verdict::kRefuse;
    }
    /// There was no memory for its record. `next`: the number of the next receive to be posted.
    void refuse(PostNumber next) {
        if (flagged_) return;
        VELO_CHECK(next >= seen_, "receives are numbered backwards");
        flagged_ = true;
        seen_ = next;
    }

    /// The sender has said that at most 2^width messages wait with it.
    void told_waiting(uint8_t width) { waiting_width_ = std::min(width, kWidthMax); }
    [[nodiscard]] uint64_t waiting_max() const { return uint64_t{1} << waiting_width_; }

    [[nodiscard]] bool flagged() const { return flagged_; }
    /// Receives from this number on have not been offered, if the sender is flagged.
    [[nodiscard]] PostNumber seen() const { return seen_; }
    [[nodiscard]] uint32_t age() const { return age_; }
    /// The sender has not ended the last pass yet. There is one at a time.
    [[nodiscard]] bool pass_open() const { return pass_open_; }

    /// All receives below `end` are offered by this message to the sender, which names those since the last one. Gives
    /// the age that it carries.
    [[nodiscard]] uint32_t offer(PostNumber end) {
        VELO_CHECK(flagged_ && !pass_open_ && end >= seen_, "receives are offered out of turn");
        seen_ = end;
        return begin_pass();
    }
    /// All that waits is sent again, and what fits no receive may get a record.
    [[nodiscard]] uint32_t resend_all() {
        VELO_CHECK(flagged_ && !pass_open_, "a full pass is asked for out of turn");
        flagged_ = false;
        return begin_pass();
    }
    /// The sender's last message of the pass has come. False: it does not belong to one, and changes nothing.
    [[nodiscard]] bool on_end(uint32_t age) {
        if (!pass_open_ || age != age_) return false;
        pass_open_ = false;
        return true;
    }

  private:
    static constexpr uint8_t kWidthMax = 32;

    [[nodiscard]] uint32_t begin_pass() {
        pass_open_ = true;
        return ++age_;
    }

    PostNumber seen_ = 0;
    uint32_t age_ = 0;
    bool flagged_ = false;
    bool pass_open_ = false;
    uint8_t waiting_width_ = 0;
};
static_assert(sizeof(Refusals) == 16);

}  // namespace velo::match
