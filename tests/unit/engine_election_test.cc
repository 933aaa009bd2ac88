// One process of each host reports a peer's end, over a device that elects none (DeviceTraits::elects).
#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>

#include "sim_device/shim/shim_device.h"
#include "tests/unit/job.h"
#include "velo/core/system.h"
#include "velo/engine/engine_impl.h"
#include "velo/options/options.h"

namespace velo::test {
namespace {

/// The software device without its election, and with peers that end on demand.
class Device : public shim::ShimDevice {
  public:
    using ShimDevice::ShimDevice;

    static bool peers_ended;

    [[nodiscard]] const DeviceTraits& traits() const {
        static const DeviceTraits traits = [] {
            DeviceTraits without = shim::ShimDevice::kTraits;
            without.elects = false;
            return without;
        }();
        return traits;
    }
    [[nodiscard]] bool alive(DeviceAddr peer) const { return !peers_ended && ShimDevice::alive(peer); }
    bool claim_report(DeviceAddr /*peer*/) {
        ADD_FAILURE() << "the device was asked";
        return true;
    }
    [[nodiscard]] const char* name() const { return "a device without an election"; }
};
bool Device::peers_ended = false;

struct Survivor {
    Survivor(velo_params_t params, uint32_t rank, uint32_t size) {
        const velo_identity_t identity = {.name = rank,
                                          .job = 77,
                                          .rank = rank,
                                          .job_size = size,
                                          .local_rank = rank,
                                          .local_size = size,
                                          .host = 0,
                                          .hosts = 1,
                                          .host_ranks_min = size,
                                          .more_hosts = false, .other_host = {}};
        velo_host_t host = {};
        host.context = this;
        host.accepts = [](void*, uint8_t) { return true; };
        host.peer_ended = [](void* self, const velo_end_t* end) {
            auto& survivor = *static_cast<Survivor*>(self);
            survivor.told.push_back(survivor.engine->claim_report(*end->peer));
        };
        engine = std::make_unique<Engine<System<Device>>>(make_options(params, identity, host));
    }
    void connect(const Survivor& to) const {
        velo_peer* peer = nullptr;
        std::string error;
        EXPECT_EQ(engine->connect(to.engine->address(), true, nullptr, peer, error), Status::kOk) << error;
    }
    void drive() {
        for (int round = 0; round < 200 && told.empty(); ++round) {
            usleep(1000);
            for (int polls = 0; polls < 64; ++polls) engine->progress();
        }
    }

    std::unique_ptr<Engine<System<Device>>> engine;
    std::vector<bool> told;  ///< of each peer that ended: whether this process is the one that reports
};

TEST(EngineElection, the_first_of_each_host_that_notices_tells_and_the_others_do_not) {
    constexpr uint32_t kRanks = 6;
    velo_params_t params = default_params();
    params.ranks_per_node = 2;  // a node is as a host
    Survivor first(params, 0, kRanks);
    Survivor second(params, 1, kRanks);
    const Survivor ended(params, 2, kRanks);
    Survivor elsewhere(params, 4, kRanks);
    first.connect(second);
    second.connect(first);
    for (const Survivor* survivor : {&first, &second, &elsewhere}) survivor->connect(ended);
    Device::peers_ended = true;
    for (Survivor* survivor : {&first, &second, &elsewhere}) survivor->drive();
    EXPECT_EQ(first.told, std::vector<bool>{true});
    EXPECT_EQ(second.told, std::vector<bool>{false});
    EXPECT_EQ(elsewhere.told, std::vector<bool>{true});
}

}  // namespace
}  // namespace velo::test
