/// The window of a process in bytes, by measuring: what its link brings in the least time of a chunk, twice.
///
/// More under way than the rate at which data comes, times the least time that a chunk takes, lies in queues
/// of the network, where it holds up others (RDRP 4.1; Little's law). Twice as much keeps a link busy whose
/// chunks end unevenly. While nothing is known the window begins with two chunks, and doubles as long as that
/// makes data come faster by a quarter. The least time grows old, because a path may have become a longer
/// one: after some epochs the window is one chunk for an epoch, in which nothing but the path itself takes
/// time.
///
/// Not in the papers; RDRP 4.1 takes a fixed window, whose best value it finds by trying.
///
/// A pure machine: no I/O, clock, lock or log. Owner: Transfers. Thread: the engine's.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "velo/base/check.h"

namespace velo::rma {

class AdaptiveWindow {
  public:
    /// `chunk_bytes`: most of a chunk, and the least window; `bytes_max`: the largest.
    AdaptiveWindow(uint32_t chunk_bytes, uint64_t bytes_max)
        : chunk_bytes_(chunk_bytes),
          bytes_max_(std::max<uint64_t>(bytes_max, chunk_bytes)),
          bytes_(std::min<uint64_t>(2 * uint64_t{chunk_bytes}, bytes_max_)) {
        VELO_CHECK(chunk_bytes > 0, "chunks of %u bytes", chunk_bytes);
    }

    [[nodiscard]] uint64_t bytes() const { return bytes_; }

    /// A chunk is issued. `alone`: nothing else is under way; the time without any counts for nothing.
    void began(uint64_t now_ns, bool alone) {
        if (alone) epoch_began_ns_ += now_ns - std::max(idle_since_ns_, epoch_began_ns_);
    }

    /// A chunk has ended, `took_ns` after it was issued. `last`: nothing is under way now.
    void ended(uint32_t bytes, uint64_t took_ns, uint64_t now_ns, bool last) {
        if (last) idle_since_ns_ = now_ns;
        // A chunk issued before the window became one chunk has waited for the rest of it.
        if (probing_ && now_ns - took_ns < epoch_began_ns_) return;
        epoch_bytes_ += bytes;
        // A short chunk tells nothing of the time of a long one.
        if (bytes >= chunk_bytes_ / 2)
            epoch_least_ns_ = std::min(epoch_least_ns_, std::max<uint64_t>(took_ns, 1));
        const uint64_t epoch_bytes_min =
            probing_ ? 2 * uint64_t{chunk_bytes_} : std::max(bytes_, kEpochChunks * chunk_bytes_);
        if (epoch_bytes_ < epoch_bytes_min || now_ns <= epoch_began_ns_) return;
        end_epoch(epoch_bytes_ * kRateUnit / (now_ns - epoch_began_ns_));
        epoch_began_ns_ = now_ns;
        epoch_bytes_ = 0;
        epoch_least_ns_ = kUnknown;
    }

  private:
    /// Rates are kept in bytes per this number of nanoseconds.
    static constexpr uint64_t kRateUnit = 1024;
    static constexpr uint64_t kUnknown = UINT64_MAX;
    static constexpr uint64_t kEpochChunks = 4;
    /// Epochs whose best rate counts, and those after which the least time is measured again.
    static constexpr size_t kRateEpochs = 8;
    static constexpr uint32_t kLeastEpochs = 128;
    static constexpr uint64_t kGain = 2;

    void end_epoch(uint64_t rate) {
        if (probing_) {
            probing_ = false;
            least_ns_ = epoch_least_ns_ == kUnknown ? least_ns_ : epoch_least_ns_;
            age_ = 0;
            bytes_ = target();
            return;
        }
        const uint64_t best_before = best_rate();
        rates_[epoch_++ % kRateEpochs] = rate;
        if (epoch_least_ns_ < least_ns_) {
            least_ns_ = epoch_least_ns_;
            age_ = 0;
        }
        if (growing_) {
            growing_ = rate * 4 >= best_before * 5 && bytes_ < bytes_max_;
            if (growing_) {
                bytes_ = std::min(2 * bytes_, bytes_max_);
                return;
            }
        }
        if (++age_ == kLeastEpochs) {
            probing_ = true;
            bytes_ = chunk_bytes_;
            return;
        }
        bytes_ = target();
    }

    [[nodiscard]] uint64_t best_rate() const { return *std::max_element(rates_.begin(), rates_.end()); }
    [[nodiscard]] uint64_t target() const {
        if (least_ns_ == kUnknown) return bytes_max_;
        const uint64_t held = best_rate() * least_ns_ / kRateUnit;
        return std::clamp<uint64_t>(kGain * held, std::min<uint64_t>(2 * uint64_t{chunk_bytes_}, bytes_max_),
                                    bytes_max_);
    }

    uint32_t chunk_bytes_;
    uint64_t bytes_max_;
    uint64_t bytes_;
    uint64_t least_ns_ = kUnknown;
    std::array<uint64_t, kRateEpochs> rates_{};
    uint64_t epoch_ = 0;
    uint64_t epoch_began_ns_ = 0;
    uint64_t epoch_bytes_ = 0;
    uint64_t epoch_least_ns_ = kUnknown;
    uint64_t idle_since_ns_ = 0;
    uint32_t age_ = 0;  ///< epochs since the least time was measured
    bool growing_ = true;
    bool probing_ = false;
};

}  // namespace velo::rma
