/// Bodies of velo/engine/connector.h, for what compiles them for a system (velo/engine/instances.h).
#pragma once

#include "velo/engine/connector.h"

namespace velo {

template <class Core>
EngineAddress Connector<Core>::address() const {
    const EngineOptions& options = core_.options;
    EngineAddress address;
    address.process = {.name = options.identity.name,
                       .job = options.identity.job,
                       .rank = options.identity.rank,
                       .node = options.node};
    address.mailbox = {.slots = options.plan.mailbox_slots,
                       .flow_control = static_cast<uint8_t>(options.plan.mode),
                       .piggyback = options.plan.piggyback,
                       .credit_slots = static_cast<uint16_t>(options.plan.credit_slots),
                       .quota = options.plan.quota};
    address.contact_slots = options.plan.contact_slots;
    address.settings = options.settings;
    address.probe = {.address = reinterpret_cast<uint64_t>(&probe_), .value = probe_};
    address.message_bytes_max = options.params.device_message_bytes_max;
    address.on_node = core_.on_node.address();
    address.host = host_;
    address.network = options.network_used;
    if (core_.device) address.device_bytes = static_cast<uint32_t>(core_.device->address(address.device));
    return address;
}

/// Why a process that has no shared memory with this one is not reached. Empty: the network's device may
/// reach it.
template <class Core>
std::string Connector<Core>::why_not_reached(const EngineAddress& address, Vicinity where) const {
    const bool same_host = where == Vicinity::kOtherContainer;
    const std::string place = same_host ? "in another container of this host" : "on another host";
    const std::string peer = same_host ? "its shared memory cannot be attached: the peer is " + place +
                                             " (another PID or user namespace)"
                                       : "the peer is " + place;
    const std::string remedy = "; use another BTL for it, such as tcp, beside velo";
    if (!core_.options.no_network.empty()) return peer + ", and " + core_.options.no_network + remedy;
    if (!core_.device || !core_.device->traits().other_hosts) {
        return peer + ", and this rank began without a network" +
               (same_host ? "; run all ranks of a host in one container, or set btl_velo_device=ofi"
                          : ", because it knew of one host only; set btl_velo_device=ofi");
    }
    if (address.network == 0) return peer + ", and has no network's device open" + remedy;
    const bool same_job = address.process.job == core_.options.identity.job;
    // In a job on several hosts, ranks of the own one were not counted.
    const bool planned =
        same_job && (!same_host || core_.options.plan.peers + 1 >= core_.options.identity.job_size);
    if (!planned && core_.options.plan.contact_slots == 0) {
        return "the peer is " + (same_job ? place : "of another job, " + place) +
               ", and the mailbox was planned for " +
               (same_job ? "the ranks of other nodes" : "this job's processes") +
               " alone; use btl_velo_flow_control=dynamic, which has room for others";
    }
    return "";
}

template <class Core>
Status Connector<Core>::check_address(const EngineAddress& address, Vicinity where, std::string& error) const {
    if (address.magic != EngineAddress::kMagic || address.version != EngineAddress::kVersion) {
        error = "the peer runs another version of velo; all ranks of a job need the same one";
        return Status::kUnsupported;
    }
    if (where != Vicinity::kAttachable) {
        if (error = why_not_reached(address, where); !error.empty()) return Status::kUnsupported;
    }
    const EngineAddress here = this->address();
    const auto differs = [&](const std::string& name, const std::string& ours, const std::string& theirs) {
        error = "btl_velo_" + name + " is " + ours + " at rank " +
                std::to_string(core_.options.identity.rank) + " and " + theirs + " at rank " +
                std::to_string(address.process.rank) + "; all ranks of a job need the same value";
        return Status::kUnsupported;
    };
    if (where == Vicinity::kAttachable) {
        if (address.process.job != core_.options.identity.job) return Status::kOk;
        // Two processes with different node sizes disagree on each other's node.
        const bool same_nodes = address.settings.ranks_per_node == here.settings.ranks_per_node;
        if (same_nodes && address.process.node == core_.options.node) return Status::kOk;
    }
    if (const auto setting = difference(here.settings, address.settings); setting) {
        return differs(std::string(setting->name), setting->here, setting->there);
    }
    if (address.device_bytes == 0 || !core_.device || address.device_bytes > sizeof address.device) {
        error = "the peer published an impossible address";
        return Status::kUnsupported;
    }
    const bool same_job = address.process.job == core_.options.identity.job;
    if (!same_job &&
        (address.mailbox.slots != here.mailbox.slots || address.contact_slots != here.contact_slots)) {
        error = "the peer's job has mailboxes of " + std::to_string(address.mailbox.slots) + " slots, " +
                std::to_string(address.contact_slots) + " of them contact slots, and this job of " +
                std::to_string(here.mailbox.slots) + " and " + std::to_string(here.contact_slots) +
                "; leave btl_velo_slots out and give both btl_velo_mailbox_bytes=" +
                std::to_string(kPacketBytes * std::min(address.mailbox.slots, here.mailbox.slots));
        return Status::kUnsupported;
    }
    if (address.mailbox.slots != here.mailbox.slots || (same_job && address.mailbox.quota != here.mailbox.quota) ||
        address.mailbox.credit_slots != here.mailbox.credit_slots || address.contact_slots != here.contact_slots ||
        address.mailbox.flow_control != here.mailbox.flow_control) {
        error =
            "the peer planned its mailbox otherwise, of the same parameters; all ranks need the same velo";
        return Status::kUnsupported;
    }
    if (address.message_bytes_max != here.message_bytes_max) {
        return differs("max_send_size or eager_limit", std::to_string(here.message_bytes_max),
                       std::to_string(address.message_bytes_max));
    }
    return Status::kOk;
}

template <class Core>
Status Connector<Core>::connect(const EngineAddress& address, bool same_host, void* context, velo_peer*& peer,
                               std::string& error) {
    const Vicinity where = vicinity(this->address(), address, same_host);
    if (const Status status = check_address(address, where, error); status != Status::kOk) return status;
    // A process of another job was not counted when the mailboxes were planned; where it can be attached, the
    // on-node path does for it, whatever node it emulates.
    const bool attachable = where == Vicinity::kAttachable;
    const bool on_node =
        attachable && (address.process.job != core_.options.identity.job || address.process.node == core_.options.node);
    const velo_path_t path = on_node ? VELO_PATH_ON_NODE : VELO_PATH_DEVICE;
    shm::PeerIndex node_index;
    DeviceAddr device_addr;
    base::Failure failure = {.call = "the peer published an impossible address", .error = 0};
    const Status status =
        on_node ? core_.on_node.connect(address.on_node, node_index, &failure)
                : core_.device->connect({address.device, address.device_bytes}, device_addr, &failure);
    if (status != Status::kOk) {
        error =
            on_node || !core_.options.network_used
                ? "its shared memory cannot be attached: " + to_text(failure) + ". " + remedy(failure)
                : std::string("it cannot be reached over ") + core_.device->name() + ": " + to_text(failure);
        return status;
    }
    if (!on_node && !core_.packets->admits(device_addr)) {
        error = "the mailbox was planned for " + std::to_string(core_.options.plan.peers) + " senders";
        return Status::kNoResource;
    }
    if (!on_node) core_.packets->know(device_addr);
    velo_peer& found = peers_.of(path, on_node ? uint32_t{node_index} : uint32_t{device_addr});
    found.rank = address.process.rank;
    found.attachable = attachable;
    if (!found.connected) {
        found.connected = true;
        found.name = address.process.name;
        found.job = address.process.job;
        found.node = address.process.node;
        found.pid = address.on_node.segment.pid;
        if (on_node) {
            uint64_t seen = 0;
            found.direct = core_.options.node_copies.single &&
                           core_.system.copy_from(address.on_node.segment.pid, reinterpret_cast<std::byte*>(&seen),
                                                  address.probe.address, sizeof seen) == Status::kOk &&
                           seen == address.probe.value;
            if (core_.options.node_copies.single && !found.direct) denied_.report(found);
        } else {
            found.direct = core_.options.node_copies.single;
        }
        if (core_.options.params.show_paths != 0) show_path(address, found);
    }
    found.context = context;
    peer = &found;
    return Status::kOk;
}

/// The peer's line with btl_velo_show_paths.
template <class Core>
void Connector<Core>::show_path(const EngineAddress& address, const velo_peer& peer) const {
    const bool on_node = peer.path == VELO_PATH_ON_NODE;
    const char* large = !peer.direct ? "copied chunks" : on_node ? "both ends (ring and CMA)" : "RMA gets";
    const auto place = [](uint32_t rank, uint32_t node) {
        return std::to_string(rank) + " (node " + std::to_string(node) + ")";
    };
    core_.log(0, "velo: rank " + place(core_.options.identity.rank, core_.options.node) + " -> rank " +
                     place(address.process.rank, address.process.node) + ": " +
                     (on_node ? std::string("on-node ring") +
                                    nearness_text(core_.options.on_node.place, address.on_node.place)
                              : "VELO packets") +
                     ", large messages by " + large);
}

/// The host will not use this peer again, unless it connects again. False: something of it is still pending,
/// and its callbacks will come.
template <class Core>
bool Connector<Core>::disconnect(velo_peer& peer) {
    peer.connected = false;
    peer.context = nullptr;
    const bool nothing_pending = failures_.idle(peer) && core_.events.empty();
    if (nothing_pending && peer.reclaimed) failures_.recycle(peer);
    return nothing_pending;
}

}  // namespace velo
