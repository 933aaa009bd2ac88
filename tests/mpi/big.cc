// Messages and one-sided transfers past 2^31 and 2^32 bytes, in counts, datatypes, offsets and displacements.
//
// Buffers of that size are one small file mapped again and again, so they take no memory to speak of. Its
// length divides no power of two, so that an offset that lost its upper bits shows. Around the offsets where
// that would happen, pages of their own are mapped, whose content occurs nowhere else.
#include <sys/mman.h>

#include <algorithm>

#include "mpi_test.h"

namespace {

using mpi_test::Check;
using mpi_test::mix;
using mpi_test::pattern_word;
using mpi_test::Suite;

constexpr int kTag = 3;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kGiB = std::size_t{1} << 30;
constexpr std::size_t kPeriod = 60 * kMiB;
constexpr std::size_t kOwnBytes = 16 * kPage;  ///< at each of the places that have pages of their own

/// A large buffer that takes little memory. Its end, and what lies around 2 and 4 GiB, is its own; the rest
/// repeats.
class RepeatedBuffer {
  public:
    explicit RepeatedBuffer(std::size_t bytes) : bytes_(bytes) {
        const std::size_t length = (bytes + kPage - 1) / kPage * kPage;
        mapped_ = length + kPage;
        const int fd = memfd_create("big", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, kPeriod) != 0) fatal("memfd");
        // The page after the end cannot be touched.
        memory_ = static_cast<std::byte*>(
            mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (memory_ == MAP_FAILED) fatal("address space");
        for (std::size_t at = 0; at < length; at += kPeriod) {
            map_at(at, std::min(kPeriod, length - at), fd);
        }
        close(fd);
        for (const std::size_t centre : {std::size_t{0}, 2 * kGiB, 4 * kGiB, length}) {
            const std::size_t begin = centre < kOwnBytes / 2 ? 0 : centre - kOwnBytes / 2;
            if (begin >= length) continue;
            own_.push_back(begin);
            map_at(begin, std::min(kOwnBytes, length - begin), -1);
        }
    }
    ~RepeatedBuffer() { munmap(memory_, mapped_); }
    RepeatedBuffer(const RepeatedBuffer&) = delete;
    RepeatedBuffer& operator=(const RepeatedBuffer&) = delete;

    [[nodiscard]] std::byte* data() const { return memory_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

    /// Content by which offsets can be distinguished: everywhere within a period, and in the own pages over
    /// all.
    void fill(std::uint64_t key) {
        store(0, std::min(kPeriod, bytes_), key);
        for (const std::size_t begin : own_)
            store(begin, std::min(begin + kOwnBytes, bytes_), mix(key + begin));
    }
    void clear() {
        std::memset(memory_, 0, std::min(kPeriod, bytes_));
        for (const std::size_t begin : own_)
            std::memset(memory_ + begin, 0, std::min(kOwnBytes, bytes_ - begin));
    }

    /// First offset whose word is not what fill(key) puts there; bytes() if there is none. All own pages are
    /// looked at, one whole period, and of the others a sample. Only words that `part` accepts count.
    template <class Part>
    [[nodiscard]] std::size_t first_wrong(std::uint64_t key, Part part) const {
        for (const std::size_t begin : own_) {
            const std::size_t end = std::min(begin + kOwnBytes, bytes_);
            for (std::size_t at = begin; at + 8 <= end; at += 8) {
                if (part(at) && word(at) != pattern_word(mix(key + begin), (at - begin) / 8)) return at;
            }
        }
        // The first period, behind its own pages, shows what arrived at any of its aliases.
        for (std::size_t at = kOwnBytes; at + 8 <= std::min(kPeriod, bytes_ - kOwnBytes); at += 8) {
            if (part(at) && word(at) != pattern_word(key, at / 8)) return at;
        }
        return bytes_;
    }

  private:
    [[noreturn]] static void fatal(const char* what) {
        std::perror(what);
        MPI_Abort(MPI_COMM_WORLD, 2);
        std::abort();
    }
    void map_at(std::size_t offset, std::size_t length, int fd) {
        const int flags = MAP_FIXED | MAP_NORESERVE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
        if (mmap(memory_ + offset, length, PROT_READ | PROT_WRITE, flags, fd, 0) == MAP_FAILED) fatal("mmap");
    }
    void store(std::size_t begin, std::size_t end, std::uint64_t key) {
        for (std::size_t at = begin; at + 8 <= end; at += 8) {
            const std::uint64_t value = pattern_word(key, (at - begin) / 8);
            std::memcpy(memory_ + at, &value, sizeof value);
        }
    }
    [[nodiscard]] std::uint64_t word(std::size_t at) const {
        std::uint64_t value;
        std::memcpy(&value, memory_ + at, sizeof value);
        return value;
    }

    std::size_t bytes_;
    std::size_t mapped_ = 0;
    std::byte* memory_ = nullptr;
    std::vector<std::size_t> own_;
};

bool everywhere(std::size_t) {
    return true;
}

template <class Part>
void verify(Check& check, const RepeatedBuffer& buffer, std::uint64_t key, Part part, const char* what) {
    const std::size_t at = buffer.first_wrong(key, part);
    if (at != buffer.bytes()) check.fail("%s of %zu bytes: wrong at %zu", what, buffer.bytes(), at);
}
void verify(Check& check, const RepeatedBuffer& buffer, std::uint64_t key, const char* what) {
    verify(check, buffer, key, everywhere, what);
}

/// The two ranks that talk; the others wait at the end of the check.
bool takes_part(const Check& check) {
    return check.rank == 0 || check.rank == check.size - 1;
}
int partner_of(const Check& check) {
    return check.size - 1 - check.rank;
}

/// A count and a type that make up a message, and how they are chosen.
struct Shape {
    const char* name;
    MPI_Datatype element;
    int block;  ///< elements of a contiguous block, the type that is sent; 1: the element itself
    int count;
    std::size_t bytes;
};

const Shape kBytesToTheLastCount = {"bytes", MPI_BYTE, 1, INT32_MAX, (std::size_t{1} << 31) - 1};
const Shape kIntsPast4GiB = {"ints", MPI_INT, 1, 1'100'000'000, 4'400'000'000};
const Shape kBlocksPast2GiB = {"blocks", MPI_BYTE, 1048583, 2050, std::size_t{1048583} * 2050};
const Shape kBlocksPast4GiB = {"blocks", MPI_BYTE, 1048583, 4100, std::size_t{1048583} * 4100};
const Shape kOneBlockPast4GiB = {"one block", MPI_DOUBLE, 540'000'001, 1, std::size_t{540'000'001} * 8};

/// A committed type for a shape.
class Type {
  public:
    Type(MPI_Datatype element, int block) {
        MPI_Type_contiguous(block, element, &type_);
        MPI_Type_commit(&type_);
    }
    ~Type() { MPI_Type_free(&type_); }
    Type(const Type&) = delete;
    Type& operator=(const Type&) = delete;
    [[nodiscard]] MPI_Datatype get() const { return type_; }

  private:
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

void check_status(Check& check, const MPI_Status& status, const Shape& shape, MPI_Datatype type) {
    MPI_Count elements = 0;
    int count = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &elements);
    check.equal(elements, static_cast<long long>(shape.bytes), "elements");
    MPI_Get_count(&status, type, &count);
    check.equal(count, shape.count, "count");
}

enum class Way { kExpected, kUnexpected, kBoth };

void message(Check& check, const Shape& shape, Way way) {
    if (!takes_part(check)) return;
    const int partner = partner_of(check);
    const Type type(shape.element, shape.block);
    const bool sends = way == Way::kBoth || check.rank == 0;
    const bool receives = way == Way::kBoth || check.rank != 0;
    RepeatedBuffer out(sends ? shape.bytes : kPeriod);
    RepeatedBuffer in(receives ? shape.bytes : kPeriod);
    out.fill(static_cast<std::uint64_t>(check.rank) + 7);
    in.clear();
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[2];
    int token = 0;
    if (receives && way != Way::kUnexpected) {
        MPI_Irecv(in.data(), shape.count, type.get(), partner, kTag, check.comm, &requests[0]);
        MPI_Send(&token, 1, MPI_INT, partner, kTag + 1, check.comm);
    }
    if (sends && way != Way::kUnexpected) {
        MPI_Recv(&token, 1, MPI_INT, partner, kTag + 1, check.comm, MPI_STATUS_IGNORE);
    }
    if (sends) MPI_Isend(out.data(), shape.count, type.get(), partner, kTag, check.comm, &requests[1]);
    if (way == Way::kUnexpected) {
        // Matched in order: when the second message is here, so is the beginning of the first.
        if (sends) MPI_Send(&token, 1, MPI_INT, partner, kTag + 1, check.comm);
        if (receives) {
            MPI_Recv(&token, 1, MPI_INT, partner, kTag + 1, check.comm, MPI_STATUS_IGNORE);
            MPI_Irecv(in.data(), shape.count, type.get(), partner, kTag, check.comm, &requests[0]);
        }
    }
    MPI_Waitall(2, requests, statuses);
    if (!receives) return;
    check_status(check, statuses[0], shape, type.get());
    verify(check, in, static_cast<std::uint64_t>(partner) + 7, shape.name);
}

/// Blocks with as large gaps between them: packed and unpacked piece by piece, more than 2 GiB of data over
/// more than 4 GiB of memory.
void with_gaps(Check& check, bool receiver_too) {
    if (!takes_part(check)) return;
    constexpr std::size_t kBlock = 15 * kPage;
    const int blocks = static_cast<int>((2 * kGiB + 100 * kMiB) / kBlock);
    const std::size_t extent = 2 * kBlock * static_cast<std::size_t>(blocks);
    MPI_Datatype sparse;
    MPI_Type_vector(blocks, kBlock, 2 * kBlock, MPI_BYTE, &sparse);
    MPI_Type_commit(&sparse);
    RepeatedBuffer buffer(extent);
    constexpr std::uint64_t kKey = 11;
    const auto in_block = [](std::size_t at) { return at / kBlock % 2 == 0; };
    static_assert(kPeriod % (2 * kBlock) == 0);
    if (check.rank == 0) {
        buffer.fill(kKey);
        MPI_Send(buffer.data(), 1, sparse, check.size - 1, kTag, check.comm);
    } else if (receiver_too) {
        buffer.clear();
        MPI_Status status;
        MPI_Recv(buffer.data(), 1, sparse, 0, kTag, check.comm, &status);
        MPI_Count elements = 0;
        MPI_Get_elements_x(&status, MPI_BYTE, &elements);
        check.equal(elements, static_cast<long long>(extent / 2), "elements");
        verify(check, buffer, kKey, in_block, "blocks with gaps");
        // Bytes between the blocks stay as they were.
        for (std::size_t at = kBlock; at < kPeriod; at += 2 * kBlock) {
            const auto* begin = buffer.data() + at;
            if (std::any_of(begin, begin + kBlock, [](std::byte b) { return b != std::byte{0}; })) {
                check.fail("the gap at %zu was written", at);
                break;
            }
        }
    } else {
        // Without gaps here: what arrives at offset x is what lay at 2x, block by block.
        RepeatedBuffer dense(extent / 2);
        dense.clear();
        MPI_Recv(dense.data(), static_cast<int>(extent / 2 / kBlock), Type(MPI_BYTE, kBlock).get(), 0, kTag,
                 check.comm, MPI_STATUS_IGNORE);
        buffer.fill(kKey);
        const std::size_t last = extent / 2 - kBlock;
        if (std::memcmp(dense.data() + last, buffer.data() + 2 * last, kBlock) != 0)
            check.fail("the last block is wrong");
    }
    MPI_Type_free(&sparse);
}

void broadcast(Check& check, const Shape& shape) {
    const Type type(shape.element, shape.block);
    RepeatedBuffer buffer(shape.bytes);
    buffer.clear();
    if (check.rank == 0) buffer.fill(5);
    MPI_Bcast(buffer.data(), shape.count, type.get(), 0, check.comm);
    verify(check, buffer, 5, "broadcast");
}

/// One put and one get of all of a window of that size, then of a small part at its end.
void put_and_get(Check& check, const Shape& shape) {
    const Type type(shape.element, shape.block);
    RepeatedBuffer memory(shape.bytes);
    memory.clear();
    MPI_Win window;
    MPI_Win_create(memory.data(), static_cast<MPI_Aint>(shape.bytes), 1, MPI_INFO_NULL, check.comm, &window);
    const int target = check.size - 1;
    MPI_Win_lock_all(0, window);
    if (check.rank == 0) {
        RepeatedBuffer local(shape.bytes);
        local.fill(21);
        MPI_Put(local.data(), shape.count, type.get(), target, 0, shape.count, type.get(), window);
        MPI_Win_flush(target, window);
        local.clear();
        MPI_Get(local.data(), shape.count, type.get(), target, 0, shape.count, type.get(), window);
        MPI_Win_flush(target, window);
        verify(check, local, 21, "get");
    }
    MPI_Barrier(check.comm);
    MPI_Win_sync(window);
    if (check.rank == target) verify(check, memory, 21, "put");
    MPI_Barrier(check.comm);
    const auto last = static_cast<MPI_Aint>(shape.bytes / 8 * 8 - 8);
    if (check.rank == 0) {
        const std::int64_t value = 0x123456789abcdef;
        std::int64_t old = 0;
        MPI_Put(&value, 8, MPI_BYTE, target, last, 8, MPI_BYTE, window);
        MPI_Win_flush(target, window);
        MPI_Get(&old, 8, MPI_BYTE, target, last, 8, MPI_BYTE, window);
        MPI_Win_flush(target, window);
        check.equal(old, value, "value at the end of the window");
        const std::int64_t one = 1;
        MPI_Fetch_and_op(&one, &old, MPI_INT64_T, target, last, MPI_SUM, window);
        MPI_Win_flush(target, window);
        check.equal(old, value, "fetched at the end of the window");
        MPI_Get(&old, 8, MPI_BYTE, target, last, 8, MPI_BYTE, window);
        MPI_Win_flush(target, window);
        check.equal(old, value + 1, "value at the end of the window after an addition");
    }
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
}

/// More arrives than fits: what fits is delivered, what lies behind is not touched, an error says so.
void truncated(Check& check) {
    if (!takes_part(check)) return;
    const Shape& shape = kBlocksPast4GiB;
    const Type type(shape.element, shape.block);
    MPI_Comm_set_errhandler(check.comm, MPI_ERRORS_RETURN);
    if (check.rank == 0) {
        RepeatedBuffer out(shape.bytes);
        out.fill(31);
        MPI_Send(out.data(), shape.count, type.get(), check.size - 1, kTag, check.comm);
    } else {
        const int fits = 2060;
        const std::size_t bytes = static_cast<std::size_t>(shape.block) * fits / kPage * kPage;
        RepeatedBuffer in(bytes);
        MPI_Status status;
        const int error = MPI_Recv(in.data(), static_cast<int>(bytes / kPage), Type(MPI_BYTE, kPage).get(), 0,
                                   kTag, check.comm, &status);
        int error_class = MPI_SUCCESS;
        MPI_Error_class(error, &error_class);
        check.equal(error_class, MPI_ERR_TRUNCATE, "error");
        // The own pages of both sides differ at the end only.
        verify(
            check, in, 31, [&](std::size_t at) { return at < bytes - kOwnBytes; }, "what fits");
    }
}

}  // namespace

int main(int argc, char** argv) {
    return mpi_test::run(argc, argv, [](Suite& suite) {
        suite.check("expected_bytes_to_the_last_count",
                    [](Check& c) { message(c, kBytesToTheLastCount, Way::kExpected); });
        suite.check("both_ways_ints_past_4_gib", [](Check& c) { message(c, kIntsPast4GiB, Way::kBoth); });
        suite.check("unexpected_blocks_past_2_gib",
                    [](Check& c) { message(c, kBlocksPast2GiB, Way::kUnexpected); });
        suite.check("unexpected_one_block_past_4_gib",
                    [](Check& c) { message(c, kOneBlockPast4GiB, Way::kUnexpected); });
        suite.check("truncated", truncated);
        suite.check("gaps_to_gaps", [](Check& c) { with_gaps(c, true); });
        suite.check("gaps_to_none", [](Check& c) { with_gaps(c, false); });
        suite.check("broadcast_blocks_past_2_gib", [](Check& c) { broadcast(c, kBlocksPast2GiB); });
        suite.check("put_and_get_one_block_past_4_gib", [](Check& c) { put_and_get(c, kOneBlockPast4GiB); });
    });
}
