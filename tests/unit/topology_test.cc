/// Localities of synthetic machines, and that what is placed is placed.
#include "velo/os/topology.h"

#include <gtest/gtest.h>
#include <hwloc.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/numa.h"
#include "velo/os/shared_segment.h"

namespace velo::base {
namespace {

/// A set of CPUs or nodes, as hwloc writes it: "0-3,8"; "": none.
struct Set {
    hwloc_bitmap_t bits = hwloc_bitmap_alloc();
    explicit Set(const char* list) { hwloc_bitmap_list_sscanf(bits, list); }
    Set(const Set&) = delete;
    Set& operator=(const Set&) = delete;
    ~Set() { hwloc_bitmap_free(bits); }
};

struct Machine {
    TopologyPtr topology;

    explicit Machine(const char* description) {
        hwloc_topology_t made = nullptr;
        hwloc_topology_init(&made);
        topology = {made, hwloc_topology_destroy};
        EXPECT_EQ(hwloc_topology_set_synthetic(made, description), 0) << description;
        EXPECT_EQ(hwloc_topology_load(made), 0) << description;
    }
    [[nodiscard]] Locality locality(const char* bound, const char* last) const {
        return locality_in(*topology, *Set(bound).bits, *Set(last).bits);
    }
    /// The rest in a cgroup with these CPUs, or with these nodes.
    void restrict_to(const char* list, unsigned long flags) {
        ASSERT_EQ(hwloc_topology_restrict(topology.get(), Set(list).bits, flags), 0);
    }
};

/// Two nodes, each with two L3 of 8 MiB, each of four cores with 512 KiB of L2; CPUs 0-7 and 8-15.
constexpr const char* kTwoNodes = "numa:2 l3:2(size=8388608) l2:4(size=524288) pu:1";

TEST(Locality, a_bound_process_is_where_it_is_bound) {
    const Locality found = Machine(kTwoNodes).locality("12-13", "12");
    EXPECT_EQ(found.source, Locality::Source::kHwloc);
    EXPECT_EQ(found.cpus, 16u) << "those of others, too";
    EXPECT_EQ(found.numa_nodes, 2u);
    EXPECT_EQ(found.place.numa_node, 1);
    EXPECT_EQ(found.place.cache, 12);
    EXPECT_EQ(found.l2_bytes, 524288u);
    EXPECT_EQ(found.l3_bytes, 8388608u);
    EXPECT_EQ(found.l3_cpus, 4u);
}

TEST(Locality, one_that_is_not_bound_to_a_cache_names_none_and_has_the_node_it_ran_on) {
    const Locality found = Machine(kTwoNodes).locality("0-15", "9");
    EXPECT_EQ(found.place.numa_node, 1);
    EXPECT_EQ(found.place.cache, -1);
    EXPECT_EQ(found.l3_bytes, 8388608u);
}

TEST(Locality, without_a_last_location_the_binding_says_it) {
    EXPECT_EQ(Machine(kTwoNodes).locality("9", "").place.numa_node, 1);
}

TEST(Locality, a_process_that_nothing_is_known_of_is_nowhere) {
    const Locality found = Machine(kTwoNodes).locality("", "");
    EXPECT_EQ(found.place.numa_node, -1);
    EXPECT_EQ(found.place.cache, -1);
    EXPECT_EQ(found.l2_bytes, 0u);
    EXPECT_EQ(Machine(kTwoNodes).locality("0-99", "99").place.numa_node, -1) << "no such CPU";
}

TEST(Locality, a_machine_without_L3_has_no_L3) {
    const Locality found = Machine("numa:1 l2:2(size=1048576) pu:2").locality("0", "0");
    EXPECT_EQ(found.numa_nodes, 1u);
    EXPECT_EQ(found.place.numa_node, 0);
    EXPECT_EQ(found.place.cache, -1);
    EXPECT_EQ(found.l2_bytes, 1048576u);
    EXPECT_EQ(found.l3_bytes, 0u);
    EXPECT_EQ(found.l3_cpus, 0u);
}

TEST(Locality, of_nodes_with_the_same_CPUs_the_one_of_ordinary_memory_is_taken) {
    // Memory of two kinds: nodes 0 and 1 in the first package, 2 and 3 in the second.
    const Machine machine(
        "package:2 [numa(memory=1073741824)] l3:1(size=8388608) [numa(memory=1073741824)] pu:4");
    EXPECT_EQ(machine.locality("1", "1").numa_nodes, 4u);
    EXPECT_EQ(machine.locality("1", "1").place.numa_node, 0);
    EXPECT_EQ(machine.locality("5", "5").place.numa_node, 2);
}

TEST(Locality, a_node_without_memory_is_not_one_to_put_anything_on) {
    const Machine machine(
        "package:1 [numa(indexes=1 memory=1073741824)] group:1 [numa(indexes=0 memory=0)] pu:2");
    EXPECT_EQ(machine.locality("0", "0").place.numa_node, 1);
}

TEST(Locality, in_a_cgroup_a_cache_has_the_CPUs_that_are_left) {
    Machine machine(kTwoNodes);
    machine.restrict_to("5-7,8-15", 0);
    const Locality found = machine.locality("5", "5");
    EXPECT_EQ(machine.locality("5-7", "5").place.cache, machine.locality("7", "7").place.cache);
    EXPECT_EQ(found.l3_cpus, 3u);
    EXPECT_EQ(found.cpus, 11u);
    EXPECT_EQ(found.place.numa_node, 0);
}

TEST(Locality, in_a_cgroup_without_the_nodes_memory_a_process_has_no_node) {
    Machine machine(kTwoNodes);
    machine.restrict_to("1", HWLOC_RESTRICT_FLAG_BYNODESET);
    const Locality found = machine.locality("3", "3");
    EXPECT_EQ(found.numa_nodes, 1u);
    EXPECT_EQ(found.place.numa_node, -1);
    EXPECT_EQ(machine.locality("8", "8").place.numa_node, 1);
}

TEST(Nearness, it_is_told_by_the_nearest_thing_that_is_shared) {
    EXPECT_EQ(nearness({0, 4}, {0, 4}), Nearness::kSameCache);
    EXPECT_EQ(nearness({0, 0}, {0, 4}), Nearness::kSameNode);
    EXPECT_EQ(nearness({0, -1}, {0, -1}), Nearness::kSameNode);
    EXPECT_EQ(nearness({0, 0}, {1, 8}), Nearness::kOtherNode);
    EXPECT_EQ(nearness({0, 0}, {-1, -1}), Nearness::kUnknown);
    EXPECT_EQ(nearness({}, {}), Nearness::kUnknown);
}

/// The kernel's description of the CPU that this process runs on, whichever that is.
class Sysfs {
  public:
    Sysfs() {
        std::string name = "/tmp/velo-topology-XXXXXX";
        root_ = mkdtemp(name.data());
        const long cpus = sysconf(_SC_NPROCESSORS_CONF);
        for (long cpu = 0; cpu < cpus; ++cpu) {
            const std::filesystem::path caches = root_ / ("cpu" + std::to_string(cpu)) / "cache";
            cache(caches / "index0", "1", "Instruction", "32K", "0");
            cache(caches / "index1", "2", "Unified", "2M", "0");
            cache(caches / "index2", "3", "Unified", "49152K", "0-8191");
            cache(caches / "index3", "2", "Instruction", "4096K", "0");
        }
    }
    Sysfs(const Sysfs&) = delete;
    Sysfs& operator=(const Sysfs&) = delete;
    ~Sysfs() { std::filesystem::remove_all(root_); }
    [[nodiscard]] std::string path() const { return root_; }

  private:
    static void cache(const std::filesystem::path& at, const char* level, const char* type, const char* size,
                      const char* sharing) {
        std::filesystem::create_directories(at);
        std::ofstream(at / "level") << level << "\n";
        std::ofstream(at / "type") << type << "\n";
        std::ofstream(at / "size") << size << "\n";
        std::ofstream(at / "shared_cpu_list") << sharing << "\n";
    }
    std::filesystem::path root_;
};

TEST(LocalityByKernel, caches_are_read_as_sysfs_writes_them) {
    const Sysfs sysfs;
    const Locality found = locality_by_kernel(sysfs.path().c_str());
    EXPECT_EQ(found.source, Locality::Source::kKernel);
    EXPECT_EQ(found.l2_bytes, 2u << 20);
    EXPECT_EQ(found.l3_bytes, 48u << 20);
    EXPECT_EQ(found.l3_cpus, 8192u);
    EXPECT_EQ(found.place.cache, 0);
}

TEST(LocalityByKernel, where_sysfs_is_missing_caches_are_unknown) {
    const Locality found = locality_by_kernel("/nonexistent");
    EXPECT_EQ(found.cpus, 0u);
    EXPECT_EQ(found.l2_bytes, 0u);
    EXPECT_EQ(found.l3_bytes, 0u);
    EXPECT_EQ(found.place.cache, -1);
}

TEST(LocalityByKernel, hwloc_says_the_same_of_this_machine) {
    std::string why;
    const TopologyPtr topology = load_topology(why);
    ASSERT_NE(topology, nullptr) << why;
    const Locality one = locality_by_hwloc(*topology, why);
    const Locality other = locality_by_kernel();
    EXPECT_EQ(why, "");
    EXPECT_EQ(one.cpus, other.cpus);
    EXPECT_EQ(one.numa_nodes, other.numa_nodes);
    EXPECT_EQ(one.l2_bytes, other.l2_bytes);
    EXPECT_EQ(one.l3_bytes, other.l3_bytes);
    EXPECT_EQ(one.l3_cpus, other.l3_cpus);
    EXPECT_EQ(one.place.cache, other.place.cache);
    EXPECT_EQ(one.user_policy, other.user_policy);
}

TEST(PreferNode, a_grown_part_remembers_its_node_for_everybody) {
    const int here = locality_by_kernel().place.numa_node;
    SharedSegment segment = SharedSegment::create("velo-test", 4096);
    uint64_t offset = 0;
    Mapping probe;
    ASSERT_EQ(segment.grow(8192, offset), Status::kOk);
    ASSERT_EQ(segment.map(offset, 8192, probe), Status::kOk);
    // If the kernel may not be asked, or has no NUMA, nothing can be placed, and nothing fails.
    const bool told = here >= 0 && prefer_node(probe.data(), 8192, here);
    uint64_t placed = 0;
    ASSERT_EQ(segment.grow(1u << 20, placed, here), Status::kOk);
    EXPECT_EQ(placed, offset + 8192);
    SharedSegment attached;
    Mapping mapping;
    ASSERT_EQ(SharedSegment::attach(segment.address(), attached), Status::kOk);
    ASSERT_EQ(attached.map(placed, 1u << 20, mapping), Status::kOk);
    mapping.data()[(1u << 20) - 1] = std::byte{1};
    EXPECT_EQ(test::preferred_node(mapping.data()), told ? here : -1);
}

TEST(PreferNode, a_node_that_does_not_exist_is_refused_and_memory_is_had_all_the_same) {
    SharedSegment segment = SharedSegment::create("velo-test", 4096);
    for (const int node : {1023, 1024, 32767}) {
        uint64_t offset = 0;
        Mapping mapping;
        ASSERT_EQ(segment.grow(8192, offset, node), Status::kOk);
        ASSERT_EQ(segment.map(offset, 8192, mapping), Status::kOk);
        EXPECT_FALSE(prefer_node(mapping.data(), 8192, node));
        mapping.data()[8191] = std::byte{1};
    }
}

}  // namespace
}  // namespace velo::base
