#include "info/settings.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace velo::info {
namespace {

/// Calls line(text) for each line that the command prints. False: it failed.
template <class Line>
bool run(const std::string& command, Line&& line) {
    std::FILE* out = popen((command + " 2>/dev/null").c_str(), "re");
    if (out == nullptr) return false;
    std::string text;
    std::array<char, 4096> piece;
    while (std::fgets(piece.data(), piece.size(), out) != nullptr) {
        text += piece.data();
        if (text.back() != '\n') continue;
        text.pop_back();
        line(text);
        text.clear();
    }
    return pclose(out) == 0;
}

/// ompi_info puts texts with colons into quotes.
std::string unquoted(std::string_view text) {
    if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
    return std::string(text);
}

}  // namespace

Settings Settings::read() {
    Settings settings;
    for (const char* command : {"ompi_info", VELO_OMPI_INFO}) {
        settings.command_ = command;
        const auto version = [&](const std::string& line) {
            const std::string_view before = "Open MPI v";
            if (line.starts_with(before)) settings.version_ = line.substr(before.size());
        };
        if (run(settings.command_ + " --version", version) && !settings.version_.empty()) break;
    }
    if (settings.version_.empty()) return settings;
    run(settings.command_ + " --all --level 9 --parsable",
        [&](const std::string& line) { settings.take(line); });
    return settings;
}

/// mca:FRAMEWORK:COMPONENT:version:..., or mca:FRAMEWORK:COMPONENT:param:NAME:FIELD:TEXT
void Settings::take(const std::string& line) {
    std::array<std::string_view, 7> fields;
    std::string_view left = line;
    size_t count = 0;
    while (count < fields.size()) {
        const size_t colon = count + 1 == fields.size() ? std::string_view::npos : left.find(':');
        fields[count++] = left.substr(0, colon);
        if (colon == std::string_view::npos) break;
        left.remove_prefix(colon + 1);
    }
    if (count < 4 || fields[0] != "mca") return;
    const std::string component = std::string(fields[1]) + ":" + std::string(fields[2]);
    if (fields[3] == "version") components_.push_back(component);
    if (fields[3] != "param" || count < 7) return;
    const std::string name(fields[4]);
    if (fields[5] == "value") {
        settings_[name].value = unquoted(fields[6]);
        if (component == "btl:velo") of_velo_.push_back(name);
    } else if (fields[5] == "source") {
        settings_[name].source = fields[6];
    }
}

bool Settings::has(const std::string& framework, const std::string& component) const {
    return std::find(components_.begin(), components_.end(), framework + ":" + component) !=
           components_.end();
}

std::optional<Setting> Settings::find(const std::string& name) const {
    const auto at = settings_.find(name);
    return at == settings_.end() ? std::nullopt : std::optional(at->second);
}

std::string Settings::path_of_ranks() const {
    std::string launcher = command_;
    if (const size_t name = launcher.rfind("ompi_info"); name != std::string::npos) launcher.replace(name, 9, "mpirun");
    std::string path;
    run("timeout 20 " + launcher + " -np 1 sh -c 'echo velo_path=$OMPI_MCA_mca_base_component_path' </dev/null",
        [&](const std::string& line) {
            const std::string_view before = "velo_path=";
            if (line.starts_with(before)) path = line.substr(before.size());
        });
    return path;
}

long long Settings::number(const std::string& name, long long otherwise) const {
    const auto setting = find(name);
    if (!setting || setting->value.empty()) return otherwise;
    return std::strtoll(setting->value.c_str(), nullptr, 10);
}

}  // namespace velo::info
