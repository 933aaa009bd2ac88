/// Bad parameters end in a sentence that names the parameter, the value and the remedy.
#include "velo/options.h"

#include <gtest/gtest.h>

#include <string>

namespace velo {
namespace {

velo_params_t defaults() {
    velo_params_t params;
    velo_params_default(&params);
    return params;
}

velo_identity_t rank_of(uint32_t rank, uint32_t size) {
    return {.name = rank, .job = 1, .rank = rank, .job_size = size, .local_rank = rank, .local_size = size};
}

std::string error_of(const velo_params_t& params, uint32_t size = 8) {
    try {
        (void)make_options(params, rank_of(0, size), {});
    } catch (const base::SetupError& error) {
        return error.what();
    }
    return "";
}

void expect_names(const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words)
        EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
}

TEST(Options, defaults_are_accepted) {
    EXPECT_EQ(error_of(defaults()), "");
}

TEST(Options, a_text_that_is_set_to_nothing_is_an_empty_text) {
    for (const char* velo_params_t::*text :
         {&velo_params_t::flow_control, &velo_params_t::rounding, &velo_params_t::single_copy}) {
        velo_params_t params = defaults();
        params.ranks_per_node = 1;
        params.*text = nullptr;
        expect_names(error_of(params), {"btl_velo_", "= is not"});
    }
    velo_params_t params = defaults();
    params.ranks_per_node = 1;
    params.faults = nullptr;
    EXPECT_EQ(error_of(params), "");
}

TEST(Options, messages_that_are_too_long_for_the_device_are_refused) {
    velo_params_t params = defaults();
    params.device_message_bytes_max = 1u << 30;
    EXPECT_EQ(error_of(params), "") << "there is no device";
    params.ranks_per_node = 1;
    expect_names(error_of(params), {"1073741824", "16777216", "btl_velo_max_send_size"});
}

TEST(Options, every_whole_number_is_held_to_its_range) {
    struct Range {
        const char* name;
        int velo_params_t::*field;
        int smallest, largest;
    };
    const Range ranges[] = {
#define VELO_PARAM_INT(name, value, smallest, largest, level, text) \
    {#name, &velo_params_t::name, smallest, largest},
#define VELO_PARAM_TEXT(name, value, level, text)
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    };
    for (const Range& range : ranges) {
        for (int value : {range.smallest - 1, range.largest + 1}) {
            velo_params_t params = defaults();
            params.*range.field = value;
            expect_names(error_of(params),
                         {range.name, std::to_string(value).c_str(), std::to_string(range.smallest).c_str()});
        }
    }
}

TEST(Options, unknown_words_are_refused_with_the_known_ones) {
    velo_params_t params = defaults();
    params.ranks_per_node = 1;
    params.flow_control = "statik";
    expect_names(error_of(params), {"btl_velo_flow_control", "statik", "none", "static"});
    params = defaults();
    params.ranks_per_node = 1;
    params.rounding = "sideways";
    expect_names(error_of(params), {"btl_velo_rounding", "sideways", "subset"});
    params = defaults();
    params.single_copy = "xpmem";
    expect_names(error_of(params), {"btl_velo_single_copy", "xpmem", "cma", "none"});
}

TEST(Options, a_mailbox_too_small_for_the_job_is_refused_with_the_smallest_that_would_do) {
    velo_params_t params = defaults();
    params.ranks_per_node = 1;
    params.mailbox_slots = 27;
    // Seven senders, two credit slots and as many data slots each (FC equation 2).
    expect_names(error_of(params), {"btl_velo_mailbox_slots", "27", "28", "btl_velo_slots"});
    params.mailbox_slots = 28;
    EXPECT_EQ(error_of(params), "");
}

TEST(Options, a_mailbox_sized_twice_is_refused_unless_both_agree) {
    velo_params_t params = defaults();
    params.ranks_per_node = 1;
    params.slots = 20;
    params.mailbox_slots = 100;
    expect_names(error_of(params), {"btl_velo_mailbox_slots=100", "btl_velo_slots=20", "140"});
    params.mailbox_slots = 140;
    EXPECT_EQ(error_of(params), "");
}

TEST(Options, rings_are_powers_of_two_and_hold_the_longest_message_twice) {
    velo_params_t params = defaults();
    params.ring_lines = 100;
    expect_names(error_of(params), {"btl_velo_ring_lines", "100", "64", "128"});
    params = defaults();
    params.ring_bytes = 32768;
    params.on_node_message_bytes_max = 32768;
    expect_names(error_of(params), {"btl_velo_ring_bytes", "32768"});
}

TEST(Options, ranks_are_grouped_into_nodes_by_number) {
    velo_params_t params = defaults();
    params.ranks_per_node = 3;
    const EngineOptions options = make_options(params, rank_of(7, 8), {});
    EXPECT_EQ(options.device.node, 2);
    EXPECT_EQ(options.device.vpid, 1);
    EXPECT_TRUE(options.device_used);
    // The smallest node has two ranks, so its ranks have six senders elsewhere: all plan for six.
    EXPECT_EQ(options.plan.peers, 6u);
    EXPECT_EQ(make_options(params, rank_of(0, 8), {}).plan.peers, 6u);
}

TEST(Options, one_node_needs_no_device) {
    velo_params_t params = defaults();
    EXPECT_FALSE(make_options(params, rank_of(0, 8), {}).device_used);
    params.ranks_per_node = 8;
    EXPECT_FALSE(make_options(params, rank_of(0, 8), {}).device_used);
}

}  // namespace
}  // namespace velo
