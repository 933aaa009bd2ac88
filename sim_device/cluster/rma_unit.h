/// The RMA unit of one simulated process: its ports, operations, registrations and notifications (FC 2; librma2).
///
/// An operation leaves when its port is free, reaches the target after the network's latency, and ends after the same
/// latency back. Its data keep the port busy for their time. So operations of a port are in order and overlap only in
/// their latencies, and those of different ports are independent. RMA takes no time from VELO's packets (FC 3).
///
/// The target's memory is accessed in one moment, when the last byte is there: its registration and its process must
/// be valid until then. The Cluster calls advance() at that moment, and again at the operation's end, in this order.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "sim_device/cluster/registration_table.h"
#include "velo/device/device.h"
#include "velo/device/faults.h"

namespace velo::cluster {

class Cluster;
class ClusterDevice;

/// Times of an RMA unit, in ns.
struct RmaConfig {
    uint32_t start_ns = 0;         ///< an operation at its port, before its data
    uint32_t copy_kib_ns = 1'280;  ///< KiB of data at a port: 800 MB/s
};

/// A fault of one operation.
struct RmaFault {
    Status status = Status::kOk;  ///< other than kOk: the operation ends so
    uint32_t done_permille = 0;   ///< of a put's or get's bytes that move all the same; an atomic is done if not 0
    uint64_t late_there_ns = 0;   ///< before it leaves; the port waits
    uint64_t late_back_ns = 0;    ///< after its access
};

/// Owner: a ClusterDevice. Thread: the driver's.
class RmaUnit {
  public:
    static constexpr uint32_t kPortsMax = 8;
    /// Operations of a port that may lack their requester's notification, or its reading.
    static constexpr uint32_t kPortOperationsMax = 256;
    static constexpr uint32_t kBytesMax = 8u << 20;  ///< FC 2
    /// A process that a fault refused a post is woken after this time, to try again.
    static constexpr uint64_t kRetryNs = 1'000;
    static constexpr uint64_t kNever = UINT64_MAX;

    /// `faults` may be nullptr.
    RmaUnit(Cluster& cluster, ClusterDevice& owner, uint32_t ports, base::Faults* faults);

    RegistrationTable& registrations() { return registrations_; }

    Status post(const RmaOperation& what);
    /// The oldest notification that is there at `now_ns`.
    bool poll_notification(uint64_t now_ns, Notification& notification);
    /// Takes operation number `index` further: its access, or its end, is at `at_ns`, which is now.
    void advance(uint32_t index, uint64_t at_ns);

    /// When this unit next has something for its owner: a notification, or a place for a post that was refused.
    [[nodiscard]] uint64_t next_ns(uint64_t now_ns) const;
    /// Operations that have not ended, on `peer`, or on any for kNoAddr; O(all).
    [[nodiscard]] uint32_t operations(DeviceAddr peer) const;
    /// Fills in the counters of RMA.
    void add_counters(DeviceCounters& out) const;

  private:
    enum class Stage : uint8_t { kFree, kLeft, kAccessed, kEnded };
    struct Operation {
        RmaOperation what;
        RmaFault fault;
        uint64_t value = 0;
        uint32_t process = 0;  ///< the target
        Stage stage = Stage::kFree;
        Status status = Status::kOk;
    };
    struct Port {
        uint64_t free_ns = 0;      ///< its last operation's data have left
        uint64_t last_end_ns = 0;  ///< the end of that operation
        uint32_t outstanding = 0;
    };
    struct Arrived {
        uint64_t at_ns;
        Notification notification;
        uint32_t operation;  ///< released when this is read, unless kNoOperation
    };
    static constexpr uint32_t kNoOperation = UINT32_MAX;

    [[nodiscard]] bool acceptable(const RmaOperation& what) const;
    RmaFault draw_fault(uint8_t port);
    uint32_t allocate();
    void release(uint32_t index);
    Status access(Operation& operation, uint64_t at_ns);
    Status copy(const Operation& operation, const RmaUnit* target) const;
    Status execute(Operation& operation, const RmaUnit* target) const;
    void notify_target(const Operation& operation, uint64_t at_ns);
    void end(uint32_t index, uint64_t at_ns);
    void arrive(const Arrived& arrived);
    void trace(const Operation& operation, uint64_t at_ns);

    Cluster& cluster_;
    ClusterDevice& owner_;
    base::Faults* faults_;
    RegistrationTable registrations_;
    std::vector<Port> ports_;
    std::vector<Operation> operations_;
    std::vector<uint32_t> free_;
    std::deque<Arrived> notifications_;  ///< in order of time, as they are made at their times
    uint64_t retry_ns_ = 0;
    RmaCounters counters_;
    uint64_t faults_injected_ = 0;
};

}  // namespace velo::cluster
