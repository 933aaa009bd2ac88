/// Cooperative copy: blocks that two processes of a node move together.
///
/// A get on the node is not one process's work while the other one waits. The reader calls the owner of the
/// data, and both take chunks until none is left (velo/wire/shared_block.h): the owner from the front, the
/// reader from the back, with direct copies; or the owner sends its chunks through the ring, and the reader
/// only unpacks. CopyChoice finds out which is faster, but not before so much was fetched that the ring's
/// pages are worth what they cost. An owner that computes takes no part; after some polls the reader goes on
/// alone. If direct copies are not permitted, the owner sends everything. Two that fetch from each other by
/// direct copies read their own blocks first, and help with what is left then.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "rma/copy_choice.h"
#include "velo/base/copy.h"
#include "velo/base/lock.h"
#include "velo/device/device.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/transfer_ops.h"
#include "velo/velo.h"
#include "velo/wire/engine_wire.h"
#include "velo/wire/shared_block.h"

namespace velo::rma {

/// Owner: the engine. Thread: the engine's, under its lock, which is given up during direct copies.
template <class Core>
class CoopCopy {
  public:
    using Peer = velo_peer;
    using State = TransferState<Peer>;
    using Op = PendingOp<Peer>;

    /// Gets on the node from this size are moved by both ends, in blocks of at most the other.
    static constexpr uint32_t kBytesMin = 16u << 10;
    static constexpr uint32_t kBlockBytesMax = 64u << 20;

    CoopCopy(Core& core, CookieTable<Op>& pending, EngineMessages<Core>& messages)
        : core_(core), pending_(pending), messages_(messages) {
        for (uint32_t slot = Core::kCoopBlocks; slot-- > 0;) free_.push_back(static_cast<uint8_t>(slot));
    }

    [[gnu::cold]] void reports_to(TransferOps& transfers) { transfers_ = &transfers; }

    /// Takes a chunk of a get over. False: all blocks are in use.
    bool begin(State& state, const Chunk& chunk);
    [[nodiscard]] bool fetching() const { return !active_.empty(); }
    [[nodiscard]] bool assisting() const { return !assists_.empty(); }
    uint32_t drive_blocks();
    uint32_t drive_assists();
    void on_call(Peer& peer, const CoopCallHeader& header);
    void on_part(Peer& peer, const CoopPartHeader& header);
    void on_data(Peer& peer, const CoopDataHeader& header, const std::byte* data, uint32_t bytes);
    void on_written(Peer& peer, const CoopWrittenHeader& header);
    /// The owner says how its part ended: `missing` bytes that it had claimed will not come.
    void owner_done(const Op& op, Status status, uint64_t missing);
    void peer_failed(Peer& peer);
    [[nodiscard]] bool assists(const Peer& peer) const {
        return std::ranges::any_of(assists_, [&](const Assist& assist) { return assist.peer == &peer; });
    }
    /// Bytes of an operation's block that have ended, and those that have not.
    [[nodiscard]] uint32_t ended_bytes(const Op& op) const { return blocks_[op.block].shared.ended_bytes(); }
    [[nodiscard]] uint32_t left_bytes(const Op& op) const { return blocks_[op.block].shared.left_bytes(); }
    /// Calls visit(peer, offset, bytes left) for each part that this process has in a peer's block.
    template <class Visit>
    void for_each_assist(Visit&& visit) const {
        for (const Assist& assist : assists_) visit(*assist.peer, assist.moving.offset, assist.moving.bytes);
    }

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

    /// Data of a block in one message of the ring, and so much at a time before others get their turn.
    static constexpr uint32_t kPieceBytes = 32u << 10;
    static constexpr uint32_t kBytesPerTurn = 256u << 10;
    /// The distance of the peer's core is measured in each piece of 2 MiB: less than a hundredth of what they
    /// take.
    static constexpr uint32_t kMeasureShift = 21;
    /// One piece of this number is timed by both ends: odd, so that it is each one of a block in turn.
    static constexpr uint32_t kPiecesPerMeasure = 3;
    /// Polls without data from a near peer, after which its part is taken over.
    static constexpr uint32_t kPatiencePolls = 64;
    /// Blocks that are begun as if a peer still fetched from here, after it did so at the same time.
    static constexpr uint32_t kBothBlocks = 16;
    /// Parts of a peer's blocks that are asked for by name: once for each thread whose direct copy was
    /// refused.
    static constexpr uint32_t kNamedPartsMax = 4 * Core::kCoopBlocks;

    /// A measured time as a header says it, in which 0 is none.
    [[nodiscard]] static uint32_t header_ns(uint64_t ns) {
        return static_cast<uint32_t>(std::clamp<uint64_t>(ns, 1, UINT32_MAX));
    }
    [[nodiscard]] CoopMethod method_for(Block& block);
    [[nodiscard]] CoopMethod ring_to(const Peer& peer) const;
    [[nodiscard]] static CopyChoice& choice(const Block& block);
    void measured(const Block& block, CoopMethod method, uint64_t bytes, uint64_t reader_ns, uint64_t owner_ns = 0);
    [[nodiscard]] bool reads_first(const Assist& assist) const;
    [[nodiscard]] Block* piece_moved(Peer& peer, Cookie cookie, uint64_t offset, uint32_t bytes);
    bool take_own_chunk(uint32_t slot);
    void close(Block& block, Status status);
    bool end_if_done(uint32_t slot);
    void take_up(Assist assist, uint32_t bytes);
    [[nodiscard]] bool add_assist(const Assist& assist);
    bool advance_assist(size_t index, uint32_t& moved);
    bool push_pieces(Assist& assist, uint32_t& moved);
    void send_done(const Assist& assist, Status status);

    Core& core_;
    CookieTable<Op>& pending_;
    EngineMessages<Core>& messages_;
    TransferOps* transfers_ = nullptr;
    std::vector<Block> blocks_;  ///< none before the first is used
    std::vector<uint8_t> free_;
    std::vector<uint8_t> active_;
    std::vector<Assist> assists_;
    uint32_t pieces_ = 0;
    bool assisting_ = false;  ///< drive_assists() is running
};

// The reader's side.

/// False: all blocks are in use.
template <class Core>
bool CoopCopy<Core>::begin(State& state, const Chunk& chunk) {
    if (free_.empty()) return false;
    const velo_rma_t& op = *state.op;
    Peer& peer = *state.peer;
    const uint64_t remote = op.remote_address + chunk.offset;
    uint64_t nla = 0, address = 0;
    for (;;) {
        nla = op.remote.nla[0] + (remote - op.remote.base);
        const Status status = core_.on_node.atu_of(peer.node_index())
                                  .translate(nla, chunk.bytes, op.remote.on_node_key, kAccessRead, address);
        if (status == Status::kOk && address == remote) break;
        if (!transfers_->find_remote(state)) {
            transfers_->chunk_done(state, chunk.bytes, Status::kAtuFault);
            return true;
        }
    }
    if (blocks_.empty()) blocks_.resize(Core::kCoopBlocks);
    const uint8_t slot = free_.back();
    Block& block = blocks_[slot];
    block = {.shared = block.shared,
             .peer = &peer,
             .state = &state,
             .local = static_cast<std::byte*>(op.local) + chunk.offset,
             .remote = remote,
             .nla = nla,
             .key = op.remote.on_node_key,
             .offset = chunk.offset,
             .both = peer.coop.both_blocks != 0 || assists(peer),
             .far = core_.on_node.far(peer.node_index())};
    if (peer.coop.both_blocks != 0) --peer.coop.both_blocks;
    free_.pop_back();
    active_.push_back(slot);
    if (peer.coop.blocks++ == 0) peer.coop.heard_poll = core_.clock.polls();
    Op& waiting = *pending_.take();
    waiting.kind = Op::Kind::kCoopBlock;
    waiting.state = &state;
    waiting.offset = chunk.offset;
    waiting.bytes = chunk.bytes;
    waiting.block = slot;
    block.waiting = &waiting;
    block.shared.open(core_.on_node.coop_claims(slot), chunk.bytes);
    block.method = method_for(block);
    CoopCallHeader call = {.method = block.method, .slot = slot, .cookie = waiting.cookie, .nla = nla};
    call.destination = reinterpret_cast<uint64_t>(block.local);
    call.key = block.key;
    call.bytes = chunk.bytes;
    call.generation = block.shared.generation();
    messages_.send_control(peer, call);
    return true;
}

template <class Core>
CoopMethod CoopCopy<Core>::method_for(Block& block) {
    Peer& peer = *block.peer;
    const uint32_t bytes = block.shared.bytes();
    if (((peer.coop.fetched_bytes ^ (peer.coop.fetched_bytes + bytes)) >> kMeasureShift) != 0)
        core_.on_node.measure_next(peer.node_index());
    peer.coop.fetched_bytes += bytes;
    if (!peer.direct) return ring_to(peer);
    if (core_.options.block_way) [[unlikely]]
        return *core_.options.block_way;
    return choice(block).choose(bytes, core_.on_node.pays_for_pages(peer.coop.fetched_bytes));
}

/// Without anything measured.
template <class Core>
CoopMethod CoopCopy<Core>::ring_to(const Peer& peer) const {
    return core_.on_node.far(peer.node_index()) ? CoopMethod::kRingNontemporal : CoopMethod::kRing;
}

template <class Core>
CopyChoice& CoopCopy<Core>::choice(const Block& block) {
    std::unique_ptr<CopyChoices>& choices = block.peer->coop.choices;
    if (choices == nullptr) choices = std::make_unique<CopyChoices>();
    return choices->of(block.shared.bytes(), block.both, block.far);
}

/// A copy of a part of the block took this process so long, and the owner before it.
template <class Core>
void CoopCopy<Core>::measured(const Block& block, CoopMethod method, uint64_t bytes, uint64_t reader_ns,
                             uint64_t owner_ns) {
    CopyChoice& choice = CoopCopy::choice(block);
    const uint32_t before = choice.switches();
    choice.measured(method, bytes, reader_ns, owner_ns);
    core_.counters.copy_switches += choice.switches() - before;
}

/// Takes over what the owners leave. At most one chunk of each block, so that what arrives is unpacked.
template <class Core>
uint32_t CoopCopy<Core>::drive_blocks() {
    uint32_t moved = 0;
    // An upcall may change the list, so nothing of it is held across one.
    for (size_t i = 0; i < active_.size(); ++i) {
        const uint8_t slot = active_[i];
        Block& block = blocks_[slot];
        Peer& peer = *block.peer;
        if (block.shared.closed()) continue;
        if (!block.shared.intact(core_.on_node.coop_claims(slot))) [[unlikely]] {
            close(block, Status::kProtocol);
            end_if_done(slot);
            continue;
        }
        if (!peer.direct) continue;
        if (block.method != CoopMethod::kDirect) {
            const uint32_t silent = core_.clock.polls() - peer.coop.heard_poll;
            if (silent < (peer.coop.assists ? kPatiencePolls : kPatiencePolls / 16)) continue;
            peer.coop.assists = false;
        }
        if (take_own_chunk(slot)) ++moved;
    }
    return moved;
}

/// False: there was nothing left to take.
template <class Core>
bool CoopCopy<Core>::take_own_chunk(uint32_t slot) {
    Block& block = blocks_[slot];
    const base::BlockPart part =
        block.shared.claim_back(core_.on_node.coop_claims(slot), block.both ? kBytesPerTurn : 0);
    if (part.bytes == 0) {
        close(block, Status::kOk);
        end_if_done(slot);
        return false;
    }
    const int32_t pid = core_.on_node.pid(block.peer->node_index());
    ++block.copying;
    Status status = Status::kOk;
    uint64_t ns = 0;
    {
        // The block cannot end meanwhile: what is copied here is not accounted for yet.
        base::Unlocked unlocked(core_.lock);
        const uint64_t begin = core_.clock.read();
        status =
            core_.system.copy_from(pid, block.local + part.offset, block.remote + part.offset, part.bytes);
        ns = core_.clock.read() - begin;
    }
    --block.copying;
    if (status == Status::kOk) measured(block, CoopMethod::kDirect, part.bytes, ns);
    if (status == Status::kUnsupported) {
        transfers_->give_up_direct(*block.peer);
        CoopPartHeader named = {.method = ring_to(*block.peer), .cookie = block.waiting->cookie};
        named.nla = block.nla + part.offset;
        named.key = block.key;
        named.bytes = part.bytes;
        named.offset = part.offset;
        messages_.send_control(*block.peer, named);
        return true;
    }
    status = core_.on_node.atu_of(block.peer->node_index()).after_copy(status, block.nla, block.key);
    block.shared.end(part.bytes);
    core_.counters.rma_get_bytes += part.bytes;
    if (status != Status::kOk) close(block, status);
    end_if_done(slot);
    return true;
}

/// Nothing of the block can be claimed any more. It ends when all that was claimed is accounted for.
template <class Core>
void CoopCopy<Core>::close(Block& block, Status status) {
    if (block.status == Status::kOk) block.status = status;
    if (block.shared.closed()) return;
    const auto slot = static_cast<uint32_t>(&block - blocks_.data());
    if (!block.shared.close(core_.on_node.coop_claims(slot), block.status == Status::kOk)) {
        // Which bytes the owner still brings is not known.
        ++core_.counters.engine_malformed;
        if (block.status == Status::kOk) block.status = Status::kProtocol;
        block.shared.write_off();
    }
    // Nothing more comes from the dead.
    if (block.peer->ended()) block.shared.write_off();
}

/// True: the block is done with, and its slot free.
template <class Core>
bool CoopCopy<Core>::end_if_done(uint32_t slot) {
    Block& block = blocks_[slot];
    if (block.copying != 0 || block.shared.due_bytes() != 0) return false;
    close(block, Status::kOk);
    State& state = *block.state;
    const Status status = block.status;
    const uint64_t offset = block.offset;
    const uint32_t bytes = block.shared.bytes();
    pending_.release(*block.waiting);
    --block.peer->coop.blocks;
    free_.push_back(static_cast<uint8_t>(slot));
    active_.erase(std::find(active_.begin(), active_.end(), slot));
    if (status == Status::kAtuFault) {
        transfers_->chunk_refused(state, offset, bytes);
    } else if (status == Status::kBadMemory) {
        transfers_->memory_refused(state, offset, bytes);
    } else {
        transfers_->chunk_done(state, bytes, status);
    }
    return true;
}

/// Accounts for a piece that the owner has moved. Returns its block; nullptr: the message fits none.
template <class Core>
CoopCopy<Core>::Block* CoopCopy<Core>::piece_moved(Peer& peer, Cookie cookie, uint64_t offset, uint32_t bytes) {
    const Op* op = pending_.find(cookie);
    if (op == nullptr || op->kind != Op::Kind::kCoopBlock || blocks_[op->block].peer != &peer ||
        !blocks_[op->block].shared.end_part(offset, bytes)) {
        ++core_.counters.engine_malformed;
        return nullptr;
    }
    peer.coop.heard_poll = core_.clock.polls();
    peer.coop.assists = true;
    return &blocks_[op->block];
}

template <class Core>
void CoopCopy<Core>::on_data(Peer& peer, const CoopDataHeader& header, const std::byte* data, uint32_t bytes) {
    Block* const block = piece_moved(peer, header.cookie, header.offset, bytes);
    if (block == nullptr) return;
    const uint64_t begin = header.ns != 0 ? core_.clock.read() : 0;
    std::memcpy(block->local + header.offset, data, bytes);
    if (header.ns != 0 && block->method != CoopMethod::kDirect)
        measured(*block, block->method, bytes, core_.clock.read() - begin, header.ns);
    (peer.direct ? core_.counters.rma_ring_bytes : core_.counters.rma_copied_bytes) += bytes;
    end_if_done(block->waiting->block);
}

template <class Core>
void CoopCopy<Core>::on_written(Peer& peer, const CoopWrittenHeader& header) {
    Block* const block = piece_moved(peer, header.cookie, header.offset, header.bytes);
    if (block == nullptr) return;
    if (header.ns != 0) measured(*block, CoopMethod::kDirect, header.bytes, 0, header.ns);
    core_.counters.rma_get_bytes += header.bytes;
    end_if_done(block->waiting->block);
}

/// A block's operation ends when everything that was claimed of it is accounted for.
template <class Core>
void CoopCopy<Core>::owner_done(const Op& op, Status status, uint64_t missing) {
    blocks_[op.block].shared.end(missing);
    close(blocks_[op.block], status);
    end_if_done(op.block);
}

template <class Core>
void CoopCopy<Core>::peer_failed(Peer& peer) {
    for (Assist& assist : assists_) {
        if (assist.peer == &peer) assist.claims = false, assist.moving = {};
    }
    for (uint32_t slot = 0; slot < blocks_.size(); ++slot) {
        Block& block = blocks_[slot];
        const bool active = std::find(active_.begin(), active_.end(), slot) != active_.end();
        if (!active || block.peer != &peer) continue;
        close(block, Status::kPeerDead);
        block.shared.write_off();
        end_if_done(slot);
    }
}

// The owner's side.

template <class Core>
void CoopCopy<Core>::on_call(Peer& peer, const CoopCallHeader& header) {
    Assist assist = {.shared = {header.bytes, header.generation}, .peer = &peer, .cookie = header.cookie};
    assist.key = header.key;
    assist.nla = header.nla;
    assist.destination = header.destination;
    assist.slot = header.slot;
    assist.method = header.method;
    take_up(assist, header.bytes);
}

template <class Core>
void CoopCopy<Core>::on_part(Peer& peer, const CoopPartHeader& header) {
    Assist assist = {.shared = {}, .peer = &peer, .cookie = header.cookie, .key = header.key, .nla = header.nla};
    assist.base_offset = header.offset;
    assist.moving.bytes = header.bytes;
    assist.method = header.method;
    assist.claims = false;
    take_up(assist, header.bytes);
}

/// Takes a part in a peer's block, or says that it is not taken.
template <class Core>
void CoopCopy<Core>::take_up(Assist assist, uint32_t bytes) {
    Peer& peer = *assist.peer;
    if (peer.path != VELO_PATH_ON_NODE || assist.slot >= Core::kCoopBlocks || bytes == 0 ||
        bytes > kBlockBytesMax ||
        core_.on_node.atu().view().translate(assist.nla, bytes, assist.key, kAccessRead, assist.source) !=
            Status::kOk) {
        ++core_.counters.atu_faults;
        return send_done(assist, Status::kAtuFault);
    }
    if (peer.coop.blocks != 0) peer.coop.both_blocks = kBothBlocks;
    if (!add_assist(assist)) {
        ++core_.counters.engine_malformed;
        send_done(assist, Status::kProtocol);
    }
}

/// False: more than a peer can have. Its slot serves one block at a time, so an earlier one, of which nothing
/// is under way here, was moved without us.
template <class Core>
bool CoopCopy<Core>::add_assist(const Assist& assist) {
    uint32_t parts = 0;
    for (Assist& other : assists_) {
        if (other.peer != assist.peer || other.claims != assist.claims) continue;
        if (!assist.claims) {
            ++parts;
        } else if (other.slot == assist.slot) {
            if (other.moving.bytes != 0) return false;
            other = assist;
            return true;
        }
    }
    if (parts >= kNamedPartsMax) return false;
    assists_.push_back(assist);
    return true;
}

template <class Core>
uint32_t CoopCopy<Core>::drive_assists() {
    if (assisting_) return 0;
    assisting_ = true;
    uint32_t moved = 0;
    for (size_t i = 0; i < assists_.size(); ++i) {
        if (advance_assist(i, moved)) continue;
        assists_.erase(assists_.begin() + static_cast<ptrdiff_t>(i));
        --i;
    }
    assisting_ = false;
    return moved;
}

/// False: this process's part in the block is over. Only this function takes helps away, so their places
/// stay while the lock is given up.
template <class Core>
bool CoopCopy<Core>::advance_assist(size_t index, uint32_t& moved) {
    Peer& peer = *assists_[index].peer;
    uint32_t turn = 0;
    while (turn < kBytesPerTurn) {
        Assist& assist = assists_[index];  // looked up again after the lock was given up
        if (peer.ended()) return false;
        if (assist.moving.bytes == 0 && assist.claims) {
            if (reads_first(assist)) return true;
            assist.moving = assist.shared.claim_front(core_.on_node.coop_claims_of(peer.node_index(), assist.slot));
        }
        if (assist.moving.bytes == 0) return false;
        if (!core_.on_node.atu().view().valid(assist.nla, assist.key)) {
            ++core_.counters.atu_faults;
            send_done(assist, Status::kAtuFault);
            return false;
        }
        if (assist.method != CoopMethod::kDirect || !peer.direct) {
            const uint32_t before = assist.moving.bytes;
            const bool room = push_pieces(assist, moved);
            turn += before - assist.moving.bytes;
            if (!room) return true;
            continue;
        }
        // A message that waits already goes first.
        if (!peer.sending.pending.empty()) return true;
        const base::BlockPart part = assist.moving;
        Status status = Status::kOk;
        uint64_t ns = 0;
        {
            const int32_t pid = core_.on_node.pid(peer.node_index());
            const auto* source = reinterpret_cast<const std::byte*>(assist.source + part.offset);
            const uint64_t destination = assist.destination + part.offset;
            base::Unlocked unlocked(core_.lock);
            const uint64_t begin = core_.clock.read();
            status = core_.system.copy_to(pid, source, destination, part.bytes);
            ns = core_.clock.read() - begin;
        }
        Assist& same = assists_[index];
        if (status == Status::kUnsupported) {
            // Not on from here: `assist` may have moved meanwhile.
            transfers_->give_up_direct(peer);
            return true;
        }
        if (status != Status::kOk) {
            send_done(same, status);
            return false;
        }
        core_.counters.rma_put_bytes += part.bytes;
        messages_.send_control(peer, CoopWrittenHeader{.cookie = same.cookie,
                                                       .offset = part.offset,
                                                       .bytes = part.bytes,
                                                       .ns = header_ns(ns)});
        same.moving = {};
        ++moved;
        return true;
    }
    return true;
}

/// True: the peer reads this block itself meanwhile, as this process reads its blocks. Two that copy for each other do
/// so twice as often out of the other's cache, and wait for the same locks of the kernel.
template <class Core>
bool CoopCopy<Core>::reads_first(const Assist& assist) const {
    return assist.method == CoopMethod::kDirect && assist.peer->direct && assist.peer->coop.blocks != 0;
}

/// Sends what was claimed through the ring. False: the ring is full, or the peer gone.
template <class Core>
bool CoopCopy<Core>::push_pieces(Assist& assist, uint32_t& moved) {
    Peer& peer = *assist.peer;
    const uint32_t piece_max = std::min(
        kPieceBytes, core_.on_node.message_bytes_max() - static_cast<uint32_t>(sizeof(CoopDataHeader)));
    base::BlockPart& moving = assist.moving;
    while (moving.bytes != 0) {
        // A message that waits already goes first.
        if (!peer.sending.pending.empty()) return false;
        const uint32_t bytes = std::min(moving.bytes, piece_max);
        const auto total = static_cast<uint32_t>(sizeof(CoopDataHeader) + bytes);
        Status status = Status::kOk;
        const auto room = core_.on_node.reserve(peer.node_index(), total, status);
        if (room.first == nullptr) return false;
        CoopDataHeader header = {.cookie = assist.cookie, .offset = assist.base_offset + uint64_t{moving.offset}};
        static_assert(sizeof header == Core::kInlineBytesMax);
        const auto* source = reinterpret_cast<const std::byte*>(assist.source + moving.offset);
        const bool timed = pieces_++ % kPiecesPerMeasure == 0;
        const uint64_t begin = timed ? core_.clock.read() : 0;
        if (assist.method == CoopMethod::kRingNontemporal) {
            base::copy_nontemporal(room.rest, source, bytes);
        } else {
            std::memcpy(room.rest, source, bytes);
        }
        if (timed) header.ns = header_ns(core_.clock.read() - begin);
        write_header(room.first, header);
        core_.on_node.commit(peer.node_index(), MessageClass::kEngine, 0, total);
        moving.offset += bytes;
        moving.bytes -= bytes;
        ++moved;
    }
    return true;
}

/// The claimed part will not come.
template <class Core>
void CoopCopy<Core>::send_done(const Assist& assist, Status status) {
    messages_.send_control(*assist.peer,
                           DoneHeader{.status = status, .cookie = assist.cookie, .value = assist.moving.bytes});
}

}  // namespace velo::rma
