/// Allocation of free rails to the messages of a node: local dynamic (RAILS 3), and by reservation at both ends
/// (RAILS 4).
#pragma once

#include <cstdint>
#include <vector>

#include "rma/rail_policy.h"
#include "rma/rail_reservation.h"
#include "sim/rails_world.h"

namespace velo::sim {

/// Each message is allocated rails once, now or when some become free. Owner: RailsRun. Thread: one.
class RailAllocation {
  public:
    /// Sends what has its rails.
    class Host {
      public:
        virtual void post(uint32_t message, uint32_t rail, uint32_t bytes) = 0;
        /// In equal fragments.
        virtual void post_on(uint32_t message, rma::RailMask rails) = 0;

      protected:
        ~Host() = default;
    };

    RailAllocation(RailsWorld& world, Host& host);

    /// Posts the message on free rails, asks for some, or lets it wait until one is free.
    void allocate(uint32_t message);
    /// Messages that wait are served in order, while rails are free.
    void wake(uint32_t node);
    /// An event of its kinds.
    void handle(const RailEvent& event);

  private:
    using Duplex = rma::DuplexRail<128>;
    static constexpr uint32_t kNone = UINT32_MAX;

    /// The reservation of a NIC, of which one machine is used.
    struct Nic {
        rma::HalfDuplexRail half;
        Duplex duplex;
        uint32_t asker = kNone;  ///< message whose request is at the thread, out or granted
        uint32_t bytes = 0;      ///< duplex: of the fragment that waits for the grant
        bool asked = false;      ///< a local RTS is at the thread
    };

    [[nodiscard]] Nic& nic_of(uint32_t node, uint32_t rail) { return nics_[world_.nic_of(node, rail)]; }
    [[nodiscard]] bool local() const { return world_.config.policy == RailsPolicy::kLocalDynamic; }
    void take_local(uint32_t message);
    void reserve(uint32_t message);
    void reserve_fragments(uint32_t message, rma::RailMask free);
    [[nodiscard]] rma::RailMask free_rails(uint32_t node);
    [[nodiscard]] rma::RailMask choose(uint32_t node, rma::RailMask among, uint32_t bytes);
    void ask(uint32_t node, uint32_t rail);
    void perform(uint32_t node, uint32_t rail, const rma::RailActions& actions);
    void send(uint32_t node, uint32_t rail, rma::RailMessage message);
    void answered(uint32_t node, uint32_t rail, bool granted);
    void decide(uint32_t message);
    [[nodiscard]] double random_wait(const RailsMessage& message);

    template <typename Use>
    auto with_machine(Nic& nic, Use&& use) {
        return world_.config.duplex ? use(nic.duplex) : use(nic.half);
    }

    RailsWorld& world_;
    Host& host_;
    std::vector<Nic> nics_;
    uint32_t waits_ = 0;  ///< random ones
};

}  // namespace velo::sim
