/// The rings and the mailbox of a process, watched for what dead senders claimed there and never filled
/// (abandoned_claims.h).
#pragma once

#include <array>
#include <cstdint>

#include "sim_device/shim/abandoned_claims.h"
#include "sim_device/shim/mailbox.h"
#include "sim_device/shim/peer_table.h"
#include "sim_device/shim/request_server.h"
#include "sim_device/shim/rma_unit.h"

namespace velo::shim {

/// Owner: ShimDevice. Thread: the owner's.
class HoleWatch {
  public:
    HoleWatch(PeerTable& peers, MailboxReader& mailbox, RmaUnit& rma, RequestServer& server)
        : peers_(peers), mailbox_(mailbox), rma_(rma), server_(server) {}

    /// Lets each ring that stands at a hole go on once the hole's owner is known to be dead.
    void check(uint64_t now_ns);
    /// Frees contact slots whose senders died before their packet. Not under injected faults: a packet that one of
    /// them delays has its slot long before.
    void check_contacts(uint64_t now_ns);

    /// Times that a ring went on without what a dead process had claimed.
    [[nodiscard]] uint64_t abandoned() const { return abandoned_; }

  private:
    template <class Ring>
    void check(Ring& ring, AbandonedClaims& claims, uint64_t now_ns);

    PeerTable& peers_;
    MailboxReader& mailbox_;
    RmaUnit& rma_;
    RequestServer& server_;
    AbandonedClaims mailbox_claims_;
    AbandonedClaims contact_claims_;
    AbandonedClaims notification_claims_;
    AbandonedClaims answer_claims_;
    std::array<AbandonedClaims, kPortsMax> request_claims_;
    AbandonedContacts contact_slots_;
    uint64_t abandoned_ = 0;
};

}  // namespace velo::shim
