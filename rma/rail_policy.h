/// Which rails a transfer takes: RAILS 3 (local dynamic), 5.2 (round robin, there the basic one), and 4.3
/// (hybrid).
///
/// A rule names rails for a transfer, or none: the caller then queues the transfer, and asks again when a
/// rail becomes free or live. The paper's algorithm 3 asks again at once, without end.
///
/// Pure machines: no I/O, clock, lock, log or allocation. Owner: the engine, one of each a process, so that
/// what other processes of the node do is not seen. Thread: the engine's. Cost of a choice: O(rails taken).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "rma/rail_mask.h"
#include "velo/base/check.h"

namespace velo::rma {

enum class RailDirection : uint8_t { kSending, kReceiving };

/// The state of a process's rails. An operation that was begun is counted until it has ended, also on a rail
/// that has failed meanwhile. Short transfers of kHybrid are not begun: they leave a rail's state as it is
/// (RAILS 4.3).
class RailSet {
  public:
    explicit RailSet(uint32_t rails) : rails_(rails) {
        VELO_CHECK(rails > 0 && rails <= kRailsMax, "%u rails", rails);
        live_ = ~RailMask{0} >> (kRailsMax - rails);
    }

    void begin(uint32_t rail, RailDirection direction, uint64_t bytes) {
        VELO_CHECK((live_ >> check(rail) & 1) != 0, "rail %u is begun after its failure", rail);
        State& state = states_[rail];
        ++state.operations[index(direction)];
        state.bytes += bytes;
        busy_[index(direction)] |= rail_bit(rail);
    }
    void end(uint32_t rail, RailDirection direction, uint64_t bytes) {
        State& state = states_[check(rail)];
        uint32_t& operations = state.operations[index(direction)];
        VELO_CHECK(operations > 0 && state.bytes >= bytes, "rail %u ends %llu bytes, which it has not begun",
                   rail, static_cast<unsigned long long>(bytes));
        --operations;
        state.bytes -= bytes;
        if (operations == 0) busy_[index(direction)] &= ~rail_bit(rail);
    }
    void failed(uint32_t rail) { live_ &= ~rail_bit(check(rail)); }
    void revived(uint32_t rail) { live_ |= rail_bit(check(rail)); }

    [[nodiscard]] uint32_t rails() const { return rails_; }
    [[nodiscard]] RailMask live() const { return live_; }
    [[nodiscard]] RailMask busy(RailDirection direction) const { return busy_[index(direction)]; }
    /// Live rails that neither send nor receive (RAILS 3), and those of which this half is free: a
    /// full-duplex rail does both at a time.
    [[nodiscard]] RailMask free() const { return live_ & ~(busy_[0] | busy_[1]); }
    [[nodiscard]] RailMask free(RailDirection direction) const { return live_ & ~busy(direction); }
    [[nodiscard]] uint64_t bytes_under_way(uint32_t rail) const { return states_[check(rail)].bytes; }

  private:
    struct State {
        uint64_t bytes = 0;
        std::array<uint32_t, 2> operations{};
    };
    [[nodiscard]] static constexpr size_t index(RailDirection direction) {
        return static_cast<size_t>(direction);
    }
    [[nodiscard]] uint32_t check(uint32_t rail) const {
        VELO_CHECK(rail < rails_, "rail %u of %u", rail, rails_);
        return rail;
    }

    std::array<State, kRailsMax> states_{};
    std::array<RailMask, 2> busy_{};
    RailMask live_ = 0;
    uint32_t rails_;
};

enum class RailRule : uint8_t {
    kRoundRobin,    ///< the next live rail, busy or not; the transfer is not split
    kLocalDynamic,  ///< a part of the free rails, and none if none is free
    /// Short transfers by kRoundRobin over live rails, so that they never wait; RAILS has it over free ones,
    /// and does not say what follows if none is free. Others by `long_rule`; RAILS has the dynamic rule
    /// there.
    kHybrid,
};

struct RailSettings {
    RailRule rule = RailRule::kHybrid;
    RailRule long_rule = RailRule::kLocalDynamic;
    uint32_t striping_percent = 100;  ///< of the free rails, rounded up, and one at least
    uint64_t fragment_bytes_min = 1;  ///< a transfer is not split into smaller ones
    uint64_t short_bytes = 0;         ///< kHybrid: a transfer below it is short
};

class RailPolicy {
  public:
    explicit RailPolicy(const RailSettings& settings) : settings_(settings) {
        VELO_CHECK(settings.striping_percent <= 100, "striping of %u percent", settings.striping_percent);
        VELO_CHECK(settings.fragment_bytes_min > 0, "fragments of no bytes, rule %u",
                   static_cast<unsigned>(settings.rule));
        VELO_CHECK(settings.long_rule != RailRule::kHybrid, "long transfers by rule %u",
                   static_cast<unsigned>(settings.long_rule));
    }

    /// Rails for a transfer, one fragment each. None: nothing changed; no rail is free, or none is live.
    [[nodiscard]] RailMask choose(const RailSet& rails, uint64_t bytes) {
        return choose(rails.live(), rails.free(), bytes);
    }
    /// Rails for a transfer over full-duplex rails, and no others than `usable`. None: nothing changed.
    [[nodiscard]] RailMask choose(const RailSet& rails, uint64_t bytes, RailMask usable,
                                  RailDirection direction) {
        return choose(rails.live() & usable, rails.free(direction) & usable, bytes);
    }
    /// Rails for a transfer out of those that the caller finds free. None: nothing changed.
    [[nodiscard]] RailMask share(RailMask free, uint64_t bytes) { return choose(free, free, bytes); }

  private:
    [[nodiscard]] RailMask choose(RailMask live, RailMask free, uint64_t bytes) {
        RailRule rule = settings_.rule;
        if (rule == RailRule::kHybrid) {
            rule = bytes < settings_.short_bytes ? RailRule::kRoundRobin : settings_.long_rule;
        }
        if (rule == RailRule::kRoundRobin) return take(live, 1, next_live_);
        const auto free_count = static_cast<uint64_t>(std::popcount(free));
        const uint64_t striped = std::max<uint64_t>((free_count * settings_.striping_percent + 99) / 100, 1);
        const uint64_t fragments = std::max<uint64_t>(bytes / settings_.fragment_bytes_min, 1);
        return take(free, std::min(striped, fragments), next_free_);
    }

    /// `count` of the rails, which are as many or none, from `next` on and then from rail 0 (RAILS 3: just
    /// past the last one taken).
    [[nodiscard]] static RailMask take(RailMask rails, uint64_t count, uint32_t& next) {
        RailMask taken = 0;
        for (; count != 0 && rails != 0; --count) {
            const RailMask behind = rails & ~(rail_bit(next) - 1);
            const auto rail = static_cast<uint32_t>(std::countr_zero(behind != 0 ? behind : rails));
            taken |= rail_bit(rail);
            next = (rail + 1) % kRailsMax;
        }
        return taken;
    }

    RailSettings settings_;
    uint32_t next_live_ = 0;
    uint32_t next_free_ = 0;
};

struct RailFragment {
    uint64_t offset;
    uint64_t bytes;
};

/// A fragment of a transfer, one of `count`, in order of the rails taken. Their bytes differ by one at most.
[[nodiscard]] constexpr RailFragment rail_fragment(uint64_t bytes, uint32_t count, uint32_t index) {
    VELO_CHECK(index < count, "fragment %u of %u", index, count);
    const uint64_t longer = bytes % count;
    return {.offset = bytes / count * index + std::min<uint64_t>(index, longer),
            .bytes = bytes / count + (index < longer ? 1 : 0)};
}

}  // namespace velo::rma
