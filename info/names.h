/// Names of parameters that the user wrote and Open MPI does not know: it ignores them without a word.
#pragma once

#include <string>
#include <vector>

#include "info/settings.h"

namespace velo::info {

/// A name that nothing reads.
struct UnknownName {
    std::string name;
    std::string source;   ///< environment, command line, or a file
    std::string nearest;  ///< of the names that there are; empty: none is near
    std::string instead;  ///< of a parameter of velo's earlier versions, which is refused: what took its place
};

/// Unknown names of the environment, of `given` (--mca) and of Open MPI's files: all that are velo's by their
/// beginning, and of others those that are near to a name that is known.
[[nodiscard]] std::vector<UnknownName> unknown_names(const Settings& settings, const std::vector<std::string>& given);

/// Letters to insert, remove, replace or exchange with the next one, to make one name of the other.
[[nodiscard]] size_t distance(const std::string& one, const std::string& other);

}  // namespace velo::info
