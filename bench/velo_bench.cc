/// velo_bench measures parts of velo below MPI, in one process or in two.
///
///   make -C build bench && build/bench/velo_bench COMMAND [OPTION…]
///
/// The head of a command's own file says what it measures. --help lists the commands, behind a command its options.
#include <cstdio>
#include <string_view>

#include "commands.h"

namespace {

struct Command {
    std::string_view name;
    int (*run)(int argc, char** argv);
    const char* text;
};
constexpr Command kCommands[] = {
    {"ring", bench::ring, "a message through a ring on the node, by each way to write it, and by CMA"},
    {"packets", bench::packets, "a message over the device, by mode of flow control, mailbox and length"},
    {"chunks", bench::chunks, "a get in chunks against a single get"},
    {"credits", bench::credits, "flow control alone, by mode"},
    {"matching", bench::matching, "the match of a message behind others, by kind of receive"},
    {"distance", bench::distance, "how near two CPUs are, over time"},
};

std::string_view command_name;

void list(FILE* to) {
    std::fputs("usage: velo_bench COMMAND [OPTION…]; velo_bench COMMAND --help\n", to);
    for (const Command& command : kCommands) {
        std::fprintf(to, "  %-9s %s\n", std::string(command.name).c_str(), command.text);
    }
}

}  // namespace

namespace bench {

void fail(const std::string& why) {
    std::fprintf(stderr, "velo_bench %s: %s\n", std::string(command_name).c_str(), why.c_str());
    std::exit(2);
}

void take_options(int argc, char** argv, std::initializer_list<measuring::Option> options) {
    if (argc == 2 && std::string_view(argv[1]) == "--help") {
        std::printf("usage: velo_bench %s %s\n", std::string(command_name).c_str(),
                    measuring::usage(options).c_str());
        std::exit(0);
    }
    const std::string error = measuring::read_options(argc, argv, options);
    if (!error.empty()) fail(error);
}

measuring::Cpus two_cpus() {
    const measuring::Cpus cpus = measuring::choose_cpus();
    if (cpus.second < 0) fail("two CPUs are needed, and fewer are allowed (taskset)");
    measuring::pin(cpus.first);
    return cpus;
}

std::byte* shared_memory(size_t bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("there is no shared memory of " + std::to_string(bytes) + " bytes");
    return static_cast<std::byte*>(memory);
}

}  // namespace bench

int main(int argc, char** argv) {
    const std::string_view name = argc < 2 ? "" : argv[1];
    const auto* const command = std::ranges::find(kCommands, name, &Command::name);
    if (command != std::end(kCommands)) {
        command_name = command->name;
        return command->run(argc - 1, argv + 1);
    }
    const bool asked = name == "--help";
    if (!asked) std::fprintf(stderr, "velo_bench: there is no command '%s'\n", std::string(name).c_str());
    list(asked ? stdout : stderr);
    return asked ? 0 : 2;
}
