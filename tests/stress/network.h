/// A network in memory for the stress of flow control: it delays and refuses at random, and counts every
/// slot.
///
/// One Network a world, one Port (a device, as far as PacketChannel needs one) a process. Packets of a pair stay
/// in order; everything else is the random generator's choice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

#include "tests/exhaustive/explorer.h"
#include "velo/device/device.h"
#include "velo/wire/packet.h"

namespace velo::stress {

using exhaustive::Random;

/// A packet on its way: as much of its payload as the stress looks at.
struct Entry {
    uint64_t status;
    uint32_t from;
    std::array<std::byte, kPayloadBytes> payload;
};

struct NetworkConfig {
    uint32_t processes = 2;
    uint32_t mailbox_slots = 0;
    uint32_t contact_slots = 0;
    /// Whether a mailbox can be full: not under mode none.
    bool bounded = true;
    /// Sends that the device refuses, of 1000.
    uint32_t refusals = 0;
};

class Network {
  public:
    Network(const NetworkConfig& config, Random& random)
        : config_(config),
          random_(&random),
          wires_(size_t{config.processes} * config.processes),
          mailboxes_(config.processes),
          filled_(config.processes, 0),
          contacts_(config.processes, 0) {}

    [[nodiscard]] const NetworkConfig& config() const { return config_; }
    void refuse(uint32_t of_1000) { config_.refusals = of_1000; }
    [[nodiscard]] uint64_t overflows() const { return overflows_; }
    [[nodiscard]] bool idle() const { return busy_.empty(); }

    /// Moves some packets of a wire, chosen at random, into the mailbox. False where nothing is under way.
    bool deliver_some() {
        if (busy_.empty()) return false;
        deliver_from(random_->below(static_cast<uint32_t>(busy_.size())), 1 + random_->below(4));
        return true;
    }
    void deliver_all() {
        while (!busy_.empty()) deliver_from(0, UINT32_MAX);
    }

    // A device's side.

    template <class Fill>
    Status send(uint32_t from, uint32_t to, uint32_t packets, Admission admission, Fill&& fill) {
        if (config_.refusals != 0 && random_->below(1000) < config_.refusals) return Status::kAgain;
        if (admission == Admission::kContact && contacts_[to] >= config_.contact_slots) return Status::kAgain;
        if (admission == Admission::kGuarded && config_.bounded &&
            filled_[to] + packets > config_.mailbox_slots) {
            return Status::kAgain;
        }
        std::deque<Entry>& wire = wires_[wire_of(from, to)];
        if (wire.empty()) busy_.push_back({from, to});
        BodyPackets body;
        if constexpr (requires { fill.body(); }) body = fill.body();
        for (uint32_t i = 0; i < packets; ++i) {
            Entry& entry = wire.emplace_back();
            entry.from = from;
            if (const uint32_t index = i - body.first; index < body.count) {
                entry.status = body.status.pack();
                std::memcpy(entry.payload.data(), body.data + size_t{index} * kPayloadBytes, kPayloadBytes);
            } else {
                entry.status = fill(i, entry.payload.data()).pack();
            }
            contacts_[to] += PacketStatus::fills_contact_slot(entry.status);
        }
        // Packets under way count as if they were in the mailbox: no device may make it overflow.
        filled_[to] += packets;
        if (config_.bounded && filled_[to] > config_.mailbox_slots) ++overflows_;
        return Status::kOk;
    }

    [[nodiscard]] const Entry* front(uint32_t process) const {
        return mailboxes_[process].empty() ? nullptr : &mailboxes_[process].front();
    }
    void advance(uint32_t process) {
        contacts_[process] -= PacketStatus::fills_contact_slot(mailboxes_[process].front().status);
        --filled_[process];
        mailboxes_[process].pop_front();
    }
    [[nodiscard]] bool has_packets(uint32_t process) const { return !mailboxes_[process].empty(); }

  private:
    struct Wire {
        uint32_t from;
        uint32_t to;
    };
    [[nodiscard]] size_t wire_of(uint32_t from, uint32_t to) const {
        return size_t{from} * config_.processes + to;
    }
    void deliver_from(uint32_t place, uint32_t packets_max) {
        const Wire at = busy_[place];
        std::deque<Entry>& wire = wires_[wire_of(at.from, at.to)];
        for (; packets_max != 0 && !wire.empty(); --packets_max) {
            mailboxes_[at.to].push_back(wire.front());
            wire.pop_front();
        }
        if (!wire.empty()) return;
        busy_[place] = busy_.back();
        busy_.pop_back();
    }

    NetworkConfig config_;
    Random* random_;
    std::vector<std::deque<Entry>> wires_;
    /// Wires that are not empty.
    std::vector<Wire> busy_;
    std::vector<std::deque<Entry>> mailboxes_;
    /// Slots of each mailbox that are taken, on the wires or in it.
    std::vector<uint32_t> filled_;
    std::vector<uint32_t> contacts_;
    uint64_t overflows_ = 0;
};

/// The device of one process. Device addresses are process numbers, without the own one.
class Port {
  public:
    struct PeerView {
        uint32_t mailbox_slots = 0;
    };

    Port(Network& network, uint32_t process) : network_(&network), process_(process) {}

    [[nodiscard]] uint32_t process_of(DeviceAddr peer) const { return peer + (peer >= process_); }
    [[nodiscard]] DeviceAddr address_of(uint32_t process) const {
        return DeviceAddr(process - (process > process_));
    }

    [[nodiscard]] DeviceLimits limits() const { return {}; }
    template <class Fill>
    Status send(DeviceAddr to, uint32_t packets, Admission admission, Fill&& fill) {
        return network_->send(process_, process_of(to), packets, admission, fill);
    }
    const Packet* peek(DeviceAddr& from) {
        const Entry* const entry = network_->front(process_);
        if (entry == nullptr) return nullptr;
        from = address_of(entry->from);
        std::memcpy(packet_.payload, entry->payload.data(), kPayloadBytes);
        packet_.status = entry->status;
        return &packet_;
    }
    void advance() { network_->advance(process_); }
    uint32_t take_run(std::byte* out, uint32_t packets) {
        const uint64_t status = network_->front(process_)->status;
        const uint32_t from = network_->front(process_)->from;
        uint32_t taken = 0;
        for (; taken < packets; ++taken) {
            const Entry* const entry = network_->front(process_);
            if (entry == nullptr || entry->status != status || entry->from != from) break;
            std::memcpy(out + size_t{taken} * kPayloadBytes, entry->payload.data(), kPayloadBytes);
            network_->advance(process_);
        }
        return taken;
    }
    [[nodiscard]] PeerView peer(DeviceAddr) const {
        return {.mailbox_slots = network_->config().mailbox_slots};
    }
    [[nodiscard]] DeviceTraits traits() const { return {}; }

  private:
    Network* network_;
    uint32_t process_;
    Packet packet_;
};

}  // namespace velo::stress
