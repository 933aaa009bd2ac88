/// Lines for the user, headed by the provider and the interface.
#pragma once

#include "velo/base/text.h"
#include "velo/device/device.h"

namespace velo::ofi {

class Log {
  public:
    /// `title` is borrowed.
    Log(const DeviceLog& to, const char* title) : to_(to), title_(title) {}

    [[gnu::cold, gnu::format(printf, 3, 4)]] void operator()(int level, const char* format, ...) const {
        char line[512];
        va_list arguments;
        va_start(arguments, format);
        std::vsnprintf(line, sizeof line, format, arguments);
        va_end(arguments);
        to_(level, std::string(title_) + ": " + line);
    }

  private:
    DeviceLog to_;
    const char* title_;
};

}  // namespace velo::ofi
