/// A barrier of processes by dissemination: in round k each one sends to rank + 2^k and waits for rank - 2^k, so that
/// after the last round every process knows of all.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace velo::sim {

/// One process's part in one barrier after another. A pure machine. Owner: the process. A message of a round may come
/// before this process has begun that barrier.
class DisseminationBarrier {
  public:
    enum class Step : uint8_t {
        kSend,  ///< this round's message, to to(); then sent()
        kWait,  ///< for this round's message
        kOver,
    };

    DisseminationBarrier(uint32_t rank, uint32_t processes)
        : rank_(rank), processes_(processes), rounds_(static_cast<uint8_t>(std::bit_width(processes - 1))) {}

    void begin() {
        ++begun_;
        round_ = 0;
        sent_ = false;
        inside_ = true;
    }
    /// Between begin() and a step that is kOver.
    [[nodiscard]] bool inside() const { return inside_; }
    /// The next step, after the rounds whose messages have come.
    [[nodiscard]] Step step() {
        while (round_ != rounds_ && sent_ && has_arrived(round_)) {
            ++round_;
            sent_ = false;
        }
        inside_ = round_ != rounds_;
        if (!inside_) return Step::kOver;
        return sent_ ? Step::kWait : Step::kSend;
    }
    [[nodiscard]] uint8_t round() const { return round_; }
    [[nodiscard]] uint32_t to() const {
        return static_cast<uint32_t>((rank_ + (uint64_t{1} << round_)) % processes_);
    }
    void sent() { sent_ = true; }
    /// A message of this round has come, of this barrier or of the next one.
    void arrived(uint8_t round) {
        if (round >= arrived_.size()) arrived_.resize(round + size_t{1});
        ++arrived_[round];
    }

  private:
    [[nodiscard]] bool has_arrived(uint8_t round) const { return round < arrived_.size() && arrived_[round] >= begun_; }

    uint32_t rank_;
    uint32_t processes_;
    uint32_t begun_ = 0;             ///< barriers
    std::vector<uint32_t> arrived_;  ///< by round, of all barriers
    uint8_t rounds_;
    uint8_t round_ = 0;
    bool sent_ = false;
    bool inside_ = false;
};

}  // namespace velo::sim
