/// Jobs of every size: each rank has a name on the device, and no plan is refused that a larger and a smaller job have.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/option_errors.h"

namespace velo {
namespace {

TEST(JobSize, a_host_has_as_many_ranks_over_a_network_as_the_job) {
    velo_params_t params = defaults();
    std::set<uint32_t> names;
    for (uint32_t rank = 0; rank < 2048; ++rank) {
        velo_identity_t identity = rank_of_hosts(rank, 2048, 2, 1024);
        identity.host = rank / 1024;
        identity.local_rank = rank % 1024;
        const EngineOptions options = make_options(params, identity, {});
        EXPECT_EQ(options.node, rank / 1024);
        names.insert(uint32_t{options.device.node} << 8 | options.device.vpid);
    }
    EXPECT_EQ(names.size(), 2048u) << "each has a name of its own";
}

TEST(JobSize, every_rank_of_an_emulated_node_has_a_name_of_its_own_at_every_size) {
    velo_params_t params = defaults();
    for (const int ranks_per_node : {1, 255, 256, 257, 384, 1024, 4096}) {
        params.ranks_per_node = ranks_per_node;
        const uint32_t ranks = 3 * static_cast<uint32_t>(ranks_per_node) + 1;
        std::set<uint32_t> names;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            const EngineOptions options = make_options(params, rank_of(rank, ranks), {});
            EXPECT_EQ(options.node, rank / static_cast<uint32_t>(ranks_per_node));
            names.insert(uint32_t{options.device.node} << 8 | options.device.vpid);
        }
        EXPECT_EQ(names.size(), ranks) << ranks_per_node;
    }
    params.ranks_per_node = 4097;
    expect_names(error_of(params), {"btl_velo_ranks_per_node=4097", "4096"});
}

TEST(JobSize, a_job_that_24_bits_cannot_name_is_refused_at_all_its_ranks) {
    velo_params_t params = defaults();
    const auto expect_bound = [&](uint32_t most, std::initializer_list<const char*> words) {
        for (const uint32_t rank : {0u, most - 1}) {
            EXPECT_EQ(error_of(params, most, rank), "") << rank;
            expect_names(error_of(params, most + 1, rank), words);
        }
    };
    params.ranks_per_node = 1;
    expect_bound(65536, {"btl_velo_ranks_per_node=1 ", "65537 nodes", "65536 apart", "2 or more"});
    params.ranks_per_node = 4;
    expect_bound(4 * 65536, {"btl_velo_ranks_per_node=4 ", "65537 nodes", "5 or more"});
    params.ranks_per_node = 1024;
    expect_bound(1u << 24, {"16777217 ranks", "24 bits", "btl_velo_ranks_per_node"});
    params.ranks_per_node = 0;
    params.device = "ofi";
    expect_bound(1u << 24, {"16777217 ranks", "24 bits"});
    params.device = "auto";
    EXPECT_EQ(error_of(params, (1u << 24) + 1), "") << "one node needs no names";
}

/// Ranks at and around those where a bound could stand, in order.
std::vector<uint32_t> job_sizes() {
    std::vector<uint32_t> sizes;
    for (uint32_t size = 2; size <= 66; ++size) sizes.push_back(size);
    for (uint32_t power = 128; power < 1u << 24; power *= 2) {
        for (const int beside : {-65, -3, -2, -1, 0, 1, 2, 5}) sizes.push_back(power + static_cast<uint32_t>(beside));
    }
    sizes.push_back(1u << 24);
    return sizes;
}

/// The number behind the last NAME in a text, and an equals sign where there is one; 0: there is none.
int named(const std::string& text, const std::string& name) {
    const size_t at = text.rfind(name);
    if (at == std::string::npos) return 0;
    const char* number = text.c_str() + at + name.size();
    return std::atoi(number + (*number == '='));
}

/// Each remedy that a refusal names is tried; false: one is no remedy, or there is none.
bool a_remedy_of_it_would_do(const std::string& error, const velo_params_t& params, const Tuning& tuning,
                             uint32_t ranks) {
    uint32_t tried = 0;
    bool good = true;
    const auto attempt = [&](auto mend, const Tuning& by) {
        velo_params_t mended = params;
        mend(mended);
        good = good && error_of(mended, ranks, 0, by).empty();
        ++tried;
    };
    const int bytes = named(error, "btl_velo_mailbox_bytes");
    const int slots = named(error, "btl_velo_slots");
    const int per_node = named(error, "set it to ");
    if (bytes != 0 && bytes != params.mailbox_bytes) {
        attempt([&](velo_params_t& mended) { mended.slots = 0, mended.mailbox_bytes = bytes; }, tuning);
    }
    if (slots != 0 && slots != params.slots && error.find("the largest mailbox") == std::string::npos) {
        attempt([&](velo_params_t& mended) { mended.slots = slots, mended.mailbox_bytes = 0; }, tuning);
    }
    // Whether the mailbox is large enough for its credits is looked at after these.
    const auto attempt_first = [&](auto mend, const char* prefix) {
        velo_params_t mended = params;
        mend(mended);
        good = good && !error_of(mended, ranks, 0, tuning).starts_with(prefix);
        ++tried;
    };
    if (per_node != 0) {
        attempt_first([&](velo_params_t& mended) { mended.ranks_per_node = per_node; }, "btl_velo_ranks_per_node=");
    }
    if (const int fewer = named(error, "lower it to at most "); fewer != 0) {
        attempt_first([&](velo_params_t& mended) { mended.slots = fewer; }, "btl_velo_slots=");
    }
    if (error.find("btl_velo_flow_control=dynamic does") != std::string::npos) {
        // Under the paper's stealing, which no job has, all peers own slots.
        Tuning turns = tuning;
        turns.flow.stealing = flowctl::Stealing::kTurns;
        attempt(
            [](velo_params_t& mended) {
                mended.flow_control = "dynamic", mended.slots = 0, mended.mailbox_bytes = 0;
            },
            turns);
    }
    return good && tried != 0;
}

TEST(JobSize, a_refused_plan_lies_between_no_two_that_are_accepted_and_names_what_would_do) {
    velo_params_t params = defaults();
    for (const char* mode : {"none", "static", "growing", "dynamic"}) {
        params.flow_control = mode;
        for (const auto& [stealing, name] : flowctl::kStealingNames) {
            Tuning tuning;
            tuning.flow.stealing = stealing;
            for (const int ranks_per_node : {1, 4, 1024}) {
                params.ranks_per_node = ranks_per_node;
                for (const auto& [slots, bytes] : {std::pair{0, 0}, {0, 64}, {0, 256}, {0, 320}, {0, 1 << 20},
                                                   {0, 1 << 30}, {1, 0}, {4, 0}, {65535, 0}}) {
                    for (const uint32_t credit_slots : {2u, 255u}) {
                        params.slots = slots;
                        params.mailbox_bytes = bytes;
                        tuning.flow.credit_slots = credit_slots;
                        bool accepted = false;
                        bool refused_after = false;
                        for (const uint32_t ranks : job_sizes()) {
                            if (ranks <= static_cast<uint32_t>(ranks_per_node)) continue;  // without a mailbox
                            const std::string error = error_of(params, ranks, 0, tuning);
                            if (error.empty()) {
                                ASSERT_FALSE(refused_after) << mode << ", " << ranks << " ranks, fewer were refused";
                                accepted = true;
                                continue;
                            }
                            refused_after = accepted;
                            EXPECT_NE(error.find("btl_velo_"), std::string::npos) << error;
                            EXPECT_TRUE(a_remedy_of_it_would_do(error, params, tuning, ranks))
                                << ranks << " ranks: " << error;
                        }
                    }
                }
            }
        }
    }
}

TEST(JobSize, a_default_job_is_planned_at_every_size_and_no_sender_is_limited_unasked) {
    velo_params_t params = defaults();
    params.ranks_per_node = 4;
    for (const uint32_t ranks : {32700u, 32768u, 32771u, 32772u, 32773u, 32776u, 65536u, 131072u, 262144u}) {
        const EngineOptions options = make_options(params, rank_of(0, ranks), {});
        EXPECT_EQ(options.plan.mailbox_slots, 65536u);
        EXPECT_EQ(options.plan.sender_slots_max, options.plan.data_region_slots) << ranks;
    }
}

}  // namespace
}  // namespace velo
