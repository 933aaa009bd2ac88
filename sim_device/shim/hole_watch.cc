#include "sim_device/shim/hole_watch.h"

namespace velo::shim {

template <class Ring>
void HoleWatch::check(Ring& ring, AbandonedClaims& claims, uint64_t now_ns) {
    if (ring.readable()) return;
    // A sender has announced itself before.
    if (ring.position() != ring.claimed()) peers_.take_contacts(kContactCells);
    if (const auto before = claims.check(ring.position(), ring.claimed(), peers_, now_ns)) {
        ring.abandon_before(*before);
        ++abandoned_;
    }
}

void HoleWatch::check(uint64_t now_ns) {
    check(peers_.contact_ring(), contact_claims_, now_ns);
    check(mailbox_, mailbox_claims_, now_ns);
    check(rma_.notification_ring(), notification_claims_, now_ns);
    check(rma_.answer_ring(), answer_claims_, now_ns);
    const uint32_t ports = peers_.identity().ports;
    for (uint32_t port = 0; port < ports; ++port) check(server_.request_ring(port), request_claims_[port], now_ns);
}

void HoleWatch::check_contacts(uint64_t now_ns) {
    if (mailbox_.contacts_taken() == 0) return;
    peers_.take_contacts(kContactCells);
    const uint32_t abandoned = contact_slots_.check(mailbox_, peers_, now_ns);
    if (abandoned == 0) return;
    mailbox_.free_contacts(abandoned);
    ++abandoned_;
}

}  // namespace velo::shim
