/// Registered memory of one simulated process: the ranges that its peers may touch (the ATU, FC 2).
///
/// An NLA is entry << 40 | offset, so a registration spans at most 1 TiB. A key is odd and belongs to one
/// registration of an entry, so a revoked key never fits the entry's next registration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "velo/device/device.h"

namespace velo::cluster {

/// Owner: an RmaUnit. Memory follows the most registrations that were valid at a time.
class RegistrationTable {
  public:
    static constexpr uint32_t kEntriesMax = 4096;

    /// kNoResource: the table is full, or the range is longer than an NLA can name.
    Status add(void* base, size_t bytes, uint32_t access, Registration& out) {
        const auto first = reinterpret_cast<uint64_t>(base);
        if (base == nullptr || bytes == 0 || first + bytes < first) return Status::kBadParam;
        if (access == 0 || (access & ~uint32_t{kAccessAny}) != 0) return Status::kBadParam;
        if (bytes > kOffsetMask || (free_.empty() && entries_.size() == kEntriesMax)) return Status::kNoResource;
        auto number = static_cast<uint32_t>(entries_.size());
        if (free_.empty()) {
            // Entries begin at keys of their own, so that an NLA that strays into another one does not fit there.
            entries_.push_back({.key = (number * 2654435761u) & ~1u});
        } else {
            number = free_.back();
            free_.pop_back();
        }
        Entry& entry = entries_[number];
        entry = {.base = static_cast<std::byte*>(base), .bytes = bytes, .key = entry.key + 1, .access = access};
        out = {.nla = uint64_t{number} << kOffsetBits, .bytes = bytes, .key = entry.key, .access = access};
        return Status::kOk;
    }

    /// kBadParam: not a valid registration.
    Status remove(const Registration& registration) {
        const uint64_t number = registration.nla >> kOffsetBits;
        if (!valid(number, registration.key)) return Status::kBadParam;
        ++entries_[number].key;
        free_.push_back(static_cast<uint32_t>(number));
        return Status::kOk;
    }

    /// The address of [nla, nla + bytes), if all of it is registered with `access`; kAtuFault otherwise.
    Status translate(uint64_t nla, uint64_t bytes, uint64_t key, uint32_t access, std::byte*& address) const {
        const uint64_t number = nla >> kOffsetBits;
        const uint64_t offset = nla & kOffsetMask;
        if (!valid(number, key)) return Status::kAtuFault;
        const Entry& entry = entries_[number];
        if ((entry.access & access) != access) return Status::kAtuFault;
        if (offset > entry.bytes || bytes > entry.bytes - offset) return Status::kAtuFault;
        address = entry.base + offset;
        return Status::kOk;
    }

    [[nodiscard]] uint32_t registrations() const { return static_cast<uint32_t>(entries_.size() - free_.size()); }

  private:
    static constexpr uint32_t kOffsetBits = 40;
    static constexpr uint64_t kOffsetMask = (uint64_t{1} << kOffsetBits) - 1;

    struct Entry {
        std::byte* base = nullptr;
        uint64_t bytes = 0;
        uint32_t key = 0;  ///< odd while the entry is valid
        uint32_t access = 0;
    };

    [[nodiscard]] bool valid(uint64_t number, uint64_t key) const {
        return number < entries_.size() && key % 2 == 1 && entries_[number].key == key;
    }

    std::vector<Entry> entries_;
    std::vector<uint32_t> free_;
};

}  // namespace velo::cluster
