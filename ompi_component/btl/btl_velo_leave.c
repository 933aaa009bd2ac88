/*
 * The end of MPI: what was sent goes on until it has arrived or its receiver has ended.
 */
#include "btl_velo.h"

#include <sched.h>
#include <time.h>

#include "opal/util/output.h"
#include "opal/util/proc.h"

static bool accept_late(void *context, uint8_t tag)
{
    (void) context;
    (void) tag;
    return true;
}

static void drop_late(void *context, velo_path_t path, void *peer_context, uint8_t tag, void *data, size_t bytes)
{
    (void) context;
    (void) path;
    (void) peer_context;
    (void) tag;
    (void) data;
    (void) bytes;
}

/* After MPI_Finalize's barrier no operation of this process needs the peer. */
static void tell_late(void *context, const velo_failure_t *failure)
{
    mca_btl_velo_log(context, 1, failure->line);
}

void mca_btl_velo_leave(void)
{
    static const velo_host_t rest = {.accepts = accept_late,
                                     .receive = drop_late,
                                     .sent = mca_btl_velo_sent_late,
                                     .rma_done = mca_btl_velo_rma_done_late,
                                     .log = mca_btl_velo_log,
                                     .job_failed = tell_late};

    velo_leave(mca_btl_velo_component.engine, &rest);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

/* A receiver that computes may take its messages as late as it likes: the user is notified, once, why this process
 * stays. */
void mca_btl_velo_settle(bool (*owes)(const velo_engine_t *engine))
{
    const double told_after_s = mca_btl_velo_component.params.timeout;
    double moved = seconds();
    bool told = false;

    while (owes(mca_btl_velo_component.engine)) {
        if (0 != velo_progress(mca_btl_velo_component.engine)) {
            moved = seconds();
            continue;
        }
        (void) sched_yield();
        if (!told && seconds() - moved >= told_after_s) {
            told = true;
            opal_output(0,
                        "velo: rank %s on %s waits in MPI_Finalize since %.0f s (btl_velo_timeout): processes that "
                        "live have not taken messages of it. btl_velo_stall_report=5 says which.",
                        OPAL_VPID_PRINT(opal_proc_local_get()->proc_name.vpid), opal_process_info.nodename,
                        told_after_s);
        }
    }
}

void mca_btl_velo_leave_matching(void)
{
    velo_engine_t *engine = mca_btl_velo_component.engine;

    mca_btl_velo_leave();
    velo_match_leave(engine);
    mca_btl_velo_settle(velo_match_owes);
    velo_match_close(engine);
}
