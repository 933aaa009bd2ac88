#include "info/names.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>
#include <utility>

#include "velo/options/options.h"

namespace velo::info {
namespace {

constexpr std::string_view kOfEnvironment = "OMPI_MCA_";

bool is_of_velo(const std::string& name) {
    return name.starts_with("btl_velo_") || name.starts_with("mtl_velo_");
}

std::string trimmed(const std::string& text) {
    const size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string::npos) return "";
    return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

using Written = std::vector<std::pair<std::string, std::string>>;  ///< name and source

void add_environment(Written& names, const std::vector<std::string>& given) {
    for (char** at = environ; *at != nullptr; ++at) {
        const std::string_view text = *at;
        if (!text.starts_with(kOfEnvironment)) continue;
        std::string name(text.substr(kOfEnvironment.size(), text.find('=') - kOfEnvironment.size()));
        const bool on_line = std::ranges::find(given, name) != given.end();
        names.emplace_back(std::move(name), on_line ? "command line" : "environment");
    }
}

/// Lines of a file are NAME = VALUE; a comment begins with a hash.
void add_file(Written& names, const std::string& file) {
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        const std::string code = line.substr(0, line.find('#'));
        const size_t equals = code.find('=');
        if (equals != std::string::npos) names.emplace_back(trimmed(code.substr(0, equals)), file);
    }
}

/// Two letters of a name, and a third of it where it is velo's beyond doubt.
std::string nearest(const std::string& name, const std::vector<std::string>& known) {
    size_t least = is_of_velo(name) ? name.size() / 3 + 1 : std::min<size_t>(name.size() / 4, 2) + 1;
    std::string best;
    for (const std::string& other : known) {
        if (const size_t letters = distance(name, other); letters < least) {
            least = letters;
            best = other;
        }
    }
    return best;
}

}  // namespace

size_t distance(const std::string& one, const std::string& other) {
    std::vector<size_t> before(other.size() + 1);
    std::vector<size_t> last(other.size() + 1);
    std::vector<size_t> now(other.size() + 1);
    for (size_t j = 0; j <= other.size(); ++j) last[j] = j;
    for (size_t i = 1; i <= one.size(); ++i) {
        now[0] = i;
        for (size_t j = 1; j <= other.size(); ++j) {
            const size_t replaced = last[j - 1] + (one[i - 1] == other[j - 1] ? 0 : 1);
            now[j] = std::min({last[j] + 1, now[j - 1] + 1, replaced});
            const bool exchanged = i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
            if (exchanged) now[j] = std::min(now[j], before[j - 2] + 1);
        }
        std::swap(before, last);
        std::swap(last, now);
    }
    return last[other.size()];
}

std::vector<UnknownName> unknown_names(const Settings& settings, const std::vector<std::string>& given) {
    Written names;
    add_environment(names, given);
    for (const std::string& file : settings.files()) add_file(names, file);
    std::ranges::sort(names);
    const std::vector<std::string> known = settings.names();
    // Without the plugin Open MPI knows none of its names.
    const bool knows_velo = !settings.of_velo().empty();
    std::vector<UnknownName> unknown;
    for (const auto& [name, source] : names) {
        if (settings.find(name) || (is_of_velo(name) && !knows_velo)) continue;
        std::string near = nearest(name, known);
        if (is_of_velo(name) || !near.empty()) {
            constexpr std::string_view kPrefix = "btl_velo_";
            const bool of_btl = name.starts_with(kPrefix);
            unknown.push_back({name, source, std::move(near),
                               std::string(of_btl ? instead_of(name.substr(kPrefix.size())) : "")});
        }
    }
    return unknown;
}

}  // namespace velo::info
