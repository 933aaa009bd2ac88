#include "velo/ofi/rma_rail.h"

#include <array>
#include <utility>

namespace velo::ofi {
namespace {

constexpr size_t kBatch = 32;
/// Batches of one call of progress(), as in Arrivals.
constexpr uint32_t kBatchesMax = 8;

}  // namespace

RmaRail::RmaRail(Choice choice, uint32_t ports)
    : endpoint_(std::move(choice), size_t{ports} * RmaUnit::kPortOperationsMax, 0),
      rma_(endpoint_, ports),
      watch_(endpoint_) {}

void RmaRail::know(DeviceAddr peer, std::span<const std::byte> name) {
    if (peer >= peers_.size()) peers_.resize(size_t{peer} + 1);
    if (!peers_[peer].name.empty()) return;
    peers_[peer].name.assign(name.begin(), name.end());
    watch_.know(peer, peers_[peer].name);
}

Status RmaRail::post(const RmaOperation& operation, const DevicePeer& facts, bool dead) {
    VELO_DCHECK(operation.peer < peers_.size() && !peers_[operation.peer].name.empty(),
                "peer %u has no such rail", uint32_t{operation.peer});
    Peer& peer = peers_[operation.peer];
    if (peer.at == FI_ADDR_NOTAVAIL && !dead) peer.at = endpoint_.insert(peer.name);
    if (peer.at == FI_ADDR_NOTAVAIL && !dead) return Status::kNoResource;
    const Status reached = dead ? Status::kPeerDead : watch_.broken(operation.peer) ? Status::kFailed : Status::kOk;
    if (reached == Status::kOk) {
        pacer_.traffic(now_ns_);
        watch_.posted(operation.peer);
    }
    return rma_.post(operation, peer.at, facts, reached);
}

uint32_t RmaRail::progress(uint64_t now_ns) {
    now_ns_ = now_ns;
    if (!pacer_.due(now_ns, rma_.under_way())) return 0;
    const uint64_t seen = rma_.completions();
    read();
    rma_.progress(now_ns);
    if (watch_.due(now_ns)) [[unlikely]] {
        watch_.check(
            now_ns, [this](DeviceAddr peer) { return rma_.operations(peer); },
            [this](DeviceAddr peer) { rma_.fail_waiting(peer); });
    }
    return static_cast<uint32_t>(rma_.completions() - seen);
}

void RmaRail::read() {
    std::array<fi_cq_data_entry, kBatch> entries;
    for (uint32_t batch = 0; batch < kBatchesMax; ++batch) {
        const ssize_t count = fi_cq_read(endpoint_.cq(), entries.data(), kBatch);
        if (count == -FI_EAVAIL) {
            if (!read_error()) return;
            continue;
        }
        for (ssize_t i = 0; i < count; ++i) {
            if (entries[i].op_context != nullptr) completed(*static_cast<Context*>(entries[i].op_context), 0);
        }
        if (count < static_cast<ssize_t>(kBatch)) return;
    }
}

bool RmaRail::read_error() {
    fi_cq_err_entry error = {};
    if (fi_cq_readerr(endpoint_.cq(), &error, 0) != 1) return false;
    if (error.op_context != nullptr) completed(*static_cast<Context*>(error.op_context), error.err);
    return true;
}

void RmaRail::completed(Context& context, int error) {
    const DeviceAddr peer = RmaUnit::peer_of(context);
    error == 0 ? watch_.heard(peer) : watch_.failed(peer);
    rma_.completed(context, error);
}

void RmaRail::peer_died(DeviceAddr peer) {
    if (peer >= peers_.size()) return;
    watch_.peer_died(peer);
    rma_.peer_died(peer);
}

}  // namespace velo::ofi
