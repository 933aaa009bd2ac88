/// The memory of a simulated node, as an engine sees it: in place of shm::OnNode, in virtual time.
///
/// A message takes time of the CPU at both ends and is there when the sender has written it. Unread bytes of a pair
/// can be bounded, as a ring does it.
/// Claims of cooperative copies and tables of registrations are the processes' own objects, since all processes of a
/// simulation are in one address space.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "sim_device/cluster/cluster.h"
#include "velo/base/atu_table.h"
#include "velo/base/shared_block.h"
#include "velo/shm/on_node.h"

namespace velo::sim {

class SimNode;

/// All processes of a simulation, and what a message between two of one node costs.
struct NodeFabric {
    explicit NodeFabric(cluster::Cluster& with) : cluster(with) {}

    [[nodiscard]] uint64_t copy_ns(uint64_t bytes) const { return bytes * copy_kib_ns / 1024; }

    cluster::Cluster& cluster;
    std::vector<SimNode*> by_rank;   ///< nullptr: has no engine
    uint32_t message_ns = 0;         ///< on each side
    uint32_t copy_kib_ns = 0;        ///< of direct copies, and of what messages have beyond the next
    uint32_t short_bytes = 0;        ///< that `message_ns` covers
    uint32_t ring_bytes = 0;         ///< unread bytes of a pair beyond which there is no room; 0: there always is
    bool whole_payloads = false;     ///< else direct copies of more than a word only take time
};

/// Owner: an engine. Thread: one.
class SimNode {
  public:
    static constexpr uint64_t kNever = UINT64_MAX;

    SimNode(NodeFabric& fabric, cluster::ClusterDevice& device);
    SimNode(const SimNode&) = delete;
    SimNode& operator=(const SimNode&) = delete;
    ~SimNode();

    /// When the next message is there.
    [[nodiscard]] uint64_t next_ns() const { return arrivals_.empty() ? kNever : arrivals_.front().at_ns; }

    [[nodiscard]] uint32_t rank_of(shm::PeerIndex peer) const { return peers_[peer].node->device_.process(); }

    // The parts of an engine ask this of shm::OnNode, whose header describes each.

    [[nodiscard]] uint64_t name(shm::PeerIndex peer) const { return rank_of(peer); }
    [[nodiscard]] shm::OnNodeAddress address() const;
    Status connect(const shm::OnNodeAddress& address, shm::PeerIndex& peer, base::Failure* failure);
    [[nodiscard]] shm::RingProducer::Room reserve(shm::PeerIndex peer, uint32_t bytes, Status& status);
    [[nodiscard]] static std::byte* reserve_whole(shm::PeerIndex, uint32_t, Status&) { return nullptr; }
    [[nodiscard]] static bool send_line(shm::PeerIndex, const MessageParts&, uint8_t) { return false; }
    [[nodiscard]] static shm::RingProducer* lane(shm::PeerIndex) { return nullptr; }
    static void sent_in_lane(shm::PeerIndex, bool) {}
    [[nodiscard]] static bool send_lines(shm::PeerIndex, const MessageParts&, uint8_t) { return false; }
    void commit(shm::PeerIndex peer, MessageClass message_class, uint8_t tag, uint32_t bytes, bool whole = false);
    template <class Handler>
    uint32_t poll(uint32_t budget, Handler&& handler);
    [[nodiscard]] static bool nontemporal(shm::PeerIndex, uint32_t) { return false; }
    /// Of half of the processes, so that cooperative copies go either way: by the ring, and by both ends.
    [[nodiscard]] bool far(shm::PeerIndex) const { return (device_.process() & 1) != 0; }
    void measure_next(shm::PeerIndex) {}
    [[nodiscard]] static constexpr bool pays_for_pages(uint64_t) { return true; }

    [[nodiscard]] base::ClaimWord& coop_claims(uint32_t slot) { return claims()[slot]; }
    [[nodiscard]] base::ClaimWord& coop_claims_of(shm::PeerIndex peer, uint32_t slot) {
        return peers_[peer].node->claims()[slot];
    }
    [[nodiscard]] base::AtuTable& atu() { return registrations().table; }
    [[nodiscard]] const base::AtuView& atu_of(shm::PeerIndex peer) const {
        return peers_[peer].node->registrations().view;
    }
    [[nodiscard]] int32_t pid(shm::PeerIndex peer) const { return peers_[peer].node->address().segment.pid; }

    void poll_liveness(std::vector<shm::PeerIndex>& died);
    [[nodiscard]] static std::vector<shm::Loss> take_losses() { return {}; }
    [[nodiscard]] static size_t unanswered() { return 0; }
    [[nodiscard]] static base::Failure unanswered_failure() { return {}; }
    [[nodiscard]] static bool has_unattached() { return false; }
    static bool disconnect(shm::PeerIndex) { return false; }
    void announce_ending(base::Ending ending) { device_.announce_ending(ending); }
    [[nodiscard]] base::Ending announced_ending(shm::PeerIndex peer) const { return peers_[peer].node->ending(); }
    bool claim_report(shm::PeerIndex peer) { return !std::exchange(peers_[peer].node->end_told_, true); }
    [[nodiscard]] static bool claim_denial_report(const shm::PeerIndex*) { return true; }
    static void beat(uint64_t) {}
    [[nodiscard]] static uint64_t last_beat_ns(shm::PeerIndex) { return 0; }
    [[nodiscard]] static bool fill(shm::PeerIndex, shm::RingFill&) { return false; }
    [[nodiscard]] static bool unread(shm::PeerIndex) { return false; }
    [[nodiscard]] static shm::RingGeometry geometry() { return {}; }
    [[nodiscard]] static uint32_t message_bytes_max() { return kMessageBytesMax; }
    [[nodiscard]] const shm::OnNodeCounters& counters() const { return counters_; }

  private:
    static constexpr uint32_t kMessageBytesMax = 64u << 10;
    static constexpr uint32_t kRegistrationsMax = 64;

    struct Arrival {
        uint64_t at_ns = 0;
        shm::PeerIndex from = 0;
        MessageClass message_class = MessageClass::kHost;
        uint8_t tag = 0;
        uint32_t bytes = 0;
        std::unique_ptr<std::byte[]> data;
    };
    struct Registrations {
        std::unique_ptr<std::byte[]> shared;
        base::AtuTable table;
        base::AtuView view;
    };
    using Claims = std::array<base::ClaimWord, shm::kCoopBlocks>;

    shm::PeerIndex meet(SimNode& other);
    void arrive(Arrival arrival);
    void taken(SimNode& by, uint32_t bytes);
    Registrations& registrations();
    Claims& claims();
    [[nodiscard]] base::Ending ending() const { return device_.ending(); }
    [[nodiscard]] bool alive() const { return !device_.ended(); }
    /// Of the CPU, for a message at either end.
    [[nodiscard]] uint64_t message_ns(uint32_t bytes) const {
        return fabric_.message_ns + (bytes > fabric_.short_bytes ? fabric_.copy_ns(bytes) : 0);
    }

    NodeFabric& fabric_;
    cluster::ClusterDevice& device_;
    struct Peer {
        SimNode* node = nullptr;
        uint32_t unread_bytes = 0;  ///< of ours, there
        bool died = false;          ///< and the engine knows
    };
    std::vector<Peer> peers_;
    std::deque<Arrival> arrivals_;  ///< the earliest first
    std::unique_ptr<std::byte[]> staged_;
    std::unique_ptr<Registrations> registrations_;
    std::unique_ptr<Claims> claims_;
    shm::OnNodeCounters counters_;
    bool end_told_ = false;
};

/// The receiver pays for a message when it takes it.
template <class Handler>
uint32_t SimNode::poll(uint32_t budget, Handler&& handler) {
    uint32_t taken = 0;
    while (taken < budget && next_ns() <= device_.clock_ns()) {
        Arrival arrival = std::move(arrivals_.front());
        arrivals_.pop_front();
        shm::Message message;
        message.message_class = arrival.message_class;
        message.tag = arrival.tag;
        message.bytes = arrival.bytes;
        message.data = arrival.data.get();
        device_.work(message_ns(arrival.bytes));
        peers_[arrival.from].node->taken(*this, arrival.bytes);
        ++counters_.messages_received;
        ++taken;
        handler.deliver(arrival.from, message);
    }
    return taken;
}

}  // namespace velo::sim
