/// Names that are numbers, as types of their own, so that none is taken for another.
#pragma once

#include <concepts>
#include <cstdint>

namespace velo {

/// A dense number from 0, of the kind that `Tag` names. It converts to a number, for use as an index; a number becomes
/// one of these only where that is said, or where it is a constant.
template <class Tag>
class Id {
  public:
    constexpr Id() = default;
    consteval Id(int constant) : value_(static_cast<uint32_t>(constant)) {}
    template <std::integral T>
    constexpr explicit Id(T value) : value_(static_cast<uint32_t>(value)) {}

    constexpr operator uint32_t() const { return value_; }
    constexpr Id& operator++() {
        ++value_;
        return *this;
    }

  private:
    uint32_t value_ = 0;
};

/// A device's name of a connected peer: never reused while the device is open.
using DeviceAddr = Id<struct DeviceAddrTag>;
inline constexpr DeviceAddr kNoAddr{UINT32_MAX};

namespace shm {
/// A peer of this node; stable until it is disconnected, after which another one may get it.
using PeerIndex = Id<struct PeerIndexTag>;
}  // namespace shm

/// An operation that waits for an answer: the index and the generation of its entry (velo/rendezvous/cookie_table.h).
/// It goes out with what is asked for, and comes back with the answer, so it may be anything.
enum class Cookie : uint32_t {};

}  // namespace velo
