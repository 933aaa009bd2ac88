/// Unexpected messages in the lists that receives of one open kind want: links for each record, and a table.
///
/// It is there from the first receive that needs it until the queue has been empty, since most programs leave nothing
/// open, and those that do would make every message pay for it. Its memory stays for the next time, or until records
/// need it.
///
/// Owner: UnexpectedQueue. Thread: the engine's, under its lock. Invariant: while it is listed, each record that the
/// kind can fit is in one list, in order of arrival.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "match/budget.h"
#include "match/envelope.h"
#include "match/key_table.h"
#include "match/records.h"
#include "velo/base/check.h"

namespace velo::match {

/// As a KeyTable's store.
class OpenLinks {
  public:
    using Ref = RecordRef;
    static constexpr Ref kNone = kNoRecord;

    OpenLinks(Budget& budget, const Records& records, Kind kind) : budget_(budget), records_(records), kind_(kind) {}

    /// After this there are links for as many records. False: there is no memory, and nothing has changed.
    [[nodiscard]] bool reach(uint32_t records) {
        const size_t chunks = (size_t{records} + Records::kPerChunk - 1) / Records::kPerChunk;
        const size_t before = chunks_.size();
        if (chunks <= before) return true;
        const uint64_t bytes = (chunks - before) * sizeof(Chunk);
        if (!budget_.take(bytes)) return false;
        try {
            while (chunks_.size() < chunks) chunks_.emplace_back(new Chunk);
        } catch (const std::bad_alloc&) {
            chunks_.resize(before);
            budget_.give_back(bytes);
            return false;
        }
        return true;
    }
    void give_back() {
        budget_.give_back(chunks_.size() * sizeof(Chunk));
        chunks_.clear();
    }

    [[nodiscard]] KeyLinks<Ref>& links(Ref ref) {
        VELO_DCHECK(ref / Records::kPerChunk < chunks_.size(), "record %u of %zu chunks", ref,
                    chunks_.size());
        return (*chunks_[ref / Records::kPerChunk])[ref % Records::kPerChunk];
    }
    [[nodiscard]] Envelope key(Ref ref) const { return opened(records_.at(ref).envelope, kind_); }
    [[nodiscard]] bool take_bin() { return budget_.take(sizeof(Ref)); }

  private:
    using Chunk = std::array<KeyLinks<Ref>, Records::kPerChunk>;

    Budget& budget_;
    const Records& records_;
    Kind kind_;
    std::vector<std::unique_ptr<Chunk>> chunks_;
};

template <class Hash>
class OpenIndex {
  public:
    using Ref = RecordRef;

    OpenIndex(Budget& budget, const Records& records, Kind kind)
        : budget_(budget), records_(records), kind_(kind), links_(budget, records, kind) {}

    [[nodiscard]] bool listed() const { return listed_; }
    /// The oldest record that fits. The index is listed.
    [[nodiscard]] Ref first(const Envelope& receive) const {
        VELO_DCHECK(listed_ && kind_of(receive) == kind_, "a receive of kind %zu", index(kind_of(receive)));
        return table_->first(receive);
    }

    /// Lists all records from this one on. False: there is no memory for that.
    [[nodiscard]] bool list(Ref oldest) {
        VELO_CHECK(!listed_, "records of kind %zu are listed twice", index(kind_));
        if (!links_.reach(records_.supply().made())) return false;
        if (!table_) table_.emplace(links_);
        listed_ = true;
        for (Ref ref = oldest; ref != kNoRecord; ref = records_.at(ref).newer) append(ref);
        return true;
    }
    /// The youngest record. Without memory for it the index is given up.
    void append(Ref ref) {
        if (!listed_ || !can_fit(kind_, records_.at(ref).envelope)) return;
        if (links_.reach(records_.supply().made())) {
            table_->append(ref, links_.key(ref));
        } else {
            give_up();
        }
    }
    void remove(Ref ref) {
        if (listed_ && can_fit(kind_, records_.at(ref).envelope)) table_->remove(ref);
    }
    /// No record is left.
    void rest() { listed_ = false; }
    /// Gives the index's memory back. False: it had none.
    bool give_up() {
        listed_ = false;
        if (!table_) return false;
        budget_.give_back((table_->bins() - Table::kFirstBins) * sizeof(Ref));
        table_.reset();
        links_.give_back();
        return true;
    }

  private:
    using Table = KeyTable<OpenLinks, Hash>;

    Budget& budget_;
    const Records& records_;
    Kind kind_;
    OpenLinks links_;
    std::optional<Table> table_;  ///< empty while the index rests
    bool listed_ = false;
};

}  // namespace velo::match
