/// Lists by key: what has the same key in order of arrival, found by hashing.
///
/// A bin holds the first entry of each key that falls into it; the others of a key follow their first one. So
/// a thousand entries of one key are as far from a lookup as one. The table grows by one bin whenever there
/// are more keys than bins (Litwin 1980, linear hashing): one bin is divided, and no other is touched.
///
/// Owner: a queue. Thread: the engine's, under its lock. Allocates when it grows, and never shrinks: a queue
/// that was deep will be again.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <new>

#include "match/envelope.h"
#include "velo/base/check.h"

namespace velo::match {

template <class Ref>
struct KeyLinks {
    Ref next;      ///< of the same key, or Store::kNone
    Ref previous;  ///< of the same key; of the first one: the last one
    Ref chain;     ///< first one only: the next key of its bin, or Store::kNone
};

/// `Store` has the type Ref, its value kNone, links(ref), key(ref), and take_bin(), which is false when there
/// is no memory for another bin. `Hash` makes 32 bits of a key.
template <class Store, class Hash = EnvelopeHash>
class KeyTable {
  public:
    using Ref = typename Store::Ref;
    static constexpr Ref kNone = Store::kNone;
    /// One page at most. Later bins are allocated in as many at a time as there are.
    static constexpr uint32_t kFirstBins = 64;
    static_assert(kFirstBins * sizeof(Ref) <= 4096);

    explicit KeyTable(Store& store) : store_(store) { first_bins_.fill(kNone); }
    KeyTable(const KeyTable&) = delete;
    KeyTable& operator=(const KeyTable&) = delete;

    /// The oldest of this key, or kNone.
    [[nodiscard]] Ref first(const Envelope& key) const {
        Ref found = *place_of(key);
        while (found != kNone && !(store_.key(found) == key)) found = store_.links(found).chain;
        return found;
    }

    /// The oldest of this key, or kNone; the place is remembered, since it may well be removed next.
    [[nodiscard]] Ref find(const Envelope& key) {
        Ref found = *recent_place_of(key);
        while (found != kNone && !(store_.key(found) == key)) found = store_.links(found).chain;
        return found;
    }

    /// Becomes the youngest of its key. (Where that was stored a moment ago, a load of it would wait.)
    [[gnu::always_inline]] void append(Ref entry, const Envelope& key) {
        VELO_DCHECK(store_.key(entry) == key, "an entry in the list of another tag than %d", key.tag);
        auto& links = store_.links(entry);
        links.next = kNone;
        Ref& head = *recent_place_of(key);
        Ref oldest = head;
        while (oldest != kNone && !(store_.key(oldest) == key)) oldest = store_.links(oldest).chain;
        if (oldest != kNone) {
            Ref& last = store_.links(oldest).previous;
            links.previous = last;
            store_.links(last).next = entry;
            last = entry;
            return;
        }
        links.previous = entry;
        links.chain = head;
        head = entry;
        if (++keys_ > bins_) [[unlikely]]
            divide_bin();
    }

    /// The oldest of this key, which is not here any more, or kNone.
    [[gnu::always_inline]] Ref take_first(const Envelope& key) {
        Ref* place = recent_place_of(key);
        while (*place != kNone && !(store_.key(*place) == key)) place = &store_.links(*place).chain;
        const Ref found = *place;
        if (found != kNone) unlink_first(found, *place);
        return found;
    }

    void remove(Ref entry) {
        auto& links = store_.links(entry);
        if (store_.links(links.previous).next != kNone) {
            // Not the first one, before which there would be the last one, which has none behind it.
            store_.links(links.previous).next = links.next;
            const Ref after = links.next != kNone ? links.next : first(store_.key(entry));
            store_.links(after).previous = links.previous;
            return;
        }
        Ref* place = recent_place_of(store_.key(entry));
        while (*place != entry) {
            VELO_DCHECK(*place != kNone, "an entry of tag %d is removed that is not here",
                        store_.key(entry).tag);
            place = &store_.links(*place).chain;
        }
        unlink_first(entry, *place);
    }

    /// Forgets all entries. Their links are left as they are.
    void clear() {
        for (uint32_t i = 0; i < bins_; ++i) bin(i) = kNone;
        keys_ = 0;
    }

    [[nodiscard]] uint32_t keys() const { return keys_; }
    [[nodiscard]] uint32_t bins() const { return bins_; }

  private:
    static constexpr uint32_t kSegments = 24;
    static_assert(std::has_single_bit(kFirstBins));
    static_assert((uint64_t{kFirstBins} << kSegments) - 1 <= UINT32_MAX);

    /// `place`: what refers to the first one of a key.
    void unlink_first(Ref first, Ref& place) {
        VELO_DCHECK(keys_ != 0 && place == first, "an entry is removed of %u keys", keys_);
        const auto& links = store_.links(first);
        if (links.next == kNone) {
            place = links.chain;
            --keys_;
            return;
        }
        auto& heir = store_.links(links.next);
        heir.previous = links.previous;
        heir.chain = links.chain;
        place = links.next;
    }

    [[nodiscard]] Ref* place_of(const Envelope& key) const { return &const_cast<KeyTable*>(this)->bin(bin_of(key)); }
    /// The place of a key, remembered: messages of one envelope come after one another, and the receives for
    /// them do.
    [[nodiscard, gnu::always_inline]] Ref* recent_place_of(const Envelope& key) {
        if (!(key == recent_)) [[unlikely]] {
            recent_ = key;
            recent_place_ = place_of(key);
        }
        return recent_place_;
    }

    /// The first bins have been divided already in this round of doubling.
    [[nodiscard]] uint32_t bin_of(const Envelope& key) const {
        const uint32_t hash = Hash{}(key);
        const uint32_t low = hash & (round_bins_ - 1);
        return low < bins_ - round_bins_ ? hash & (2 * round_bins_ - 1) : low;
    }
    /// Each segment has as many bins as all before it.
    [[nodiscard]] Ref& bin(uint32_t i) {
        if (i < kFirstBins) return first_bins_[i];
        const auto segment = static_cast<uint32_t>(std::bit_width(i / kFirstBins)) - 1;
        return segments_[segment][i - (kFirstBins << segment)];
    }

    /// Without memory for another bin nothing is changed; lookups take longer then.
    [[gnu::cold, gnu::noinline]] void divide_bin() {
        VELO_CHECK(keys_ > bins_ && bins_ >= round_bins_ && bins_ - round_bins_ < round_bins_,
                   "%u keys in %u bins, %u when the round began", keys_, bins_, round_bins_);
        const uint32_t added = bins_;
        const auto segment = static_cast<uint32_t>(std::bit_width(added / kFirstBins)) - 1;
        if (segment >= kSegments) return;
        if (segments_[segment] == nullptr)
            segments_[segment].reset(new (std::nothrow) Ref[kFirstBins << segment]);
        if (segments_[segment] == nullptr || !store_.take_bin()) return;
        const uint32_t divided = added - round_bins_;
        Ref entry = bin(divided);
        Ref* stays = &bin(divided);
        Ref* moves = &bin(added);
        if (++bins_ == 2 * round_bins_) round_bins_ = bins_;
        recent_place_ = place_of(recent_);
        while (entry != kNone) {
            Ref*& end = bin_of(store_.key(entry)) == divided ? stays : moves;
            *end = entry;
            end = &store_.links(entry).chain;
            entry = *end;
        }
        *stays = *moves = kNone;
    }

    Store& store_;
    std::array<Ref, kFirstBins> first_bins_;
    std::array<std::unique_ptr<Ref[]>, kSegments> segments_;
    uint32_t keys_ = 0;
    uint32_t bins_ = kFirstBins;
    uint32_t round_bins_ = kFirstBins;  ///< bins when the present round of doubling began
    Envelope recent_;
    Ref* recent_place_ = place_of(recent_);
};

}  // namespace velo::match
