/// Parameters that are lists of settings, as btl_velo_faults is: what they say, read and checked.
///
/// Set-up only. Each function throws base::SetupError with a sentence that names parameter, word and remedy.
#pragma once

#include <cstdint>
#include <string_view>

#include "velo/device/device.h"

namespace velo {

/// btl_velo_emulate. Empty: nothing is emulated.
[[nodiscard, gnu::cold]] LinkOptions read_emulate(std::string_view list);

/// btl_velo_rails: a rule, and what it goes by.
struct RailsParam {
    std::string_view rule;  ///< borrowed from the parameter
    uint64_t striping_percent = 100;
    uint64_t short_bytes = 65536;  ///< a transfer of fewer bytes is a short one under hybrid
    uint64_t retry_ms = 1000;      ///< from a rail's failure to its first trial
    uint64_t wait_ms = 10;         ///< of a transfer for a first rail under dynamic
};
[[nodiscard, gnu::cold]] RailsParam read_rails(std::string_view list);

/// btl_velo_stall_report.
struct StallParam {
    uint64_t seconds = 0;  ///< without progress; 0: no report unasked for
    uint64_t signal = 0;   ///< that asks for a report; 0: none
};
[[nodiscard, gnu::cold]] StallParam read_stall_report(std::string_view list);

}  // namespace velo
