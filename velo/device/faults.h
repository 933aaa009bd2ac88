/// Faults on demand, drawn from a seed (spec 2), for the devices that inject them. Links retransmit, so nothing here
/// loses or reorders packets between two processes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "velo/base/word_list.h"
#include "velo/device/device.h"
#include "velo/wire/packet.h"

namespace velo::base {

/// A fault of one RMA operation.
struct RmaFault {
    Status status = Status::kOk;  ///< other than kOk: nothing moves and this is notified
    bool takes_port = false;      ///< the port has gone down with it, and fails what is under way there
    uint64_t late_ns = 0;         ///< not begun before this time has passed
};

/// Draws faults. Each kind has a stream of its own, so that one kind does not change when another is added,
/// and each process has streams of its own. The same calls give the same faults.
class Faults {
  public:
    static constexpr std::string_view kSettings =
        "seed=N, delay=P:T, stall=P:T, rma_late=P:T, rma_fail=P, rma_denied=P, atu_fault=P, port_down=PORT:N, "
        "port_flap=P:T, die_after=N";
    /// `text`: comma-separated settings; P is a probability of 0 to 1, T a time such as 200us (ns, us, ms,
    /// s).
    ///   seed=N           seed of every stream
    ///   delay=P:T        a message's packets, and all that follow to that process, leave T later
    ///   stall=P:T        from a packet on, the mailbox shows nothing for T
    ///   rma_late=P:T     an RMA operation begins T later
    ///   rma_fail=P       an RMA operation ends with kFailed
    ///   rma_denied=P     an RMA operation ends with kUnsupported, as where copying is denied
    ///   atu_fault=P      an RMA operation ends with kAtuFault
    ///   port_down=PORT:N the port goes down after N operations: all that follow end with kNotBegun
    ///   port_flap=P:T    at an RMA operation its port goes down for T, with all that is under way at it
    ///   die_after=N      after N packets the process is dead to itself and to all others
    /// `settings`: those that the device injects, as they stand in kSettings.
    /// Returns nullptr for an empty text. Throws base::SetupError naming what is wrong with it.
    [[gnu::cold]] static std::unique_ptr<Faults> parse(const std::string& text, uint16_t node, uint8_t vpid,
                                                       std::string_view settings = kSettings);

    /// Delay of a message about to be sent; 0: none.
    uint64_t packet_delay_ns() { return draw(kDelay) ? kinds_[kDelay].time_ns : 0; }
    /// Stall before a packet about to be shown; 0: none.
    uint64_t mailbox_stall_ns() { return draw(kStall) ? kinds_[kStall].time_ns : 0; }
    /// The fault of an operation posted at `port`.
    RmaFault rma(uint32_t port, uint64_t now_ns = 0);
    /// Bit i: port i is down.
    [[nodiscard]] uint32_t ports_down(uint64_t now_ns) const;
    /// Whether the process dies rather than send packet number `packets` (from 1).
    bool dies(uint64_t packets);

    [[nodiscard]] bool dead() const { return dead_; }
    [[nodiscard]] uint64_t injected() const { return injected_; }

  private:
    static constexpr uint32_t kFlapPorts = 32;
    enum Kind : uint32_t { kDelay, kStall, kRmaLate, kRmaFail, kRmaDenied, kAtuFault, kPortFlap, kKinds };
    struct KindState {
        uint64_t threshold = 0;  ///< a draw of 63 bits below it hits
        uint64_t time_ns = 0;
        uint64_t state = 0;  ///< of the stream
    };

    bool draw(Kind kind);
    [[gnu::cold]] void set(const ListWord& word, std::string_view settings, uint64_t& seed);

    std::array<KindState, kKinds> kinds_;
    uint64_t die_after_ = UINT64_MAX;
    uint32_t down_port_ = UINT32_MAX;
    uint64_t down_after_ = 0;  ///< operations that the port still takes
    std::array<uint64_t, kFlapPorts> down_until_ns_{};
    bool dead_ = false;
    uint64_t injected_ = 0;
};

/// Packets that were accepted and have not left yet. Order to one destination is kept.
class DelayLine {
  public:
    struct Message {
        uint64_t due_ns = 0;
        Admission admission = Admission::kCredited;
        std::vector<Packet> packets;
    };

    [[nodiscard]] uint32_t waiting(DeviceAddr to) const {
        const auto line = lines_.find(to);
        return line == lines_.end() ? 0 : line->second.packets;
    }
    void push(DeviceAddr to, Message message) {
        Line& line = lines_[to];
        line.packets += static_cast<uint32_t>(message.packets.size());
        line.messages.push_back(std::move(message));
    }
    [[nodiscard]] bool empty() const { return lines_.empty(); }
    void drop(DeviceAddr to) { lines_.erase(to); }

    /// Hands messages that are due to `send(to, message)`, which returns kAgain to have it kept.
    template <class Send>
    uint32_t release(uint64_t now_ns, Send&& send) {
        uint32_t released = 0;
        for (auto line = lines_.begin(); line != lines_.end();) {
            auto& messages = line->second.messages;
            while (!messages.empty() && messages.front().due_ns <= now_ns) {
                if (send(line->first, messages.front()) == Status::kAgain) break;
                line->second.packets -= static_cast<uint32_t>(messages.front().packets.size());
                messages.pop_front();
                ++released;
            }
            line = messages.empty() ? lines_.erase(line) : std::next(line);
        }
        return released;
    }

  private:
    struct Line {
        std::deque<Message> messages;
        uint32_t packets = 0;
    };
    std::map<DeviceAddr, Line> lines_;  // ordered, so that a seed gives one sequence
};

}  // namespace velo::base
