/// From the user's parameters to what the engine is opened with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "velo/base/read_number.h"
#include "velo/options/engine_options.h"
#include "velo/os/topology.h"

namespace velo {

/// The number that a user wrote for a parameter. Throws base::SetupError where it is none of the range.
[[gnu::cold]] uint64_t read_param(std::string_view name, std::string_view text, const base::NumberRange& range);

/// The sentence on a parameter of earlier versions that says what takes its place; empty: it is none.
[[nodiscard, gnu::cold]] std::string_view instead_of(std::string_view name);

/// Sets the parameter of that name to what the user wrote, which is borrowed. Throws base::SetupError with a sentence.
[[gnu::cold]] void set_param(velo_params_t& params, std::string_view name, const char* text);

/// Whether a process is to use the device of a network: it was asked for, or ranks of its job are on other hosts, or
/// those of another one may be.
[[nodiscard]] bool wants_network(const velo_params_t& params, const velo_identity_t& identity);

/// Checks every parameter, alone and together. Throws base::SetupError with a sentence that names parameter,
/// value and remedy.
[[gnu::cold]] EngineOptions make_options(const velo_params_t& params, const velo_identity_t& identity,
                                         const velo_host_t& host, const base::Locality& locality = {},
                                         const Tuning& tuning = {});

/// This process's place, by the source that the parameter `locality` names; `topology`: hwloc's, that the host has
/// loaded, or NULL. `why` says what kept hwloc from telling. Throws base::SetupError for an unknown name.
[[gnu::cold]] base::Locality find_locality(const velo_params_t& params, hwloc_topology* topology,
                                           std::string& why);

}  // namespace velo
