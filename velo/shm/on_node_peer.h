/// A process of the node as another one sees it: what it published, the parts of its segment, and the rings between the
/// two.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "velo/base/mpsc_ring.h"
#include "velo/os/shared_segment.h"
#include "velo/os/topology.h"
#include "velo/shm/polled_rings.h"
#include "velo/shm/ring.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/shared_block.h"

namespace velo::shm {

/// Blocks that a process may fetch by cooperative copies at a time.
inline constexpr uint32_t kCoopBlocks = 64;
struct alignas(64) ClaimLine : base::ClaimWord {};
static_assert(sizeof(ClaimLine) == kLineBytes);

/// Published by a process of its on-node path.
struct OnNodeAddress {
    base::SegmentAddress segment;
    uint64_t name = 0;
    uint32_t registrations_max = 0;
    base::Place place;
};
static_assert(sizeof(OnNodeAddress) == 56);

/// A sender's first word: where its ring is. `proof` is the receiver's own token, which only those that were given its
/// address know.
struct Contact {
    OnNodeAddress sender;
    uint64_t proof = 0;
    uint64_t ring_offset = 0;
    RingGeometry geometry;
};

inline constexpr uint32_t kContacts = 64;  ///< first contacts that wait in a process's segment

/// The fixed parts of a process's segment, which lie before its rings and which others write to.
struct SegmentParts {
    base::MpscRing<Contact> contacts;
    std::atomic<uint64_t>* doorbells = nullptr;
    ClaimLine* coop_claims = nullptr;

    SegmentParts() = default;
    /// `memory`: of bytes(), the segment's beginning, whose header has `header_bytes`.
    SegmentParts(std::byte* memory, size_t header_bytes)
        : contacts(memory + header_bytes, kContacts),
          doorbells(reinterpret_cast<std::atomic<uint64_t>*>(memory + header_bytes + kContactBytes)),
          coop_claims(reinterpret_cast<ClaimLine*>(memory + header_bytes + kContactBytes + kDoorbellBytes)) {}

    [[nodiscard]] std::byte* atu() const { return reinterpret_cast<std::byte*>(coop_claims + kCoopBlocks); }

    /// Bytes of the segment without rings.
    [[nodiscard]] static size_t bytes(size_t header_bytes, uint32_t registrations_max) {
        return base::round_up(header_bytes + kContactBytes + kDoorbellBytes + kCoopBlocks * sizeof(ClaimLine) +
                                  base::AtuTable::bytes_for(registrations_max),
                              4096);
    }

  private:
    static constexpr size_t kContactBytes = base::round_up(base::MpscRing<Contact>::bytes_for(kContacts), kLineBytes);
    static constexpr size_t kDoorbellBytes = base::round_up(kDoorbells / 8, kLineBytes);
};

/// After the next message of a ring: kReturn, when the last poll found nothing there; kRelease, when it is long.
enum class RingThen : uint8_t { kGoOn, kReturn, kRelease };

/// A process of the node, to BasicOnNode, its owner. `out` is the end of the ring to it, `in` of the ring from it.
template <class Node>
struct OnNodePeer {
    uint64_t name = 0;
    base::Place place;
    typename Node::Segment segment;
    SegmentParts parts;
    base::AtuView atu;
    typename Node::Mapping out_memory;
    uint64_t out_offset = 0;
    RingProducer out;
    typename Node::Mapping in_memory;
    RingConsumer in;
    uint64_t received_before = 0;  ///< see streaming()
    uint64_t sent_before = 0;
    uint32_t silent_polls = 0;
    RingThen then = RingThen::kGoOn;
    bool dead = false;
    bool lost = false;  ///< and reported
    uint64_t short_since_ns = 0;  ///< there is no memory for the ring to it; 0: there is, or none was asked for
    uint64_t next_try_ns = 0;

    /// More messages went to the peer than came from it since it was last in step with us.
    [[nodiscard]] bool streaming() {
        // After this number of messages without an answer the next ones will not be read at once either.
        constexpr uint32_t kStreamingMessages = 4;
        const uint64_t received = in.messages();
        if (received != received_before) {
            received_before = received;
            sent_before = out.messages();
        }
        return out.messages() - sent_before >= kStreamingMessages;
    }
    /// The peer's core is far, as our messages there, or before the first of them its own, have shown.
    [[nodiscard]] bool far() const { return out.line_ns() != 0 ? out.far() : Distance::far(in.line_ns(), false); }
};

}  // namespace velo::shm
