/// One simulated process: its program, its queues of waiting messages, and the production packet path below.
///
/// It stands for the engine: the part of it that is not on the node and not RMA. A message to a peer whose
/// credits do not suffice waits in that peer's queue, partly sent if credits allow, as in
/// velo/engine_messages.h.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "sim_device/cluster/cluster.h"
#include "velo/base/intrusive_queue.h"
#include "velo/velo_path.h"

namespace velo::sim {

class Simulation;

/// The host's header, as long as FC 5.3's. It is how the receiver knows that nothing is lost, doubled or
/// reordered.
struct MessageHeader {
    uint32_t from = 0;
    uint32_t to = 0;
    uint32_t number = 0;  ///< of this sender to this receiver
    uint32_t bytes = 0;   ///< behind the header
};
static_assert(sizeof(MessageHeader) == 16 && sizeof(MessageHeader) <= cluster::kHeadBytes);

/// Owner: the Simulation. Its messages sent and received are in memory only from its first message on.
class Process {
  public:
    Process(Simulation& simulation, cluster::ClusterDevice& device);
    ~Process();
    Process(Process&&) noexcept;

    /// Does one thing, which takes its device's clock forward, and schedules the next; or sleeps.
    void step();

    [[nodiscard]] uint32_t rank() const { return device_->process(); }
    [[nodiscard]] cluster::ClusterDevice& device() const { return *device_; }
    [[nodiscard]] bool finished() const;
    /// nullptr before the first message through the device.
    [[nodiscard]] const VeloPath<cluster::ClusterDevice>* path() const;
    [[nodiscard]] uint64_t bursts_ns() const { return bursts_ns_; }
    [[nodiscard]] uint64_t messages_on_node() const { return used_ ? used_->messages_on_node : 0; }
    /// Its reason to wait, for a report of a run that stands still.
    [[nodiscard]] std::string text() const;

  private:
    static constexpr uint8_t kBarrierTag = 0x80;     ///< plus the round
    static constexpr uint8_t kRendezvousTag = 0x40;  ///< announces a long message
    static constexpr uint8_t kSentTag = 0x20;        ///< not of a message: a long one has left
    static constexpr uint32_t kNobody = UINT32_MAX;

    struct Message : velo_send_t {
        MessageHeader header;
    };
    struct Peer {
        base::IntrusiveQueue<velo_send_t> queue;
        uint32_t sent = 0;
        uint32_t received = 0;
    };
    /// Messages that come through shared memory or RMA, or have left by RMA.
    struct Timed {
        uint64_t at_ns;
        uint8_t tag;
    };
    struct Used {
        std::unique_ptr<VeloPath<cluster::ClusterDevice>> path;
        std::vector<Peer> peers;
        std::vector<DeviceAddr> waiting;  ///< peers whose queue is not empty
        size_t turn = 0;
        uint64_t swept_news = UINT64_MAX;  ///< credits received when all of `waiting` was last tried in vain
        std::vector<std::unique_ptr<Message>> messages;
        std::vector<Message*> free;
        std::deque<Timed> timed;  ///< the earliest first
        uint64_t messages_on_node = 0;
        std::array<uint32_t, 32> barrier_arrived = {};
    };
    struct Handler;

    Used& used();
    VeloPath<cluster::ClusterDevice>& opened_path();
    uint32_t poll();
    uint32_t take_timed();
    void notify(Process& process, uint64_t at_ns, uint8_t tag);
    void fetch(uint32_t from, uint32_t bytes);
    [[nodiscard]] bool is_long(uint32_t bytes) const;
    [[nodiscard]] uint64_t copy_ns(uint32_t bytes) const;
    void received(uint8_t tag);
    bool drive_waiting();
    bool run_program();
    bool run_barrier();
    bool post_next();
    void enter_phase();
    void end_phase();
    bool prepare(uint32_t to);
    void post(uint32_t to, uint32_t bytes, uint8_t tag);
    bool post_on_node(uint32_t to, uint32_t bytes, uint8_t tag);
    Peer& peer(DeviceAddr address);
    void sleep();

    Simulation* simulation_;
    cluster::ClusterDevice* device_;
    std::unique_ptr<Used> used_;
    uint64_t owed_ns_ = 0;   ///< of messages received in this poll
    uint64_t expected_ = 0;  ///< messages of all phases up to this one
    uint64_t received_ = 0;
    uint64_t idle_until_ns_ = 0;  ///< its phase begins
    uint64_t bursts_ns_ = 0;      ///< timed phases with messages, from their beginnings until they had left
    uint32_t phase_ = 0;
    uint32_t posted_ = 0;       ///< of this phase's
    uint32_t outstanding_ = 0;  ///< begun and not sent
    uint32_t sends_ = 0;
    uint32_t barriers_ = 0;  ///< begun
    uint32_t last_to_ = kNobody;
    uint32_t last_from_ = kNobody;
    uint8_t polls_left_ = 0;
    uint8_t round_ = 0;
    bool barrier_after_ = false;
    bool in_barrier_ = false;
    bool round_sent_ = false;
    bool prepared_ = false;  ///< the next message has been paid for
};

}  // namespace velo::sim
