/*
 * The modules: the processes that they reach.
 */
#include "btl_velo.h"

#include <stdlib.h>
#include <string.h>

#include "opal/class/opal_bitmap.h"
#include "opal/mca/hwloc/base/base.h"
#include "opal/util/output.h"

static void construct_process(mca_btl_velo_process_t *process)
{
    memset(&process->on_node, 0, sizeof process->on_node);
    memset(&process->device, 0, sizeof process->device);
    memset(&process->one_sided, 0, sizeof process->one_sided);
    process->matched = false;
}

OBJ_CLASS_INSTANCE(mca_btl_velo_process_t, opal_list_item_t, construct_process, NULL);

static uint64_t key_of(const opal_process_name_t *name)
{
    return (uint64_t) name->jobid << 32 | name->vpid;
}

/* NULL: it is not known. */
static mca_btl_velo_process_t *find_process(uint64_t key)
{
    void *process = NULL;

    return OPAL_SUCCESS == opal_hash_table_get_value_uint64(&mca_btl_velo_component.processes, key, &process)
               ? process
               : NULL;
}

/* The process of that name, which is made if it is not known; NULL: there is no memory. */
static mca_btl_velo_process_t *process_for(uint64_t key)
{
    mca_btl_velo_process_t *process = find_process(key);

    if (NULL == process) {
        process = OBJ_NEW(mca_btl_velo_process_t);
        if (NULL == process) {
            return NULL;
        }
        if (OPAL_SUCCESS
            != opal_hash_table_set_value_uint64(&mca_btl_velo_component.processes, key, process)) {
            OBJ_RELEASE(process);
            return NULL;
        }
    }
    return process;
}

void mca_btl_velo_free_processes(void)
{
    opal_list_item_t *item;
    void *process, *node = NULL;
    uint64_t key;

    while (NULL != (item = opal_list_remove_first(&mca_btl_velo_component.departed))) {
        OBJ_RELEASE(item);
    }
    while (OPAL_SUCCESS
           == opal_hash_table_get_first_key_uint64(&mca_btl_velo_component.processes, &key, &process, &node)) {
        opal_hash_table_remove_value_uint64(&mca_btl_velo_component.processes, key);
        OBJ_RELEASE(process);
    }
}

/* Whether the user's list of BTLs has none but velo for ranks on other hosts. */
static bool velo_alone(void)
{
    static const char *const on_host[] = {"velo", "self", "vader", "sm"};
    const char *at = opal_btl_base_framework.framework_selection;
    bool velo = false;

    if (NULL == at || '^' == *at) {
        return false;
    }
    while ('\0' != *at) {
        const size_t length = strcspn(at, ",");
        size_t i = 0;

        while (i < sizeof on_host / sizeof on_host[0]
               && (strlen(on_host[i]) != length || 0 != strncmp(on_host[i], at, length))) {
            ++i;
        }
        if (sizeof on_host / sizeof on_host[0] == i) {
            return false;
        }
        velo = velo || 0 == i;
        at += length + (',' == at[length]);
    }
    return velo;
}

/* That a peer on another host is left to another BTL is nothing to worry a user with. Without one the job ends, and one
 * line of a process is enough. */
static void tell_unreached(const opal_proc_t *proc, const char *error)
{
    static bool told = false;
    const char *self = OPAL_VPID_PRINT(opal_proc_local_get()->proc_name.vpid);
    const char *other = OPAL_VPID_PRINT(proc->proc_name.vpid);
    const bool local = OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags);
    const bool show = local || (!told && velo_alone());

    told = told || !local;
    opal_output_verbose(show ? 0 : 1, show ? 0 : opal_btl_base_framework.framework_output,
                        "velo: rank %s cannot reach rank %s: %s", self, other, error);
}

/* The module that serves one-sided operations with all peers that velo reaches, whatever their path: osc/rdma wants
 * one that reaches every peer of a window. Its exclusivity keeps messages off it, where they have a module of their
 * own. */
static bool reaches_all(const mca_btl_velo_module_t *module)
{
    return (VELO_ONE_SIDED_NEEDS_SELF ? VELO_PATH_NONE : VELO_PATH_DEVICE) == module->path;
}

/* btl/self carries messages to the own process. One-sided operations on it are carried by the module that osc/rdma
 * takes, where that wants it; and by that of a network (its exclusivity is below self's): between hosts osc/rdma of
 * Open MPI 4.1 asks the first process of a host for the ranks of some others, and that may be this one. */
static bool reaches_self(const mca_btl_velo_module_t *module)
{
    return VELO_ONE_SIDED_NEEDS_SELF
               ? VELO_PATH_NONE == module->path
               : VELO_PATH_DEVICE == module->path && velo_network_used(mca_btl_velo_component.engine);
}

/* Connects to a process. NULL: it is not reached by velo. */
static mca_btl_velo_process_t *connect_to(opal_proc_t *proc, bool tell)
{
    mca_btl_velo_process_t *process;
    velo_peer_t *peer = NULL;
    char error[512] = "";
    void *address = NULL;
    size_t bytes = 0;
    int rc;

    OPAL_MODEX_RECV(rc, &mca_btl_velo_component.super.btl_version, &proc->proc_name, &address, &bytes);
    if (OPAL_SUCCESS != rc || NULL == address) {
        return NULL; /* it does not run velo */
    }
    process = process_for(key_of(&proc->proc_name));
    if (NULL == process) {
        free(address);
        return NULL;
    }
    rc = velo_connect(mca_btl_velo_component.engine, address, bytes, OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags),
                      process, &peer, error, sizeof error);
    free(address);
    if (VELO_OK != rc) {
        if (tell) {
            tell_unreached(proc, error);
        }
        return NULL;
    }
    process->on_node.peer = process->device.peer = process->one_sided.peer = peer;
    /* Open MPI's own shared memory (osc/rdma, MPI_COMM_TYPE_SHARED) cannot join two containers of a host either. */
    if (OPAL_PROC_ON_LOCAL_NODE(proc->proc_flags) && !velo_peer_attachable(peer)) {
        proc->proc_flags = OPAL_PROC_NON_LOCAL;
    }
    return process;
}

/* NULL: the peer is not reached by this module. */
static mca_btl_velo_endpoint_t *add_proc(const mca_btl_velo_module_t *module, opal_proc_t *proc)
{
    const bool self = proc == opal_proc_local_get();
    mca_btl_velo_endpoint_t *endpoint;
    mca_btl_velo_process_t *process;

    if (self && !reaches_self(module)) {
        return NULL;
    }
    process = self ? process_for(key_of(&proc->proc_name)) : connect_to(proc, VELO_PATH_ON_NODE == module->path);
    if (NULL == process) {
        return NULL;
    }
    endpoint = mca_btl_velo_endpoint_of(process, module);
    if (!self && !reaches_all(module) && module->path != velo_peer_path(endpoint->peer)) {
        return NULL;
    }
    endpoint->in_use = true;
    return endpoint;
}

int mca_btl_velo_add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                           mca_btl_base_endpoint_t **peers, opal_bitmap_t *reachable)
{
    for (size_t i = 0; i < count; ++i) {
        OPAL_THREAD_LOCK(&mca_btl_velo_component.processes_lock);
        peers[i] = add_proc((mca_btl_velo_module_t *) btl, procs[i]);
        OPAL_THREAD_UNLOCK(&mca_btl_velo_component.processes_lock);
        if (NULL != peers[i] && NULL != reachable) {
            int rc = opal_bitmap_set_bit(reachable, (int) i);
            if (OPAL_SUCCESS != rc) {
                return rc;
            }
        }
    }
    return OPAL_SUCCESS;
}

/* A process is forgotten with the last of its endpoints. */
static void forget_unused(mca_btl_velo_process_t *process, uint64_t key)
{
    velo_peer_t *peer = process->on_node.peer; /* each endpoint has this one */

    if (process->on_node.in_use || process->device.in_use || process->one_sided.in_use || process->matched) {
        return;
    }
    opal_hash_table_remove_value_uint64(&mca_btl_velo_component.processes, key);
    if (NULL == peer || velo_disconnect(mca_btl_velo_component.engine, peer)) {
        OBJ_RELEASE(process);
    } else {
        /* Callbacks that are still to come are given its endpoints. */
        opal_list_append(&mca_btl_velo_component.departed, &process->super);
    }
}

/* Processes are looked for by name: r2 may pass an endpoint twice, and compares the pointers after this call, but looks
 * at nothing behind them. */
static void del_proc(const mca_btl_velo_module_t *module, const opal_proc_t *proc)
{
    const uint64_t key = key_of(&proc->proc_name);
    mca_btl_velo_process_t *process = find_process(key);

    if (NULL != process) {
        mca_btl_velo_endpoint_of(process, module)->in_use = false;
        forget_unused(process, key);
    }
}

velo_peer_t *mca_btl_velo_connect_match(opal_proc_t *proc)
{
    mca_btl_velo_process_t *process;

    OPAL_THREAD_LOCK(&mca_btl_velo_component.processes_lock);
    process = connect_to(proc, true);
    if (NULL != process) {
        process->matched = true;
    }
    OPAL_THREAD_UNLOCK(&mca_btl_velo_component.processes_lock);
    return NULL == process ? NULL : process->on_node.peer;
}

void mca_btl_velo_disconnect_match(const opal_proc_t *proc)
{
    const uint64_t key = key_of(&proc->proc_name);
    mca_btl_velo_process_t *process;

    OPAL_THREAD_LOCK(&mca_btl_velo_component.processes_lock);
    process = find_process(key);
    if (NULL != process) {
        process->matched = false;
        forget_unused(process, key);
    }
    OPAL_THREAD_UNLOCK(&mca_btl_velo_component.processes_lock);
}

int mca_btl_velo_del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                           mca_btl_base_endpoint_t **peers)
{
    (void) peers;
    for (size_t i = 0; i < count; ++i) {
        OPAL_THREAD_LOCK(&mca_btl_velo_component.processes_lock);
        del_proc((mca_btl_velo_module_t *) btl, procs[i]);
        OPAL_THREAD_UNLOCK(&mca_btl_velo_component.processes_lock);
    }
    return OPAL_SUCCESS;
}

struct search {
    uint64_t name;
    bool found;
};

static bool is_searched(void *context, uint64_t name)
{
    struct search *search = context;

    search->found = name == search->name;
    return search->found;
}

/* The process of that name, which is connected if it is in a communicator with this one. NULL: it is not. */
static mca_btl_velo_process_t *connect_named(uint64_t key)
{
    const opal_process_name_t name = {.jobid = (uint32_t) (key >> 32), .vpid = (uint32_t) key};
    struct search search = {.name = key, .found = false};
    mca_btl_velo_process_t *process = find_process(key);
    opal_proc_t *proc;

    if ((NULL != process && NULL != process->on_node.peer) || key == key_of(&opal_proc_local_get()->proc_name)) {
        return process;
    }
    mca_btl_velo_for_each_name(is_searched, &search);
    proc = search.found ? opal_proc_for_name(name) : NULL;
    return NULL == proc ? NULL : connect_to(proc, false);
}

/* A peer may use this process before this process uses the peer. The one process is looked up that it says it is. Its
 * address, which Open MPI has from that process, then proves whether the message was of it. */
void mca_btl_velo_unconnected(void *context, velo_path_t path, velo_peer_t *peer, uint64_t name, uint8_t tag)
{
    const mca_btl_velo_process_t *process;

    (void) context;
    if (!VELO_RECEIVE_CONNECTS(tag, VELO_PATH_ON_NODE == path)) {
        return;
    }
    OPAL_THREAD_LOCK(&mca_btl_velo_component.processes_lock);
    process = connect_named(name);
    OPAL_THREAD_UNLOCK(&mca_btl_velo_component.processes_lock);
    if (NULL == process || process->on_node.peer != peer) {
        opal_output_verbose(1, opal_btl_base_framework.framework_output,
                            "velo: a message with tag %d is of a process that is in no communicator of this one", tag);
    }
}
