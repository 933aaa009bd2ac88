/// The host of one engine in the soak: it sends, fetches, writes and adds at random, and knows what must come of it.
///
/// Messages are numbered a pair, and their bytes follow from sender, receiver and number. Each process has a window:
/// a word that others add to, bytes that others read, and a part for each other process that this one alone writes.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/sim_engine.h"
#include "tests/exhaustive/explorer.h"
#include "velo/options/params_default.h"

namespace velo::soak {

using exhaustive::Random;

/// Drawn from a seed.
struct WorldConfig {
    uint64_t seed = 1;
    uint32_t processes = 3;
    uint32_t processes_per_node = 1;
    flowctl::Plan plan;
    bool seldom = false;  ///< something is begun in few steps, and processes poll meanwhile
    bool whole_steps = true;   ///< a step is all of progress(), as in a job; else a half of it
    uint32_t transfer_max = 0;  ///< bytes of a get or put
    shm::RingGeometry ring;     ///< of a pair on a node
    uint32_t ring_refused_permille = 0;  ///< of requests for a ring's memory, and of mappings, while there are faults
    uint64_t issue_until_ns = 0;
    uint32_t dying = UINT32_MAX;  ///< the process that dies
    uint64_t dies_ns = 0;
    cluster::FaultConfig faults;
};

inline constexpr uint32_t kMessageBytesMax = 4096;
inline constexpr uint32_t kReadBytes = 512u << 10;
inline constexpr uint32_t kWrittenBytes = 96u << 10;  ///< by each other process

/// Owner: the world. Thread: one.
class SoakHost {
  public:
    SoakHost(const WorldConfig& config, sim::NodeFabric& fabric, cluster::ClusterDevice& device,
             std::vector<std::unique_ptr<SoakHost>>& hosts)
        : config_(config),
          device_(device),
          hosts_(hosts),
          random_(config.seed * 0x9e3779b97f4a7c15u + device.process()),
          window_(sizeof(uint64_t) + kReadBytes + size_t{config.processes} * kWrittenBytes),
          peers_(config.processes) {
        EngineOptions options;
        options.identity.name = options.identity.rank = device.process();
        options.identity.job = 1;
        options.identity.job_size = config.processes;
        options.params = params_default();
        options.params.device_message_bytes_max = kMessageBytesMax;
        options.window.chunks = 1 + random_.below(8);
        options.window.chunk_bytes = 4096u << random_.below(5);
        options.plan = config.plan;
        options.node = device.process() / config.processes_per_node;
        options.device_used = true;
        options.node_copies.single = config.seed % 4 != 0;
        options.host = host();
        engine_ = std::make_unique<sim::SimEngine>(options, sim::SimSystem{&fabric, &device});
        for (uint32_t i = 0; i < kReadBytes; ++i) window_[sizeof(uint64_t) + i] = constant(device.process(), i);
        for (uint32_t other = 0; other < config.processes; ++other) peers_[other].written.resize(kWrittenBytes);
    }

    [[nodiscard]] uint32_t rank() const { return device_.process(); }
    [[nodiscard]] sim::SimEngine& engine() { return *engine_; }
    [[nodiscard]] cluster::ClusterDevice& device() { return device_; }
    [[nodiscard]] bool dead() const { return device_.ended(); }
    [[nodiscard]] uint64_t operations() const { return operations_; }
    /// All that was begun has ended.
    [[nodiscard]] bool finished() const {
        return under_way_ == 0 && device_.clock_ns() >= config_.issue_until_ns && !engine_->busy();
    }

    /// Memory that others may access; before any of them looks for it.
    void open_window() {
        ASSERT_EQ(engine_->register_memory(window_.data(), window_.size(), kAccessAny, handle_), Status::kOk);
    }

    /// One step: perhaps something new, and progress. Returns how much happened.
    uint32_t step() {
        uint32_t events = 0;
        if (device_.clock_ns() < config_.issue_until_ns && under_way_ < kUnderWayMax &&
            (config_.seldom ? random_.below(3000) == 0 : random_.below(3) != 0)) {
            begin_something();
            ++events;
        }
        device_.spend(100);
        if (config_.whole_steps) return events + static_cast<uint32_t>(engine_->progress());
        return events + (random_.below(2) == 0 ? engine_->poll(16) : engine_->drive(1 + random_.below(3)));
    }

    /// To be called when all hosts have finished.
    void check_end() {
        SCOPED_TRACE("process " + std::to_string(rank()));
        const uint64_t losses = engine_->parts().core.on_node.losses();
        EXPECT_EQ(job_failures_ != 0, uncertain_ != 0 || losses != 0)
            << "the host hears of a failure that cannot be repaired";
        EXPECT_LE(losses, config_.dying != UINT32_MAX ? 1u : 0u) << "only the ring of a process that died is lost";
        for (uint32_t other = 0; other < hosts_.size(); ++other) {
            if (other == rank() || hosts_[other]->dead()) continue;
            SoakHost& theirs = *hosts_[other];
            EXPECT_EQ(theirs.peers_[rank()].received, peers_[other].sent) << "messages to process " << other;
            EXPECT_EQ(std::memcmp(theirs.written_by(rank()), peers_[other].written.data(), kWrittenBytes), 0)
                << "bytes written at process " << other;
        }
        uint64_t sure = 0;
        uint64_t perhaps = 0;
        for (const auto& host : hosts_) {
            sure += host->peers_[rank()].added;
            perhaps += host->peers_[rank()].to_be_added;
        }
        uint64_t sum = 0;
        std::memcpy(&sum, window_.data(), sizeof sum);
        EXPECT_GE(sum, sure) << "additions at process " << rank();
        EXPECT_LE(sum, perhaps) << "additions at process " << rank();
    }
    [[nodiscard]] std::string text() const {
        return "process " + std::to_string(rank()) + (dead() ? ", dead" : "") + ": " + std::to_string(under_way_) +
               " under way, " + std::to_string(messages_under_way_) + " of them messages, at " +
               std::to_string(device_.clock_ns()) + " ns" + (engine_->busy() ? ", engine busy" : "") +
               (device_.asleep() ? ", asleep" : "");
    }

  private:
    static constexpr uint32_t kUnderWayMax = 24;
    struct Header {
        uint32_t from = 0;
        uint32_t number = 0;
    };
    struct Message : velo_send_t {
        Header header;
        uint32_t to = 0;
        std::vector<std::byte> body;
    };
    struct Operation : velo_rma_t {
        uint32_t to = 0;
        uint32_t offset = 0;
        uint64_t old = 0;
        std::vector<std::byte> memory;
    };
    struct Peer {
        velo_peer* peer = nullptr;
        uint32_t sent = 0;
        uint32_t received = 0;
        uint64_t added = 0;        ///< there
        uint64_t to_be_added = 0;  ///< by operations that failed, too, and by those of a process that died
        std::vector<std::byte> written;
        bool writing = false;  ///< puts may overtake each other, so there is one at a time
        bool ended = false;    ///< and we were notified
    };

    static std::byte constant(uint32_t rank, uint32_t at) {
        return static_cast<std::byte>(rank * 37 + at * 11 + at / 251);
    }
    static std::byte letter(uint32_t from, uint32_t to, uint32_t number, uint32_t at) {
        return static_cast<std::byte>(from * 7 + to * 13 + number * 29 + at * 3 + at / 253);
    }
    std::byte* written_by(uint32_t other) {
        return window_.data() + sizeof(uint64_t) + kReadBytes + size_t{other} * kWrittenBytes;
    }

    velo_host_t host() {
        velo_host_t host = {};
        host.context = this;
        host.accepts = [](void*, uint8_t) { return true; };
        host.receive = [](void* self, velo_path_t, void* from, uint8_t tag, void* data, size_t bytes) {
            const auto rank = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from)) - 1;
            static_cast<SoakHost*>(self)->received(rank, tag, static_cast<const std::byte*>(data), bytes);
        };
        host.unconnected = [](void* self, velo_path_t path, velo_peer_t* peer, uint64_t, uint8_t) {
            SoakHost& me = *static_cast<SoakHost*>(self);
            me.connect(path == VELO_PATH_DEVICE ? me.device_.process_of(peer->device_addr())
                                                : me.engine_->parts().core.on_node.rank_of(peer->node_index()));
        };
        host.sent = [](void* self, velo_send_t* send, int status) {
            static_cast<SoakHost*>(self)->sent(static_cast<Message*>(send), static_cast<Status>(status));
        };
        host.rma_done = [](void* self, velo_rma_t* rma, int status) {
            static_cast<SoakHost*>(self)->done(static_cast<Operation*>(rma), static_cast<Status>(status));
        };
        host.peer_ended = [](void* self, const velo_end_t* end) {
            Peer& peer = static_cast<SoakHost*>(self)->peers_[end->rank];
            EXPECT_FALSE(peer.ended) << "told twice of the end of process " << end->rank;
            peer.ended = true;
        };
        host.job_failed = [](void* self, const velo_failure_t*) { ++static_cast<SoakHost*>(self)->job_failures_; };
        return host;
    }

    Peer& connect(uint32_t rank) {
        Peer& found = peers_[rank];
        if (found.peer != nullptr) return found;
        std::string error;
        const Status status = engine_->connect(hosts_[rank]->engine_->address(), true,
                                               reinterpret_cast<void*>(uintptr_t{rank} + 1), found.peer, error);
        EXPECT_TRUE(status == Status::kOk || hosts_[rank]->dead()) << error;
        return found;
    }

    void begin_something() {
        uint32_t to = random_.below(config_.processes - 1);
        to += to >= rank();
        if (connect(to).peer == nullptr) return;
        const uint32_t kind = random_.below(8);
        if (kind < 4) return send(to);
        if (kind < 6) return get(to);
        return kind == 6 ? put(to) : add(to);
    }

    void send(uint32_t to) {
        Peer& peer = connect(to);
        auto owned = std::make_unique<Message>();
        Message* const message = owned.get();
        messages_.emplace(message, std::move(owned));
        message->to = to;
        message->header = {.from = rank(), .number = peer.sent++};
        const uint32_t most = random_.below(3) == 0 ? kMessageBytesMax : 120;
        message->body.resize(random_.below(most - sizeof(Header)));
        for (uint32_t at = 0; at < message->body.size(); ++at)
            message->body[at] = letter(rank(), to, message->header.number, at);
        message->data[0] = &message->header;
        message->bytes[0] = sizeof message->header;
        message->data[1] = message->body.data();
        message->bytes[1] = static_cast<uint32_t>(message->body.size());
        message->tag = static_cast<uint8_t>(message->header.number);
        ++under_way_;
        ++messages_under_way_;
        if (engine_->send(*peer.peer, *message)) sent(message, Status::kOk);
    }
    void sent(Message* message, Status status) {
        EXPECT_TRUE(status == Status::kOk || hosts_[message->to]->dead()) << to_string(status);
        --under_way_;
        --messages_under_way_;
        ++operations_;
        messages_.erase(message);
    }
    void received(uint32_t from, uint8_t tag, const std::byte* data, size_t bytes) {
        Header header;
        ASSERT_GE(bytes, sizeof header);
        std::memcpy(&header, data, sizeof header);
        // One that died before we had connected stays unknown.
        if (from == UINT32_MAX && hosts_.at(header.from)->dead()) from = header.from;
        ASSERT_EQ(header.from, from);
        ASSERT_EQ(header.number, peers_[from].received++) << "from process " << from;
        ASSERT_EQ(tag, static_cast<uint8_t>(header.number));
        for (uint32_t at = 0; at < bytes - sizeof header; ++at) {
            ASSERT_EQ(data[sizeof header + at], letter(from, rank(), header.number, at)) << "byte " << at;
        }
    }

    Operation& operation(velo_rma_kind_t kind, uint32_t to, uint32_t at, uint64_t bytes) {
        auto owned = std::make_unique<Operation>();
        Operation* const operation = owned.get();
        under_way_operations_.emplace(operation, std::move(owned));
        operation->kind = kind;
        operation->to = to;
        operation->offset = at;
        operation->bytes = bytes;
        operation->remote = hosts_[to]->handle_;
        operation->remote_address = operation->remote.base + at;
        ++under_way_;
        return *operation;
    }
    [[nodiscard]] uint32_t length(uint32_t most) {
        most = std::min(most, config_.transfer_max);
        return 1 + random_.below(random_.below(2) == 0 ? most : std::min(most, 4096u));
    }
    void get(uint32_t to) {
        Peer& peer = connect(to);
        const uint32_t bytes = length(kReadBytes);
        const uint32_t at = random_.below(kReadBytes - bytes + 1);
        Operation& get = operation(VELO_RMA_GET, to, static_cast<uint32_t>(sizeof(uint64_t)) + at, bytes);
        get.memory.resize(bytes);
        get.local = get.memory.data();
        engine_->post(*peer.peer, get);
    }
    void put(uint32_t to) {
        Peer& peer = connect(to);
        if (peer.writing) return;
        peer.writing = true;
        const uint32_t bytes = length(kWrittenBytes);
        const uint32_t at = random_.below(kWrittenBytes - bytes + 1);
        const uint32_t mine = static_cast<uint32_t>(sizeof(uint64_t)) + kReadBytes + rank() * kWrittenBytes;
        Operation& put = operation(VELO_RMA_PUT, to, mine + at, bytes);
        put.memory.resize(bytes);
        for (uint32_t i = 0; i < bytes; ++i) {
            put.memory[i] = peer.written[at + i] = static_cast<std::byte>(random_.below(256));
        }
        put.local = put.memory.data();
        engine_->post(*peer.peer, put);
    }
    void add(uint32_t to) {
        Peer& peer = connect(to);
        Operation& add = operation(VELO_RMA_ATOMIC, to, 0, 0);
        add.atomic = VELO_ATOMIC_ADD;
        add.width = 8;
        add.operand = 1 + random_.below(100);
        peer.to_be_added += add.operand;
        add.local = &add.old;
        engine_->post(*peer.peer, add);
    }
    void done(Operation* operation, Status status) {
        Peer& peer = peers_[operation->to];
        const bool gone = hosts_[operation->to]->dead();
        if (operation->kind == VELO_RMA_PUT) peer.writing = false;
        if (operation->kind == VELO_RMA_ATOMIC) {
            if (status == Status::kOk) peer.added += operation->operand;
            if (status == Status::kFailed) ++uncertain_;
            EXPECT_TRUE(status == Status::kOk || status == Status::kFailed || gone) << to_string(status);
        } else {
            EXPECT_TRUE(status == Status::kOk || gone) << to_string(status);
        }
        if (operation->kind == VELO_RMA_GET && status == Status::kOk) {
            for (uint32_t at = 0; at < operation->bytes; ++at) {
                const auto offset = static_cast<uint32_t>(operation->offset - sizeof(uint64_t)) + at;
                if (operation->memory[at] == constant(operation->to, offset)) continue;
                ADD_FAILURE() << "process " << rank() << " read byte " << offset << " of process " << operation->to;
                break;
            }
        }
        --under_way_;
        ++operations_;
        under_way_operations_.erase(operation);
    }

    const WorldConfig& config_;
    cluster::ClusterDevice& device_;
    std::vector<std::unique_ptr<SoakHost>>& hosts_;
    Random random_;
    std::vector<std::byte> window_;
    velo_handle_t handle_{};
    std::vector<Peer> peers_;
    std::unordered_map<Message*, std::unique_ptr<Message>> messages_;  ///< under way
    std::unordered_map<Operation*, std::unique_ptr<Operation>> under_way_operations_;
    std::unique_ptr<sim::SimEngine> engine_;
    uint32_t under_way_ = 0;
    uint32_t messages_under_way_ = 0;
    uint64_t operations_ = 0;
    uint64_t job_failures_ = 0;
    uint64_t uncertain_ = 0;
};

}  // namespace velo::soak
