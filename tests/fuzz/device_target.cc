/// The software device: its mailbox, and everything else in a segment that peers write to.
#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "sim_device/shim/mailbox.h"
#include "sim_device/shim/shim_device.h"
#include "tests/fuzz/fuzz.h"
#include "velo/channels/control_packets_impl.h"
#include "velo/channels/packet_channel_impl.h"

namespace velo::fuzz {

using shim::ShimDevice;

namespace {

constexpr uint32_t kSlots = 8;
constexpr uint32_t kPorts = 2;
constexpr uint32_t kMessageBytesMax = 600;
constexpr uint32_t kLongBytes = 72u << 10;  // past the shortest operation that is offered

PacketStatus any_status(Input& input) {
    PacketStatus status = PacketStatus::unpack(input.take<uint64_t>());
    if (input.flag()) status.length %= kPayloadBytes + 1;
    return status;
}

}  // namespace

/// A mailbox in memory that the fuzzer writes to: reader and writer stay inside it.
void mailbox(Input& input) {
    const uint32_t slots = 1 + static_cast<uint32_t>(input.below(kSlots));
    const HeapMemory control_memory(sizeof(shim::MailboxControl));
    const HeapMemory slot_memory(slots * sizeof(Packet));
    auto* control = reinterpret_cast<shim::MailboxControl*>(control_memory.data());
    auto* packets = reinterpret_cast<Packet*>(slot_memory.data());
    shim::MailboxReader reader(control, packets, slots);
    shim::MailboxWriter writer(control, packets, slots);
    const auto fill = [&](uint32_t, std::byte* payload) {
        require(slot_memory.holds(payload, kPayloadBytes), "a packet is written inside the mailbox");
        use(payload, kPayloadBytes);
        return any_status(input);
    };
    for (int step = 0; step < kStepsMax && !input.empty(); ++step) {
        switch (input.below(7)) {
            case 0: damage(input, control_memory.bytes()); break;
            case 1: damage(input, slot_memory.bytes()); break;
            case 2: {
                // A packet of about the lap that the reader waits for.
                PacketStatus status = any_status(input);
                status.lap = static_cast<uint8_t>(1 + reader.position() / slots + input.below(3));
                packets[reader.position() % slots].status = status.pack();
                break;
            }
            case 3: {
                const Packet* packet = reader.peek();
                if (packet == nullptr) break;
                require(slot_memory.holds(reinterpret_cast<const std::byte*>(packet), sizeof *packet),
                        "a packet lies inside the mailbox");
                if (input.flag()) reader.advance();
                break;
            }
            case 4: writer.write(1 + static_cast<uint32_t>(input.below(slots)), 1, fill); break;
            case 5: (void)writer.write_guarded(1 + static_cast<uint32_t>(input.below(slots)), 1, fill); break;
            case 6: reader.abandon_before(input.flag() ? reader.claimed() : input.take<uint64_t>()); break;
        }
    }
}

namespace {

/// A process with a device, and its segment as a third party sees it.
struct Process {
    ShimDevice device;
    base::SharedSegment segment;
    shim::SegmentView view;
    uint64_t now_ns = 0;

    explicit Process(uint16_t node)
        : device({.node = node, .job_token = 5, .mailbox_slots = kSlots, .ports = kPorts, .faults = {}}) {
        std::array<std::byte, kDeviceAddressBytesMax> bytes;
        base::SegmentAddress address;
        device.address(bytes);
        std::memcpy(&address, bytes.data() + sizeof(uint64_t), sizeof address);
        require(base::SharedSegment::attach(address, segment) == Status::kOk, "attach");
        view = shim::SegmentView(segment.bytes().data(), shim::Layout(kSlots, kPorts));
    }
    DeviceAddr connect(const Process& to) {
        std::array<std::byte, kDeviceAddressBytesMax> bytes;
        const size_t length = to.device.address(bytes);
        DeviceAddr addr = kNoAddr;
        require(device.connect(std::span(bytes).first(length), addr) == Status::kOk, "connect");
        return addr;
    }
    /// Range that others write: before the translation table, or the slots behind it. A damaged table only leads
    /// its readers to other addresses of the process that it is of, which here is this one.
    void damage(Input& input) {
        const shim::Layout layout(kSlots, kPorts);
        const bool slots = input.flag();
        fuzz::damage(input,
                     slots ? segment.bytes().subspan(layout.slots) : segment.bytes().first(layout.atu));
    }
    void progress(Input& input) {
        now_ns += uint64_t{input.byte()} * 1'000'000;
        device.progress(now_ns);
    }
};

/// A handler that uses what it gets, and polls again now and then.
struct Handler {
    Input& input;
    PacketChannel<ShimDevice>& path;
    int depth = 0;

    bool accepts(MessageClass, uint8_t) { return input.byte() != 1; }
    void deliver(DeviceAddr, MessageClass, uint8_t, std::byte* data, uint32_t bytes) {
        require(bytes <= kMessageBytesMax, "no message is longer than the longest");
        use(data, bytes);
        if (input.byte() != 2 || depth >= 3) return;
        ++depth;
        path.poll(4, *this);
        --depth;
    }
};

flowctl::Plan small_plan(flowctl::Mode mode) {
    const flowctl::PlanResult result = flowctl::plan(
        {.mode = mode, .peers = 1, .slots_per_peer = kSlots, .mailbox_slots = kSlots, .credit_slots = 2});
    require(std::holds_alternative<flowctl::Plan>(result), "a plan");
    return std::get<flowctl::Plan>(result);
}

/// Sends any message; returns whether all of it went.
void send_any(Input& input, PacketChannel<ShimDevice>& path, DeviceAddr to) {
    static const std::array<std::byte, kMessageBytesMax> data = {};
    velo_send_t send = {};
    send.data[0] = data.data();
    send.bytes[0] = static_cast<uint32_t>(input.below(kMessageBytesMax / 2));
    send.data[1] = data.data();
    send.bytes[1] = static_cast<uint32_t>(input.below(kMessageBytesMax / 2));
    send.total = send.bytes[0] + send.bytes[1];
    send.message_class = static_cast<uint8_t>(input.below(4));
    (void)path.send(to, send);
}

}  // namespace

/// Two processes that talk, one of them the victim: damage in both segments, and packets that break every
/// rule.
void device(Input& input) {
    Process victim(1);
    Process peer(2);
    const DeviceAddr to_victim = peer.connect(victim);
    const DeviceAddr to_peer = victim.connect(peer);
    const flowctl::Plan plan = small_plan(input.flag() ? flowctl::Mode::kStatic : flowctl::Mode::kNone);
    PacketChannel<ShimDevice> path(victim.device, plan, kMessageBytesMax);
    PacketChannel<ShimDevice> peers_path(peer.device, plan, kMessageBytesMax);
    Handler handler = {input, path};
    Handler peers_handler = {input, peers_path};
    for (int step = 0; step < kStepsMax && !input.empty(); ++step) {
        switch (input.below(10)) {
            case 0: victim.damage(input); break;
            case 1: peer.damage(input); break;
            case 2: send_any(input, peers_path, to_victim); break;
            case 3: {
                // Packets of any content, without regard to credits.
                const auto fill = [&](uint32_t, std::byte* payload) {
                    const auto bytes = input.bytes(input.below(kPayloadBytes + 1));
                    if (!bytes.empty()) std::memcpy(payload, bytes.data(), bytes.size());
                    return any_status(input);
                };
                const auto admission = input.flag() ? Admission::kCredited : Admission::kGuarded;
                (void)peer.device.send(to_victim, static_cast<uint32_t>(input.below(kSlots + 2)), admission,
                                       fill);
                break;
            }
            case 4: {
                PacketStatus status = any_status(input);
                status.node = static_cast<uint16_t>(1 + input.below(3));
                status.lap = static_cast<uint8_t>(1 + input.below(4));
                victim.view.slots()[input.below(kSlots)].status = status.pack();
                break;
            }
            case 5: path.poll(1 + static_cast<uint32_t>(input.below(16)), handler); break;
            case 6: peers_path.poll(1 + static_cast<uint32_t>(input.below(16)), peers_handler); break;
            case 7: victim.progress(input); break;
            case 8: send_any(input, path, to_peer); break;
            case 9: path.resend_control(); break;
        }
    }
    require(path.counters().messages_received <= victim.device.counters().packets_received,
            "a message is at least a packet");
}

/// Offers the victim a part of a get or put of 1 to 64 bytes, from or to `local`, as its peer would.
void offer_any(Input& input, Process& victim, Process& peer, const Registration& range,
               const HeapMemory& local) {
    shim::OfferTerms terms = {.bytes = 1 + static_cast<uint32_t>(input.below(64)),
                              .generation = input.byte(),
                              .slot = static_cast<uint8_t>(input.below(shim::kOfferSlots)),
                              .kind = static_cast<RmaKind>(input.below(2))};
    shim::Request request = {.nla = range.nla + input.below(80),
                             .operand = reinterpret_cast<uint64_t>(local.data()),
                             .compare = terms.pack(),
                             .key = static_cast<uint32_t>(range.key),
                             .node = static_cast<uint16_t>(1 + input.below(2)),
                             .kind = static_cast<uint8_t>(terms.kind)};
    shim::OfferSlot& slot = peer.view.offers()[terms.slot];
    slot.terms = request.compare;
    slot.address = request.operand;
    slot.nla = request.nla;
    slot.key = request.key;
    slot.claims.word = uint64_t{terms.generation} << 48 | (input.flag() ? input.take<uint64_t>() >> 16 : 0);
    // Either side may say something else.
    if (input.byte() % 4 == 0) request.compare ^= input.take<uint64_t>();
    if (input.byte() % 4 == 0) request.operand ^= input.byte();
    if (input.byte() % 4 == 0) request.kind ^= 1;
    (void)victim.view.requests(static_cast<uint32_t>(input.below(kPorts))).push(request);
}

/// The RMA unit: requests, offers, answers, notifications and contacts of any content.
void requests(Input& input) {
    Process victim(1);
    Process peer(2);
    (void)peer.connect(victim);
    const DeviceAddr to_peer = victim.connect(peer);
    const HeapMemory open(64), readable(64), source(kLongBytes), sink(kLongBytes), remote(kLongBytes);
    Registration open_range, readable_range, remote_range;
    require(
        victim.device.register_memory(open.data(), 60, kAccessAny, open_range) == Status::kOk &&
            victim.device.register_memory(readable.data(), 64, kAccessRead, readable_range) == Status::kOk &&
            peer.device.register_memory(remote.data(), kLongBytes, kAccessAny, remote_range) == Status::kOk,
        "room for three registrations");
    uint32_t outstanding = 0;
    for (int step = 0; step < kStepsMax && !input.empty(); ++step) {
        const Registration& range = input.flag() ? open_range : readable_range;
        switch (input.below(9)) {
            case 0:
            case 1: {
                shim::Request request = {
                    .nla = input.take<uint64_t>(),
                    .operand = input.take<uint64_t>(),
                    .compare = input.take<uint16_t>(),
                    .key = input.take<uint32_t>(),
                    .operation_id = input.take<uint16_t>(),
                    .node = static_cast<uint16_t>(1 + input.below(3)),
                    .cookie = input.byte(),
                    .kind = static_cast<uint8_t>(input.below(9)),
                    .bytes = input.flag() ? input.byte() : static_cast<uint8_t>(input.below(10)),
                    .notify = input.byte()};
                if (input.byte() % 8 != 0) {
                    request.nla = range.nla + request.nla % 80;
                    request.key = range.key;
                }
                (void)victim.view.requests(static_cast<uint32_t>(input.below(kPorts))).push(request);
                break;
            }
            case 2: {
                const uint32_t id = input.flag() ? input.take<uint32_t>() : input.byte();
                (void)victim.view.answers().push({.value = input.take<uint64_t>(),
                                                  .operation_id = id,
                                                  .node = static_cast<uint16_t>(input.below(3)),
                                                  .vpid = 0,
                                                  .status = static_cast<uint8_t>(input.below(12))});
                break;
            }
            case 3: {
                Notification notification;
                std::array<std::byte, sizeof notification> raw = {};
                const auto bytes = input.bytes(raw.size());
                if (!bytes.empty()) std::memcpy(raw.data(), bytes.data(), bytes.size());
                std::memcpy(&notification, raw.data(), raw.size());
                if (input.flag()) notification.node = 2, notification.vpid = 0;
                (void)victim.view.notifications().push(notification);
                break;
            }
            case 4: victim.damage(input); break;
            case 5: {
                const RmaKind kind = static_cast<RmaKind>(input.below(8));
                const RmaOperation operation = {
                    .kind = kind,
                    .port = static_cast<uint8_t>(input.below(kPorts + 1)),
                    .notify = static_cast<uint8_t>(input.below(9)),
                    .cookie = input.byte(),
                    .peer = input.byte() == 1 ? DeviceAddr{7} : to_peer,
                    .local = kind == RmaKind::kGet ? sink.data() : source.data(),
                    .nla = remote_range.nla + (input.flag() ? 0 : input.below(kLongBytes + 100)),
                    .key = remote_range.key + (input.byte() == 1 ? 2 : 0),
                    .bytes = kind <= RmaKind::kGet ? static_cast<uint32_t>(input.below(kLongBytes + 1))
                                                   : static_cast<uint32_t>(input.below(10)),
                    .operand = input.byte(),
                    .compare = input.byte()};
                if (victim.device.post(operation) != Status::kOk) break;
                outstanding += (operation.notify & kNotifyRequester) != 0;
                break;
            }
            case 6: victim.progress(input); break;
            case 8: offer_any(input, victim, peer, range, sink); break;
            case 7: {
                Notification notification;
                for (int i = 0; i < 16 && victim.device.poll_notification(notification); ++i) {
                    if (notification.kind != kNotifyRequester) continue;
                    require(outstanding != 0, "an operation is notified to its requester once");
                    --outstanding;
                }
                break;
            }
        }
        if (input.byte() % 4 == 0) peer.progress(input);
    }
    for (const std::byte value : readable.bytes()) {
        require(value == std::byte{0}, "no peer writes to memory that is registered for reading");
    }
    for (const std::byte value : open.bytes().subspan(60)) {
        require(value == std::byte{0}, "no peer writes behind a registration");
    }
}

}  // namespace velo::fuzz
