/*
 * The C face of matching: what a host that leaves it to the engine (Open MPI's MTL) calls, beside velo.h. The
 * rules of velo.h on threads and callbacks hold here. Messages are ordered as MPI asks: see match/receiver.h.
 */
#ifndef VELO_VELO_MATCH_H
#define VELO_VELO_MATCH_H

#include "velo/velo.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A process, the own one included, as one that is sent to and received from. Stays while the engine is open.
 */
typedef struct velo_match_peer velo_match_peer_t;

/* Envelopes. Of a message: its communicator's number (below 65536), its sender's rank there, and its tag. Of a
 * receive: the same, where source and tag may be -1: any. A tag below -1 fits only itself. Communicator and
 * source are one argument, the `place`. */
static inline uint64_t velo_place(uint32_t context, int32_t source) {
    return (uint64_t)(uint32_t)source << 32 | context;
}

/* A message on its way, from velo_match_send until `send_done` is called for it; its data may not change
 * meanwhile. */
typedef struct velo_match_send {
    uint64_t engine[26];
} velo_match_send_t;

/* A receive, from velo_match_receive until `receive_done` is called for it. */
typedef struct velo_match_receive {
    uint64_t engine[15];
    velo_match_peer_t* from; /* velo_match_post(): the process that the source is; NULL: any. */
    /* Results. */
    int32_t source;
    int32_t tag;
    uint64_t bytes; /* of the message; the buffer may have held less: those that fit were received */
    int status;
} velo_match_receive_t;

/* A message that a probe has found. */
typedef struct {
    int32_t source;
    int32_t tag;
    uint64_t bytes;
} velo_match_status_t;

/* A message that a matching probe has dequeued, until velo_match_receive_message. */
typedef struct velo_match_message velo_match_message_t;

typedef struct {
    void* context; /* handed to each; may be NULL */
    /* The message is done. It is not, if its receiver has ended: the host has heard of the end. */
    void (*send_done)(void* context, velo_match_send_t* send);
    void (*receive_done)(void* context, velo_match_receive_t* receive);
    /* Makes progress until `*done` is true, for the functions that send and wait. NULL: the host calls none of them. */
    void (*wait)(void* context, const volatile bool* done);
} velo_match_host_t;

/* Lets the engine match. Once, before any peer sends, so before the host publishes that it does. Tags of
 * velo.h's messages from 0xf0 on are the engine's then. */
void velo_match_open(velo_engine_t* engine, const velo_match_host_t* host) VELO_NOEXCEPT;

/* The host posts no receive any more, as at the end of MPI. Messages that it has sent go on: while velo_match_owes, the
 * host makes progress. A peer that has ended, or left likewise, is owed nothing. */
void velo_match_leave(velo_engine_t* engine) VELO_NOEXCEPT;

/* True while a message that was sent waits for a peer that lives and may still receive it, or data of one is on its way
 * here. */
bool velo_match_owes(const velo_engine_t* engine) VELO_NOEXCEPT;

/* No function of the host is called any more, and none of its requests is looked at. The engine goes on, and drops what
 * comes to be matched. No function of this header is called afterwards. */
void velo_match_close(velo_engine_t* engine) VELO_NOEXCEPT;

/* `peer`: a connected one; NULL: this process. NULL: there is no memory. */
velo_match_peer_t* velo_match_peer_of(velo_engine_t* engine, velo_peer_t* peer) VELO_NOEXCEPT;

/* Sends a short message, if it can leave at once. False: nothing has happened; velo_match_send() does the rest. */
bool velo_match_try_send(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag, const void* data,
                         uint64_t bytes) VELO_NOEXCEPT;

/* Sends a message, and returns when it is done; `send_done` is not called. While it cannot leave, the host's wait()
 * makes progress. Returns VELO_OK, so that it can be the tail call of a host's function, which then saves no registers.
 */
int velo_match_send_wait(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag, const void* data,
                         uint64_t bytes) VELO_NOEXCEPT;

/* As velo_match_send_wait(), of a message that is done when it has matched. */
int velo_match_ssend_wait(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag, const void* data,
                          uint64_t bytes) VELO_NOEXCEPT;

/* Sends a message. `synchronous`: it is done when it has matched. True: it is done, and `send_done` is not
 * called. */
bool velo_match_send(velo_engine_t* engine, velo_match_peer_t* to, uint64_t place, int32_t tag, const void* data,
                     uint64_t bytes, bool synchronous, velo_match_send_t* send) VELO_NOEXCEPT;

/* Receives into `buffer`, from the process `receive->from`. `receive_done` is called for it, here where its message has
 * come before. Returns VELO_OK, so that it can be the tail call of a host's function, which then saves no registers. */
int velo_match_post(velo_engine_t* engine, uint64_t place, int32_t tag, void* buffer, uint64_t capacity,
                    velo_match_receive_t* receive) VELO_NOEXCEPT;

/* Receives into `buffer`. `from`: the process that `source` is; NULL: any. True: it is done, and
 * `receive_done` is not called. */
bool velo_match_receive(velo_engine_t* engine, velo_match_peer_t* from, uint64_t place, int32_t tag,
                        void* buffer, uint64_t capacity, velo_match_receive_t* receive) VELO_NOEXCEPT;

/* True: no message has matched it, and none will; `receive_done` is not called. False: it is matched, received or
 * cancelled already, and nothing has changed. */
bool velo_match_cancel(velo_engine_t* engine, velo_match_receive_t* receive) VELO_NOEXCEPT;

/* Looks for a message. `from`: the process that `source` is; NULL: any. False: there is none yet; the host makes
 * progress and asks again. `message`: where not NULL, it is dequeued. */
bool velo_match_probe(velo_engine_t* engine, const velo_match_peer_t* from, uint64_t place, int32_t tag,
                      velo_match_status_t* status, velo_match_message_t** message) VELO_NOEXCEPT;

/* Receives a message that was dequeued. True: it is done, and `receive_done` is not called. */
bool velo_match_receive_message(velo_engine_t* engine, velo_match_message_t* message, void* buffer,
                                uint64_t capacity, velo_match_receive_t* receive) VELO_NOEXCEPT;

#ifdef __cplusplus
}
#endif

#endif /* VELO_VELO_MATCH_H */
