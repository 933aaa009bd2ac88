/// Peers of one simulated process: dense device addresses, given out at first contact.
#pragma once

#include <cstdint>
#include <vector>

#include "velo/device/device.h"

namespace velo::cluster {

struct ClusterPeer {
    uint32_t process = 0;
    DeviceAddr reverse = kNoAddr;  ///< what that process calls this one
    uint64_t last_arrival_ns = 0;  ///< of a packet sent to it
};
static_assert(sizeof(ClusterPeer) == 16);

/// Owner: a ClusterDevice. Finding is O(1); memory follows the peers met.
class PeerTable {
  public:
    /// kNoAddr: never met.
    [[nodiscard]] DeviceAddr find(uint32_t process) const {
        if (index_.empty()) return kNoAddr;
        for (uint32_t at = slot(process);; at = next(at)) {
            const DeviceAddr address = index_[at];
            if (address == kNoAddr || peers_[address].process == process) return address;
        }
    }
    DeviceAddr add(uint32_t process) {
        if (2 * (peers_.size() + 1) > index_.size()) grow();
        const auto address = static_cast<DeviceAddr>(peers_.size());
        peers_.push_back({.process = process});
        insert(address);
        return address;
    }
    [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(peers_.size()); }
    [[nodiscard]] ClusterPeer& operator[](DeviceAddr address) { return peers_[address]; }
    [[nodiscard]] const ClusterPeer& operator[](DeviceAddr address) const { return peers_[address]; }

  private:
    [[nodiscard]] uint32_t slot(uint32_t process) const {
        return process * 2654435761u & static_cast<uint32_t>(index_.size() - 1);
    }
    [[nodiscard]] uint32_t next(uint32_t at) const {
        return (at + 1) & static_cast<uint32_t>(index_.size() - 1);
    }
    void insert(DeviceAddr address) {
        uint32_t at = slot(peers_[address].process);
        while (index_[at] != kNoAddr) at = next(at);
        index_[at] = address;
    }
    void grow() {
        index_.assign(index_.empty() ? 4 : index_.size() * 2, kNoAddr);
        for (DeviceAddr address = 0; address < peers_.size(); ++address) insert(address);
    }

    std::vector<ClusterPeer> peers_;
    std::vector<DeviceAddr> index_;  ///< open addressing, a power of two, at most half full
};

}  // namespace velo::cluster
