/// The queue of messages to one peer that are not accepted yet (match/pending_sends.h), where offers find theirs by
/// hashing: by tag, or by communicator for receives that leave the tag open.
///
/// The index is made when the first offer comes, and stays until the queue has been empty: most queues see no offer.
///
/// Owner: the engine's state of a peer. Thread: the engine's, under its lock. Messages lie in their requests.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include "match/envelope.h"
#include "match/key_table.h"
#include "match/pending_sends.h"

namespace velo::match {

/// Part of the request of a message, which stays where it is until the message is accepted.
struct WaitingSend {
    Pending<WaitingSend*> pending;
    KeyLinks<WaitingSend*> of_tag;
    KeyLinks<WaitingSend*> of_context;
};

class WaitingSends {
  public:
    using Machine = PendingSends<WaitingSends>;
    // As the machine's store.
    using Ref = WaitingSend*;
    static constexpr Ref kNone = nullptr;
    [[nodiscard]] static Pending<Ref>& at(Ref ref) { return ref->pending; }
    [[nodiscard]] Ref first_fit(const Envelope& receive, uint32_t age) {
        if (index_ == nullptr) make_index();
        if (index_ == nullptr) return first_fit_of_all(receive, age);
        const bool open = receive.tag == kAnyTag;
        Ref ref = open ? index_->of_context.first(key_of_context(receive)) : index_->of_tag.first(key_of_tag(receive));
        // A pass chooses few.
        while (ref != kNone && ref->pending.chosen_age == age) ref = open ? ref->of_context.next : ref->of_tag.next;
        return ref;
    }

    /// Comes last. The source in its envelope is this process's rank, the same in all of a communicator.
    void add(WaitingSend& send, const Envelope& envelope) {
        send.pending.number = added_++;
        send.pending.envelope = envelope;
        machine_.add(*this, &send);
        if (index_ != nullptr) index_->add(send);
    }
    [[nodiscard]] Machine::Next next(uint32_t window) { return machine_.next(*this, window); }
    /// False: its receiver was not asked. Otherwise the message is not waiting any more.
    [[nodiscard]] bool accepted(WaitingSend& send) {
        if (!machine_.on_accepted(*this, &send)) return false;
        if (machine_.empty()) {
            index_.reset();
        } else if (index_ != nullptr) {
            index_->remove(send);
        }
        return true;
    }
    [[nodiscard]] bool refused(WaitingSend& send, uint32_t age) { return machine_.on_refused(*this, &send, age); }
    void offered(uint32_t age, const Envelope* receives, uint32_t count) {
        machine_.on_offers(*this, age, receives, count);
    }
    void resend_all(uint32_t age) { machine_.on_resend_all(*this, age); }

    [[nodiscard]] bool empty() const { return machine_.empty(); }
    [[nodiscard]] const Machine& machine() const { return machine_; }

  private:
    [[nodiscard]] static Envelope key_of_tag(const Envelope& envelope) { return {envelope.context, 0, envelope.tag}; }
    [[nodiscard]] static Envelope key_of_context(const Envelope& envelope) { return {envelope.context, 0, kAnyTag}; }

    struct ByTag {
        using Ref = WaitingSend*;
        static constexpr Ref kNone = nullptr;
        [[nodiscard]] static KeyLinks<Ref>& links(Ref ref) { return ref->of_tag; }
        [[nodiscard]] static Envelope key(Ref ref) { return key_of_tag(ref->pending.envelope); }
        [[nodiscard]] static bool take_bin() { return true; }
    };
    /// Links of messages by communicator, for receives with an open tag.
    struct ByContext {
        using Ref = WaitingSend*;
        static constexpr Ref kNone = nullptr;
        [[nodiscard]] static KeyLinks<Ref>& links(Ref ref) { return ref->of_context; }
        [[nodiscard]] static Envelope key(Ref ref) { return key_of_context(ref->pending.envelope); }
        [[nodiscard]] static bool take_bin() { return true; }
    };
    struct Index {
        void add(WaitingSend& send) {
            of_tag.append(&send, by_tag.key(&send));
            if (can_fit(Kind::kOpenTag, send.pending.envelope)) of_context.append(&send, by_context.key(&send));
        }
        void remove(WaitingSend& send) {
            of_tag.remove(&send);
            if (can_fit(Kind::kOpenTag, send.pending.envelope)) of_context.remove(&send);
        }

        ByTag by_tag;
        ByContext by_context;
        KeyTable<ByTag> of_tag{by_tag};
        KeyTable<ByContext> of_context{by_context};
    };

    void make_index() {
        index_.reset(new (std::nothrow) Index);
        if (index_ == nullptr) return;
        for (Ref ref = machine_.first(); ref != kNone; ref = ref->pending.next) index_->add(*ref);
    }
    /// Without memory for an index: slower, and the same.
    [[nodiscard]] Ref first_fit_of_all(const Envelope& receive, uint32_t age) const {
        for (Ref ref = machine_.first(); ref != kNone; ref = ref->pending.next) {
            Envelope named = receive;
            named.source = ref->pending.envelope.source;
            if (fits(named, ref->pending.envelope) && ref->pending.chosen_age != age) return ref;
        }
        return kNone;
    }

    Machine machine_;
    std::unique_ptr<Index> index_;
    uint64_t added_ = 0;
};

}  // namespace velo::match
