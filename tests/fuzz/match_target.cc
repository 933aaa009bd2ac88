/// Matching: every message that a peer can send to an engine that matches, while its host posts, probes,
/// cancels and sends.
#include <array>
#include <deque>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "velo/core/peer.h"
#include "velo/open_engine.h"
#include "velo/shm/on_node.h"
#include "velo/velo_match.h"
#include "velo/wire/match_wire.h"

namespace velo::fuzz {
namespace {

constexpr uint64_t kJob = 78;
constexpr uint32_t kMessageBytesMax = 2104;
constexpr int64_t kRecordBytes = 64 * 6;

struct Victim {
    velo_engine_t* engine = nullptr;

    Victim() {
        velo_params_t params;
        velo_params_default(&params);
        params.ring_bytes = 65536;
        params.registrations = 16;
        params.on_node_message_bytes_max = kMessageBytesMax;
        params.device_message_bytes_max = kMessageBytesMax;
        params.unexpected_records = kRecordBytes;
        params.unexpected_bytes = 256 * 8;
        params.unexpected_granted = 2;
        const velo_identity_t identity = {.name = kJob << 32,
                                          .job = kJob,
                                          .rank = 0,
                                          .job_size = 1,
                                          .local_rank = 0,
                                          .local_size = 2,
                                          .host = 0,
                                          .hosts = 1,
                                          .host_ranks_min = 2,
                                          .more_hosts = false,
                                          .other_host = {}};
        const velo_host_t host = {.context = this,
                                  .topology = nullptr,
                                  .accepts = [](void*, uint8_t) { return true; },
                                  .receive = [](void*, velo_path_t, void*, uint8_t, void*, size_t) {},
                                  .unconnected = nullptr,
                                  .sent = [](void*, velo_send_t*, int) {},
                                  .rma_done = [](void*, velo_rma_t*, int) {},
                                  .peer_ended = [](void*, const velo_end_t*) {},
                                  .log = [](void*, int, const char*) {},
                                  .job_failed = [](void*, const velo_failure_t*) {}};
        engine = open_engine(params, identity, host, {.ring_lines = 16});
        const velo_match_host_t match_host = {.context = this,
                                              .send_done = [](void*, velo_match_send_t*) {},
                                              .receive_done = [](void*, velo_match_receive_t*) {},
                                              .wait = nullptr};
        velo_match_open(engine, &match_host);
    }
    Victim(const Victim&) = delete;
    Victim& operator=(const Victim&) = delete;
    ~Victim() { velo_close(engine); }
};

/// A peer below its engine, which remembers the last messages that it got: there are numbers in them.
struct Liar {
    explicit Liar(const EngineAddress& victim)
        : path({.name = kJob << 32 | 1,
                .geometry = {.lines = 16, .body_bytes = 65536},
                .registrations_max = 16}) {
        require(path.connect(victim.on_node, to) == Status::kOk, "connect");
    }
    void send(uint8_t tag, const std::vector<std::byte>& bytes) {
        Status status = Status::kOk;
        const auto length = static_cast<uint32_t>(bytes.size());
        std::byte* const room = path.reserve_whole(to, length, status);
        if (room == nullptr) return;
        if (length != 0) std::memcpy(room, bytes.data(), length);
        path.commit(to, MessageClass::kHost, tag, length, true);
    }
    bool accepts(const shm::Message&) { return true; }
    void deliver(shm::PeerIndex, const shm::Message& message) {
        if (seen.size() == 16) seen.pop_front();
        seen.emplace_back(message.data, message.data + message.bytes);
    }

    shm::OnNode path;
    shm::PeerIndex to = 0;
    std::deque<std::vector<std::byte>> seen;
};

template <class Header>
std::vector<std::byte> message_of(const Header& header, std::span<const std::byte> behind = {}) {
    std::vector<std::byte> bytes(sizeof header + behind.size());
    std::memcpy(bytes.data(), &header, sizeof header);
    if (!behind.empty()) std::memcpy(bytes.data() + sizeof header, behind.data(), behind.size());
    return bytes;
}

match::EagerHeader any_head(Input& input) {
    const match::Envelope envelope = {.context = 3,
                                      .source = static_cast<int32_t>(input.below(3)) - 1,
                                      .tag = static_cast<int32_t>(input.below(5)) - 2};
    return match::EagerHeader::of(envelope, static_cast<uint32_t>(input.below(16)));
}
/// The victim's, or any.
uint64_t any_number(Input& input, const Liar& liar) {
    if (input.flag()) return input.below(4) | input.below(3) << 32;
    for (const auto& seen : liar.seen) {
        match::RequestHeader header;
        if (match::read_header(header, seen.data(), static_cast<uint32_t>(seen.size()))) return header.number;
    }
    return input.take<uint64_t>();
}

std::vector<std::byte> any_message(Input& input, const Liar& liar, uint8_t tag) {
    const HeapMemory zeros(4096);
    switch (static_cast<match::WireTag>(tag)) {
        case match::WireTag::kEager:
            return message_of(any_head(input), zeros.bytes().first(input.below(300)));
        case match::WireTag::kRequest: {
            const match::RequestHeader header = {.head = any_head(input),
                                                 .age = static_cast<uint32_t>(input.below(4)),
                                                 .number = any_number(input, liar),
                                                 .bytes = input.below(600)};
            const size_t behind = input.flag() ? header.bytes : input.flag() ? sizeof(match::Place) : 0;
            return message_of(header, zeros.bytes().first(behind));
        }
        case match::WireTag::kAnswer:
            return message_of(
                match::AnswerHeader{.number = any_number(input, liar),
                                    .age = static_cast<uint32_t>(input.below(3)),
                                    .grant = {static_cast<uint16_t>(input.below(3)), input.take<uint16_t>()},
                                    .outcome = static_cast<match::AnswerHeader::Outcome>(input.below(5))});
        case match::WireTag::kGrant:
            return message_of(match::GrantHeader{input.take<uint16_t>(), input.take<uint16_t>()});
        case match::WireTag::kOffers: {
            std::array<match::Envelope, 8> receives;
            for (match::Envelope& one : receives) one = any_head(input).envelope();
            const auto count = static_cast<uint8_t>(input.below(10));
            return message_of(
                match::OffersHeader{.age = static_cast<uint32_t>(input.below(4)),
                                    .count = count,
                                    .resend_all = static_cast<uint8_t>(input.below(2))},
                std::as_bytes(std::span(receives)).first(std::min<size_t>(count, 8) * sizeof receives[0]));
        }
        case match::WireTag::kEnd: return message_of(match::EndHeader{static_cast<uint32_t>(input.below(4))});
        case match::WireTag::kClearToSend:
            return message_of(match::ClearToSendHeader{any_number(input, liar), input.below(4)});
        case match::WireTag::kReady:
            return message_of(match::ReadyHeader{any_number(input, liar), {input.below(2) * 4096, {}}});
        case match::WireTag::kDone: return message_of(match::DoneHeader{any_number(input, liar)});
        case match::WireTag::kLeft: break;
    }
    return {};
}

}  // namespace

void matching(Input& input) {
    const Victim victim;
    std::array<std::byte, VELO_ADDRESS_BYTES_MAX> bytes;
    EngineAddress address;
    require(address.parse(bytes.data(), velo_address(victim.engine, bytes.data(), bytes.size())),
            "an address");
    Liar liar(address);
    address.process.name = kJob << 32 | 1;
    address.process.rank = 1;
    address.on_node = liar.path.address();
    velo_peer_t* peer = nullptr;
    char error[512] = "";
    if (velo_connect(victim.engine, &address, address.bytes(), true, nullptr, &peer, error, sizeof error) !=
        VELO_OK)
        return;
    velo_match_peer_t* const other = velo_match_peer_of(victim.engine, peer);
    velo_match_peer_t* const self = velo_match_peer_of(victim.engine, nullptr);
    const HeapMemory memory(1024);
    const HeapMemory sent(8192);
    std::deque<velo_match_receive_t> receives;
    std::deque<velo_match_send_t> sends;
    for (int step = 0; step < kStepsMax && !input.empty(); ++step) {
        const auto source = static_cast<int32_t>(input.below(2)) - 1;
        const auto tag = static_cast<int32_t>(input.below(4)) - 1;
        velo_match_peer_t* const from = source < 0 ? nullptr : other;
        velo_match_status_t status;
        switch (input.below(8)) {
            case 0:
                receives.emplace_back().from = from;
                (void)velo_match_post(victim.engine, velo_place(3, source), tag, memory.data(), input.below(1025),
                                      &receives.back());
                break;
            case 1: {
                const uint64_t length = input.flag() ? input.below(300) : input.below(8193);
                velo_match_peer_t* const to = input.below(8) == 0 ? self : other;
                const bool synchronous = input.flag();
                if (synchronous ||
                    !velo_match_try_send(victim.engine, to, velo_place(3, 0), 1, sent.data(), length))
                    (void)velo_match_send(victim.engine, to, velo_place(3, 0), 1, sent.data(), length, synchronous,
                                          &sends.emplace_back());
                break;
            }
            case 2: {
                velo_match_message_t* message = nullptr;
                const bool takes = input.flag();
                if (velo_match_probe(victim.engine, from, velo_place(3, source), tag, &status,
                                     takes ? &message : nullptr) &&
                    takes) {
                    (void)velo_match_receive_message(victim.engine, message, memory.data(), 1024,
                                                     &receives.emplace_back());
                }
                break;
            }
            case 3: {
                const auto wire_tag = static_cast<uint8_t>(match::kFirstWireTag + input.below(10));
                std::vector<std::byte> raw(input.below(200));
                const auto given = input.bytes(raw.size());
                std::ranges::copy(given, raw.begin());
                liar.send(wire_tag, raw);
                break;
            }
            default: {
                const auto wire_tag = static_cast<uint8_t>(match::kFirstWireTag + input.below(9));
                std::vector<std::byte> message = any_message(input, liar, wire_tag);
                if (input.below(8) == 0) damage(input, message);
                if (input.below(16) == 0) message.resize(input.below(message.size() + 1));
                liar.send(wire_tag, message);
            }
        }
        velo_progress(victim.engine);
        liar.path.poll(64, liar);
    }
    // The end of MPI, in whatever state the peer has left things; messages come after it, too.
    velo_match_leave(victim.engine);
    velo_progress(victim.engine);
    liar.path.poll(64, liar);
    if (!velo_match_owes(victim.engine)) {
        velo_match_close(victim.engine);
        sends.clear();
        receives.clear();
        for (uint8_t tag = match::kFirstWireTag; tag < match::kFirstWireTag + 10; ++tag)
            liar.send(tag, any_message(input, liar, tag));
        velo_progress(victim.engine);
    }
    velo_counters_t counters;
    velo_counters(victim.engine, &counters);
    require(counters.match_records_hwm <= static_cast<uint64_t>(kRecordBytes), "records within their budget");
    require(counters.match_data_hwm <= 256 * 8, "data within its budget");
}

}  // namespace velo::fuzz
