#include "sim/process.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "sim/simulation.h"

namespace velo::sim {

using cluster::SimulationError;
using cluster::TraceEvent;

/// VeloPath::poll hands messages to it.
struct Process::Handler {
    Process& process;

    [[nodiscard]] bool accepts(MessageClass, uint8_t) const { return true; }
    void deliver(DeviceAddr from, MessageClass, uint8_t tag, const std::byte* data, uint32_t bytes) const {
        Process& p = process;
        MessageHeader header;
        std::memcpy(&header, data, sizeof header);
        const uint32_t rank = p.device_->process_of(from);
        Peer& peer = p.peer(from);
        if (header.from != rank || header.to != p.rank() || header.number != peer.received ||
            bytes != sizeof header + (tag == kRendezvousTag ? 0 : header.bytes)) {
            throw SimulationError("process " + std::to_string(p.rank()) + " expected message " +
                                  std::to_string(peer.received) + " of process " + std::to_string(rank) +
                                  " and got " + std::to_string(bytes) + " bytes, headed as message " +
                                  std::to_string(header.number) + " from " + std::to_string(header.from) +
                                  " to " + std::to_string(header.to) + " of " + std::to_string(header.bytes) +
                                  " bytes");
        }
        ++peer.received;
        const HostConfig& host = p.simulation_->config().host;
        p.owed_ns_ += host.message_ns;
        if (p.last_from_ != rank) p.owed_ns_ += host.turn_ns;
        if (p.expected_ > p.received_) p.owed_ns_ += host.posted_ns * (p.expected_ - p.received_);
        p.last_from_ = rank;
        if (tag == kRendezvousTag) {
            p.fetch(rank, header.bytes);
        } else {
            p.received(tag);
        }
    }
};

Process::Process(Simulation& simulation, cluster::ClusterDevice& device)
    : simulation_(&simulation), device_(&device) {
    enter_phase();
}
Process::~Process() = default;
Process::Process(Process&&) noexcept = default;

bool Process::finished() const {
    return phase_ == simulation_->workload().phases() && outstanding_ == 0;
}

const VeloPath<cluster::ClusterDevice>* Process::path() const {
    return used_ ? used_->path.get() : nullptr;
}

Process::Used& Process::used() {
    if (!used_) used_ = std::make_unique<Used>();
    return *used_;
}

VeloPath<cluster::ClusterDevice>& Process::opened_path() {
    Used& u = used();
    if (!u.path) {
        u.path = std::make_unique<VeloPath<cluster::ClusterDevice>>(*device_, simulation_->plan(),
                                                                    simulation_->message_bytes_max());
    }
    return *u.path;
}

Process::Peer& Process::peer(DeviceAddr address) {
    std::vector<Peer>& peers = used().peers;
    if (address >= peers.size()) peers.resize(address + 1);
    return peers[address];
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
    if (!busy && (drive_waiting() || run_program())) {
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
    if (used_ && !used_->timed.empty()) {
        simulation_->cluster().schedule(*device_, std::max(used_->timed.front().at_ns, device_->clock_ns()));
    }
}

/// Packets are taken at once, and what their messages cost the host is paid afterwards: else packets sent by
/// others in the meantime would not be seen.
uint32_t Process::poll() {
    const uint64_t at_ns = device_->clock_ns();
    device_->spend(simulation_->cluster().config().cpu.poll_ns);
    uint32_t taken = take_timed();
    if (device_->peers() != 0) {
        VeloPath<cluster::ClusterDevice>& path = opened_path();
        taken += path.poll(simulation_->config().host.packets_per_poll, Handler{*this});
        if (path.control_deferred()) path.resend_control();
        if (path.counters().malformed != 0) {
            throw SimulationError("process " + std::to_string(rank()) + " received something malformed at " +
                                  std::to_string(device_->clock_ns()) + " ns: a violation of flow control");
        }
    }
    device_->work(std::exchange(owed_ns_, 0));
    simulation_->cluster().trace().add(TraceEvent::kPoll, rank(), at_ns, taken);
    return taken;
}

uint32_t Process::take_timed() {
    if (!used_) return 0;
    uint32_t taken = 0;
    std::deque<Timed>& queue = used_->timed;
    while (!queue.empty() && queue.front().at_ns <= device_->clock_ns()) {
        const uint8_t tag = queue.front().tag;
        queue.pop_front();
        owed_ns_ += simulation_->config().host.on_node_ns;
        if (tag == kSentTag) {
            --outstanding_;
        } else {
            received(tag);
        }
        ++taken;
    }
    return taken;
}

void Process::received(uint8_t tag) {
    if ((tag & kBarrierTag) != 0) {
        ++used().barrier_arrived[tag & 31];
    } else {
        ++received_;
    }
}

/// Sends what waits, or a part of it, for one peer. Peers take turns.
bool Process::drive_waiting() {
    if (!used_ || used_->waiting.empty() || simulation_->cluster().held(device_->at_node())) return false;
    Used& u = *used_;
    const uint64_t news = u.path->counters().credits_received + u.path->counters().opens_received +
                          u.path->counters().closes_received + u.path->counters().closed_received +
                          device_->contact_wakes();
    if (simulation_->has_credits() && news == u.swept_news) return false;
    for (size_t tried = 0; tried < u.waiting.size(); ++tried) {
        if (u.turn >= u.waiting.size()) u.turn = 0;
        const DeviceAddr to = u.waiting[u.turn];
        Peer& peer = u.peers[to];
        velo_send_t* const send = peer.queue.front();
        const uint32_t before = send->done;
        const Status status = u.path->send(to, *send);
        if (status != Status::kOk) {
            ++u.turn;
            if (send->done != before) return true;
            continue;
        }
        peer.queue.pop_front();
        if (send->tag == 0) --outstanding_;
        u.free.push_back(static_cast<Message*>(send));
        if (peer.queue.empty()) {
            u.waiting[u.turn] = u.waiting.back();
            u.waiting.pop_back();
        } else {
            ++u.turn;
        }
        return true;
    }
    u.swept_news = news;
    return false;
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
        if (in_barrier_) {
            if (run_barrier()) return true;
            if (in_barrier_) return false;
            end_phase();
            continue;
        }
        if (posted_ < sends_) return outstanding_ < simulation_->config().host.window && post_next();
        if (outstanding_ != 0 || received_ < expected_) return false;
        if (!barrier_after_) {
            end_phase();
            continue;
        }
        in_barrier_ = true;
        ++barriers_;
        round_ = 0;
        round_sent_ = false;
    }
    return false;
}

/// Dissemination: in round k to rank + 2^k and from rank - 2^k, so that after the last round every process knows
/// of all.
bool Process::run_barrier() {
    while (round_ < simulation_->barrier_rounds()) {
        if (!round_sent_) {
            const uint32_t to = static_cast<uint32_t>((rank() + (uint64_t{1} << round_)) %
                                                      simulation_->workload().config().processes);
            const auto tag = static_cast<uint8_t>(kBarrierTag | round_);
            if (!post_on_node(to, 0, tag)) {
                if (prepare(to)) return true;
                post(to, 0, tag);
            }
            round_sent_ = true;
            return true;
        }
        if (!used_ || used_->barrier_arrived[round_] < barriers_) return false;
        ++round_;
        round_sent_ = false;
    }
    in_barrier_ = false;
    return false;
}

bool Process::post_next() {
    const Workload& workload = simulation_->workload();
    const uint32_t to = workload.destination(rank(), phase_, posted_);
    const uint32_t bytes = workload.bytes(rank(), phase_, posted_);
    if (!post_on_node(to, bytes, 0)) {
        if (prepare(to)) return true;
        ++outstanding_;
        post(to, bytes, is_long(bytes) ? kRendezvousTag : 0);
    }
    ++posted_;
    return true;
}

/// Cost of a message before its packets go. A step of its own, so that others act in the meantime.
bool Process::prepare(uint32_t to) {
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
    const DeviceAddr address = device_->meet(to);
    const uint32_t theirs = simulation_->process(to).device().peers();
    if (!opened_path().admits(address) || theirs > simulation_->plan().peers) {
        throw SimulationError("process " + std::to_string(rank()) + " and " + std::to_string(to) +
                              " have met " + std::to_string(std::max(device_->peers(), theirs)) +
                              " peers, and mailboxes were planned for " +
                              std::to_string(simulation_->plan().peers) + ": raise --peers");
    }
    Used& u = *used_;
    if (u.free.empty()) {
        u.messages.push_back(std::make_unique<Message>());
        u.free.push_back(u.messages.back().get());
    }
    Message* const message = u.free.back();
    u.free.pop_back();
    Peer& p = peer(address);
    message->header = {.from = rank(), .to = to, .number = p.sent++, .bytes = bytes};
    static_cast<velo_send_t&>(*message) = {};
    message->data[0] = &message->header;
    message->bytes[0] = sizeof message->header;
    message->data[1] = simulation_->body();
    message->bytes[1] = tag == kRendezvousTag ? 0 : bytes;
    message->total = message->bytes[1] + static_cast<uint32_t>(sizeof message->header);
    message->tag = tag;
    if (p.queue.empty() && u.path->send(address, *message) == Status::kOk) {
        if (tag == 0) --outstanding_;
        u.free.push_back(message);
        return;
    }
    if (p.queue.empty()) u.waiting.push_back(address);
    p.queue.push_back(message);
}

bool Process::post_on_node(uint32_t to, uint32_t bytes, uint8_t tag) {
    if (!simulation_->on_one_node(rank(), to)) return false;
    device_->work(simulation_->config().host.on_node_ns + copy_ns(bytes));
    ++used().messages_on_node;
    notify(simulation_->process(to), device_->clock_ns(), tag);
    return true;
}

void Process::notify(Process& process, uint64_t at_ns, uint8_t tag) {
    std::deque<Timed>& queue = process.used().timed;
    const auto later = [](uint64_t ns, const Timed& timed) { return ns < timed.at_ns; };
    queue.insert(std::upper_bound(queue.begin(), queue.end(), at_ns, later), {at_ns, tag});
    simulation_->cluster().trace().add(TraceEvent::kOnNode, rank(), at_ns, process.rank());
    if (process.device_->asleep()) {
        simulation_->cluster().schedule(*process.device_, std::max(at_ns, process.device_->clock_ns()));
    }
}

bool Process::is_long(uint32_t bytes) const {
    return bytes > simulation_->config().workload.bytes;
}

uint64_t Process::copy_ns(uint32_t bytes) const {
    return is_long(bytes) ? uint64_t{bytes} * simulation_->config().host.copy_kib_ns / 1024 : 0;
}

/// A long message's data come by RMA (FC 3): out of the way of VELO's packets, so they take only time. Both
/// ends are notified when they are there.
void Process::fetch(uint32_t from, uint32_t bytes) {
    Process& sender = simulation_->process(from);
    const uint64_t way_ns = simulation_->cluster().latency_ns(sender.device_->at_node(), device_->at_node());
    const uint64_t at_ns = device_->clock_ns() + 2 * way_ns + copy_ns(bytes);
    notify(*this, at_ns, 0);
    notify(sender, at_ns, kSentTag);
}

std::string Process::text() const {
    std::string text =
        "process " + std::to_string(rank()) + " is in phase " + std::to_string(phase_) + " of " +
        std::to_string(simulation_->workload().phases()) + (in_barrier_ ? " (barrier)" : "") + ", has sent " +
        std::to_string(posted_ - outstanding_) + " of " + std::to_string(sends_) + " messages and received " +
        std::to_string(received_) + " of " + std::to_string(expected_);
    if (used_ && !used_->waiting.empty()) {
        const DeviceAddr to = used_->waiting.front();
        text += "; it waits to send to process " + std::to_string(device_->process_of(to)) + ", with " +
                std::to_string(used_->path->flow().credits(to)) + " credits";
    }
    return text;
}

}  // namespace velo::sim
