/// The work that waits for one peer, for the report on a job that does not move.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "velo/device/device.h"
#include "velo/shm/ring_layout.h"
#include "velo/velo.h"
#include "velo/wire/engine_wire.h"

namespace velo {

/// Operations of one kind that wait.
struct WaitingOperations {
    uint32_t count = 0;
    uint64_t bytes = 0;
};

/// One peer that something waits for. All counts are as of one moment.
struct PeerReport {
    struct Identity {
        bool known = false;  ///< connected, so that its rank is known
        uint32_t rank = 0;
        int32_t pid = 0;
        bool pid_known_here = true;  ///< false: of another host, or another container
        velo_path_t path = VELO_PATH_NONE;
    };
    /// Messages that wait here, the first of them in particular.
    struct Queue {
        uint32_t messages = 0;
        uint64_t bytes = 0;
        uint32_t first_bytes = 0;
        uint32_t first_done = 0;
        uint8_t first_class = 0;
        uint8_t first_tag = 0;
    };
    /// On the node: the ring to the peer, and the one from it.
    struct Ring {
        bool made = false;
        shm::RingFill fill{};
        uint32_t lines = 0;
        uint32_t bytes = 0;
        bool unread = false;  ///< messages in the ring from it
    };
    /// Through the device: credits at the peer, and credits due to it.
    struct Credits {
        bool used = false;
        bool by_contact = false;  ///< it has given us no slots, so messages go in contact slots
        uint32_t available = 0;
        uint32_t quota = 0;
        uint32_t needed = 0;     ///< by the first message that waits
        uint32_t retrieved = 0;  ///< kept until the threshold is reached
        uint32_t threshold = 0;
        uint32_t deferred = 0;  ///< to be returned as soon as they can leave
    };
    /// Transfers and atomics, by the event that ends them.
    struct Operations {
        WaitingOperations gets{}, puts{};  ///< of which not every chunk has been started
        WaitingOperations device_chunks{}, pulls{}, pushes{}, coop_blocks{}, atomics{};
        WaitingOperations assists{};  ///< of blocks that it fetches from here, and that this process moves

        [[nodiscard]] bool any() const {
            return gets.count != 0 || puts.count != 0 || device_chunks.count != 0 || pulls.count != 0 ||
                   pushes.count != 0 || coop_blocks.count != 0 || atomics.count != 0 || assists.count != 0;
        }
    };

    /// The way that blocks take which this process fetches from it, and the time that a byte takes each way.
    struct Copies {
        uint32_t bytes = 0;  ///< of the smallest such block
        bool both = false;   ///< while it fetches from here, too
        bool far = false;    ///< while its core is far
        CoopMethod method{};
        uint32_t switches = 0;
        std::array<uint32_t, kCoopMethods> ps_a_byte{};  ///< 0: not tried
    };

    /// A rail that is set aside, or is asked for (btl_velo_rails=dynamic).
    struct Reservation {
        enum class State : uint8_t { kNone, kAsked, kHeld, kGranted };
        State state = State::kNone;
        bool puts = false;   ///< of the one that asks
        bool known = false;  ///< connected, so that its rank is known
        uint32_t rank = 0;   ///< the other end
    };

    /// One of several rails: of this process's device operations, those on this peer and those on others.
    struct Rail {
        uint32_t rail = 0;
        WaitingOperations own{};
        WaitingOperations others{};
        uint32_t holder = 0;  ///< of the others, the rank with the most bytes
        bool out = false;     ///< taken out of use, to this peer or whatever the peer
        uint64_t retry_ns = 0;  ///< from now, until it is tried again
        std::array<Reservation, 4> reservations{};
    };

    Identity process{};
    uint64_t age_ns = 0;   ///< without movement
    uint64_t seen_ns = 0;  ///< since it was in MPI; UINT64_MAX: not known
    Queue queue{};
    Ring ring{};
    Credits credits{};
    DeviceReport device{};  ///< its mailbox
    Operations operations{};
    std::vector<Copies> copies{};
    std::vector<Rail> rails{};   ///< those that carry something of this peer's, are out, or are waited for
    uint32_t partial_bytes = 0;  ///< of a message of the device whose rest has not come

    [[nodiscard]] bool waited_for() const {
        return queue.messages != 0 || operations.any() || credits.deferred != 0;
    }
    [[nodiscard]] bool unconsumed() const { return ring.unread || partial_bytes != 0; }
};

}  // namespace velo
