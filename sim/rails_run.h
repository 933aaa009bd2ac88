/// One run of sim/rails.h: processes, NICs' threads and what they reserve.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <vector>

#include "rma/rail_policy.h"
#include "rma/rail_reservation.h"
#include "rma/static_allocation.h"
#include "sim/rail_worms.h"
#include "sim/rails.h"
#include "sim/shipped_rails.h"
#include "sim_device/cluster/trace_hash.h"

namespace velo::sim {

class RailsRun final : public ShippedRails::Host {
  public:
    explicit RailsRun(const RailsConfig& config);
    [[nodiscard]] RailsResult run();

  private:
    using Duplex = rma::DuplexRail<128>;
    static constexpr uint32_t kNone = UINT32_MAX;

    enum class Kind : uint8_t {
        kMake,       ///< a process makes a message
        kAsk,        ///< a NIC's thread has a local RTS
        kGiveUp,     ///< a local ABORT
        kGrantDone,  ///< a local ACK
        kControl,    ///< a control message comes to a NIC
        kHandle,     ///< and its thread has read it
        kRetry,      ///< a message's random wait is over
        kAskAgain,   ///< a fragment's
        kArrive,     ///< the last flit of a worm
        // Of the plugin's machines:
        kShippedSend,     ///< a NIC's thread has a request of a process
        kShippedControl,  ///< a control message comes to a NIC
        kShippedHandle,   ///< and its thread has read it
        kShippedDrive,    ///< a process looks at what waits
    };
    struct Event {
        double time = 0;
        uint64_t order = 0;
        Kind kind{};
        uint32_t at = 0;  ///< process, NIC, message or worm
        rma::RailMessage message;
        uint32_t process = 0;  ///< kShippedSend: that sends; kShippedControl, kShippedHandle: that receives
        /// The next event is the largest of a heap.
        bool operator<(const Event& other) const {
            return time > other.time || (time == other.time && order > other.order);
        }
    };
    struct Message {
        double made = 0;
        uint32_t bytes = 0;
        uint32_t process = 0;
        uint32_t to = 0;         ///< node
        uint32_t to_process = 0;
        uint32_t fragments = 0;  ///< to arrive yet
        uint32_t answers = 0;    ///< that are awaited
        rma::RailMask granted = 0;
        bool reserves = false;
    };
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
    /// A NIC: its thread, and its reservation, of which one machine is used.
    struct Nic {
        rma::HalfDuplexRail half;
        Duplex duplex;
        double thread_free = 0;
        uint32_t asker = kNone;  ///< message whose request is at the thread, out or granted
        uint32_t bytes = 0;      ///< duplex: of the fragment that waits for the grant
        bool asked = false;      ///< a local RTS is at the thread
    };
    struct Node {
        rma::RailSet rails;      ///< NStatus (RAILS 3)
        rma::RailPolicy policy;  ///< where nodes have the pointer, and for algorithm 3 and 4's selections
        std::deque<uint32_t> waiting;  ///< messages for which no rail was free
    };

    [[nodiscard]] Nic& nic_of(uint32_t node, uint32_t rail) { return nics_[node * config_.rails + rail]; }
    [[nodiscard]] uint32_t node_of(const Message& message) const {
        return message.process / config_.processes_per_node;
    }
    [[nodiscard]] uint32_t switches(uint32_t from, uint32_t to) const;
    [[nodiscard]] double way(uint32_t from, uint32_t to) const;
    /// An RTS and its answer, with the NICs' threads.
    [[nodiscard]] double round_trip(const Message& message) const;
    [[nodiscard]] double draw_exponential(uint32_t process, uint32_t number, double mean) const;

    void schedule(double time, Kind kind, uint32_t at, const rma::RailMessage& message = {}, uint32_t process = 0);
    /// After what the NIC's thread has before it.
    void give_to_thread(Kind kind, uint32_t node, uint32_t rail, const rma::RailMessage& message = {},
                        uint32_t process = 0);
    void handle(const Event& event);
    void handle_shipped(const Event& event);
    void worms_move(uint32_t rail);

    void plan_message(uint32_t process);
    void make(uint32_t process);
    void begin(uint32_t message);
    void post(uint32_t message, uint32_t rail, uint32_t bytes, bool reserved = false);
    void post_on(uint32_t message, rma::RailMask rails);
    void arrive(uint32_t worm);
    void complete(uint32_t message);

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
    [[nodiscard]] double random_wait(const Message& message);
    void wake(uint32_t node);

    void post_chunk(uint32_t message, uint32_t rail, uint32_t bytes, bool reserved) override;
    void send_control(uint32_t process, uint32_t rail, const rma::RailMessage& message, bool answer) override;
    void drive_at(uint32_t process, uint64_t time_ns) override;
    void send_shipped(uint32_t process, uint32_t rail, rma::RailMessage message);
    [[nodiscard]] uint64_t now_ns() const { return static_cast<uint64_t>(now_); }

    template <typename Use>
    auto with_machine(Nic& nic, Use&& use) {
        return config_.duplex ? use(nic.duplex) : use(nic.half);
    }
    template <typename T>
    static uint32_t take_slot(std::vector<T>& pool, std::vector<uint32_t>& spare) {
        if (spare.empty()) {
            pool.emplace_back();
            return static_cast<uint32_t>(pool.size() - 1);
        }
        const uint32_t slot = spare.back();
        spare.pop_back();
        pool[slot] = T();
        return slot;
    }

    RailsConfig config_;
    double mean_time_;  ///< of a message on one rail
    double from_;       ///< what is measured
    double until_;
    std::optional<rma::StaticAllocation> allocation_;
    std::vector<WormRail> network_;
    std::vector<Process> processes_;
    std::vector<Node> nodes_;
    std::vector<Nic> nics_;
    std::unique_ptr<ShippedRails> shipped_;  ///< nullptr: another policy
    std::vector<Message> messages_;
    std::vector<uint32_t> spare_messages_;
    std::vector<Worm> worms_;
    std::vector<uint32_t> spare_worms_;
    std::priority_queue<Event> events_;
    uint64_t scheduled_ = 0;
    double now_ = 0;
    uint32_t waits_ = 0;
    RailsResult result_;
    uint64_t begun_ = 0;
    uint64_t begun_against_ = 0;
    uint64_t reserving_ = 0;
    double latency_sum_ = 0;
    cluster::TraceHash trace_;
};

}  // namespace velo::sim
