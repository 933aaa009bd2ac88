/// Place of this process: its NUMA node, its caches, and how near others are.
///
/// Two sources say it: hwloc, where a topology is loaded already (Open MPI's) or wanted at any price, because
/// to load one costs milliseconds in every rank, more the more CPUs there are; and otherwise the kernel,
/// asked about the CPU that the process runs on only, which takes a tenth of a millisecond on any machine.
///
/// Thread: any. Facts that cannot be found out are unknown, and memory that cannot be placed stays where it is; but for
/// want of memory (std::bad_alloc) nothing here fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

struct hwloc_topology;
struct hwloc_bitmap_s;

namespace velo::base {

/// A process's place, as others need to know it. Flat: part of what it publishes. -1: unknown.
struct Place {
    int16_t numa_node = -1;  ///< the kernel's number
    /// The lowest CPU number of those that share its last cache; -1 also where it is not bound to them.
    int16_t cache = -1;
};

enum class Nearness : uint8_t { kUnknown, kSameCache, kSameNode, kOtherNode };

[[nodiscard]] constexpr Nearness nearness(Place one, Place other) {
    if (one.cache >= 0 && one.cache == other.cache) return Nearness::kSameCache;
    if (one.numa_node < 0 || other.numa_node < 0) return Nearness::kUnknown;
    return one.numa_node == other.numa_node ? Nearness::kSameNode : Nearness::kOtherNode;
}

struct Locality {
    enum class Source : uint8_t { kNone, kKernel, kHwloc };

    Source source = Source::kNone;
    Place place;
    uint32_t cpus = 0;        ///< of the machine that its processes may run on, bound or not; 0: unknown
    uint32_t numa_nodes = 0;  ///< that this process may have memory on; 0: unknown
    uint64_t l2_bytes = 0;    ///< of its core; 0: unknown, or there is none
    uint64_t l3_bytes = 0;    ///< the whole
    uint32_t l3_cpus = 0;     ///< that share it; 0: unknown
    /// The user placed the memory (numactl, Open MPI's mem_alloc_policy).
    bool user_policy = false;
};

using TopologyPtr = std::shared_ptr<hwloc_topology>;

/// Loads caches and NUMA nodes of this machine, nothing else. Null: `why` says why not.
[[gnu::cold]] TopologyPtr load_topology(std::string& why);

/// A topology's facts about a process that is bound to `bound` and ran on `last` when it was looked (either
/// may be empty). Of several NUMA nodes of the same CPUs the one with the lowest number, which is ordinary
/// memory where the others are special. Pure; leaves user_policy alone.
Locality locality_in(hwloc_topology& topology, const hwloc_bitmap_s& bound,
                     const hwloc_bitmap_s& last) noexcept;

/// The place of this process, by a topology of this machine. `why` says what kept it from being found.
[[gnu::cold]] Locality locality_by_hwloc(hwloc_topology& topology, std::string& why);

/// The place of this process, by the kernel's word. `cpus`: where it describes CPUs, as in Linux's sysfs.
[[gnu::cold]] Locality locality_by_kernel(const char* cpus = "/sys/devices/system/cpu");

/// Asks the kernel to take the pages of a range from a NUMA node while it has free ones, and to move those
/// that are elsewhere and no other process has mapped. Of a shared file this holds for all who map it. False: it
/// does not do that here.
bool prefer_node(std::byte* memory, size_t bytes, int node) noexcept;

}  // namespace velo::base
