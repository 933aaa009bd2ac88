/// The fake core of a part that is tested alone, as far as many parts use it.
///
/// A part of the engine is a template over its core, and has references to earlier parts, which are templates over the
/// same core. A test derives a core of its own from PlainCore, adds the few members that its part touches, and
/// specializes the earlier parts for that core: small structs that keep what they were asked for. Nothing else of an
/// engine is there, so that a peer's messages can be anything, and each of the part's calls is seen.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "velo/base/lock.h"
#include "velo/channels/ring_channel_impl.h"
#include "velo/core/peer.h"
#include "velo/core/peer_end_sink.h"
#include "velo/options/engine_options.h"
#include "velo/velo_match.h"

namespace velo::test {

/// Time and polls as the test sets them.
struct FakeClock {
    uint64_t ns = 1'000'000;
    uint32_t count = 0;
    [[nodiscard]] uint64_t read() const { return ns; }
    [[nodiscard]] uint64_t now() const { return ns; }
    [[nodiscard]] uint32_t polls() const { return count; }
};

/// Events for the host, kept in the order of each kind.
struct FakeEvents {
    std::vector<std::pair<velo_send_t*, Status>> ended;
    std::vector<std::pair<velo_rma_t*, Status>> operations;
    std::vector<velo_match_send_t*> matched_sends;
    std::vector<velo_match_receive_t*> received;
    std::vector<velo_end_t> peer_ends;
    bool told = true;

    void sent(velo_send_t& send, Status status) { ended.emplace_back(&send, status); }
    void rma_done(velo_rma_t& rma, Status status) { operations.emplace_back(&rma, status); }
    void match_sent(velo_match_send_t& send) { matched_sends.push_back(&send); }
    void match_sent(volatile bool& done) { done = true; }
    void match_received(velo_match_receive_t& receive) { received.push_back(&receive); }
    void match_received_now(velo_match_receive_t& receive) { received.push_back(&receive); }
    void peer_ended(const velo_end_t& end) { peer_ends.push_back(end); }
    [[nodiscard]] bool empty() const { return told; }
    [[nodiscard]] bool all_told() const { return told; }
};

/// Ends of peers that parts report upwards.
struct FakeEnds : PeerEndSink {
    std::vector<std::pair<uint32_t, Origin>> gone;
    std::vector<std::pair<velo_peer*, Owed>> lost;
    void peer_gone(velo_peer& peer, Origin origin) override { gone.emplace_back(peer.index, origin); }
    void report_lost(velo_peer* peer, Owed owed, HostState /*host*/) override {
        lost.emplace_back(peer, owed);
    }
};

struct PlainCore {
    EngineOptions options;
    base::OptionalLock lock{false};
    FakeClock clock;
    FakeEvents events;
    FakeEnds ends;
    PeerEndSink* peer_ends = &ends;
    HostState host_state = HostState::kPresent;
    velo_counters_t counters{};
    mutable std::vector<std::string> lines;
    std::vector<std::string> jobs_ended;  ///< lines that the host was to end the job with

    void log(int /*level*/, const std::string& line) const { lines.push_back(line); }
    void say(int /*level*/, const std::string& text) const { lines.push_back(text); }
    void end_job(velo_path_t /*path*/, uint64_t /*name*/, const std::string& what) {
        jobs_ended.push_back(what);
    }
};

/// A way to peers that takes a number of messages, and keeps them.
struct FakeChannel {
    std::map<uint32_t, int> takes;  ///< messages that it still takes, by peer
    std::set<uint32_t> short_of_credits;
    std::vector<std::pair<uint32_t, std::string>> sent;
    uint32_t bytes_max = 1u << 20;

    template <class Peer>
    [[nodiscard]] static uint32_t name_of(const Peer& peer) {
        return peer.index;
    }
    [[nodiscard]] static bool gathers() { return false; }
    Status send(uint32_t to, velo_send_t& send) {
        if (takes[to] == 0) return Status::kAgain;
        --takes[to];
        std::string text(static_cast<const char*>(send.data[0]), send.bytes[0]);
        if (send.bytes[1] != 0) text.append(static_cast<const char*>(send.data[1]), send.bytes[1]);
        sent.emplace_back(to, text);
        send.done = send.total;
        return Status::kOk;
    }
    Status send_whole(uint32_t to, velo_send_t& send) { return this->send(to, send); }
    static Status send_together(uint32_t, std::span<velo_send_t* const>) { return Status::kAgain; }
    static bool prepare_packets(uint32_t, uint32_t) { return false; }
    [[nodiscard]] bool waits(uint32_t to) const { return short_of_credits.contains(to); }
    static void stall_ended(uint32_t) {}
    [[nodiscard]] uint32_t message_bytes_max() const { return bytes_max; }
};

}  // namespace velo::test
