/// Engine: blocks that two processes of a node move together. Part of engine.h.
///
/// A get on the node is not one process's work while the other one waits. The reader calls the owner of the
/// data, and both take chunks until none is left (base/joint.h): the owner from the front, the reader from
/// the back, with direct copies. To a near reader the owner sends its chunks through the ring instead, which
/// is faster than any direct copy, and the reader only unpacks. An owner that computes takes no part; after
/// some polls the reader goes on alone. If direct copies are not permitted, the owner sends everything.
#pragma once

#include "velo/base/cma.h"
#include "velo/engine.h"

namespace velo {

// The reader's side.

/// False: all slots are in use.
template <class D>
bool Engine<D>::issue_joint(RmaState& state, const rma::Chunk& chunk) {
    if (free_joints_.empty()) return false;
    const velo_rma_t& op = *state.op;
    velo_peer& peer = *state.peer;
    const uint64_t remote = op.remote_address + chunk.offset;
    uint64_t nla = 0;
    uint64_t address = 0;
    for (;;) {
        nla = op.remote.nla[0] + (remote - op.remote.base);
        const Status status =
            on_node_.atu_of(peer.index).translate(nla, chunk.bytes, op.remote.on_node_key, kAccessRead, address);
        if (status == Status::kOk && address == remote) break;
        if (!find_remote(state)) {
            chunk_done(state, Status::kAtuFault);
            return true;
        }
    }
    const uint8_t slot = free_joints_.back();
    Joint& joint = joints_[slot];
    const auto generation = static_cast<uint16_t>(joint.generation + 1);
    joint = {.peer = &peer,
             .state = &state,
             .local = static_cast<std::byte*>(op.local) + chunk.offset,
             .remote = remote,
             .nla = nla,
             .key = op.remote.on_node_key,
             .bytes = chunk.bytes,
             .chunk_bytes = joint_chunk_bytes(chunk.bytes),
             .offset = chunk.offset,
             .generation = generation};
    joint.chunks = (joint.bytes + joint.chunk_bytes - 1) / joint.chunk_bytes;
    free_joints_.pop_back();
    active_joints_.push_back(slot);
    if (peer.joints++ == 0) peer.heard = polls_;
    joint.cookie = slots_.take(
        {.wait = Wait::kJoint, .state = &state, .offset = chunk.offset, .bytes = chunk.bytes, .joint = slot});
    base::JointClaims::open(on_node_.joint(slot), generation);
    send_control(peer, {.opcode = Opcode::kJoint,
                        .cookie = joint.cookie,
                        .nla = joint.nla,
                        .key = joint.key,
                        .value = JointCall{joint.bytes, generation, slot}.pack(),
                        .compare = reinterpret_cast<uint64_t>(joint.local)});
    return true;
}

/// Takes over what the owners leave. At most one chunk of each block, so that what arrives is unpacked.
template <class D>
uint32_t Engine<D>::drive_joints() {
    uint32_t moved = 0;
    // An upcall may change the list, so nothing of it is held across one.
    for (size_t i = 0; i < active_joints_.size(); ++i) {
        const uint8_t slot = active_joints_[i];
        Joint& joint = joints_[slot];
        velo_peer& peer = *joint.peer;
        if (joint.closed) continue;
        const base::JointClaims::Claims claims = base::JointClaims::look(on_node_.joint(slot));
        if (!claims.fits(joint.generation, joint.own_chunks, joint.chunks)) [[unlikely]] {
            close_joint(joint, Status::kProtocol);
            end_joint_if_done(slot);
            continue;
        }
        if (!peer.direct) continue;
        if (!on_node_.far(peer.index)) {
            const uint32_t silent = polls_ - peer.heard;
            if (silent < (peer.helps ? kPatiencePolls : kPatiencePolls / 16)) continue;
            peer.helps = false;
        }
        if (take_own_chunk(slot)) ++moved;
    }
    return moved;
}

/// False: there was nothing left to take.
template <class D>
bool Engine<D>::take_own_chunk(uint32_t slot) {
    Joint& joint = joints_[slot];
    uint32_t index = 0;
    if (!base::JointClaims::claim_back(on_node_.joint(slot), joint.generation, joint.chunks, index)) {
        close_joint(joint, Status::kOk);
        end_joint_if_done(slot);
        return false;
    }
    ++joint.own_chunks;
    const uint32_t offset = index * joint.chunk_bytes;
    const uint32_t bytes = std::min(joint.chunk_bytes, joint.bytes - offset);
    const int32_t pid = on_node_.pid(joint.peer->index);
    ++joint.copying;
    Status status = Status::kOk;
    {
        // The block cannot end meanwhile: what is copied here is not accounted for yet.
        base::Unlocked unlocked(lock_);
        status = base::cma_read(pid, joint.local + offset, joint.remote + offset, bytes);
    }
    --joint.copying;
    if (status == Status::kUnsupported) {
        // The owner is asked for this part by name.
        give_up_direct(*joint.peer);
        send_control(*joint.peer, {.opcode = Opcode::kJoint,
                                   .cookie = joint.cookie,
                                   .nla = joint.nla + offset,
                                   .key = joint.key,
                                   .last = 1,
                                   .value = JointCall{bytes, joint.generation, 0}.pack(),
                                   .compare = offset});
        return true;
    }
    if ((status == Status::kOk || status == Status::kBadMemory) &&
        !on_node_.atu_of(joint.peer->index).valid(joint.nla, joint.key))
        status = Status::kAtuFault;
    joint.ended_bytes += bytes;
    counters_.rma_get_bytes += bytes;
    if (status != Status::kOk) close_joint(joint, status);
    end_joint_if_done(slot);
    return true;
}

/// Nothing of the block can be claimed any more. It ends when all that was claimed is accounted for.
template <class D>
void Engine<D>::close_joint(Joint& joint, Status status) {
    if (joint.status == Status::kOk) joint.status = status;
    if (joint.closed) return;
    joint.closed = true;
    const auto slot = static_cast<uint32_t>(&joint - joints_.data());
    const base::JointClaims::Claims claims = base::JointClaims::close(on_node_.joint(slot));
    const bool fits = claims.fits(joint.generation, joint.own_chunks, joint.chunks);
    const bool complete = claims.front + joint.own_chunks == joint.chunks;
    if (!fits || (joint.status == Status::kOk && !complete)) {
        // Overwritten: which bytes the owner still brings is not known.
        ++counters_.engine_malformed;
        if (joint.status == Status::kOk) joint.status = Status::kProtocol;
        joint.due_bytes = joint.ended_bytes;
        return;
    }
    // Chunks from the front are whole, unless they reach the end.
    const uint64_t taken = uint64_t{claims.front + joint.own_chunks} * joint.chunk_bytes;
    const uint32_t last_bytes = joint.bytes - (joint.chunks - 1) * joint.chunk_bytes;
    joint.due_bytes = joint.own_chunks == 0 ? static_cast<uint32_t>(std::min<uint64_t>(taken, joint.bytes))
                                            : static_cast<uint32_t>(taken - joint.chunk_bytes + last_bytes);
    joint.due_bytes = std::min(joint.due_bytes, joint.bytes);
    // Nothing more comes from the dead.
    if (joint.peer->dead) joint.due_bytes = joint.ended_bytes;
}

/// True: the block is done with, and its slot free.
template <class D>
bool Engine<D>::end_joint_if_done(uint32_t slot) {
    Joint& joint = joints_[slot];
    if (joint.copying != 0) return false;
    if (joint.closed ? joint.ended_bytes < joint.due_bytes : joint.ended_bytes < joint.bytes) return false;
    if (!joint.closed) close_joint(joint, Status::kOk);
    RmaState& state = *joint.state;
    const Status status = joint.status;
    const uint64_t offset = joint.offset;
    const uint32_t bytes = joint.bytes;
    slots_.release(joint.cookie);
    --joint.peer->joints;
    free_joints_.push_back(static_cast<uint8_t>(slot));
    active_joints_.erase(std::find(active_joints_.begin(), active_joints_.end(), slot));
    if (status == Status::kAtuFault) {
        chunk_refused(state, offset, bytes);
    } else {
        chunk_done(state, status);
    }
    return true;
}

template <class D>
void Engine<D>::on_joint_data(velo_peer& peer, const EngineHeader& header, const std::byte* data,
                              uint32_t bytes) {
    const Waiting* waiting = slots_.find(header.cookie);
    const bool written = header.compare != 0;
    const uint64_t length =
        written ? header.compare : bytes - std::min<uint64_t>(bytes, sizeof(JointDataHeader));
    if (waiting == nullptr || waiting->wait != Wait::kJoint || joints_[waiting->joint].peer != &peer) {
        ++counters_.engine_malformed;
        return;
    }
    const uint8_t slot = waiting->joint;
    Joint& joint = joints_[slot];
    if (length == 0 || header.value > joint.bytes || length > joint.bytes - header.value ||
        length > joint.bytes - joint.ended_bytes) {
        ++counters_.engine_malformed;
        return;
    }
    peer.heard = polls_;
    peer.helps = true;
    if (written) {
        counters_.rma_get_bytes += length;
    } else {
        std::memcpy(joint.local + header.value, data + sizeof(JointDataHeader), length);
        (peer.direct ? counters_.rma_ring_bytes : counters_.rma_copied_bytes) += length;
    }
    joint.ended_bytes += static_cast<uint32_t>(length);
    end_joint_if_done(slot);
}

template <class D>
void Engine<D>::peer_of_joints_died(velo_peer& peer) {
    for (size_t i = 0; i < helps_.size(); ++i) {
        if (helps_[i].peer == &peer) helps_[i].claims = false, helps_[i].left = 0;
    }
    for (uint32_t slot = 0; slot < joints_.size(); ++slot) {
        Joint& joint = joints_[slot];
        const bool active =
            std::find(active_joints_.begin(), active_joints_.end(), slot) != active_joints_.end();
        if (!active || joint.peer != &peer) continue;
        close_joint(joint, Status::kPeerDead);
        joint.due_bytes = 0;
        end_joint_if_done(slot);
    }
}

// The owner's side.

template <class D>
void Engine<D>::on_joint(velo_peer& peer, const EngineHeader& header) {
    const JointCall call = JointCall::unpack(header.value);
    Help help = {.peer = &peer,
                 .cookie = header.cookie,
                 .key = header.key,
                 .nla = header.nla,
                 .bytes = call.bytes,
                 .generation = call.generation,
                 .slot = call.slot};
    const bool by_name = header.last != 0;
    if (by_name) {
        help.claims = false;
        help.left = call.bytes;
    }
    if (peer.path != VELO_PATH_ON_NODE || call.slot >= shm::kJointSlots || call.bytes == 0 ||
        call.bytes > kJointBytesMax ||
        on_node_.atu().view().translate(help.nla, help.bytes, help.key, kAccessRead, help.source) !=
            Status::kOk) {
        ++counters_.atu_faults;
        help.left = by_name ? call.bytes : 0;
        tell_joint_done(help, Status::kAtuFault);
        return;
    }
    // Named parts are counted from the block's beginning, and so is what answers them.
    help.destination = by_name ? 0 : header.compare;
    help.base_offset = by_name ? static_cast<uint32_t>(header.compare) : 0;
    if (!add_help(help)) {
        ++counters_.engine_malformed;
        tell_joint_done(help, Status::kProtocol);
    }
}

/// False: more than a peer can have. Its slot serves one block at a time, so an earlier one, of which nothing
/// is under way here, was moved without us.
template <class D>
bool Engine<D>::add_help(const Help& help) {
    uint32_t parts = 0;
    for (Help& other : helps_) {
        if (other.peer != help.peer || other.claims != help.claims) continue;
        if (!help.claims) {
            ++parts;
        } else if (other.slot == help.slot) {
            if (other.left != 0) return false;
            other = help;
            return true;
        }
    }
    if (parts >= kNamedPartsMax) return false;
    helps_.push_back(help);
    return true;
}

template <class D>
uint32_t Engine<D>::drive_helps() {
    if (helping_) return 0;
    helping_ = true;
    uint32_t moved = 0;
    for (size_t i = 0; i < helps_.size(); ++i) {
        if (advance_help(i, moved)) continue;
        helps_.erase(helps_.begin() + static_cast<ptrdiff_t>(i));
        --i;
    }
    helping_ = false;
    return moved;
}

/// False: this process's part in the block is over. Only this function takes helps away, so their places
/// stay while the lock is given up.
template <class D>
bool Engine<D>::advance_help(size_t index, uint32_t& moved) {
    velo_peer& peer = *helps_[index].peer;
    uint32_t turn = 0;
    while (turn < kJointBytesPerTurn) {
        Help& help = helps_[index];  // looked up again after the lock was given up
        if (peer.dead) return false;
        if (help.left == 0) {
            const uint32_t chunk_bytes = joint_chunk_bytes(help.bytes);
            const uint32_t chunks = (help.bytes + chunk_bytes - 1) / chunk_bytes;
            uint32_t chunk = 0;
            if (!help.claims || !base::JointClaims::claim_front(on_node_.joint_of(peer.index, help.slot),
                                                                help.generation, chunks, chunk)) {
                return false;
            }
            help.offset = std::min(chunk, chunks - 1) * chunk_bytes;
            help.left = std::min(chunk_bytes, help.bytes - help.offset);
        }
        if (!on_node_.atu().view().valid(help.nla, help.key)) {
            ++counters_.atu_faults;
            tell_joint_done(help, Status::kAtuFault);
            return false;
        }
        if (help.destination == 0 || !peer.direct || !on_node_.far(peer.index)) {
            const uint32_t before = help.left;
            const bool room = push_pieces(help, moved);
            turn += before - help.left;
            if (!room) return true;
            continue;
        }
        // A message that waits already goes first.
        if (!peer.pending.empty()) return true;
        const uint32_t bytes = help.left;
        Status status = Status::kOk;
        {
            const int32_t pid = on_node_.pid(peer.index);
            const auto* source = reinterpret_cast<const std::byte*>(help.source + help.offset);
            const uint64_t destination = help.destination + help.offset;
            base::Unlocked unlocked(lock_);
            status = base::cma_write(pid, source, destination, bytes);
        }
        Help& same = helps_[index];
        if (status == Status::kUnsupported) {
            // Not on from here: `help` may have moved meanwhile.
            give_up_direct(peer);
            return true;
        }
        if (status != Status::kOk) {
            tell_joint_done(same, status);
            return false;
        }
        counters_.rma_put_bytes += bytes;
        send_control(
            peer,
            {.opcode = Opcode::kJointData, .cookie = same.cookie, .value = same.offset, .compare = bytes});
        same.left = 0;
        ++moved;
        return true;
    }
    return true;
}

/// Sends what was claimed through the ring. False: the ring is full, or the peer gone.
template <class D>
bool Engine<D>::push_pieces(Help& help, uint32_t& moved) {
    velo_peer& peer = *help.peer;
    const uint32_t piece_max = std::min(
        kJointPieceBytes, on_node_.message_bytes_max() - static_cast<uint32_t>(sizeof(JointDataHeader)));
    while (help.left != 0) {
        // A message that waits already goes first.
        if (!peer.pending.empty()) return false;
        const uint32_t bytes = std::min(help.left, piece_max);
        const auto total = static_cast<uint32_t>(sizeof(JointDataHeader) + bytes);
        Status status = Status::kOk;
        const auto room = on_node_.reserve(peer.index, total, status);
        if (room.first == nullptr) return false;
        const JointDataHeader header = {{.opcode = Opcode::kJointData,
                                         .cookie = help.cookie,
                                         .value = help.base_offset + uint64_t{help.offset}}};
        static_assert(sizeof header == shm::kInlineBytesMax);
        std::memcpy(room.first, &header, sizeof header);
        const auto* source = reinterpret_cast<const std::byte*>(help.source + help.offset);
        if (on_node_.nontemporal(peer.index, total)) {
            base::copy_nontemporal(room.rest, source, bytes);
        } else {
            std::memcpy(room.rest, source, bytes);
        }
        on_node_.commit(peer.index, MessageClass::kEngine, 0, total);
        help.offset += bytes;
        help.left -= bytes;
        ++moved;
    }
    return true;
}

/// The claimed part will not come.
template <class D>
void Engine<D>::tell_joint_done(const Help& help, Status status) {
    send_control(*help.peer, {.opcode = Opcode::kDone,
                              .status = static_cast<uint8_t>(status),
                              .cookie = help.cookie,
                              .value = help.left});
}

}  // namespace velo
