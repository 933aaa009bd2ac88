/// One run of sim/rails.h: processes that make messages, their policy, and worms on the rails.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "rma/rail_policy.h"
#include "rma/static_allocation.h"
#include "sim/rail_allocation.h"
#include "sim/rail_worms.h"
#include "sim/rails.h"
#include "sim/rails_traffic.h"
#include "sim/rails_world.h"
#include "sim/shipped_rails.h"
#include "sim/slot_pool.h"

namespace velo::sim {

class RailsRun final : public ShippedRails::Host, public RailAllocation::Host {
  public:
    /// Throws base::SetupError for what cannot be run.
    explicit RailsRun(const RailsConfig& config);
    [[nodiscard]] RailsResult run();

  private:
    struct Worm {
        uint32_t message = 0;
        uint32_t rail = 0;
        uint32_t bytes = 0;
        bool reserved = false;  ///< by the plugin's machine
    };
    struct Process {
        rma::RailPolicy policy;
        std::deque<uint32_t> queue;  ///< messages that wait for the one that blocks
        uint32_t made = 0;
        bool blocked = false;
        double drive_at = 0;  ///< of the last kShippedDrive
    };

    [[nodiscard]] uint32_t next_rail() const;
    void worm_left(uint32_t rail);
    void handle(const RailEvent& event);
    void handle_shipped(const RailEvent& event);
    void worms_move(uint32_t rail);

    void plan_message(uint32_t process);
    void make(uint32_t process);
    void begin(uint32_t message);
    void post_worm(uint32_t message, uint32_t rail, uint32_t bytes, bool reserved);
    void arrive(uint32_t worm);
    void complete(uint32_t message);
    void send_shipped(uint32_t process, uint32_t rail, rma::RailMessage message);

    void post(uint32_t message, uint32_t rail, uint32_t bytes) override { post_worm(message, rail, bytes, false); }
    void post_on(uint32_t message, rma::RailMask rails) override;
    void post_chunk(uint32_t message, uint32_t rail, uint32_t bytes, bool reserved) override;
    void send_control(uint32_t process, uint32_t rail, const rma::RailMessage& message, bool answer) override;
    void drive_at(uint32_t process, uint64_t time_ns) override;

    RailsWorld world_;
    RailsTraffic traffic_;
    RailAllocation allocation_;
    std::optional<rma::StaticAllocation> static_;
    std::vector<WormRail> network_;  ///< by rail
    SlotPool<Worm> worms_;
    std::vector<Process> processes_;
    std::unique_ptr<ShippedRails> shipped_;  ///< nullptr: another policy
};

}  // namespace velo::sim
