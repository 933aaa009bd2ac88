/*
 * Open MPI 5.0, where it differs from other series. Each series has a header of this name; configure puts the
 * directory of the one that it found on the include path.
 */
#ifndef VELO_SERIES_H
#define VELO_SERIES_H

#include "opal_config.h"

#include <stdint.h>
#include <stdlib.h>

#include "opal/mca/btl/btl.h"
#include "opal/mca/pmix/pmix-internal.h"
#include "opal/util/proc.h"

#include "../ob1_fragment.h"

#if OPAL_MAJOR_VERSION != 5 || OPAL_MINOR_VERSION != 0
#error "configure chose the header of Open MPI 5.0, and the headers found are of another series"
#endif

/* Names of PMIx. */
#define VELO_PMIX_GLOBAL PMIX_GLOBAL
#define VELO_PMIX_HOSTNAME PMIX_HOSTNAME
#define VELO_PMIX_JOB_SIZE PMIX_JOB_SIZE
#define VELO_PMIX_STRING PMIX_STRING
#define VELO_PMIX_UINT32 PMIX_UINT32

/* The interface of BTLs. */
#define VELO_BTL_BASE_VERSION MCA_BTL_BASE_VERSION_3_3_0

/* Flags of a module beside those of every series: a put's callback means that its data is visible at the target. */
#define VELO_MODULE_FLAGS MCA_BTL_FLAGS_RDMA_REMOTE_COMPLETION

/* osc/rdma takes no module that does not reach every process of a window, the own one included. */
#define VELO_ONE_SIDED_NEEDS_SELF 1

_Static_assert(offsetof(struct velo_ob1_fragment, bml) == 56 && offsetof(struct velo_ob1_fragment, length) == 152
                   && offsetof(struct velo_ob1_fragment, request) == 168
                   && offsetof(struct velo_ob1_fragment, offset) == 192,
               "as measured in libmpi of 5.0.7");

/* Hands a message to the tag's owner. */
static inline void velo_series_receive(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                       mca_btl_base_tag_t tag, mca_btl_base_segment_t *segment)
{
    const mca_btl_active_message_callback_t *callback = &mca_btl_base_active_message_trigger[tag];
    const mca_btl_base_receive_descriptor_t descriptor = {.endpoint = endpoint,
                                                          .des_segments = segment,
                                                          .des_segment_count = 1,
                                                          .tag = tag,
                                                          .cbdata = callback->cbdata};

    callback->cbfunc(btl, &descriptor);
}

/* Whether the sender of a message has to be connected before its message is received. Active messages for one-sided
 * operations are answered through the endpoint that they came from; without one the process is aborted. ob1 answers
 * through endpoints of its own. A sender on this node is of another job, and its end is noticed if it is connected. */
#define VELO_RECEIVE_CONNECTS(tag, on_node) ((on_node) || MCA_BTL_TAG_PML != ((tag) & 0xe0))

/* Asks the launcher to end the job; returns where it cannot be asked. */
static inline void velo_series_abort(const char *why)
{
    (void) PMIx_Abort(1, why, NULL, 0);
}

/* The launcher's number of this process among those of its host. */
static inline uint32_t velo_series_local_rank(void)
{
    return UINT16_MAX == opal_process_info.my_local_rank ? 0 : opal_process_info.my_local_rank;
}

/* Whether the launcher has hosts beyond those of this job. A process whose daemon is not the launcher's own, the
 * first one, has at least the launcher's. The number of hosts that PRRTE 3.0 tells is another one. */
static inline bool velo_series_more_hosts(const opal_process_name_t *job)
{
    pmix_rank_t daemon = 0, *daemon_ptr = &daemon;
    int rc;

    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, PMIX_SERVER_RANK, job, &daemon_ptr, PMIX_PROC_RANK);
    return OPAL_SUCCESS == rc && 0 < daemon;
}

/* Matching: parameters of mtl_init; a communicator's number; ob1 alone opens the BTLs. */
#define VELO_MTL_INIT_PARAMETERS bool enable_progress_threads, bool enable_mpi_threads, bool *accelerator_support
#define VELO_MTL_INIT_UNUSED (*accelerator_support = false)
#define VELO_CONTEXT_OF(comm) ((uint32_t) (comm)->c_index)
int mca_bml_base_init(bool enable_progress_threads, bool enable_mpi_threads);
#define velo_series_init_bml(progress_threads, threads) mca_bml_base_init(progress_threads, threads)

#endif /* VELO_SERIES_H */
