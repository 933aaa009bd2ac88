// Parameters by name, as texts (velo/options/options.h).
#include <string>
#include <string_view>

#include "velo/base/read_number.h"
#include "velo/options/options.h"

namespace velo {

using base::SetupError;

uint64_t read_param(std::string_view name, std::string_view text, const base::NumberRange& range) {
    if (const auto value = base::read_number(text, range)) return *value;
    constexpr size_t kShown = 64;
    throw SetupError("btl_velo_" + std::string(name) + "=" + std::string(text.substr(0, kShown)) +
                     (text.size() > kShown ? "... " : " ") + base::why_no_number(range));
}

std::string_view instead_of(std::string_view name) {
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text)
#define VELO_PARAM_TEXT(name, value, audience, text)
#define VELO_PARAM_GONE(gone, text) \
    if (name == #gone) return text;
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    return "";
}

void set_param(velo_params_t& params, std::string_view name, const char* text) {
    const std::string_view given = text == nullptr ? "" : text;
    const auto number = [&](uint64_t smallest, uint64_t largest, bool bytes) {
        return static_cast<int>(read_param(name, given, {.smallest = smallest, .largest = largest, .bytes = bytes}));
    };
#define VELO_PARAM_INT(field, value, smallest, largest, audience, text_) \
    if (name == #field) return void(params.field = number(smallest, largest, false));
#define VELO_PARAM_BYTES(field, value, smallest, largest, audience, text_) \
    if (name == #field) return void(params.field = number(smallest, largest, true));
#define VELO_PARAM_TEXT(field, value, audience, text_) \
    if (name == #field) return void(params.field = text);
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    const std::string_view instead = instead_of(name);
    throw SetupError("btl_velo_" + std::string(name) + " is no parameter of velo" +
                     (instead.empty() ? "" : " any more: " + std::string(instead)));
}

}  // namespace velo
