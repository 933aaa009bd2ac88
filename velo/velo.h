/*
 * The C face of the engine: what a host (Open MPI's BTL and MTL) calls, and what it is called back with.
 *
 * No C++ type and no exception crosses it. An engine that was opened for several threads may be used by them at once:
 * every function takes the engine's lock itself where it needs it. velo_close is the last call, of one thread.
 * Callbacks run without the lock and may call anything here but velo_close. Two are excepted: `accepts` and `log` may
 * run with it and call nothing here. `receive` and `unconnected` come out of the middle of velo_progress, where a
 * message lies; the others at the end of velo_progress, or of velo_rma, in the order of the events.
 */
#ifndef VELO_VELO_H
#define VELO_VELO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define VELO_NOEXCEPT noexcept
extern "C" {
#else
#define VELO_NOEXCEPT
#endif

typedef struct velo_engine velo_engine_t;
typedef struct velo_peer velo_peer_t;

/* Values of velo_status_t are those of velo::Status (velo/base/status.h). */
typedef enum {
    VELO_OK = 0,
    VELO_AGAIN,
    VELO_BAD_PARAM,
    VELO_ATU_FAULT,
    VELO_UNSUPPORTED,
    VELO_PEER_DEAD,
    VELO_NO_RESOURCE,
    VELO_FAILED,
    VELO_PROTOCOL,
    VELO_BAD_MEMORY,
    VELO_NOT_BEGUN,
    VELO_TIMED_OUT,
    VELO_BAD_LOCAL_MEMORY,
} velo_status_t;

const char* velo_status_text(int status) VELO_NOEXCEPT;

/* For whom a parameter is: the first of Open MPI's levels for these. */
typedef enum {
    VELO_AUDIENCE_user = 1,
    VELO_AUDIENCE_tuner = 4,
    VELO_AUDIENCE_developer = 7,
} velo_audience_t;

/* Parameters: the table velo/params.def as a struct. Texts are borrowed for the call. */
typedef struct {
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) int name;
#define VELO_PARAM_TEXT(name, value, audience, text) const char* name;
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    /* Longest message that the host sends, by path; its header included. */
    uint32_t on_node_message_bytes_max;
    uint32_t device_message_bytes_max;
    /* Several threads may call at once. */
    bool threads;
} velo_params_t;

/* Counters: the table velo/counters.def as a struct. */
typedef struct {
#define VELO_COUNTER(name, text) uint64_t name;
#include "velo/counters.def"
#undef VELO_COUNTER
} velo_counters_t;

/* Which process this is in its job. `name` is unique over all jobs that may meet. */
typedef struct {
    uint64_t name;
    uint64_t job;
    uint32_t rank;
    uint32_t job_size;
    uint32_t local_rank;
    uint32_t local_size;
    uint32_t host;           /* of this job's: a number, the same for all its ranks there, and another elsewhere */
    uint32_t hosts;          /* that ranks of this job are on; 0: not known, and taken for 1 */
    uint32_t host_ranks_min; /* ranks on the host that has fewest, the same number at every rank */
    bool more_hosts;         /* the launcher has others at hand, on which jobs that this one starts may be */
    char other_host[256];    /* name of one that has ranks of this job; empty where there is none */
} velo_identity_t;

typedef enum {
    VELO_PATH_NONE = 0,
    VELO_PATH_ON_NODE,
    VELO_PATH_DEVICE,
} velo_path_t;

/* One message on its way out. Part of the host's fragment; the engine's until `sent` is called. The first
 * three members are the host's to fill, the rest is the engine's. */
typedef struct velo_send {
    const void* data[2];
    uint32_t bytes[2]; /* either may be 0 */
    struct velo_send* next;
    uint32_t total;
    uint32_t done; /* packets' payload already sent */
    uint8_t tag;
    uint8_t message_class;
    uint8_t origin;
    bool stalled;
} velo_send_t;

/* A range of memory that peers may access. Flat; the owner publishes it as bytes. A host may hand over a
 * handle that is of another range, revoked, or half overwritten: the registration that holds the address is
 * used then. */
typedef struct {
    uint64_t base; /* the owner's virtual address */
    uint64_t bytes;
    uint64_t nla[2]; /* on-node, device */
    uint64_t device_key;  /* 0: not registered there */
    uint32_t on_node_key; /* 0: not registered there */
    uint32_t reserved;
    uint64_t check;  /* of the rest, written by velo_register */
} velo_handle_t;

typedef enum {
    VELO_RMA_GET,
    VELO_RMA_PUT,
    VELO_RMA_ATOMIC,
} velo_rma_kind_t;

typedef enum {
    VELO_ATOMIC_ADD,
    VELO_ATOMIC_AND,
    VELO_ATOMIC_OR,
    VELO_ATOMIC_XOR,
    VELO_ATOMIC_SWAP,
    VELO_ATOMIC_MIN, /* signed */
    VELO_ATOMIC_MAX, /* signed */
    VELO_ATOMIC_COMPARE_SWAP,
    VELO_ATOMIC_LOGICAL_AND, /* results 0 or 1 */
    VELO_ATOMIC_LOGICAL_OR,
    VELO_ATOMIC_LOGICAL_XOR,
    VELO_ATOMIC_COUNT,
} velo_atomic_t;

/* One transfer or atomic. Part of the host's request; the engine's until `rma_done` is called, which
 * happens once, perhaps before velo_rma returns. A put is done when its data is visible at the target. */
typedef struct velo_rma {
    velo_rma_kind_t kind;
    velo_atomic_t atomic;
    uint32_t width; /* of an atomic: 4 or 8 bytes, at an address of that alignment */
    uint32_t owner; /* 0: the host */
    void* local;    /* target of a get, source of a put; an atomic's old value goes here unless NULL */
    uint64_t remote_address;
    velo_handle_t remote;
    uint64_t bytes;
    uint64_t operand;
    uint64_t compare;
    uint64_t engine[18];
} velo_rma_t;

/* A peer that has ended and did not close its engine before. */
typedef struct {
    velo_peer_t* peer;
    uint64_t name;
    uint64_t job;
    uint32_t rank;
    int32_t pid;
    velo_path_t path;
    /* The peer said that it ends because another process did. */
    bool followed;
    /* Nothing ever came from it: it may run all the same, and not be reached. The device has logged why. */
    bool unreached;
} velo_end_t;

/* Why the job cannot go on: what was accepted from the host, or sent to it, cannot be carried out any more.
 */
typedef struct {
    const char* line; /* for the user: rank, cause and remedy */
    uint64_t name;    /* of the peer that it is about */
    velo_path_t path;
} velo_failure_t;

struct hwloc_topology;

/* Services of the host to the engine; those that may be NULL say so. */
typedef struct {
    void* context; /* handed to each; may be NULL */
    /* hwloc 2's topology of this machine, if the host has one; looked at by velo_open only. May be NULL. */
    struct hwloc_topology* topology;
    /* False: a message with this tag cannot be taken yet; it stays where it is. Once true, it is not asked
     * again for this tag. */
    bool (*accepts)(void* context, uint8_t tag);
    /* A message, valid and writable during the call. `peer_context`: see velo_connect; NULL until then. */
    void (*receive)(void* context, velo_path_t path, void* peer_context, uint8_t tag, void* data,
                    size_t bytes);
    /* A message has come from a peer whose context is NULL, and which has called itself `name` (velo_identity_t) at its
     * first contact. The host may connect that process now, before `receive` is called; it proves to be the sender
     * where velo_connect gives `peer`. May be NULL. */
    void (*unconnected)(void* context, velo_path_t path, velo_peer_t* peer, uint64_t name, uint8_t tag);
    /* A message that velo_send queued has left. */
    void (*sent)(void* context, velo_send_t* send, int status);
    /* The operation has ended. Of one that failed, the host has heard before, by peer_ended or job_failed. */
    void (*rma_done)(void* context, velo_rma_t* rma, int status);
    /* Once for each connected peer that has ended, before what waits for it ends. May be NULL. */
    void (*peer_ended)(void* context, const velo_end_t* end);
    /* One line for the user; level 0: must be seen, 1: information. May be NULL: no line is wanted. */
    void (*log)(void* context, int level, const char* line);
    /* Shows the line and ends the job, unless the peer is no concern of the host's. Called once for each
     * cause; where it returns, what waits goes on waiting. May be NULL: the line is logged. */
    void (*job_failed)(void* context, const velo_failure_t* failure);
} velo_host_t;

#define VELO_ADDRESS_BYTES_MAX 2048

/* Fills in every parameter's default. */
void velo_params_default(velo_params_t* params) VELO_NOEXCEPT;

/* Sets a parameter to what the user wrote; a text is borrowed. False: it is refused, with a sentence in `error`. */
bool velo_params_set(velo_params_t* params, const char* name, const char* text, char* error,
                     size_t error_bytes) VELO_NOEXCEPT;

/* True when the text of the parameter is a number of bytes that a size_t holds; otherwise a sentence is in `error`. */
bool velo_is_bytes(const char* name, const char* text, char* error, size_t error_bytes) VELO_NOEXCEPT;

/* Opens an engine, cheaply. NULL on failure, with a sentence in `error`. */
velo_engine_t* velo_open(const velo_params_t* params, const velo_identity_t* identity,
                         const velo_host_t* host, char* error, size_t error_bytes) VELO_NOEXCEPT;
void velo_close(velo_engine_t* engine) VELO_NOEXCEPT;

/* Writes what peers need to connect; returns its length, at most VELO_ADDRESS_BYTES_MAX. */
size_t velo_address(velo_engine_t* engine, void* address, size_t bytes) VELO_NOEXCEPT;

/* True when velo_open would use the device of a network; whether there is one is not looked at. */
bool velo_network_wanted(const velo_params_t* params, const velo_identity_t* identity) VELO_NOEXCEPT;

/* True when some process of the job is reached through the device. */
bool velo_device_used(const velo_engine_t* engine) VELO_NOEXCEPT;

/* True when the device is that of a network: it reaches other hosts. */
bool velo_network_used(const velo_engine_t* engine) VELO_NOEXCEPT;

/* Longest message that is best sent through a ring where ranks share CPUs: it takes time of both ends there, and of
 * one where it is fetched. */
#define VELO_SHARED_CPU_BYTES 8192

/* True when the job has more ranks on this host than there are CPUs: they take turns. */
bool velo_shares_cpus(const velo_engine_t* engine) VELO_NOEXCEPT;

/* Longest message that the device takes in one go. Good while the engine is open, and has a device. */
size_t velo_device_send_bytes_max(const velo_engine_t* engine) VELO_NOEXCEPT;

/* The carrier of packets to other nodes, for the user: "net (eth0)". Good while the engine is open. */
const char* velo_device_name(const velo_engine_t* engine) VELO_NOEXCEPT;

/* Makes a peer usable. `same_host`: the host knows that it runs on this machine; where it does not know, the peers
 * compare themselves. VELO_UNSUPPORTED: it cannot be reached by velo, and why stands in `error`. Connecting twice
 * returns the same peer. */
int velo_connect(velo_engine_t* engine, const void* address, size_t bytes, bool same_host, void* peer_context,
                 velo_peer_t** peer, char* error, size_t error_bytes) VELO_NOEXCEPT;

/* The host is finished with a peer. Memory that a process held here is given back when it has ended, whether it was
 * disconnected or not; until it was, its velo_peer_t stays, and what is asked of it fails. True: the peer is
 * not to be used again, except by connecting again. False: something of it is pending, whose callbacks come.
 */
bool velo_disconnect(velo_engine_t* engine, velo_peer_t* peer) VELO_NOEXCEPT;

velo_path_t velo_peer_path(const velo_peer_t* peer) VELO_NOEXCEPT;

/* False: it is on another host, or in another container of this one, so no shared memory joins it with this process. */
bool velo_peer_attachable(const velo_peer_t* peer) VELO_NOEXCEPT;

/* Sends a message of two parts if that is possible at once, without keeping a pointer. VELO_AGAIN: nothing
 * was done, use velo_send. */
int velo_try_send(velo_engine_t* engine, velo_peer_t* peer, uint8_t tag, const void* header,
                  size_t header_bytes, const void* payload, size_t payload_bytes) VELO_NOEXCEPT;

/* Sends a message of two parts, or queues a copy if that is not possible at once; `sent` is not called for it.
 * VELO_AGAIN: nothing was done, use velo_send. Copies are taken only behind a message of velo_send's that still
 * waits, and only a limited number behind each, so that a host which waits for its messages does not run ahead of
 * its peer. */
int velo_try_send_or_copy(velo_engine_t* engine, velo_peer_t* peer, uint8_t tag, const void* header,
                      size_t header_bytes, const void* payload, size_t payload_bytes) VELO_NOEXCEPT;

/* Space for a message of `bytes` on an on-node ring, to be written in place and sent by velo_commit, or given up
 * by velo_cancel; NULL when there is none now. The lock is held from a successful reserve to either. */
void* velo_reserve(velo_engine_t* engine, velo_peer_t* peer, size_t bytes) VELO_NOEXCEPT;
void velo_commit(velo_engine_t* engine, velo_peer_t* peer, uint8_t tag, size_t bytes) VELO_NOEXCEPT;
void velo_cancel(velo_engine_t* engine) VELO_NOEXCEPT;

/* Memory for what the host keeps of messages to a peer, which goes back to the system when it is freed. NULL: there is
 * none. */
void* velo_allocate(velo_engine_t* engine, velo_peer_t* peer, size_t bytes) VELO_NOEXCEPT;
void velo_free(velo_engine_t* engine, void* memory) VELO_NOEXCEPT;

/* Sends or queues; never refuses. No callback comes before it returns. True: it has left, `sent` is not called. False:
 * `sent` will be. */
bool velo_send(velo_engine_t* engine, velo_peer_t* peer, velo_send_t* send, uint8_t tag) VELO_NOEXCEPT;

/* Registers for remote reads (1), writes (2), atomics (4). VELO_NO_RESOURCE: the tables are full. */
int velo_register(velo_engine_t* engine, void* base, size_t bytes, uint32_t access,
                  velo_handle_t* handle) VELO_NOEXCEPT;
void velo_deregister(velo_engine_t* engine, const velo_handle_t* handle) VELO_NOEXCEPT;

void velo_rma(velo_engine_t* engine, velo_peer_t* peer, velo_rma_t* rma) VELO_NOEXCEPT;

/* Does the operation at once on memory of this process: `remote_address` is an address here, `remote` is not
 * looked at, and `rma_done` is not called. */
void velo_rma_here(velo_rma_t* rma) VELO_NOEXCEPT;

/* Moves everything on that can move. Returns how many things happened. */
int velo_progress(velo_engine_t* engine) VELO_NOEXCEPT;

/* True for the first process of all that asks about a peer that has ended: it tells the user for the others.
 * To be asked within `peer_ended`; later, the peer's memory may have been given back, and no process is the
 * first. */
bool velo_claim_report(velo_engine_t* engine, velo_peer_t* peer) VELO_NOEXCEPT;

/* Tells peers that this process is about to end because another one did. */
void velo_follow(velo_engine_t* engine) VELO_NOEXCEPT;

/* The host takes no message any more, as at the end of MPI: what comes is dropped. Its own messages go on: while
 * velo_busy, the host makes progress. `rest`: its functions from now on. */
void velo_leave(velo_engine_t* engine, const velo_host_t* rest) VELO_NOEXCEPT;

/* True while a message or a transfer waits for something, or lies where it would be lost with this process. The end of
 * a peer ends all that waits for it. */
bool velo_busy(const velo_engine_t* engine) VELO_NOEXCEPT;

void velo_counters(const velo_engine_t* engine, velo_counters_t* counters) VELO_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* VELO_VELO_H */
