/// The on-node ring and the path over it, with everything that a peer can write under the fuzzer's control.
#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "velo/shm/on_node.h"
#include "velo/shm/ring.h"

namespace velo::fuzz {

using shm::LineHeader;
using shm::Message;
using shm::RingConsumer;
using shm::RingGeometry;
using shm::RingProducer;
using shm::RingView;

/// Producer and consumer of one ring in memory that the fuzzer writes to: neither leaves it.
void ring(Input& input) {
    const RingGeometry geometry = {.lines = 4u << input.below(7), .body_bytes = 4096};
    const HeapMemory memory(shm::ring_bytes(geometry));
    const RingView view(memory.data(), geometry);
    const std::byte* end = view.bodies + geometry.body_bytes;
    RingProducer producer(view);
    RingConsumer consumer(view);
    bool closed = false;
    int in_use = 0;
    const auto inside = [&](const std::byte* at, size_t bytes) {
        return at >= memory.data() && at <= end && bytes <= static_cast<size_t>(end - at);
    };
    for (int step = 0; step < kStepsMax && !input.empty(); ++step) {
        switch (input.below(9)) {
            case 0: damage(input, memory.bytes()); break;
            case 1: {
                // A header that the consumer takes for its next, but for what the fuzzer makes of it.
                const LineHeader header = {.kind = static_cast<LineHeader::Kind>(1 + input.below(3)),
                                           .message_class = static_cast<MessageClass>(input.below(4)),
                                           .tag = input.byte(),
                                           .bytes = static_cast<uint32_t>(input.below(uint64_t{1} << 20)),
                                           .measure = input.flag(),
                                           .in_body = input.flag(),
                                           .whole = input.flag(),
                                           .half = input.flag()};
                if (input.flag()) {
                    shm::Cell::second_of(view.line(consumer.position() - 1)).header.store(header.pack());
                } else {
                    view.line(consumer.position()).header.store(header.pack());
                }
                break;
            }
            case 2: {
                Message message;
                if (closed) break;
                // In turns as OnNode::poll does, and by peek() alone.
                const uint64_t word = step % 2 == 0 ? consumer.word() : 0;
                if (word != 0 && consumer.is_of_line(word)) {
                    const uint32_t bytes = LineHeader::bytes_of(word);
                    std::byte* data = consumer.take_line(word);
                    require(bytes <= shm::kInlineBytesMax, "a message of one line is no longer");
                    require(inside(data, bytes), "a message lies inside its ring");
                    require(reinterpret_cast<uintptr_t>(data) % shm::kLineBytes + bytes <= shm::kLineBytes,
                            "a message of one line ends with it");
                    use(data, bytes);
                    ++in_use;
                    break;
                }
                if (word != 0 && consumer.is_of_lines(word)) {
                    const uint32_t bytes = LineHeader::bytes_of(word);
                    uint32_t lines = 0;
                    std::byte* data = consumer.take_lines(word, lines);
                    require(bytes > shm::kInlineBytesMax, "a shorter message is one of a line");
                    require(inside(data, bytes), "a message lies inside its ring");
                    use(data, bytes);
                    ++in_use;
                    break;
                }
                const RingConsumer::Peek seen = consumer.peek(message);
                closed = seen == RingConsumer::Peek::kGarbage;
                if (seen != RingConsumer::Peek::kMessage) break;
                require(message.bytes <= geometry.message_bytes_max(),
                        "a message is no longer than half a ring");
                require(inside(message.data, message.bytes), "a message lies inside its ring");
                consumer.take(message);
                use(message.data, message.bytes);
                ++in_use;
                break;
            }
            case 3:
                if (in_use == 0) break;
                consumer.release();
                --in_use;
                break;
            case 4: {
                const auto bytes = static_cast<uint32_t>(input.below(geometry.message_bytes_max() + 1));
                std::byte* room = producer.reserve_whole(bytes, input.below(2) != 0);
                if (room == nullptr) break;
                require(inside(room, bytes), "room for a message lies inside its ring");
                use(room, bytes);
                producer.commit(static_cast<MessageClass>(input.below(4)), input.byte(), bytes, true);
                break;
            }
            case 5: consumer.set_dormant(input.flag(), input.take<uint32_t>()); break;
            case 6: {
                // In two parts, which for short messages are one.
                const auto bytes = static_cast<uint32_t>(input.below(geometry.message_bytes_max() + 1));
                const RingProducer::Room room = producer.reserve(bytes, input.flag());
                if (room.first == nullptr) break;
                const uint32_t first = std::min(bytes, shm::kInlineBytesMax);
                require(inside(room.first, first), "room for a beginning lies inside its ring");
                use(room.first, first);
                if (bytes > first) {
                    require(inside(room.rest, bytes - first), "room for the rest lies inside its ring");
                    use(room.rest, bytes - first);
                }
                producer.commit(static_cast<MessageClass>(input.below(4)), input.byte(), bytes);
                break;
            }
            case 7: {
                constexpr std::byte kData[shm::kInlineBytesMax] = {};
                const auto one = static_cast<uint32_t>(input.below(shm::kInlineBytesMax + 1));
                const auto two = static_cast<uint32_t>(input.below(shm::kInlineBytesMax - one + 1));
                bool wake = false;
                (void)producer.try_send_line({kData, kData, one, two}, input.byte(), wake);
                break;
            }
            case 8: {
                constexpr std::byte kData[4096] = {};
                const auto one = static_cast<uint32_t>(input.below(128));
                const auto two = static_cast<uint32_t>(input.below(3000));
                bool wake = false;
                (void)producer.try_send_lines({kData, kData, one, two}, input.byte(), wake);
                break;
            }
        }
    }
}

namespace {

constexpr RingGeometry kGeometry = {.lines = 4, .body_bytes = 4096};

/// A process of the node, and its segment as a third party sees it.
struct Process {
    shm::OnNode path;
    base::SharedSegment segment;
    base::Mapping rings;

    explicit Process(uint64_t name) : path({.name = name, .geometry = kGeometry, .registrations_max = 16}) {
        require(base::SharedSegment::attach(path.address().segment, segment) == Status::kOk, "attach");
    }
    /// The fixed part, or the rings behind it once there are some.
    std::span<std::byte> memory(bool of_rings) {
        const uint64_t fixed = path.address().segment.bytes;
        if (of_rings && !rings) (void)segment.map(fixed, shm::ring_bytes(kGeometry), rings);
        if (of_rings && rings) return {rings.data(), rings.bytes()};
        return segment.bytes();
    }
};

/// Uses what it gets, and sometimes answers or polls again, as ob1 does.
struct Handler {
    Input& input;
    shm::OnNode& path;
    int depth = 0;

    bool accepts(const Message&) { return input.byte() != 1; }
    void deliver(shm::PeerIndex from, const Message& message) {
        require(message.bytes <= kGeometry.message_bytes_max(), "a message is no longer than half a ring");
        require(from < path.peers(), "a message comes from a peer");
        use(message.data, message.bytes);
        const uint8_t then = input.byte();
        if (then == 2 && depth < 3) {
            ++depth;
            path.poll(4, *this);
            --depth;
        } else if (then == 3) {
            Status status = Status::kOk;
            if (std::byte* room = path.reserve_whole(from, 8, status)) {
                std::memset(room, 0, 8);
                path.commit(from, MessageClass::kHost, 0, 8, true);
            }
        }
    }
};

}  // namespace

/// A process whose peers and whose own segment are damaged while it talks.
void on_node(Input& input) {
    Process victim(1);
    std::deque<Process> peers;
    std::vector<shm::PeerIndex> to_victim;
    for (uint64_t name : {2, 3}) {
        shm::PeerIndex index = 0;
        peers.emplace_back(name);
        require(peers.back().path.connect(victim.path.address(), index) == Status::kOk, "connect");
        to_victim.push_back(index);
    }
    Handler handler = {input, victim.path};
    std::vector<shm::PeerIndex> died;
    for (int step = 0; step < kStepsMax && !input.empty(); ++step) {
        const size_t who = input.below(peers.size());
        Process& peer = peers[who];
        switch (input.below(8)) {
            case 0: damage(input, victim.memory(input.flag())); break;
            case 1: damage(input, peer.memory(true)); break;
            case 2: damage(input, peer.memory(false)); break;
            case 3:
            case 4: {
                const auto bytes = static_cast<uint32_t>(input.below(kGeometry.message_bytes_max() + 1));
                Status status = Status::kOk;
                std::byte* room = peer.path.reserve_whole(to_victim[who], bytes, status);
                if (room == nullptr) break;
                use(room, bytes);
                peer.path.commit(to_victim[who], static_cast<MessageClass>(input.below(4)), input.byte(),
                                 bytes, true);
                break;
            }
            case 5: victim.path.poll(1 + static_cast<uint32_t>(input.below(8)), handler); break;
            case 6: {
                victim.path.poll_liveness(died);
                for (const shm::PeerIndex index : died) require(index < victim.path.peers(), "a peer died");
                died.clear();
                break;
            }
            case 7: {
                if (victim.path.peers() == 0) break;
                const auto to = static_cast<shm::PeerIndex>(input.below(victim.path.peers()));
                const auto bytes = static_cast<uint32_t>(input.below(kGeometry.message_bytes_max() + 1));
                Status status = Status::kOk;
                std::byte* room = victim.path.reserve_whole(to, bytes, status);
                if (room == nullptr) break;
                use(room, bytes);
                victim.path.commit(to, MessageClass::kHost, 0, bytes, true);
                break;
            }
        }
    }
}

}  // namespace velo::fuzz
