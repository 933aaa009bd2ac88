/// In which polls an engine looks at a device that is dear to poll (DeviceTraits::dear_to_poll).
///
/// In every poll while something came of late, or while polls are far apart; otherwise in one of kPolls, so that
/// messages on the node pay nothing for it, and one that comes by surprise waits some microseconds.
///
/// Pure. Owner: the engine.
#pragma once

#include <cstdint>

namespace velo {

class DevicePause {
  public:
    static constexpr uint32_t kPolls = 32;
    /// Polls that take longer than this on average are not left out.
    static constexpr uint64_t kQuickPollNs = 300;
    /// Something came of late.
    static constexpr uint64_t kQuietNs = 100'000;

    explicit constexpr DevicePause(bool dear = false) : dear_(dear) {}

    [[nodiscard]] constexpr bool due(uint32_t poll) const { return (poll & mask_) == 0; }
    /// The last `polls` polls took so long, and something last came so long ago.
    constexpr void measured(uint32_t polls, uint64_t took_ns, uint64_t quiet_ns) {
        const bool pause = dear_ && quiet_ns > kQuietNs && took_ns <= polls * kQuickPollNs;
        mask_ = pause ? kPolls - 1 : 0;
    }

  private:
    bool dear_;
    uint32_t mask_ = 0;
};

}  // namespace velo
