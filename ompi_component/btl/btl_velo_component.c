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
static mca_btl_base_module_t **component_init(int *count, bool progress_threads, bool mpi_threads);

OPAL_DECLSPEC mca_btl_velo_component_t mca_btl_velo_component = {
    .super =
        {
            .btl_version =
                {
                    VELO_BTL_BASE_VERSION,
                    .mca_component_name = "velo",
                    MCA_BASE_MAKE_VERSION(component, VELO_MAJOR_VERSION, VELO_MINOR_VERSION, VELO_RELEASE_VERSION),
                    .mca_open_component = component_open,
                    .mca_close_component = component_close,
                    .mca_register_component_params = component_register,
                },
            .btl_data = {.param_field = MCA_BASE_METADATA_PARAM_NONE},
            .btl_init = component_init,
            .btl_progress = mca_btl_velo_progress,
        },
};

/* The loader compares neither versions nor struct layouts, and those differ between series. Locks and lists are
 * compared, because some headers that say how they are laid out may be stand-ins. */
static bool right_series(void)
{
    int major = 0, minor = 0;

    if (2 == sscanf(opal_version_string, "%d.%d", &major, &minor) && OPAL_MAJOR_VERSION == major
        && OPAL_MINOR_VERSION == minor && sizeof(opal_mutex_t) == OBJ_CLASS(opal_mutex_t)->cls_sizeof
        && sizeof(opal_free_list_t) == OBJ_CLASS(opal_free_list_t)->cls_sizeof) {
        return true;
    }
    opal_output(0, "velo: this mca_btl_velo.so was built for Open MPI %d.%d and is not used by Open MPI %s; "
                   "build velo again with --with-ompi pointing at the Open MPI that runs it.",
                OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION, opal_version_string);
    return false;
}

static int component_register(void)
{
    if (!right_series()) {
        return OPAL_ERR_NOT_AVAILABLE;
    }
    mca_btl_velo_module_init(&mca_btl_velo_component.on_node, VELO_PATH_ON_NODE);
    mca_btl_velo_module_init(&mca_btl_velo_component.device, VELO_PATH_DEVICE);
    mca_btl_velo_module_init(&mca_btl_velo_component.one_sided, VELO_PATH_NONE);
    mca_btl_velo_register_params();
    return mca_btl_base_param_register(&mca_btl_velo_component.super.btl_version,
                                       &mca_btl_velo_component.device.super);
}

static int component_open(void)
{
    mca_btl_velo_component.engine = NULL;
    mca_btl_velo_component.matching = false;
    mca_btl_velo_component.modules = 0;
    OBJ_CONSTRUCT(&mca_btl_velo_component.short_frags, opal_free_list_t);
    OBJ_CONSTRUCT(&mca_btl_velo_component.long_frags, opal_free_list_t);
    OBJ_CONSTRUCT(&mca_btl_velo_component.rma_requests, opal_free_list_t);
    OBJ_CONSTRUCT(&mca_btl_velo_component.registrations, opal_free_list_t);
    OBJ_CONSTRUCT(&mca_btl_velo_component.departed, opal_list_t);
    OBJ_CONSTRUCT(&mca_btl_velo_component.processes_lock, opal_mutex_t);
    OBJ_CONSTRUCT(&mca_btl_velo_component.processes, opal_hash_table_t);
    return opal_hash_table_init(&mca_btl_velo_component.processes, 64);
}

static int component_close(void)
{
    if (NULL != mca_btl_velo_component.engine) {
        velo_close(mca_btl_velo_component.engine);
        mca_btl_velo_component.engine = NULL;
    }
    mca_btl_velo_free_processes();
    OBJ_DESTRUCT(&mca_btl_velo_component.processes);
    OBJ_DESTRUCT(&mca_btl_velo_component.departed);
    OBJ_DESTRUCT(&mca_btl_velo_component.processes_lock);
    OBJ_DESTRUCT(&mca_btl_velo_component.short_frags);
    OBJ_DESTRUCT(&mca_btl_velo_component.long_frags);
    OBJ_DESTRUCT(&mca_btl_velo_component.rma_requests);
    OBJ_DESTRUCT(&mca_btl_velo_component.registrations);
    return OPAL_SUCCESS;
}

void mca_btl_velo_log(void *context, int level, const char *line)
{
    (void) context;
    if (0 == level) {
        opal_output(0, "%s", line);
    } else {
        opal_output_verbose(level, opal_btl_base_framework.framework_output, "%s", line);
    }
}

/* All ranks of a node see the same parameters: one line is enough. */
static void refuse(const char *error, uint32_t local_rank)
{
    char sources[512], line[1280];

    mca_btl_velo_explain(error, sources, sizeof sources);
    snprintf(line, sizeof line, "velo is not used on %s: %s%s%s%s", opal_process_info.nodename, error,
             '\0' == sources[0] ? "" : " (", sources, '\0' == sources[0] ? "" : ")");
    mca_btl_velo_log(NULL, 0 == local_rank ? 0 : 1, line);
}

static uint64_t name_of(const opal_process_name_t *name)
{
    return (uint64_t) name->jobid << 32 | name->vpid;
}

char *mca_btl_velo_host_of(uint32_t job, uint32_t rank)
{
    opal_process_name_t name = {.jobid = job, .vpid = rank};
    char *text = NULL;
    int rc;

    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, VELO_PMIX_HOSTNAME, &name, &text, VELO_PMIX_STRING);
    return OPAL_SUCCESS == rc ? text : NULL;
}

/* The number of the host that a rank is on, which is that of the first rank seen there; a new one gets the next. */
static int number_host(opal_hash_table_t *numbers, uint32_t job, uint32_t rank, uint32_t next, uint32_t *host)
{
    char *text = mca_btl_velo_host_of(job, rank);
    void *number;
    int rc = OPAL_SUCCESS;

    if (NULL == text) {
        return OPAL_ERR_NOT_FOUND;
    }
    if (OPAL_SUCCESS == opal_hash_table_get_value_ptr(numbers, text, strlen(text), &number)) {
        *host = (uint32_t) (uintptr_t) number;
    } else {
        *host = next;
        rc = opal_hash_table_set_value_ptr(numbers, text, strlen(text), (void *) (uintptr_t) next);
    }
    free(text);
    return rc;
}

/* Of the launcher's map, a process has the host's name of each rank. It is no help to ask for the numbers of hosts
 * (PMIX_NODEID), which are known of the own host's ranks only, nor for the ranks of a host: PMIx_Resolve_peers()
 * of PMIx 4.2 waits without end. Names are looked for only where there are several hosts. */
static int find_hosts(velo_identity_t *identity)
{
    const uint32_t job = opal_proc_local_get()->proc_name.jobid;
    uint32_t *ranks = NULL, on_second = 0;
    opal_hash_table_t numbers;
    int rc;

    identity->other_host[0] = '\0';
    identity->host = 0;
    identity->hosts = 1;
    identity->host_ranks_min = identity->job_size;
    if (identity->local_size >= identity->job_size) {
        return OPAL_SUCCESS;
    }
    ranks = calloc(identity->job_size, sizeof *ranks);
    OBJ_CONSTRUCT(&numbers, opal_hash_table_t);
    rc = NULL == ranks ? OPAL_ERR_OUT_OF_RESOURCE : opal_hash_table_init(&numbers, 1024);
    identity->hosts = 0;
    for (uint32_t rank = 0; OPAL_SUCCESS == rc && rank < identity->job_size; ++rank) {
        uint32_t host = 0;

        rc = number_host(&numbers, job, rank, identity->hosts, &host);
        if (host == identity->hosts) {
            on_second = 1 == host ? rank : on_second;
            ++identity->hosts;
        }
        ++ranks[host];
        if (rank == identity->rank) {
            identity->host = host;
        }
    }
    for (uint32_t host = 0; OPAL_SUCCESS == rc && host < identity->hosts; ++host) {
        if (ranks[host] < identity->host_ranks_min) {
            identity->host_ranks_min = ranks[host];
        }
    }
    if (OPAL_SUCCESS == rc && 1 < identity->hosts) {
        char *name = mca_btl_velo_host_of(job, 0 == identity->host ? on_second : 0);

        snprintf(identity->other_host, sizeof identity->other_host, "%s", NULL == name ? "" : name);
        free(name);
    }
    OBJ_DESTRUCT(&numbers);
    free(ranks);
    return rc;
}

static int own_identity(velo_identity_t *identity)
{
    const opal_process_name_t *self = &opal_proc_local_get()->proc_name;
    opal_process_name_t job = {.jobid = self->jobid, .vpid = OPAL_VPID_WILDCARD};
    uint32_t size = 0, *size_ptr = &size;
    int rc;

    OPAL_MODEX_RECV_VALUE_OPTIONAL(rc, VELO_PMIX_JOB_SIZE, &job, &size_ptr, VELO_PMIX_UINT32);
    if (OPAL_SUCCESS != rc || 0 == size) {
        size = 1; /* a process that was not started by mpirun */
    }
    identity->name = name_of(self);
    identity->job = self->jobid;
    identity->rank = self->vpid;
    identity->job_size = size;
    identity->local_rank = velo_series_local_rank();
    identity->local_size = (uint32_t) opal_process_info.num_local_peers + 1;
    identity->more_hosts = velo_series_more_hosts(&job);
    rc = find_hosts(identity);
    if (OPAL_SUCCESS != rc) {
        opal_output(0, "velo is not used on %s: the launcher does not say on which host each of %u ranks is (error %d)",
                    opal_process_info.nodename, size, rc);
    }
    return rc;
}

static int init_free_lists(void)
{
    const struct {
        opal_free_list_t *list;
        size_t bytes;
        opal_class_t *class;
        int max; /* -1: no limit */
        int inc;
    } lists[] = {
        {&mca_btl_velo_component.short_frags, sizeof(mca_btl_velo_frag_t) + MCA_BTL_VELO_SHORT_BYTES,
         OBJ_CLASS(mca_btl_velo_frag_t), 512, 32},
        {&mca_btl_velo_component.long_frags, sizeof(mca_btl_velo_frag_t) + MCA_BTL_VELO_LONG_BYTES,
         OBJ_CLASS(mca_btl_velo_frag_t), 32, 8},
        {&mca_btl_velo_component.rma_requests, sizeof(mca_btl_velo_rma_t), OBJ_CLASS(mca_btl_velo_rma_t), -1, 32},
        {&mca_btl_velo_component.registrations, sizeof(mca_btl_velo_registration_t),
         OBJ_CLASS(mca_btl_velo_registration_t), -1, 32},
    };

    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; ++i) {
        int rc = opal_free_list_init(lists[i].list, lists[i].bytes, opal_cache_line_size, lists[i].class, 0,
                                     opal_cache_line_size, 0, lists[i].max, lists[i].inc, NULL, 0, NULL, NULL, NULL);
        if (OPAL_SUCCESS != rc) {
            return rc;
        }
    }
    return OPAL_SUCCESS;
}

/* Open MPI's topology, where it has loaded one by now: it does so for ranks that it does not bind. To make it
 * load one takes ten times what everything else here does. One of an hwloc of its own is not ours to read. */
static struct hwloc_topology *loaded_topology(void)
{
#if VELO_HOST_HWLOC
    return opal_hwloc_topology;
#else
    return NULL;
#endif
}

static uint32_t longest_message(const mca_btl_base_module_t *module)
{
    size_t longest = module->btl_eager_limit;

    if (module->btl_max_send_size > longest) {
        longest = module->btl_max_send_size;
    }
    if (module->btl_rndv_eager_limit > longest) {
        longest = module->btl_rndv_eager_limit;
    }
    return longest < UINT32_MAX ? (uint32_t) longest : UINT32_MAX;
}

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
