/// Names that are numbers, as types of their own, so that none is taken for another.
#pragma once

#include <cstdint>

namespace velo {

/// An operation that waits for an answer: the index and the generation of its entry (rma/cookie_table.h). It goes out
/// with what is asked for, and comes back with the answer, so it may be anything.
enum class Cookie : uint32_t {};

}  // namespace velo
