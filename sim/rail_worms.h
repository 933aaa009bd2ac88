/// Worms on one rail of a fat tree, as fluid: the network of RAILS 5.1, at the level of messages.
///
/// Simplifications. The tree's core never blocks (full bisection, adaptive routes), so worms meet at the ends
/// only; RAILS 5.1 says that the bottleneck is there. A worm is a flow, whose rate follows at once from which
/// others are there: rates are max-min fair under the capacities of the I/O buses. A NIC sends one worm at a
/// time, in order of posting. As many worms as a link has virtual channels arrive at a NIC at a time; one
/// more waits and holds its sender's NIC, as buffers are much shorter than messages.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

namespace velo::sim {

/// Times are in cycles, lengths in flits; a link and a bus carry one flit a cycle.
struct WormConfig {
    uint32_t nodes = 32;
    bool duplex = false;    ///< a bus carries a flit a cycle each way, and not both ways together
    uint32_t channels = 2;  ///< worms that arrive at a NIC at a time
    double both_ways = 1;   ///< capacity of a bus that is not duplex while data goes both ways
};

/// One rail. Pure: it moves when it is asked to.
class WormRail {
  public:
    static constexpr double kNever = std::numeric_limits<double>::infinity();

    explicit WormRail(const WormConfig& config);

    /// Queues a worm at its NIC. `worm` is the caller's name of it; times never go back.
    void post(uint32_t worm, uint32_t from, uint32_t to, double flits, double now);
    /// The time at which the next worm has left its sender, unless others are posted before.
    [[nodiscard]] double next_end() const { return next_end_; }
    /// The worm that ends then.
    [[nodiscard]] uint32_t end_next();
    /// Worms that have begun to arrive since the last call, in order.
    [[nodiscard]] std::vector<uint32_t> take_begun();

  private:
    struct Queued {
        uint32_t worm;
        uint32_t to;
        double flits;
    };
    /// A node's NIC, and the one worm that it sends.
    struct Nic {
        std::deque<Queued> queue;       ///< its first one is under way
        bool flows = false;             ///< and has a channel
        double left = 0;                ///< flits
        double rate = 0;                ///< flits a cycle
        double since = 0;               ///< left is of this time
        double capacity = 1;            ///< while rates are computed
        uint32_t open = 0;              ///< flows without a rate, while rates are computed
        uint32_t mark = 0;              ///< of the last computation that visited it
        std::vector<uint32_t> senders;  ///< whose worms arrive here
        std::deque<uint32_t> waiting;   ///< senders whose worms wait for a channel
    };

    void start(uint32_t from, double now);
    void flow(uint32_t from, double now);
    /// Rates of all flows that share a bus with this node's, directly or through others.
    void share(uint32_t node, double now);
    void collect(uint32_t node);
    void set_rate(uint32_t from, double rate);
    void find_next_end();

    WormConfig config_;
    std::vector<Nic> nics_;
    std::vector<uint32_t> begun_;
    std::vector<uint32_t> part_;   ///< nodes of the computation
    std::vector<uint32_t> unset_;  ///< senders in it
    uint32_t mark_ = 0;
    double next_end_ = kNever;
    uint32_t next_sender_ = 0;
};

}  // namespace velo::sim
