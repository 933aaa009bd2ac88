/*
 * Life of the component: register, open, init, progress, close.
 */
#include "btl_velo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if VELO_HOST_HWLOC
#include "opal/mca/hwloc/hwloc-internal.h"
#endif
#include "opal/runtime/opal.h"
#include "opal/util/output.h"
#include "opal/util/proc.h"

static int component_register(void);
static int component_open(void);
static int component_close(void);
/* Opens the engine, and takes the limits of messages that follow from what it is opened on. False: not usable. */
static bool open_engine(const velo_identity_t *identity, bool mpi_threads)
{
    velo_params_t *params = &mca_btl_velo_component.params;
    const velo_host_t host = {.topology = loaded_topology(),
                              .accepts = mca_btl_velo_accepts,
                              .receive = mca_btl_velo_receive,
                              .unconnected = mca_btl_velo_unconnected,
                              .sent = mca_btl_velo_sent,
                              .rma_done = mca_btl_velo_rma_done,
                              .peer_ended = mca_btl_velo_peer_ended,
                              .log = mca_btl_velo_log,
                              .job_failed = mca_btl_velo_job_failed};
    char error[512];

    if (velo_network_wanted(params, identity)) {
        mca_btl_velo_set_network_limits(MCA_BTL_VELO_NETWORK_BYTES);
    }
    params->threads = mpi_threads;
    params->on_node_message_bytes_max = longest_message(&mca_btl_velo_component.on_node.super);
    params->device_message_bytes_max = longest_message(&mca_btl_velo_component.device.super);
    mca_btl_velo_component.engine = velo_open(params, identity, &host, error, sizeof error);
    if (NULL == mca_btl_velo_component.engine) {
        refuse(error, identity->local_rank);
        return false;
    }
    if (velo_shares_cpus(mca_btl_velo_component.engine)) {
        mca_btl_velo_set_shared_cpu_limits();
    }
    if (velo_network_used(mca_btl_velo_component.engine)) {
        const size_t at_once = velo_device_send_bytes_max(mca_btl_velo_component.engine);

        if (at_once < MCA_BTL_VELO_NETWORK_BYTES) {
            mca_btl_velo_set_network_limits(at_once);
        }
    }
    return true;
}

static bool publish_address(uint32_t rank)
{
    char address[VELO_ADDRESS_BYTES_MAX];
    const size_t bytes = velo_address(mca_btl_velo_component.engine, address, sizeof address);
    int rc;

    OPAL_MODEX_SEND(rc, VELO_PMIX_GLOBAL, &mca_btl_velo_component.super.btl_version, address, bytes);
    if (OPAL_SUCCESS != rc) {
        opal_output(0, "velo: rank %u could not publish its address (error %d); velo is not used", rank, rc);
        return false;
    }
    return true;
}

/* The modules that this process uses. The base frees the array. */
static mca_btl_base_module_t **list_modules(int *count)
{
    mca_btl_base_module_t **modules = calloc(3, sizeof *modules);

    if (NULL == modules) {
        return NULL;
    }
    modules[(*count)++] = &mca_btl_velo_component.on_node.super;
    if (velo_device_used(mca_btl_velo_component.engine)) {
        mca_btl_base_module_t *device = &mca_btl_velo_component.device.super;

        if (velo_network_used(mca_btl_velo_component.engine) && device->btl_exclusivity >= MCA_BTL_EXCLUSIVITY_HIGH) {
            device->btl_exclusivity = MCA_BTL_EXCLUSIVITY_HIGH - 1;
        }
        modules[(*count)++] = device;
    }
    if (VELO_ONE_SIDED_NEEDS_SELF) {
        modules[(*count)++] = &mca_btl_velo_component.one_sided.super;
    }
    /* Not before: the parameter for flags does not know these, and ompi_info would not show it. */
    for (int i = 0; i < *count; ++i) {
        modules[i]->btl_flags |= VELO_MODULE_FLAGS;
    }
    mca_btl_velo_component.modules = *count;
    return modules;
}

static mca_btl_base_module_t **component_init(int *count, bool progress_threads, bool mpi_threads)
{
    velo_identity_t identity;
    const char *refused;

    (void) progress_threads;
    *count = 0;
    if (OPAL_SUCCESS != own_identity(&identity)) {
        return NULL;
    }
    refused = mca_btl_velo_check_params();
    if (NULL != refused) {
        refuse(refused, identity.local_rank);
        return NULL;
    }
    if (!open_engine(&identity, mpi_threads) || OPAL_SUCCESS != init_free_lists() || !publish_address(identity.rank)) {
        return NULL;
    }
    return list_modules(count);
}

int mca_btl_velo_progress(void)
{
    return velo_progress(mca_btl_velo_component.engine);
}
