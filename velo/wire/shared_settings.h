/// Parameters that all ranks of a job which meet through the device need alike, as each publishes them.
///
/// Flat, part of EngineAddress. Values derived from them, such as a mailbox's slots, differ as well where
/// they do, but the user did not give them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "flowctl/mode.h"

namespace velo {

struct SharedSettings {
    uint32_t ranks_per_node = 0;
    uint32_t slots = 0;
    uint32_t mailbox_bytes = 0;
    uint8_t ports = 0;
    uint8_t rails = 0;  ///< 1: static allocation
    flowctl::Mode flow_control = {};
};

struct SettingDifference {
    std::string_view name;
    std::string here;
    std::string there;
};

/// The first setting that differs.
inline std::optional<SettingDifference> difference(const SharedSettings& here, const SharedSettings& there) {
    const auto text = [](const auto& names, auto value) {
        // A peer may have published anything.
        for (const auto& [known, name] : names) {
            if (known == value) return std::string(name);
        }
        return std::string("unknown");
    };
#define VELO_SHARED_TEXT(name, names)                                                     \
    if (here.name != there.name) {                                                        \
        return SettingDifference{#name, text(names, here.name), text(names, there.name)}; \
    }
    VELO_SHARED_TEXT(flow_control, flowctl::kModeNames)
#define VELO_SHARED_NUMBER(name) \
    if (here.name != there.name) \
        return SettingDifference{#name, std::to_string(here.name), std::to_string(there.name)};
    VELO_SHARED_NUMBER(ranks_per_node)
    VELO_SHARED_NUMBER(slots)
    VELO_SHARED_NUMBER(mailbox_bytes)
    VELO_SHARED_NUMBER(ports)
    if (here.rails != there.rails) {
        return SettingDifference{"rails", here.rails != 0 ? "static" : "not static",
                                 there.rails != 0 ? "static" : "not static"};
    }
#undef VELO_SHARED_NUMBER
#undef VELO_SHARED_TEXT
    return std::nullopt;
}

}  // namespace velo
