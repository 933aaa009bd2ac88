/// Parameters that are lists: what is said is what is meant, and each mistake is named with its remedy.
#include "velo/options/list_params.h"

#include <algorithm>
#include <vector>

#include "tests/unit/option_errors.h"
#include "velo/base/word_list.h"

namespace velo {
namespace {

template <class Read>
std::string refusal(Read&& read, const char* list) {
    try {
        (void)read(list);
    } catch (const base::SetupError& error) {
        return error.what();
    }
    return "";
}

TEST(WordList, has_a_word_more_than_commas) {
    const auto words = [](std::string_view list) {
        std::vector<std::string> all;
        base::for_each_word(list, [&](const base::ListWord& word) {
            all.push_back(word.named ? std::string(word.name) + ":" + std::string(word.value) : std::string(word.text));
        });
        return all;
    };
    using Words = std::vector<std::string>;
    EXPECT_EQ(words(""), Words{});
    EXPECT_EQ(words("a"), Words{"a"});
    EXPECT_EQ(words("a,b=1,c=d=e"), (Words{"a", "b:1", "c:d=e"}));
    EXPECT_EQ(words(",=,"), (Words{"", ":", ""}));
}

TEST(EmulateParam, says_what_is_emulated) {
    const LinkOptions none = read_emulate("");
    EXPECT_EQ(none.bytes_per_us, 0u);
    const LinkOptions link = read_emulate("link=1000");
    EXPECT_EQ(link.bytes_per_us, 1000u);
    EXPECT_EQ(link.buffer_bytes, 262144u);
    EXPECT_EQ(link.sink_bytes_per_us, 0u);
    EXPECT_EQ(link.source_bytes_per_us, 0u);
    const LinkOptions all = read_emulate("source=200,sink=500,buffer=64k,link=1,link=2");
    EXPECT_EQ(all.bytes_per_us, 2u) << "the last one counts, so that a rank adds its own to what all have";
    EXPECT_EQ(all.buffer_bytes, 65536u);
    EXPECT_EQ(all.sink_bytes_per_us, 500u);
    EXPECT_EQ(all.source_bytes_per_us, 200u);
}

TEST(EmulateParam, names_the_word_and_the_remedy) {
    const auto expect = [](const char* list, std::initializer_list<const char*> words) {
        SCOPED_TRACE(list);
        expect_names(refusal(read_emulate, list), words);
    };
    for (const char* list : {"lnk=5", "5", "link=1,lnk=5", "link=1,5", "=5", "link=1,,sink=1", "link=1,"}) {
        expect(list, {"btl_velo_emulate has '", "is none of link=N, buffer=N, sink=N, source=N", "commas"});
    }
    expect("link=0", {"btl_velo_emulate has 'link=0'", "1 to 1000000"});
    expect("link=x", {"'link=x'", "is not a number"});
    expect("link=1k", {"'link=1k'", "is not a number"});
    expect("link=1,buffer=1023", {"'buffer=1023'", "1024 to 1073741824", "k, m or g"});
    expect("sink=5,buffer=2k", {"btl_velo_emulate=sink=5,buffer=2k", "no link=N", "add it"});
    velo_params_t params = defaults();
    params.emulate = "sink=1";
    expect_names(error_of(params), {"btl_velo_emulate=sink=1"});
}

TEST(RailsParam, is_a_rule_and_its_settings) {
    for (const char* rule : {"static", "round_robin", "local_dynamic", "dynamic", "hybrid"}) {
        const RailsParam rails = read_rails(rule);
        EXPECT_EQ(rails.rule, rule);
        EXPECT_EQ(rails.striping_percent, 100u);
        EXPECT_EQ(rails.short_bytes, 65536u);
        EXPECT_EQ(rails.retry_ms, 1000u);
        EXPECT_EQ(rails.wait_ms, 10u);
    }
    const RailsParam rails = read_rails("dynamic,wait=1,retry=2,short=3k,striping=4");
    EXPECT_EQ(rails.rule, "dynamic");
    EXPECT_EQ(rails.striping_percent, 4u);
    EXPECT_EQ(rails.short_bytes, 3072u);
    EXPECT_EQ(rails.retry_ms, 2u);
    EXPECT_EQ(rails.wait_ms, 1u);
}

TEST(RailsParam, names_the_word_and_the_remedy) {
    for (const char* list : {"", "bogus", "Hybrid", "wait=1", ",hybrid=1", "wait=1,hybrid"}) {
        EXPECT_NE(refusal(read_rails, list).find("btl_velo_rails"), std::string::npos) << list;
    }
    expect_names(refusal(read_rails, "bogus,wait=1"),
                 {"btl_velo_rails=bogus is not one of static, round_robin, local_dynamic, dynamic, hybrid"});
    expect_names(refusal(read_rails, "hybrid,static"), {"'static'", "none of striping=N, short=N, retry=N, wait=N"});
    expect_names(refusal(read_rails, "hybrid,striping=101"), {"'striping=101'", "0 to 100"});
    expect_names(refusal(read_rails, "hybrid,wait=0"), {"'wait=0'", "1 to 3600000"});
}

TEST(StallReportParam, is_seconds_and_a_signal) {
    const auto expect = [](const char* list, uint64_t seconds, uint64_t signal) {
        const StallParam stall = read_stall_report(list);
        EXPECT_EQ(stall.seconds, seconds) << list;
        EXPECT_EQ(stall.signal, signal) << list;
    };
    expect("", 0, 0);
    expect("0", 0, 0);
    expect("30", 30, 0);
    expect("signal=10", 0, 10);
    expect("30,signal=12", 30, 12);
    expect_names(refusal(read_stall_report, "1k"), {"btl_velo_stall_report=1k is not a number from 0 to 86400"});
    expect_names(refusal(read_stall_report, "signal=65"), {"'signal=65'", "1 to 64"});
    expect_names(refusal(read_stall_report, "signal=1,30"), {"'30'", "none of signal=N"});
    velo_params_t params = defaults();
    params.stall_report = "2,signal=10";
    const EngineOptions options = make_options(params, rank_of(0, 2), {});
    EXPECT_EQ(options.stall.seconds, 2u);
    EXPECT_EQ(options.stall.signal, 10u);
}

}  // namespace
}  // namespace velo
