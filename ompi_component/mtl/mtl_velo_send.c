/*
 * Sending.
 */
#include "mtl_velo.h"

#include <stdlib.h>
#include <string.h>

#include "opal/runtime/opal_progress.h"

/* A message as bytes. Memory for it is taken only where its datatype is not contiguous and it is long. */
enum { PACKED_HERE_MAX = 2048 };
typedef struct {
    void *data;
    size_t bytes;
    bool allocated;
    char here[PACKED_HERE_MAX];
} message_t;

/* Finds the process and the bytes. */
static inline int prepare(ompi_communicator_t *comm, int dest, opal_convertor_t *convertor, velo_match_peer_t **peer,
                          message_t *message)
{
    struct iovec iov = {.iov_base = message->here};
    uint32_t count = 1;

    *peer = mca_mtl_velo_peer(comm, dest);
    if (OPAL_UNLIKELY(NULL == *peer)) {
        return OMPI_ERR_UNREACH;
    }
    message->allocated = false;
    if (mca_mtl_velo_in_one_piece(convertor)) {
        message->data = mca_mtl_velo_begin_of(convertor);
        message->bytes = convertor->local_size;
        return OMPI_SUCCESS;
    }
    opal_convertor_get_packed_size(convertor, &message->bytes);
    if (0 == message->bytes || message->bytes > sizeof message->here) {
        return ompi_mtl_datatype_pack(convertor, &message->data, &message->bytes, &message->allocated);
    }
    message->data = message->here;
    iov.iov_len = message->bytes;
    opal_convertor_pack(convertor, &iov, &count, &message->bytes);
    return OMPI_SUCCESS;
}

static inline bool try_send_packed(ompi_communicator_t *comm, velo_match_peer_t *peer, int tag,
                                      const message_t *message, mca_pml_base_send_mode_t mode)
{
    return message->data == message->here && MCA_PML_BASE_SEND_SYNCHRONOUS != mode
           && mca_mtl_velo.faces.try_send(mca_mtl_velo.engine, peer, mca_mtl_velo_place(comm, ompi_comm_rank(comm)),
                                          tag, message->data, message->bytes);
}

static mca_mtl_velo_request_t *request_of(velo_match_send_t *send)
{
    return (mca_mtl_velo_request_t *) ((char *) send - offsetof(mca_mtl_velo_request_t, match));
}

static void finish(mca_mtl_velo_request_t *request)
{
    free(request->packed);
    request->super.ompi_req->req_status.MPI_ERROR = MPI_SUCCESS;
    request->super.completion_callback(&request->super);
}

void mca_mtl_velo_send_done(void *context, velo_match_send_t *send)
{
    (void) context;
    finish(request_of(send));
}

void mca_mtl_velo_wait(void *context, const volatile bool *done)
{
    (void) context;
    while (!*done) {
        opal_progress();
    }
}

/* The peer of a message that needs nothing but its bytes, and does not wait, as most do. NULL: it is another. */
static inline __opal_attribute_always_inline__ velo_match_peer_t *peer_of_plain(ompi_communicator_t *comm, int dest,
                                                                                opal_convertor_t *convertor,
                                                                                mca_pml_base_send_mode_t mode)
{
    velo_match_peer_t *peer = mca_mtl_velo_known_peer(comm, dest);

    return OPAL_LIKELY(NULL != peer && MCA_PML_BASE_SEND_SYNCHRONOUS != mode && mca_mtl_velo_in_one_piece(convertor))
               ? peer
               : NULL;
}

/* Tail call of mca_mtl_velo_send(), with its arguments; `used`, so that the compiler leaves none out and moves
   none. */
static int __attribute__((noinline, used))
send_otherwise(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int dest, int tag, opal_convertor_t *convertor,
               mca_pml_base_send_mode_t mode)
{
    const uint64_t place = mca_mtl_velo_place(comm, ompi_comm_rank(comm));
    velo_match_peer_t *peer;
    message_t message;
    int rc = prepare(comm, dest, convertor, &peer, &message);

    (void) mtl;
    if (OPAL_UNLIKELY(OMPI_SUCCESS != rc)) {
        return rc;
    }
    if (MCA_PML_BASE_SEND_SYNCHRONOUS == mode) {
        rc = mca_mtl_velo.faces.ssend_wait(mca_mtl_velo.engine, peer, place, tag, message.data, message.bytes);
    } else {
        rc = mca_mtl_velo.faces.send_wait(mca_mtl_velo.engine, peer, place, tag, message.data, message.bytes);
    }
    if (OPAL_UNLIKELY(message.allocated)) {
        free(message.data);
    }
    return rc;
}

int mca_mtl_velo_send(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int dest, int tag,
                      opal_convertor_t *convertor, mca_pml_base_send_mode_t mode)
{
    velo_match_peer_t *peer = peer_of_plain(comm, dest, convertor, mode);

    return OPAL_LIKELY(NULL != peer)
               ? mca_mtl_velo.faces.send_wait(mca_mtl_velo.engine, peer, mca_mtl_velo_place(comm, ompi_comm_rank(comm)),
                                              tag, mca_mtl_velo_begin_of(convertor), convertor->local_size)
               : send_otherwise(mtl, comm, dest, tag, convertor, mode);
}

static int __attribute__((noinline)) isend_otherwise(ompi_communicator_t *comm, int dest, int tag,
                                                     opal_convertor_t *convertor, mca_pml_base_send_mode_t mode,
                                                     mca_mtl_velo_request_t *request)
{
    velo_match_peer_t *peer;
    message_t message;
    int rc = prepare(comm, dest, convertor, &peer, &message);

    if (OPAL_UNLIKELY(OMPI_SUCCESS != rc)) {
        return rc;
    }
    request->packed = NULL;
    request->receives = false;
    if (try_send_packed(comm, peer, tag, &message, mode)) {
        finish(request);
        return OMPI_SUCCESS;
    }
    if (message.data == message.here) {
        message.data = malloc(message.bytes);
        if (OPAL_UNLIKELY(NULL == message.data)) {
            return OMPI_ERR_OUT_OF_RESOURCE;
        }
        memcpy(message.data, message.here, message.bytes);
        message.allocated = true;
    }
    if (message.allocated) {
        request->packed = message.data;
    }
    if (mca_mtl_velo.faces.send(mca_mtl_velo.engine, peer, mca_mtl_velo_place(comm, ompi_comm_rank(comm)), tag,
                                message.data, message.bytes, MCA_PML_BASE_SEND_SYNCHRONOUS == mode,
                                &request->match.send)) {
        finish(request);
    }
    return OMPI_SUCCESS;
}

int mca_mtl_velo_isend(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int dest, int tag,
                       opal_convertor_t *convertor, mca_pml_base_send_mode_t mode, bool blocking,
                       mca_mtl_request_t *mtl_request)
{
    mca_mtl_velo_request_t *request = (mca_mtl_velo_request_t *) mtl_request;
    velo_match_peer_t *peer = peer_of_plain(comm, dest, convertor, mode);

    (void) mtl;
    (void) blocking;
    if (OPAL_UNLIKELY(NULL == peer)
        || !mca_mtl_velo.faces.try_send(mca_mtl_velo.engine, peer, mca_mtl_velo_place(comm, ompi_comm_rank(comm)), tag,
                                        mca_mtl_velo_begin_of(convertor), convertor->local_size)) {
        return isend_otherwise(comm, dest, tag, convertor, mode, request);
    }
    request->packed = NULL;
    request->receives = false;
    finish(request);
    return OMPI_SUCCESS;
}
