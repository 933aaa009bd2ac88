/// The records of unexpected messages: memory by the piece, out of a budget.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "match/budget.h"
#include "match/envelope.h"
#include "match/key_table.h"

namespace velo::match {

/// A record's number, for as long as it is in use.
using RecordRef = uint32_t;
inline constexpr RecordRef kNoRecord = ~RecordRef{0};

/// One unexpected message.
struct Record {
    static constexpr size_t kBodyBytes = 24;

    KeyLinks<RecordRef> links;  ///< among those of the same envelope
    RecordRef older;            ///< among all
    RecordRef newer;            ///< among all; of a free one: the next free one
    Envelope envelope;
    uint32_t peer;  ///< the process that sent it
    uint32_t note;  ///< the user's, as is the body: a small message's data, or where the data is
    alignas(8) std::array<std::byte, kBodyBytes> body;
};
static_assert(sizeof(Record) == 64);

/// Owner: UnexpectedQueue. Thread: the engine's, under its lock. Records are made one at a time, in chunks of memory
/// that stay; the budget is charged for each when it is made, so at most a chunk more than the budget is allocated.
class Records {
  public:
    using Ref = RecordRef;
    static constexpr Ref kNone = kNoRecord;
    static constexpr uint32_t kPerChunk = 64;

    explicit Records(Budget& budget) : budget_(budget) {}

    /// kNone: the budget or the system has no memory, and nothing has changed.
    [[nodiscard]] Ref take() {
        if (free_ != kNone) return std::exchange(free_, at(free_).newer);
        if (made_ == chunks_.size() * kPerChunk && !add_chunk()) return kNone;
        if (!budget_.take(sizeof(Record))) return kNone;
        return made_++;
    }
    void give_back(Ref ref) { at(ref).newer = std::exchange(free_, ref); }

    [[nodiscard]] Record& at(Ref ref) { return chunks_[ref / kPerChunk][ref % kPerChunk]; }
    [[nodiscard]] const Record& at(Ref ref) const { return chunks_[ref / kPerChunk][ref % kPerChunk]; }
    [[nodiscard]] uint32_t made() const { return made_; }

    // As a KeyTable's store.
    [[nodiscard]] KeyLinks<Ref>& links(Ref ref) { return at(ref).links; }
    [[nodiscard]] const Envelope& key(Ref ref) const { return at(ref).envelope; }
    [[nodiscard]] bool take_bin() { return budget_.take(sizeof(Ref)); }

  private:
    /// Of the system's memory, without regard to the budget.
    [[nodiscard]] bool add_chunk() {
        if (budget_.left() < sizeof(Record)) return false;
        try {
            chunks_.emplace_back(new Record[kPerChunk]);
        } catch (const std::bad_alloc&) {
            return false;
        }
        return true;
    }

    Budget& budget_;
    std::vector<std::unique_ptr<Record[]>> chunks_;
    Ref made_ = 0;
    Ref free_ = kNone;
};

}  // namespace velo::match
