/// The end of a message, as its retrieved packets tell it.
#pragma once

namespace velo::flowctl {

struct MessageEnd {
    bool ended = false;
    /// The message had waited for credits at its sender (IBFC 4.3).
    bool waited = false;
    /// The packets were no part of a message: a compulsory request or response.
    bool control = false;
};

}  // namespace velo::flowctl
