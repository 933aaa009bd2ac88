#include "velo/ofi/endpoint.h"

#include <cstring>
#include <utility>

#include "velo/base/shared_segment.h"
#include "velo/ofi/receive_space.h"
#include "velo/ofi/wire.h"

namespace velo::ofi {
namespace {

/// Of a call that failed in set-up; `result` is negative.
void check(ssize_t result, const char* call, const std::string& title) {
    if (result >= 0) return;
    throw base::SetupError("libfabric's provider " + title + " cannot be opened: " + call + ": " +
                           fi_strerror(static_cast<int>(-result)) +
                           ". Choose another one with btl_velo_provider_include.");
}

/// In shm of libfabric before 2 an option that is set before fi_enable is a crash; elsewhere it has no effect later.
bool options_follow_enable(const char* provider) {
    return std::strcmp(provider, "shm") == 0 && FI_MAJOR(fi_version()) < 2;
}

}  // namespace

Endpoint::Endpoint(Choice choice, size_t completions, uint32_t mailbox_slots)
    : interface_(std::move(choice.interface)),
      info_(std::move(choice.info)),
      title_(info_->fabric_attr->prov_name) {
    if (!interface_.empty()) title_ += " (" + interface_ + ")";
    open(completions, mailbox_slots);
    read_name();
}

void Endpoint::open(size_t completions, uint32_t mailbox_slots) {
    fid_fabric* fabric = nullptr;
    check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric", title_);
    fabric_.reset(fabric);
    fid_domain* domain = nullptr;
    check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain", title_);
    domain_.reset(domain);

    fi_av_attr av_attr = {};
    av_attr.type = FI_AV_TABLE;
    fid_av* av = nullptr;
    check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open", title_);
    av_.reset(av);
    fi_cq_attr cq_attr = {};
    cq_attr.size = completions;
    cq_attr.format = FI_CQ_FORMAT_DATA;
    cq_attr.wait_obj = FI_WAIT_NONE;
    fid_cq* cq = nullptr;
    check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open", title_);
    cq_.reset(cq);

    fid_ep* ep = nullptr;
    check(fi_endpoint(domain, info_.get(), &ep, nullptr), "fi_endpoint", title_);
    ep_.reset(ep);
    check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind", title_);
    check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind", title_);
    const bool late = options_follow_enable(provider());
    const size_t message_bytes_max = part_packets(mailbox_slots) * kPacketBytes;
    if (!late) set_longest_message(message_bytes_max);
    check(fi_enable(ep), "fi_enable", title_);
    if (late) set_longest_message(message_bytes_max);
}

/// A message that is longer than what is left of a buffer, but not than this, is lost: see ReceiveSpace.
void Endpoint::set_longest_message(size_t bytes) {
    check(fi_setopt(&ep_->fid, FI_OPT_ENDPOINT, FI_OPT_MIN_MULTI_RECV, &bytes, sizeof bytes),
          "fi_setopt(FI_OPT_MIN_MULTI_RECV)", title_);
}

void Endpoint::read_name() {
    name_.resize(kEndpointNameBytesMax);
    size_t bytes = name_.size();
    check(fi_getname(&ep_->fid, name_.data(), &bytes), "fi_getname", title_);
    name_.resize(bytes);
}

fi_addr_t Endpoint::insert(std::span<const std::byte> name) const {
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
