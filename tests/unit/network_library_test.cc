/// A job that asks for a network, where there is none to be had.
#include "velo/device/network_library.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

#include "velo/core/peer.h"
#include "velo/options/options.h"
#include "velo/os/shared_segment.h"

namespace velo {
namespace {

class NetworkLibrary : public testing::Test {
  protected:
    static void SetUpTestSuite() { setenv("VELO_OFI_LIBRARY", "/nonexistent/velo_ofi.so", 1); }

    velo_engine_t* open(const char* device, uint32_t hosts) {
        velo_params_default(&params_);
        params_.device = device;
        const velo_identity_t identity = {.name = 1,
                                          .job = 1,
                                          .rank = 0,
                                          .job_size = 2,
                                          .local_rank = 0,
                                          .local_size = 1,
                                          .host = 0,
                                          .hosts = hosts,
                                          .host_ranks_min = 1, .more_hosts = false, .other_host = {}};
        velo_host_t host = {};
        host.context = &log_;
        host.log = [](void* log, int, const char* line) { *static_cast<std::string*>(log) += line; };
        return velo_open(&params_, &identity, &host, error_.data(), error_.size());
    }

    velo_params_t params_ = {};
    std::string log_;
    std::array<char, 512> error_ = {};
};

TEST_F(NetworkLibrary, a_missing_one_is_named_with_the_remedy) {
    std::string why;
    EXPECT_EQ(network_library(why), nullptr);
    EXPECT_NE(why.find("/nonexistent/velo_ofi.so"), std::string::npos) << why;
    EXPECT_NE(why.find("install"), std::string::npos) << why;
}

TEST_F(NetworkLibrary, asked_for_by_name_velo_is_not_used_without_it) {
    EXPECT_EQ(open("ofi", 1), nullptr);
    EXPECT_NE(std::string(error_.data()).find("velo_ofi.so"), std::string::npos) << error_.data();
}

TEST_F(NetworkLibrary, otherwise_the_ranks_of_this_host_are_reached_and_others_are_refused_with_the_reason) {
    velo_engine_t* const engine = open("auto", 2);
    ASSERT_NE(engine, nullptr) << error_.data();
    EXPECT_NE(log_.find("velo_ofi.so"), std::string::npos) << log_;
    EXPECT_FALSE(velo_device_used(engine));
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
    EngineAddress address;
    ASSERT_TRUE(address.parse(bytes.data(), velo_address(engine, bytes.data(), bytes.size())));
    EXPECT_EQ(address.device_bytes, 0u);
    ++address.host;  // a rank elsewhere
    velo_peer_t* peer = nullptr;
    EXPECT_EQ(velo_connect(engine, &address, address.bytes(), false, nullptr, &peer, error_.data(), error_.size()),
              VELO_UNSUPPORTED);
    for (const char* word : {"another host", "velo_ofi.so", "tcp"}) {
        EXPECT_NE(std::string(error_.data()).find(word), std::string::npos) << word << ": " << error_.data();
    }
    velo_close(engine);
}

TEST_F(NetworkLibrary, a_job_of_one_host_opens_none) {
    velo_engine_t* const engine = open("auto", 1);
    ASSERT_NE(engine, nullptr) << error_.data();
    EXPECT_EQ(log_, "");
    velo_close(engine);
}

}  // namespace
}  // namespace velo
