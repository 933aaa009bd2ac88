/// The steps that FC 6 leaves open, and the ways to read them.
#pragma once

#include <cstdint>

namespace velo::flowctl {

/// Defaults are the readings that hold. The others are here for the explorer, which shows what each breaks;
/// no other code uses them. docs/flow-control.md says where in the paper each question arises.
struct DynamicReading {
    /// What enters the FIFO when fewer slots are available than the threshold asks for.
    enum class ShortOfSlots : uint8_t { kGranted, kComputed };
    /// When the threshold is reached in the regular way.
    enum class Reached : uint8_t { kAtLeast, kExactly };
    /// What a blocked sender's reached threshold changes when one credit is returned. kConsume: the head is
    /// taken out and off the retrieved packets, a 1 enters. kUncount: one retrieved packet fewer. kNothing.
    enum class BlockedOne : uint8_t { kConsume, kUncount, kNothing };
    /// The same when none is returned. kNothing; kReset: no packet is retrieved, the computed threshold or
    /// a 0 or 1 takes the head's place.
    enum class BlockedNone : uint8_t { kNothing, kResetComputed, kResetOne };
    /// What a compulsory response does to the FIFO.
    enum class Response : uint8_t { kTrim, kUntouched };
    /// Retrieved packets beyond the threshold, in the piggybacking way.
    enum class Overshoot : uint8_t { kCarry, kReset };
    /// More was piggybacked than the computed threshold.
    enum class Excess : uint8_t { kAddToHead, kIgnore };

    ShortOfSlots short_of_slots = ShortOfSlots::kGranted;
    Reached reached = Reached::kAtLeast;
    BlockedOne blocked_one = BlockedOne::kConsume;
    BlockedNone blocked_none = BlockedNone::kNothing;
    Response response = Response::kTrim;
    Overshoot overshoot = Overshoot::kCarry;
    Excess excess = Excess::kAddToHead;
    /// Whether the threshold is tested again when a sender is unblocked.
    bool test_after_unblocking = true;
    /// Whether the piggybacking way grants one credit where no slot is available.
    bool at_least_one = false;
    /// Whether more may be piggybacked than slots are available.
    bool piggyback_unavailable = false;
    /// Not of the paper, where all begin with as many credits as credit slots: whether the thresholds of who
    /// begins with more add up to one more than that.
    bool first_thresholds_add_up = true;
};

}  // namespace velo::flowctl
