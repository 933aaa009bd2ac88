/*
 * Open MPI's MTL over velo: matching by the engine of mca_btl_velo.so, under pml/cm.
 */
#ifndef MCA_MTL_VELO_H
#define MCA_MTL_VELO_H

#include "ompi_config.h"

#include "ompi/communicator/communicator.h"
#include "ompi/mca/mtl/base/base.h"
#include "ompi/mca/mtl/base/mtl_base_datatype.h"
#include "ompi/mca/mtl/mtl.h"
#include "ompi/mca/pml/pml.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"

#include "series.h"

#include "../common/velo_faces.h"

BEGIN_C_DECLS

typedef struct {
    mca_mtl_base_module_t super;
    velo_faces_t faces;
    velo_engine_t *engine;
} mca_mtl_velo_module_t;

extern mca_mtl_velo_module_t mca_mtl_velo;
OMPI_DECLSPEC extern mca_mtl_base_component_2_0_0_t mca_mtl_velo_component;

/* cm keeps it behind its own request. */
typedef struct {
    mca_mtl_request_t super;
    union {
        velo_match_send_t send;
        velo_match_receive_t receive;
    } match;
    opal_convertor_t *convertor;  /* where `packed` is not NULL */
    void *packed; /* memory of our own with the message, where its datatype is not contiguous; else NULL */
    size_t capacity;
    bool receives;
} mca_mtl_velo_request_t;

/* mtl_velo_send.c */
int mca_mtl_velo_send(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int dest, int tag,
                      opal_convertor_t *convertor, mca_pml_base_send_mode_t mode);
int mca_mtl_velo_isend(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int dest, int tag,
                       opal_convertor_t *convertor, mca_pml_base_send_mode_t mode, bool blocking,
                       mca_mtl_request_t *request);
void mca_mtl_velo_send_done(void *context, velo_match_send_t *send);
void mca_mtl_velo_wait(void *context, const volatile bool *done);

/* mtl_velo_receive.c */
int mca_mtl_velo_irecv(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int src, int tag,
                       opal_convertor_t *convertor, mca_mtl_request_t *request);
int mca_mtl_velo_iprobe(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int src, int tag, int *flag,
                        ompi_status_public_t *status);
int mca_mtl_velo_improbe(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm, int src, int tag, int *matched,
                         ompi_message_t **message, ompi_status_public_t *status);
int mca_mtl_velo_imrecv(mca_mtl_base_module_t *mtl, opal_convertor_t *convertor, ompi_message_t **message,
                        mca_mtl_request_t *request);
int mca_mtl_velo_cancel(mca_mtl_base_module_t *mtl, mca_mtl_request_t *request, int flag);
void mca_mtl_velo_receive_done(void *context, velo_match_receive_t *receive);

/* The place of an envelope: communicator and rank there, or MPI_ANY_SOURCE. */
static inline uint64_t mca_mtl_velo_place(const ompi_communicator_t *comm, int rank)
{
    return velo_place(VELO_CONTEXT_OF(comm), rank);
}

/* The process of that rank; NULL: mca_mtl_velo_peer() finds it. */
static inline velo_match_peer_t *mca_mtl_velo_known_peer(ompi_communicator_t *comm, int rank)
{
    ompi_proc_t *proc = ompi_group_peer_lookup_existing(comm->c_remote_group, rank);

    return OPAL_LIKELY(NULL != proc) ? (velo_match_peer_t *) proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] : NULL;
}

/* Whether a convertor's data lies in one piece that need not be packed: what ompi_mtl_datatype_pack() looks at first.
 */
static inline bool mca_mtl_velo_in_one_piece(const opal_convertor_t *convertor)
{
    return !OPAL_ENABLE_HETEROGENEOUS_SUPPORT && OPAL_LIKELY(NULL != convertor->pDesc)
           && opal_datatype_is_contiguous_memory_layout(convertor->pDesc, convertor->count);
}

/* Begin of such data, of a message to be sent. A convertor that opal has prepared has the program's buffer; cm of 4.1.4
 * prepares that of a message which is sent once by itself, with the place of its first byte. */
static inline void *mca_mtl_velo_begin_of(const opal_convertor_t *convertor)
{
    return convertor->pBaseBuf + (0 != (convertor->flags & CONVERTOR_SEND) ? convertor->pDesc->true_lb : 0);
}

/* The process of that rank; NULL: it is not reached, of which the user has been notified. */
static inline velo_match_peer_t *mca_mtl_velo_peer(ompi_communicator_t *comm, int rank)
{
    ompi_proc_t *proc = ompi_comm_peer_lookup(comm, rank);

    if (OPAL_UNLIKELY(NULL == proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL])) {
        if (OMPI_SUCCESS != MCA_PML_CALL(add_procs(&proc, 1))) {
            return NULL;
        }
    }
    return (velo_match_peer_t *) proc->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL];
}

END_C_DECLS

#endif /* MCA_MTL_VELO_H */
