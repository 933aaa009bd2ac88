/// Shared by the fuzz targets: the fuzzer's bytes as choices, damage to shared memory, and the list of
/// targets.
///
/// A target is a function of an Input. It sets up production objects, lets the input decide what they and
/// a damaged or hostile peer do, and checks what must hold whatever that was. A crash, a sanitizer's report,
/// a hang or a require() that fails is a finding. The same targets run under libFuzzer (fuzzer.cc) and, over
/// files, without it (replay.cc).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

namespace velo::fuzz {

/// The fuzzer's bytes, taken from the front. Past the end they are zeros, so every input is a whole one.
class Input {
  public:
    Input(const uint8_t* data, size_t bytes) : left_(std::as_bytes(std::span(data, bytes))) {}

    [[nodiscard]] bool empty() const { return left_.empty(); }

    template <std::unsigned_integral T>
    T take() {
        T value = 0;
        const std::span<const std::byte> taken = bytes(sizeof value);
        if (!taken.empty()) std::memcpy(&value, taken.data(), taken.size());
        return value;
    }
    uint8_t byte() { return take<uint8_t>(); }
    bool flag() { return byte() % 2 != 0; }

    /// 0 to bound - 1; 0 when the bound is 0.
    uint64_t below(uint64_t bound) {
        if (bound == 0) return 0;
        return (bound <= UINT8_MAX + 1    ? byte()
                : bound <= UINT16_MAX + 1 ? take<uint16_t>()
                                          : take<uint32_t>()) %
               bound;
    }

    /// Up to `count` bytes; fewer at the end.
    std::span<const std::byte> bytes(size_t count) {
        const std::span<const std::byte> taken = left_.first(std::min(count, left_.size()));
        left_ = left_.subspan(taken.size());
        return taken;
    }

  private:
    std::span<const std::byte> left_;
};

/// A property of the target; not NDEBUG's to switch off.
inline void require(bool holds, const char* property) {
    if (holds) return;
    std::fprintf(stderr, "fuzz: does not hold: %s\n", property);
    std::abort();
}

/// Overwrites a few bytes of `memory`, as a damaged peer could.
inline void damage(Input& input, std::span<std::byte> memory) {
    constexpr uint64_t kNotable[] = {0,          1,   2, UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 32,
                                     0xffffffff, 4096};
    if (memory.size() < sizeof(uint64_t)) return;
    const uint8_t kind = input.byte();
    size_t offset = input.below(memory.size());
    if (kind % 4 == 0) {
        memory[offset] ^= std::byte{input.byte()};
    } else if (kind % 4 == 1) {
        const auto bytes = input.bytes(std::min<size_t>(1 + kind / 4 % 32, memory.size() - offset));
        std::memcpy(memory.data() + offset, bytes.data(), bytes.size());
    } else {
        uint64_t value = kind % 4 == 2 ? kNotable[kind / 4 % std::size(kNotable)] : input.take<uint64_t>();
        offset -= offset % sizeof value;
        std::memcpy(memory.data() + std::min(offset, memory.size() - sizeof value), &value, sizeof value);
    }
}

/// Touches every byte of a message, as whoever gets it may: read and write.
inline void use(std::byte* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
        auto* at = const_cast<volatile std::byte*>(data + i);
        *at = *at ^ std::byte{0x5a};
    }
}

/// Zeroed heap memory of a cache line's alignment, so that the address sanitizer guards its ends.
class HeapMemory {
  public:
    explicit HeapMemory(size_t bytes)
        : data_(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))), bytes_(bytes) {
        std::memset(data_.get(), 0, (bytes + 63) / 64 * 64);
    }
    [[nodiscard]] std::byte* data() const { return data_.get(); }
    [[nodiscard]] std::span<std::byte> bytes() const { return {data_.get(), bytes_}; }
    [[nodiscard]] bool holds(const std::byte* at, size_t bytes) const {
        return at >= data() && bytes <= bytes_ && at <= data() + (bytes_ - bytes);
    }

  private:
    struct Free {
        void operator()(std::byte* memory) const { std::free(memory); }
    };
    std::unique_ptr<std::byte, Free> data_;
    size_t bytes_;
};

/// How many things one input may make happen: enough for any order of a few, and no more time than it needs.
inline constexpr int kStepsMax = 200;

struct Target {
    const char* name;
    void (*run)(Input& input);
};

void arrivals(Input& input);
void addresses(Input& input);
void atu(Input& input);
void device(Input& input);
void engine(Input& input);
void mailbox(Input& input);
void matching(Input& input);
void modex(Input& input);
void on_node(Input& input);
void params(Input& input);
void requests(Input& input);
void ring(Input& input);

inline constexpr Target kTargets[] = {
    {"ring", ring},   {"on_node", on_node}, {"mailbox", mailbox},   {"device", device}, {"atu", atu},
    {"modex", modex}, {"engine", engine},   {"requests", requests}, {"params", params},
#ifdef VELO_FUZZ_NETWORK
    {"arrivals", arrivals},
    {"addresses", addresses},
#endif
    {"matching", matching},
};

/// nullptr when there is none of that name.
inline const Target* find_target(const char* name) {
    for (const Target& target : kTargets) {
        if (name != nullptr && std::strcmp(target.name, name) == 0) return &target;
    }
    return nullptr;
}

}  // namespace velo::fuzz
