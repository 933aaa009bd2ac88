/// The memory of a simulated node, for shm::BasicOnNode: private memory of the simulator's process, in place of
/// segments that the kernel shares, and lives of processes as the cluster knows them.
///
/// Memory for a ring, and its mapping, are refused by a draw while NodeFabric says so.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim_device/cluster/cluster.h"
#include "velo/shm/on_node.h"

namespace velo::sim {

struct NodeFabric;

/// A process's segment: ranges that were added one by one. Outlives the process, as long as others map it.
struct SimMemory {
    struct Range {
        uint64_t offset = 0;
        base::Mapping memory;
    };
    std::deque<Range> ranges;
    uint64_t bytes = 0;
    uint64_t token = 0;
    int32_t pid = 0;
    base::Ending ending = base::Ending::kNone;
    uint64_t beat_ns = 0;
    uint32_t claimed = 0;  ///< notices

    /// Adds a range of zeroes.
    uint64_t add(size_t more);
    /// nullptr: it is not wholly inside one range.
    [[nodiscard]] std::byte* find(uint64_t offset, size_t length) const;
};

/// As base::Mapping.
class SimMapping {
  public:
    SimMapping() = default;
    SimMapping(std::shared_ptr<SimMemory> of, std::byte* data) : of_(std::move(of)), data_(data) {}
    SimMapping(SimMapping&& other) noexcept
        : of_(std::move(other.of_)), data_(std::exchange(other.data_, nullptr)) {}
    SimMapping& operator=(SimMapping&& other) noexcept {
        std::swap(of_, other.of_);
        std::swap(data_, other.data_);
        return *this;
    }
    ~SimMapping() = default;
    [[nodiscard]] std::byte* data() const { return data_; }
    explicit operator bool() const { return data_ != nullptr; }

  private:
    std::shared_ptr<SimMemory> of_;
    std::byte* data_ = nullptr;
};

/// As base::SharedSegment.
class SimSegment {
  public:
    static constexpr size_t kHeaderBytes = 0;

    SimSegment() = default;
    SimSegment(NodeFabric& fabric, std::shared_ptr<SimMemory> memory) : fabric_(&fabric), memory_(std::move(memory)) {}

    Status grow(size_t bytes, uint64_t& offset, int numa_node = -1, base::Failure* failure = nullptr);
    Status map(uint64_t offset, size_t bytes, SimMapping& out, base::Failure* failure = nullptr) const;
    void announce_ending(base::Ending ending) {
        if (memory_->ending == base::Ending::kNone) memory_->ending = ending;
    }
    [[nodiscard]] base::Ending announced_ending() const { return memory_->ending; }
    void beat(uint64_t now_ns) { memory_->beat_ns = now_ns; }
    [[nodiscard]] uint64_t last_beat_ns() const { return memory_->beat_ns; }
    bool claim_report(base::Notice notice = base::Notice::kEnd) {
        const auto bit = static_cast<uint32_t>(notice);
        return (std::exchange(memory_->claimed, memory_->claimed | bit) & bit) == 0;
    }
    [[nodiscard]] base::SegmentAddress address() const {
        return {.token = memory_->token, .bytes = memory_->bytes, .pid = memory_->pid};
    }
    struct Bytes {
        std::byte* first = nullptr;
        [[nodiscard]] std::byte* data() const { return first; }
    };
    [[nodiscard]] Bytes bytes() const { return {memory_->ranges.front().memory.data()}; }
    explicit operator bool() const { return memory_ != nullptr; }

  private:
    NodeFabric* fabric_ = nullptr;
    std::shared_ptr<SimMemory> memory_;
};

/// For shm::BasicOnNode, in place of shm::NodeMemory. Copied; refers to a process of the cluster.
struct SimNodeMemory {
    using Segment = SimSegment;
    using Mapping = SimMapping;
    /// As base::LifeWatch, of processes by their pid.
    class Life {
      public:
        explicit Life(const SimNodeMemory& node) : fabric_(node.fabric) {}
        Status add(int32_t pid, uint32_t id, base::Failure* failure = nullptr);
        void remove(uint32_t id) { watched_[id].told = true; }
        void poll(std::vector<uint32_t>& ended);

      private:
        struct Watched {
            int32_t pid = 0;
            bool told = true;  ///< or not watched
        };
        NodeFabric* fabric_;
        std::vector<Watched> watched_;
    };

    [[nodiscard]] Segment create(const std::string& label, size_t bytes) const;
    Status attach(const base::SegmentAddress& address, Segment& out, size_t bytes, base::Failure* failure) const;
    [[nodiscard]] uint64_t now_ns() const { return device->clock_ns(); }
    [[nodiscard]] bool exists(int32_t pid) const;
    [[nodiscard]] bool arrived(uint64_t name) const;

    NodeFabric* fabric = nullptr;
    cluster::ClusterDevice* device = nullptr;
};

}  // namespace velo::sim
