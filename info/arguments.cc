#include "info/arguments.h"

#include <getopt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "velo/base/read_number.h"

namespace velo::info {
namespace {

/// Statuses of wrong arguments, which scripts may know.
enum Wrong : int { kValue = 105, kUnknown = 109, kMissing = 114 };

constexpr const char* kHelp =
    R"(Tells what velo would do in a job that is started here: paths, protocols, memory, parameters. It reads
the environment (OMPI_MCA_...) and Open MPI's files as a job does; what mpirun would be given as --mca,
give it here as well.
Usage: %s [OPTIONS]

Options:
  -h,--help                   Print this help message and exit
  --version                   Display program version information and exit
  --check                     tell whether the job would use velo, and why not; exit status 0: it does
  --ranks N                   ranks of the job; here %u without it
  --mca NAME VALUE            a parameter, as for mpirun; may be repeated
)";

[[noreturn]] void refuse(Wrong status, const std::string& why) {
    std::fprintf(stderr, "%s\nRun with --help for more information.\n", why.c_str());
    std::exit(status);
}

uint32_t read_ranks(const std::string& text) {
    constexpr base::NumberRange kRange = {.smallest = 1, .largest = 16u << 20};
    const auto ranks = base::read_number(text, kRange);
    if (!ranks) refuse(kValue, "--ranks: " + text + " " + base::why_no_number(kRange));
    return static_cast<uint32_t>(*ranks);
}

}  // namespace

Arguments read_arguments(int argc, char** argv) {
    Arguments given;
    given.ranks = std::max(std::thread::hardware_concurrency(), 2u);
    const uint32_t default_ranks = given.ranks;
    constexpr option kOptions[] = {{"help", no_argument, nullptr, 'h'},
                                   {"version", no_argument, nullptr, 'v'},
                                   {"check", no_argument, nullptr, 'c'},
                                   {"ranks", required_argument, nullptr, 'r'},
                                   {"mca", required_argument, nullptr, 'm'},
                                   {}};
    const char* const missing = " lacks its value; write --ranks N or --mca NAME VALUE";
    const auto unknown = [](const std::string& word) {
        refuse(kUnknown, word + " is no option of velo_info, or has a value that it does not take");
    };
    // getopt_long() has a word that is no option as 1, and a value that is missing as a colon.
    for (int at = 1;; at = optind) {
        int index = -1;
        const int found = getopt_long(argc, argv, "-:h", kOptions, &index);
        if (found == -1) break;
        const std::string word = argv[at];
        // It takes the beginnings of names as well, which a further option would make ambiguous.
        if (index >= 0 && word.substr(0, word.find('=')) != std::string("--") + kOptions[index].name) unknown(word);
        switch (found) {
            case 'h': std::printf(kHelp, argv[0], default_ranks); std::exit(0);
            case 'v': std::puts(VELO_VERSION); std::exit(0);
            case 'c': given.check = true; break;
            case 'r': given.ranks = read_ranks(optarg); break;
            case 'm':
                if (optind == argc) refuse(kMissing, "--mca " + std::string(optarg) + missing);
                given.mca.emplace_back(optarg, argv[optind++]);
                break;
            case ':': refuse(kMissing, word + missing);
            default: unknown(word);
        }
    }
    if (optind < argc) unknown(argv[optind]);
    return given;
}

}  // namespace velo::info
