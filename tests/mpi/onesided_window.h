// A window of any kind behind one way of naming a place in it. For programs on one-sided communication.
#pragma once

#include "mpi_test.h"

namespace mpi_test {

enum class Kind { kCreate, kAllocate, kDynamic };

struct NamedKind {
    Kind kind;
    const char* name;
};

constexpr NamedKind kKinds[] = {
    {Kind::kCreate, "create"}, {Kind::kAllocate, "allocate"}, {Kind::kDynamic, "dynamic"}};

/// `bytes` of zeroed memory at each rank. Made and freed collectively; no rank may be in an epoch at either
/// end.
class Window {
  public:
    Window(const Check& check, Kind kind, std::size_t bytes) : kind_(kind), bytes_(bytes) {
        const auto size = static_cast<MPI_Aint>(bytes);
        switch (kind) {
            case Kind::kCreate:
                storage_.resize(bytes);
                memory_ = storage_.data();
                MPI_Win_create(memory_, size, 1, MPI_INFO_NULL, check.comm, &window_);
                break;
            case Kind::kAllocate:
                MPI_Win_allocate(size, 1, MPI_INFO_NULL, check.comm, &memory_, &window_);
                std::memset(memory_, 0, bytes);
                break;
            case Kind::kDynamic: {
                storage_.resize(bytes);
                memory_ = storage_.data();
                MPI_Win_create_dynamic(MPI_INFO_NULL, check.comm, &window_);
                MPI_Win_attach(window_, memory_, size);
                MPI_Aint base;
                MPI_Get_address(memory_, &base);
                bases_.resize(static_cast<std::size_t>(check.size));
                MPI_Allgather(&base, 1, MPI_AINT, bases_.data(), 1, MPI_AINT, check.comm);
                break;
            }
        }
        MPI_Barrier(check.comm);
        comm_ = check.comm;
    }
    ~Window() {
        // A part may be detached only when no rank accesses it any more.
        if (kind_ == Kind::kDynamic) {
            MPI_Barrier(comm_);
            MPI_Win_detach(window_, memory_);
        }
        MPI_Win_free(&window_);
    }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;

    /// The displacement that names byte `offset` of the target's memory.
    [[nodiscard]] MPI_Aint at(int target, std::size_t offset) const {
        const auto displacement = static_cast<MPI_Aint>(offset);
        return kind_ == Kind::kDynamic ? MPI_Aint_add(bases_[static_cast<std::size_t>(target)], displacement)
                                       : displacement;
    }
    [[nodiscard]] MPI_Win get() const { return window_; }
    [[nodiscard]] std::byte* memory() const { return memory_; }
    [[nodiscard]] std::size_t bytes() const { return bytes_; }

  private:
    Kind kind_;
    std::size_t bytes_;
    std::vector<std::byte> storage_;
    std::byte* memory_ = nullptr;
    std::vector<MPI_Aint> bases_;
    MPI_Win window_ = MPI_WIN_NULL;
    MPI_Comm comm_ = MPI_COMM_NULL;
};

/// Adds 1 to the 64-bit number at byte `offset` of rank 0 the number of times given, by get and put under an exclusive
/// lock.
inline void count_exclusively(Window& window, std::size_t offset, int times) {
    for (int i = 0; i < times; ++i) {
        std::int64_t value = -1;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window.get());
        MPI_Get(&value, 1, MPI_INT64_T, 0, window.at(0, offset), 1, MPI_INT64_T, window.get());
        MPI_Win_flush(0, window.get());
        ++value;
        MPI_Put(&value, 1, MPI_INT64_T, 0, window.at(0, offset), 1, MPI_INT64_T, window.get());
        MPI_Win_unlock(0, window.get());
    }
}

}  // namespace mpi_test
