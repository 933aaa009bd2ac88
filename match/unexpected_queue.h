/// Messages that came before their receive, of which at least a record is here.
///
/// Each is found by its envelope; that takes no more than the record. A receive that leaves something open looks at the
/// oldest few first, and when there are more, an index of its kind is made. If the budget has no memory for that, such
/// receives look at all records in turn: slower, and the same result.
///
/// Owner: the match engine. Thread: the engine's, under its lock. Invariant: the memory of records, of the indexes'
/// links and of all tables' bins beyond the first is within the budget.
#pragma once

#include <array>
#include <cstdint>

#include "match/budget.h"
#include "match/envelope.h"
#include "match/key_table.h"
#include "match/open_index.h"
#include "match/records.h"
#include "velo/base/check.h"

namespace velo::match {

template <class Hash = EnvelopeHash>
class UnexpectedQueue {
  public:
    using Ref = RecordRef;
    static constexpr Ref kNone = kNoRecord;
    /// Records that an open receive looks at before an index is made.
    static constexpr uint32_t kScanned = 8;

    explicit UnexpectedQueue(uint64_t budget_bytes) : budget_(budget_bytes) {}

    /// The youngest record, whose peer, note and body are the caller's to fill. kNone: there is no memory for it, and
    /// nothing has changed.
    [[nodiscard]] Ref add(const Envelope& message) {
        Ref ref = records_.take();
        while (ref == kNone && give_up_an_index()) ref = records_.take();
        if (ref != kNone) append(ref, message);
        return ref;
    }
    /// The youngest record, made of a reserved one. Its peer, note and body are the caller's to fill.
    [[nodiscard]] Ref add_reserved(const Envelope& message) {
        const Ref ref = records_.take_reserved();
        append(ref, message);
        return ref;
    }
    /// False: there is no memory for these, and nothing has changed.
    [[nodiscard]] bool reserve(uint32_t records) {
        bool done = records_.reserve(records);
        while (!done && give_up_an_index()) done = records_.reserve(records);
        return done;
    }
    /// Reserves a record that was freed just now.
    void reserve_freed() { records_.reserve_freed(); }
    void unreserve(uint32_t records) { records_.unreserve(records); }

    /// The oldest that fits the receive, or kNone.
    [[nodiscard]] Ref find(Envelope receive) {
        if (size_ == 0) return kNone;
        const Kind kind = kind_of(receive);
        if (kind == Kind::kExact) return exact_.find(receive);
        OpenIndex<Hash>& index = indexes_[match::index(kind) - 1];
        if (!index.listed()) {
            Ref ref = oldest_;
            for (uint32_t i = 0; i < kScanned && ref != kNone; ++i, ref = newer(ref)) {
                if (fits(receive, records_.at(ref).envelope)) return ref;
            }
            if (ref == kNone) return kNone;
            if (!index.list(oldest_)) {
                while (ref != kNone && !fits(receive, records_.at(ref).envelope)) ref = newer(ref);
                return ref;
            }
            any_listed_ = true;
        }
        return index.first(receive);
    }

    void remove(Ref ref) {
        VELO_DCHECK(size_ != 0, "a record is removed from an empty queue");
        exact_.remove(ref);
        if (any_listed_) [[unlikely]] {
            for (OpenIndex<Hash>& index : indexes_) index.remove(ref);
        }
        const Record& record = records_.at(ref);
        VELO_DCHECK(
            (record.older == kNone) == (oldest_ == ref) && (record.newer == kNone) == (newest_ == ref),
            "record %u is not where its links say", ref);
        (record.older == kNone ? oldest_ : records_.at(record.older).newer) = record.newer;
        (record.newer == kNone ? newest_ : records_.at(record.newer).older) = record.older;
        records_.give_back(ref);
        if (--size_ != 0 || !any_listed_) return;
        for (OpenIndex<Hash>& index : indexes_) index.rest();
        any_listed_ = false;
    }

    [[nodiscard]] Record& at(Ref ref) { return records_.at(ref); }
    [[nodiscard]] Ref oldest() const { return oldest_; }
    [[nodiscard]] Ref newer(Ref ref) const { return records_.at(ref).newer; }
    [[nodiscard]] uint32_t size() const { return size_; }
    [[nodiscard]] const Budget& budget() const { return budget_; }
    /// Bytes for more records, beside those that were reserved.
    [[nodiscard]] uint64_t free_bytes() const {
        return budget_.available() + uint64_t{records_.supply().spare()} * sizeof(Record);
    }
    /// Whether receives of this open kind find their message without looking at others.
    [[nodiscard]] bool listed(Kind kind) const { return indexes_[index(kind) - 1].listed(); }

  private:
    void append(Ref ref, const Envelope& message) {
        VELO_DCHECK((size_ == 0) == (oldest_ == kNone) && (size_ == 0) == (newest_ == kNone), "%u records",
                    size_);
        Record& record = records_.at(ref);
        record.envelope = message;
        record.older = newest_;
        record.newer = kNone;
        (newest_ == kNone ? oldest_ : records_.at(newest_).newer) = ref;
        newest_ = ref;
        ++size_;
        exact_.append(ref, message);
        if (any_listed_) [[unlikely]] {
            for (OpenIndex<Hash>& index : indexes_) index.append(ref);
        }
    }
    bool give_up_an_index() {
        for (OpenIndex<Hash>& index : indexes_) {
            if (index.give_up()) return true;
        }
        return false;
    }

    Budget budget_;
    Records records_{budget_};
    KeyTable<Records, Hash> exact_{records_};
    std::array<OpenIndex<Hash>, kOpenKinds.size()> indexes_ = {OpenIndex<Hash>(budget_, records_, Kind::kOpenTag),
                                                               OpenIndex<Hash>(budget_, records_, Kind::kOpenSource),
                                                               OpenIndex<Hash>(budget_, records_, Kind::kOpen)};
    bool any_listed_ = false;  ///< an index, unless it was given up since
    Ref oldest_ = kNone;
    Ref newest_ = kNone;
    uint32_t size_ = 0;
};

}  // namespace velo::match
