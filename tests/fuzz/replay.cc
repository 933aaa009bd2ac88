/// Runs the fuzz targets over files, without libFuzzer: the committed inputs, or one that was found.
///
///   replay CORPUS          every file CORPUS/TARGET/NAME, for every target
///   replay TARGET FILE...  these files
///   replay --list          names the targets
///   replay --make CORPUS   writes the inputs that a fuzzer begins with, the same ones each time
/// Prints PASS for each target and ends with "N passed, N failed". An input that crashes its target ends the
/// program; its name is the last line.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace {

using velo::fuzz::Target;

constexpr unsigned kSecondsMax = 20;  ///< for one input; what takes longer hangs

bool run(const Target& target, const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        std::printf("FAIL %s: %s cannot be read\n", target.name, path.c_str());
        return false;
    }
    const std::vector<char> data{std::istreambuf_iterator<char>(file), {}};
    std::printf("%s %s\n", target.name, path.c_str());
    std::fflush(stdout);
    velo::fuzz::Input input(reinterpret_cast<const uint8_t*>(data.data()), data.size());
    alarm(kSecondsMax);
    target.run(input);
    alarm(0);
    return true;
}

uint64_t next_random(uint64_t& state) {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/// Streams of choices. Small numbers are what most choices are made of; one in `wild` is any byte.
void make(const std::filesystem::path& corpus) {
    constexpr struct {
        const char* name;
        size_t bytes;
        uint32_t small, wild;
    } kKinds[] = {{"short", 48, 8, 8},   {"even", 400, 256, 1}, {"small", 600, 8, 16},
                  {"mixed", 900, 10, 3}, {"long", 1800, 8, 4},  {"zeros", 64, 1, 64}};
    for (const Target& target : velo::fuzz::kTargets) {
        const std::filesystem::path folder = corpus / target.name;
        std::filesystem::create_directories(folder);
        uint64_t state = static_cast<uint64_t>(&target - velo::fuzz::kTargets);
        for (const auto& kind : kKinds) {
            std::string data(kind.bytes, '\0');
            for (char& byte : data) {
                const uint64_t drawn = next_random(state);
                byte = static_cast<char>(drawn >> 32 & 0xff);
                if (drawn % kind.wild != 0) byte = static_cast<char>(drawn / 256 % kind.small);
            }
            std::ofstream(folder / kind.name, std::ios::binary) << data;
        }
    }
}

}  // namespace

int main(int count, char** arguments) {
    if (count == 2 && std::string(arguments[1]) == "--list") {
        for (const Target& target : velo::fuzz::kTargets) std::printf("%s\n", target.name);
        return 0;
    }
    if (count == 3 && std::string(arguments[1]) == "--make") {
        make(arguments[2]);
        return 0;
    }
    int passed = 0;
    int failed = 0;
    if (count > 2) {
        const Target* target = velo::fuzz::find_target(arguments[1]);
        if (target == nullptr) {
            std::fprintf(stderr, "replay: no target %s; --list names them\n", arguments[1]);
            return 2;
        }
        for (int i = 2; i < count; ++i) ++(run(*target, arguments[i]) ? passed : failed);
    } else if (count == 2) {
        for (const Target& target : velo::fuzz::kTargets) {
            std::error_code none;
            std::vector<std::filesystem::path> files;
            for (const auto& file : std::filesystem::directory_iterator(
                     std::filesystem::path(arguments[1]) / target.name, none)) {
                files.push_back(file.path());
            }
            std::ranges::sort(files);
            const bool good = !files.empty() &&
                              std::ranges::all_of(files, [&](const auto& file) { return run(target, file); });
            std::printf("%s %s: %zu inputs\n", good ? "PASS" : "FAIL", target.name, files.size());
            ++(good ? passed : failed);
        }
    }
    std::printf("%d passed, %d failed\n", passed, failed);
    return failed == 0 && passed > 0 ? 0 : 1;
}
