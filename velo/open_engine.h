/// Opens an engine with values that no parameter turns: for tests, which vary them.
#pragma once

#include "velo/options/engine_options.h"

namespace velo {

/// Opens an engine as velo_open() does. Throws base::SetupError.
[[nodiscard, gnu::cold]] velo_engine_t* open_engine(const velo_params_t& params, const velo_identity_t& identity,
                                                    const velo_host_t& host, const Tuning& tuning);

}  // namespace velo
