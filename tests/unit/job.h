/// A whole job in one process: engines that reach each other through the C face, driven by the test.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "velo/open_engine.h"
#include "velo/os/shared_segment.h"
#include "velo/velo.h"

namespace velo::test {

/// One received message.
struct Received {
    velo_path_t path = VELO_PATH_NONE;
    void* peer_context = nullptr;
    uint8_t tag = 0;
    std::vector<std::byte> data;
};

/// Bytes that differ by position and seed.
inline std::vector<std::byte> pattern(size_t bytes, uint32_t seed) {
    std::vector<std::byte> data(bytes);
    uint32_t state = seed * 2654435761u + 1;
    for (std::byte& byte : data) {
        state = state * 1664525u + 1013904223u;
        byte = static_cast<std::byte>(state >> 24);
    }
    return data;
}

/// VELO_TEST_DEVICE=ofi in the environment: ranks of nodes of their own reach each other over a network, by loopback.
/// The library is the one that VELO_OFI_LIBRARY names.
inline velo_params_t over_test_device(velo_params_t params) {
    const char* device = std::getenv("VELO_TEST_DEVICE");
    if (device == nullptr || params.ranks_per_node == 0) return params;
    params.device = device;
    params.if_include = "lo";
    params.peer_timeout = 2;  // a rank that closes waits for no answer of one that this thread does not drive
    params.faults = "";  // those of the software device
    return params;
}

/// Why a rank could not go on.
struct Failed {
    std::string line;
    uint64_t name = 0;
    velo_path_t path = VELO_PATH_NONE;
};

/// One rank: an engine and what its host was notified of.
class Rank {
  public:
    Rank(const velo_params_t& given, uint32_t rank, uint32_t size, uint64_t job = 77, const Tuning& tuning = {}) {
        const velo_params_t params = over_test_device(given);
        const velo_identity_t identity = {.name = (job << 32) + rank,
                                          .job = job,
                                          .rank = rank,
                                          .job_size = size,
                                          .local_rank = rank,
                                          .local_size = size,
                                          .host = 0,
                                          .hosts = 1,
                                          .host_ranks_min = size, .more_hosts = false, .other_host = {}};
        const velo_host_t host = {
            .context = this,
            .topology = nullptr,
            .accepts = [](void* self, uint8_t) { return static_cast<Rank*>(self)->accepts; },
            .receive = &Rank::receive,
            .unconnected =
                [](void* self, velo_path_t, velo_peer_t* peer, uint64_t name, uint8_t) {
                    auto& rank = *static_cast<Rank*>(self);
                    if (rank.on_unconnected) rank.on_unconnected(peer, name);
                },
            .sent = &Rank::sent,
            .rma_done = &Rank::rma_done,
            .peer_ended =
                [](void* self, const velo_end_t* end) {
                    auto& rank = *static_cast<Rank*>(self);
                    rank.ended.push_back(*end);
                    rank.claim_report.push_back(velo_claim_report(rank.engine, end->peer));
                },
            .log = [](void* self, int,
                      const char* line) { static_cast<Rank*>(self)->log.emplace_back(line); },
            .job_failed =
                [](void* self, const velo_failure_t* failure) {
                    auto& rank = *static_cast<Rank*>(self);
                    if (rank.on_failure) rank.on_failure();
                    rank.failures.push_back({failure->line, failure->name, failure->path});
                }};
        try {
            engine = open_engine(params, identity, host, tuning);
        } catch (const base::SetupError& refused) {
            error = refused.what();
        }
    }
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank() {
        if (engine != nullptr) velo_close(engine);
    }

    velo_counters_t counters() const {
        velo_counters_t counters;
        velo_counters(engine, &counters);
        return counters;
    }

    velo_engine_t* engine = nullptr;
    std::string error;
    bool accepts = true;
    std::vector<velo_peer_t*> peers;
    std::vector<Received> inbox;
    std::vector<std::pair<velo_send_t*, int>> sent_list;
    std::vector<std::pair<velo_rma_t*, int>> done;
    std::vector<velo_end_t> ended;
    std::vector<bool> claim_report;  ///< of each in `ended`
    std::vector<std::string> log;
    std::vector<Failed> failures;
    std::function<void(const Received&)> on_receive;
    std::function<void(velo_peer_t*, uint64_t)> on_unconnected;
    std::function<void()> on_sent;
    std::function<void()> on_done;
    std::function<void()> on_failure;

  private:
    static void receive(void* self, velo_path_t path, void* peer_context, uint8_t tag, void* data,
                        size_t bytes) {
        auto& rank = *static_cast<Rank*>(self);
        const auto* begin = static_cast<const std::byte*>(data);
        Received message = {path, peer_context, tag, {begin, begin + bytes}};
        if (rank.on_receive) rank.on_receive(message);
        rank.inbox.push_back(std::move(message));
    }
    static void sent(void* self, velo_send_t* send, int status) {
        auto& rank = *static_cast<Rank*>(self);
        if (rank.on_sent) rank.on_sent();
        rank.sent_list.emplace_back(send, status);
    }
    static void rma_done(void* self, velo_rma_t* rma, int status) {
        auto& rank = *static_cast<Rank*>(self);
        if (rank.on_done) rank.on_done();
        rank.done.emplace_back(rma, status);
    }
};

class Job {
  public:
    Job(uint32_t size, const velo_params_t& params, const Tuning& tuning = {}) {
        for (uint32_t rank = 0; rank < size; ++rank) {
            ranks.push_back(std::make_unique<Rank>(params, rank, size, 77, tuning));
            if (ranks.back()->engine == nullptr) return;
        }
        for (auto& from : ranks) {
            for (auto& to : ranks) {
                velo_peer_t* peer = nullptr;
                if (from != to) peer = connect(*from, *to);
                from->peers.push_back(peer);
            }
        }
    }

    static velo_peer_t* connect(Rank& from, Rank& to) {
        std::array<std::byte, VELO_ADDRESS_BYTES_MAX> address;
        const size_t bytes = velo_address(to.engine, address.data(), address.size());
        velo_peer_t* peer = nullptr;
        char error[512] = "";
        EXPECT_EQ(velo_connect(from.engine, address.data(), bytes, true, &to, &peer, error, sizeof error),
                  VELO_OK)
            << error;
        return peer;
    }

    /// Drives every rank until `done`; fails the test when that takes too many rounds, and too long: over a network
    /// rounds are empty while the system is busy with something else.
    void drive(const std::function<bool()>& done, int rounds_max = 2'000'000) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        for (int round = 0; round < rounds_max || std::chrono::steady_clock::now() < end; ++round) {
            if (done()) return;
            for (auto& rank : ranks) velo_progress(rank->engine);
        }
        FAIL() << "no progress after " << rounds_max << " rounds";
    }
    Rank& operator[](size_t rank) { return *ranks[rank]; }

    std::vector<std::unique_ptr<Rank>> ranks;
};

/// A text that lasts, as parameters borrow theirs.
inline const char* kept(const std::string& text) {
    static std::set<std::string> all;
    return all.insert(text).first->c_str();
}

inline velo_params_t default_params() {
    velo_params_t params;
    velo_params_default(&params);
    params.device_message_bytes_max = 2104;
    params.slots = 58;
    params.locality = "none";  // no test depends on the machine's caches, or on how many CPUs it has
    return params;
}

}  // namespace velo::test
