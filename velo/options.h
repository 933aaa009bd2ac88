/// From the user's parameters to what the engine is opened with.
#pragma once

#include "velo/engine.h"

namespace velo {

/// Checks every parameter, alone and together. Throws base::SetupError with a sentence that names parameter,
/// value and remedy.
EngineOptions make_options(const velo_params_t& params, const velo_identity_t& identity,
                           const velo_host_t& host);

}  // namespace velo
