#include "velo/ofi/endpoint.h"

#include <cstring>
#include <utility>

#include "velo/ofi/receive_space.h"
#include "velo/ofi/wire.h"
#include "velo/os/shared_segment.h"

namespace velo::ofi {
namespace {

/// In shm of libfabric before 2 an option that is set before fi_enable is a crash; elsewhere it has no effect later.
bool options_follow_enable(const char* provider) {
    return std::strcmp(provider, "shm") == 0 && FI_MAJOR(fi_version()) < 2;
}

}  // namespace

Endpoint::Endpoint(Choice choice, size_t completions, uint32_t mailbox_slots)
    : interface_(std::move(choice.interface)),
      ports_(choice.ports),
      info_(std::move(choice.info)),
      title_(info_->fabric_attr->prov_name) {
    if (!interface_.empty()) title_ += " (" + interface_ + ")";
    open(completions, mailbox_slots);
    read_name();
    check_port();
}

/// Throws for a call that failed in set-up; `result` is negative.
void Endpoint::check(ssize_t result, const char* call) const {
    if (result >= 0) return;
    const bool taken = ports_.given() && (result == -FI_EADDRINUSE || result == -FI_EADDRNOTAVAIL);
    throw base::SetupError("libfabric's provider " + title_ + " cannot be opened: " + call + ": " +
                           fi_strerror(static_cast<int>(-result)) +
                           (taken ? ". No port of btl_velo_port_range=" + ports_.text() +
                                        " is free: each rank of a host takes one, and another for each rail; widen it."
                                  : ". Choose another one with btl_velo_provider_include."));
}

/// A provider that has no range of ports, or that something else in this process has opened before, takes any.
void Endpoint::check_port() const {
    if (!ports_.given() || address_bytes(info_->addr_format) == 0) return;
    const uint16_t port = ip_port(info_->addr_format, name_);
    if (ports_.has(port)) return;
    throw base::SetupError("libfabric's provider " + title_ + " listens at port " + std::to_string(port) +
                           ", outside btl_velo_port_range=" + ports_.text() +
                           ": it takes no range, or another part of the process opened libfabric before with another "
                           "one. Set FI_TCP_PORT_LOW_RANGE, FI_TCP_PORT_HIGH_RANGE, FI_NET_PORT_LOW_RANGE and "
                           "FI_NET_PORT_HIGH_RANGE in the environment, or leave btl_velo_port_range out.");
}

void Endpoint::open(size_t completions, uint32_t mailbox_slots) {
    fid_fabric* fabric = nullptr;
    check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
    domain_.reset(domain);

    fi_av_attr av_attr = {};
    av_attr.type = FI_AV_TABLE;
    fid_av* av = nullptr;
    check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
    av_.reset(av);
    fi_cq_attr cq_attr = {};
    cq_attr.size = completions;
    cq_attr.format = FI_CQ_FORMAT_DATA;
    cq_attr.wait_obj = FI_WAIT_NONE;
    fid_cq* cq = nullptr;
    check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
    cq_.reset(cq);

    fid_ep* ep = nullptr;
    check(fi_endpoint(domain, info_.get(), &ep, nullptr), "fi_endpoint");
    ep_.reset(ep);
    check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
    check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    const bool late = options_follow_enable(provider());
    const size_t message_bytes_max = part_packets(mailbox_slots) * kPacketBytes;
    if (!late) set_longest_message(message_bytes_max);
    check(fi_enable(ep), "fi_enable");
    if (late) set_longest_message(message_bytes_max);
}

/// A message that is longer than what is left of a buffer, but not than this, is lost: see ReceiveSpace.
void Endpoint::set_longest_message(size_t bytes) {
    check(fi_setopt(&ep_->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &bytes, sizeof bytes),
          "fi_setopt(FI_OPT_MIN_MULTI_RECV)");
}

void Endpoint::read_name() {
    name_.resize(kEndpointNameBytesMax);
    size_t bytes = name_.size();
    check(fi_getname(&ep_->fid, name_.data(), &bytes), "fi_getname");
    name_.resize(bytes);
}

fi_addr_t Endpoint::insert(std::span<const std::byte> name) const {
    // The provider reads as many bytes as its addresses have.
    const size_t bytes = address_bytes(info_->addr_format);
    if (name.empty() || (bytes != 0 && name.size() != bytes)) return FI_ADDR_NOTAVAIL;
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    return fi_av_insert(av_.get(), name.data(), 1, &address, 0, nullptr) == 1 ? address : FI_ADDR_NOTAVAIL;
}

int Endpoint::register_remote(void* base, size_t bytes, uint64_t access, uint64_t key, MemoryPtr& out) const {
    fid_mr* memory = nullptr;
    int result = fi_mr_reg(domain_.get(), base, bytes, access, 0, key, 0, &memory, nullptr);
    if (result != 0) return result;
    out.reset(memory);
    if (mr_mode(FI_MR_ENDPOINT)) {
        result = fi_mr_bind(memory, &ep_->fid, 0);
        if (result == 0) result = fi_mr_enable(memory);
        if (result != 0) out.reset();
    }
    return result;
}

int Endpoint::register_local(void* base, size_t bytes, MemoryPtr& out) const {
    if (!mr_mode(FI_MR_LOCAL)) return 0;
    return register_remote(base, bytes, FI_SEND | FI_RECV | FI_READ | FI_WRITE, 0, out);
}

}  // namespace velo::ofi
