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
    : endpoint_(std::move(choice), size_t{ports} * RmaUnit::kPortOperationsMax, 0), rma_(endpoint_, ports) {}

void RmaRail::know(DeviceAddr peer, std::span<const std::byte> name) {
    if (peer >= peers_.size()) peers_.resize(size_t{peer} + 1);
    if (peers_[peer].name.empty()) peers_[peer].name.assign(name.begin(), name.end());
}

Status RmaRail::post(const RmaOperation& operation, const DevicePeer& facts, bool dead) {
    Peer& peer = peers_[operation.peer];
    if (peer.at == FI_ADDR_NOTAVAIL && !dead) peer.at = endpoint_.insert(peer.name);
    if (peer.at == FI_ADDR_NOTAVAIL && !dead) return Status::kNoResource;
    pacer_.traffic(now_ns_);
    return rma_.post(operation, peer.at, facts, dead);
}

uint32_t RmaRail::progress(uint64_t now_ns) {
    now_ns_ = now_ns;
    if (!pacer_.due(now_ns, rma_.under_way())) return 0;
    const uint64_t seen = rma_.completions();
    read();
    rma_.progress();
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
            if (entries[i].op_context != nullptr) rma_.completed(*static_cast<Context*>(entries[i].op_context), 0);
        }
        if (count < static_cast<ssize_t>(kBatch)) return;
    }
}

bool RmaRail::read_error() {
    fi_cq_err_entry error = {};
    if (fi_cq_readerr(endpoint_.cq(), &error, 0) != 1) return false;
    if (error.op_context != nullptr) rma_.completed(*static_cast<Context*>(error.op_context), error.err);
    return true;
}

}  // namespace velo::ofi
