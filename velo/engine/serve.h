/// Messages from other engines: each goes to the part that it is for, and what is asked of this process is
/// answered.
///
/// A peer's request is checked against the own translation table, and answered with a status. An answer
/// counts only from the peer that was asked.
#pragma once

#include <cstring>

#include "velo/core/peer.h"
#include "velo/rendezvous/apply_atomic.h"
#include "velo/rendezvous/coop_owner.h"
#include "velo/rendezvous/coop_reader.h"
#include "velo/rendezvous/engine_messages.h"
#include "velo/rendezvous/pending_op.h"
#include "velo/rendezvous/transfers.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/engine_wire.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock.
template <class Core>
class Serve {
  public:
    using State = rma::TransferState<velo_peer>;
    using Op = rma::PendingOp<velo_peer>;
    using PendingOps = rma::CookieTable<Op>;

    Serve(Core& core, PendingOps& pending, EngineMessages<Core>& messages, rma::Transfers<Core>& transfers,
          rma::CoopOwner<Core>& coop_owner, rma::CoopReader<Core>& coop_reader, rma::Reserving<Core>& reserving)
        : core_(core),
          pending_(pending),
          messages_(messages),
          transfers_(transfers),
          coop_owner_(coop_owner),
          coop_reader_(coop_reader),
          reserving_(reserving) {}

    void receive(velo_peer& peer, const std::byte* data, uint32_t bytes);

  private:
    Status translate_request(uint64_t& nla, uint32_t& key, uint64_t bytes, uint32_t access,
                             uint64_t& address);
    /// Calls take(header, data, bytes of the data), unless the message is none of its kind.
    template <class Header, class Take>
    void read(const std::byte* message, uint32_t bytes, Take&& take) {
        Header header;
        if (!read_header(header, message, bytes)) return malformed();
        take(header, message + sizeof header, bytes - static_cast<uint32_t>(sizeof header));
    }
    void malformed() { ++core_.counters.engine_malformed; }
    /// An answer that no operation waits for. A peer that has ended can have sent it before that, and what
    /// waited for it has ended with the peer.
    void unexpected(const velo_peer& peer) {
        if (!peer.ended()) malformed();
    }
    void on_pull(velo_peer& peer, const PullHeader& header);
    void on_pull_data(const velo_peer& peer, const PullDataHeader& header, const std::byte* data, uint32_t bytes);
    void on_put_data(velo_peer& peer, const PutDataHeader& header, const std::byte* data, uint32_t bytes);
    void on_atomic(velo_peer& peer, const AtomicHeader& header);
    void on_done(const velo_peer& peer, const DoneHeader& header);

    Core& core_;
    PendingOps& pending_;
    EngineMessages<Core>& messages_;
    rma::Transfers<Core>& transfers_;
    rma::CoopOwner<Core>& coop_owner_;
    rma::CoopReader<Core>& coop_reader_;
    rma::Reserving<Core>& reserving_;
};

}  // namespace velo
