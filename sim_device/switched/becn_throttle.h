/// Injection of a node under FECN/BECN (RDRP 4.1): a counter that BECN packets raise, and packets without it
/// and time lower. A pure machine. Owner: a simulated NIC.
#pragma once

#include <algorithm>
#include <cstdint>

namespace velo::switched {

class BecnThrottle {
  public:
    static constexpr uint32_t kCounterMax = 20;
    static constexpr uint32_t kRaise = 8;

    /// `decay_cycles`: the counter falls by one each time these have passed (4; aggressive: 50). At least 1.
    explicit BecnThrottle(uint32_t decay_cycles) : decay_cycles_(decay_cycles) {}

    /// A packet has come.
    void received(bool becn) {
        if (becn)
            counter_ = std::min(counter_ + kRaise, kCounterMax);
        else if (counter_ != 0)
            --counter_;
    }
    /// Time for one packet has passed, `cycles` of them.
    void tick(uint32_t cycles) {
        cycles_ += cycles;
        const uint32_t steps = cycles_ / decay_cycles_;
        cycles_ %= decay_cycles_;
        counter_ -= std::min(counter_, steps);
        // A packet costs kCounterMax, so the rate is 1 - counter / kCounterMax; what is left of one is kept.
        tokens_ = std::min(tokens_ + kCounterMax - counter_, 2 * kCounterMax - 1);
    }
    [[nodiscard]] bool may_send() const { return tokens_ >= kCounterMax; }
    void sent() { tokens_ -= kCounterMax; }
    [[nodiscard]] uint32_t counter() const { return counter_; }

  private:
    uint32_t decay_cycles_;
    uint32_t cycles_ = 0;
    uint32_t counter_ = 0;
    uint32_t tokens_ = 0;
};

}  // namespace velo::switched
