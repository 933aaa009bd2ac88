#include "velo/os/shared_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "velo/os/topology.h"

namespace velo::base {
namespace {

constexpr uint64_t kMagic = 0x76656c6f73656731;  // "veloseg1"
constexpr size_t kPage = 4096;

struct SegmentHeader {
    uint64_t magic;
    uint64_t token;
    uint32_t ending;
    uint32_t told;
    uint64_t beat_ns;
};

SegmentHeader& header_of(const Mapping& mapping) {
    return *reinterpret_cast<SegmentHeader*>(mapping.data());
}

/// Requests that would not be refused but punished, as an errno: beyond the limit of a file's size (ulimit -f) the
/// kernel sends SIGXFSZ, which ends the process; and asked for more memory than there is, it takes all there
/// is, and then ends processes to find the rest.
int forbidden(uint64_t offset, uint64_t bytes) noexcept {
    constexpr uint64_t kAlwaysTried = uint64_t{64} << 20;
    if (bytes > kAlwaysTried) {
        std::FILE* info = std::fopen("/proc/meminfo", "re");
        if (info == nullptr) return ENOMEM;
        char line[128];
        unsigned long long available_kib = 0;
        while (std::fgets(line, sizeof line, info) != nullptr) {
            if (std::sscanf(line, "MemAvailable: %llu", &available_kib) == 1) break;
        }
        std::fclose(info);
        if (bytes / 1024 >= available_kib) return ENOMEM;
    }
    rlimit file_size = {};
    if (getrlimit(RLIMIT_FSIZE, &file_size) == 0 && offset + bytes > file_size.rlim_cur) return EFBIG;
    return 0;
}

int allocate(int fd, uint64_t offset, uint64_t bytes) noexcept {
    if (const int error = forbidden(offset, bytes); error != 0) return error;
    return posix_fallocate(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

/// A descriptor that closes itself.
struct Descriptor {
    int fd = -1;

    explicit Descriptor(int fd) : fd(fd) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    ~Descriptor() {
        if (fd >= 0) close(fd);
    }
};

constexpr const char* kOtherFile = "/proc/PID/fd of the peer holds another file than it published";
constexpr const char* kOtherUser = "the peer's shared memory belongs to another user";

/// nullptr: it is the segment, and this user's.
const char* mismatch(const struct stat& info, const SegmentAddress& address) {
    if (!S_ISREG(info.st_mode) || static_cast<uint64_t>(info.st_ino) != address.inode) return kOtherFile;
    return info.st_uid == geteuid() ? nullptr : kOtherUser;
}

Status fail(Failure* failure, Status status, const char* call, int error) {
    if (failure != nullptr) *failure = {.call = call, .error = error};
    return status;
}

/// Opens the file behind an address and checks that it is that file, ours, and at least `bytes` long.
Status open_file(const SegmentAddress& address, uint64_t bytes, Descriptor& file, uint64_t& file_bytes,
                 Failure* failure) {
    char path[48];
    std::snprintf(path, sizeof path, "/proc/%d/fd/%d", address.pid, address.fd);
    struct stat info = {};
    // An address that is wrong may name anything, and some things do not like to be opened.
    if (stat(path, &info) != 0) return fail(failure, Status::kUnsupported, "stat of /proc/PID/fd", errno);
    if (const char* why = mismatch(info, address)) return fail(failure, Status::kUnsupported, why, 0);
    file.fd = open(path, O_RDWR | O_CLOEXEC);
    if (file.fd < 0) return fail(failure, Status::kUnsupported, "open of /proc/PID/fd", errno);
    if (fstat(file.fd, &info) != 0) return fail(failure, Status::kUnsupported, "fstat", errno);
    file_bytes = static_cast<uint64_t>(info.st_size);
    if (mismatch(info, address) != nullptr || file_bytes < bytes) {
        return fail(failure, Status::kUnsupported, kOtherFile, 0);
    }
    return Status::kOk;
}

}  // namespace

void prefault(std::byte* memory, size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
    const auto begin = reinterpret_cast<uintptr_t>(memory) / kPage * kPage;
    const auto end = round_up(reinterpret_cast<uintptr_t>(memory) + bytes, kPage);
    (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE);
#else
    (void)memory;
    (void)bytes;
#endif
}

uint64_t own_namespaces() noexcept {
    // The kernel numbers namespaces with 32 bits.
    const auto number = [](const char* path) -> uint64_t {
        struct stat info = {};
        return stat(path, &info) == 0 ? static_cast<uint32_t>(info.st_ino) : 0;
    };
    return number("/proc/self/ns/pid") << 32 | number("/proc/self/ns/user");
}

uint64_t host_identity() noexcept {
    char boot[64] = "";
    if (const Descriptor file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC)); file.fd >= 0) {
        if (read(file.fd, boot, sizeof boot - 1) < 0) boot[0] = '\0';
    }
    utsname system = {};
    if (uname(&system) != 0 || boot[0] == '\0') return 0;
    // FNV-1a: equal everywhere, whichever library the processes were built with.
    uint64_t hash = 14695981039346656037u;
    const char* const texts[] = {boot, system.nodename};
    for (const char* text : texts) {
        for (; *text != '\0'; ++text) hash = (hash ^ static_cast<unsigned char>(*text)) * 1099511628211u;
    }
    return hash;
}

Mapping::~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
}

Mapping Mapping::zeroed(size_t bytes) {
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    Mapping mapping;
    mapping.data_ = static_cast<std::byte*>(memory);
    mapping.bytes_ = bytes;
    return mapping;
}

Status Mapping::map(int fd, uint64_t offset, size_t bytes, Mapping& out) noexcept {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
    if (data == MAP_FAILED) return Status::kNoResource;
    // A child of fork() that wrote here would speak with our voice.
    madvise(data, bytes, MADV_DONTFORK);
    Mapping mapping;
    mapping.data_ = static_cast<std::byte*>(data);
    mapping.bytes_ = bytes;
    out = std::move(mapping);
    return Status::kOk;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      file_bytes_(std::exchange(other.file_bytes_, 0)),
      mapping_(std::move(other.mapping_)),
      address_(std::exchange(other.address_, {})) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(file_bytes_, other.file_bytes_);
    std::swap(mapping_, other.mapping_);
    std::swap(address_, other.address_);
    return *this;
}

SharedSegment::~SharedSegment() {
    if (fd_ >= 0) close(fd_);
}

SharedSegment SharedSegment::create(const std::string& label, size_t bytes) {
    SharedSegment segment;
    bytes = round_up(bytes < kHeaderBytes ? kHeaderBytes : bytes, kPage);
    const auto fail = [&](const char* step, int error) -> SetupError {
        const Failure failure = {.call = step, .error = error};
        return SetupError("cannot create " + std::to_string(bytes) + " bytes of shared memory for " + label +
                          ": " + to_text(failure) + ". " + remedy(failure));
    };
    segment.fd_ = memfd_create(label.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (segment.fd_ < 0) throw fail("memfd_create", errno);
    // A file that another process of the user truncates would be SIGBUS in every process that has it mapped.
    if (fcntl(segment.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) throw fail("F_ADD_SEALS", errno);
    if (fchmod(segment.fd_, S_IRUSR | S_IWUSR) != 0) throw fail("fchmod", errno);
    if (const int error = allocate(segment.fd_, 0, bytes); error != 0) throw fail("posix_fallocate", error);
    if (Mapping::map(segment.fd_, 0, bytes, segment.mapping_) != Status::kOk) throw fail("mmap", errno);
    struct stat info = {};
    if (fstat(segment.fd_, &info) != 0) throw fail("fstat", errno);
    segment.file_bytes_ = bytes;
    segment.address_ = {.token = random_token(),
                        .inode = static_cast<uint64_t>(info.st_ino),
                        .bytes = bytes,
                        .namespaces = own_namespaces(),
                        .pid = getpid(),
                        .fd = segment.fd_};
    const SegmentHeader header = {
        .magic = kMagic, .token = segment.address_.token, .ending = 0, .told = 0, .beat_ns = 0};
    std::memcpy(segment.mapping_.data(), &header, sizeof header);
    return segment;
}

Status SharedSegment::attach(const SegmentAddress& address, SharedSegment& out, size_t bytes,
                             Failure* failure) noexcept {
    if (address.pid <= 0 || address.fd < 0 || address.bytes < kHeaderBytes) return Status::kBadParam;
    if (bytes == 0) bytes = address.bytes;
    if (bytes < kHeaderBytes || bytes > address.bytes) return Status::kBadParam;
    if (address.namespaces != own_namespaces()) {
        return fail(failure, Status::kUnsupported, "the peer is in another PID or user namespace", 0);
    }
    Descriptor file(-1);
    SharedSegment segment;
    const Status opened = open_file(address, bytes, file, segment.file_bytes_, failure);
    if (opened != Status::kOk) return opened;
    if (const Status status = Mapping::map(file.fd, 0, bytes, segment.mapping_); status != Status::kOk) {
        return fail(failure, status, "mmap", errno);
    }
    SegmentHeader header;
    std::memcpy(&header, segment.mapping_.data(), sizeof header);
    if (header.magic != kMagic || header.token != address.token) {
        return fail(failure, Status::kUnsupported,
                    "the peer's shared memory has another token than it published", 0);
    }
    segment.address_ = address;
    out = std::move(segment);
    return Status::kOk;
}

void SharedSegment::announce_ending(Ending ending) noexcept {
    auto none = static_cast<uint32_t>(Ending::kNone);
    // Pairs with announced_ending() in those that find the process gone.
    std::atomic_ref(header_of(mapping_).ending)
        .compare_exchange_strong(none, static_cast<uint32_t>(ending), std::memory_order_release,
                                 std::memory_order_relaxed);
}

Ending SharedSegment::announced_ending() const noexcept {
    if (!mapping_) return Ending::kNone;
    const uint32_t word = std::atomic_ref(header_of(mapping_).ending).load(std::memory_order_acquire);
    return word <= static_cast<uint32_t>(Ending::kFollowed) ? static_cast<Ending>(word) : Ending::kNone;
}

void SharedSegment::beat(uint64_t now_ns) noexcept {
    std::atomic_ref(header_of(mapping_).beat_ns).store(now_ns, std::memory_order_relaxed);
}

uint64_t SharedSegment::last_beat_ns() const noexcept {
    if (!mapping_) return 0;
    return std::atomic_ref(header_of(mapping_).beat_ns).load(std::memory_order_relaxed);
}

bool SharedSegment::claim_report(Notice notice) noexcept {
    const auto bit = static_cast<uint32_t>(notice);
    return mapping_ &&
           (std::atomic_ref(header_of(mapping_).told).fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

Status SharedSegment::grow(size_t bytes, uint64_t& offset, int numa_node, Failure* failure) noexcept {
    bytes = round_up(bytes, kPage);
    if (numa_node >= 0 && forbidden(file_bytes_, bytes) == 0) {
        // A file remembers the node of a range, and gets it before the pages exist.
        Mapping range;
        struct stat info = {};
        const auto end = static_cast<off_t>(file_bytes_ + bytes);
        // An earlier try may have left the file longer.
        if (fstat(fd_, &info) == 0 && (info.st_size >= end || ftruncate(fd_, end) == 0) &&
            Mapping::map(fd_, file_bytes_, bytes, range) == Status::kOk) {
            prefer_node(range.data(), bytes, numa_node);
        }
    }
    if (const int error = allocate(fd_, file_bytes_, bytes); error != 0) {
        // The file may have become longer, which is sealed; no page behind file_bytes_ exists.
        return fail(failure, Status::kNoResource, "posix_fallocate", error);
    }
    offset = file_bytes_;
    file_bytes_ += bytes;
    return Status::kOk;
}

Status SharedSegment::map(uint64_t offset, size_t bytes, Mapping& out, Failure* failure) const noexcept {
    uint64_t size = file_bytes_;
    Descriptor opened(-1);
    if (fd_ < 0) {
        // The owner may have grown it since it was attached; it never shrinks.
        const Status status = open_file(address_, 0, opened, size, failure);
        if (status != Status::kOk) return status;
    }
    if (bytes == 0 || offset % kPage != 0 || offset > size || bytes > size - offset) {
        return fail(failure, Status::kBadParam, "the range is outside the peer's shared memory", 0);
    }
    const Status status = Mapping::map(fd_ < 0 ? opened.fd : fd_, offset, bytes, out);
    return status == Status::kOk ? status : fail(failure, status, "mmap", errno);
}

}  // namespace velo::base
