/// Parameters and identities that options are made of, and what is said where they are refused.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "velo/options/options.h"

namespace velo {

inline velo_params_t defaults() {
    velo_params_t params;
    velo_params_default(&params);
    return params;
}

inline velo_identity_t rank_of(uint32_t rank, uint32_t size) {
    return {.name = rank,
            .job = 1,
            .rank = rank,
            .job_size = size,
            .local_rank = rank,
            .local_size = size,
            .host = 0,
            .hosts = 1,
            .host_ranks_min = size, .more_hosts = false, .other_host = {}};
}

inline std::string error_of(const velo_params_t& params, uint32_t size = 8, uint32_t rank = 0,
                            const Tuning& tuning = {}) {
    try {
        (void)make_options(params, rank_of(rank, size), {}, {}, tuning);
    } catch (const base::SetupError& error) {
        return error.what();
    }
    return "";
}

inline void expect_names(const std::string& text, std::initializer_list<const char*> words) {
    for (const char* word : words)
        EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
}

inline velo_identity_t rank_of_hosts(uint32_t rank, uint32_t size, uint32_t hosts, uint32_t least) {
    velo_identity_t identity = rank_of(rank, size);
    identity.local_rank = 2;  // of no meaning to the device
    identity.local_size = least;
    identity.host = 4;
    identity.hosts = hosts;
    identity.host_ranks_min = least;
    return identity;
}

}  // namespace velo
