/// The rings of a simulated node, as an engine sees them: shm::BasicOnNode, the plugin's own, over private memory
/// and in virtual time.
///
/// A message takes time of the CPU at both ends, and its receiver finds it when its own clock has come to the
/// time of sending. All else is the plugin's code: first contact, lines, cells and bodies, memory that is given
/// back, dormant rings and doorbells, claims of cooperative copies, tables of registrations, and peers that
/// end. The distance of cores follows from the process, since the one that rings measure is this machine's.
#pragma once

#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "sim/sim_memory.h"

namespace velo::sim {

class SimNode;

/// All processes of a simulation, and what a message between two of one node costs.
struct NodeFabric {
    explicit NodeFabric(cluster::Cluster& with) : cluster(with) {}

    [[nodiscard]] uint64_t copy_ns(uint64_t bytes) const { return bytes * copy_kib_ns / 1024; }
    [[nodiscard]] SimNode* node_of(int32_t pid) const;
    /// Rings whose longest message is at least so long.
    static shm::RingGeometry geometry_for(uint32_t message_bytes);
    /// Whether memory is refused now.
    [[nodiscard]] bool refuses();

    cluster::Cluster& cluster;
    std::vector<SimNode*> by_rank;   ///< nullptr: has no engine
    uint32_t message_ns = 0;         ///< on each side
    uint32_t copy_kib_ns = 0;        ///< of direct copies, and of what messages have beyond the next
    uint32_t short_bytes = 0;        ///< that `message_ns` covers
    shm::RingGeometry ring = geometry_for(4096);
    bool whole_payloads = false;     ///< else direct copies of more than a word only take time
    /// A process looks at its rings although nothing has come, so that they fall dormant as in a job.
    bool polls_empty_rings = false;
    uint32_t refuse_permille = 0;    ///< of requests for a ring's memory, and of mappings
    uint64_t refuse_until_ns = 0;
    uint64_t refused = 0;            ///< so far

  private:
    uint32_t draws_ = 0;
};

/// Owner: an engine. Thread: one. A process that uses no ring, no registration and no claim has none of their memory.
class SimNode {
  public:
    using Rings = shm::BasicOnNode<SimNodeMemory>;
    static constexpr uint64_t kNever = UINT64_MAX;

    SimNode(NodeFabric& fabric, cluster::ClusterDevice& device, const shm::OnNodeConfig& config);
    SimNode(const SimNode&) = delete;
    SimNode& operator=(const SimNode&) = delete;
    ~SimNode();

    /// When the next message is there.
    [[nodiscard]] uint64_t next_ns() const;
    /// The next message of this process's is there.
    [[nodiscard]] bool arrived(uint32_t process) const;
    /// The segment of this process, made when it is first asked for.
    [[nodiscard]] const std::shared_ptr<SimMemory>& memory();
    [[nodiscard]] uint64_t name(shm::PeerIndex peer) const { return rings_->name(peer); }
    [[nodiscard]] uint32_t rank_of(shm::PeerIndex peer) const { return static_cast<uint32_t>(rings_->name(peer)); }
    [[nodiscard]] bool alive() const { return !device_.ended(); }
    /// Losses of the rings, so far.
    [[nodiscard]] uint64_t losses() const { return losses_; }

    // The parts of an engine ask this of shm::BasicOnNode, whose header describes each.

    [[nodiscard]] shm::OnNodeAddress address() const;
    Status connect(const shm::OnNodeAddress& address, shm::PeerIndex& peer, base::Failure* failure) {
        return rings().connect(address, peer, failure);
    }
    [[nodiscard]] shm::RingProducer::Room reserve(shm::PeerIndex peer, uint32_t bytes, Status& status);
    [[nodiscard]] std::byte* reserve_whole(shm::PeerIndex peer, uint32_t bytes, Status& status) {
        return shm::RingProducer::in_one_piece(reserve(peer, bytes, status));
    }
    [[nodiscard]] bool try_send_line(shm::PeerIndex peer, const MessageParts& parts, uint8_t tag) {
        return rings().try_send_line(peer, parts, tag) && left(peer, parts.bytes());
    }
    [[nodiscard]] shm::RingProducer* ready_ring(shm::PeerIndex peer) { return rings().ready_ring(peer); }
    void line_sent(shm::PeerIndex peer, bool wake) {
        rings().line_sent(peer, wake);
        (void)left(peer, 0);
    }
    [[nodiscard]] bool try_send_lines(shm::PeerIndex peer, const MessageParts& parts, uint8_t tag) {
        return rings().try_send_lines(peer, parts, tag) && left(peer, parts.bytes());
    }
    void commit(shm::PeerIndex peer, MessageClass message_class, uint8_t tag, uint32_t bytes, bool whole = false) {
        rings().commit(peer, message_class, tag, bytes, whole);
        (void)left(peer, bytes);
    }
    template <class Handler>
    uint32_t poll(uint32_t budget, Handler&& handler);
    [[nodiscard]] bool nontemporal(shm::PeerIndex peer, uint32_t) const { return far(peer); }
    /// Half of the processes are far, so that cooperative copies go either way: by the ring, and by both ends.
    [[nodiscard]] bool far(shm::PeerIndex) const { return (device_.process() & 1) != 0; }
    void measure_next(shm::PeerIndex peer) { rings().measure_next(peer); }
    [[nodiscard]] static constexpr bool pays_for_pages(uint64_t) { return true; }

    [[nodiscard]] base::ClaimWord& coop_claims(uint32_t slot) { return rings().coop_claims(slot); }
    [[nodiscard]] base::ClaimWord& coop_claims_of(shm::PeerIndex peer, uint32_t slot) {
        return rings().coop_claims_of(peer, slot);
    }
    [[nodiscard]] base::AtuTable& atu() { return rings().atu(); }
    [[nodiscard]] const base::AtuView& atu_of(shm::PeerIndex peer) const { return rings_->atu_of(peer); }
    [[nodiscard]] int32_t pid(shm::PeerIndex peer) const { return rings_->pid(peer); }

    void poll_liveness(std::vector<shm::PeerIndex>& died);
    [[nodiscard]] std::vector<shm::Loss> take_losses();
    [[nodiscard]] size_t unanswered() const { return rings_ ? rings_->unanswered() : 0; }
    [[nodiscard]] base::Failure unanswered_failure() const {
        return rings_ ? rings_->unanswered_failure() : base::Failure{};
    }
    [[nodiscard]] bool has_unattached() const { return rings_ && rings_->has_unattached(); }
    bool disconnect(shm::PeerIndex peer) { return rings().disconnect(peer); }
    void announce_ending(base::Ending ending);
    [[nodiscard]] base::Ending announced_ending(shm::PeerIndex peer) const {
        return rings_->announced_ending(peer);
    }
    bool claim_report(shm::PeerIndex peer) { return rings().claim_report(peer); }
    bool claim_denial_report(const shm::PeerIndex* peer) { return rings().claim_denial_report(peer); }
    void beat(uint64_t now_ns) {
        if (rings_) rings_->beat(now_ns);
    }
    [[nodiscard]] uint64_t last_beat_ns(shm::PeerIndex peer) const { return rings_->last_beat_ns(peer); }
    [[nodiscard]] bool fill(shm::PeerIndex peer, shm::RingFill& fill) const { return rings_->fill(peer, fill); }
    [[nodiscard]] bool unread(shm::PeerIndex peer) { return rings().unread(peer); }
    [[nodiscard]] const shm::RingGeometry& geometry() const { return config_.geometry; }
    [[nodiscard]] uint32_t message_bytes_max() const { return config_.geometry.message_bytes_max(); }
    [[nodiscard]] const shm::OnNodeCounters& counters() const { return rings_ ? rings_->counters() : none_; }

  private:
    friend struct SimNodeMemory;
    static constexpr uint32_t kRegistrationsMax = 64;

    /// Messages of a process that lie in its ring to this one, by the times at which they are there.
    struct Inbox {
        uint32_t from = 0;
        std::deque<uint64_t> at_ns;
    };
    template <class Handler>
    struct Receiver;

    Rings& rings();
    [[nodiscard]] Inbox& inbox_of(uint32_t process);
    bool left(shm::PeerIndex peer, uint32_t bytes);
    void arrive(uint32_t from, uint64_t at_ns);
    void taken(uint32_t from, uint32_t bytes);
    void wake_senders();
    /// Time of the CPU for a message at either end.
    [[nodiscard]] uint64_t message_ns(uint32_t bytes) const {
        return fabric_.message_ns + (bytes > fabric_.short_bytes ? fabric_.copy_ns(bytes) : 0);
    }

    NodeFabric& fabric_;
    cluster::ClusterDevice& device_;
    shm::OnNodeConfig config_;
    std::shared_ptr<SimMemory> memory_;
    std::unique_ptr<Rings> rings_;
    std::vector<Inbox> inboxes_;
    uint64_t losses_ = 0;
    std::vector<uint32_t> waiting_;  ///< processes that found their ring to this one full
    static const shm::OnNodeCounters none_;
};

/// The engine's handler, with the time that a message takes.
template <class Handler>
struct SimNode::Receiver {
    SimNode& node;
    Handler& handler;
    [[nodiscard]] bool accepts(const shm::Message& message) { return handler.accepts(message); }
    void deliver(shm::PeerIndex from, const shm::Message& message) {
        node.taken(node.rank_of(from), message.bytes);
        handler.deliver(from, message);
    }
};

template <class Handler>
uint32_t SimNode::poll(uint32_t budget, Handler&& handler) {
    if (!rings_ || (!fabric_.polls_empty_rings && next_ns() > device_.clock_ns())) return 0;
    const uint32_t taken = rings_->poll(budget, Receiver<Handler>{*this, handler});
    if (taken != 0 && !waiting_.empty()) wake_senders();
    return taken;
}

}  // namespace velo::sim
