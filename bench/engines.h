/// Engines of two processes that reach each other through the software device, with no host but velo_bench.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>

#include "commands.h"
#include "velo/velo.h"

namespace bench {

/// Another process's engine, in memory that both have.
struct Address {
    std::array<char, VELO_ADDRESS_BYTES_MAX> data;
    size_t bytes;
};

/// Steps that two processes take together.
struct Meeting {
    std::array<std::atomic<uint32_t>, 2> step = {};

    /// Neither process goes on before the other one is here. Until then it calls meanwhile().
    template <class Meanwhile>
    void meet(uint32_t process, Meanwhile&& meanwhile) {
        const uint32_t own = ++step[process];
        while (step[1 - process].load() < own) meanwhile();
    }
};

class Engine {
  public:
    /// Rank `rank` of `ranks` on this host, each of which is a node. Callbacks that `host` lacks do nothing.
    Engine(velo_params_t params, uint32_t rank, uint32_t ranks, uint32_t job, velo_host_t host) {
        params.ranks_per_node = 1;
        const velo_identity_t identity = {.name = (uint64_t{job} << 32) + rank,
                                          .job = job,
                                          .rank = rank,
                                          .job_size = ranks,
                                          .local_rank = rank,
                                          .local_size = ranks,
                                          .host = 0,
                                          .hosts = 1,
                                          .host_ranks_min = ranks,
                                          .more_hosts = false,
                                          .other_host = {}};
        host.accepts = [](void*, uint8_t) { return true; };
        if (host.receive == nullptr) host.receive = [](void*, velo_path_t, void*, uint8_t, void*, size_t) {};
        if (host.sent == nullptr) host.sent = [](void*, velo_send_t*, int) {};
        if (host.rma_done == nullptr) host.rma_done = [](void*, velo_rma_t*, int) {};
        host.log = [](void*, int, const char* line) { std::fprintf(stderr, "%s\n", line); };
        char error[512] = "";
        engine_ = velo_open(&params, &identity, &host, error, sizeof error);
        if (engine_ == nullptr) fail(error);
    }
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;
    ~Engine() { velo_close(engine_); }

    void publish(Address& own) { own.bytes = velo_address(engine_, own.data.data(), own.data.size()); }
    void connect(const Address& other) {
        char error[512] = "";
        const int status =
            velo_connect(engine_, other.data.data(), other.bytes, true, nullptr, &peer_, error, sizeof error);
        if (status != VELO_OK) fail(error);
        if (velo_peer_path(peer_) != VELO_PATH_DEVICE)
            fail("the other process is not reached through the device");
    }
    void progress() { velo_progress(engine_); }
    [[nodiscard]] velo_engine_t* get() const { return engine_; }
    [[nodiscard]] velo_peer_t* peer() const { return peer_; }

  private:
    velo_engine_t* engine_ = nullptr;
    velo_peer_t* peer_ = nullptr;
};

}  // namespace bench
