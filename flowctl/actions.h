/// What flow control asks the engine to do in answer to an event.
#pragma once

#include <array>
#include <cstdint>

#include "flowctl/plan.h"
#include "velo/base/check.h"

namespace velo::flowctl {

enum class ActionKind : uint8_t {
    /// Send an explicit credit packet. It costs no credit and always finds a slot (FC 5.2). It must go, now
    /// or later; two to one peer that both wait may become one of their sum, up to Plan::return_max.
    kSendCredits,
    /// Send a compulsory credit return request (FC 6.1). Its credit has been taken.
    kSendReturnRequest,
    /// Send the response to one, with the credits given up, perhaps 0. Its credit has been taken.
    kSendReturnResponse,
    /// Tell the peer that it owns slots here from now on, of which `credits` are its first. Fills a contact
    /// slot of its mailbox.
    kSendWelcome,
    /// Tell the peer that it owns no slot here any more, and that its own are given back. Whatever else waits
    /// to be sent to it for flow control is void. Fills a contact slot of its mailbox.
    kSendFarewell,
};

struct Action {
    ActionKind kind;
    PeerIndex peer;
    uint32_t credits;

    friend constexpr bool operator==(const Action&, const Action&) = default;
};

/// Actions of one event, oldest first. The caller owns it and hands it over empty; an event that is refused
/// adds nothing. Fixed in size, so that no event allocates.
class Actions {
  public:
    constexpr Actions() noexcept {}  // NOLINT(modernize-use-equals-default): leaves items_ alone

    /// Retrieved packets lead to a return to their sender, one to a sender that waits, and a request to another
    /// where these are due; returned credits set free at most two control packets.
    static constexpr uint32_t kCapacity = 4;

    constexpr void push(const Action& action) {
        VELO_CHECK(size_ < kCapacity, "an event for peer %u asked for more than %u actions", action.peer,
                   kCapacity);
        items_[size_++] = action;
    }
    constexpr void clear() noexcept { size_ = 0; }
    [[nodiscard]] constexpr Action& back() noexcept { return items_[size_ - 1]; }

    [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] constexpr uint32_t size() const noexcept { return size_; }
    [[nodiscard]] constexpr const Action& operator[](uint32_t index) const noexcept { return items_[index]; }
    [[nodiscard]] constexpr const Action* begin() const noexcept { return items_.data(); }
    [[nodiscard]] constexpr const Action* end() const noexcept { return items_.data() + size_; }

  private:
    std::array<Action, kCapacity> items_;  // not initialized: most events have none
    uint32_t size_ = 0;
};

}  // namespace velo::flowctl
