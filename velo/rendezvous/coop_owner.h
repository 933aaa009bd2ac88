/// Cooperative copy, the owner's side: blocks that peers of the node fetch from here, and this process moves with them.
///
/// The reader (velo/rendezvous/coop_reader.h has the whole idea) calls, and this process takes chunks of the block from
/// the front: with direct copies into the reader, or through the ring, as the call says. It sends parts that the reader
/// names because the kernel refused it a direct copy through the ring.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "velo/base/copy.h"
#include "velo/base/lock.h"
#include "velo/core/peer.h"
#include "velo/rendezvous/denied_copies.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/engine_wire.h"
#include "velo/wire/shared_block.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock, which is given up during direct copies.
template <class Core>
class CoopOwner {
  public:
    using Peer = velo_peer;

    static constexpr uint32_t kBlockBytesMax = 64u << 20;
    /// Bytes of a block that are moved at a time before others get their turn.
    static constexpr uint32_t kBytesPerTurn = 256u << 10;

    CoopOwner(Core& core, EngineMessages<Core>& messages, DeniedCopies<Core>& denied)
        : core_(core), messages_(messages), denied_(denied) {}

    [[nodiscard]] bool assisting() const { return !assists_.empty(); }
    uint32_t drive();
    void on_call(Peer& peer, const CoopCallHeader& header);
    void on_part(Peer& peer, const CoopPartHeader& header);
    void peer_failed(const Peer& peer) {
        for (Assist& assist : assists_) {
            if (assist.peer == &peer) assist.claims = false, assist.moving = {};
        }
    }
    [[nodiscard]] bool assists(const Peer& peer) const {
        return std::ranges::any_of(assists_, [&](const Assist& assist) { return assist.peer == &peer; });
    }
    /// Calls visit(peer, offset, bytes left) for each part that this process has in a peer's block.
    template <class Visit>
    void for_each_assist(Visit&& visit) const {
        for (const Assist& assist : assists_) visit(*assist.peer, assist.moving.offset, assist.moving.bytes);
    }

  private:
    /// This process's part in a block that a peer fetches from here.
    struct Assist {
        base::SharedBlock shared;
        Peer* peer = nullptr;
        Cookie cookie{};
        uint32_t key = 0;
        uint64_t nla = 0;
        uint64_t source = 0;
        uint64_t destination = 0;  ///< in the peer, for direct copies
        uint32_t base_offset = 0;  ///< of a named part in its block
        base::BlockPart moving = {};  ///< left of the part that was taken last
        uint16_t slot = 0;
        CoopMethod method{};
        bool claims = true;  ///< there may be more to claim
    };

    /// Data of a block in one message of the ring.
    static constexpr uint32_t kPieceBytes = 32u << 10;
    /// One piece of this number is timed by both ends: odd, so that it is each one of a block in turn.
    static constexpr uint32_t kPiecesPerMeasure = 3;
    /// Blocks that are begun as if a peer still fetched from here, after it did so at the same time.
    static constexpr uint32_t kBothBlocks = 16;
    /// Parts of a peer's blocks that are asked for by name: once for each thread whose direct copy was
    /// refused.
    static constexpr uint32_t kNamedPartsMax = 4 * Core::kCoopBlocks;

    /// A measured time as a header says it, in which 0 is none.
    [[nodiscard]] static uint32_t header_ns(uint64_t ns) {
        return static_cast<uint32_t>(std::clamp<uint64_t>(ns, 1, UINT32_MAX));
    }
    [[nodiscard]] bool reads_first(const Assist& assist) const;
    void take_up(Assist assist, uint32_t bytes);
    [[nodiscard]] bool add_assist(const Assist& assist);
    bool advance_assist(size_t index, uint32_t& moved);
    bool copy_part(size_t index, uint32_t& moved);
    bool push_pieces(Assist& assist, uint32_t& moved);
    void send_done(const Assist& assist, Status status);

    Core& core_;
    EngineMessages<Core>& messages_;
    DeniedCopies<Core>& denied_;
    std::vector<Assist> assists_;
    uint32_t pieces_ = 0;
    bool assisting_ = false;  ///< drive() is running
};

}  // namespace velo::rma
