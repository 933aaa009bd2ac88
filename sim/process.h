/// One simulated process: its program, and the production engine below, whose host it is.
///
/// A message longer than the workload's eager ones is announced and fetched by RMA, and a message reports its
/// end, as in pml/ob1.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "sim/dissemination_barrier.h"
#include "sim/sim_engine.h"
#include "sim_device/cluster/cluster.h"

namespace velo::sim {

class Simulation;

/// The host's header, as long as FC 5.3's. It is how the receiver knows that nothing is lost, doubled or
/// reordered.
struct MessageHeader {
    uint32_t from = 0;
    uint32_t to = 0;
    uint32_t number = 0;  ///< of this sender to this receiver
    uint32_t bytes = 0;   ///< behind the header, or of the message that is announced
};
static_assert(sizeof(MessageHeader) == 16 && sizeof(MessageHeader) <= cluster::kHeadBytes);

/// Announces a long message.
struct Announcement {
    MessageHeader header;
    velo_handle_t memory;
};

/// Owner: the Simulation, which does not move it. Its engine is opened by its first contact with another process.
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
    /// nullptr before the first contact.
    [[nodiscard]] const SimEngine* engine() const { return used_ ? &used_->engine : nullptr; }
    [[nodiscard]] const SimPackets* packets() const {
        return used_ ? &*used_->engine.parts().core.packets : nullptr;
    }
    [[nodiscard]] uint64_t bursts_ns() const { return bursts_ns_; }
    /// The program's, sent by either way; without the ends of long ones.
    [[nodiscard]] uint64_t messages() const { return used_ ? used_->messages : 0; }
    [[nodiscard]] uint64_t messages_on_node() const { return used_ ? used_->messages_on_node : 0; }
    /// Its reason to wait, for a report of a run that stands still.
    [[nodiscard]] std::string text() const;

  private:
    static constexpr uint8_t kBarrierTag = 0x80;   ///< plus the round
    static constexpr uint8_t kAnnounceTag = 0x40;  ///< of a long message
    static constexpr uint8_t kEndTag = 0x20;       ///< a long message has been fetched
    static constexpr uint32_t kNobody = UINT32_MAX;

    struct Message : velo_send_t {
        Announcement head;
    };
    struct Fetch : velo_rma_t {
        uint32_t from = 0;
    };
    struct Peer {
        velo_peer* peer = nullptr;  ///< once it is connected
        uint32_t sent = 0;
        uint32_t received = 0;
    };
    struct Used {
        Used(const EngineOptions& options, const SimSystem& system) : engine(options, system) {}

        SimEngine engine;
        std::vector<Peer> on_device;  ///< by DeviceAddr
        std::vector<Peer> on_node;    ///< by place on the node
        std::deque<Message> messages_made;
        std::vector<Message*> messages_free;
        std::deque<Fetch> fetches_made;
        std::vector<Fetch*> fetches_free;
        uint64_t messages = 0;
        uint64_t messages_on_node = 0;
        velo_handle_t memory{};  ///< see registered()
    };

    Used& used();
    velo_host_t host();
    Peer& peer(uint32_t rank);
    Peer& connected(uint32_t rank);
    uint32_t poll();
    const velo_handle_t& registered();
    void fetch(uint32_t from, const Announcement& announcement);
    void take(velo_path_t path, uint32_t from, uint8_t tag, const std::byte* data, size_t bytes);
    void sent(velo_send_t& send);
    void fetched(Fetch& fetch, int status);
    [[nodiscard]] bool is_long(uint32_t bytes) const;
    void received(uint8_t tag);
    bool drive();
    bool run_program();
    bool run_barrier();
    bool post_next();
    void enter_phase();
    void end_phase();
    bool prepare(uint32_t to);
    void post(uint32_t to, uint32_t bytes, uint8_t tag);
    void sleep();

    Simulation* simulation_;
    cluster::ClusterDevice* device_;
    std::unique_ptr<Used> used_;
    DisseminationBarrier barrier_;
    uint64_t owed_ns_ = 0;   ///< of messages received in this poll
    uint64_t expected_ = 0;  ///< messages of all phases up to this one
    uint64_t received_ = 0;
    uint64_t idle_until_ns_ = 0;  ///< its phase begins
    uint64_t bursts_ns_ = 0;      ///< timed phases with messages, from their beginnings until they had left
    uint32_t phase_ = 0;
    uint32_t posted_ = 0;       ///< of this phase's
    uint32_t outstanding_ = 0;  ///< begun and not sent
    uint32_t sends_ = 0;
    uint32_t last_to_ = kNobody;
    uint32_t last_from_ = kNobody;
    uint8_t polls_left_ = 0;
    bool barrier_after_ = false;
    bool prepared_ = false;  ///< the next message has been paid for
};

}  // namespace velo::sim
