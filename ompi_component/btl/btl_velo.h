/*
 * Open MPI's BTL over velo: what the files of this component share.
 *
 * Two modules: one for peers on the same (emulated) node, one for peers behind the device. Both are thin;
 * which path a peer takes is the engine's choice, and each module claims the peers of its path.
 */
#ifndef MCA_BTL_VELO_H
#define MCA_BTL_VELO_H

#include "opal_config.h"

#include "opal/class/opal_free_list.h"
#include "opal/class/opal_hash_table.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/btl.h"

#include "series.h"
#include "velo/velo_match.h"

BEGIN_C_DECLS

typedef struct mca_btl_velo_module_t {
    mca_btl_base_module_t super;
    velo_path_t path; /* of the peers whose messages it carries; none: it carries no messages */
    mca_btl_base_module_error_cb_fn_t error_cb; /* ob1's; ends this process */
} mca_btl_velo_module_t;

typedef struct mca_btl_velo_component_t {
    mca_btl_base_component_t super;
    velo_params_t params;
    velo_engine_t *engine;
    mca_btl_velo_module_t on_node;
    mca_btl_velo_module_t device;
    mca_btl_velo_module_t one_sided; /* in use where VELO_ONE_SIDED_NEEDS_SELF */
    opal_free_list_t short_frags;
    opal_free_list_t long_frags;
    opal_free_list_t rma_requests;
    opal_free_list_t registrations;
    opal_mutex_t processes_lock; /* of the two below */
    opal_hash_table_t processes; /* mca_btl_velo_process_t by name */
    opal_list_t departed;        /* those deleted while something of theirs was pending */
    bool matching; /* the MTL is used: it is this component that ends the job when a peer ends */
    int modules;   /* open ones */
} mca_btl_velo_component_t;

OPAL_DECLSPEC extern mca_btl_velo_component_t mca_btl_velo_component;

/* A peer as one module sees it. Modules give out different endpoints for one peer, because ob1 tells a BTL that
 * serves one-sided operations only from one that also sends by comparing them. */
typedef struct mca_btl_base_endpoint_t {
    velo_peer_t *peer; /* NULL: the own process */
    bool in_use; /* from add_procs to del_procs */
} mca_btl_base_endpoint_t;
typedef struct mca_btl_base_endpoint_t mca_btl_velo_endpoint_t;

typedef struct mca_btl_velo_process_t {
    opal_list_item_t super;
    mca_btl_velo_endpoint_t on_node;
    mca_btl_velo_endpoint_t device;
    mca_btl_velo_endpoint_t one_sided;
    bool matched; /* the MTL uses it */
} mca_btl_velo_process_t;
OBJ_CLASS_DECLARATION(mca_btl_velo_process_t);

/* A descriptor; its payload follows it in memory. */
typedef struct mca_btl_velo_frag_t {
    mca_btl_base_descriptor_t base;
    mca_btl_base_segment_t segments[2]; /* header, and payload that lies elsewhere */
    velo_send_t send;
    mca_btl_velo_module_t *module;
    mca_btl_velo_endpoint_t *endpoint;
    opal_free_list_t *list; /* NULL: memory of its own */
} mca_btl_velo_frag_t;
OBJ_CLASS_DECLARATION(mca_btl_velo_frag_t);

/* Every header of ob1's, and the longest message that it sends with sendi alone. */
#define MCA_BTL_VELO_SHORT_BYTES 320
/* No message is longer by default. */
#define MCA_BTL_VELO_LONG_BYTES (32768 + VELO_OB1_HEADER_BYTES)

/* Longest message that a network carries as VELO packets by default, if its device takes it in one go: to fetch one
 * costs a round trip more, to copy it costs bandwidth. */
#define MCA_BTL_VELO_NETWORK_BYTES (65536 + VELO_OB1_HEADER_BYTES)

/* An outstanding put, get or atomic. */
typedef struct mca_btl_velo_rma_t {
    opal_free_list_item_t super;
    velo_rma_t rma;
    mca_btl_velo_module_t *module;
    mca_btl_velo_endpoint_t *endpoint;
    mca_btl_base_registration_handle_t *local_handle;
    mca_btl_base_rdma_completion_fn_t cbfunc;
    void *cbcontext;
    void *cbdata;
    uint64_t result; /* of an atomic whose caller wants none */
} mca_btl_velo_rma_t;
OBJ_CLASS_DECLARATION(mca_btl_velo_rma_t);

/* A peer's means to access a registered range; published as bytes. */
struct mca_btl_base_registration_handle_t {
    velo_handle_t handle;
};

typedef struct mca_btl_velo_registration_t {
    opal_free_list_item_t super;
    struct mca_btl_base_registration_handle_t handle;
} mca_btl_velo_registration_t;
OBJ_CLASS_DECLARATION(mca_btl_velo_registration_t);

static inline mca_btl_velo_endpoint_t *mca_btl_velo_endpoint_of(mca_btl_velo_process_t *process,
                                                                const mca_btl_velo_module_t *module)
{
    switch (module->path) {
    case VELO_PATH_ON_NODE:
        return &process->on_node;
    case VELO_PATH_DEVICE:
        return &process->device;
    default:
        return &process->one_sided;
    }
}

/* btl_velo_module.c */
void mca_btl_velo_module_init(mca_btl_velo_module_t *module, velo_path_t path);
bool mca_btl_velo_accepts(void *context, uint8_t tag);
void mca_btl_velo_receive(void *context, velo_path_t path, void *peer_context, uint8_t tag, void *data,
                          size_t bytes);
void mca_btl_velo_sent(void *context, velo_send_t *send, int status);
/* Without a callback. */
void mca_btl_velo_sent_late(void *context, velo_send_t *send, int status);

/* btl_velo_peers.c */
int mca_btl_velo_add_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                           mca_btl_base_endpoint_t **peers, struct opal_bitmap_t *reachable);
int mca_btl_velo_del_procs(mca_btl_base_module_t *btl, size_t count, opal_proc_t **procs,
                           mca_btl_base_endpoint_t **peers);
void mca_btl_velo_unconnected(void *context, velo_path_t path, velo_peer_t *peer, uint64_t name, uint8_t tag);
void mca_btl_velo_free_processes(void);
velo_peer_t *mca_btl_velo_connect_match(opal_proc_t *proc);
void mca_btl_velo_disconnect_match(const opal_proc_t *proc);

/* btl_velo_rdma.c */
void mca_btl_velo_rdma_init(mca_btl_base_module_t *module);
void mca_btl_velo_rma_done(void *context, velo_rma_t *rma, int status);
/* Without a callback. */
void mca_btl_velo_rma_done_late(void *context, velo_rma_t *rma, int status);

/* btl_velo_leave.c */
/* No callback of the host is called any more, and what comes is dropped. Again: nothing. */
void mca_btl_velo_leave(void);
/* Makes progress until this process owes nothing more, which its peers' ends see to. */
void mca_btl_velo_settle(bool (*owes)(const velo_engine_t *engine));
/* MPI ends for matching: until its messages are received, or their receivers have ended or left. */
void mca_btl_velo_leave_matching(void);

/* btl_velo_component.c */
int mca_btl_velo_progress(void);
/* A line of the engine for the user: level 0 always, others where Open MPI is verbose. */
void mca_btl_velo_log(void *context, int level, const char *line);
/* The name of the host that a rank is on, to be freed; NULL: the launcher does not say. */
char *mca_btl_velo_host_of(uint32_t job, uint32_t rank);

/* btl_velo_endings.c */
void mca_btl_velo_peer_ended(void *context, const velo_end_t *end);
/* Shows the line, which names rank, cause and remedy, and ends the job. The path is the one that failed. */
__attribute__((noreturn)) void mca_btl_velo_end_job(velo_path_t path, const char *line);
void mca_btl_velo_job_failed(void *context, const velo_failure_t *failure);

/* btl_velo_ob1.c */
/* Calls visit with the name of each process that is in a communicator with this one, until it returns true. */
void mca_btl_velo_for_each_name(bool (*visit)(void *context, uint64_t name), void *context);
/* True unless it is certain that no communicator of this process has that one in it. */
bool mca_btl_velo_has_communicator_with(uint64_t name);
size_t mca_btl_velo_receivable(const void *local_address, size_t size, const void *cbcontext,
                               const void *cbdata);

/* btl_velo_params.c */
/* Gives the device's module the limits of a network, but for those that the user has set. */
void mca_btl_velo_set_network_limits(size_t bytes);
/* Gives the on-node module the limits of ranks that share CPUs, but for those that the user has set. */
void mca_btl_velo_set_shared_cpu_limits(void);
int mca_btl_velo_register_params(void);
/* A sentence on what the user gave and cannot be; NULL: nothing. */
const char *mca_btl_velo_check_params(void);
/* Writes where the parameters that `text` names got their values from. */
void mca_btl_velo_explain(const char *text, char *sources, size_t bytes);

static inline int mca_btl_velo_status(int status)
{
    switch (status) {
    case VELO_OK:
        return OPAL_SUCCESS;
    case VELO_AGAIN:
        return OPAL_ERR_RESOURCE_BUSY;
    case VELO_NO_RESOURCE:
        return OPAL_ERR_OUT_OF_RESOURCE;
    case VELO_PEER_DEAD:
    case VELO_UNSUPPORTED:
        return OPAL_ERR_UNREACH;
    case VELO_BAD_PARAM:
        return OPAL_ERR_BAD_PARAM;
    default:
        return OPAL_ERROR;
    }
}

END_C_DECLS

#endif /* MCA_BTL_VELO_H */
