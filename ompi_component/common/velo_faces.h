/*
 * The engine as another component of this process finds it: matching (mca_mtl_velo.so) opens mca_btl_velo.so beside
 * itself, which has the one engine of the process, and asks it for this table.
 */
#ifndef VELO_FACES_H
#define VELO_FACES_H

#include "opal_config.h"

#include "opal/util/proc.h"

#include "velo/velo_match.h"

typedef struct {
    size_t bytes;        /* of this table, and */
    const char *version; /* of velo: both files are of one build */
    /* NULL: the BTL was not opened, or is not used; it has said why. */
    velo_engine_t *(*engine)(void);
    /* The job ends, when a peer does, without ob1. */
    void (*match)(void);
    /* NULL: the process is not reached, of which the user has been notified. */
    velo_peer_t *(*connect)(opal_proc_t *proc);
    void (*disconnect)(const opal_proc_t *proc);
    /* To be registered by whoever needs it: a second time is none. */
    int (*progress)(void);
    void (*open_matching)(velo_engine_t *engine, const velo_match_host_t *host);
    /* As the last one. Returns when no message of this process waits for its receiver any more. */
    void (*leave_matching)(void);
    velo_match_peer_t *(*peer_of)(velo_engine_t *engine, velo_peer_t *peer);
    bool (*try_send)(velo_engine_t *engine, velo_match_peer_t *to, uint64_t place, int32_t tag, const void *data,
                     uint64_t bytes);
    int (*send_wait)(velo_engine_t *engine, velo_match_peer_t *to, uint64_t place, int32_t tag, const void *data,
                     uint64_t bytes);
    int (*ssend_wait)(velo_engine_t *engine, velo_match_peer_t *to, uint64_t place, int32_t tag, const void *data,
                      uint64_t bytes);
    bool (*send)(velo_engine_t *engine, velo_match_peer_t *to, uint64_t place, int32_t tag, const void *data,
                 uint64_t bytes, bool synchronous, velo_match_send_t *send);
    int (*post)(velo_engine_t *engine, uint64_t place, int32_t tag, void *buffer, uint64_t capacity,
                velo_match_receive_t *receive);
    bool (*receive)(velo_engine_t *engine, velo_match_peer_t *from, uint64_t place, int32_t tag, void *buffer,
                    uint64_t capacity, velo_match_receive_t *receive);
    bool (*cancel)(velo_engine_t *engine, velo_match_receive_t *receive);
    bool (*probe)(velo_engine_t *engine, const velo_match_peer_t *from, uint64_t place, int32_t tag,
                  velo_match_status_t *status, velo_match_message_t **message);
    bool (*receive_message)(velo_engine_t *engine, velo_match_message_t *message, void *buffer, uint64_t capacity,
                            velo_match_receive_t *receive);
} velo_faces_t;

typedef const velo_faces_t *(*velo_faces_fn_t)(void);

#endif /* VELO_FACES_H */
