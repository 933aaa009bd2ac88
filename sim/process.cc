#include "sim/process.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim/simulation.h"

namespace velo::sim {

using cluster::SimulationError;
using cluster::TraceEvent;

Process::Process(Simulation& simulation, cluster::ClusterDevice& device)
    : simulation_(&simulation),
      device_(&device),
      barrier_(device.process(), simulation.workload().config().processes) {
    enter_phase();
}
Process::~Process() = default;
Process::Process(Process&&) noexcept = default;

bool Process::finished() const {
    return phase_ == simulation_->workload().phases() && outstanding_ == 0;
}

velo_host_t Process::host() {
    velo_host_t host = {};
    host.context = this;
    host.accepts = [](void*, uint8_t) { return true; };
    host.receive = [](void* self, velo_path_t path, void* from, uint8_t tag, void* data, size_t bytes) {
        const auto rank = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from)) - 1;
        static_cast<Process*>(self)->take(path, rank, tag, static_cast<const std::byte*>(data), bytes);
    };
    host.unconnected = [](void* self, velo_path_t path, velo_peer_t* peer, uint64_t, uint8_t) {
        Process& process = *static_cast<Process*>(self);
        process.connected(path == VELO_PATH_DEVICE
                              ? process.device_->process_of(peer->device_addr())
                              : process.used_->engine.parts().core.on_node.rank_of(peer->node_index()));
    };
    host.sent = [](void* self, velo_send_t* send, int status) {
        if (status != VELO_OK)
            throw SimulationError(std::string("a message was refused: ") + to_string(static_cast<Status>(status)));
        static_cast<Process*>(self)->sent(*send);
    };
    host.rma_done = [](void* self, velo_rma_t* rma, int status) {
        static_cast<Process*>(self)->fetched(*static_cast<Fetch*>(rma), status);
    };
    return host;
}

Process::Used& Process::used() {
    if (!used_) {
        EngineOptions options = simulation_->engine_options(rank());
        options.host = host();
        used_ = std::make_unique<Used>(options, SimSystem{&simulation_->fabric(), device_});
    }
    return *used_;
}

Process::Peer& Process::peer(uint32_t rank) {
    const bool near = simulation_->on_one_node(this->rank(), rank);
    std::vector<Peer>& peers = near ? used().on_node : used().on_device;
    const uint32_t index = near ? rank % simulation_->config().processes_per_node : uint32_t{device_->meet(rank)};
    if (index >= peers.size()) peers.resize(index + 1);
    return peers[index];
}

/// Both ends of a connection meet, so the mailboxes of both must have been planned for it.
Process::Peer& Process::connected(uint32_t rank) {
    Peer& found = peer(rank);
    if (found.peer != nullptr) return found;
    Process& other = simulation_->process(rank);
    std::string error;
    const Status status = used().engine.connect(other.used().engine.address(), true,
                                                reinterpret_cast<void*>(uintptr_t{rank} + 1), found.peer, error);
    const uint32_t met = std::max(device_->peers(), other.device().peers());
    if (status != Status::kOk || met > simulation_->plan().peers) {
        throw SimulationError("process " + std::to_string(this->rank()) + " and " + std::to_string(rank) +
                              " have met " + std::to_string(met) + " peers, and mailboxes were planned for " +
                              std::to_string(simulation_->plan().peers) + ": raise --peers" +
                              (error.empty() ? "" : " (" + error + ")"));
    }
    return found;
}

/// A message of the program's has come.
void Process::take(velo_path_t path, uint32_t from, uint8_t tag, const std::byte* data, size_t bytes) {
    MessageHeader header;
    if (bytes >= sizeof header) std::memcpy(&header, data, sizeof header);
    Peer& sender = peer(from);
    const uint32_t behind = tag == kAnnounceTag ? sizeof(Announcement) - sizeof header : header.bytes;
    if (header.from != from || header.to != rank() || header.number != sender.received ||
        bytes != sizeof header + behind) {
        throw SimulationError("process " + std::to_string(rank()) + " expected message " +
                              std::to_string(sender.received) + " of process " + std::to_string(from) +
                              " and got " + std::to_string(bytes) + " bytes, headed as message " +
                              std::to_string(header.number) + " from " + std::to_string(header.from) + " to " +
                              std::to_string(header.to) + " of " + std::to_string(header.bytes) + " bytes");
    }
    ++sender.received;
    if (path == VELO_PATH_DEVICE) {
        const HostConfig& host = simulation_->config().host;
        owed_ns_ += host.message_ns;
        if (last_from_ != from) owed_ns_ += host.turn_ns;
        if (expected_ > received_) owed_ns_ += host.posted_ns * (expected_ - received_);
        last_from_ = from;
    }
    if (tag == kAnnounceTag) {
        Announcement announcement;
        std::memcpy(&announcement, data, sizeof announcement);
        fetch(from, announcement);
    } else if (tag == kEndTag) {
        --outstanding_;
    } else {
        received(tag);
    }
}

void Process::step() {
    const uint64_t stall_ns = simulation_->cluster().stall_ns(device_->clock_ns());
    if (stall_ns != 0) {
        simulation_->cluster().trace().add(TraceEvent::kStall, rank(), device_->clock_ns(), stall_ns);
        device_->spend(stall_ns);
        simulation_->cluster().schedule(*device_, device_->clock_ns());
        return;
    }
    bool busy = false;
    if (polls_left_ != 0) {
        --polls_left_;
        busy = poll() != 0;
        if (!busy) polls_left_ = 0;
    }
    if (!busy && (drive() || run_program())) {
        busy = true;
        polls_left_ = static_cast<uint8_t>(simulation_->config().host.polls_per_message);
    }
    if (!busy) busy = poll() != 0;
    if (busy) {
        simulation_->cluster().schedule(*device_, device_->clock_ns());
    } else {
        sleep();
    }
}

void Process::sleep() {
    device_->sleep();
    if (idle_until_ns_ > device_->clock_ns()) simulation_->cluster().schedule(*device_, idle_until_ns_);
    if (!used_) return;
    const uint64_t next_ns = used_->engine.parts().core.on_node.next_ns();
    if (next_ns != SimNode::kNever) simulation_->cluster().schedule(*device_, std::max(next_ns, device_->clock_ns()));
}

/// Packets are taken at once, and what their messages cost the host is paid afterwards: else packets sent by
/// others in the meantime would not be seen.
uint32_t Process::poll() {
    const uint64_t at_ns = device_->clock_ns();
    device_->spend(simulation_->cluster().config().cpu.poll_ns);
    uint32_t taken = 0;
    if (used_ || device_->peers() != 0) {
        taken = used().engine.poll(simulation_->config().host.packets_per_poll);
        if (packets()->counters().malformed != 0) {
            throw SimulationError("process " + std::to_string(rank()) + " received something malformed at " +
                                  std::to_string(device_->clock_ns()) + " ns: a violation of flow control");
        }
    }
    device_->work(std::exchange(owed_ns_, 0));
    simulation_->cluster().trace().add(TraceEvent::kPoll, rank(), at_ns, taken);
    return taken;
}

void Process::received(uint8_t tag) {
    if ((tag & kBarrierTag) != 0) {
        barrier_.arrived(tag & 31);
    } else {
        ++received_;
    }
}

/// Sends what waits, or a part of it, for one peer, and goes on with transfers.
bool Process::drive() {
    if (!used_ || simulation_->cluster().held(device_->at_node())) return false;
    return used_->engine.drive(1) != 0;
}

void Process::enter_phase() {
    posted_ = 0;
    sends_ = 0;
    barrier_after_ = false;
    if (phase_ == simulation_->workload().phases()) return;
    const Part part = simulation_->workload().part(rank(), phase_);
    idle_until_ns_ = device_->clock_ns() + simulation_->workload().idle_ns(rank(), phase_);
    sends_ = part.sends;
    expected_ += part.receives;
    // As before IMB's timed loop: what is timed does not begin while others are still behind.
    barrier_after_ = part.barrier || phase_ + 1 == simulation_->workload().warmup_phases();
}

void Process::end_phase() {
    if (sends_ != 0 && phase_ >= simulation_->workload().warmup_phases()) {
        bursts_ns_ += device_->clock_ns() - idle_until_ns_;
    }
    simulation_->phase_ended(*this, phase_);
    ++phase_;
    enter_phase();
}

/// Goes on with the program: true when that took time.
bool Process::run_program() {
    while (phase_ != simulation_->workload().phases()) {
        if (idle_until_ns_ > device_->clock_ns()) return false;
        if (barrier_.inside()) {
            if (run_barrier()) return true;
            if (barrier_.inside()) return false;
            end_phase();
            continue;
        }
        if (posted_ < sends_) return outstanding_ < simulation_->config().host.window && post_next();
        if (outstanding_ != 0 || received_ < expected_) return false;
        if (!barrier_after_) {
            end_phase();
            continue;
        }
        barrier_.begin();
    }
    return false;
}

/// Goes on with the barrier: true when that took time.
bool Process::run_barrier() {
    if (barrier_.step() != DisseminationBarrier::Step::kSend) return false;
    if (prepare(barrier_.to())) return true;
    post(barrier_.to(), 0, static_cast<uint8_t>(kBarrierTag | barrier_.round()));
    barrier_.sent();
    return true;
}

bool Process::post_next() {
    const Workload& workload = simulation_->workload();
    const uint32_t to = workload.destination(rank(), phase_, posted_);
    const uint32_t bytes = workload.bytes(rank(), phase_, posted_);
    if (prepare(to)) return true;
    ++outstanding_;
    post(to, bytes, is_long(bytes) ? kAnnounceTag : 0);
    ++posted_;
    return true;
}

/// Cost of a message before its packets go. A step of its own, so that others act in the meantime.
bool Process::prepare(uint32_t to) {
    if (simulation_->on_one_node(rank(), to)) return false;
    if (prepared_) {
        prepared_ = false;
        return false;
    }
    const HostConfig& host = simulation_->config().host;
    const uint64_t ns = host.message_ns + (to == last_to_ ? 0 : host.turn_ns);
    last_to_ = to;
    if (ns == 0) return false;
    device_->work(ns);
    prepared_ = true;
    return true;
}

void Process::post(uint32_t to, uint32_t bytes, uint8_t tag) {
    Peer& receiver = connected(to);
    Used& u = *used_;
    if (u.messages_free.empty()) u.messages_free.push_back(&u.messages_made.emplace_back());
    Message* const message = u.messages_free.back();
    u.messages_free.pop_back();
    static_cast<velo_send_t&>(*message) = {};
    message->head.header = {.from = rank(), .to = to, .number = receiver.sent++, .bytes = bytes};
    message->data[0] = &message->head;
    message->bytes[0] = sizeof message->head.header;
    if (tag == kAnnounceTag) {
        message->head.memory = registered();
        message->bytes[0] = sizeof message->head;
    } else {
        message->data[1] = simulation_->body();
        message->bytes[1] = bytes;
    }
    if (tag != kEndTag) ++(receiver.peer->path == VELO_PATH_DEVICE ? u.messages : u.messages_on_node);
    message->tag = tag;
    if (u.engine.send(*receiver.peer, *message)) sent(*message);
}

void Process::sent(velo_send_t& send) {
    if (send.tag == 0) --outstanding_;
    used_->messages_free.push_back(static_cast<Message*>(&send));
}

bool Process::is_long(uint32_t bytes) const {
    return bytes > simulation_->config().workload.bytes;
}

/// The memory that all long messages are sent from.
const velo_handle_t& Process::registered() {
    Used& u = used();
    if (u.memory.bytes == 0) {
        const Status status =
            u.engine.register_memory(simulation_->source(), simulation_->long_bytes_max(), kAccessRead, u.memory);
        if (status != Status::kOk) throw SimulationError(std::string("memory is not registered: ") + to_string(status));
    }
    return u.memory;
}

void Process::fetch(uint32_t from, const Announcement& announcement) {
    Used& u = used();
    if (u.fetches_free.empty()) u.fetches_free.push_back(&u.fetches_made.emplace_back());
    Fetch* const fetch = u.fetches_free.back();
    u.fetches_free.pop_back();
    static_cast<velo_rma_t&>(*fetch) = {};
    fetch->kind = VELO_RMA_GET;
    fetch->local = simulation_->sink();
    fetch->remote_address = announcement.memory.base;
    fetch->remote = announcement.memory;
    fetch->bytes = announcement.header.bytes;
    fetch->from = from;
    u.engine.post(*peer(from).peer, *fetch);
}

/// A long message is here, and its sender hears so.
void Process::fetched(Fetch& fetch, int status) {
    if (status != VELO_OK) {
        throw SimulationError(std::string("a long message was not fetched: ") +
                              to_string(static_cast<Status>(status)));
    }
    received(0);
    const uint32_t from = fetch.from;
    used_->fetches_free.push_back(&fetch);
    if (!simulation_->on_one_node(rank(), from)) owed_ns_ += simulation_->config().host.message_ns;
    post(from, 0, kEndTag);
}

std::string Process::text() const {
    std::string text =
        "process " + std::to_string(rank()) + " is in phase " + std::to_string(phase_) + " of " +
        std::to_string(simulation_->workload().phases()) + (barrier_.inside() ? " (barrier)" : "") + ", has sent " +
        std::to_string(posted_ - outstanding_) + " of " + std::to_string(sends_) + " messages and received " +
        std::to_string(received_) + " of " + std::to_string(expected_);
    if (!used_) return text;
    bool told = false;
    used_->engine.parts().queue.for_each_waiting([&](const velo_peer& peer) {
        if (std::exchange(told, true)) return;
        text += "; it waits to send to process " + std::to_string(peer.rank);
        if (peer.path == VELO_PATH_DEVICE) {
            text += ", with " + std::to_string(packets()->flow().credits(peer.index)) + " credits";
        }
    });
    return text;
}

}  // namespace velo::sim
