/*
 * Receives and probes.
 */
#include "mtl_velo.h"

#include <stdlib.h>

#include "opal/runtime/opal_progress.h"

/* MPI_ANY_SOURCE is no peer. */
static inline int source_of(ompi_communicator_t *comm, int src, velo_match_peer_t **peer)
{
    if (MPI_ANY_SOURCE == src) {
        return OMPI_SUCCESS;
    }
    *peer = mca_mtl_velo_peer(comm, src);
    return OPAL_LIKELY(NULL != *peer) ? OMPI_SUCCESS : OMPI_ERR_UNREACH;
}

static void __attribute__((noinline)) unpack_and_complete(mca_mtl_velo_request_t *request, size_t bytes)
{
    struct iovec iov = {.iov_base = request->packed, .iov_len = bytes};
    uint32_t count = 1;

    opal_convertor_unpack(request->convertor, &iov, &count, &bytes);
    free(request->packed);
    request->super.completion_callback(&request->super);
}

/* After the completion nothing of the request may be looked at. */
static void finish(mca_mtl_velo_request_t *request)
{
    const velo_match_receive_t *receive = &request->match.receive;
    ompi_status_public_t *status = &request->super.ompi_req->req_status;
    size_t bytes = receive->bytes < request->capacity ? receive->bytes : request->capacity;

    status->MPI_SOURCE = receive->source;
    status->MPI_TAG = receive->tag;
    status->MPI_ERROR = VELO_OK != receive->status           ? MPI_ERR_INTERN
                        : receive->bytes > request->capacity ? MPI_ERR_TRUNCATE
                                                             : MPI_SUCCESS;
    status->_ucount = bytes;
    if (OPAL_UNLIKELY(NULL != request->packed)) {
        unpack_and_complete(request, bytes);
        return;
    }
    request->super.completion_callback(&request->super);
}

static mca_mtl_velo_request_t *request_of(velo_match_receive_t *receive)
{
    return (mca_mtl_velo_request_t *) ((char *) receive - offsetof(mca_mtl_velo_request_t, match));
}

void mca_mtl_velo_receive_done(void *context, velo_match_receive_t *receive)
{
    (void) context;
    finish(request_of(receive));
}

/* Finds the memory that a message goes to. */
static inline __opal_attribute_always_inline__ int prepare(mca_mtl_velo_request_t *request,
                                                            opal_convertor_t *convertor, void **buffer)
{
    bool packed;
    int rc = ompi_mtl_datatype_recv_buf(convertor, buffer, &request->capacity, &packed);

    if (OPAL_UNLIKELY(OMPI_SUCCESS != rc)) {
        return rc;
    }
    if (OPAL_UNLIKELY(packed && NULL == *buffer)) {
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    request->packed = packed ? *buffer : NULL;
    request->convertor = convertor;
    request->receives = true;
    return OMPI_SUCCESS;
}

/* Tail call of mca_mtl_velo_irecv(), with its arguments; `used`, so that the compiler leaves none out and moves
   none. */
static int __attribute__((noinline, used))
irecv_otherwise(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int src, int tag, opal_convertor_t *convertor,
                mca_mtl_request_t *mtl_request)
{
    mca_mtl_velo_request_t *request = (mca_mtl_velo_request_t *) mtl_request;
    velo_match_peer_t *peer = NULL;
    void *buffer;
    int rc = source_of(comm, src, &peer);

    (void) mtl;
    if (OPAL_LIKELY(OMPI_SUCCESS == rc)) {
        rc = prepare(request, convertor, &buffer);
    }
    if (OPAL_UNLIKELY(OMPI_SUCCESS != rc)) {
        return rc;
    }
    if (mca_mtl_velo.faces.receive(mca_mtl_velo.engine, peer, mca_mtl_velo_place(comm, src), tag, buffer,
                                   request->capacity, &request->match.receive)) {
        finish(request);
    }
    return OMPI_SUCCESS;
}

int mca_mtl_velo_irecv(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int src, int tag,
                       opal_convertor_t *convertor, mca_mtl_request_t *mtl_request)
{
    mca_mtl_velo_request_t *request = (mca_mtl_velo_request_t *) mtl_request;
    velo_match_peer_t *peer;

    if (OPAL_LIKELY(MPI_ANY_SOURCE != src)) {
        peer = mca_mtl_velo_known_peer(comm, src);
        if (OPAL_UNLIKELY(NULL == peer)) {
            /* A process that is waited for has to be connected, for its end to be noticed. */
            return irecv_otherwise(mtl, comm, src, tag, convertor, mtl_request);
        }
    } else {
        peer = NULL;
    }
    if (OPAL_LIKELY(mca_mtl_velo_in_one_piece(convertor))) {
        request->packed = NULL;
        request->receives = true;
        request->capacity = convertor->local_size;
        request->match.receive.from = peer;
        /* cm has prepared it from the program's buffer; a sender's it prepares from where the data begins. */
        return mca_mtl_velo.faces.post(mca_mtl_velo.engine, mca_mtl_velo_place(comm, src), tag,
                                       convertor->pBaseBuf + convertor->pDesc->true_lb, convertor->local_size,
                                       &request->match.receive);
    }
    return irecv_otherwise(mtl, comm, src, tag, convertor, mtl_request);
}

int mca_mtl_velo_cancel(mca_mtl_base_module_t *mtl, mca_mtl_request_t *mtl_request, int flag)
{
    mca_mtl_velo_request_t *request = (mca_mtl_velo_request_t *) mtl_request;

    (void) mtl;
    (void) flag;
    if (request->receives && mca_mtl_velo.faces.cancel(mca_mtl_velo.engine, &request->match.receive)) {
        free(request->packed);
        request->super.ompi_req->req_status._cancelled = true;
        request->super.completion_callback(&request->super);
    }
    return OMPI_SUCCESS;
}

/* Makes progress by itself: in a loop of probes no other call does. */
static int probe(ompi_communicator_t *comm, int src, int tag, int *flag, ompi_status_public_t *status,
                 velo_match_message_t **message)
{
    const uint64_t place = mca_mtl_velo_place(comm, src);
    velo_match_peer_t *peer = NULL;
    velo_match_status_t found;
    int rc = source_of(comm, src, &peer);

    *flag = 0;
    if (OPAL_UNLIKELY(OMPI_SUCCESS != rc)) {
        return rc;
    }
    if (!mca_mtl_velo.faces.probe(mca_mtl_velo.engine, peer, place, tag, &found, message)) {
        opal_progress();
        if (!mca_mtl_velo.faces.probe(mca_mtl_velo.engine, peer, place, tag, &found, message)) {
            return OMPI_SUCCESS;
        }
    }
    *flag = 1;
    if (MPI_STATUS_IGNORE != status) {
        status->MPI_SOURCE = found.source;
        status->MPI_TAG = found.tag;
        status->MPI_ERROR = MPI_SUCCESS;
        status->_ucount = found.bytes;
        status->_cancelled = 0;
    }
    return OMPI_SUCCESS;
}

int mca_mtl_velo_iprobe(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int src, int tag, int *flag,
                        ompi_status_public_t *status)
{
    (void) mtl;
    return probe(comm, src, tag, flag, status, NULL);
}

int mca_mtl_velo_improbe(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int src, int tag, int *matched,
                         ompi_message_t **message, ompi_status_public_t *status)
{
    velo_match_message_t *taken = NULL;
    ompi_status_public_t found;
    int rc;

    (void) mtl;
    *message = MPI_MESSAGE_NULL;
    rc = probe(comm, src, tag, matched, &found, &taken);
    if (!*matched) {
        return rc;
    }
    *message = ompi_message_alloc();
    if (NULL == *message) {
        *matched = 0;
        return OMPI_ERR_OUT_OF_RESOURCE;
    }
    (*message)->comm = comm;
    (*message)->req_ptr = taken;
    (*message)->peer = found.MPI_SOURCE;
    (*message)->count = found._ucount;
    if (MPI_STATUS_IGNORE != status) {
        *status = found;
    }
    return OMPI_SUCCESS;
}

int mca_mtl_velo_imrecv(mca_mtl_base_module_t *mtl, opal_convertor_t *convertor, ompi_message_t **message,
                        mca_mtl_request_t *mtl_request)
{
    mca_mtl_velo_request_t *request = (mca_mtl_velo_request_t *) mtl_request;
    velo_match_message_t *taken = (*message)->req_ptr;
    void *buffer;
    int rc = prepare(request, convertor, &buffer);

    (void) mtl;
    if (OPAL_UNLIKELY(OMPI_SUCCESS != rc)) {
        return rc;
    }
    ompi_message_return(*message);
    *message = MPI_MESSAGE_NULL;
    if (mca_mtl_velo.faces.receive_message(mca_mtl_velo.engine, taken, buffer, request->capacity,
                                           &request->match.receive)) {
        finish(request);
    }
    return OMPI_SUCCESS;
}
