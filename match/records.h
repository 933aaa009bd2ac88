/// The records of unexpected messages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "match/budget.h"
#include "match/envelope.h"
#include "match/key_table.h"
#include "match/pool.h"

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

/// Owner: UnexpectedQueue. Thread: the engine's, under its lock. Also a KeyTable's store.
class Records : public Pool<Record, &Record::newer> {
  public:
    explicit Records(Budget& budget) : Pool(budget), budget_(budget) {}

    [[nodiscard]] KeyLinks<Ref>& links(Ref ref) { return at(ref).links; }
    [[nodiscard]] const Envelope& key(Ref ref) const { return at(ref).envelope; }
    [[nodiscard]] bool take_bin() { return budget_.take(sizeof(Ref)); }

  private:
    Budget& budget_;
};

}  // namespace velo::match
