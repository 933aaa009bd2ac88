#include "sim/shipped_rails.h"

#include <algorithm>
#include <utility>

#include "velo/base/check.h"
#include "velo/options/engine_options.h"
#include "velo/options/list_params.h"

namespace velo::sim {

namespace {

constexpr auto kSending = rma::RailDirection::kSending;

}  // namespace

/// The engine's part as the host of RailReservations (velo/rendezvous/reserving.h).
struct ShippedRails::Actions {
    /// As Reserving::kLateWaits.
    static constexpr uint64_t kLateWaits = 16;

    ShippedRails& self;
    uint32_t process;
    uint64_t now_ns;

    [[nodiscard]] Process& owner() const { return self.processes_[process]; }
    [[nodiscard]] rma::RailMask usable(const rma::ReservingTransfer& transfer) const {
        const rma::PeerRails& peer = *static_cast<const Transfer&>(transfer).peer;
        return now_ns < peer.reserve_after_ns ? 0 : owner().rails.usable(peer, now_ns);
    }
    [[nodiscard]] rma::RailMask share(rma::RailMask free, uint64_t bytes) const {
        return owner().rails.share(free, bytes);
    }
    void send(rma::RailDirection, uint32_t rail, const rma::RailMessage& message) const {
        self.host_.send_control(process, rail, message, false);
    }
    void answer(rma::RailDirection, uint32_t rail, const rma::RailMessage& message) const {
        self.host_.send_control(process, rail, message, true);
    }
    void late(const rma::ReservingTransfer& transfer) const {
        static_cast<const Transfer&>(transfer).peer->reserve_after_ns = now_ns + kLateWaits * self.settings_.reserve_ns;
    }
    void begin(rma::ReservingTransfer& transfer) const {
        transfer.first_only = true;
        post(transfer);
    }
    void admit(rma::ReservingTransfer& transfer) const {
        if (transfer.begun) return owner().scheduler.open(transfer);
        post(transfer);
    }
    void post(rma::ReservingTransfer& transfer) const {
        owner().scheduler.post(transfer, owner().peers.at(transfer.granter).source);
    }
};

/// As set_rails() in velo/options/options.cc makes them of the parameters.
rma::RailsSettings ShippedRails::settings_of(const RailsConfig& config) {
    const bool hybrid = config.policy == RailsPolicy::kShippedHybrid;
    return {.rails = config.rails,
            .policy = {.rule = hybrid ? rma::RailRule::kHybrid : rma::RailRule::kLocalDynamic,
                       .striping_percent = config.striping_percent,
                       .fragment_bytes_min = config.chunk_bytes,
                       .short_bytes = config.short_bytes},
            .reserve_ns = hybrid ? 0 : RailsParam().wait_ms * 1'000'000};
}

ShippedRails::ShippedRails(const RailsConfig& config, Host& host)
    : settings_(settings_of(config)), chunk_bytes_(config.chunk_bytes), host_(host) {
    const uint32_t processes = config.nodes * config.processes_per_node;
    for (uint32_t process = 0; process < processes; ++process) {
        Process& made = processes_.emplace_back(Process{.rails = rma::Rails(settings_),
                                                        .scheduler = rma::ChunkScheduler(kWindowChunks),
                                                        .machine = nullptr,
                                                        .peers = {}});
        // With one rail the engine reserves nothing.
        if (settings_.reserve_ns == 0 || settings_.rails == 1) continue;
        made.machine = std::make_unique<rma::RailReservations>(rma::RailReservations::Settings{
            .rails = settings_.rails, .wait_ns = settings_.reserve_ns, .seed = config.seed << 32 | process});
    }
}

void ShippedRails::begin(uint32_t message, uint32_t process, uint32_t to, uint32_t bytes, uint64_t now_ns) {
    while (transfers_.size() <= message) transfers_.emplace_back();
    Transfer& transfer = transfers_[message];
    transfer = Transfer();
    transfer.bytes = bytes;
    transfer.chunk_bytes = chunk_bytes_;
    transfer.message = message;
    transfer.process = process;
    transfer.granter = to;
    Process& owner = processes_[process];
    Peer& peer = owner.peers[to];
    transfer.peer = &peer.rails;
    const bool asks = owner.machine != nullptr && now_ns >= peer.rails.reserve_after_ns;
    if (asks) {
        owner.machine->post(transfer, to, kSending, now_ns);
    } else {
        owner.scheduler.post(transfer, peer.source);
    }
    drive(process, now_ns);
}

void ShippedRails::chunk_left(uint32_t message, uint32_t rail, uint32_t bytes, bool reserved, uint64_t now_ns) {
    Transfer& transfer = transfers_[message];
    Process& owner = processes_[transfer.process];
    const Actions actions = {*this, transfer.process, now_ns};
    owner.rails.ended(rail, kSending, bytes);
    (void)owner.rails.succeeded(rail, *transfer.peer, bytes);
    if (transfer.stage == rma::ReservingTransfer::Stage::kAdmitted) {
        if (reserved) owner.machine->chunk_ended(transfer, rail);
        owner.machine->settle(transfer, actions);
    }
    if (owner.scheduler.chunk_done(transfer, bytes, Status::kOk) &&
        transfer.stage != rma::ReservingTransfer::Stage::kNone)
        owner.machine->ended(transfer, actions);
    drive(transfer.process, now_ns);
}

void ShippedRails::received(uint32_t process, uint32_t rail, const rma::RailMessage& message, uint64_t now_ns) {
    processes_[process].machine->received(kSending, rail, message, now_ns, Actions{*this, process, now_ns});
    drive(process, now_ns);
}

/// As Transfers::drive_scheduler().
void ShippedRails::drive(uint32_t process, uint64_t now_ns) {
    Process& owner = processes_[process];
    if (owner.machine != nullptr) owner.machine->drive(now_ns, Actions{*this, process, now_ns});
    owner.scheduler.resume();
    rma::Chunk chunk;
    while (owner.scheduler.next(chunk)) issue(owner, chunk, now_ns);
    if (owner.machine == nullptr || !owner.machine->waits()) return;
    uint64_t due_ns = UINT64_MAX;
    owner.machine->for_each_waiting([&](const rma::ReservingTransfer& transfer) {
        due_ns = std::min(due_ns, transfer.ask_ns > now_ns ? transfer.ask_ns : transfer.overdue_ns);
    });
    host_.drive_at(process, due_ns);
}

/// As RailDispatch::post_by_choice() and Reserving::chunk_began(), with ports that are never full.
void ShippedRails::issue(Process& owner, const rma::Chunk& chunk, uint64_t now_ns) {
    auto& transfer = static_cast<Transfer&>(*chunk.transfer);
    using Stage = rma::ReservingTransfer::Stage;
    const bool admitted = transfer.stage == Stage::kAdmitted;
    rma::RailMask asked = transfer.asked;
    rma::RailMask& assigned = transfer.unadmitted() ? asked : transfer.rails;
    const uint32_t rail =
        owner.rails.pick(assigned, *transfer.peer, kSending, transfer.bytes, 0, now_ns, admitted);
    VELO_CHECK(rail < settings_.rails, "message %u finds no rail", transfer.message);
    owner.rails.began(rail, *transfer.peer, kSending, chunk.bytes);
    const bool reserved = admitted && owner.machine->chunk_began(transfer, rail);
    const uint32_t process = transfer.process;
    host_.post_chunk(transfer.message, rail, chunk.bytes, reserved);
    if (admitted) owner.machine->settle(transfer, Actions{*this, process, now_ns});
}

}  // namespace velo::sim
