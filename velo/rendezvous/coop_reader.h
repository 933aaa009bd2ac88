/// Cooperative copy, the reader's side: blocks that this process fetches together with their owner.
///
/// A get on the node is not one process's work while the other one waits. The reader calls the owner of the
/// data, and both take chunks until none is left (velo/wire/shared_block.h): the owner from the front
/// (velo/rendezvous/coop_owner.h), the reader from the back, with direct copies; or the owner sends its chunks
/// through the ring, and the reader only unpacks. CopyChoice finds out which is faster, but not before so much
/// was fetched that the ring's pages are worth what they cost. An owner that computes takes no part; after some
/// polls the reader goes on alone. If direct copies are not permitted, the owner sends everything. Two that
/// fetch from each other by direct copies read their own blocks first, and help with what is left then.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "rma/copy_choice.h"
#include "velo/base/lock.h"
#include "velo/rendezvous/coop_owner.h"
#include "velo/rendezvous/denied_copies.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/transfer_ops.h"
#include "velo/velo.h"
#include "velo/wire/engine_wire.h"
#include "velo/wire/shared_block.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock, which is given up during direct copies.
template <class Core>
class CoopReader {
  public:
    using Owner = CoopOwner<Core>;
    using Peer = velo_peer;
    using State = TransferState<Peer>;
    using Op = PendingOp<Peer>;

    /// Gets on the node from this size are moved by both ends, in blocks of at most the other.
    static constexpr uint32_t kBytesMin = 16u << 10;
    static constexpr uint32_t kBlockBytesMax = Owner::kBlockBytesMax;

    CoopReader(Core& core, CookieTable<Op>& pending, EngineMessages<Core>& messages, DeniedCopies<Core>& denied,
               const Owner& owner)
        : core_(core), pending_(pending), messages_(messages), denied_(denied), owner_(owner) {
        for (uint32_t slot = Core::kCoopBlocks; slot-- > 0;) free_.push_back(static_cast<uint8_t>(slot));
    }

    [[gnu::cold]] void reports_to(TransferOps& transfers) { transfers_ = &transfers; }

    /// Takes a chunk of a get over. False: all blocks are in use.
    bool begin(State& state, const Chunk& chunk);
    [[nodiscard]] bool fetching() const { return !active_.empty(); }
    uint32_t drive();
    void on_data(Peer& peer, const CoopDataHeader& header, const std::byte* data, uint32_t bytes);
    void on_written(Peer& peer, const CoopWrittenHeader& header);
    /// The owner says how its part ended: `missing` bytes that it had claimed will not come.
    void owner_done(const Op& op, Status status, uint64_t missing);
    void peer_failed(Peer& peer);
    /// Bytes of an operation's block that have ended, and those that have not.
    [[nodiscard]] uint32_t ended_bytes(const Op& op) const { return blocks_[op.block].shared.ended_bytes(); }
    [[nodiscard]] uint32_t left_bytes(const Op& op) const { return blocks_[op.block].shared.left_bytes(); }

  private:
    /// A block that this process fetches.
    struct Block {
        base::ReaderBlock shared;
        Op* waiting = nullptr;
        Peer* peer = nullptr;
        State* state = nullptr;
        std::byte* local = nullptr;
        uint64_t remote = 0;  ///< address in the peer
        uint64_t nla = 0;     ///< of that address, in the peer's on-node ATU
        uint32_t key = 0;
        uint64_t offset = 0;   ///< in its transfer
        uint16_t copying = 0;  ///< threads that make a direct copy of it, without the lock
        bool both = false;     ///< the peer fetches from here, too
        bool far = false;      ///< the peer's core is
        CoopMethod method{};
        Status status = Status::kOk;
    };

    /// The distance of the peer's core is measured in each piece of 2 MiB: less than a hundredth of what they
    /// take.
    static constexpr uint32_t kMeasureShift = 21;
    /// Polls without data from a near peer, after which its part is taken over.
    static constexpr uint32_t kPatiencePolls = 64;

    [[nodiscard]] CoopMethod method_for(Block& block);
    [[nodiscard]] CoopMethod ring_to(const Peer& peer) const;
    [[nodiscard]] static CopyChoice& choice(const Block& block);
    void measured(const Block& block, CoopMethod method, uint64_t bytes, uint64_t reader_ns, uint64_t owner_ns = 0);
    [[nodiscard]] Block* piece_moved(Peer& peer, Cookie cookie, uint64_t offset, uint32_t bytes);
    bool take_own_chunk(uint32_t slot);
    void close(Block& block, Status status);
    bool end_if_done(uint32_t slot);

    Core& core_;
    CookieTable<Op>& pending_;
    EngineMessages<Core>& messages_;
    DeniedCopies<Core>& denied_;
    const Owner& owner_;
    TransferOps* transfers_ = nullptr;
    std::vector<Block> blocks_;  ///< none before the first is used
    std::vector<uint8_t> free_;
    std::vector<uint8_t> active_;
};

}  // namespace velo::rma
