/// A process's mailbox over a network: its posted receive buffers, and the packets in them that were not read yet.
///
/// receive_space.h says how many buffers there are, and why credited packets always find space. A packet is shown
/// where the provider put it. Owner: the device. Thread: the device's.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "velo/device/device.h"
#include "velo/ofi/endpoint.h"
#include "velo/ofi/parts.h"
#include "velo/ofi/receive_space.h"

namespace velo::ofi {

struct ReceiveBuffer {
    struct Free {
        void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kPacketBytes}); }
    };

    Context context{Context::Kind::kBuffer};
    std::unique_ptr<std::byte, Free> memory;
    MemoryPtr registration;
    BufferState state;
    bool posted = false;  ///< the provider has it
};

class Mailbox {
  public:
    /// Posts all buffers. Throws base::SetupError.
    Mailbox(const Endpoint& endpoint, uint32_t slots, size_t control_bytes);
    Mailbox(const Mailbox&) = delete;
    Mailbox& operator=(const Mailbox&) = delete;
    /// Takes the buffers back, before the endpoint is closed.
    void cancel();

    /// Posts one buffer more, and returns its bytes.
    size_t extend();

    /// A message came. `packets` of it, which are whole and of `from`, will be shown; 0: none.
    void arrived(ReceiveBuffer& buffer, const std::byte* at, size_t bytes, uint32_t packets, DeviceAddr from,
                 bool contact);
    /// The provider puts no further message into it.
    void given_back(ReceiveBuffer& buffer);
    /// A message was lost in it.
    void damaged(ReceiveBuffer& buffer) { buffer.state.damaged(); }
    [[nodiscard]] bool holds(const ReceiveBuffer& buffer, const std::byte* at, size_t bytes) const;

    [[nodiscard]] const Packet* peek(DeviceAddr& from) {
        if (first_ == behind_) return nullptr;
        Arrival& arrival = front();
        from = arrival.from;
        if (arrival.run == 0 && is_run(status_at(arrival.at))) begin_run(arrival);
        return arrival.run != 0 ? shown_of_run(arrival) : shown(arrival.at);
    }
    /// Returns whether the packet that peek() showed came by Admission::kContact.
    bool advance();
    /// Takes the shown packet and those behind it in its message whose status is the same but for the count, up to
    /// `packets_max` in all, and copies their payloads to `to`. Returns how many; 0 for a contact packet.
    uint32_t take_run(std::byte* to, uint32_t packets_max);

    /// Posts buffers that the provider did not take before. Returns how many.
    uint32_t post_refused();
    [[nodiscard]] bool refused() const { return !refused_.empty(); }
    /// Times that no buffer was posted any more, which the bound forbids.
    [[nodiscard]] uint64_t starved() const { return starved_; }
    [[nodiscard]] uint64_t packets_arrived() const { return packets_arrived_; }
    [[nodiscard]] const ReceiveSpace& space() const { return space_; }

    /// Damaged buffers are kept aside up to this number, and then used again, the oldest first.
    static constexpr size_t kDamagedMax = 64;

  private:
    /// A message that is being read.
    struct Arrival {
        const std::byte* at;
        ReceiveBuffer* buffer;
        uint32_t packets;
        DeviceAddr from;
        bool contact;
        uint32_t run = 0;  ///< packets left of the run that `at` is in
        const std::byte* payload = nullptr;  ///< of the next one of these
    };

    Arrival& front() { return arrivals_[first_ & (arrivals_.size() - 1)]; }
    /// A stranger's message of an odd length may have moved what follows it off a packet's alignment.
    const Packet* shown(const std::byte* at);
    const Packet* shown_of_run(const Arrival& arrival);
    static void begin_run(Arrival& arrival);
    void read(Arrival& arrival, uint32_t packets);
    ReceiveBuffer& make_buffer();
    void reuse(ReceiveBuffer& buffer);
    void post(ReceiveBuffer& buffer);
    void grow();

    const Endpoint& endpoint_;
    ReceiveSpace space_;
    std::deque<ReceiveBuffer> buffers_;
    std::deque<ReceiveBuffer*> damaged_;
    std::vector<ReceiveBuffer*> refused_;
    std::vector<Arrival> arrivals_;  ///< a ring; its size is a power of two
    uint64_t first_ = 0;
    uint64_t behind_ = 0;
    uint32_t posted_ = 0;
    uint64_t starved_ = 0;
    uint64_t packets_arrived_ = 0;
    Packet shown_ = {};  ///< one that does not lie in a buffer as it is shown
};

}  // namespace velo::ofi
