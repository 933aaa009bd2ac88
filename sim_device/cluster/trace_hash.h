/// A hash over the events of a simulation, in their order: two runs that agree in it did the same at the same
/// times.
#pragma once

#include <cstdint>

namespace velo::cluster {

enum class TraceEvent : uint8_t { kSend, kDeliver, kPoll, kHold, kOnNode, kStall, kRma, kDeath };

class TraceHash {
  public:
    void add(TraceEvent event, uint32_t process, uint64_t at_ns, uint64_t value) {
        mix(static_cast<uint64_t>(event) << 32 | process);
        mix(at_ns);
        mix(value);
    }
    [[nodiscard]] uint64_t value() const { return value_; }

  private:
    /// The finisher of splitmix64: every bit of the word reaches every bit of the hash.
    void mix(uint64_t word) {
        uint64_t x = (value_ ^ word) + 0x9e3779b97f4a7c15;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
        x = (x ^ x >> 27) * 0x94d049bb133111eb;
        value_ = x ^ x >> 31;
    }

    uint64_t value_ = 0;
};

}  // namespace velo::cluster
