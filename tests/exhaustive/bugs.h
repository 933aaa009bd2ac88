/// Mistakes that the model of mailbox_world.h can make.
#pragma once

#include <cstdint>

namespace velo::exhaustive {

/// A mistake made on purpose, to see that it is found.
enum class Bug : uint8_t {
    kNone,
    /// One credit of each return is lost on the way.
    kDropCredit,
    /// Piggybacked credits are not subtracted from the receiver's counter, and so return twice.
    kReturnTwice,
    /// Credits are put into a message's last packet while that packet still waits for a credit.
    kPiggybackEarly,
    /// Events are reported while the packet still fills its slot.
    kReportBeforeFree,
    /// Credits are piggybacked while an earlier return to the same peer still waits, and so overtake it.
    kPiggybackOvertakes,
    /// The process that closes takes its slots back at once, instead of with the peer's answer.
    kForgetsAtOnce,
    /// Body packets that were taken ahead of a control packet are accounted for behind it.
    kRunLate,
    /// An opening rides in a message while the answer to the peer's kClose still waits.
    kOpenOvertakes,
};

}  // namespace velo::exhaustive
