/// Memory that processes of one node share.
///
/// A segment is an anonymous memory file (memfd): it has no name in any file system, so no other user can
/// be in its way, a full /dev/shm does not matter, and the kernel frees it when its last process ends,
/// however that process ends. A peer attaches through the creator's /proc entry, with what the creator
/// published (SegmentAddress), and checks the token before it believes a byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "velo/base/status.h"
#include "velo/os/failure.h"

namespace velo::base {

/// Thrown in set-up only; the text is a whole sentence for the user.
class SetupError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// The owner's own announcement of its end. An owner that is gone without one has died.
enum class Ending : uint32_t {
    kNone = 0,
    kClosed,    ///< it has no more to say
    kFollowed,  ///< it could not go on, because another process died or for a reason that it printed
};

/// Reports that one process makes for all.
enum class Notice : uint32_t {
    kEnd = 1u << 0,           ///< the segment's owner has died
    kDeniedCopies = 1u << 1,  ///< on the node whose first process owns the segment
};

/// Place of a segment. Flat, so that it can be published as bytes.
struct SegmentAddress {
    uint64_t token = 0;  ///< random; equal to the one in the segment's header
    uint64_t inode = 0;
    uint64_t bytes = 0;  ///< size at creation; the segment may have grown since
    uint64_t namespaces = 0;  ///< base::own_namespaces() of its creator
    int32_t pid = 0;
    int32_t fd = -1;
};
static_assert(sizeof(SegmentAddress) == 40);

/// A mapped range of a segment. Owner: whoever holds the object; unmaps at destruction.
class Mapping {
  public:
    Mapping() = default;
    Mapping(Mapping&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Mapping& operator=(Mapping&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~Mapping();

    /// Maps [offset, offset + bytes) of `fd`, shared and not inherited by fork. kNoResource: errno says why.
    static Status map(int fd, uint64_t offset, size_t bytes, Mapping& out) noexcept;

    /// Zeroed memory of this process alone, whose pages are allocated as they are written. Throws std::bad_alloc.
    static Mapping zeroed(size_t bytes);

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] size_t bytes() const { return bytes_; }
    explicit operator bool() const { return data_ != nullptr; }

  private:
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
};

/// Creator's or attacher's handle of a segment. The first kHeaderBytes belong to this class.
class SharedSegment {
  public:
    static constexpr size_t kHeaderBytes = 4096;

    SharedSegment() = default;
    SharedSegment(SharedSegment&& other) noexcept;
    SharedSegment& operator=(SharedSegment&& other) noexcept;
    ~SharedSegment();

    /// Creates a segment of `bytes` (rounded up to pages, header included), every page allocated, so that
    /// no later access can fail for want of memory. Throws SetupError.
    [[gnu::cold]] static SharedSegment create(const std::string& label, size_t bytes);

    /// Opens a peer's segment and maps its first `bytes` (0: its size at creation). No descriptor stays open,
    /// so that a process can have as many peers as it likes.
    /// kUnsupported: no such process or file, another user's, or the token differs; kNoResource: it cannot be
    /// mapped. `failure` then says why.
    [[gnu::cold]] static Status attach(const SegmentAddress& address, SharedSegment& out, size_t bytes = 0,
                                       Failure* failure = nullptr) noexcept;

    /// Creator only: appends `bytes` (rounded up to pages), allocated, and returns where they begin. They are
    /// taken from `numa_node` if it has them and the kernel lets that be chosen; -1: wherever. kNoResource:
    /// `failure` says why, and nothing changed.
    Status grow(size_t bytes, uint64_t& offset, int numa_node = -1, Failure* failure = nullptr) noexcept;

    /// Maps a range anywhere in the segment. kBadParam: it is not wholly inside the file; kUnsupported: the
    /// file cannot be opened, because its creator has ended or for what `failure` says; kNoResource likewise.
    Status map(uint64_t offset, size_t bytes, Mapping& out, Failure* failure = nullptr) const noexcept;

    /// Owner only: what those who find it gone are to make of that. The first word other than kNone stays.
    void announce_ending(Ending ending) noexcept;
    [[nodiscard]] Ending announced_ending() const noexcept;
    /// Owner only, now and then: it is in progress. Others read when it was last (CLOCK_MONOTONIC; 0: never).
    void beat(uint64_t now_ns) noexcept;
    [[nodiscard]] uint64_t last_beat_ns() const noexcept;
    /// True for the first of all processes that asks.
    bool claim_report(Notice notice = Notice::kEnd) noexcept;

    [[nodiscard]] const SegmentAddress& address() const { return address_; }
    [[nodiscard]] std::span<std::byte> bytes() const { return {mapping_.data(), mapping_.bytes()}; }
    explicit operator bool() const { return static_cast<bool>(mapping_); }

  private:
    int fd_ = -1;  ///< the creator's
    uint64_t file_bytes_ = 0;
    Mapping mapping_;
    SegmentAddress address_;
};

/// Maps the pages of a range that exist already, at once instead of one fault a page. Only a hint: kernels
/// before 5.14 do not know it.
void prefault(std::byte* memory, size_t bytes) noexcept;

/// Names the PID and the user namespace of this process, by their inodes; 0 where /proc does not tell. Processes of one
/// host with the same two can open each other's /proc entries, if they are of one user. A PID of another namespace is
/// another process here; and of two user namespaces, at most one has the right to look into the other.
uint64_t own_namespaces() noexcept;

/// Names the running system of this host, by its boot and its name; 0 where neither can be read. Processes
/// that find the same one here can reach each other's /proc, unless own_namespaces() differs.
uint64_t host_identity() noexcept;

/// 64 random bits from the kernel, never 0.
uint64_t random_token() noexcept;

[[nodiscard]] constexpr size_t round_up(size_t value, size_t alignment) noexcept {
    return (value + alignment - 1) / alignment * alignment;
}

}  // namespace velo::base
