/// The target's half of long puts and gets: moves parts of them while their requester moves the rest.
///
/// A requester would do alone as well what it offers (offer.h). A target that is in progress() takes chunks
/// from the front, checks each part against its own translation table, copies it, and reports it before it
/// takes the next. It never holds a part beyond one call, so a process that computes delays no other, and what
/// is deregistered is not touched any more.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim_device/shim/peer_table.h"
#include "velo/os/cma.h"

namespace velo::shim {

/// Thread: the owner's.
class CopyHelper {
  public:
    /// Offers kept; further ones are dropped, and their requesters go on alone.
    static constexpr uint32_t kHelpsMax = 256;
    static constexpr uint32_t kBytesPerProgress = 128u << 10;  ///< and the rest of a chunk

    /// `atu`: the owner's private copy of its table.
    CopyHelper(PeerTable& peers, SegmentView own, base::AtuView atu)
        : peers_(peers), copying_(own.header().copying), atu_(atu) {}

    /// Takes note of an offer. False: it makes no sense.
    bool take(const Request& request, DeviceAddr from);

    /// Moves parts of one requester's operations. Returns how many.
    uint32_t progress();

    /// Repairs the word that requesters look at, whatever was written to it.
    void beat() { copying_.store(copies_, std::memory_order_release); }

    [[nodiscard]] uint64_t moved_bytes() const { return moved_bytes_; }

  private:
    struct Help {
        DeviceAddr from = kNoAddr;
        OfferTerms terms;
        uint64_t address = 0;
        uint64_t nla = 0;
        uint32_t key = 0;
        uint32_t chunks_done = 0;
        bool over = false;

        [[nodiscard]] base::SharedBlock block() const { return {terms.bytes, terms.generation}; }
    };
    /// Parts that are copied together.
    struct Batch {
        DeviceAddr from = kNoAddr;
        RmaKind kind = RmaKind::kGet;
        uint32_t count = 0;
        uint32_t bytes = 0;
        std::array<uint32_t, base::kCmaPartsMax> helps;  ///< indexes
        std::array<base::CmaPart, base::kCmaPartsMax> parts;
    };

    [[nodiscard]] static bool stands(const Help& help, const Peer& peer);
    bool add_part(uint32_t index, Batch& batch);
    void move(Batch& batch);
    void report(const Help& help, Status status);

    PeerTable& peers_;
    std::atomic<uint64_t>& copying_;
    base::AtuView atu_;
    std::vector<Help> helps_;  ///< in the order offered
    uint64_t copies_ = 0;      ///< what DeviceHeader::copying should be
    uint64_t moved_bytes_ = 0;
};

}  // namespace velo::shim
