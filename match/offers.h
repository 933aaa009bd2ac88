/// Receives that were posted while a sender was flagged (match/refusals.h), in the order in which it is
/// offered them.
///
/// A receive that names its source waits in that sender's list until it is offered, matched or withdrawn. One
/// that does not is of concern to each flagged sender; those lie in one list, of which each sender has seen
/// the receives below its own number. A sender that has many of them to see is asked for all of its messages
/// instead, so the list is never walked far.
///
/// Pure. Owner: the match engine. Thread: the engine's, under its lock. Nothing is listed while no sender is
/// flagged.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "match/envelope.h"
#include "match/posted_queue.h"
#include "match/probe_watches.h"
#include "match/refusals.h"
#include "velo/base/check.h"

namespace velo::match {

struct OfferList;

/// Part of the request of a receive.
struct PostedReceive {
    Posted posted;  ///< first, so that the queue's pointers are pointers to this, too
    PostedReceive* older;
    PostedReceive* newer;
    OfferList* list;  ///< that it is in, or nullptr
};
static_assert(std::is_standard_layout_v<PostedReceive> && offsetof(PostedReceive, posted) == 0);

struct OfferList {
    void add(PostedReceive& receive) {
        VELO_DCHECK(receive.list == nullptr, "a receive is in a list already");
        VELO_DCHECK(newest == nullptr || newest->posted.number < receive.posted.number,
                    "out of order of posting");
        receive.list = this;
        receive.older = newest;
        receive.newer = nullptr;
        (newest == nullptr ? oldest : newest->newer) = &receive;
        newest = &receive;
    }
    void remove(PostedReceive& receive) {
        VELO_DCHECK(receive.list == this, "a receive is removed from a list that it is not in");
        (receive.older == nullptr ? oldest : receive.older->newer) = receive.newer;
        (receive.newer == nullptr ? newest : receive.newer->older) = receive.older;
        receive.list = nullptr;
    }
    void clear() {
        while (oldest != nullptr) remove(*oldest);
    }

    PostedReceive* oldest = nullptr;
    PostedReceive* newest = nullptr;
};

class Offers {
  public:
    /// Receives in one message to a sender.
    static constexpr uint32_t kReceivesMax = 4;
    /// Receives without a source that are looked at for one.
    static constexpr uint32_t kWalkMax = 64;

    /// A sender, as its receiver knows it.
    struct Sender {
        Refusals refusals;
        OfferList named;
    };
    struct Batch {
        std::array<Envelope, kReceivesMax + ProbeWatches::kOfferedMax>
            receives;  ///< those of probes come last
        uint32_t count = 0;
        bool resend_all = false;  ///< instead
        uint32_t age = 0;
    };

    /// A receive was posted that names `sender`; nullptr: it names none.
    void posted(PostedReceive& receive, Sender* sender) {
        receive.list = nullptr;
        if (sender == nullptr ? flagged_ != 0 : sender->refusals.flagged()) {
            (sender == nullptr ? open_ : sender->named).add(receive);
        }
    }
    /// The receive was matched or withdrawn.
    static void gone(PostedReceive& receive) {
        if (receive.list != nullptr) receive.list->remove(receive);
    }
    /// There was no memory for a message's record. `next`: the number of the next receive to be posted.
    void refused(Sender& sender, PostNumber next) {
        if (!sender.refusals.flagged()) ++flagged_;
        sender.refusals.refuse(next);
    }

    /// False: there is nothing to tell the sender now. Otherwise `batch` is sent to it.
    [[nodiscard]] bool next(Sender& sender, PostNumber next_post, Batch& batch) {
        Refusals& refusals = sender.refusals;
        if (!refusals.flagged() || refusals.pass_open()) return false;
        PostedReceive* open = open_.newest;
        PostedReceive* first_open = nullptr;
        for (uint32_t i = 0; open != nullptr && open->posted.number >= refusals.seen();
             ++i, open = open->older) {
            if (i == kWalkMax) {
                batch = {.receives = {}, .resend_all = true, .age = resend_all(sender)};
                return true;
            }
            first_open = open;
        }
        PostedReceive* named = sender.named.oldest;
        if (named == nullptr && first_open == nullptr) return false;
        batch = {};
        while (batch.count < kReceivesMax && (named != nullptr || first_open != nullptr)) {
            const bool takes_open = named == nullptr || (first_open != nullptr &&
                                                         first_open->posted.number < named->posted.number);
            PostedReceive*& taken = takes_open ? first_open : named;
            batch.receives[batch.count++] = taken->posted.envelope;
            PostedReceive* const after = taken->newer;
            if (!takes_open) sender.named.remove(*taken);
            taken = after;
        }
        PostNumber end = next_post;
        if (named != nullptr && named->posted.number < end) end = named->posted.number;
        if (first_open != nullptr && first_open->posted.number < end) end = first_open->posted.number;
        batch.age = refusals.offer(end);
        return true;
    }
    /// All that waits at the sender is asked for, and may get records. Gives the age.
    [[nodiscard]] uint32_t resend_all(Sender& sender) {
        const uint32_t age = sender.refusals.resend_all();
        forget(sender);
        return age;
    }
    /// The sender has ended.
    void ended(Sender& sender) {
        if (sender.refusals.flagged()) forget(sender);
        sender.refusals = {};
    }

    /// Senders that are flagged.
    [[nodiscard]] uint32_t flagged() const { return flagged_; }

  private:
    void forget(Sender& sender) {
        VELO_DCHECK(flagged_ != 0, "a sender is flagged that was not counted");
        sender.named.clear();
        if (--flagged_ == 0) open_.clear();
    }

    OfferList open_;  ///< name no source
    uint32_t flagged_ = 0;
};

}  // namespace velo::match
