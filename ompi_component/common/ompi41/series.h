/*
 * Open MPI 4.1, where it differs from other series. Each series has a header of this name; configure puts the
 * directory of the one that it found on the include path.
 */
#ifndef VELO_SERIES_H
#define VELO_SERIES_H

#include "opal_config.h"

#include <stdint.h>
#include <stdlib.h>

#include "opal/mca/btl/btl.h"
#include "opal/mca/pmix/pmix.h"
#include "opal/util/proc.h"

#include "../ob1_fragment.h"

#if OPAL_MAJOR_VERSION != 4 || OPAL_MINOR_VERSION != 1
#error "configure chose the header of Open MPI 4.1, and the headers found are of another series"
#endif

/* Names of PMIx. */
#define VELO_PMIX_GLOBAL OPAL_PMIX_GLOBAL
#define VELO_PMIX_HOSTNAME OPAL_PMIX_HOSTNAME
#define VELO_PMIX_JOB_SIZE OPAL_PMIX_JOB_SIZE
#define VELO_PMIX_STRING OPAL_STRING
#define VELO_PMIX_UINT32 OPAL_UINT32

/* The interface of BTLs. */
#define VELO_BTL_BASE_VERSION MCA_BTL_BASE_VERSION_3_1_0

/* Flags of a module beside those of every series. */
#define VELO_MODULE_FLAGS 0

/* osc/rdma takes a module that does not reach the own process. */
#define VELO_ONE_SIDED_NEEDS_SELF 0

_Static_assert(offsetof(struct velo_ob1_fragment, bml) == 56 && offsetof(struct velo_ob1_fragment, length) == 128
                   && offsetof(struct velo_ob1_fragment, request) == 144
                   && offsetof(struct velo_ob1_fragment, offset) == 168,
               "as measured in mca_pml_ob1 of 4.1.4");

/* Hands a message to the tag's owner. Owners look at nothing of the descriptor but its segments. */
static inline void velo_series_receive(mca_btl_base_module_t *btl, struct mca_btl_base_endpoint_t *endpoint,
                                       mca_btl_base_tag_t tag, mca_btl_base_segment_t *segment)
{
    const mca_btl_active_message_callback_t *callback = &mca_btl_base_active_message_trigger[tag];
    mca_btl_base_descriptor_t descriptor;

    (void) endpoint;
    descriptor.des_segments = segment;
    descriptor.des_segment_count = 1;
    descriptor.des_flags = 0;
    descriptor.des_cbfunc = NULL;
    callback->cbfunc(btl, tag, &descriptor, callback->cbdata);
}

/* Whether the sender of a message has to be connected before its message is received. Owners of tags answer through
 * endpoints of their own, and processes of another job are connected when the jobs meet. */
#define VELO_RECEIVE_CONNECTS(tag, on_node) ((void) (tag), (void) (on_node), false)

/* Asks the launcher to end the job; returns where it cannot be asked. */
static inline void velo_series_abort(const char *why)
{
    if (NULL != opal_pmix.abort) {
        (void) opal_pmix.abort(1, why, NULL);
    }
}

/* The launcher's number of this process among those of its host. */
static inline uint32_t velo_series_local_rank(void)
{
    return (uint32_t) opal_process_info.my_local_rank;
}

/* Whether the launcher has hosts beyond those of this job. It tells processes that mpirun did not start itself, as the
 * number of its daemons; those of mpirun's own host see the hosts of their job only. */
static inline bool velo_series_more_hosts(const opal_process_name_t *job)
{
    const char *daemons = getenv("OMPI_MCA_ess_base_num_procs");

    (void) job;
    return NULL != daemons && 1 < strtol(daemons, NULL, 10);
}

/* Matching: parameters of mtl_init; a communicator's number; the BTLs are open whichever PML runs. */
#define VELO_MTL_INIT_PARAMETERS bool enable_progress_threads, bool enable_mpi_threads
#define VELO_MTL_INIT_UNUSED ((void) 0)
#define VELO_CONTEXT_OF(comm) ((uint32_t) (comm)->c_contextid)
#define velo_series_init_bml(progress_threads, threads) ((void) (progress_threads), (void) (threads), 0)

#endif /* VELO_SERIES_H */
