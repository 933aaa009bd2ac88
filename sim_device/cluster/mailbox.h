/// A simulated process's mailbox: what has been sent to it and not been read, in order of arrival.
///
/// Packets that came in one run and are alike are one entry, so memory follows what is unread and not the
/// number of slots. Of a payload an entry keeps what flow control and the host's header need: the first
/// kHeadBytes of its first packet and the last kPiggybackBytes; or all of it, where the cluster is asked to
/// carry whole payloads.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "velo/base/check.h"
#include "velo/wire/packet.h"

namespace velo::cluster {

/// All of a run's first packet: what the engine and the host write into a message of one or two packets is there.
inline constexpr uint32_t kHeadBytes = kPayloadBytes;

/// `packets` packets of one source and status; the i-th arrives at next_ns + i * gap_ns.
struct Entry {
    uint64_t next_ns = 0;
    uint64_t sequence = 0;  ///< order among entries of one time
    uint64_t status = 0;
    uint32_t packets = 0;
    uint32_t gap_ns = 0;
    uint32_t source = 0;  ///< the receiver's DeviceAddr of the sender
    bool begun = false;   ///< the first packet, which `head` belongs to, is gone
    std::array<std::byte, kHeadBytes> head;
    std::array<std::byte, kPiggybackBytes> tail;
    std::unique_ptr<Packet> whole;

    [[nodiscard]] bool before(const Entry& other) const {
        return next_ns != other.next_ns ? next_ns < other.next_ns : sequence < other.sequence;
    }
};

/// Owner: a ClusterDevice. Counts are slots. Entries of one source never overtake each other, because they
/// arrive in the order sent; those of several are taken in the order in which their next packets arrive.
class Mailbox {
  public:
    static constexpr uint64_t kNever = UINT64_MAX;

    void push(Entry entry) {
        entry.sequence = sequence_++;
        entries_.push_back(std::move(entry));
        std::push_heap(entries_.begin(), entries_.end(), Later{});
    }

    /// When the next packet arrives, or has arrived.
    [[nodiscard]] uint64_t next_ns() const {
        const uint64_t first = entries_.empty() ? kNever : entries_.front().next_ns;
        return current_.packets != 0 ? std::min(first, current_.next_ns) : first;
    }

    /// The entry whose packet is next; it stays until take(), whatever arrives. There must be one.
    Entry& show() {
        if (shown_) return current_;
        if (!entries_.empty() && (current_.packets == 0 || entries_.front().before(current_))) {
            std::pop_heap(entries_.begin(), entries_.end(), Later{});
            std::swap(current_, entries_.back());
            if (entries_.back().packets != 0) {
                std::push_heap(entries_.begin(), entries_.end(), Later{});
            } else {
                entries_.pop_back();
            }
        }
        VELO_CHECK(current_.packets != 0, "an empty mailbox was read after %llu entries",
                   static_cast<unsigned long long>(sequence_));
        shown_ = true;
        return current_;
    }
    [[nodiscard]] bool shown() const { return shown_; }

    /// Takes the first `packets` of the entry that is shown.
    void take(uint32_t packets) {
        VELO_CHECK(shown_ && packets <= current_.packets, "%u packets of %u", packets, current_.packets);
        current_.packets -= packets;
        current_.next_ns += uint64_t{packets} * current_.gap_ns;
        current_.begun = true;
        shown_ = false;
        taken_ += packets;
    }

    void claim(uint32_t packets) {
        claimed_ += packets;
        fill_max_ = std::max(fill_max_, fill());
    }
    /// Packets under way or unread; so never less than what the slots really hold.
    [[nodiscard]] uint64_t fill() const { return claimed_ - taken_; }
    [[nodiscard]] uint64_t fill_max() const { return fill_max_; }
    [[nodiscard]] uint64_t claimed() const { return claimed_; }
    [[nodiscard]] uint64_t taken() const { return taken_; }

  private:
    struct Later {
        bool operator()(const Entry& a, const Entry& b) const { return b.before(a); }
    };

    std::vector<Entry> entries_;  ///< a heap, the next one in front
    Entry current_;
    bool shown_ = false;
    uint64_t sequence_ = 0;
    uint64_t claimed_ = 0;
    uint64_t taken_ = 0;
    uint64_t fill_max_ = 0;
};

}  // namespace velo::cluster
