/// The engine: composition of its parts, order of progress, and the lock; over any device.
///
/// The host calls it through velo.h. Upcalls are made without the lock and with nothing half done, because a
/// host calls back in from them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <mutex>

#include "velo/device/device_pause.h"
#include "velo/engine/parts.h"

namespace velo {

template <class S>
class Engine {
  public:
    /// Throws base::SetupError.
    [[gnu::cold]] explicit Engine(const EngineOptions& options, const S& system = {}) : parts_(options, system) {
        if (parts_.core.device) device_pause_ = DevicePause(parts_.core.device->traits().dear_to_poll);
    }

    [[nodiscard]] EngineAddress address() const { return parts_.connector.address(); }
    [[gnu::cold]] Status connect(const EngineAddress& address, bool same_host, void* context,
                                 velo_peer*& peer, std::string& error) {
        const std::lock_guard guard(parts_.core.lock);
        return parts_.connector.connect(address, same_host, context, peer, error);
    }
    bool disconnect(velo_peer& peer) {
        const std::lock_guard guard(parts_.core.lock);
        return parts_.connector.disconnect(peer);
    }

    /// True: a message of at most a line has left, which needed nothing else, as most do. Inline as a whole, and before
    /// the lock, which it does not need: so it takes few registers. `put(to)` writes its `bytes`.
    template <class Put>
    [[nodiscard, gnu::always_inline]] bool try_send_line(velo_peer& peer, uint32_t bytes, uint8_t tag, Put&& put) {
        bool wake = false;
        if (peer.ready_ring == nullptr || !peer.ready_ring->try_send_ready_line(bytes, tag, wake, put)) return false;
        parts_.core.on_node.line_sent(peer.node_index(), wake);
        return true;
    }
    /// Sends a matched message of at most a line, in room that was granted, with nothing else to look at. True: it
    /// has left.
    [[nodiscard, gnu::always_inline]] bool try_send_line(MatchPeer& to, const match::Envelope& envelope,
                                                          const void* data, uint64_t bytes) {
        velo_peer* const peer = to.peer;
        if (bytes > match::Record::kBodyBytes || peer == nullptr || peer->ready_ring == nullptr ||
            !to.out.take_record())
            return false;
        using Header = match::EagerHeader;
        const auto put = [&](std::byte* place) __attribute__((always_inline)) {
            Header::of(envelope, 0).write(place);
            base::copy_small(place + sizeof(Header), data, bytes);
        };
        bool wake = false;
        const bool left = peer->ready_ring->try_send_ready_line(static_cast<uint32_t>(sizeof(Header) + bytes),
                                                         static_cast<uint8_t>(match::WireTag::kEager), wake, put);
        if (!left) [[unlikely]] {
            to.out.give_back_record();
            return false;
        }
        ++parts_.core.counters.match_tx_eager;
        parts_.core.on_node.line_sent(peer->node_index(), wake);
        return true;
    }
    /// `kCopies`: a copy may be queued.
    template <bool kCopies>
    [[gnu::always_inline]] Status try_send(velo_peer& peer, const MessageParts& parts, uint8_t tag);
    /// The lock stays held when the result is not nullptr, until commit() or cancel().
    std::byte* reserve(velo_peer& peer, uint32_t bytes);
    void commit(velo_peer& peer, uint8_t tag, uint32_t bytes) {
        parts_.core.on_node.commit(peer.node_index(), MessageClass::kHost, tag, bytes, true);
        parts_.core.lock.unlock();
    }
    void cancel() { parts_.core.lock.unlock(); }
    bool send(velo_peer& peer, velo_send_t& send) {
        const std::lock_guard guard(parts_.core.lock);
        return parts_.queue.send(peer, send);
    }
    /// Allocates what the host keeps of messages to a peer.
    [[nodiscard]] void* allocate(velo_peer& peer, size_t bytes) {
        const std::lock_guard guard(parts_.core.lock);
        return parts_.queue.allocate(peer, bytes);
    }
    void free(void* memory) {
        const std::lock_guard guard(parts_.core.lock);
        parts_.queue.free(memory);
    }

    Status register_memory(void* base, size_t bytes, uint32_t access, velo_handle_t& handle) {
        const std::lock_guard guard(parts_.core.lock);
        return parts_.registrations.add(base, bytes, access, handle);
    }
    void deregister(const velo_handle_t& handle) {
        const std::lock_guard guard(parts_.core.lock);
        parts_.registrations.remove(handle);
    }
    void post(velo_peer& peer, velo_rma_t& op) {
        const std::lock_guard guard(parts_.core.lock);
        parts_.transfers.post(peer, op);
        if (!parts_.core.events.empty() && !parts_.core.events.delivering()) parts_.core.events.deliver();
    }

    /// Sends a matched message of several lines or packets, under the lock. False: it cannot leave at once.
    [[nodiscard, gnu::noinline]] bool match_try_send(MatchPeer& to, const match::Envelope& envelope, const void* data,
                                                       uint64_t bytes) {
        const std::lock_guard guard(parts_.core.lock);
        return parts_.matching.sending.try_send(to, envelope, data, bytes);
    }
    /// True: a receive is posted, for which nothing else had to be looked at. Before the lock, as try_send_line().
    [[nodiscard, gnu::always_inline]] bool post_unheard(const match::Envelope& envelope, void* buffer,
                                                        uint64_t capacity, velo_match_receive_t& face) {
        return !parts_.core.lock.threads() && parts_.matching.receiving.post_unheard(envelope, buffer, capacity, face);
    }
    /// Calls action(matching), and delivers the events that come of it to the host.
    template <class Action>
    auto match(Action&& action) {
        const std::lock_guard guard(parts_.core.lock);
        const auto result = action(parts_.matching);
        if (!parts_.core.events.empty() && !parts_.core.events.delivering()) [[unlikely]]
            parts_.core.events.deliver();
        return result;
    }
    [[nodiscard]] const velo_match_host_t& match_host() const { return parts_.core.events.match_host(); }
    [[gnu::cold]] void open_matching(const velo_match_host_t& host) {
        const std::lock_guard guard(parts_.core.lock);
        parts_.core.events.match_with(host);
        parts_.matching.open();
        std::fill(accepted_.begin() + match::kFirstWireTag, accepted_.end(), true);
    }

    /// The part of the host that takes messages leaves: from now on `rest` is called, and what comes is dropped.
    [[gnu::cold]] void leave(const velo_host_t& rest) {
        const std::lock_guard guard(parts_.core.lock);
        parts_.core.host_state = HostState::kLeaving;
        parts_.core.options.host = rest;
        accepted_.fill(true);
    }
    [[gnu::cold]] void leave_matching() {
        match([](auto& matching) { return matching.leave(), true; });
    }
    /// The host that matches is notified of nothing any more.
    [[gnu::cold]] void close_matching() {
        match([](auto& matching) { return matching.close(), true; });
        const std::lock_guard guard(parts_.core.lock);
        parts_.core.events.match_with({.context = nullptr,
                                       .send_done = [](void*, velo_match_send_t*) {},
                                       .receive_done = [](void*, velo_match_receive_t*) {},
                                       .wait = [](void*, const volatile bool*) {}});
    }
    [[nodiscard]] bool matching_owes() const {
        const std::lock_guard guard(parts_.core.lock);
        return parts_.matching.owes();
    }

    void announce_ending(base::Ending ending) { parts_.failures.announce_ending(ending); }
    [[nodiscard]] bool claim_report(const velo_peer& peer) {
        const std::lock_guard guard(parts_.core.lock);
        return parts_.failures.claim_report(peer);
    }

    int progress();
    /// The two halves of progress(), for a host that gives each a time of its own: the simulator. Both return how much
    /// happened. `budget`: messages of one ring, and of the mailbox; `sends_max`: messages, or parts of them, that
    /// waited.
    [[gnu::always_inline]] uint32_t poll(uint32_t budget);
    [[gnu::always_inline]] uint32_t drive(uint32_t sends_max);
    /// For reports and tests.
    [[nodiscard]] const Parts<S>& parts() const { return parts_; }
    [[nodiscard]] bool busy() const {
        const std::lock_guard guard(parts_.core.lock);
        return !parts_.queue.empty() || !parts_.transfers.idle() || parts_.reserving.waits() ||
               parts_.pending.taken() != 0 ||
               !parts_.core.events.empty() || parts_.coop_owner.assisting() ||
               (parts_.core.packets && parts_.core.packets->control_deferred()) ||
               parts_.core.on_node.has_unattached() || parts_.matching.busy();
    }
    void counters(velo_counters_t& out) const;
    /// No message waits for credits any more: this process is about to end.
    [[gnu::cold]] void end_stalls() {
        const std::lock_guard guard(parts_.core.lock);
        if (parts_.core.packets && parts_.core.packets->stalls().any_waits())
            parts_.core.packets->all_stalls_ended();
    }
    [[gnu::cold]] void finish_trace(const velo_counters_t& counters) {
        const std::lock_guard guard(parts_.core.lock);
        parts_.tracer.finish(counters);
    }
    [[nodiscard]] const EngineOptions& options() const { return parts_.core.options; }
    [[nodiscard]] size_t device_send_bytes_max() const {
        return parts_.core.device ? size_t{parts_.core.device->limits().send_packets_max} * kPayloadBytes : 0;
    }
    [[nodiscard]] const char* device_name() const {
        return parts_.core.device ? parts_.core.device->name() : "no device";
    }

  private:
    static constexpr uint32_t kMessagesPerPoll = 16;
    /// Polls in a row that take packets before the rest of the device gets its turn.
    static constexpr uint32_t kBusyPollsMax = 8;

    template <velo_path_t kPath>
    struct Handler;

    [[gnu::always_inline]] uint32_t poll_device(uint32_t budget);
    void sample_clock() {
        const auto passed = parts_.core.clock.sample();
        device_pause_.measured(passed.polls, passed.ns,
                               parts_.core.clock.now() - parts_.core.device_event_ns);
    }
    void run_timers(uint64_t now);
    [[gnu::noinline, gnu::cold]] void report_unconnected(velo_path_t path, velo_peer& peer, uint8_t tag);

    Parts<S> parts_;
    DevicePause device_pause_;
    uint32_t busy_polls_ = 0;  ///< in a row, that took packets and left the rest of the device alone
    uint64_t next_timer_ns_ = 0;
    std::array<bool, 256> accepted_{};  ///< tags that the host takes, and so will go on taking
};

template <class S>
void Engine<S>::report_unconnected(velo_path_t path, velo_peer& peer, uint8_t tag) {
    auto& core = parts_.core;
    const velo_host_t& host = core.options.host;
    if (host.unconnected == nullptr) return;
    const uint64_t name = path == VELO_PATH_ON_NODE ? core.on_node.name(peer.node_index())
                                                    : core.device->peer(peer.device_addr()).host_name;
    base::Unlocked unlocked(core.lock);
    host.unconnected(host.context, path, &peer, name, tag);
}

/// Hands messages up, with the lock given up around the host's part.
template <class S>
template <velo_path_t kPath>
struct Engine<S>::Handler {
    Engine& engine;

    [[nodiscard]] bool accepts(MessageClass message_class, uint8_t tag) const {
        if (message_class != MessageClass::kHost || engine.accepted_[tag]) return true;
        const velo_host_t& host = engine.parts_.core.options.host;
        return engine.accepted_[tag] = host.accepts(host.context, tag);
    }
    [[nodiscard]] bool accepts(const shm::Message& of) const { return accepts(of.message_class, of.tag); }
    [[gnu::always_inline]] void deliver(uint32_t index, MessageClass message_class, uint8_t tag,
                                        std::byte* data, uint32_t bytes) {
        velo_peer& peer = engine.parts_.peers.of(kPath, index);
        if (message_class == MessageClass::kHost && tag >= match::kFirstWireTag &&
            engine.parts_.matching.receive(peer, tag, data, bytes))
            return;
        if (message_class == MessageClass::kHost) {
            if (!peer.context) [[unlikely]]
                engine.report_unconnected(kPath, peer, tag);
            base::Unlocked unlocked(engine.parts_.core.lock);
            const velo_host_t& host = engine.parts_.core.options.host;
            host.receive(host.context, kPath, peer.context, tag, data, bytes);
        } else if (message_class == MessageClass::kEngine) {
            engine.parts_.serve.receive(peer, data, bytes);
        } else {
            ++engine.parts_.core.counters.engine_malformed;
        }
    }
    [[gnu::always_inline]] void deliver(shm::PeerIndex index, const shm::Message& message) {
        deliver(index, message.message_class, message.tag, message.data, message.bytes);
    }
};

template <class S>
template <bool kCopies>
inline Status Engine<S>::try_send(velo_peer& peer, const MessageParts& parts, uint8_t tag) {
    const std::lock_guard guard(parts_.core.lock);
    if (parts_.queue.try_send_lines(peer, parts, tag)) return Status::kOk;
    if constexpr (kCopies) return parts_.queue.try_send_or_copy(peer, parts, tag);
    return parts_.queue.try_send_whole(peer, parts, tag);
}

template <class S>
std::byte* Engine<S>::reserve(velo_peer& peer, uint32_t bytes) {
    Core<S>& core = parts_.core;
    core.lock.lock();
    Status status = Status::kOk;
    if (peer.path == VELO_PATH_ON_NODE && peer.sending.pending.empty() && !peer.reclaimed) {
        if (std::byte* room = core.on_node.reserve_whole(peer.node_index(), bytes, status)) return room;
    }
    core.lock.unlock();
    return nullptr;
}

template <class S>
int Engine<S>::progress() {
    Core<S>& core = parts_.core;
    if (!core.lock.try_lock()) return 0;
    uint32_t events = poll(kMessagesPerPoll);
    events += drive(UINT32_MAX);
    core.lock.unlock();
    return static_cast<int>(events);
}

template <class S>
inline uint32_t Engine<S>::poll(uint32_t budget) {
    Core<S>& core = parts_.core;
    uint32_t events = core.on_node.poll(budget, Handler<VELO_PATH_ON_NODE>{*this});
    if (core.clock.begin_poll()) sample_clock();
    if (core.device && device_pause_.due(core.clock.polls())) events += poll_device(budget);
    return events;
}

template <class S>
inline uint32_t Engine<S>::drive(uint32_t sends_max) {
    Core<S>& core = parts_.core;
    uint32_t events = 0;
    if (!parts_.queue.empty()) events += parts_.queue.drive(sends_max);
    if (parts_.coop_owner.assisting()) events += parts_.coop_owner.drive();
    if (parts_.coop_reader.fetching()) events += parts_.coop_reader.drive();
    if (!parts_.transfers.idle() || !parts_.atomics.empty() || parts_.reserving.waits())
        events += parts_.transfers.drive();
    if (parts_.matching.due()) [[unlikely]]
        events += parts_.matching.drive();
    if (core.clock.now() >= next_timer_ns_) [[unlikely]]
        run_timers(core.clock.now());
    if (!core.events.empty()) core.events.deliver();
    return events;
}

/// A waiting receiver gets its message first; what else the device has to do waits for a few polls.
template <class S>
inline uint32_t Engine<S>::poll_device(uint32_t budget) {
    Core<S>& core = parts_.core;
    const uint32_t taken = core.packets->poll(budget, Handler<VELO_PATH_DEVICE>{*this});
    if (taken != 0 && ++busy_polls_ != kBusyPollsMax) return taken;
    busy_polls_ = 0;
    uint32_t events = taken;
    uint32_t moved = core.device->progress(core.clock.now());
    moved += parts_.on_device.take_notifications();
    if ((taken | moved) != 0) core.device_event_ns = core.clock.now();
    events += moved;
    if (moved != 0 && taken == 0)  // what has just come need not wait for the host's next call
        events += core.packets->poll(budget, Handler<VELO_PATH_DEVICE>{*this});
    if (core.packets->control_deferred()) core.packets->resend_control();
    return events;
}

template <class S>
void Engine<S>::run_timers(uint64_t now) {
    if (now >= parts_.tracer.next_sample_ns()) parts_.tracer.sample(now);
    if (now >= parts_.failures.next_poll_ns()) parts_.failures.poll_liveness(now);
    next_timer_ns_ = std::min(parts_.failures.next_poll_ns(), parts_.tracer.next_sample_ns());
}

template <class S>
void Engine<S>::counters(velo_counters_t& out) const {
    const Core<S>& core = parts_.core;
    const std::lock_guard guard(core.lock);
    out = core.counters;
    const shm::OnNodeCounters& on_node = core.on_node.counters();
#define VELO_ON_NODE_COUNTER(name, field, text) out.name = on_node.field;
#include "velo/counters.def"
    if (const auto& receiver = parts_.matching.receiving.receiver()) {
        out.match_records_hwm = receiver->record_budget().used_max();
        out.match_data_hwm = receiver->data_budget().used_max();
    }
    const rma::ChunkScheduler& scheduler = parts_.transfers.scheduler();
    out.rma_window_bytes = scheduler.bytes_max();
    out.rma_chunks_hwm = scheduler.chunks_hwm();
    out.rma_bytes_hwm = scheduler.bytes_hwm();
    if (!core.device) return;
    const rma::Rails& rails = parts_.rails.rails();
    out.rails_out = static_cast<uint64_t>(std::popcount(rails.out()));
    if (const rma::RailReservations* const machine = parts_.reserving.machine(); machine != nullptr) {
        const rma::RailReservations::Counters& reserved = machine->counters();
        out.rail_requests = reserved.requests;
        out.rail_grants = reserved.grants;
        out.rail_refusals = reserved.refusals;
        out.rail_losses = reserved.lost;
        out.rail_unreserved = reserved.unreserved;
        out.rail_served = reserved.served;
    }
#define VELO_RAIL(rail)                                      \
    out.rail_operations_##rail = rails.counters(rail).chunks; \
    out.rail_bytes_##rail = rails.counters(rail).bytes;      \
    out.rail_failed_##rail = rails.counters(rail).failed;
    VELO_RAIL(0) VELO_RAIL(1) VELO_RAIL(2) VELO_RAIL(3) VELO_RAIL(4) VELO_RAIL(5) VELO_RAIL(6) VELO_RAIL(7)
#undef VELO_RAIL
    const DeviceCounters device = core.device->counters();
    const PacketChannelCounters& packets = core.packets->counters();
#define VELO_DEVICE_COUNTER(name, field, text) out.name = device.field;
#define VELO_PACKETS_COUNTER(name, field, text) out.name = packets.field;
#include "velo/counters.def"
    out.atu_faults += device.atu_faults;
    out.velo_rx_malformed += device.packets_unknown_source;
    out.idle_peer_bytes = Core<S>::Packets::idle_peer_bytes(core.options.plan);
    out.peer_bytes = Core<S>::device_peer_bytes(core.options.plan) + core.device->peer_bytes();
    out.slot_owners = core.packets->flow().slot_owners();
    if (const auto* dynamic = core.packets->flow().dynamic(); dynamic != nullptr) {
        out.steals = dynamic->counters.steals;
        out.list_moves = dynamic->counters.list_moves;
    }
    out.stall_count = core.packets->stalls().count();
    out.stall_ns = core.packets->stalls().ns(core.packets->stalls().any_waits() ? core.clock.read() : 0);
    const auto sums = parts_.tracer.sums();
    out.credits_held = sums.held;
    out.credits_granted = sums.granted;
    out.credits_available = sums.available;
}

}  // namespace velo
