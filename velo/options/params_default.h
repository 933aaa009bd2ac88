/// Every parameter's default.
#pragma once

#include "velo/velo.h"

namespace velo {

[[nodiscard]] inline velo_params_t params_default() {
    velo_params_t params = {};
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) params.name = value;
#define VELO_PARAM_TEXT(name, value, audience, text) params.name = value;
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    params.on_node_message_bytes_max = 32768;
    params.device_message_bytes_max = 4096;
    return params;
}

}  // namespace velo
