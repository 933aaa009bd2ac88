#include "info/settings.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace velo::info {
namespace {

/// Calls line(text) for each line that the command prints. Returns how it ended; empty: well.
template <class Line>
std::string run(const std::string& command, Line&& line) {
    std::FILE* out = popen((command + " 2>/dev/null").c_str(), "re");
    if (out == nullptr) return std::string("cannot be started: ") + std::strerror(errno);
    std::string text;
    std::array<char, 4096> piece;
    while (std::fgets(piece.data(), piece.size(), out) != nullptr) {
        text += piece.data();
        if (text.back() != '\n') continue;
        text.pop_back();
        line(text);
        text.clear();
    }
    const int status = pclose(out);
    if (status == 0) return "";
    // A shell between says so by its exit status.
    constexpr int kShellSignals = 128;
    int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) > kShellSignals) signal = WEXITSTATUS(status) - kShellSignals;
    if (signal != 0) return "ended by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
    return "ended with exit status " + std::to_string(WEXITSTATUS(status));
}

/// The words of a list between commas or colons.
std::vector<std::string> words_of(const std::string& list) {
    std::vector<std::string> words;
    for (size_t at = 0; at < list.size();) {
        const size_t end = std::min(list.find_first_of(",:", at), list.size());
        if (end != at) words.push_back(list.substr(at, end - at));
        at = end + 1;
    }
    return words;
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
        if (run(settings.command_ + " --version", version).empty() && !settings.version_.empty()) break;
    }
    if (settings.version_.empty()) return settings;
    settings.failure_ = run(settings.command_ + " --all --level 9 --parsable",
                            [&](const std::string& line) { settings.take(line); });
    if (settings.failure_.empty()) return settings;
    settings.components_.clear();
    settings.settings_.clear();
    settings.of_velo_.clear();
    return settings;
}

/// mca:FRAMEWORK:COMPONENT:version:..., or mca:FRAMEWORK:COMPONENT:param:NAME:FIELD:TEXT
void Settings::take(const std::string& line) {
    constexpr std::string_view kDirectory = "path:pkglibdir:";
    if (line.starts_with(kDirectory)) system_directory_ = line.substr(kDirectory.size());
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

std::vector<std::string> Settings::names() const {
    std::vector<std::string> names;
    for (const auto& [name, setting] : settings_) names.push_back(name);
    return names;
}

std::vector<std::string> Settings::files() const {
    std::vector<std::string> files;
    for (const char* name : {"mca_base_param_files", "mca_base_override_param_file"}) {
        const auto list = find(name);
        for (const std::string& file : words_of(list ? list->value : "")) files.push_back(file);
    }
    return files;
}

std::vector<std::string> Settings::directories() const {
    const auto path = find("mca_base_component_path");
    const char* home = std::getenv("HOME");
    std::vector<std::string> directories = words_of(path ? path->value : "SYSTEM_DEFAULT:USER_DEFAULT");
    for (std::string& directory : directories) {
        if (directory == "SYSTEM_DEFAULT") directory = system_directory_;
        if (directory == "USER_DEFAULT") directory = std::string(home == nullptr ? "" : home) + "/.openmpi/components";
    }
    return directories;
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
    (void)run("timeout 20 " + launcher + " -np 1 sh -c 'echo velo_path=$OMPI_MCA_mca_base_component_path' </dev/null",
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
