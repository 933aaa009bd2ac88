/// Numbers for requests, by which a peer names them in its answers: a place, and how often it was used, so that a late
/// or wrong answer finds no request.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "velo/base/check.h"

namespace velo::match {

/// Owner: the match engine. Thread: the engine's, under its lock. Memory is that of the most requests at
/// once.
template <class T>
class Numbers {
  public:
    static constexpr uint64_t kNone = 0;

    /// Throws std::bad_alloc.
    [[nodiscard]] uint64_t take(T& request) {
        if (free_ == kEnd) {
            free_ = static_cast<uint32_t>(places_.size());
            places_.push_back({nullptr, 0, kEnd});
        }
        const uint32_t at = free_;
        Place& place = places_[at];
        VELO_DCHECK(place.request == nullptr, "place %u is free and has a request", at);
        free_ = place.next_free;
        place.request = &request;
        ++taken_;
        return number_of(at);
    }
    /// nullptr: it is no number of a request.
    [[nodiscard]] T* find(uint64_t number) const {
        const uint64_t at = (number & kPlaceMask) - 1;
        if (at >= places_.size() || number != number_of(static_cast<uint32_t>(at))) return nullptr;
        return places_[at].request;
    }
    /// Gives back a number that is in use.
    void release(uint64_t number) {
        VELO_DCHECK(find(number) != nullptr, "a number is given back that was not taken");
        const auto at = static_cast<uint32_t>((number & kPlaceMask) - 1);
        Place& place = places_[at];
        place.request = nullptr;
        ++place.uses;
        place.next_free = free_;
        free_ = at;
        --taken_;
    }
    [[nodiscard]] uint32_t taken() const { return taken_; }
    /// True: found(request) is, for one of the requests with a number.
    template <class Found>
    [[nodiscard]] bool any_of(Found&& found) const {
        return std::ranges::any_of(
            places_, [&](const Place& place) { return place.request != nullptr && found(*place.request); });
    }
    /// Calls visit(request) for each request with a number, which visit may release.
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (size_t at = 0; at < places_.size(); ++at) {
            if (places_[at].request != nullptr) visit(*places_[at].request);
        }
    }

  private:
    static constexpr uint32_t kEnd = ~uint32_t{0};
    static constexpr uint64_t kPlaceMask = ~uint32_t{0};
    static constexpr uint32_t kUsesMask = 0x3fffffff;  ///< the upper two bits of a number are the caller's
    static_assert((uint64_t{kUsesMask} << 32 | kPlaceMask) >> 62 == 0);

    struct Place {
        T* request;
        uint32_t uses;
        uint32_t next_free;
    };
    [[nodiscard]] uint64_t number_of(uint32_t at) const {
        return uint64_t{places_[at].uses & kUsesMask} << 32 | (uint64_t{at} + 1);
    }

    std::vector<Place> places_;
    uint32_t free_ = kEnd;
    uint32_t taken_ = 0;
};

}  // namespace velo::match
