#include "velo/os/topology.h"

#include <fcntl.h>
#include <hwloc.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>
#include <system_error>

namespace velo::base {
namespace {

/// A set of NUMA nodes as the kernel takes it; it has at most 1024.
struct NodeSet {
    static constexpr int kNodesMax = 1024;
    static constexpr int kWordBits = 8 * sizeof(unsigned long);
    std::array<unsigned long, kNodesMax / kWordBits> words{};

    [[nodiscard]] bool has(unsigned node) const {
        return node < kNodesMax && (words[node / kWordBits] >> node % kWordBits & 1) != 0;
    }
    void add(int node) { words[node / kWordBits] |= 1ul << node % kWordBits; }
    [[nodiscard]] uint32_t count() const {
        uint32_t nodes = 0;
        for (const unsigned long word : words) nodes += static_cast<uint32_t>(std::popcount(word));
        return nodes;
    }
};
/// The kernel looks at one bit less than it is given.
constexpr unsigned long kMaskBits = NodeSet::kNodesMax + 1;

/// The task's memory policy is not the kernel's own, which takes memory where the task runs.
bool has_policy() {
    int policy = MPOL_DEFAULT;
    if (syscall(SYS_get_mempolicy, &policy, nullptr, 0ul, nullptr, 0ul) != 0) return false;
    return policy != MPOL_DEFAULT && policy != MPOL_LOCAL;
}

struct Bitmap {
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    Bitmap() {
        if (set == nullptr) throw std::bad_alloc();
    }
    Bitmap(const Bitmap&) = delete;
    Bitmap& operator=(const Bitmap&) = delete;
    ~Bitmap() { hwloc_bitmap_free(set); }
};

/// 16 bits are plenty for Linux's CPUs (8192) and nodes.
int16_t number(int index) {
    return index <= std::numeric_limits<int16_t>::max() ? static_cast<int16_t>(index) : int16_t{-1};
}

/// The beginning of a small text file; empty: there is none.
std::string_view read_text(const std::string& path, std::array<char, 4096>& text) {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    const ssize_t length = read(fd, text.data(), text.size());
    close(fd);
    if (length <= 0) return {};
    std::string_view line(text.data(), static_cast<size_t>(length));
    return line.substr(0, line.find('\n'));
}

/// "32768K", "8M" or plain bytes; 0: none of these.
uint64_t size_of(std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{}) return 0;
    const char unit = end == text.data() + text.size() ? '\0' : *end;
    return unit == 'K' ? value << 10 : unit == 'M' ? value << 20 : value;
}

/// Adds what a list such as "0-3,8" names. False: it is none.
bool parse_list(std::string_view text, hwloc_bitmap_t set) {
    const std::string list(text);
    return !list.empty() && hwloc_bitmap_list_sscanf(set, list.c_str()) == 0;
}

/// Adds what `directory` says of the caches of a CPU.
void add_caches(const std::string& directory, const hwloc_bitmap_s& bound, Locality& found) {
    constexpr int kCachesMax = 16;
    std::array<char, 4096> text;
    for (int i = 0; i < kCachesMax; ++i) {
        const std::string cache = directory + "/cache/index" + std::to_string(i) + "/";
        const std::string_view level = read_text(cache + "level", text);
        if (level.empty()) return;
        if (level != "2" && level != "3") continue;
        const bool last = level == "3";
        if (read_text(cache + "type", text) == "Instruction") continue;
        (last ? found.l3_bytes : found.l2_bytes) = size_of(read_text(cache + "size", text));
        const Bitmap sharing;
        if (!last || !parse_list(read_text(cache + "shared_cpu_list", text), sharing.set)) continue;
        found.l3_cpus = static_cast<uint32_t>(hwloc_bitmap_weight(sharing.set));
        if (hwloc_bitmap_iszero(&bound) == 0 && hwloc_bitmap_isincluded(&bound, sharing.set) != 0) {
            found.place.cache = number(hwloc_bitmap_first(sharing.set));
        }
    }
}

/// The CPUs that this thread may run on; empty where the kernel does not tell.
void add_binding(hwloc_bitmap_t set) {
    // 8192 CPUs, more than Linux can be built for.
    std::array<unsigned long, 8192 / (8 * sizeof(unsigned long))> mask{};
    const long bytes = syscall(SYS_sched_getaffinity, 0, sizeof mask, mask.data());
    for (long word = 0; word < bytes / static_cast<long>(sizeof(unsigned long)); ++word) {
        hwloc_bitmap_set_ith_ulong(set, static_cast<unsigned>(word), mask[static_cast<size_t>(word)]);
    }
}

}  // namespace

TopologyPtr load_topology(std::string& why) {
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0) {
        why = std::string("hwloc_topology_init: ") + std::strerror(errno);
        return nullptr;
    }
    TopologyPtr owned(topology, hwloc_topology_destroy);
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    for (const hwloc_obj_type_t kept : {HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE}) {
        hwloc_topology_set_type_filter(topology, kept, HWLOC_TYPE_FILTER_KEEP_ALL);
    }
#if HWLOC_API_VERSION >= 0x00020100
    // It binds the caller to one CPU after the other, to ask each.
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
#endif
#if HWLOC_API_VERSION >= 0x00020800
    hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
                                           HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS);
#endif
    if (hwloc_topology_load(topology) != 0) {
        why = std::string("hwloc_topology_load: ") + std::strerror(errno);
        return nullptr;
    }
    return owned;
}

Locality locality_in(hwloc_topology& topology, const hwloc_bitmap_s& bound,
                     const hwloc_bitmap_s& last) noexcept {
    Locality found;
    found.source = Locality::Source::kHwloc;
    found.cpus = static_cast<uint32_t>(std::max(hwloc_bitmap_weight(hwloc_topology_get_topology_cpuset(&topology)), 0));
    found.numa_nodes =
        static_cast<uint32_t>(std::max(hwloc_get_nbobjs_by_type(&topology, HWLOC_OBJ_NUMANODE), 0));
    const int running = hwloc_bitmap_first(&last);
    const int cpu = running >= 0 ? running : hwloc_bitmap_first(&bound);
    if (cpu < 0) return found;
    const auto index = static_cast<unsigned>(cpu);
    int node_index = std::numeric_limits<int>::max();
    for (hwloc_obj_t node = nullptr;
         (node = hwloc_get_next_obj_by_type(&topology, HWLOC_OBJ_NUMANODE, node)) != nullptr;) {
        if (node->attr->numanode.local_memory != 0 && hwloc_bitmap_isset(node->cpuset, index) != 0) {
            node_index = std::min(node_index, static_cast<int>(node->os_index));
        }
    }
    found.place.numa_node = number(node_index);
    hwloc_obj_t object = hwloc_get_pu_obj_by_os_index(&topology, index);
    for (; object != nullptr; object = object->parent) {
        if (object->type == HWLOC_OBJ_L2CACHE) found.l2_bytes = object->attr->cache.size;
        if (object->type != HWLOC_OBJ_L3CACHE) continue;
        found.l3_bytes = object->attr->cache.size;
        found.l3_cpus = static_cast<uint32_t>(hwloc_bitmap_weight(object->cpuset));
        // Of the complete set, so that processes that may use different CPUs of it name it alike.
        if (hwloc_bitmap_isincluded(&bound, object->cpuset) != 0 && hwloc_bitmap_iszero(&bound) == 0) {
            found.place.cache = number(hwloc_bitmap_first(object->complete_cpuset));
        }
    }
    return found;
}

Locality locality_by_hwloc(hwloc_topology& topology, std::string& why) {
    // Another hwloc's structures would be misread.
    if (hwloc_topology_abi_check(&topology) != 0 ||
        hwloc_get_api_version() >> 16 != HWLOC_API_VERSION >> 16) {
        why = "the topology is of another version of hwloc";
        return {};
    }
    const Bitmap bound;
    const Bitmap last;
    // Either may be unknown: it stays empty, or names no CPU of the topology.
    if (hwloc_get_cpubind(&topology, bound.set, HWLOC_CPUBIND_THREAD) != 0) hwloc_bitmap_zero(bound.set);
    if (hwloc_get_last_cpu_location(&topology, last.set, HWLOC_CPUBIND_THREAD) != 0) {
        hwloc_bitmap_zero(last.set);
    }
    Locality found = locality_in(topology, *bound.set, *last.set);
    found.user_policy = has_policy();
    return found;
}

Locality locality_by_kernel(const char* cpus) {
    Locality found;
    found.source = Locality::Source::kKernel;
    NodeSet allowed;
    if (syscall(SYS_get_mempolicy, nullptr, allowed.words.data(), kMaskBits, nullptr,
                static_cast<unsigned long>(MPOL_F_MEMS_ALLOWED)) == 0) {
        found.numa_nodes = allowed.count();
    }
    const Bitmap online;
    std::array<char, 4096> text;
    if (parse_list(read_text(std::string(cpus) + "/online", text), online.set)) {
        found.cpus = static_cast<uint32_t>(std::max(hwloc_bitmap_weight(online.set), 0));
    }
    unsigned cpu = 0;
    unsigned node = 0;
    if (syscall(SYS_getcpu, &cpu, &node, nullptr) == 0) {
        // A node without memory, or whose memory is forbidden, is not one to put anything on.
        if (allowed.has(node)) found.place.numa_node = number(static_cast<int>(node));
        const Bitmap bound;
        add_binding(bound.set);
        add_caches(std::string(cpus) + "/cpu" + std::to_string(cpu), *bound.set, found);
    }
    found.user_policy = has_policy();
    return found;
}

bool prefer_node(std::byte* memory, size_t bytes, int node) noexcept {
    if (node < 0 || node >= NodeSet::kNodesMax) return false;
    NodeSet nodes;
    nodes.add(node);
    // Preferred, not bound: with a bound range a full node ends the process.
    return syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes.words.data(), kMaskBits,
                   static_cast<unsigned>(MPOL_MF_MOVE)) == 0;
}

}  // namespace velo::base
