/// Rails that fail: taken out of use, and tried again later.
///
/// A rail is out after some failures in a row, and then waits: at first a given time, after each trial that
/// fails twice as long, at most 64 times. A trial is one operation, beside which nothing else takes the rail.
/// The first success brings it back. Which failures belong together the caller decides: those of the paths
/// to one peer, or those of a process's own rails, whatever peer they meet.
///
/// A pure machine: no I/O, clock, lock or log. It allocates at the first failure, and nothing before. Owner:
/// the engine. Thread: the engine's.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>

#include "rma/rail_mask.h"
#include "velo/base/check.h"

namespace velo::rma {

class RailOutages {
  public:
    static constexpr uint64_t kWaitsMost = 64;  ///< the longest wait, in first ones

    /// No rail has failed since it last worked.
    [[nodiscard]] bool clear() const { return suspects_ == 0; }
    /// Rails that have failed since they last worked.
    /// Rails that are out and not due for a trial.
    [[nodiscard]] RailMask barred(uint64_t now_ns) const { return suspects_ == 0 ? 0 : barred_now(now_ns); }
    /// Rails that are out, due for a trial or not.
    [[nodiscard]] RailMask out() const {
        return select([](const State& state) { return state.wait_ns != 0; });
    }
    /// When the rail is tried next; 0: it is not out.
    [[nodiscard]] uint64_t retry_ns(uint32_t rail) const {
        return (out() & rail_bit(rail)) != 0 ? states_[rail].retry_ns : 0;
    }

    /// An operation has begun. On a rail that is out it is the trial.
    void began(uint32_t rail) {
        if ((suspects_ & rail_bit(rail)) == 0) [[likely]]
            return;
        states_[rail].tried = states_[rail].wait_ns != 0;
    }
    /// The rail has done what it was asked. True: it was out.
    bool succeeded(uint32_t rail) {
        if ((suspects_ & rail_bit(rail)) == 0) [[likely]]
            return false;
        suspects_ &= ~rail_bit(rail);
        const bool was_out = states_[rail].wait_ns != 0;
        states_[rail] = {};
        return was_out;
    }
    /// The rail has failed at `now_ns`, and is out if that is `failures_max` times in a row. `wait_ns`: the
    /// first wait. True: it was in use until now.
    [[gnu::cold]] bool failed(uint32_t rail, uint64_t now_ns, uint32_t failures_max, uint64_t wait_ns) {
        VELO_CHECK(rail < kRailsMax && failures_max > 0 && wait_ns > 0, "rail %u, %u failures", rail,
                   failures_max);
        if (!states_) states_ = std::make_unique<State[]>(kRailsMax);
        suspects_ |= rail_bit(rail);
        State& state = states_[rail];
        if (state.wait_ns == 0) {
            if (++state.failures < failures_max) return false;
            state.wait_ns = wait_ns;
            state.retry_ns = now_ns + wait_ns;
            return true;
        }
        // Others that were under way when it was taken out say nothing of the trial.
        if (!state.tried) return false;
        state.tried = false;
        state.wait_ns = std::min(2 * state.wait_ns, kWaitsMost * wait_ns);
        state.retry_ns = now_ns + state.wait_ns;
        return false;
    }

  private:
    struct State {
        uint64_t wait_ns = 0;  ///< 0: in use
        uint64_t retry_ns = 0;
        uint32_t failures = 0;  ///< in a row
        bool tried = false;     ///< the trial has not ended
    };

    template <class Condition>
    [[nodiscard]] RailMask select(Condition&& condition) const {
        VELO_DCHECK(suspects_ == 0 || states_ != nullptr, "suspects without a state");
        RailMask found = 0;
        for (RailMask left = suspects_; left != 0; left &= left - 1) {
            const auto rail = static_cast<uint32_t>(std::countr_zero(left));
            if (condition(states_[rail])) found |= rail_bit(rail);
        }
        return found;
    }
    [[gnu::cold]] [[nodiscard]] RailMask barred_now(uint64_t now_ns) const {
        return select([now_ns](const State& state) {
            return state.wait_ns != 0 && (state.tried || now_ns < state.retry_ns);
        });
    }

    RailMask suspects_ = 0;
    std::unique_ptr<State[]> states_;  ///< by rail; none before the first failure
};

}  // namespace velo::rma
