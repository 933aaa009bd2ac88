/// From the source that a packet carries to the peer's device address.
#pragma once

#include <cstdint>
#include <vector>

#include "velo/device/device.h"

namespace velo::shim {

/// Open addressing, at most half full: O(1), and as large as the peers that were met. Thread: the owner's.
class SourceIndex {
  public:
    /// kNoAddr when the source is not known.
    [[nodiscard]] DeviceAddr find(uint32_t source) const {
        for (uint32_t at = hash(source);; ++at) {
            const Entry& entry = entries_[at & mask_];
            if (entry.source == source) return entry.addr;
            if (entry.source == kEmpty) return kNoAddr;
        }
    }

    /// Adds a source, or gives it another address.
    void set(uint32_t source, DeviceAddr addr) {
        if (2 * (used_ + 1) > entries_.size()) grow();
        place(source, addr);
    }

  private:
    static constexpr uint32_t kEmpty = UINT32_MAX;  // a source has 24 bits
    struct Entry {
        uint32_t source = kEmpty;
        DeviceAddr addr = kNoAddr;
    };

    /// Neighbouring nodes and VPIDs must not meet in one place.
    static uint32_t hash(uint32_t source) { return source * 2654435761u >> 8; }

    void place(uint32_t source, DeviceAddr addr) {
        uint32_t at = hash(source);
        while (entries_[at & mask_].source != kEmpty && entries_[at & mask_].source != source) ++at;
        Entry& entry = entries_[at & mask_];
        if (entry.source == kEmpty) ++used_;
        entry = {source, addr};
    }

    void grow() {
        std::vector<Entry> old(entries_.size() * 2);
        old.swap(entries_);
        mask_ = static_cast<uint32_t>(entries_.size() - 1);
        used_ = 0;
        for (const Entry& entry : old) {
            if (entry.source != kEmpty) place(entry.source, entry.addr);
        }
    }

    std::vector<Entry> entries_ = std::vector<Entry>(16);
    uint32_t mask_ = 15;
    uint32_t used_ = 0;
};

}  // namespace velo::shim
