/// Credits of a switched network: for each output and virtual channel, the flits of the buffer behind it that are in
/// use or promised. Flits that leave a buffer come back as credit in the next slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace velo::switched {

/// Owner: the network. Thread: one. No allocation after the constructor. Invariant: the flits in use of an output are
/// the sum of its channels'.
class LinkCredits {
  public:
    /// `returns_max`: calls of give_back() in one slot.
    LinkCredits(uint32_t outputs, uint32_t vcs, size_t returns_max)
        : vcs_(vcs), used_(size_t{outputs} * vcs), used_flits_(outputs) {
        freed_.reserve(returns_max);
    }

    /// Flits in use by channel, of an output.
    [[nodiscard]] const uint16_t* used(uint32_t output) const { return &used_[output * vcs_]; }
    /// Flits in use over all channels, of an output and those that follow it.
    [[nodiscard]] const uint32_t* used_flits(uint32_t output) const { return &used_flits_[output]; }

    void take(uint32_t output, uint32_t vc, uint32_t flits) {
        uint16_t& used = used_[output * vcs_ + vc];
        used = static_cast<uint16_t>(used + flits);
        used_flits_[output] += flits;
    }
    /// The flits have left the buffer.
    void give_back(uint32_t output, uint8_t vc, uint8_t flits) { freed_.push_back({output, vc, flits}); }

    /// The next slot: what was given back can be taken again. Calls `returned(output)` for each of them.
    template <typename Returned>
    void next_slot(Returned&& returned) {
        for (const Freed& freed : freed_) {
            uint16_t& used = used_[freed.output * vcs_ + freed.vc];
            used = static_cast<uint16_t>(used - freed.flits);
            used_flits_[freed.output] -= freed.flits;
            returned(freed.output);
        }
        freed_.clear();
    }

    /// Empty, or a sentence on the first credit that is not as `found`: by output and channel, the flits in buffers
    /// and on their way there.
    [[nodiscard]] std::string audit(std::vector<uint32_t> found) const {
        for (const Freed& freed : freed_) found[freed.output * vcs_ + freed.vc] += freed.flits;
        for (uint32_t output = 0; output < used_flits_.size(); ++output) {
            uint32_t all = 0;
            for (uint32_t vc = 0; vc < vcs_; ++vc) {
                const uint32_t flits = found[output * vcs_ + vc];
                all += flits;
                if (flits != used_[output * vcs_ + vc])
                    return "output " + std::to_string(output) + " VC " + std::to_string(vc) + " counts " +
                           std::to_string(used_[output * vcs_ + vc]) + " flits in use, and there are " +
                           std::to_string(flits);
            }
            if (all != used_flits_[output])
                return "output " + std::to_string(output) + " has " + std::to_string(all) + " flits in use";
        }
        return "";
    }

  private:
    struct Freed {
        uint32_t output = 0;
        uint8_t vc = 0;
        uint8_t flits = 0;
    };

    uint32_t vcs_;
    std::vector<uint16_t> used_;        ///< by output and VC
    std::vector<uint32_t> used_flits_;  ///< by output, over all VCs
    std::vector<Freed> freed_;          ///< credits that come back in the next slot
};

}  // namespace velo::switched
