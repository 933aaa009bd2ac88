/// Puts and gets by the provider's own, and the registrations that they name.
///
/// An operation that the provider takes nothing of now (-FI_EAGAIN) waits here, in order for each peer, and progress()
/// tries it again. A put ends when its data are visible at the target (FI_DELIVERY_COMPLETE). Atomics, notifications at
/// the target and the small put of the contract are not here (DeviceTraits): the engine sends messages instead.
///
/// Keys are random, so that no process hits another's memory by chance, where the provider lets us choose them.
/// Owner: the device. Thread: the device's.
#pragma once

#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "velo/base/check.h"
#include "velo/device/device.h"
#include "velo/ofi/endpoint.h"

namespace velo::ofi {

class RmaUnit {
  public:
    static constexpr uint32_t kPortOperationsMax = 128;
    static constexpr uint32_t kRegistrationsMax = 16'384;
    static constexpr uint32_t kBytesMax = 8u << 20;  ///< FC 2

    RmaUnit(const Endpoint& endpoint, uint32_t ports);

    Status register_memory(void* base, size_t bytes, uint32_t access, Registration& out);
    /// Registers memory under the key and at the address that another endpoint has given. kNoResource: this one has
    /// no such.
    Status register_as(void* base, const Registration& registration);
    Status deregister(const Registration& registration);

    /// `to` is the peer's address, and `facts` what its notification says. `reached`: kOk, or how the operation ends
    /// without a try.
    Status post(const RmaOperation& operation, fi_addr_t to, const DevicePeer& facts, Status reached);
    bool poll_notification(Notification& notification);

    /// The provider is done with an operation; `error` is 0 or libfabric's errno, positive.
    void completed(Context& context, int error);
    /// The peer of an operation that the provider is done with.
    [[nodiscard]] static DeviceAddr peer_of(const Context& context) {
        return reinterpret_cast<const Operation&>(context).what.peer;
    }
    /// Operations that the provider was done with.
    [[nodiscard]] uint64_t completions() const { return completions_; }
    /// Tries again what the provider had not taken. Returns how many operations it took.
    uint32_t progress(uint64_t now_ns);
    /// Ends, as kTimedOut, the operations that the provider has of a peer of which none has ended for so long, while
    /// the peer itself was responsive(peer). The provider may still complete them, which is not reported then. To be
    /// called every so often; time in which this process did not poll does not count.
    template <class Responsive>
    void end_overdue(uint64_t timeout_ns, Responsive&& responsive);
    /// Ends those operations of a peer that the provider has taken nothing of, as failed.
    void fail_waiting(DeviceAddr peer);
    /// Ends all operations of a peer. The provider may still complete those that it has, which is not reported then.
    void peer_died(DeviceAddr peer);

    [[nodiscard]] bool under_way() const { return under_way_ != 0; }
    [[nodiscard]] uint32_t operations(DeviceAddr peer) const;
    [[nodiscard]] uint32_t bytes_max() const;
    [[nodiscard]] uint32_t outstanding_max() const { return ports_ * kPortOperationsMax; }
    void add_counters(DeviceCounters& counters) const;

  private:
    enum class Place : uint8_t { kFree, kWaiting, kProvider, kAbandoned };
    struct Operation {
        Context context{Context::Kind::kOperation};
        RmaOperation what;
        fi_addr_t to = FI_ADDR_NOTAVAIL;
        MemoryPtr local;
        uint16_t node = 0;
        uint8_t vpid = 0;
        Place place = Place::kFree;
    };
    struct Told {
        Notification notification;
        uint8_t port;
    };

    Status register_at(void* base, size_t bytes, uint32_t access, uint64_t key, Registration& out);
    [[nodiscard]] Status check(const RmaOperation& operation) const;
    /// Operations of one peer that the provider has.
    struct Moving {
        uint32_t count = 0;
        uint64_t still_ns = 0;  ///< for so long none has ended, though the peer was heard of
    };
    static constexpr uint64_t kGapNs = 1'000'000'000;

    ssize_t start(Operation& operation);
    ssize_t begin(Operation& operation);
    void give_up(DeviceAddr peer, Status status);
    void left_provider(DeviceAddr peer) {
        VELO_DCHECK(peer < moving_.size() && moving_[peer].count != 0,
                    "an operation of peer %u ends, of none", uint32_t{peer});
        --moving_[peer].count;
        moving_[peer].still_ns = 0;
    }
    void end(Operation& operation, Status status);
    void release(Operation& operation);
    [[nodiscard]] bool waits(DeviceAddr peer) const;
    [[nodiscard]] uint64_t next_key();

    const Endpoint& endpoint_;
    uint32_t ports_;
    std::vector<Operation> operations_;
    std::vector<Operation*> free_;
    std::deque<Operation*> waiting_;
    std::deque<Told> told_;
    std::vector<uint32_t> port_operations_;  ///< not ended, or not reported
    std::unordered_map<uint64_t, MemoryPtr> registrations_;
    std::unordered_map<uint64_t, Registration> published_;
    uint64_t key_state_;
    std::vector<Moving> moving_;  ///< by DeviceAddr
    uint64_t now_ns_ = 0;         ///< of the last progress()
    uint64_t polled_ns_ = 0;      ///< time spent polling
    uint64_t looked_ns_ = 0;      ///< of that, at the last end_overdue()
    uint32_t under_way_ = 0;  ///< not ended
    uint64_t completions_ = 0;
    RmaCounters counters_;
};

template <class Responsive>
void RmaUnit::end_overdue(uint64_t timeout_ns, Responsive&& responsive) {
    const uint64_t passed_ns = polled_ns_ - std::exchange(looked_ns_, polled_ns_);
    if (under_way_ == 0) return;
    for (DeviceAddr peer = 0; peer < moving_.size(); ++peer) {
        Moving& moving = moving_[peer];
        if (moving.count == 0 || !responsive(peer)) continue;
        moving.still_ns += passed_ns;
        if (moving.still_ns >= timeout_ns) give_up(peer, Status::kTimedOut);
    }
}

}  // namespace velo::ofi
