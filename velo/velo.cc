/// The C face of the engine, over the device that the job needs. No exception leaves it.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>

#include "velo/engine/shipped.h"
#include "velo/open_engine.h"
#include "velo/options/options.h"
#include "velo/options/params_default.h"
#include "velo/os/dump_signal.h"
#include "velo/rendezvous/apply_atomic.h"
#include "velo/velo_match.h"

struct velo_engine : velo::Engine<velo::ShippedSystem> {
    using Engine::Engine;
};

namespace {

using velo::EngineOptions;
using velo::Status;

static_assert(static_cast<int>(Status::kProtocol) == VELO_PROTOCOL);
static_assert(static_cast<int>(velo::kLastStatus) == VELO_BAD_LOCAL_MEMORY);
static_assert(static_cast<int>(Status::kPeerDead) == VELO_PEER_DEAD);
static_assert(static_cast<int>(Status::kUnsupported) == VELO_UNSUPPORTED);

[[gnu::always_inline]] inline bool try_send_line(velo_engine& engine, velo_peer& peer, uint8_t tag, const void* header,
                                                  size_t header_bytes, const void* payload, size_t payload_bytes) {
    const size_t bytes = header_bytes + payload_bytes;
    if (bytes > velo::shm::kInlineBytesMax) return false;
    const auto put = [=](std::byte* place) __attribute__((always_inline)) {
        velo::base::copy_fields(place, header, header_bytes);
        velo::base::copy_small(place + header_bytes, payload, payload_bytes);
    };
    return engine.try_send_line(peer, static_cast<uint32_t>(bytes), tag, put);
}

/// Tail call of its caller, with the caller's arguments, so that the short way saves no registers.
template <bool kCopies>
[[gnu::noinline]] int try_send_otherwise(velo_engine_t* engine, velo_peer_t* peer, uint8_t tag, const void* header,
                                     size_t header_bytes, const void* payload, size_t payload_bytes) noexcept {
    return static_cast<int>(engine->try_send<kCopies>(*peer,
                                                      {.header = header,
                                                       .payload = payload,
                                                       .header_bytes = static_cast<uint32_t>(header_bytes),
                                                       .payload_bytes = static_cast<uint32_t>(payload_bytes)},
                                                      tag));
}
using velo::match::Envelope;

[[gnu::cold]] void put_error(char* error, size_t error_bytes, const char* text) noexcept {
    if (error != nullptr && error_bytes != 0) std::snprintf(error, error_bytes, "%s", text);
}

/// The engine is left as it is, and the host ends the job. No memory is asked for here.
[[noreturn, gnu::cold]] void end_for_want_of_memory(velo_engine& engine) noexcept {
    const EngineOptions& options = engine.options();
    char line[160];
    std::snprintf(
        line, sizeof line,
        "velo: rank %u: the process has no memory left. Raise the memory limit of the container, or "
        "ulimit -v where it is low.",
        options.identity.rank);
    const velo_failure_t failure = {.line = line, .name = options.identity.name, .path = VELO_PATH_ON_NODE};
    engine.cancel();
    if (options.host.job_failed != nullptr) options.host.job_failed(options.host.context, &failure);
    std::fprintf(stderr, "%s\n", line);
    std::abort();
}

/// The result of an action on the engine. Containers of the engine grow with what is under way.
template <class Action>
auto with_memory(velo_engine& engine, Action action) noexcept {
    try {
        return action();
    } catch (const std::bad_alloc&) {
        end_for_want_of_memory(engine);
    }
}

/// Returns when the message is done; the host makes progress meanwhile.
int send_and_wait(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag, const void* data,
                  uint64_t bytes, bool synchronous) noexcept {
    velo_match_send_t send;
    volatile bool done = false;
    const bool left = with_memory(*engine, [&] {
        return engine->match([&](auto& matching) {
            return matching.sending.send(*to, Envelope::of(place, tag), data, bytes, synchronous, send, &done);
        });
    });
    if (left) return VELO_OK;
    const velo_match_host_t& host = engine->match_host();
    VELO_CHECK(host.wait != nullptr, "a host that cannot wait sends and waits");
    host.wait(host.context, &done);
    return VELO_OK;
}

/// These are tail calls of their callers, with the callers' arguments, so that the short ways save no registers.
[[gnu::noinline]] bool match_try_send(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag,
                                        const void* data, uint64_t bytes) noexcept {
    return with_memory(*engine, [&] { return engine->match_try_send(*to, Envelope::of(place, tag), data, bytes); });
}
[[gnu::noinline]] int match_send_otherwise(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag,
                                           const void* data, uint64_t bytes) noexcept {
    if (match_try_send(engine, to, place, tag, data, bytes)) return VELO_OK;
    return send_and_wait(engine, to, place, tag, data, bytes, false);
}
[[gnu::noinline]] int match_receive_otherwise(velo_engine_t* engine, uint64_t place, int32_t tag, void* buffer,
                                              uint64_t capacity, velo_match_receive_t* receive) noexcept {
    const bool done =
        velo_match_receive(engine, receive->from, place, tag, buffer, capacity, receive);
    const velo_match_host_t& host = engine->match_host();
    if (done) host.receive_done(host.context, receive);
    return VELO_OK;
}

/// With the network, where the job needs one and there is one. Without it velo is good for the ranks of this
/// host, which is what it is used for, unless the user asked for more.
[[gnu::cold]] velo_engine* open_over_device(EngineOptions options) {
    if (!options.network_used || options.network_wanted) return new velo_engine(options);
    try {
        return new velo_engine(options);
    } catch (const velo::base::SetupError& error) {
        options.no_network = error.what();
    }
    options.device_used = options.network_used = false;
    if (options.host.log != nullptr) {
        // Another BTL may serve other hosts, but not one who says which network this one is to take.
        const velo_params_t& params = options.params;
        const bool chosen = std::ranges::any_of(
            std::array{params.if_include, params.provider_include, params.port_range},
            [](const char* text) { return *text != '\0'; });
        options.host.log(options.host.context, chosen ? 0 : 1,
                         ("velo: ranks on other hosts are not reached: " + options.no_network).c_str());
    }
    return new velo_engine(options);
}

[[gnu::cold]] void report_counters(const velo_engine& engine, const velo_counters_t& counters) {
    std::string line;
    const auto add = [&line](const char* name, uint64_t value) {
        if (value != 0) line += std::string(" ") + name + "=" + std::to_string(value);
    };
#define VELO_COUNTER(name, text) add(#name, counters.name);
#include "velo/counters.def"
#undef VELO_COUNTER
    const velo_host_t& host = engine.options().host;
    line = "velo: rank " + std::to_string(engine.options().identity.rank) + " counters:" + line;
    host.log(host.context, 0, line.c_str());
}

}  // namespace

velo_engine_t* velo::open_engine(const velo_params_t& params, const velo_identity_t& identity, const velo_host_t& host,
                                 const Tuning& tuning) {
    std::string why;
    const base::Locality locality = find_locality(params, host.topology, why);
    if (!why.empty() && host.log != nullptr) {
        host.log(host.context, 1, ("velo: the kernel is asked for NUMA nodes and caches: " + why).c_str());
    }
    return open_over_device(make_options(params, identity, host, locality, tuning));
}

extern "C" {

const char* velo_status_text(int status) noexcept {
    return to_string(static_cast<Status>(status));
}

void velo_params_default(velo_params_t* params) noexcept {
    *params = velo::params_default();
}

bool velo_params_set(velo_params_t* params, const char* name, const char* text, char* error,
                     size_t error_bytes) noexcept {
    try {
        velo::set_param(*params, name, text);
        return true;
    } catch (const std::exception& refused) {
        put_error(error, error_bytes, refused.what());
    }
    return false;
}

bool velo_is_bytes(const char* name, const char* text, char* error, size_t error_bytes) noexcept {
    try {
        (void)velo::read_param(name, text, {.smallest = 0, .largest = SIZE_MAX, .bytes = true});
        return true;
    } catch (const std::exception& refused) {
        put_error(error, error_bytes, refused.what());
    }
    return false;
}

velo_engine_t* velo_open(const velo_params_t* params, const velo_identity_t* identity,
                         const velo_host_t* host, char* error, size_t error_bytes) noexcept {
    try {
        return velo::open_engine(*params, *identity, *host, {});
    } catch (const std::exception& failure) {
        put_error(error, error_bytes, failure.what());
    }
    return nullptr;
}

void velo_close(velo_engine_t* engine) noexcept {
    try {
        engine->end_stalls();
        velo_counters_t counters;
        engine->counters(counters);
        const EngineOptions& options = engine->options();
        if (options.params.stats != 0 && options.host.log != nullptr) report_counters(*engine, counters);
        engine->finish_trace(counters);
    } catch (const std::exception&) {
        // Out of memory while leaving: no host is left to tell.
    }
    engine->announce_ending(velo::base::Ending::kClosed);
    if (engine->options().stall.signal != 0) velo::base::release_dump_signal();
    delete engine;
}

size_t velo_address(velo_engine_t* engine, void* address, size_t bytes) noexcept {
    const velo::EngineAddress own = engine->address();
    if (bytes < own.bytes()) return 0;
    std::memcpy(address, &own, own.bytes());
    return own.bytes();
}

bool velo_device_used(const velo_engine_t* engine) noexcept {
    return engine->options().device_used;
}

bool velo_network_wanted(const velo_params_t* params, const velo_identity_t* identity) noexcept {
    return velo::wants_network(*params, *identity);
}

bool velo_network_used(const velo_engine_t* engine) noexcept {
    return engine->options().network_used;
}

bool velo_shares_cpus(const velo_engine_t* engine) noexcept {
    return engine->options().shares_cpus;
}

size_t velo_device_send_bytes_max(const velo_engine_t* engine) noexcept {
    return engine->device_send_bytes_max();
}

const char* velo_device_name(const velo_engine_t* engine) noexcept {
    return engine->device_name();
}

int velo_connect(velo_engine_t* engine, const void* address, size_t bytes, bool same_host, void* peer_context,
                 velo_peer_t** peer, char* error, size_t error_bytes) noexcept {
    try {
        velo::EngineAddress theirs;
        if (!theirs.parse(address, bytes)) {
            put_error(error, error_bytes,
                      "the peer runs another version of velo, or published an impossible address");
            return VELO_UNSUPPORTED;
        }
        std::string text;
        const Status status = engine->connect(theirs, same_host, peer_context, *peer, text);
        if (status != Status::kOk) put_error(error, error_bytes, text.c_str());
        return static_cast<int>(status);
    } catch (const std::exception& failure) {
        put_error(error, error_bytes, failure.what());
        return VELO_NO_RESOURCE;
    }
}

bool velo_disconnect(velo_engine_t* engine, velo_peer_t* peer) noexcept {
    return engine->disconnect(*peer);
}

velo_path_t velo_peer_path(const velo_peer_t* peer) noexcept {
    return peer->path;
}

bool velo_peer_attachable(const velo_peer_t* peer) noexcept {
    return peer->attachable;
}

int velo_try_send(velo_engine_t* engine, velo_peer_t* peer, uint8_t tag, const void* header,
                  size_t header_bytes, const void* payload, size_t payload_bytes) noexcept {
    if (try_send_line(*engine, *peer, tag, header, header_bytes, payload, payload_bytes)) return VELO_OK;
    return try_send_otherwise<false>(engine, peer, tag, header, header_bytes, payload, payload_bytes);
}

int velo_try_send_or_copy(velo_engine_t* engine, velo_peer_t* peer, uint8_t tag, const void* header,
                      size_t header_bytes, const void* payload, size_t payload_bytes) noexcept {
    if (try_send_line(*engine, *peer, tag, header, header_bytes, payload, payload_bytes)) return VELO_OK;
    return try_send_otherwise<true>(engine, peer, tag, header, header_bytes, payload, payload_bytes);
}

void* velo_reserve(velo_engine_t* engine, velo_peer_t* peer, size_t bytes) noexcept {
    return engine->reserve(*peer, static_cast<uint32_t>(bytes));
}

void velo_commit(velo_engine_t* engine, velo_peer_t* peer, uint8_t tag, size_t bytes) noexcept {
    engine->commit(*peer, tag, static_cast<uint32_t>(bytes));
}

void velo_cancel(velo_engine_t* engine) noexcept {
    engine->cancel();
}

void* velo_allocate(velo_engine_t* engine, velo_peer_t* peer, size_t bytes) noexcept {
    return engine->allocate(*peer, bytes);
}

void velo_free(velo_engine_t* engine, void* memory) noexcept {
    engine->free(memory);
}

bool velo_send(velo_engine_t* engine, velo_peer_t* peer, velo_send_t* send, uint8_t tag) noexcept {
    send->tag = tag;
    return with_memory(*engine, [&] { return engine->send(*peer, *send); });
}

int velo_register(velo_engine_t* engine, void* base, size_t bytes, uint32_t access,
                  velo_handle_t* handle) noexcept {
    return static_cast<int>(engine->register_memory(base, bytes, access, *handle));
}

void velo_deregister(velo_engine_t* engine, const velo_handle_t* handle) noexcept {
    engine->deregister(*handle);
}

void velo_rma(velo_engine_t* engine, velo_peer_t* peer, velo_rma_t* rma) noexcept {
    with_memory(*engine, [&] { engine->post(*peer, *rma); });
}

void velo_match_open(velo_engine_t* engine, const velo_match_host_t* host) noexcept {
    with_memory(*engine, [&] { engine->open_matching(*host); });
}

void velo_match_leave(velo_engine_t* engine) noexcept {
    with_memory(*engine, [&] { engine->leave_matching(); });
}

bool velo_match_owes(const velo_engine_t* engine) noexcept {
    return engine->matching_owes();
}

void velo_match_close(velo_engine_t* engine) noexcept {
    with_memory(*engine, [&] { engine->close_matching(); });
}

velo_match_peer_t* velo_match_peer_of(velo_engine_t* engine, velo_peer_t* peer) noexcept {
    return with_memory(
        *engine, [&] { return engine->match([&](auto& matching) { return &matching.peer_of(peer); }); });
}

bool velo_match_try_send(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag, const void* data,
                         uint64_t bytes) noexcept {
    if (engine->try_send_line(*to, Envelope::of(place, tag), data, bytes)) return true;
    return match_try_send(engine, to, place, tag, data, bytes);
}

int velo_match_send_wait(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag, const void* data,
                         uint64_t bytes) noexcept {
    if (engine->try_send_line(*to, Envelope::of(place, tag), data, bytes)) return VELO_OK;
    return match_send_otherwise(engine, to, place, tag, data, bytes);
}

int velo_match_ssend_wait(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag, const void* data,
                          uint64_t bytes) noexcept {
    return send_and_wait(engine, to, place, tag, data, bytes, true);
}

bool velo_match_send(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag, const void* data,
                     uint64_t bytes, bool synchronous, velo_match_send_t* send) noexcept {
    return with_memory(*engine, [&] {
        return engine->match([&](auto& matching) {
            return matching.sending.send(*to, Envelope::of(place, tag), data, bytes, synchronous, *send);
        });
    });
}

int velo_match_post(velo_engine_t* engine, uint64_t place, int32_t tag, void* buffer, uint64_t capacity,
                    velo_match_receive_t* receive) noexcept {
    if (engine->post_unheard(Envelope::of(place, tag), buffer, capacity, *receive)) return VELO_OK;
    return match_receive_otherwise(engine, place, tag, buffer, capacity, receive);
}

bool velo_match_receive(velo_engine_t* engine, velo_match_peer_t* from, uint64_t place, int32_t tag,
                        void* buffer, uint64_t capacity, velo_match_receive_t* receive) noexcept {
    return with_memory(*engine, [&] {
        return engine->match([&](auto& matching) {
            return matching.receiving.post(from, Envelope::of(place, tag), buffer, capacity, *receive);
        });
    });
}

bool velo_match_cancel(velo_engine_t* engine, velo_match_receive_t* receive) noexcept {
    return with_memory(*engine, [&] {
        return engine->match([&](auto& matching) { return matching.receiving.cancel(*receive); });
    });
}

bool velo_match_probe(velo_engine_t* engine, const velo_match_peer_t* from, uint64_t place, int32_t tag,
                      velo_match_status_t* status, velo_match_message_t** message) noexcept {
    return with_memory(*engine, [&] {
        return engine->match([&](auto& matching) {
            return matching.receiving.probe(from, Envelope::of(place, tag), *status, message);
        });
    });
}

bool velo_match_receive_message(velo_engine_t* engine, velo_match_message_t* message, void* buffer,
                                uint64_t capacity, velo_match_receive_t* receive) noexcept {
    return with_memory(*engine, [&] {
        return engine->match([&](auto& matching) {
            return matching.receiving.receive_message(message, buffer, capacity, *receive);
        });
    });
}

void velo_rma_here(velo_rma_t* rma) noexcept {
    auto* here = reinterpret_cast<void*>(rma->remote_address);
    switch (rma->kind) {
        case VELO_RMA_GET: velo::base::copy_long(rma->local, here, rma->bytes); break;
        case VELO_RMA_PUT: velo::base::copy_long(here, rma->local, rma->bytes); break;
        case VELO_RMA_ATOMIC: {
            const uint64_t old =
                velo::apply_atomic(rma->atomic, rma->width, rma->remote_address, rma->operand, rma->compare);
            if (rma->local != nullptr) std::memcpy(rma->local, &old, rma->width);
            break;
        }
    }
}

int velo_progress(velo_engine_t* engine) noexcept {
    return with_memory(*engine, [&] { return engine->progress(); });
}

bool velo_claim_report(velo_engine_t* engine, velo_peer_t* peer) noexcept {
    return engine->claim_report(*peer);
}

void velo_follow(velo_engine_t* engine) noexcept {
    engine->announce_ending(velo::base::Ending::kFollowed);
}

void velo_leave(velo_engine_t* engine, const velo_host_t* rest) noexcept {
    engine->leave(*rest);
}

bool velo_busy(const velo_engine_t* engine) noexcept {
    return engine->busy();
}

void velo_counters(const velo_engine_t* engine, velo_counters_t* counters) noexcept {
    engine->counters(*counters);
}

}  // extern "C"
