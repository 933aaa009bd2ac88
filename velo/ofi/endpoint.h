/// One reliable datagram endpoint of libfabric with everything that it needs: opened whole, closed in order.
///
/// Owner: the device. Thread: the device's. Only set-up throws.
/// Source: fi_endpoint(3), fi_domain(3), fi_mr(3), fi_av(3).
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

#include <memory>
#include <span>
#include <string>

#include "velo/ofi/provider.h"
#include "velo/ofi/receive_space.h"

namespace velo::ofi {

/// The first member of whatever an operation of the provider is about. Providers that want memory for each operation
/// (FI_CONTEXT, FI_CONTEXT2) get `provider`.
struct Context {
    enum class Kind : uint8_t { kBuffer, kFrame, kOperation };
    fi_context2 provider = {};
    Kind kind;
    explicit Context(Kind of) : kind(of) {}
};

struct FidDeleter {
    template <class Fid>
    void operator()(Fid* object) const {
        fi_close(&object->fid);
    }
};
template <class Fid>
using FidPtr = std::unique_ptr<Fid, FidDeleter>;
using MemoryPtr = FidPtr<fid_mr>;

class Endpoint {
  public:
    /// `completions`: how many can lie unread at once. Throws base::SetupError.
    Endpoint(Choice choice, size_t completions, uint32_t mailbox_slots);

    /// Closes what uses memory, so that memory can be freed and its registrations be closed. Nothing else is called
    /// from then on.
    void close() {
        ep_.reset();
        cq_.reset();
        av_.reset();
    }

    [[nodiscard]] fid_ep* ep() const { return ep_.get(); }
    [[nodiscard]] fid_cq* cq() const { return cq_.get(); }
    [[nodiscard]] const fi_info& info() const { return *info_; }
    [[nodiscard]] const char* provider() const { return info_->fabric_attr->prov_name; }
    /// The provider and the interface: "net (eth0)".
    [[nodiscard]] const char* title() const { return title_.c_str(); }
    [[nodiscard]] const std::string& interface() const { return interface_; }
    /// The endpoint's name, by which others reach it.
    [[nodiscard]] std::span<const std::byte> name() const { return name_; }

    /// Packets of the longest message to a mailbox of this number of slots.
    [[nodiscard]] uint32_t part_packets(uint32_t mailbox_slots) const {
        return ReceiveSpace::part_packets(mailbox_slots, part_packets_max(provider()));
    }
    [[nodiscard]] size_t inject_bytes() const { return info_->tx_attr->inject_size; }
    [[nodiscard]] bool has_rma() const { return (info_->caps & FI_RMA) != 0; }
    [[nodiscard]] bool has_source() const { return (info_->caps & FI_SOURCE) != 0; }
    /// Remote addresses are the owner's virtual ones, and otherwise offsets in the region.
    [[nodiscard]] bool virtual_addresses() const { return mr_mode(FI_MR_VIRT_ADDR); }

    /// FI_ADDR_NOTAVAIL: it is no name of this provider, or there is no memory.
    [[nodiscard]] fi_addr_t insert(std::span<const std::byte> name) const;

    /// Registers memory for others under a key of the provider's choice, or `key`. 0, or libfabric's errno, negative.
    int register_remote(void* base, size_t bytes, uint64_t access, uint64_t key, MemoryPtr& out) const;
    /// Registers memory for own operations, for a provider that wants that; otherwise nothing. 0, or libfabric's
    /// errno, negative.
    int register_local(void* base, size_t bytes, MemoryPtr& out) const;
    [[nodiscard]] static void* descriptor(const MemoryPtr& memory) {
        return memory ? fi_mr_desc(memory.get()) : nullptr;
    }

  private:
    [[nodiscard]] bool mr_mode(int bit) const { return (info_->domain_attr->mr_mode & bit) != 0; }
    void open(size_t completions, uint32_t mailbox_slots);
    void set_longest_message(size_t bytes);
    void read_name();
    void check_port() const;

    void check(ssize_t result, const char* call) const;

    std::string interface_;
    PortRange ports_;
    InfoPtr info_;
    std::string title_;
    std::vector<std::byte> name_;
    // Closed from the last one to the first.
    FidPtr<fid_fabric> fabric_;
    FidPtr<fid_domain> domain_;
    FidPtr<fid_av> av_;
    FidPtr<fid_cq> cq_;
    FidPtr<fid_ep> ep_;
};

}  // namespace velo::ofi
