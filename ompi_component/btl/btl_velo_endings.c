/*
 * The end of this process when another one has died, or when what was accepted cannot be carried out: the user
 * is notified, and the job ends.
 */
#include "btl_velo.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "opal/util/output.h"
#include "opal/util/proc.h"

static void tell(const velo_end_t *end, bool other_job)
{
    const bool network = VELO_PATH_DEVICE == end->path && velo_network_used(mca_btl_velo_component.engine);
    const uint32_t self = opal_proc_local_get()->proc_name.vpid;
    const char *host = opal_process_info.nodename;
    char *peer_host = network ? mca_btl_velo_host_of((uint32_t) end->job, end->rank) : NULL;
    char job[64] = "", silence[256] = "";

    if (other_job) {
        snprintf(job, sizeof job, " of job %" PRIu32, (uint32_t) end->job);
    }
    /* A reset connection and a link that is down tell nothing of the process behind them. */
    if (network) {
        snprintf(silence, sizeof silence,
                 "Or the connection to it was lost while messages were on it, or its host, or the network to it, has\n"
                 "gone: a process that is not heard of for %d s counts as ended (btl_velo_peer_timeout).\n",
                 mca_btl_velo_component.params.peer_timeout);
    }
    opal_output(0,
                "velo: rank %" PRIu32 "%s (pid %d on %s) has ended%s; the other ranks cannot go on without it\n"
                "\n"
                "%s by a signal, a crash, MPI_Abort or exit, or because the\n"
                "system ran out of memory.\n%sOperations with it fail, and this job is ended.\n"
                "\n"
                "  Local host: %s\n"
                "  Reporter:   rank %" PRIu32 " (pid %d)\n"
                "  Peer:       rank %" PRIu32 "%s\n"
                "  pid:        %d\n"
                "  Path:       %s%s%s\n"
                "\n"
                "Look for what that rank said last, for mpirun's line on how it ended, and in the system's log\n"
                "(dmesg) for 'Out of memory'. 'ulimit -c unlimited' makes a crash leave a core file.",
                end->rank, job, (int) end->pid, NULL != peer_host ? peer_host : host,
                network ? ", or is not reached any more" : "",
                network ? "It may have ended without MPI_Finalize:" : "It ended without MPI_Finalize:", silence, host,
                self, (int) getpid(), end->rank, job, (int) end->pid,
                VELO_PATH_ON_NODE == end->path ? "on-node ring" : "VELO packets", network ? " over " : "",
                network ? velo_device_name(mca_btl_velo_component.engine) : "");
    free(peer_host);
}

/* Shows the end of a process on another host that nothing ever came from: it may be as well as this one. */
static void tell_unreached(const velo_end_t *end)
{
    char *peer_host = mca_btl_velo_host_of((uint32_t) end->job, end->rank);

    opal_output(0,
                "velo: rank %" PRIu32 " (pid %d on %s) was never reached from here (rank %" PRIu32 " on %s, over %s),\n"
                "and this job is ended. Nothing ever came from it: a line above has its address, its port and the\n"
                "error. It may run all the same, behind a firewall or in another network (btl_velo_port_range,\n"
                "btl_velo_if_include), or have ended before its first message, which mpirun then tells.",
                end->rank, (int) end->pid, NULL != peer_host ? peer_host : "another host",
                opal_proc_local_get()->proc_name.vpid, opal_process_info.nodename,
                velo_device_name(mca_btl_velo_component.engine));
    free(peer_host);
}

/* ob1 has no callback yet, or not any more, or does not run: the runtime ends the job. */
static __attribute__((noreturn)) void end_process(void)
{
    velo_series_abort("velo: the job cannot go on");
    _exit(1);
}

/* ob1 aborts in its callback, whichever the flags: a job cannot lose a process and go on. */
static void end_job(velo_path_t path)
{
    mca_btl_velo_module_t *modules[] = {&mca_btl_velo_component.on_node, &mca_btl_velo_component.device};
    mca_btl_velo_module_t *module = modules[VELO_PATH_ON_NODE == path ? 0 : 1];

    velo_follow(mca_btl_velo_component.engine);
    if (NULL != module->error_cb) {
        module->error_cb(&module->super, MCA_BTL_ERROR_FLAGS_FATAL, NULL, NULL);
    } else if (mca_btl_velo_component.matching) {
        end_process();
    }
}

void mca_btl_velo_end_job(velo_path_t path, const char *line)
{
    opal_output(0, "%s", line);
    end_job(path);
    end_process();
}

void mca_btl_velo_job_failed(void *context, const velo_failure_t *failure)
{
    const bool other_job = failure->name >> 32 != opal_proc_local_get()->proc_name.jobid;

    (void) context;
    /* After MPI_Comm_disconnect, no operation of this process needs the peer. */
    if (other_job && !mca_btl_velo_has_communicator_with(failure->name)) {
        opal_output_verbose(1, opal_btl_base_framework.framework_output, "%s", failure->line);
        return;
    }
    mca_btl_velo_end_job(failure->path, failure->line);
}

void mca_btl_velo_peer_ended(void *context, const velo_end_t *end)
{
    const bool other_job = end->job != opal_proc_local_get()->proc_name.jobid;

    (void) context;
    if (other_job && !mca_btl_velo_has_communicator_with(end->name)) {
        return; /* it was disconnected: nothing here waits for it, and it may end as it likes */
    }
    /* For a process that only followed, the end of another one has been reported or will be. */
    if (other_job || (!end->followed && velo_claim_report(mca_btl_velo_component.engine, end->peer))) {
        if (end->unreached) {
            tell_unreached(end);
        } else {
            tell(end, other_job);
        }
    } else {
        opal_output_verbose(1, opal_btl_base_framework.framework_output,
                            "velo: rank %" PRIu32 " (pid %d) has ended; another rank reports it", end->rank,
                            (int) end->pid);
    }
    end_job(end->path);
}
