#include "sim/matching_run.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <variant>

#include "velo/base/check.h"
#include "velo/options/params_default.h"

namespace velo::sim {

using base::SetupError;
using cluster::SimulationError;

namespace {

class Killer final : public MatchingProgram {
  public:
    Killer(uint32_t processes, uint32_t messages, uint32_t bytes)
        : processes_(processes), messages_(messages), bytes_(bytes) {}

    [[nodiscard]] uint32_t sends(uint32_t rank) const override { return rank == 0 ? 0 : messages_; }
    [[nodiscard]] uint32_t receives(uint32_t rank) const override {
        return rank == 0 ? messages_ * (processes_ - 1) : 0;
    }
    [[nodiscard]] Send send(uint32_t, uint32_t i) const override {
        return {.to = 0, .tag = static_cast<int32_t>(i + 1), .bytes = bytes_};
    }
    [[nodiscard]] Receive receive(uint32_t, uint32_t i) const override {
        return {.source = static_cast<int32_t>(1 + i % (processes_ - 1)),
                .tag = static_cast<int32_t>(messages_ - i / (processes_ - 1))};
    }

  private:
    uint32_t processes_;
    uint32_t messages_;
    uint32_t bytes_;
};

class AllToAll final : public MatchingProgram {
  public:
    AllToAll(uint32_t processes, uint32_t messages, uint32_t bytes)
        : processes_(processes), messages_(messages), bytes_(bytes) {}

    [[nodiscard]] uint32_t sends(uint32_t) const override { return messages_ * (processes_ - 1); }
    [[nodiscard]] uint32_t receives(uint32_t rank) const override { return sends(rank); }
    [[nodiscard]] Send send(uint32_t rank, uint32_t i) const override {
        const uint32_t to = (rank + 1 + i % (processes_ - 1)) % processes_;
        return {.to = to, .tag = static_cast<int32_t>(1 + i / (processes_ - 1)), .bytes = bytes_};
    }
    [[nodiscard]] Receive receive(uint32_t, uint32_t i) const override {
        return {.source = match::kAnySource, .tag = static_cast<int32_t>(messages_ - i / (processes_ - 1))};
    }

  private:
    uint32_t processes_;
    uint32_t messages_;
    uint32_t bytes_;
};

/// In each message, as far as it is long enough.
struct Stamp {
    uint32_t from = 0;
    uint32_t number = 0;  ///< of all that its sender sends
};

class MatchingProcess;

struct Run {
    const MatchingConfig& config;
    const MatchingProgram& program;
    flowctl::Plan plan;
    NodeFabric& fabric;
    std::deque<MatchingProcess>& processes;
};

/// Owner: run_matching(). It does not move.
class MatchingProcess {
  public:
    MatchingProcess(Run& run, cluster::ClusterDevice& device)
        : run_(run),
          device_(device),
          peers_(run.config.processes),
          engine_(options(), SimSystem{&run.fabric, &device}) {
        velo_match_host_t host = {};
        host.context = this;
        host.send_done = [](void* self, velo_match_send_t* send) {
            static_cast<MatchingProcess*>(self)->sent(*reinterpret_cast<Sent*>(send));
        };
        host.receive_done = [](void* self, velo_match_receive_t* receive) {
            static_cast<MatchingProcess*>(self)->received(*reinterpret_cast<Received*>(receive));
        };
        engine_.open_matching(host);
        sends_left_ = run_.program.sends(rank());
        receives_left_ = run_.program.receives(rank());
    }

    [[nodiscard]] uint32_t rank() const { return device_.process(); }
    [[nodiscard]] SimEngine& engine() { return engine_; }
    [[nodiscard]] cluster::ClusterDevice& device() { return device_; }
    [[nodiscard]] bool finished() const { return sends_left_ == 0 && receives_left_ == 0; }
    [[nodiscard]] uint64_t sent_ns() const { return sent_ns_; }
    /// One step of the process, and of its device's clock.
    void step() {
        device_.spend(run_.config.cluster.cpu.poll_ns);
        bool busy = engine_.poll(16) != 0;
        busy = engine_.drive(1) != 0 || busy;
        busy = call() || busy;
        cluster::Cluster& cluster = run_.fabric.cluster;
        if (busy) return cluster.schedule(device_, device_.clock_ns());
        device_.sleep();
        const uint64_t next_ns = std::min(engine_.parts().core.on_node.next_ns(), wakes_ns());
        if (next_ns != SimNode::kNever) cluster.schedule(device_, std::max(next_ns, device_.clock_ns()));
    }
    [[nodiscard]] std::string text() const {
        return "process " + std::to_string(rank()) + " has " + std::to_string(sends_left_) +
               " messages to send and " + std::to_string(receives_left_) + " to receive";
    }

  private:
    struct Sent {
        velo_match_send_t send = {};
        std::vector<std::byte> data;
    };
    struct Received {
        velo_match_receive_t receive = {};
        uint32_t number = 0;
        bool done = false;
        std::vector<std::byte> data;
    };

    [[nodiscard]] EngineOptions options() {
        EngineOptions options;
        options.identity.name = options.identity.rank = device_.process();
        options.identity.job = 1;
        options.identity.job_size = run_.config.processes;
        options.params = params_default();
        options.params.device_message_bytes_max = run_.config.message_bytes_max;
        options.params.unexpected_records = static_cast<int64_t>(run_.config.unexpected_records);
        options.params.unexpected_bytes = static_cast<int64_t>(run_.config.unexpected_bytes);
        options.params.unexpected_granted = static_cast<int>(run_.config.unexpected_granted);
        options.plan = run_.plan;
        options.node = device_.process() / run_.config.processes_per_node;
        options.device_used = true;
        options.host.context = this;
        options.host.accepts = [](void*, uint8_t) { return true; };
        options.host.receive = [](void*, velo_path_t, void*, uint8_t tag, void*, size_t) {
            throw SimulationError("a message with tag " + std::to_string(tag) + ", which is no tag of matching");
        };
        return options;
    }
    velo_match_peer* peer(uint32_t other) {
        if (peers_[other] != nullptr) return peers_[other];
        velo_peer* found = nullptr;
        std::string error;
        if (other != rank() && engine_.connect(run_.processes[other].engine_.address(), true, this, found,
                                               error) != Status::kOk) {
            throw SimulationError("process " + std::to_string(rank()) + " does not reach process " +
                                  std::to_string(other) + ": " + error);
        }
        peers_[other] = engine_.match([&](auto& matching) { return &matching.peer_of(found); });
        return peers_[other];
    }
    [[nodiscard]] uint64_t wakes_ns() const {
        const uint64_t begins_ns = run_.program.computes_ns(rank());
        return receives_left_ != 0 && begins_ns > device_.clock_ns() ? begins_ns : SimNode::kNever;
    }

    /// The next thing that the program does. False: it waits.
    bool call() {
        if (sends_begun_ < run_.program.sends(rank())) {
            send(run_.program.send(rank(), sends_begun_));
            return true;
        }
        if (receives_begun_ == run_.program.receives(rank()) ||
            device_.clock_ns() < run_.program.computes_ns(rank()) ||
            posted_.size() == run_.program.receives_at_once())
            return false;
        return receive(run_.program.receive(rank(), receives_begun_));
    }
    void send(const MatchingProgram::Send& send) {
        Sent& sent = *sent_.emplace_back(std::make_unique<Sent>());
        sent.data.resize(send.bytes);
        const Stamp stamp = {rank(), sends_begun_++};
        for (uint32_t at = 0; at < send.bytes; ++at) sent.data[at] = letter(stamp, at);
        if (send.bytes >= sizeof stamp) std::memcpy(sent.data.data(), &stamp, sizeof stamp);
        const match::Envelope envelope = {
            .context = 1, .source = static_cast<int32_t>(rank()), .tag = send.tag};
        device_.work(run_.config.call_ns);
        velo_match_peer* const to = peer(send.to);
        const bool done = engine_.match([&](auto& matching) {
            return matching.sending.send(*to, envelope, sent.data.data(), send.bytes, send.synchronous,
                                         sent.send);
        });
        if (done) this->sent(sent);
    }
    void sent(const Sent& sent) {
        std::erase_if(sent_, [&](const auto& one) { return one.get() == &sent; });
        if (--sends_left_ == 0) sent_ns_ = device_.clock_ns();
    }
    bool receive(const MatchingProgram::Receive& receive) {
        const match::Envelope envelope = {.context = 1, .source = receive.source, .tag = receive.tag};
        velo_match_peer* const from =
            receive.source == match::kAnySource ? nullptr : peer(static_cast<uint32_t>(receive.source));
        if (receive.probed) {
            velo_match_status_t status;
            const bool found = engine_.match(
                [&](auto& matching) { return matching.receiving.probe(from, envelope, status, nullptr); });
            // The caller probes again when something has come; and what the probe itself asks for is sent
            // now.
            if (!found) return engine_.drive(1) != 0;
        }
        device_.work(run_.config.call_ns);
        Received& received = *posted_.emplace_back(std::make_unique<Received>());
        received.number = receives_begun_++;
        received.data.resize(bytes_max());
        const bool done = engine_.match([&](auto& matching) {
            return matching.receiving.post(from, envelope, received.data.data(), received.data.size(),
                                           received.receive);
        });
        if (done) this->received(received);
        return true;
    }
    /// Receives complete in any order, and are looked at in that of posting.
    void received(Received& received) {
        received.done = true;
        while (!posted_.empty() && posted_.front()->done) {
            check(*posted_.front());
            posted_.pop_front();
            --receives_left_;
        }
    }
    void check(const Received& received) {
        const velo_match_receive_t& result = received.receive;
        const MatchingProgram::Receive wanted = run_.program.receive(rank(), received.number);
        const auto fail = [&](const std::string& what) {
            throw SimulationError("process " + std::to_string(rank()) + ", receive " +
                                  std::to_string(received.number) + ": " + what);
        };
        if (result.status != VELO_OK) fail("status " + std::to_string(result.status));
        if ((wanted.source != match::kAnySource && wanted.source != result.source) ||
            (wanted.tag != match::kAnyTag && wanted.tag != result.tag))
            fail("a message of source " + std::to_string(result.source) + " and tag " +
                 std::to_string(result.tag));
        if (result.bytes < sizeof(Stamp)) return;
        Stamp stamp;
        std::memcpy(&stamp, received.data.data(), sizeof stamp);
        if (static_cast<int32_t>(stamp.from) != result.source) fail("the data of another process");
        const MatchingProgram::Send sent = run_.program.send(stamp.from, stamp.number);
        if (sent.to != rank() || sent.tag != result.tag || sent.bytes != result.bytes)
            fail("the data of another message");
        for (uint32_t at = sizeof stamp; at < result.bytes; ++at) {
            if (received.data[at] != letter(stamp, at)) fail("byte " + std::to_string(at) + " is wrong");
        }
        auto [last, is_first] = last_.try_emplace({result.source, result.tag}, stamp.number);
        if (!is_first && stamp.number <= std::exchange(last->second, stamp.number))
            fail("a message was overtaken");
    }
    [[nodiscard]] static std::byte letter(const Stamp& stamp, uint32_t at) {
        return static_cast<std::byte>(stamp.from * 7 + stamp.number * 29 + at * 3 + at / 253);
    }
    /// Of any message.
    [[nodiscard]] uint32_t bytes_max() {
        if (bytes_max_ == 0) {
            for (uint32_t other = 0; other < run_.config.processes; ++other) {
                for (uint32_t i = 0; i < run_.program.sends(other); ++i)
                    bytes_max_ = std::max(bytes_max_, run_.program.send(other, i).bytes);
            }
        }
        return bytes_max_;
    }

    Run& run_;
    cluster::ClusterDevice& device_;
    std::vector<velo_match_peer*> peers_;
    std::deque<std::unique_ptr<Sent>> sent_;                ///< under way
    std::deque<std::unique_ptr<Received>> posted_;          ///< not yet looked at
    std::map<std::pair<int32_t, int32_t>, uint32_t> last_;  ///< number received by source and tag
    uint32_t sends_begun_ = 0;
    uint32_t sends_left_ = 0;
    uint32_t receives_begun_ = 0;
    uint32_t receives_left_ = 0;
    uint32_t bytes_max_ = 0;
    uint64_t sent_ns_ = 0;
    SimEngine engine_;
};

flowctl::Plan make_plan(const MatchingConfig& config) {
    flowctl::Config flow = config.flow;
    if (flow.peers == 0) flow.peers = std::max(1u, config.processes - 1);
    flow.contact_slots = flowctl::contact_slots_for(flow, 64);
    auto result = flowctl::plan(flow);
    if (const auto* error = std::get_if<flowctl::PlanError>(&result)) throw SetupError(error->message);
    return std::get<flowctl::Plan>(result);
}

void run_until_nothing_moves(cluster::Cluster& cluster, std::deque<MatchingProcess>& processes) {
    for (MatchingProcess& process : processes) cluster.schedule(process.device(), 0);
    while (cluster::ClusterDevice* device = cluster.next()) {
        if (const uint64_t stall_ns = cluster.stall_ns(device->clock_ns()); stall_ns != 0) {
            device->spend(stall_ns);
            cluster.schedule(*device, device->clock_ns());
            continue;
        }
        processes[device->process()].step();
    }
}

/// Adds a process's results. Throws SimulationError where something is left to do, or a bound was passed.
void add(MatchingResult& sum, MatchingProcess& process, const MatchingConfig& config, const MatchingProgram& program) {
    if (!process.finished()) throw SimulationError("nothing moves any more: " + process.text());
    if (process.engine().busy()) throw SimulationError("all is done, and an engine is busy: " + process.text());
    velo_counters_t counters;
    process.engine().counters(counters);
    if (counters.match_records_hwm > config.unexpected_records || counters.match_data_hwm > config.unexpected_bytes)
        throw SimulationError("more memory than the budget: " + process.text());
    if (counters.engine_malformed != 0) throw SimulationError("a malformed message: " + process.text());
    sum.time_ns = std::max(sum.time_ns, process.device().clock_ns());
    sum.messages += program.receives(process.rank());
    sum.eager += counters.match_tx_eager;
    sum.requests += counters.match_tx_requests;
    sum.refused += counters.match_refused;
    sum.offers += counters.match_offers;
    sum.records_hwm = std::max(sum.records_hwm, counters.match_records_hwm);
    sum.data_hwm = std::max(sum.data_hwm, counters.match_data_hwm);
    sum.packets += process.device().counters().packets_sent;
    if (program.sends(process.rank()) == 0) return;
    sum.slowest_sender_ns = std::max(sum.slowest_sender_ns, process.sent_ns());
    sum.fastest_sender_ns =
        sum.fastest_sender_ns == 0 ? process.sent_ns() : std::min(sum.fastest_sender_ns, process.sent_ns());
}

}  // namespace

std::unique_ptr<MatchingProgram> make_killer(uint32_t processes, uint32_t messages, uint32_t bytes) {
    return std::make_unique<Killer>(processes, messages, bytes);
}
std::unique_ptr<MatchingProgram> make_all_to_all(uint32_t processes, uint32_t messages, uint32_t bytes) {
    return std::make_unique<AllToAll>(processes, messages, bytes);
}

MatchingResult run_matching(const MatchingConfig& given, const MatchingProgram& program) {
    MatchingConfig config = given;
    config.cluster.whole_payloads = true;
    if (config.processes < 2) throw SetupError("a run of fewer than two processes matches nothing");
    cluster::Cluster cluster(config.cluster);
    NodeFabric fabric(cluster);
    fabric.message_ns = config.on_node_ns;
    fabric.copy_kib_ns = config.copy_kib_ns;
    fabric.short_bytes = config.message_bytes_max;
    fabric.ring = NodeFabric::geometry_for(std::max(4096u, config.message_bytes_max));
    fabric.whole_payloads = true;
    std::deque<MatchingProcess> processes;
    Run run = {config, program, make_plan(config), fabric, processes};
    for (uint32_t rank = 0; rank < config.processes; ++rank) {
        const uint32_t node = rank / config.processes_per_node;
        cluster::ClusterDevice& device =
            cluster.open(node, {.node = static_cast<uint16_t>(node),
                                .vpid = static_cast<uint8_t>(rank % config.processes_per_node),
                                .mailbox_slots = run.plan.mailbox_slots,
                                .contact_slots = run.plan.contact_slots,
                                .faults = {}});
        processes.emplace_back(run, device);
    }
    run_until_nothing_moves(cluster, processes);
    MatchingResult sum;
    for (MatchingProcess& process : processes) add(sum, process, config, program);
    sum.trace_hash = cluster.trace().value();
    // Processes that ended first, so that the others do not look at what is gone.
    for (MatchingProcess& process : processes) process.engine().announce_ending(base::Ending::kClosed);
    return sum;
}

}  // namespace velo::sim
