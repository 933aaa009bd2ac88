/// The engine: peers, the choice of path, messages, transfers and progress, over any device.
///
/// It composes the on-node path, the VELO path over a device, and transfers (engine_rma.h). The host calls it
/// through velo.h. Upcalls are made without the lock and with nothing half done, because a host calls back
/// in from them.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "flowctl/plan.h"
#include "rma/chunk_scheduler.h"
#include "velo/base/chunked_memory.h"
#include "velo/base/clock.h"
#include "velo/base/copy.h"
#include "velo/base/lock.h"
#include "velo/credit_trace.h"
#include "velo/device.h"
#include "velo/device_pause.h"
#include "velo/network_device.h"
#include "velo/peer.h"
#include "velo/shm/on_node.h"
#include "velo/slot_table.h"
#include "velo/stall_report.h"
#include "velo/velo.h"
#include "velo/velo_path.h"
#include "velo/wire.h"

namespace velo {

/// Options that the engine is opened with, checked and translated (velo/options.h makes it from parameters).
struct EngineOptions {
    velo_identity_t identity{};
    velo_host_t host{};
    velo_params_t params{};
    SharedSettings settings;
    flowctl::Plan plan;
    shm::OnNodeConfig on_node;
    DeviceConfig device;
    NetworkOptions network;
    uint32_t node = 0;  ///< in this job; the device may number nodes otherwise
    bool device_used = false;
    bool network_used = false;    ///< and it is that of a network
    bool network_wanted = false;  ///< by the user: without it velo is not used at all
    std::string no_network;       ///< why there is none, where some rank of the job would be reached through it
    bool single_copy = true;
};

/// Owner of a queued message, and so what its completion means.
enum class Origin : uint8_t { kHost, kControl, kPush, kCopy };

template <class D>
class Engine {
  public:
    /// Throws base::SetupError.
    [[gnu::cold]] explicit Engine(const EngineOptions& options);

    /// Bytes of state of a process reached through the device, once it was talked to; without the device's own.
    [[nodiscard]] static uint32_t device_peer_bytes(const flowctl::Plan& plan) {
        return VeloPath<D>::peer_bytes(plan) + static_cast<uint32_t>(sizeof(velo_peer) + sizeof(velo_peer*));
    }

    [[nodiscard]] EngineAddress address() const;
    [[gnu::cold]] Status connect(const EngineAddress& address, bool same_host, void* context,
                                 velo_peer*& peer, std::string& error);
    bool disconnect(velo_peer& peer);

    /// Inline as a whole for a message of one line. (GCC would pass the parts through memory, and load
    /// wider than it stored.) `kCopies`: a copy may be queued.
    template <bool kCopies>
    [[gnu::always_inline]] Status send_now(velo_peer& peer, const shm::LineParts& parts, uint8_t tag);
    /// The lock stays held when the result is not nullptr, until commit() or cancel().
    std::byte* reserve(velo_peer& peer, uint32_t bytes);
    void commit(velo_peer& peer, uint8_t tag, uint32_t bytes);
    void cancel() { lock_.unlock(); }
    bool send(velo_peer& peer, velo_send_t& send);
    /// For what the host keeps of messages to a peer.
    [[nodiscard]] void* allocate(velo_peer& peer, size_t bytes) {
        const std::lock_guard guard(lock_);
        return memory_.allocate(peer.memory, bytes);
    }
    void free(void* memory) {
        const std::lock_guard guard(lock_);
        memory_.free(memory);
    }

    Status register_memory(void* base, size_t bytes, uint32_t access, velo_handle_t& handle);
    void deregister(const velo_handle_t& handle);
    void post(velo_peer& peer, velo_rma_t& op);

    /// Tells peers how this process is going to end.
    void announce_ending(base::Ending ending);
    [[nodiscard]] bool first_to_tell(const velo_peer& peer);

    int progress();
    [[nodiscard]] bool busy() const {
        const std::lock_guard guard(lock_);
        return !pending_peers_.empty() || !scheduler_.idle() || !copying_peers_.empty() ||
               slots_.taken() != 0 || !helps_.empty() || (velo_ && velo_->control_deferred()) || on_node_.unmet();
    }
    void counters(velo_counters_t& out) const;
    /// No message waits for credits any more: this process is about to end.
    [[gnu::cold]] void end_stalls();
    /// The trace's last lines.
    [[gnu::cold]] void finish_trace(const velo_counters_t& counters);
    [[nodiscard]] const EngineOptions& options() const { return options_; }
    [[nodiscard]] size_t device_send_bytes_max() const {
        return device_ ? size_t{device_->limits().send_packets_max} * kPayloadBytes : 0;
    }
    [[nodiscard]] const char* device_name() const { return device_ ? device_->name() : "no device"; }

  private:
    /// A message between engines that fits its header, queued until it has left.
    struct Control : velo_send_t {
        EngineHeader header;
        velo_peer* peer = nullptr;
    };
    /// Memory on its way out in messages: the answer to a pull, or a copied put.
    struct Push : velo_send_t {
        EngineHeader header;
        velo_peer* peer = nullptr;
        uint64_t address = 0;
        uint64_t left = 0;
        uint64_t source_nla = 0;  ///< of an answered pull: revoked, it stops
        uint32_t source_key = 0;
    };
    /// The engine's part of a velo_rma_t.
    struct RmaState : rma::Transfer {
        velo_rma_t* op = nullptr;
        velo_peer* peer = nullptr;
        rma::ChunkScheduler* scheduler = nullptr;
        uint8_t finds = 0;  ///< times that its memory was looked for by address
    };
    static_assert(sizeof(RmaState) <= sizeof(velo_rma_t::engine));

    /// An operation that waits for an answer, or for a direct copy that may be refused.
    enum class Wait : uint8_t {
        kDirectChunk,
        kDeviceChunk,
        kPullChunk,
        kPutChunk,
        kDeviceAtomic,
        kAtomic,
        kJoint
    };
    struct Waiting {
        Wait wait = Wait::kDirectChunk;
        RmaState* state = nullptr;
        uint64_t offset = 0;
        uint32_t bytes = 0;
        uint32_t received = 0;
        bool pushing = false;  ///< a copied put that still reads its source
        uint8_t joint = 0;     ///< its slot
        Status refused = Status::kOk;
    };

    /// A block that this process fetches, moved by both ends.
    struct Joint {
        uint32_t cookie = 0;
        velo_peer* peer = nullptr;
        RmaState* state = nullptr;
        std::byte* local = nullptr;
        uint64_t remote = 0;  ///< address in the peer
        uint64_t nla = 0;     ///< of the same, in its on-node ATU
        uint32_t key = 0;
        uint32_t bytes = 0;
        uint32_t chunk_bytes = 0;
        uint32_t chunks = 0;
        uint32_t own_chunks = 0;
        uint32_t due_bytes = 0;    ///< that were claimed by anyone, once nothing can be claimed any more
        uint32_t ended_bytes = 0;  ///< that arrived, or never will
        uint64_t offset = 0;       ///< in its transfer
        uint16_t generation = 0;
        uint16_t copying = 0;  ///< threads that make a direct copy of it, without the lock
        bool closed = false;   ///< nothing can be claimed any more
        Status status = Status::kOk;
    };
    /// This process's part in a block that a peer fetches from here.
    struct Help {
        velo_peer* peer = nullptr;
        uint32_t cookie = 0;
        uint32_t key = 0;
        uint64_t nla = 0;
        uint64_t source = 0;
        uint64_t destination = 0;  ///< in the peer, for direct copies; 0: through the ring
        uint32_t base_offset = 0;  ///< of a named part in its block
        uint32_t bytes = 0;
        uint32_t offset = 0;  ///< of what is being moved now
        uint32_t left = 0;    ///< of it
        uint16_t generation = 0;
        uint16_t slot = 0;
        bool claims = true;  ///< there may be more to claim
    };

    /// Polls in a row that take packets before the rest of the device gets its turn.
    static constexpr uint32_t kBusyPollsMax = 8;
    /// Copies that the first message of the host's to wait allows behind it; each further one allows twice as
    /// many.
    static constexpr uint32_t kCopiesMin = 16;
    static constexpr uint32_t kCopiesMax = 1u << 16;
    static constexpr uint32_t kCopyBytesMax = 1024;
    static constexpr uint32_t kTogetherMax = 32;  ///< messages that leave in one go
    static constexpr uint32_t kGatheredBytesMax = 16384 + 64;  ///< a longer message gains nothing by others beside it
    /// How often a device that does not see processes is told for which peers something waits, and after how long
    /// without any event a process in MPI is taken for waiting.
    static constexpr uint64_t kWatchPeersNs = 250'000'000;
    static constexpr uint64_t kQuietNs = 1'000'000'000;
    /// Chunks and atomics that may wait for answers at a time.
    static constexpr uint32_t kSlots = 4096;
    /// Of what peers ask for, so much is kept for each of them at most; they cannot have more under way,
    /// unless they write garbage. A pull holds a slot of the asker's until it is answered. So does whatever
    /// else is answered, but every piece of a put that fails has an answer of its own. A part of a block is
    /// asked for by name once for each thread whose direct copy was refused.
    static constexpr uint32_t kPullsMax = kSlots;
    static constexpr uint32_t kAnswersMax = 2 * kSlots;
    static constexpr uint32_t kNamedPartsMax = 4 * shm::kJointSlots;
    /// Each time an operation's memory is looked for by address, another registration of it was revoked.
    static constexpr uint8_t kFindsMax = 64;
    /// Transfers in a row that the device fails, until it is not asked any more.
    static constexpr uint32_t kPortFailuresMax = 16;
    /// An on-node direct copy is made in pieces of this size, and so much is copied in one go before
    /// others get their turn.
    static constexpr uint64_t kDirectChunkBytes = 1u << 20;
    static constexpr uint64_t kDirectBytesPerTurn = 4u << 20;
    /// Gets on the node from this size are moved jointly, in blocks of at most this size.
    static constexpr uint32_t kJointBytesMin = 16u << 10;
    static constexpr uint32_t kJointBytesMax = 64u << 20;
    /// Data of such a block in one message of the ring, and so much at a time before others get their turn.
    static constexpr uint32_t kJointPieceBytes = 32u << 10;
    static constexpr uint32_t kJointBytesPerTurn = 256u << 10;
    /// After this number of polls without data from a near peer, its part is taken over.
    static constexpr uint32_t kPatiencePolls = 64;
    /// Completions that post transfers that complete at once nest no deeper than this.
    static constexpr uint32_t kUpcallDepthMax = 8;
    /// How often peers are looked at that something waits for, and contacts that could not be answered.
    static constexpr uint64_t kLookAroundNs = 10'000'000;
    static constexpr uint32_t kClockPolls = 16;
    /// A shortage of a moment is not reported; this is about a second.
    static constexpr uint32_t kLooksUntilTold = 100;
    /// How often at least it is looked whether what waits moves, where reports are wanted.
    static constexpr uint64_t kWatchPeriodNsMax = 1'000'000'000;
    /// Polls that are further apart, as those of a rank that shares its core, look at the clock each.
    static constexpr uint64_t kSlowPollNs = 100'000;

    struct Handler;

    /// Gives the lock up in the middle of driving transfers. `driving_` is true only while the thread that
    /// drives has the lock; else another one, which ends a transfer meanwhile, would take it for its own and
    /// set it again afterwards, when no thread drives any more.
    class Apart {
      public:
        explicit Apart(Engine& engine)
            : restored_{engine.driving_, std::exchange(engine.driving_, false)}, unlocked_(engine.lock_) {}

      private:
        struct Restored {
            bool& driving;
            bool before;
            ~Restored() { driving = before; }
        };
        const Restored restored_;
        const base::Unlocked unlocked_;  // ends first
    };

    // Peers and messages (this file).
    /// The peer behind a path's index.
    velo_peer& peer_of(velo_path_t path, uint32_t index) {
        const std::vector<velo_peer*>& table = path == VELO_PATH_ON_NODE ? by_on_node_ : by_device_;
        if (index < table.size() && table[index] != nullptr) [[likely]]
            return *table[index];
        return add_peer_of(path, index);
    }
    velo_peer& add_peer_of(velo_path_t path, uint32_t index);
    Status try_send(velo_peer& peer, velo_send_t& send);
    [[gnu::noinline]] Status send_other_now(velo_peer& peer, const void* header, uint32_t header_bytes,
                                            const void* payload, uint32_t payload_bytes, uint8_t tag);
    [[gnu::noinline]] Status send_or_copy(velo_peer& peer, const void* header, uint32_t header_bytes,
                                          const void* payload, uint32_t payload_bytes, uint8_t tag);
    void enqueue(velo_peer& peer, velo_send_t& send);
    /// A message has gone to this peer since the last progress: further short ones go together, at the next.
    [[nodiscard]] bool waits_for_others(const velo_peer& peer, uint32_t bytes) const {
        return gathers_ && bytes <= kGatheredBytesMax && peer.path == VELO_PATH_DEVICE && peer.sent_poll == polls_;
    }
    uint32_t send_together(velo_peer& peer);
    void watch_peers(uint64_t now);
    uint32_t drive_pending();
    void unpark(velo_peer& peer);
    [[nodiscard]] bool source_gone(const velo_send_t& send);
    void completed(velo_send_t& send, Status status);
    void do_what_is_due(uint64_t now);
    void look_around(uint64_t now);
    [[gnu::cold]] void peer_died(velo_peer& peer);
    [[nodiscard]] bool quiet(const velo_peer& peer);
    void sweep_ended();
    void recycle(velo_peer& peer);
    void tell_of_end(velo_peer& peer);
    [[gnu::cold]] void report_loss(const shm::Loss& loss);
    [[gnu::cold]] void end_job(velo_path_t path, uint64_t name, const std::string& what);
    // Reports (engine_report.h).
    [[gnu::cold]] void start_watching();
    template <class Visit>
    void for_each_wait(Visit&& visit);
    void look_at_waits(uint64_t now);
    [[gnu::cold]] void watch_for_stalls(uint64_t now);
    [[gnu::cold]] void report(bool asked_for);
    [[gnu::cold]] PeerReport report_of(velo_peer& peer);
    void report_transfers(const velo_peer& peer, PeerReport& out);
    // The trace (engine_trace.h).
    struct CreditSums {
        uint32_t held = 0;       ///< here, for the mailboxes of all peers
        uint32_t granted = 0;    ///< of the own mailbox
        uint32_t available = 0;  ///< likewise, to no sender
    };
    [[nodiscard]] CreditSums sum_credits() const;
    [[nodiscard]] PeerCredits credits_of(const velo_peer& peer, uint64_t now) const;
    template <class Visit>
    void for_each_credited(Visit&& visit) const;
    [[gnu::cold]] void start_trace();
    [[gnu::cold]] void check_trace();
    void sample_credits(uint64_t now);

    bool submit(velo_peer& peer, velo_send_t& send, MessageClass message_class, Origin origin);
    [[gnu::cold]] Status check_address(const EngineAddress& address, Vicinity where, std::string& error) const;
    [[gnu::cold]] std::string why_not_reached(const EngineAddress& address, Vicinity where) const;
    void log(int level, const std::string& line) const;
    [[nodiscard]] static uint64_t now_ns();
    void look_at_clock();

    // Transfers and atomics (engine_rma.h).
    [[nodiscard]] static uint64_t remote_bytes(const velo_rma_t& op) {
        return op.kind == VELO_RMA_ATOMIC ? op.width : op.bytes;
    }
    /// The right that an operation needs at its target.
    [[nodiscard]] static Access access_for(const velo_rma_t& op) {
        if (op.kind == VELO_RMA_ATOMIC) return kAccessAtomic;
        return op.kind == VELO_RMA_GET ? kAccessRead : kAccessWrite;
    }
    [[gnu::cold]] bool find_remote(RmaState& state);
    [[gnu::cold]] void chunk_refused(RmaState& state, uint64_t offset, uint32_t bytes);
    uint32_t drive_transfers();
    uint32_t drive(rma::ChunkScheduler& scheduler);
    rma::ChunkScheduler& copies_of(velo_peer& peer);
    /// The fate of a chunk: it was copied here and now, it ends later, or it was not begun, because the
    /// device's queue is full.
    enum class Issued : uint8_t { kCopied, kBegun, kHeld };
    Issued issue(const rma::Chunk& chunk);
    bool issue_direct_on_node(RmaState& state, const rma::Chunk& chunk, uint32_t cookie);
    Status copy_on_node(const RmaState& state, const rma::Chunk& chunk);
    Status issue_on_device(RmaState& state, const rma::Chunk& chunk, uint32_t cookie);
    void issue_copied(RmaState& state, uint64_t offset, uint32_t bytes, uint32_t cookie);
    void give_up_direct(velo_peer& peer);
    [[gnu::cold]] void tell_of_denied_copies(const velo_peer& peer);
    [[nodiscard]] bool first_on_node_to_tell_of_denial();
    void chunk_done(RmaState& state, Status status);
    void finished(velo_rma_t& op, Status status);
    [[gnu::cold]] void report_failed(const velo_rma_t& op, Status status);
    bool post_atomic(RmaState& state);
    Status post_device_atomic(RmaState& state);
    void device_chunk_ended(const Waiting& waiting, uint32_t cookie, Status status);
    [[gnu::cold]] void port_failed(const velo_peer& peer);
    void atomic_done(RmaState& state, Status status, uint64_t old_value);
    uint32_t take_notifications();
    // Blocks that both ends move (engine_joint.h).
    bool issue_joint(RmaState& state, const rma::Chunk& chunk);
    uint32_t drive_joints();
    bool take_own_chunk(uint32_t slot);
    void close_joint(Joint& joint, Status status);
    bool end_joint_if_done(uint32_t slot);
    void peer_of_joints_died(velo_peer& peer);
    uint32_t drive_helps();
    bool advance_help(size_t index, uint32_t& moved);
    bool push_pieces(Help& help, uint32_t& moved);
    void tell_joint_done(const Help& help, Status status);
    [[nodiscard]] bool add_help(const Help& help);
    void on_joint(velo_peer& peer, const EngineHeader& header);
    void on_joint_data(velo_peer& peer, const EngineHeader& header, const std::byte* data, uint32_t bytes);
    // Messages between engines (engine_requests.h).
    void send_control(velo_peer& peer, const EngineHeader& header);
    void advance_push(Push& push);
    void push_ended(Push& push, Status status);
    void wait_ended(uint32_t cookie, Status status, uint64_t value);
    void start_push(velo_peer& peer, const EngineHeader& header, uint64_t address, uint64_t bytes);
    Status translate_request(uint64_t& nla, uint32_t& key, uint64_t bytes, uint32_t access,
                             uint64_t& address);
    void receive_engine_message(velo_peer& peer, const std::byte* data, uint32_t bytes);
    void on_pull(velo_peer& peer, const EngineHeader& header);
    void on_pull_data(const velo_peer& peer, const EngineHeader& header, const std::byte* data,
                      uint32_t bytes);
    void on_put_data(velo_peer& peer, const EngineHeader& header, const std::byte* data, uint32_t bytes);
    void on_atomic(velo_peer& peer, const EngineHeader& header);
    void on_done(const velo_peer& peer, const EngineHeader& header);

    EngineOptions options_;
    mutable base::OptionalLock lock_;
    shm::OnNode on_node_;
    std::optional<D> device_;
    std::optional<VeloPath<D>> velo_;
    uint64_t probe_;
    uint64_t host_;

    std::vector<std::unique_ptr<velo_peer>> peers_;
    std::vector<velo_peer*> by_on_node_;
    std::vector<velo_peer*> by_device_;
    std::vector<velo_peer*> ended_;        ///< on this node, and not gone yet
    std::vector<velo_peer*> spare_peers_;  ///< for another process

    std::vector<velo_peer*> pending_peers_;
    size_t parked_peers_ = 0;  ///< of these
    uint64_t pending_ = 0;
    base::ChunkedMemory memory_;

    rma::ChunkScheduler scheduler_;  ///< of direct transfers
    std::vector<velo_peer*> copying_peers_;
    bool driving_ = false;
    uint32_t upcall_depth_ = 0;  ///< of transfers' completions
    uint64_t next_look_ns_ = 0;
    uint32_t polls_ = 0;
    uint32_t busy_polls_ = 0;        ///< in a row, that took packets and left the rest of the device alone
    uint32_t looks_unanswered_ = 0;  ///< in a row
    uint32_t clock_poll_ = 0;        ///< when the clock was looked at
    uint32_t next_clock_poll_ = 0;   ///< and will be
    uint64_t now_ = 0;               ///< as of the last look at the clock
    bool gathers_ = false;           ///< DeviceTraits::gathers
    DevicePause device_pause_;
    uint64_t next_peers_watch_ns_ = UINT64_MAX;
    uint64_t device_event_ns_ = 0;  ///< when the device last had something to do
    bool told_of_denied_copies_ = false;
    bool told_of_port_ = false;
    bool port_down_ = false;
    uint32_t port_failures_ = 0;        ///< in a row
    std::array<bool, 256> accepted_{};  ///< tags that the host takes, and so will go on taking
    StallWatch stall_watch_;
    uint64_t watch_period_ns_ = 0;  ///< 0: no reports are wanted
    uint64_t next_watch_ns_ = 0;
    std::unique_ptr<CreditTrace> trace_;
    uint64_t next_sample_ns_ = UINT64_MAX;  ///< of the trace
    uint64_t next_due_ns_ = 0;              ///< the look around or the sample
    SlotTable<Waiting> slots_;
    std::array<Joint, shm::kJointSlots> joints_{};
    std::vector<uint8_t> free_joints_;
    std::vector<uint8_t> active_joints_;
    std::vector<Help> helps_;
    bool helping_ = false;                         ///< drive_helps is running
    base::IntrusiveQueue<rma::Transfer> atomics_;  ///< waiting for a slot
    base::IntrusiveQueue<velo_send_t> free_controls_;
    base::IntrusiveQueue<velo_send_t> free_pushes_;
    std::deque<Control> controls_;
    std::deque<Push> pushes_;
    velo_counters_t counters_{};  ///< those that no part counts itself
};

/// Hands messages up, with the lock given up around the host's part.
template <class D>
struct Engine<D>::Handler {
    Engine& engine;
    velo_path_t path;

    [[nodiscard]] bool accepts(MessageClass message_class, uint8_t tag) const {
        if (message_class != MessageClass::kHost || engine.accepted_[tag]) return true;
        engine.accepted_[tag] = engine.options_.host.accepts(engine.options_.host.context, tag);
        return engine.accepted_[tag];
    }
    [[nodiscard]] bool accepts(const shm::Message& of) const { return accepts(of.message_class, of.tag); }
    [[gnu::always_inline]] void deliver(uint32_t index, MessageClass message_class, uint8_t tag,
                                        std::byte* data, uint32_t bytes) {
        velo_peer& peer = engine.peer_of(path, index);
        if (message_class == MessageClass::kHost) {
            base::Unlocked unlocked(engine.lock_);
            const velo_host_t& host = engine.options_.host;
            if (!peer.context && host.unconnected) [[unlikely]] host.unconnected(host.context, path, &peer, tag);
            host.receive(host.context, path, peer.context, tag, data, bytes);
        } else if (message_class == MessageClass::kEngine) {
            engine.receive_engine_message(peer, data, bytes);
        } else {
            ++engine.counters_.engine_malformed;
        }
    }
    [[gnu::always_inline]] void deliver(shm::PeerIndex index, const shm::Message& message) {
        deliver(index, message.message_class, message.tag, message.data, message.bytes);
    }
};

template <class D>
Engine<D>::Engine(const EngineOptions& options)
    : options_(options),
      lock_(options.params.threads),
      on_node_(options.on_node),
      probe_(base::random_token()),
      host_(base::host_identity()),
      scheduler_(static_cast<uint32_t>(options.params.outstanding)),
      stall_watch_(static_cast<uint64_t>(options.params.stall_report) * 1'000'000'000),
      slots_(kSlots) {
    for (uint32_t slot = shm::kJointSlots; slot-- > 0;) free_joints_.push_back(static_cast<uint8_t>(slot));
    if (options.device_used) {
        try {
            DeviceConfig config = options.device;
            if (options.network_used) config.network = &options_.network;
            device_.emplace(config);
        } catch (const base::SetupError& error) {
            if (options.device.faults.empty()) throw;
            throw base::SetupError("btl_velo_faults=" + options.device.faults + ": " + error.what());
        }
        velo_.emplace(*device_, options.plan, options.params.device_message_bytes_max);
    }
    if (device_ && options.plan.mode == flowctl::Mode::kHardware && !device_->traits().sees_room) {
        throw base::SetupError("btl_velo_flow_control=hardware has senders wait for room in a mailbox, which they do "
                               "not see over " +
                               std::string(device_->name()) + "; use dynamic or static");
    }
    if (device_) {
        gathers_ = device_->traits().gathers;
        device_pause_ = DevicePause(device_->traits().dear_to_poll);
        if (!device_->traits().sees_processes) next_peers_watch_ns_ = 0;
    }
    start_watching();
    start_trace();
}

template <class D>
uint64_t Engine<D>::now_ns() {
    return base::monotonic_ns();
}

template <class D>
void Engine<D>::log(int level, const std::string& line) const {
    if (options_.host.log != nullptr) options_.host.log(options_.host.context, level, line.c_str());
}

template <class D>
EngineAddress Engine<D>::address() const {
    EngineAddress address;
    address.node = static_cast<uint16_t>(options_.node);
    address.name = options_.identity.name;
    address.job = options_.identity.job;
    address.rank = options_.identity.rank;
    address.mailbox_slots = options_.plan.mailbox_slots;
    address.flow_control = static_cast<uint8_t>(options_.plan.mode);
    address.piggyback = options_.plan.piggyback;
    address.credit_slots = static_cast<uint16_t>(options_.plan.credit_slots);
    address.quota = options_.plan.quota;
    address.contact_slots = options_.plan.contact_slots;
    address.settings = options_.settings;
    address.probe_address = reinterpret_cast<uint64_t>(&probe_);
    address.probe = probe_;
    address.message_bytes_max = options_.params.device_message_bytes_max;
    address.on_node = on_node_.address();
    address.host = host_;
    address.network = options_.network_used;
    if (device_) address.device_bytes = static_cast<uint32_t>(device_->address(address.device));
    return address;
}

template <class D>
int Engine<D>::progress() {
    if (!lock_.try_lock()) return 0;
    const auto budget = static_cast<uint32_t>(options_.params.poll_budget);
    uint32_t events = on_node_.poll(budget, Handler{*this, VELO_PATH_ON_NODE});
    if (++polls_ >= next_clock_poll_) look_at_clock();
    if (device_ && device_pause_.due(polls_)) {
        // A waiting message comes first; what else the device has to do waits for a few polls.
        const uint32_t taken = velo_->poll(budget, Handler{*this, VELO_PATH_DEVICE});
        events += taken;
        if (taken == 0 || ++busy_polls_ == kBusyPollsMax) {
            busy_polls_ = 0;
            uint32_t moved = device_->progress(now_);
            moved += take_notifications();
            if ((taken | moved) != 0) device_event_ns_ = now_;
            events += moved;
            if (moved != 0 && taken == 0)  // what has just come need not wait for the host's next call
                events += velo_->poll(budget, Handler{*this, VELO_PATH_DEVICE});
            if (velo_->control_deferred()) velo_->resend_control();
        }
    }
    if (!pending_peers_.empty()) events += drive_pending();
    if (!helps_.empty()) events += drive_helps();
    if (!active_joints_.empty()) events += drive_joints();
    if (!scheduler_.idle() || !copying_peers_.empty() || !atomics_.empty()) events += drive_transfers();
    if (now_ >= next_due_ns_) [[unlikely]]
        do_what_is_due(now_);
    lock_.unlock();
    return static_cast<int>(events);
}

}  // namespace velo

#include "velo/engine_endings.h"
#include "velo/engine_joint.h"
#include "velo/engine_messages.h"
#include "velo/engine_peers.h"
#include "velo/engine_report.h"
#include "velo/engine_requests.h"
#include "velo/engine_rma.h"
#include "velo/engine_trace.h"
