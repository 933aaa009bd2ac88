/// Completions of the provider: what came, and what the provider is done with.
///
/// Nothing that came is trusted. A message is packets, a hello or a signal (wire.h). Packets that are whole and of a
/// known peer go to the mailbox; everything else is counted and dropped.
///
/// Owner: the device. Thread: the device's.
#pragma once

#include <span>

#include "velo/ofi/contact_gate.h"
#include "velo/ofi/endpoint.h"
#include "velo/ofi/log.h"
#include "velo/ofi/mailbox.h"
#include "velo/ofi/peer_endings.h"
#include "velo/ofi/peer_table.h"
#include "velo/ofi/peer_watch.h"
#include "velo/ofi/rma_unit.h"
#include "velo/ofi/transmitter.h"

namespace velo::ofi {

class Arrivals {
  public:
    struct Counters {
        uint64_t unknown_source = 0;    ///< packets of processes that never connected; dropped
        uint64_t contacts_refused = 0;  ///< contact packets that found no slot; dropped
        uint64_t malformed = 0;         ///< messages that no process of this version writes; dropped
        uint64_t strangers = 0;         ///< hellos and signals without this process's token; dropped
        uint64_t lost_receives = 0;     ///< receives that the provider ended with an error
        uint64_t hellos = 0;
        uint64_t pings = 0;
    };

    Arrivals(const Endpoint& endpoint, Mailbox& mailbox, RmaUnit& rma, PeerTable& peers, ContactGate& gate,
             Transmitter& transmitter, PeerEndings& endings, PeerWatch& watch, const Address& own, const Log& log)
        : endpoint_(endpoint),
          mailbox_(mailbox),
          rma_(rma),
          peers_(peers),
          gate_(gate),
          transmitter_(transmitter),
          endings_(endings),
          watch_(watch),
          own_(own),
          log_(log) {}

    /// Reads what the provider has ready, up to a bound. Returns how many completions.
    uint32_t read();
    [[nodiscard]] const Counters& counters() const { return counters_; }

  private:
    void completed(const fi_cq_data_entry& entry, fi_addr_t from);
    bool read_error();
    void frame_failed(Frame& frame, int error);
    void message(ReceiveBuffer& buffer, const std::byte* at, size_t bytes, fi_addr_t from);
    uint32_t packets(std::span<const std::byte> part, fi_addr_t from, DeviceAddr& peer, bool& contact);
    [[gnu::cold]] void hello(std::span<const std::byte> message, fi_addr_t from);
    void signal(std::span<const std::byte> message, fi_addr_t from);
    /// Messages that the sender counted before one do not agree with those that came.
    [[gnu::cold]] void gap(DeviceAddr addr);
    [[gnu::cold]] void stranger(const char* what);

    const Endpoint& endpoint_;
    Mailbox& mailbox_;
    RmaUnit& rma_;
    PeerTable& peers_;
    ContactGate& gate_;
    Transmitter& transmitter_;
    PeerEndings& endings_;
    PeerWatch& watch_;
    const Address& own_;
    const Log& log_;
    bool stranger_reported_ = false;
    Counters counters_;
};

}  // namespace velo::ofi
