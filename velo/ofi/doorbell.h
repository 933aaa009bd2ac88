/// A thread that sleeps until something comes for a device that has been quiet, so that nobody has to ask meanwhile.
///
/// The device arms it when nothing came for a while, and from then on looks at one word in memory instead of asking the
/// kernel. What comes wakes the thread, which writes the word and sleeps until it is armed again: it runs
/// once for each end of a quiet time, and calls nothing of libfabric's.
///
/// Owner and thread: the device's. All signals are blocked in the thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace velo::ofi {

class Doorbell {
  public:
    /// `ready`: a descriptor that can be read as long as something is there to be taken. Throws std::system_error.
    explicit Doorbell(int ready);
    Doorbell(const Doorbell&) = delete;
    Doorbell& operator=(const Doorbell&) = delete;
    ~Doorbell();

    /// True once for each time that something came after arm(): from then on it is not armed.
    [[nodiscard]] bool rang() {
        if (!armed_ || !rang_.load(std::memory_order_acquire)) return false;
        armed_ = false;
        return true;
    }
    /// What comes will ring.
    [[nodiscard]] bool armed() const { return armed_; }
    /// Only where it is not armed. The caller has made sure that what it did not take shows at the descriptor.
    void arm();

  private:
    void watch(int ready);
    void tell(uint64_t word) const;

    int told_;  ///< an eventfd
    bool armed_ = false;
    std::atomic<bool> rang_ = false;
    std::thread thread_;
};

}  // namespace velo::ofi
