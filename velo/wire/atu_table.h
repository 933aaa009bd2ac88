/// Address translation table in shared memory: which ranges of its owner's memory others may touch.
///
/// The owner writes it; peers only read it, and check every access they are about to make against it (the
/// software counterpart of EXTOLL's ATU, FC 2). A registration is named by its slot and generation, so a
/// revoked one is never mistaken for its successor. A reader checks the key before and after it moves
/// data: a range that was revoked meanwhile ends in a fault, whatever was moved.
///
/// NLA layout: slot << 40 | offset, so that a registration spans at most 1 TiB.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "velo/base/check.h"
#include "velo/base/status.h"
#include "velo/os/shared_segment.h"
#include "velo/wire/registration.h"

namespace velo::base {

inline constexpr uint32_t kNlaOffsetBits = 40;
inline constexpr uint64_t kNlaOffsetMask = (uint64_t{1} << kNlaOffsetBits) - 1;

struct AtuEntry {
    std::atomic<uint64_t> base;
    std::atomic<uint64_t> bytes;
    /// Generation; odd while the entry is valid, and never the same twice within 2^31 registrations.
    std::atomic<uint32_t> key;
    std::atomic<uint32_t> access;
};
static_assert(sizeof(AtuEntry) == 24);

/// The peers' side of the table. Thread: any.
class AtuView {
  public:
    AtuView() = default;
    AtuView(const std::byte* memory, uint32_t capacity)
        : entries_(reinterpret_cast<const AtuEntry*>(memory)), capacity_(capacity) {}

    /// The owner's virtual address for [nla, nla + bytes), if all of it is registered with `access`.
    /// kAtuFault otherwise.
    /// Keys of this table have 32 bits; those that a device's operation names have 64, and a longer one fits nothing.
    Status translate(uint64_t nla, uint64_t bytes, uint64_t key, uint32_t access, uint64_t& address) const {
        const uint64_t slot = nla >> kNlaOffsetBits;
        const uint64_t offset = nla & kNlaOffsetMask;
        if (slot >= capacity_ || key % 2 == 0) return Status::kAtuFault;
        const AtuEntry& entry = entries_[slot];
        if (entry.key.load(std::memory_order_acquire) != key) return Status::kAtuFault;
        const uint64_t base = entry.base.load(std::memory_order_relaxed);
        const uint64_t size = entry.bytes.load(std::memory_order_relaxed);
        const uint32_t rights = entry.access.load(std::memory_order_relaxed);
        // The fields belong to `key` only if the key still stands after they were read.
        std::atomic_thread_fence(std::memory_order_acquire);
        if (!valid(nla, key) || (rights & access) != access) return Status::kAtuFault;
        if (offset > size || bytes > size - offset) return Status::kAtuFault;
        address = base + offset;
        return Status::kOk;
    }

    /// Names a registration of all of [address, address + bytes) with `access`. O(capacity): for a peer whose
    /// handle is of another range, or revoked. A registration that stands all the while is found.
    Status find(uint64_t address, uint64_t bytes, uint32_t access, uint64_t& nla, uint32_t& key) const {
        for (uint32_t slot = 0; slot < capacity_; ++slot) {
            const AtuEntry& entry = entries_[slot];
            const uint32_t found = entry.key.load(std::memory_order_acquire);
            const uint64_t offset = address - entry.base.load(std::memory_order_relaxed);
            if (found % 2 == 0 || offset > kNlaOffsetMask) continue;
            const uint64_t place = (uint64_t{slot} << kNlaOffsetBits) + offset;
            uint64_t translated = 0;
            // Reads the fields again, and checks that they are those of this key.
            if (translate(place, bytes, found, access, translated) != Status::kOk || translated != address)
                continue;
            nla = place;
            key = found;
            return Status::kOk;
        }
        return Status::kAtuFault;
    }

    /// True while the registration that `nla` and `key` name has not been revoked.
    [[nodiscard]] bool valid(uint64_t nla, uint64_t key) const {
        const uint64_t slot = nla >> kNlaOffsetBits;
        return slot < capacity_ && entries_[slot].key.load(std::memory_order_acquire) == key;
    }

    /// The outcome of a direct copy to or from a registration: memory that was revoked meanwhile may have been
    /// anything when it was moved.
    [[nodiscard]] Status after_copy(Status copied, uint64_t nla, uint64_t key) const {
        const bool moved = copied == Status::kOk || copied == Status::kBadMemory;
        return moved && !valid(nla, key) ? Status::kAtuFault : copied;
    }

  private:
    const AtuEntry* entries_ = nullptr;
    uint32_t capacity_ = 0;
};

/// The owner's side. It checks requests of peers against a copy of its own: the shared one is only
/// ever written, so that a peer that overwrites it opens no memory and stops no deregistration. Thread: one
/// at a time.
class AtuTable {
  public:
    AtuTable() = default;

    static constexpr size_t bytes_for(uint32_t capacity) { return capacity * sizeof(AtuEntry); }

    /// `shared`: what peers read; zeroed, 8-byte aligned, bytes_for(capacity) long.
    AtuTable(std::byte* shared, uint32_t capacity)
        : shared_(reinterpret_cast<AtuEntry*>(shared)),
          own_memory_(Mapping::zeroed(bytes_for(capacity))),
          own_(reinterpret_cast<AtuEntry*>(own_memory_.data())),
          view_(own_memory_.data(), capacity),
          capacity_(capacity) {}

    /// kNoResource: the table is full, or the range is longer than an NLA can name.
    Status add(const void* base, size_t bytes, uint32_t access, Registration& out) {
        if (bytes > kNlaOffsetMask || (free_.empty() && used_ == capacity_)) return Status::kNoResource;
        uint32_t slot = used_;
        if (free_.empty()) {
            ++used_;
        } else {
            slot = free_.back();
            free_.pop_back();
        }
        uint32_t key = own_[slot].key.load(std::memory_order_relaxed);
        // Slots begin at keys of their own, so that an NLA that strays into another one does not fit there.
        if (key == 0) key = (slot * 2654435761u) & ~1u;
        ++key;
        VELO_DCHECK(key % 2 == 1 && slot < used_, "key %u of slot %u", key, slot);
        for (AtuEntry* entry : {&own_[slot], &shared_[slot]}) {
            entry->base.store(reinterpret_cast<uint64_t>(base), std::memory_order_relaxed);
            entry->bytes.store(bytes, std::memory_order_relaxed);
            entry->access.store(access, std::memory_order_relaxed);
            entry->key.store(key, std::memory_order_release);  // pairs with translate()
        }
        ++valid_;
        out = {.nla = uint64_t{slot} << kNlaOffsetBits, .bytes = bytes, .key = key, .access = access};
        return Status::kOk;
    }

    /// kBadParam: not a registration that stands.
    Status remove(const Registration& registration) {
        if (registration.key % 2 == 0 || !view_.valid(registration.nla, registration.key)) {
            return Status::kBadParam;
        }
        const auto slot = static_cast<uint32_t>(registration.nla >> kNlaOffsetBits);
        const auto next = static_cast<uint32_t>(registration.key) + 1;
        own_[slot].key.store(next, std::memory_order_relaxed);
        shared_[slot].key.store(next, std::memory_order_release);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        VELO_CHECK(slot < used_ && valid_ != 0, "slot %u of %u is revoked", slot, used_);
        free_.push_back(slot);
        --valid_;
        return Status::kOk;
    }

    /// The owner's view, whatever the shared table says by now.
    [[nodiscard]] const AtuView& view() const { return view_; }
    [[nodiscard]] uint32_t registrations() const { return valid_; }

  private:
    AtuEntry* shared_ = nullptr;
    Mapping own_memory_;  ///< of which entries that are never used take nothing
    AtuEntry* own_ = nullptr;
    AtuView view_;
    uint32_t capacity_ = 0;
    uint32_t used_ = 0;  ///< slots that were ever used
    std::vector<uint32_t> free_;
    uint32_t valid_ = 0;
};

}  // namespace velo::base
