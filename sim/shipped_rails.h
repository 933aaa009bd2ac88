/// The rails of each process as the plugin has them, for the experiment of sim/rails.h: the engine's choice of
/// rails (rma/rails.h), its window (rma/chunk_scheduler.h) and its reservations (rma/rail_reservations.h), one
/// of each a process, with the plugin's defaults.
///
/// A message is a transfer that its sender posts, as a put. A cycle is taken for a ns. The engine's rule that a
/// peer that was late is not asked again for some time (velo/rendezvous/reserving.h) is repeated here.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rma/chunk_scheduler.h"
#include "rma/rail_reservations.h"
#include "rma/rails.h"
#include "sim/rails.h"

namespace velo::sim {

/// Owner: RailsRun. Thread: one. Peers are named by their process.
class ShippedRails {
  public:
    /// Carries out what processes do.
    class Host {
      public:
        /// `reserved`: the transfer holds the rail.
        virtual void post_chunk(uint32_t message, uint32_t rail, uint32_t bytes, bool reserved) = 0;
        /// `answer`: to a message of the peer's, which has just been read; `message.peer` is the destination.
        virtual void send_control(uint32_t process, uint32_t rail, const rma::RailMessage& message, bool answer) = 0;
        /// drive() is due again then, unless something happens before.
        virtual void drive_at(uint32_t process, uint64_t time_ns) = 0;

      protected:
        ~Host() = default;
    };

    ShippedRails(const RailsConfig& config, Host& host);

    void begin(uint32_t message, uint32_t process, uint32_t to, uint32_t bytes, uint64_t now_ns);
    /// All of a chunk has left its sender.
    void chunk_left(uint32_t message, uint32_t rail, uint32_t bytes, bool reserved, uint64_t now_ns);
    void received(uint32_t process, uint32_t rail, const rma::RailMessage& message, uint64_t now_ns);
    void drive(uint32_t process, uint64_t now_ns);
    /// Whether all of the message that has this number now was issued.
    [[nodiscard]] bool all_issued(uint32_t message) const { return transfers_[message].all_issued(); }

  private:
    struct Transfer : rma::ReservingTransfer {
        uint32_t message = 0;
        uint32_t process = 0;
        rma::PeerRails* peer = nullptr;
    };
    struct Peer {
        rma::Source source;
        rma::PeerRails rails;
    };
    struct Process {
        rma::Rails rails;
        rma::ChunkScheduler scheduler;
        std::unique_ptr<rma::RailReservations> machine;  ///< nullptr: reserves nothing
        std::unordered_map<uint32_t, Peer> peers;
    };
    struct Actions;

    [[nodiscard]] static rma::RailsSettings settings_of(const RailsConfig& config);
    void issue(Process& process, const rma::Chunk& chunk, uint64_t now_ns);

    rma::RailsSettings settings_;
    uint32_t chunk_bytes_;
    Host& host_;
    std::vector<Process> processes_;
    std::deque<Transfer> transfers_;  ///< by number of the message
};

}  // namespace velo::sim
