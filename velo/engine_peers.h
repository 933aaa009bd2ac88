/// Engine: who the peers are and how each is reached; registrations; counters. Part of engine.h.
#pragma once

#include <algorithm>

#include "velo/base/cma.h"
#include "velo/engine.h"
#include "velo/handle.h"

namespace velo {

/// For the user, beside the name of the path.
inline std::string nearness_text(base::Place ours, base::Place theirs) {
    switch (base::nearness(ours, theirs)) {
        case base::Nearness::kSameCache: return " (same L3 cache)";
        case base::Nearness::kSameNode: return " (same NUMA node)";
        case base::Nearness::kOtherNode: return " (other NUMA node)";
        case base::Nearness::kUnknown: break;
    }
    return "";
}

/// Why a process that has no shared memory with this one is not reached. Empty: the network's device may reach it.
template <class D>
std::string Engine<D>::why_not_reached(const EngineAddress& address, Vicinity where) const {
    const bool same_host = where == Vicinity::kOtherContainer;
    const std::string place = same_host ? "in another container of this host" : "on another host";
    const std::string peer = same_host ? "its shared memory cannot be attached: the peer is " + place +
                                             " (another PID or user namespace)"
                                       : "the peer is " + place;
    const std::string remedy = "; use another BTL for it, such as tcp, beside velo";
    if (!options_.no_network.empty()) return peer + ", and " + options_.no_network + remedy;
    if (!device_ || !device_->traits().other_hosts) {
        return peer + ", and this rank began without a network" +
               (same_host ? "; run all ranks of a host in one container, or set btl_velo_device=ofi"
                          : ", because it knew of one host only; set btl_velo_device=ofi");
    }
    if (address.network == 0) return peer + ", and has no network's device open" + remedy;
    const bool same_job = address.job == options_.identity.job;
    // In a job on several hosts, ranks of the own one were not counted.
    const bool planned = same_job && (!same_host || options_.plan.peers + 1 >= options_.identity.job_size);
    if (!planned && options_.plan.contact_slots == 0) {
        return "the peer is " + (same_job ? place : "of another job, " + place) +
               ", and the mailbox was planned for " +
               (same_job ? "the ranks of other nodes" : "this job's processes") +
               " alone; use btl_velo_flow_control=dynamic with btl_velo_contact_slots, which has room for others";
    }
    return "";
}

template <class D>
Status Engine<D>::check_address(const EngineAddress& address, Vicinity where, std::string& error) const {
    if (address.magic != EngineAddress::kMagic || address.version != EngineAddress::kVersion) {
        error = "the peer runs another version of velo; all ranks of a job need the same one";
        return Status::kUnsupported;
    }
    if (where != Vicinity::kAttachable) {
        if (error = why_not_reached(address, where); !error.empty()) return Status::kUnsupported;
    }
    const EngineAddress here = this->address();
    const auto differs = [&](const std::string& name, const std::string& ours, const std::string& theirs) {
        error = "btl_velo_" + name + " is " + ours + " at rank " + std::to_string(options_.identity.rank) + " and " +
                theirs + " at rank " + std::to_string(address.rank) + "; all ranks of a job need the same value";
        return Status::kUnsupported;
    };
    if (where == Vicinity::kAttachable) {
        if (address.job != options_.identity.job) return Status::kOk;
        // Two processes with different node sizes disagree on each other's node.
        const bool same_nodes = address.settings.ranks_per_node == here.settings.ranks_per_node;
        if (same_nodes && address.node == options_.node) return Status::kOk;
    }
    if (const auto setting = difference(here.settings, address.settings); setting) {
        return differs(std::string(setting->name), setting->here, setting->there);
    }
    if (address.device_bytes == 0 || !device_ || address.device_bytes > sizeof address.device) {
        error = "the peer published an impossible address";
        return Status::kUnsupported;
    }
    const bool same_job = address.job == options_.identity.job;
    if (!same_job && (address.mailbox_slots != here.mailbox_slots || address.contact_slots != here.contact_slots)) {
        error = "the peer's job has mailboxes of " + std::to_string(address.mailbox_slots) + " slots, " +
                std::to_string(address.contact_slots) + " of them contact slots, and this job of " +
                std::to_string(here.mailbox_slots) + " and " + std::to_string(here.contact_slots) +
                "; give both the same btl_velo_mailbox_slots";
        return Status::kUnsupported;
    }
    if (address.mailbox_slots != here.mailbox_slots || (same_job && address.quota != here.quota) ||
        address.credit_slots != here.credit_slots || address.contact_slots != here.contact_slots ||
        address.flow_control != here.flow_control) {
        error = "the peer planned its mailbox otherwise, of the same parameters; all ranks need the same velo";
        return Status::kUnsupported;
    }
    if (address.message_bytes_max != here.message_bytes_max) {
        return differs("max_send_size or eager_limit", std::to_string(here.message_bytes_max),
                       std::to_string(address.message_bytes_max));
    }
    return Status::kOk;
}

template <class D>
Status Engine<D>::connect(const EngineAddress& address, bool same_host, void* context, velo_peer*& peer,
                          std::string& error) {
    const std::lock_guard guard(lock_);
    const Vicinity where = vicinity(this->address(), address, same_host);
    if (const Status status = check_address(address, where, error); status != Status::kOk) return status;
    // A process of another job was not counted when the mailboxes were planned; where it can be attached, the
    // on-node path does for it, whatever node it emulates.
    const bool attachable = where == Vicinity::kAttachable;
    const bool on_node = attachable && (address.job != options_.identity.job || address.node == options_.node);
    const velo_path_t path = on_node ? VELO_PATH_ON_NODE : VELO_PATH_DEVICE;
    uint32_t index = 0;
    base::Failure failure = {.call = "the peer published an impossible address", .error = 0};
    const Status status = on_node ? on_node_.connect(address.on_node, index, &failure)
                                  : device_->connect({address.device, address.device_bytes}, index, &failure);
    if (status != Status::kOk) {
        error = on_node || !options_.network_used
                    ? "its shared memory cannot be attached: " + to_text(failure) + ". " + remedy(failure)
                    : std::string("it cannot be reached over ") + device_->name() + ": " + to_text(failure);
        return status;
    }
    if (!on_node && !velo_->admits(index)) {
        error = "the mailbox was planned for " + std::to_string(options_.plan.peers) + " senders";
        return Status::kNoResource;
    }
    if (!on_node) velo_->know(index);
    velo_peer& found = peer_of(path, index);
    found.rank = address.rank;
    found.attachable = attachable;
    if (!found.connected) {
        found.connected = true;
        found.name = address.name;
        found.job = address.job;
        found.pid = address.on_node.segment.pid;
        if (on_node) {
            uint64_t seen = 0;
            found.direct = options_.single_copy &&
                           base::cma_read(address.on_node.segment.pid, reinterpret_cast<std::byte*>(&seen),
                                          address.probe_address, sizeof seen) == Status::kOk &&
                           seen == address.probe;
            if (options_.single_copy && !found.direct) tell_of_denied_copies(found);
        } else {
            found.direct = options_.single_copy;
        }
        if (options_.params.show_paths != 0) {
            const char* large = !found.direct ? "copied chunks"
                                : on_node     ? "both ends (ring and CMA)"
                                              : "RMA gets";
            log(0, "velo: rank " + std::to_string(options_.identity.rank) + " (node " +
                       std::to_string(options_.node) + ") -> rank " + std::to_string(address.rank) +
                       " (node " + std::to_string(address.node) + "): " +
                       (on_node ? std::string("on-node ring") +
                                      nearness_text(options_.on_node.place, address.on_node.place)
                                : "VELO packets") +
                       ", large messages by " + large);
        }
    }
    found.context = context;
    peer = &found;
    return Status::kOk;
}

/// One that only wrote to us so far gets its place here.
template <class D>
velo_peer& Engine<D>::add_peer_of(velo_path_t path, uint32_t index) {
    std::vector<velo_peer*>& table = path == VELO_PATH_ON_NODE ? by_on_node_ : by_device_;
    if (index >= table.size()) [[unlikely]]
        table.resize(index + 1, nullptr);
    if (table[index] == nullptr) [[unlikely]] {
        if (spare_peers_.empty()) {
            peers_.push_back(std::make_unique<velo_peer>());
            spare_peers_.push_back(peers_.back().get());
        }
        table[index] = spare_peers_.back();
        spare_peers_.pop_back();
        table[index]->path = path;
        table[index]->index = index;
    }
    return *table[index];
}

/// The host will not use this peer again, unless it connects again. False: something of it is still pending,
/// and its callbacks will come.
template <class D>
bool Engine<D>::disconnect(velo_peer& peer) {
    const std::lock_guard guard(lock_);
    peer.connected = false;
    peer.context = nullptr;
    const bool nothing_pending = quiet(peer);
    if (nothing_pending && peer.gone) recycle(peer);
    return nothing_pending;
}

/// Nothing that the engine holds refers to this peer.
template <class D>
bool Engine<D>::quiet(const velo_peer& peer) {
    if (peer.in_pending || peer.in_copying) return false;
    bool waited_for =
        std::any_of(helps_.begin(), helps_.end(), [&](const Help& help) { return help.peer == &peer; });
    // An operation under way, such as a direct copy that another thread makes, has a slot.
    const auto look_at = [&](const rma::Transfer& transfer) {
        waited_for |= static_cast<const RmaState&>(transfer).peer == &peer;
    };
    scheduler_.for_each_waiting(look_at);
    for (const rma::Transfer* atomic = atomics_.front(); atomic != nullptr; atomic = atomic->next) look_at(*atomic);
    if (slots_.taken() != 0) {
        slots_.for_each(
            [&](uint32_t, const Waiting& waiting) { waited_for |= waiting.state->peer == &peer; });
    }
    return !waited_for;
}

/// Gives back what processes of this node held that have ended, each as soon as nothing of it is pending.
/// Those of the job do not leave before its end; those that it spawned, or met, may come and go without end.
template <class D>
void Engine<D>::sweep_ended() {
    for (size_t i = 0; i < ended_.size(); ++i) {
        velo_peer& peer = *ended_[i];
        if (!quiet(peer) || !on_node_.disconnect(peer.index)) continue;
        by_on_node_[peer.index] = nullptr;
        peer.gone = true;
        // Pending requests go the way of messages, which fail.
        peer.direct = false;
        ended_[i] = ended_.back();
        ended_.pop_back();
        --i;
        ++counters_.peers_gone;
        if (!peer.connected) recycle(peer);
    }
}

template <class D>
void Engine<D>::recycle(velo_peer& peer) {
    // In place: callers further up may still look at its queues, which are empty.
    peer.gone = peer.dead = peer.direct = peer.end_told = false;
    peer.helps = true;
    peer.name = 0;
    peer.rank = 0;
    peer.path = VELO_PATH_NONE;
    spare_peers_.push_back(&peer);
}

template <class D>
Status Engine<D>::register_memory(void* base, size_t bytes, uint32_t access, velo_handle_t& handle) {
    const std::lock_guard guard(lock_);
    Registration here;
    if (const Status status = on_node_.atu().add(base, bytes, access, here); status != Status::kOk) {
        ++counters_.registrations_refused;
        return status;
    }
    Registration device;
    if (device_ &&
        device_->register_memory(base, bytes, static_cast<Access>(access), device) != Status::kOk) {
        // Peers beyond the device then fetch this range in messages.
        ++counters_.registrations_refused;
        device = {};
    }
    ++counters_.registrations;
    handle = {.base = reinterpret_cast<uint64_t>(base),
              .bytes = bytes,
              .nla = {here.nla, device.nla},
              .device_key = device.key,
              .on_node_key = static_cast<uint32_t>(here.key),
              .reserved = 0,
              .check = 0};
    handle.check = check_of(handle);
    return Status::kOk;
}

template <class D>
void Engine<D>::deregister(const velo_handle_t& handle) {
    const std::lock_guard guard(lock_);
    Status status =
        on_node_.atu().remove({.nla = handle.nla[0], .bytes = handle.bytes, .key = handle.on_node_key});
    if (status == Status::kOk && device_ && handle.device_key != 0) {
        status = device_->deregister({.nla = handle.nla[1], .bytes = handle.bytes, .key = handle.device_key});
    }
    VELO_CHECK(status == Status::kOk, "deregistration of %llu bytes: %s",
               static_cast<unsigned long long>(handle.bytes), to_string(status));
}

template <class D>
void Engine<D>::counters(velo_counters_t& out) const {
    const std::lock_guard guard(lock_);
    out = counters_;
    const shm::OnNodeCounters& on_node = on_node_.counters();
    out.on_node_tx_messages = on_node.messages_sent;
    out.on_node_rx_messages = on_node.messages_received;
    out.on_node_ring_full = on_node.ring_full;
    out.on_node_rings = on_node.rings_created;
    out.on_node_bells = on_node.bells_rung;
    out.on_node_garbage = on_node.garbage;
    out.on_node_contacts_refused = on_node.contacts_refused;
    if (!device_) return;
    const DeviceCounters device = device_->counters();
    out.velo_tx_packets = device.packets_sent;
    out.velo_rx_packets = device.packets_received;
    out.velo_backpressure = device.backpressure;
    out.velo_overflows = device.mailbox_overflows;
    out.velo_without_room = device.starved;
    out.velo_contacts_refused = device.contacts_refused;
    out.atu_faults += device.atu_faults;
    const VeloPathCounters& velo = velo_->counters();
    out.velo_tx_messages = velo.messages_sent;
    out.velo_rx_messages = velo.messages_received;
    out.velo_rx_malformed = velo.malformed + device.packets_unknown_source;
    out.credits_tx_packets = velo.credit_packets_sent;
    out.credits_rx_packets = velo.credit_packets_received;
    out.credits_tx_explicit = velo.credits_returned_explicit;
    out.credits_tx_piggybacked = velo.credits_returned_piggyback;
    out.credits_rx = velo.credits_received;
    out.requests_tx = velo.requests_sent;
    out.requests_rx = velo.requests_received;
    out.responses_tx = velo.responses_sent;
    out.responses_rx = velo.responses_received;
    out.credits_given_up = velo.credits_given_up;
    out.contacts_tx = velo.contacts_sent;
    out.contacts_rx = velo.contacts_received;
    out.opens_tx = velo.opens_sent;
    out.opens_rx = velo.opens_received;
    out.closes_tx = velo.closes_sent;
    out.closes_rx = velo.closes_received;
    out.closed_tx = velo.closed_sent;
    out.closed_rx = velo.closed_received;
    out.idle_peer_bytes = VeloPath<D>::idle_peer_bytes(options_.plan);
    out.peer_bytes = device_peer_bytes(options_.plan) + device_->peer_bytes();
    out.slot_owners = velo_->flow().slot_owners();
    if (const auto* dynamic = velo_->flow().dynamic(); dynamic != nullptr) {
        out.steals = dynamic->counters().steals;
        out.list_moves = dynamic->counters().list_moves;
    }
    out.stall_count = velo_->stalls().count();
    out.stall_ns = velo_->stalls().ns(velo_->stalls().any_waits() ? now_ns() : 0);
    const CreditSums sums = sum_credits();
    out.credits_held = sums.held;
    out.credits_granted = sums.granted;
    out.credits_available = sums.available;
}

}  // namespace velo
