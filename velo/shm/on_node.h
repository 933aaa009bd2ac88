/// The on-node path: rings between pairs that have talked, first contact, and who is polled how often.
///
/// Each process has one segment: contacts and doorbells by which others reach it, its ATU, and behind them the rings
/// it sends through, added one by one at first contact. A process without a partner costs its fixed part only.
/// On-node traffic takes no VELO credits (FC 7.2): a ring's own capacity is its flow control.
///
/// The class is a template over the memory of its node: that of an operating system (NodeMemory), or that of a
/// simulated node (sim/sim_node.h), which runs this very code in virtual time.
///
/// Owner: the engine. Thread: the engine's; poll() may nest.
#pragma once

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "velo/base/ids.h"
#include "velo/os/clock.h"
#include "velo/os/life_watch.h"
#include "velo/os/shared_segment.h"
#include "velo/os/topology.h"
#include "velo/shm/on_node_peer.h"
#include "velo/shm/polled_rings.h"
#include "velo/shm/ring.h"
#include "velo/shm/ring_memory.h"
#include "velo/wire/atu_table.h"
#include "velo/wire/shared_block.h"

namespace velo::shm {

struct OnNodeConfig {
    uint64_t name = 0;  ///< this process, as its peers know it
    RingGeometry geometry{.lines = 256, .body_bytes = 128u << 10};
    uint32_t registrations_max = 4096;
    base::Place place{};       ///< of this process
    bool place_rings = false;  ///< on the NUMA nodes of those who read them
    uint64_t timeout_ns = 20'000'000'000;  ///< see Loss
};

/// Messages that can never be carried, to or from one peer: the job has to end.
struct Loss {
    enum class Cause : uint8_t {
        kNoRing,       ///< for timeout_ns there was no memory for the ring to the peer
        kNotAttached,  ///< for timeout_ns the peer's ring could not be attached
        kSenderGone,   ///< the peer ended before its ring could be attached
        kGarbage,      ///< the peer wrote what a ring, or a first contact, cannot hold
    };
    Cause cause = Cause::kNoRing;
    bool known = false;  ///< connected; `peer` is its index
    PeerIndex peer = 0;
    uint64_t name = 0;  ///< of the peer
    int32_t pid = 0;
    base::Failure failure;  ///< of the last try, if a call failed
};

struct OnNodeCounters {
#define VELO_ON_NODE_COUNTER(name, field, text) uint64_t field = 0;
#include "velo/counters.def"
    uint64_t rings_attached = 0;
};

/// A contact that waits for another try.
struct UnansweredContact {
    Contact contact;
    uint64_t since_ns = 0;
    base::Failure failure;  ///< of the last try
};

/// The memory that processes of one node share, as the kernel has it.
struct NodeMemory {
    using Segment = base::SharedSegment;
    using Mapping = base::Mapping;
    struct Life : base::LifeWatch {
        explicit Life(const NodeMemory&) {}
    };

    /// As the functions of base::SharedSegment.
    [[nodiscard]] static Segment create(const std::string& label, size_t bytes) {
        return Segment::create(label, bytes);
    }
    static Status attach(const base::SegmentAddress& address, Segment& out, size_t bytes, base::Failure* failure) {
        return Segment::attach(address, out, bytes, failure);
    }
    [[nodiscard]] static uint64_t now_ns() { return base::monotonic_ns(); }
    [[nodiscard]] static bool exists(int32_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }
    /// The next message of this peer's, if one is in its ring, is there: at once, but for simulated time.
    [[nodiscard]] static constexpr bool arrived(uint64_t /*name*/) { return true; }
};

template <class Node>
class BasicOnNode {
  public:
    /// Throws base::SetupError.
    [[gnu::cold]] explicit BasicOnNode(const OnNodeConfig& config, const Node& node = Node());
    BasicOnNode(const BasicOnNode&) = delete;
    BasicOnNode& operator=(const BasicOnNode&) = delete;

    [[nodiscard]] OnNodeAddress address() const;

    /// Makes a peer known, from what it published. Idempotent. kUnsupported: not attachable from here;
    /// kNoResource: not now. `failure` then says why.
    [[gnu::cold]] Status connect(const OnNodeAddress& address, PeerIndex& peer,
                                 base::Failure* failure = nullptr);

    /// Space for a message of `bytes` to `peer`, in the two parts of RingProducer::Room, or nullptr for the first
    /// with the reason: kAgain or kPeerDead. bytes <= message_bytes_max(). kAgain is also what first contact gives
    /// for want of memory; see losses().
    [[nodiscard]] RingProducer::Room reserve(PeerIndex peer, uint32_t bytes, Status& status) {
        Peer& to = *peers_[peer];
        if (to.dead) [[unlikely]] {
            status = Status::kPeerDead;
            return {};
        }
        if (!to.out) [[unlikely]] {
            status = first_contact(peer);
            if (status != Status::kOk) return {};
        }
        const RingProducer::Room room = to.out.reserve(bytes, to.streaming());
        if (room.first == nullptr) {
            ++counters_.ring_full;
            status = Status::kAgain;
            if (to.out.garbled()) [[unlikely]]
                lose(peer, Loss::Cause::kGarbage);
        }
        return room;
    }
    /// Space for a message in one piece, which is committed as `whole`; nullptr with the reason, as reserve() has
    /// them.
    [[nodiscard]] std::byte* reserve_whole(PeerIndex peer, uint32_t bytes, Status& status) {
        return RingProducer::in_one_piece(reserve(peer, bytes, status));
    }

    /// Sends a message that fits one line, without a reservation. False: not now; reserve() says why.
    [[nodiscard]] bool try_send_line(PeerIndex peer, const MessageParts& parts, uint8_t tag) {
        Peer& to = *peers_[peer];
        bool wake = false;
        if (!to.out || to.dead || !to.out.try_send_line(parts, tag, wake)) return false;
        line_sent(peer, wake);
        return true;
    }
    /// The ring that try_send_line() has used, which stays while the peer does. A message may be sent there without a
    /// look at the peer; then line_sent() has to be called.
    [[nodiscard]] RingProducer* ready_ring(PeerIndex peer) { return &peers_[peer]->out; }
    [[gnu::always_inline]] void line_sent(PeerIndex peer, bool wake) {
        ++counters_.messages_sent;
        if (wake) [[unlikely]]
            ring_doorbell(*peers_[peer]);
    }

    /// Sends a message that takes several lines, without a reservation. False: not now; reserve() says why. Longer
    /// ones of a stream go to the deep area.
    [[nodiscard, gnu::noinline]] bool try_send_lines(PeerIndex peer, const MessageParts& parts, uint8_t tag) {
        Peer& to = *peers_[peer];
        bool wake = false;
        if (!to.out || to.dead || (parts.bytes() > kFewLinesBytesMax && to.streaming()) ||
            !to.out.try_send_lines(parts, tag, wake))
            return false;
        ++counters_.messages_sent;
        if (wake) [[unlikely]]
            ring_doorbell(to);
        return true;
    }

    /// Sends what was written where reserve() said.
    void commit(PeerIndex peer, MessageClass message_class, uint8_t tag, uint32_t bytes, bool whole = false) {
        Peer& to = *peers_[peer];
        ++counters_.messages_sent;
        if (to.out.commit(message_class, tag, bytes, whole)) [[unlikely]]
            ring_doorbell(to);
    }

    /// A peer's place, by its own word.
    [[nodiscard]] base::Place place(PeerIndex peer) const { return peers_[peer]->place; }
    /// True: the rest of a message must be written with base::copy_nontemporal, because the peer is far.
    [[nodiscard]] bool nontemporal(PeerIndex peer, uint32_t bytes) const {
        return peers_[peer]->out.nontemporal(bytes);
    }
    /// The peer's core is far, as our messages there, or before the first of them its own, have shown.
    [[nodiscard]] bool far(PeerIndex peer) const { return peers_[peer]->far(); }
    void measure_next(PeerIndex peer) { peers_[peer]->out.measure_next(); }  ///< with the engine's next message there
    /// True: so much is fetched that the ring is worth its pages, beside direct copies. Through one whose pages are new
    /// the first MiB take 500 us longer than those, and each later one 12 us less; this is between the two.
    [[nodiscard]] static constexpr bool pays_for_pages(uint64_t bytes) { return bytes >= 8u << 20; }

    /// Slots of blocks that this process reads, and those of a peer.
    [[nodiscard]] base::ClaimWord& coop_claims(uint32_t slot) { return own_.coop_claims[slot]; }
    [[nodiscard]] base::ClaimWord& coop_claims_of(PeerIndex peer, uint32_t slot) {
        return peers_[peer]->parts.coop_claims[slot];
    }

    /// Hands up to `budget` messages of each polled ring to handler.deliver(PeerIndex, const Message&). A
    /// message that handler.accepts(const Message&) refuses stays where it is. Returns how many were taken.
    template <class Handler>
    uint32_t poll(uint32_t budget, Handler&& handler);

    /// To be called now and then: looks for peers that have ended, appends them to `died`, and answers
    /// contacts again that could not be answered for want of something. Costs a system call.
    void poll_liveness(std::vector<PeerIndex>& died);

    /// Losses since the last call, at most one a peer.
    [[nodiscard]] std::vector<Loss> take_losses() { return std::exchange(losses_, {}); }

    /// Gives back what a peer that has ended held: mappings, its ring here and its index. No process reads its
    /// ATU or writes to it meanwhile. False: not yet, messages of it are unread or in use.
    [[gnu::cold]] bool disconnect(PeerIndex peer);

    /// False once the peer's process is known to have ended.
    [[nodiscard]] bool alive(PeerIndex peer) const { return !peers_[peer]->dead; }

    /// Meaning for peers that find this process gone; see base::SharedSegment.
    void announce_ending(base::Ending ending) { segment_.announce_ending(ending); }
    [[nodiscard]] base::Ending announced_ending(PeerIndex peer) const {
        return peers_[peer]->segment.announced_ending();
    }
    /// Facts for reports: that this process is in progress; how full the ring to a peer is (false: there is
    /// none yet); when it was in progress; whether something of it lies unread here.
    void beat(uint64_t now_ns) { segment_.beat(now_ns); }
    [[nodiscard]] bool fill(PeerIndex peer, RingFill& fill) const {
        if (!peers_[peer]->out) return false;
        fill = peers_[peer]->out.fill();
        return true;
    }
    [[nodiscard]] uint64_t last_beat_ns(PeerIndex peer) const { return peers_[peer]->segment.last_beat_ns(); }
    [[nodiscard]] bool unread(PeerIndex peer) {
        Message message;
        return peers_[peer]->in && peers_[peer]->in.peek(message) == RingConsumer::Peek::kMessage;
    }
    [[nodiscard]] const RingGeometry& geometry() const { return config_.geometry; }
    bool claim_report(PeerIndex peer) { return peers_[peer]->segment.claim_report(); }
    /// Elects the process that reports denied copies, by the segment of a peer, or of this process (nullptr). True:
    /// this one.
    bool claim_denial_report(const PeerIndex* peer) {
        Segment& segment = peer == nullptr ? segment_ : peers_[*peer]->segment;
        return segment.claim_report(base::Notice::kDeniedCopies);
    }

    /// True while a living peer has not mapped the ring to it: what is in it would go with this process.
    [[nodiscard]] bool has_unattached() const;

    /// Contacts that wait for another try; not 0 for long only if something runs short here.
    [[nodiscard]] size_t unanswered() const { return unanswered_.size(); }
    /// Why the first of them waits.
    [[nodiscard]] base::Failure unanswered_failure() const {
        return unanswered_.empty() ? base::Failure{} : unanswered_.front().failure;
    }

    [[nodiscard]] uint64_t name(PeerIndex peer) const { return peers_[peer]->name; }
    [[nodiscard]] int32_t pid(PeerIndex peer) const { return peers_[peer]->segment.address().pid; }
    [[nodiscard]] const base::AtuView& atu_of(PeerIndex peer) const { return peers_[peer]->atu; }
    [[nodiscard]] base::AtuTable& atu() { return atu_; }
    [[nodiscard]] uint32_t message_bytes_max() const { return config_.geometry.message_bytes_max(); }
    [[nodiscard]] const OnNodeCounters& counters() const { return counters_; }
    [[nodiscard]] uint32_t peers() const { return static_cast<uint32_t>(peers_.size() - spare_peers_.size()); }

  private:
    using Segment = typename Node::Segment;
    using Mapping = typename Node::Mapping;
    using Peer = OnNodePeer<Node>;
    using Then = RingThen;
    static constexpr uint32_t kSilentPolls = 4096;
    /// After a message of more lines the next look comes at once, and asks for the lines of the next message.
    static constexpr uint32_t kLinesBeforeReturn = 2;
    /// Memory that is short is asked for again after this time.
    static constexpr uint64_t kRetryNs = 50'000'000;
    /// Bounds of what garbage can make this process keep.
    static constexpr size_t kUnansweredMax = 4096;
    static constexpr size_t kLossesMax = 64;

    [[gnu::cold]] Status first_contact(PeerIndex index);
    [[nodiscard]] bool ring_made(PeerIndex index);
    [[gnu::cold]] void lose(PeerIndex index, Loss::Cause cause, base::Failure failure = {});
    void ring_doorbell(Peer& peer);
    [[gnu::cold]] Status answer_contact(const Contact& contact, base::Failure& failure);
    [[gnu::cold]] void try_contact(UnansweredContact contact, uint64_t now);
    void refuse_contact(const UnansweredContact& contact, Loss::Cause cause);
    void take_contacts() {
        Contact contact;
        while (own_.contacts.pop(contact)) [[unlikely]] {
                const uint64_t now = node_.now_ns();
                try_contact({.contact = contact, .since_ns = now, .failure = {}}, now);
            }
    }
    void fall_asleep(PeerIndex peer);
    void close_ring(PeerIndex peer);
    /// The next message of a ring, whatever it is. False: it stays. `unreleased`: messages before it, which are given
    /// back with it.
    template <class Handler>
    [[nodiscard, gnu::noinline]] bool hand_up_other(PeerIndex index, uint32_t unreleased, Handler& handler);

    OnNodeConfig config_;
    [[no_unique_address]] Node node_;
    Segment segment_;
    SegmentParts own_;
    base::AtuTable atu_;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::vector<PeerIndex> spare_peers_;
    RingMemory<Node> ring_memory_;
    std::unordered_map<uint64_t, PeerIndex> by_token_;
    PolledRings<Peer> rings_;
    std::vector<UnansweredContact> unanswered_;
    typename Node::Life life_;
    std::vector<Loss> losses_;
    OnNodeCounters counters_;
};

template <class Node>
template <class Handler>
bool BasicOnNode<Node>::hand_up_other(PeerIndex index, uint32_t unreleased, Handler& handler) {
    Peer& peer = *peers_[index];
    Message message;
    const RingConsumer::Peek seen = peer.in.peek(message);
    if (seen == RingConsumer::Peek::kGarbage) [[unlikely]]
        close_ring(index);
    if (seen != RingConsumer::Peek::kMessage || !handler.accepts(message)) return false;
    peer.in.take(message);
    if (message.lines > kLinesBeforeReturn) peer.then = Then::kGoOn;
    handler.deliver(index, message);
    peer.in.release(unreleased + 1);
    return true;
}

template <class Node>
template <class Handler>
uint32_t BasicOnNode<Node>::poll(uint32_t budget, Handler&& handler) {
    take_contacts();
    if (rings_.any_dormant()) [[unlikely]]
        rings_.answer(own_.doorbells);
    uint32_t taken = 0;
    // A handler may poll again and change the active rings, so nothing of them is held across one.
    for (size_t i = 0; i < rings_.active().size(); ++i) {
        const PeerIndex index = rings_.active()[i];
        Peer& peer = *peers_[index];
        uint32_t messages = 0;
        // Messages of few lines are given back together: the producer has others ahead of it.
        uint32_t released = 0;
        while (messages < budget && node_.arrived(peer.name)) {
            const uint64_t word = peer.in.word();
            if (word == 0) {
                peer.then = messages == 0 ? Then::kReturn : Then::kGoOn;
                break;
            }
            const bool of_line = peer.in.is_of_line(word);
            if (of_line || peer.in.is_of_lines(word)) [[likely]] {
                const uint8_t tag = LineHeader::tag_of(word);
                const uint32_t bytes = LineHeader::bytes_of(word);
                if (!handler.accepts({.tag = tag, .bytes = bytes})) [[unlikely]]
                    break;
                std::byte* data;
                if (of_line) [[likely]] {
                    data = peer.in.take_line(word);
                } else {
                    uint32_t lines = 0;
                    data = peer.in.take_lines(word, lines);
                    if (lines > kLinesBeforeReturn) peer.then = lines > kFewLines ? Then::kRelease : Then::kGoOn;
                }
                handler.deliver(index, {.tag = tag, .bytes = bytes, .data = data});
            } else {
                if (!hand_up_other(index, messages - released, handler)) break;
                released = messages + 1;
            }
            ++messages;
            const Then then = std::exchange(peer.then, Then::kGoOn);
            // The host has waited for this one. The line behind it has only just been asked for: a look at it would
            // keep the host until it is here.
            if (then == Then::kReturn) break;
            if (then == Then::kRelease) peer.in.release(messages - std::exchange(released, messages));
        }
        if (messages != 0) {
            if (messages != released) peer.in.release(messages - released);
            counters_.messages_received += messages;
            taken += messages;
            peer.silent_polls = 0;
        } else if (rings_.may_sleep() && ++peer.silent_polls >= kSilentPolls) [[unlikely]] {
            fall_asleep(index);
        }
    }
    return taken;
}

using OnNode = BasicOnNode<NodeMemory>;

}  // namespace velo::shm
