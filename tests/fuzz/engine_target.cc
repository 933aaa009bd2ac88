/// The engine from outside: what a peer publishes, and every message between engines.
#include <array>
#include <deque>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "sim_device/shim/shim_device.h"
#include "tests/fuzz/fuzz.h"
#include "velo/core/peer.h"
#include "velo/open_engine.h"
#include "velo/velo.h"
#include "velo/wire/engine_wire.h"
#include "velo/wire/handle.h"

namespace velo::fuzz {
namespace {

constexpr uint64_t kJob = 77;
constexpr uint32_t kMessageBytesMax = 2104;
constexpr uint32_t kMemoryBytes = 40u << 10;  ///< enough for a block that both ends move

/// An engine and its host, which sends back some of what it gets.
struct Rank {
    velo_engine_t* engine = nullptr;
    uint64_t done = 0;

    /// Between nodes: with reserved rails, where direct copies on the node would be used.
    Rank(uint32_t rank, bool nodes, const char* single_copy, const char* flow_control) {
        velo_params_t params;
        velo_params_default(&params);
        params.ranks_per_node = nodes ? 1 : 0;
        params.single_copy = single_copy;
        if (nodes && std::string_view(single_copy) == "cma") {
            params.ports = 4;
            params.rails = "dynamic";
        }
        params.flow_control = flow_control;
        params.slots = 58;
        params.ring_bytes = 65536;
        params.registrations = 16;
        params.chunk = 4096;
        params.on_node_message_bytes_max = kMessageBytesMax;
        params.device_message_bytes_max = kMessageBytesMax;
        const velo_identity_t identity = {.name = kJob << 32 | rank,
                                          .job = kJob,
                                          .rank = rank,
                                          .job_size = 2,
                                          .local_rank = rank,
                                          .local_size = 2,
                                          .host = 0,
                                          .hosts = 1,
                                          .host_ranks_min = 2, .more_hosts = false, .other_host = {}};
        const velo_host_t host = {
            .context = this,
            .topology = nullptr,
            .accepts = [](void*, uint8_t) { return true; },
            .receive = [](void*, velo_path_t, void*, uint8_t, void* data,
                          size_t bytes) { use(static_cast<std::byte*>(data), bytes); },
            .unconnected = nullptr,
            .sent = [](void*, velo_send_t*, int) {},
            .rma_done = [](void* self, velo_rma_t*, int) { ++static_cast<Rank*>(self)->done; },
            .peer_ended = [](void*, const velo_end_t*) {},
            .log = [](void*, int, const char* line) { require(line[0] != '\0', "a line says something"); },
            .job_failed = [](void*, const velo_failure_t*) {}};
        engine = open_engine(params, identity, host, {.ring_lines = 16, .copy_bytes = 1024});
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank() { velo_close(engine); }

    [[nodiscard]] EngineAddress address() const {
        std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
        EngineAddress address;
        require(address.parse(bytes.data(), velo_address(engine, bytes.data(), bytes.size())), "an address");
        return address;
    }
    int connect(const void* blob, size_t bytes, bool same_host, velo_peer_t*& peer) {
        char error[512] = "";
        const int status = velo_connect(engine, blob, bytes, same_host, this, &peer, error, sizeof error);
        require((status == VELO_OK) == (error[0] == '\0'), "a refusal says why");
        return status;
    }
};

/// A device's address ends with the FNV-1a sum of what is before (docs/protocol.md): damaged bytes
/// with the right sum get further.
void mend_sum(EngineAddress& address) {
    if (address.device_bytes < 8 || address.device_bytes > sizeof address.device) return;
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < address.device_bytes - 8; ++i) {
        sum = (sum ^ std::to_integer<uint64_t>(address.device[i])) * 1099511628211u;
    }
    std::memcpy(address.device + address.device_bytes - 8, &sum, sizeof sum);
}

velo_handle_t any_handle(Input& input, const velo_handle_t& known) {
    velo_handle_t handle = known;
    handle.check = check_of(handle);
    if (input.flag()) damage(input, std::as_writable_bytes(std::span(&handle, 1)));
    return handle;
}

}  // namespace

/// A peer may publish anything at all; if it is believed, so is what comes from there.
void modex(Input& input) {
    const bool nodes = input.flag();
    Rank victim(0, nodes, "cma", "static");
    Rank peer(1, nodes, "cma", "static");
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX + 1> blob = {};
    const HeapMemory memory(8192);
    std::deque<velo_rma_t> transfers;
    std::deque<velo_send_t> sends;
    for (int round = 0; round < 4 && !input.empty(); ++round) {
        EngineAddress address = peer.address();
        for (uint64_t damages = input.below(4); damages != 0; --damages) {
            damage(input, std::as_writable_bytes(std::span(&address, 1)));
        }
        if (input.flag()) mend_sum(address);
        std::memcpy(blob.data(), static_cast<const void*>(&address), sizeof address);
        const size_t bytes = input.byte() < 250 ? std::min(address.bytes(), blob.size()) : input.below(blob.size());
        velo_peer_t* to = nullptr;
        if (victim.connect(blob.data(), bytes, input.byte() < 250, to) != VELO_OK) continue;
        require(velo_peer_path(to) != VELO_PATH_NONE, "a peer is reached somehow");
        (void)velo_try_send(victim.engine, to, 1, memory.data(), input.byte(), memory.data(), 100);
        velo_send_t& send = sends.emplace_back();
        send.data[0] = memory.data();
        send.bytes[0] = static_cast<uint32_t>(input.below(kMessageBytesMax));
        (void)velo_send(victim.engine, to, &send, 1);
        velo_handle_t handle = {
            .base = 4096, .bytes = 4096, .nla = {}, .device_key = 1, .on_node_key = 1, .reserved = 0, .check = 0};
        velo_rma_t& transfer = transfers.emplace_back();
        transfer.kind = VELO_RMA_GET;
        transfer.local = memory.data();
        transfer.remote_address = 4096 + input.below(4200);
        transfer.remote = any_handle(input, handle);
        transfer.bytes = input.below(memory.bytes().size() + 1);
        velo_rma(victim.engine, to, &transfer);
        for (int i = 0; i < 20; ++i) {
            velo_progress(victim.engine);
            velo_progress(peer.engine);
        }
    }
}

namespace {

/// A peer that speaks to the victim below its engine: any bytes, as a message of any class.
class RawPeer {
  public:
    virtual ~RawPeer() = default;
    virtual void send(Input& input, MessageClass message_class, std::span<const std::byte> bytes) = 0;
    /// Takes what the victim sent, to learn cookies from it.
    virtual void poll() = 0;
    [[nodiscard]] virtual EngineAddress address(const EngineAddress& victims) const = 0;
    /// Registered memory, which the victim may read and write.
    [[nodiscard]] virtual velo_handle_t memory() = 0;
    OperationHead last;    ///< of the victim's last message about an operation
    RailHeader last_rail;  ///< the victim's last message about a rail

  protected:
    void learn(MessageClass message_class, const std::byte* data, uint32_t bytes) {
        if (message_class != MessageClass::kEngine) return;
        if (read_header(last_rail, data, bytes) || bytes < sizeof last) return;
        std::memcpy(&last, data, sizeof last);
    }
};

class OnNodePeer : public RawPeer {
  public:
    explicit OnNodePeer(const EngineAddress& victim)
        : path_({.name = kJob << 32 | 1,
                 .geometry = {.lines = 16, .body_bytes = 65536},
                 .registrations_max = 16}) {
        require(path_.connect(victim.on_node, to_) == Status::kOk, "connect");
    }
    void send(Input&, MessageClass message_class, std::span<const std::byte> bytes) override {
        Status status = Status::kOk;
        const auto length = static_cast<uint32_t>(bytes.size());
        std::byte* room = path_.reserve_whole(to_, length, status);
        if (room == nullptr) return;
        std::memcpy(room, bytes.data(), length);
        path_.commit(to_, message_class, 0, length, true);
    }
    void poll() override { path_.poll(64, *this); }
    [[nodiscard]] EngineAddress address(const EngineAddress& victims) const override {
        EngineAddress address = victims;
        address.process.name = kJob << 32 | 1;
        address.process.rank = 1;
        address.on_node = path_.address();
        return address;
    }
    [[nodiscard]] velo_handle_t memory() override {
        Registration range;
        (void)path_.atu().add(memory_.data(), memory_.bytes().size(), kAccessAny, range);
        return {.base = reinterpret_cast<uint64_t>(memory_.data()),
                .bytes = range.bytes,
                .nla = {range.nla, 0},
                .device_key = 0,
                .on_node_key = static_cast<uint32_t>(range.key),
                .reserved = 0,
                .check = 0};
    }
    bool accepts(const shm::Message&) { return true; }
    void deliver(shm::PeerIndex, const shm::Message& message) {
        learn(message.message_class, message.data, message.bytes);
    }

  private:
    HeapMemory memory_{kMemoryBytes};
    shm::OnNode path_;
    shm::PeerIndex to_ = 0;
};

class DevicePeerOf : public RawPeer {
  public:
    explicit DevicePeerOf(const EngineAddress& victim)
        : device_({.node = 1,
                   .host_name = kJob << 32 | 1,
                   .job_token = kJob,
                   .mailbox_slots = victim.mailbox.slots,
                   .ports = victim.settings.ports,
                   .faults = {}}) {
        require(device_.connect({victim.device, victim.device_bytes}, to_) == Status::kOk, "connect");
    }
    void send(Input& input, MessageClass message_class, std::span<const std::byte> bytes) override {
        const uint32_t packets = packets_for(bytes.size());
        const uint8_t mistake = input.byte();
        const auto fill = [&](uint32_t i, std::byte* payload) {
            const size_t offset = i * kPayloadBytes;
            const size_t length = std::min(bytes.size() - offset, kPayloadBytes);
            std::memcpy(payload, bytes.data() + offset, length);
            PacketStatus status = {.message_class = message_class,
                                   .end_of_message = i + 1 == packets,
                                   .length = static_cast<uint8_t>(length)};
            if (mistake == 1) status = PacketStatus::unpack(input.take<uint64_t>());
            if (mistake == 2) status.piggyback = true;
            return status;
        };
        (void)device_.send(to_, packets, Admission::kGuarded, fill);
    }
    void poll() override {
        device_.progress(0);
        DeviceAddr from = kNoAddr;
        while (const Packet* packet = device_.peek(from)) {
            const PacketStatus status = PacketStatus::unpack(packet->status);
            learn(status.message_class, packet->payload, status.length);
            device_.advance();
        }
    }
    [[nodiscard]] EngineAddress address(const EngineAddress& victims) const override {
        EngineAddress address = victims;
        address.process.node = 1;
        address.process.name = kJob << 32 | 1;
        address.process.rank = 1;
        address.device_bytes = static_cast<uint32_t>(device_.address(address.device));
        return address;
    }

    [[nodiscard]] velo_handle_t memory() override {
        Registration range;
        (void)device_.register_memory(memory_.data(), memory_.bytes().size(), kAccessAny, range);
        return {.base = reinterpret_cast<uint64_t>(memory_.data()),
                .bytes = range.bytes,
                .nla = {0, range.nla},
                .device_key = range.key,
                .on_node_key = 1,
                .reserved = 0,
                .check = 0};
    }

  private:
    HeapMemory memory_{kMemoryBytes};
    shim::ShimDevice device_;
    DeviceAddr to_ = kNoAddr;
};

/// Facts for the fuzzer when it makes up a message; without it no cookie and no address would ever be right.
struct Known {
    OperationHead last;
    RailHeader last_rail;
    velo_handle_t handle;  ///< of memory of the victim
    uint64_t sink;         ///< where the peer lets itself be written to, kMemoryBytes twice over
};

/// Memory of the victim, by its registration or by its address, or anything that was drawn.
template <class Header>
void name_memory(Input& input, const Known& known, Header& header) {
    const uint64_t offset = input.below(known.handle.bytes + 16);
    switch (input.below(4)) {
        case 0: header.nla = known.handle.nla[0] + offset, header.key = known.handle.on_node_key; break;
        case 1: header.nla = known.handle.base + offset, header.key = kKeyOfAddress; break;
        case 2: header.nla = known.handle.nla[0] + offset; break;
        default: break;
    }
}
/// A header of any bytes, but for those that are mended where their bits are drawn: mend(header, bits).
template <class Header, class Mend>
uint32_t make_up(Input& input, std::byte* to, Mend&& mend) {
    Header header;
    const auto raw = input.bytes(sizeof header);
    std::memcpy(static_cast<void*>(&header), raw.data(), raw.size());
    const uint8_t bits = input.byte();
    if constexpr (!std::is_same_v<Header, OperationHead>) {
        if ((bits & 1) == 0) header.opcode = Header::kOpcode;
    }
    mend(header, bits);
    write_header(to, header);
    return sizeof header;
}
uint32_t below(Input& input, uint64_t end) {
    return static_cast<uint32_t>(input.below(end));
}

/// One line for each kind of message. Each returns the length of the header, and, where data follows, of that as well.
constexpr uint32_t (*kKinds[])(Input&, const Known&, std::byte*) = {
    [](Input& input, const Known& known, std::byte* to) {
        return make_up<PullHeader>(input, to, [&](PullHeader& header, uint8_t bits) {
            if (bits & 2) header.guarded &= 1;
            if (bits & 4) header.bytes = input.below(kMemoryBytes + 64);
            if (bits & 8) header.cookie = known.last.cookie;
            name_memory(input, known, header);
        });
    },
    [](Input& input, const Known& known, std::byte* to) {
        return below(input, 1100) + make_up<PullDataHeader>(input, to, [&](PullDataHeader& header, uint8_t bits) {
                   if (bits & 2) header.offset = input.below(kMemoryBytes + 64);
                   if (bits & 4) header.offset = 0;
                   if (bits & 8) header.cookie = known.last.cookie;
               });
    },
    [](Input& input, const Known& known, std::byte* to) {
        return below(input, 1100) + make_up<PutDataHeader>(input, to, [&](PutDataHeader& header, uint8_t bits) {
                   if (bits & 2) header.guarded &= 1, header.last &= 1;
                   name_memory(input, known, header);
               });
    },
    [](Input& input, const Known& known, std::byte* to) {
        return make_up<AtomicHeader>(input, to, [&](AtomicHeader& header, uint8_t bits) {
            if (bits & 2) header.operation %= VELO_ATOMIC_COUNT;
            if (bits & 4) header.width = bits & 8 ? 4 : 8;
            name_memory(input, known, header);
            if (bits & 16) header.nla &= ~uint64_t{7};
        });
    },
    [](Input& input, const Known& known, std::byte* to) {
        return make_up<DoneHeader>(input, to, [&](DoneHeader& header, uint8_t bits) {
            if (bits & 2) header.status = static_cast<Status>(input.below(13));
            if (bits & 4) header.value = input.below(kMemoryBytes);
            if (bits & 8) header.cookie = known.last.cookie;
        });
    },
    [](Input& input, const Known& known, std::byte* to) {
        return make_up<CoopCallHeader>(input, to, [&](CoopCallHeader& header, uint8_t bits) {
            if (bits & 2) header.method = static_cast<CoopMethod>(input.below(kCoopMethods));
            if (bits & 4) header.slot %= 70;
            if (bits & 8) header.bytes = below(input, kMemoryBytes);
            name_memory(input, known, header);
        });
    },
    [](Input& input, const Known& known, std::byte* to) {
        return make_up<CoopPartHeader>(input, to, [&](CoopPartHeader& header, uint8_t bits) {
            if (bits & 2) header.method = bits & 4 ? CoopMethod::kRing : CoopMethod::kRingNontemporal;
            if (bits & 8) header.bytes = below(input, kMemoryBytes);
            if (bits & 16) header.offset = below(input, kMemoryBytes);
            name_memory(input, known, header);
        });
    },
    [](Input& input, const Known& known, std::byte* to) {
        return below(input, 2048) + make_up<CoopDataHeader>(input, to, [&](CoopDataHeader& header, uint8_t bits) {
                   if (bits & 2) header.offset = input.below(kMemoryBytes);
                   if (bits & 4) header.ns = 0;
                   if (bits & 8) header.cookie = known.last.cookie;
               });
    },
    [](Input& input, const Known& known, std::byte* to) {
        return make_up<CoopWrittenHeader>(input, to, [&](CoopWrittenHeader& header, uint8_t bits) {
            if (bits & 2) header.offset = input.below(kMemoryBytes);
            if (bits & 4) header.bytes = below(input, kMemoryBytes);
            if (bits & 8) header.cookie = known.last.cookie;
        });
    },
    [](Input& input, const Known& known, std::byte* to) {
        return make_up<RailHeader>(input, to, [&](RailHeader& header, uint8_t bits) {
            if (bits & 2) header.kind = static_cast<rma::RailMessageKind>(input.below(7));  // or none
            if (bits & 4) header.rail %= 5;
            if (bits & 8) header.status = input.below(4) == 0 ? Status::kUnsupported : Status::kOk;
            if (bits & 16) header.sends &= 1;
            if (bits & 32) header.number = bits & 64 ? known.last_rail.number : below(input, 4);
        });
    },
    [](Input& input, const Known&, std::byte* to) {
        return make_up<OperationHead>(input, to, [](OperationHead&, uint8_t) {});
    },
};

}  // namespace

/// Every opcode, header and body from a peer, on both paths, to a victim with registered memory and
/// operations of its own under way.
void engine(Input& input) {
    const bool nodes = input.flag();
    Rank victim(0, nodes, input.flag() ? "cma" : "none", input.flag() ? "static" : "none");
    const EngineAddress address = victim.address();
    std::unique_ptr<RawPeer> peer;
    if (nodes) {
        peer = std::make_unique<DevicePeerOf>(address);
    } else {
        peer = std::make_unique<OnNodePeer>(address);
    }
    const HeapMemory open(kMemoryBytes), readable(kMemoryBytes), local(kMemoryBytes), sink(2 * kMemoryBytes);
    velo_handle_t remote = peer->memory();
    remote.check = check_of(remote);
    base::SharedSegment segment;  // of the victim
    require(base::SharedSegment::attach(address.on_node.segment, segment) == Status::kOk, "attach");
    Known known = {};
    known.sink = reinterpret_cast<uint64_t>(sink.data());
    velo_handle_t readable_handle = {};
    require(
        velo_register(victim.engine, open.data(), kMemoryBytes - 6, kAccessAny, &known.handle) == VELO_OK &&
            velo_register(victim.engine, readable.data(), kMemoryBytes, kAccessRead, &readable_handle) ==
                VELO_OK,
        "room for two registrations");
    const velo_handle_t open_handle = known.handle;
    velo_peer_t* to = nullptr;
    std::deque<velo_rma_t> transfers;
    for (int step = 0; step < kStepsMax && !input.empty(); ++step) {
        switch (input.below(6)) {
            case 0: {
                std::array<std::byte, kMessageBytesMax> message = {};
                known.last = peer->last;
                known.last_rail = peer->last_rail;
                known.handle = input.flag() ? open_handle : readable_handle;
                const uint32_t length = kKinds[input.below(std::size(kKinds))](input, known, message.data());
                // The victim may write to where a cooperative block goes, which here is its own process.
                if (opcode_of(message.data(), length) == Opcode::kCoopCall) {
                    uint64_t destination = 0;
                    std::byte* const field = message.data() + offsetof(CoopCallHeader, destination);
                    std::memcpy(&destination, field, sizeof destination);
                    destination = known.sink + destination % kMemoryBytes;
                    std::memcpy(field, &destination, sizeof destination);
                }
                const size_t bytes = input.flag() ? length : input.below(kMessageBytesMax + 1);
                peer->send(input, MessageClass::kEngine, std::span(message).first(bytes));
                break;
            }
            case 1: {
                const std::array<std::byte, kMessageBytesMax> message = {};
                peer->send(input, static_cast<MessageClass>(input.below(4)),
                           std::span(message).first(input.below(kMessageBytesMax + 1)));
                break;
            }
            case 2: peer->poll(); break;
            case 3: velo_progress(victim.engine); break;
            case 4: {
                if (to == nullptr) {
                    const EngineAddress theirs = peer->address(address);
                    if (victim.connect(&theirs, theirs.bytes(), true, to) != VELO_OK) to = nullptr;
                }
                if (to == nullptr || transfers.size() >= 32) break;
                velo_rma_t& transfer = transfers.emplace_back();
                transfer.kind = static_cast<velo_rma_kind_t>(input.below(3));
                transfer.atomic = static_cast<velo_atomic_t>(input.below(VELO_ATOMIC_COUNT));
                transfer.width = input.flag() ? 4 : 8;
                transfer.local = local.data();
                transfer.remote = input.byte() == 1 ? any_handle(input, remote) : remote;
                transfer.remote_address = remote.base + input.below(64);
                transfer.bytes = input.below(kMemoryBytes);
                velo_rma(victim.engine, to, &transfer);
                break;
            }
            case 5: damage(input, segment.bytes()); break;
        }
    }
    require(victim.done <= transfers.size(), "a transfer ends once");
    for (const std::byte value : readable.bytes()) {
        require(value == std::byte{0}, "no peer writes to memory that is registered for reading");
    }
    for (const std::byte value : open.bytes().subspan(kMemoryBytes - 6)) {
        require(value == std::byte{0}, "no peer writes behind a registration");
    }
}

}  // namespace velo::fuzz
