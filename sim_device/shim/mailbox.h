/// The VELO mailbox: a circular buffer of 64-byte slots with many writers and one reader (FC 2).
///
/// A packet's position counts from 0 and never wraps; its slot is position % slots and its lap
/// 1 + position / slots. A slot's status word is written last and carries the low 8 bits of the lap: by it
/// the reader tells the packet it waits for from what an earlier lap left, so slots need no clearing and one
/// cache line moves per packet. Under credits a writer never looks at the reader's index.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include "sim_device/shim/layout.h"
#include "velo/base/check.h"
#include "velo/base/status.h"
#include "velo/wire/packet.h"

namespace velo::shim {

/// Packets of a message that are shown at a time. Measured at 0.5 to 2 KiB: 8 and 37 take 10 to 20 % longer at 2 KiB,
/// 18 to 22 up to 10 % at 1 KiB, and one at a time a lot.
inline constexpr uint32_t kGroupPackets = 16;

/// A position with its slot and lap, kept so that going on needs no division.
class MailboxPlace {
  public:
    explicit MailboxPlace(uint32_t slots) : slots_(slots) {}

    /// Goes to any position; cheap when it is at most one lap ahead.
    void move_to(uint64_t position) {
        const uint64_t distance = position - position_;
        if (distance <= slots_) [[likely]] {
            step(static_cast<uint32_t>(distance));
            return;
        }
        position_ = position;
        slot_ = static_cast<uint32_t>(position % slots_);
        lap_ = static_cast<uint8_t>(1 + position / slots_);
    }
    /// Goes on by `count` <= slots.
    void step(uint32_t count = 1) {
        position_ += count;
        slot_ += count;
        if (slot_ >= slots_) {
            slot_ -= slots_;
            ++lap_;
        }
    }
    /// Goes back by one.
    void step_back() {
        --position_;
        if (slot_ == 0) {
            slot_ = slots_;
            --lap_;
        }
        --slot_;
    }
    [[nodiscard]] uint64_t position() const { return position_; }
    [[nodiscard]] uint32_t slot() const { return slot_; }
    [[nodiscard]] uint8_t lap() const { return lap_; }
    [[nodiscard]] uint32_t slots() const { return slots_; }

  private:
    uint64_t position_ = 0;
    uint32_t slots_;
    uint32_t slot_ = 0;
    uint8_t lap_ = 1;
};

/// A sender's handle of one receiver's mailbox. Thread: the sender's.
class MailboxWriter {
  public:
    MailboxWriter(MailboxControl* control, Packet* packets, uint32_t slots)
        : control_(control), packets_(packets), place_(slots) {}

    [[nodiscard]] uint32_t slots() const { return place_.slots(); }

    /// Writes `packets` packets from `source` (layout.h), 1 <= packets <= slots. Free slots are the caller's
    /// promise. `fill(i, payload)` writes packet i's payload into its slot and returns its status.
    template <class Fill>
    void write(uint32_t packets, uint32_t source, Fill&& fill) {
        // Release: whoever sees the claim also sees that the claimer's DeviceHeader::claims is odd.
        publish(control_->written.fetch_add(packets, std::memory_order_acq_rel), packets, source, fill);
    }

    /// Takes one of the mailbox's `contact_slots` for a packet that write() is to put there. False: all are
    /// taken. Acquire pairs with MailboxReader::free_contacts(), release as in write().
    bool take_contact_slot(uint32_t contact_slots) {
        uint32_t taken = control_->contacts.load(std::memory_order_relaxed);
        do {
            if (taken >= contact_slots) return false;
        } while (!control_->contacts.compare_exchange_weak(taken, taken + 1, std::memory_order_acq_rel,
                                                           std::memory_order_relaxed));
        return true;
    }

    /// Writes packets as write() does, after a look for free slots. kAgain: there are too few, and `fill` was
    /// not called.
    template <class Fill>
    Status write_guarded(uint32_t packets, uint32_t source, Fill&& fill) {
        uint64_t position = control_->written.load(std::memory_order_relaxed);
        for (;;) {
            if (position + packets - read_seen_ > slots()) {
                // Pairs with MailboxReader::advance(): what is freed has been read.
                read_seen_ = control_->read.load(std::memory_order_acquire);
                if (position + packets - read_seen_ > slots()) {
                    // The reader may be past a position that was loaded a while ago.
                    const uint64_t now = control_->written.load(std::memory_order_relaxed);
                    if (now == position) return Status::kAgain;
                    position = now;
                    continue;
                }
            }
            if (control_->written.compare_exchange_weak(
                    position, position + packets, std::memory_order_acq_rel, std::memory_order_relaxed)) {
                break;
            }
        }
        publish(position, packets, source, fill);
        return Status::kOk;
    }

  private:
    /// Publishes packets in groups, and within a group the last packet first: a reader that waits at the first
    /// one of a group leaves the lines of the others alone until they are all written, instead of taking each
    /// away from the writer while it is being filled; and it reads one group while the next is written.
    template <class Fill>
    void publish(uint64_t position, uint32_t packets, uint32_t source, Fill&& fill) {
        const auto word_of = [source](PacketStatus status, uint8_t lap) {
            status.node = static_cast<uint16_t>(source);
            status.vpid = static_cast<uint8_t>(source >> 16);
            status.lap = lap;
            return status.pack();
        };
        BodyPackets body;
        if constexpr (requires { fill.body(); }) body = fill.body();
        const uint64_t body_word = word_of(body.status, 0);
        place_.move_to(position);
        for (uint32_t first = 0; first < packets; first += kGroupPackets) {
            const uint32_t count = std::min(kGroupPackets, packets - first);
            place_.step(count);
            MailboxPlace at = place_;
            for (uint32_t i = count; i-- > 0;) {
                at.step_back();
                Packet& packet = packets_[at.slot()];
                uint64_t word = 0;
                if (const uint32_t index = first + i - body.first; index < body.count) [[likely]] {
                    std::memcpy(packet.payload, body.data + size_t{index} * kPayloadBytes, kPayloadBytes);
                    word = PacketStatus::with_lap(body_word, at.lap());
                } else {
                    word = word_of(fill(first + i, packet.payload), at.lap());
                }
                // Pairs with the acquire of MailboxReader::peek().
                std::atomic_ref(packet.status).store(word, std::memory_order_release);
            }
        }
    }

    MailboxControl* control_;
    Packet* packets_;
    MailboxPlace place_;
    uint64_t read_seen_ = 0;
};

/// The owner's handle of its mailbox. Thread: the owner's.
class MailboxReader {
  public:
    MailboxReader(MailboxControl* control, Packet* packets, uint32_t slots)
        : control_(control), packets_(packets), place_(slots) {}

    /// The oldest unread packet, or nullptr. Its status word as it was found is in shown_status().
    const Packet* peek() {
        for (;;) {
            Packet& packet = packets_[place_.slot()];
            const uint64_t word = std::atomic_ref(packet.status).load(std::memory_order_acquire);
            // How many laps the slot is ahead of the one waited for. The lap before leaves 255; a slot that
            // was never written holds 0 while 1 is waited for, and by the time 0 is waited for again every
            // slot has been written 255 times. A packet that is neither due nor of the lap before has either been
            // overwritten, or is garbage of some peer, and the rightful packet is still to come.
            const auto ahead = static_cast<uint8_t>(PacketStatus::unpack(word).lap - place_.lap());
            if (ahead == 0) [[likely]] {
                shown_status_ = word;
                return &packet;
            }
            if (ahead != 255 && skip_overwritten()) [[unlikely]]
                continue;
            if (place_.position() >= abandoned_before_) return nullptr;
            step();
            after_hole_ = true;
        }
    }

    [[nodiscard]] uint64_t shown_status() const { return shown_status_; }

    /// Whether abandoned slots lay before the shown packet, which may then be the rest of what their sender
    /// claimed with them.
    [[nodiscard]] bool after_hole() const { return after_hole_; }
    void forget_hole() { after_hole_ = false; }

    /// Frees the slot that peek() showed.
    void advance() {
        Packet& packet = packets_[place_.slot()];
        if (std::atomic_ref(packet.status).load(std::memory_order_relaxed) != shown_status_) [[unlikely]] {
            ++overflows_;  // overwritten under the reader's eyes
        }
        // The slots behind a message's end may be being written.
        if (PacketStatus::unpack(shown_status_).end_of_message) {
            in_message_ = 0;
        } else {
            fetch_ahead(place_);
        }
        step();
        if (PacketStatus::fills_contact_slot(shown_status_)) [[unlikely]]
            free_contacts(1);
    }

    /// Frees the slot that peek() showed and those behind it whose packets have the same status but for the
    /// lap, up to `packets_max` in all, and copies their payloads to `to`, whole and one behind the other.
    /// Returns how many. A message's packets but for its first and last are alike in this way.
    uint32_t take_run(std::byte* to, uint32_t packets_max) {
        MailboxPlace at = place_;
        uint64_t word = shown_status_;
        uint32_t taken = 0;
        for (; taken < packets_max; ++taken) {
            Packet& packet = packets_[at.slot()];
            const std::atomic_ref status(packet.status);
            if (status.load(std::memory_order_acquire) != word) break;
            fetch_ahead(at);
            std::memcpy(to + size_t{taken} * kPayloadBytes, packet.payload, kPayloadBytes);
            if (status.load(std::memory_order_relaxed) != word) [[unlikely]]
                ++overflows_;
            at.step();
            word = PacketStatus::with_lap(word, at.lap());
        }
        place_ = at;
        control_->read.store(at.position(), std::memory_order_release);
        if (PacketStatus::fills_contact_slot(shown_status_)) [[unlikely]]
            free_contacts(taken);
        return taken;
    }

    /// Contact slots that are taken, and all that were freed.
    [[nodiscard]] uint32_t contacts_taken() const { return control_->contacts.load(std::memory_order_acquire); }
    [[nodiscard]] uint64_t contacts_freed() const { return contacts_freed_; }
    /// Only the owner subtracts; a count above those taken is a stray write.
    void free_contacts(uint32_t count) {
        const uint32_t taken = control_->contacts.load(std::memory_order_relaxed);
        control_->contacts.fetch_sub(std::min(count, taken), std::memory_order_release);
        contacts_freed_ += count;
    }

    /// Slots that were overwritten before they were read.
    [[nodiscard]] uint64_t overflows() const { return overflows_; }

    /// Goes on at the oldest packet that still stands, when some have been overwritten. peek() does this
    /// where the lap says so; that it was passed by a multiple of 256 laps only the write index tells.
    bool skip_overwritten() {
        const uint64_t oldest = claimed() - place_.slots();
        const auto lost = static_cast<int64_t>(oldest - place_.position());
        if (lost <= 0) return false;
        overflows_ += static_cast<uint64_t>(lost);
        place_.move_to(oldest);
        control_->read.store(oldest, std::memory_order_release);
        return true;
    }

    /// Whether peek() would show a packet that lies at position().
    [[nodiscard]] bool readable() const {
        const uint64_t word = std::atomic_ref(packets_[place_.slot()].status).load(std::memory_order_acquire);
        return PacketStatus::unpack(word).lap == place_.lap();
    }
    [[nodiscard]] uint64_t position() const { return place_.position(); }
    /// Position up to which senders have claimed slots.
    [[nodiscard]] uint64_t claimed() const { return control_->written.load(std::memory_order_acquire); }
    /// Slots before `position` that are still empty will not be filled; peek() passes over them.
    void abandon_before(uint64_t position) {
        abandoned_before_ = std::min(position, place_.position() + place_.slots());  // it may be garbage
    }

  private:
    /// With the first packet of a group, the others are there as well; what is behind the group may be
    /// being written, and is left alone.
    void fetch_ahead(const MailboxPlace& at) {
        if (in_message_++ % kGroupPackets != 0) return;
        const uint32_t last = std::min(at.slot() + kGroupPackets, at.slots()) - 1;
        for (uint32_t slot = at.slot() + 1; slot <= last; ++slot) __builtin_prefetch(&packets_[slot]);
    }

    void step() {
        place_.step();
        control_->read.store(place_.position(), std::memory_order_release);
    }

    MailboxControl* control_;
    Packet* packets_;
    MailboxPlace place_;
    uint64_t shown_status_ = 0;
    uint64_t abandoned_before_ = 0;
    uint64_t contacts_freed_ = 0;
    bool after_hole_ = false;
    uint32_t in_message_ = 0;  ///< packets taken of the message that is being read
    uint64_t overflows_ = 0;
};

}  // namespace velo::shim
