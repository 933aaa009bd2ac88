/// libFuzzer's side of the targets. VELO_FUZZ_TARGET in the environment says which one.
#include "tests/fuzz/fuzz.h"

namespace {
const velo::fuzz::Target* chosen;
}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
    chosen = velo::fuzz::find_target(std::getenv("VELO_FUZZ_TARGET"));
    if (chosen == nullptr) {
        std::fprintf(stderr, "fuzzer: VELO_FUZZ_TARGET must name one of:");
        for (const auto& target : velo::fuzz::kTargets) std::fprintf(stderr, " %s", target.name);
        std::fprintf(stderr, "\n");
        std::exit(2);
    }
    return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    velo::fuzz::Input input(data, bytes);
    chosen->run(input);
    return 0;
}
