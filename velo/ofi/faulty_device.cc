#include "velo/ofi/faulty_device.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "velo/ofi/ofi_device.h"
#include "velo/ofi/rails_device.h"
#include "velo/os/clock.h"

namespace velo::ofi {

Status FaultyDevice::send(DeviceAddr to, uint32_t packets, Admission admission, PacketFill fill) {
    const bool contact = admission == Admission::kContact;
    const uint32_t slots = device_->peer(to).mailbox_slots;
    // The device refuses these.
    if (!alive(to) || slots == 0 || packets - 1 >= (contact ? 1 : limits().send_packets_max)) {
        return device_->send(to, packets, admission, fill);
    }
    const uint32_t waiting = delayed_.waiting(to);
    // Senders with credits have their own bound.
    if (admission == Admission::kGuarded && waiting != 0 && waiting + packets > slots) return Status::kAgain;
    if (!delay_ns_) delay_ns_ = faults_->packet_delay_ns();
    if (*delay_ns_ == 0 && waiting == 0) {
        const Status status = device_->send(to, packets, admission, fill);
        if (status == Status::kOk) delay_ns_.reset();
        return status;
    }
    base::DelayLine::Message message = {.due_ns = now_ns_ + *delay_ns_, .admission = admission, .packets = {}};
    message.packets.resize(packets);
    for (uint32_t i = 0; i < packets; ++i) message.packets[i].status = fill(i, message.packets[i].payload);
    delayed_.push(to, std::move(message));
    delay_ns_.reset();
    return Status::kOk;
}

uint32_t FaultyDevice::release(uint64_t now_ns) {
    return delayed_.release(now_ns, [this](DeviceAddr to, const base::DelayLine::Message& message) {
        const auto fill = [&message](uint32_t i, std::byte* payload) {
            std::memcpy(payload, message.packets[i].payload, kPayloadBytes);
            return PacketStatus::unpack(message.packets[i].status);
        };
        return device_->send(to, static_cast<uint32_t>(message.packets.size()), message.admission, PacketFill(fill));
    });
}

/// A process that closes leaves nothing behind here, as far as its peers take it in time.
void FaultyDevice::release_all() {
    const uint64_t end_ns = base::monotonic_ns() + OfiDevice::kCloseNs;
    while (!delayed_.empty()) {
        const uint64_t now_ns = base::monotonic_ns();
        if (release(UINT64_MAX) == 0 && now_ns > end_ns) return;
        device_->progress(now_ns);
    }
}

void FaultyDevice::announce_ending(base::Ending ending) {
    if (ending == base::Ending::kClosed) release_all();
    device_->announce_ending(ending);
}

const Packet* FaultyDevice::peek(DeviceAddr& from) {
    const Packet* packet = device_->peek(from);
    if (packet != nullptr && !stall_drawn_) {
        stall_drawn_ = true;
        if (const uint64_t stall_ns = faults_->mailbox_stall_ns(); stall_ns != 0) {
            stalled_until_ns_ = now_ns_ + stall_ns;
        }
    }
    return stalled() ? nullptr : packet;
}

void FaultyDevice::advance() {
    stall_drawn_ = false;
    device_->advance();
}

/// Whether the device would take the operation, if its queue is not full.
bool FaultyDevice::valid(const RmaOperation& operation) const {
    const DeviceLimits limits = device_->limits();
    const bool moves = operation.kind == RmaKind::kPut || operation.kind == RmaKind::kGet;
    return moves && operation.notify == kNotifyRequester && operation.port < limits.ports &&
           operation.bytes - 1 < limits.rma_bytes_max && alive(operation.peer);
}

Status FaultyDevice::post(const RmaOperation& operation) {
    if (!valid(operation)) return device_->post(operation);
    if (!fails_) fails_ = faults_->rma(operation.port).status;
    if (*fails_ == Status::kOk) {
        const Status status = device_->post(operation);
        if (status == Status::kOk) fails_.reset();
        return status;
    }
    ++failed_count_;
    const DevicePeer peer = device_->peer(operation.peer);
    failed_.push_back({.cookie = operation.cookie,
                       .node = peer.node,
                       .vpid = peer.vpid,
                       .operation = operation.kind,
                       .status = *std::exchange(fails_, std::nullopt)});
    return Status::kOk;
}

bool FaultyDevice::poll_notification(Notification& notification) {
    if (failed_.empty()) return device_->poll_notification(notification);
    notification = failed_.front();
    failed_.pop_front();
    return true;
}

uint32_t FaultyDevice::progress(uint64_t now_ns) {
    now_ns_ = now_ns;
    if (stalled()) return 0;
    const uint32_t released = release(now_ns);
    return released + device_->progress(now_ns);
}

DeviceReport FaultyDevice::report(DeviceAddr peer) const {
    DeviceReport report = device_->report(peer);
    if (peer != kNoAddr) report.held_packets += delayed_.waiting(peer);
    return report;
}

DeviceCounters FaultyDevice::counters() const {
    DeviceCounters counters = device_->counters();
    counters.rma_posted += failed_count_;
    counters.rma_failed += failed_count_;
    counters.faults_injected = faults_->injected();
    return counters;
}

std::unique_ptr<NetworkDevice> open_device(const DeviceConfig& config, const NetworkOptions& options) {
    std::unique_ptr<base::Faults> faults =
        base::Faults::parse(config.faults, config.node, config.vpid, FaultyDevice::kSettings);
    std::unique_ptr<NetworkDevice> device;
    std::vector<Choice> rails = choose_rails(options, std::clamp(config.ports, 1u, kRailsMax));
    if (rails.size() > 1) {
        device = std::make_unique<RailsDevice>(config, std::move(rails));
    } else {
        device = std::make_unique<OfiDevice>(config, std::move(rails.front()));
    }
    if (!faults) return device;
    return std::make_unique<FaultyDevice>(std::move(device), std::move(faults));
}

}  // namespace velo::ofi
