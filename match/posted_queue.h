/// Receives that wait for their message.
///
/// One table holds all kinds: a receive that leaves something open has a key of its own. A message looks for
/// the one key of each kind that is present, and takes the receive that was posted first among those found.
///
/// Owner: the match engine. Thread: the engine's, under its lock. Invariant: each posted receive is found
/// until it is taken or withdrawn. Its links lie in its request, so posting allocates nothing but the table's
/// bins.
#pragma once

#include <array>
#include <cstdint>

#include "match/envelope.h"
#include "match/key_table.h"
#include "velo/base/check.h"

namespace velo::match {

/// Part of the request of a receive, which stays where it is while it is posted.
struct Posted {
    KeyLinks<Posted*> links;
    uint64_t number;  ///< in order of posting; 64 bits do not wrap
    Envelope envelope;
};

struct PostedStore {
    using Ref = Posted*;
    static constexpr Ref kNone = nullptr;

    [[nodiscard]] static KeyLinks<Posted*>& links(Ref posted) { return posted->links; }
    [[nodiscard]] static const Envelope& key(Ref posted) { return posted->envelope; }
    [[nodiscard]] static bool take_bin() { return true; }
};

template <class Hash = EnvelopeHash>
class PostedQueue {
  public:
    [[gnu::always_inline]] void post(Posted& posted, const Envelope& receive) {
        posted.envelope = receive;
        posted.number = posted_++;
        if (receive.source != kAnySource && receive.tag != kAnyTag) [[likely]] {
            ++counts_[index(Kind::kExact)];
        } else {
            ++counts_[index(kind_of(receive))];
            ++open_;
        }
        table_.append(&posted, receive);
    }

    /// Dequeues the first posted receive that fits the message. nullptr: none fits.
    [[nodiscard, gnu::always_inline]] Posted* take(const Envelope& message) {
        if (open_ == 0) [[likely]] {
            Posted* const found = table_.take_first(message);
            VELO_DCHECK(found == nullptr || counts_[index(Kind::kExact)] != 0,
                        "a receive that was not counted");
            if (found != nullptr) --counts_[index(Kind::kExact)];
            return found;
        }
        return take_of_all(message);
    }

    /// The first posted receive that fits the message, which stays posted. nullptr: none fits.
    [[nodiscard]] Posted* find(Envelope message) const {
        Posted* found = counts_[index(Kind::kExact)] != 0 ? table_.first(message) : nullptr;
        if (open_ == 0) return found;
        for (const Kind kind : kOpenKinds) {
            if (counts_[index(kind)] == 0 || !can_fit(kind, message)) continue;
            Posted* const other = table_.first(opened(message, kind));
            if (other != nullptr && (found == nullptr || other->number < found->number)) found = other;
        }
        return found;
    }

    /// Takes a posted receive out of the queue.
    void withdraw(Posted& posted) {
        const Kind kind = kind_of(posted.envelope);
        VELO_DCHECK(counts_[index(kind)] != 0, "a receive is withdrawn that was not posted");
        VELO_DCHECK(kind == Kind::kExact || open_ != 0, "an open receive is withdrawn of %u", open_);
        table_.remove(&posted);
        --counts_[index(kind)];
        if (kind != Kind::kExact) --open_;
    }

    /// Number of the next receive to be posted.
    [[nodiscard]] uint64_t next_number() const { return posted_; }
    [[nodiscard]] uint64_t size() const { return counts_[index(Kind::kExact)] + uint64_t{open_}; }

  private:
    [[gnu::noinline]] Posted* take_of_all(Envelope message) {
        Posted* const found = find(message);
        if (found != nullptr) withdraw(*found);
        return found;
    }

    PostedStore store_;
    KeyTable<PostedStore, Hash> table_{store_};
    std::array<uint32_t, kKinds> counts_{};
    uint32_t open_ = 0;  ///< of those, all but the exact ones
    uint64_t posted_ = 0;
};

}  // namespace velo::match
