/*
 * The modules: registrations, puts, gets and atomics. The engine splits, queues and falls back; nothing here
 * is ever refused because a queue is full, since ob1 does not retry a get that failed.
 */
#include "btl_velo.h"

OBJ_CLASS_INSTANCE(mca_btl_velo_rma_t, opal_free_list_item_t, NULL, NULL);

static mca_btl_base_registration_handle_t *register_mem(mca_btl_base_module_t *btl,
                                                        mca_btl_base_endpoint_t *endpoint, void *base,
                                                        size_t size, uint32_t flags)
{
    mca_btl_velo_registration_t *registration
        = (mca_btl_velo_registration_t *) opal_free_list_get(&mca_btl_velo_component.registrations);
    uint32_t access = 0;

    (void) btl;
    (void) endpoint;
    if (OPAL_UNLIKELY(NULL == registration)) {
        return NULL;
    }
    if (flags & MCA_BTL_REG_FLAG_REMOTE_READ) {
        access |= 1;
    }
    if (flags & MCA_BTL_REG_FLAG_REMOTE_WRITE) {
        access |= 2;
    }
    if (flags & MCA_BTL_REG_FLAG_REMOTE_ATOMIC) {
        access |= 4;
    }
    registration->handle.handle = (velo_handle_t){.base = (uintptr_t) base, .bytes = size};
    /* Memory that no peer will touch needs no place in the tables. */
    if (0 != access
        && VELO_OK != velo_register(mca_btl_velo_component.engine, base, size, access, &registration->handle.handle)) {
        opal_free_list_return(&mca_btl_velo_component.registrations, &registration->super);
        return NULL;
    }
    return &registration->handle;
}

static int deregister_mem(mca_btl_base_module_t *btl, mca_btl_base_registration_handle_t *handle)
{
    mca_btl_velo_registration_t *registration
        = (mca_btl_velo_registration_t *) ((char *) handle - offsetof(mca_btl_velo_registration_t, handle));

    (void) btl;
    if (0 != handle->handle.on_node_key) {
        velo_deregister(mca_btl_velo_component.engine, &handle->handle);
    }
    opal_free_list_return(&mca_btl_velo_component.registrations, &registration->super);
    return OPAL_SUCCESS;
}

/* Arguments that the caller of every operation gave. */
struct request {
    mca_btl_base_module_t *btl;
    mca_btl_base_endpoint_t *endpoint;
    void *local_address;
    uint64_t remote_address;
    mca_btl_base_registration_handle_t *local_handle;
    mca_btl_base_registration_handle_t *remote_handle;
    mca_btl_base_rdma_completion_fn_t cbfunc;
    void *cbcontext;
    void *cbdata;
};

static int post(const struct request *request, const velo_rma_t *operation)
{
    mca_btl_velo_rma_t *rma;

    if (OPAL_UNLIKELY(NULL == request->endpoint || NULL == request->endpoint->peer || NULL == request->remote_handle)) {
        /* The own process's endpoint has no peer. osc/rdma before 4.1.5 sends compare-and-swap on memory that this
         * process has mapped itself: its own has no endpoint, that of MPI_Win_allocate no handle. */
        velo_rma_t here = *operation;
        here.local = request->local_address;
        here.remote_address = request->remote_address;
        velo_rma_here(&here);
        if (NULL != request->cbfunc) {
            request->cbfunc(request->btl, request->endpoint, request->local_address, request->local_handle,
                            request->cbcontext, request->cbdata, OPAL_SUCCESS);
        }
        return OPAL_SUCCESS;
    }
    rma = (mca_btl_velo_rma_t *) opal_free_list_get(&mca_btl_velo_component.rma_requests);
    if (OPAL_UNLIKELY(NULL == rma)) {
        return OPAL_ERR_OUT_OF_RESOURCE;
    }
    rma->module = (mca_btl_velo_module_t *) request->btl;
    rma->endpoint = request->endpoint;
    rma->local_handle = request->local_handle;
    rma->cbfunc = request->cbfunc;
    rma->cbcontext = request->cbcontext;
    rma->cbdata = request->cbdata;
    rma->rma = *operation;
    rma->rma.local = request->local_address;
    rma->rma.remote_address = request->remote_address;
    rma->rma.remote = request->remote_handle->handle;
    velo_rma(mca_btl_velo_component.engine, request->endpoint->peer, &rma->rma);
    return OPAL_SUCCESS;
}

void mca_btl_velo_rma_done(void *context, velo_rma_t *done, int status)
{
    mca_btl_velo_rma_t *rma = (mca_btl_velo_rma_t *) ((char *) done - offsetof(mca_btl_velo_rma_t, rma));

    (void) context;
    if (NULL != rma->cbfunc) {
        rma->cbfunc(&rma->module->super, rma->endpoint, rma->rma.local, rma->local_handle, rma->cbcontext,
                    rma->cbdata, mca_btl_velo_status(status));
    }
    opal_free_list_return(&mca_btl_velo_component.rma_requests, &rma->super);
}

void mca_btl_velo_rma_done_late(void *context, velo_rma_t *done, int status)
{
    mca_btl_velo_rma_t *rma = (mca_btl_velo_rma_t *) ((char *) done - offsetof(mca_btl_velo_rma_t, rma));

    (void) context;
    (void) status;
    opal_free_list_return(&mca_btl_velo_component.rma_requests, &rma->super);
}

static int put(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint, void *local_address,
               uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
               mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
               mca_btl_base_rdma_completion_fn_t cbfunc, void *cbcontext, void *cbdata)
{
    const struct request request = {btl,           endpoint, local_address, remote_address, local_handle,
                                    remote_handle, cbfunc,   cbcontext,     cbdata};
    const velo_rma_t operation = {.kind = VELO_RMA_PUT, .bytes = size};

    (void) flags;
    (void) order;
    return post(&request, &operation);
}

static int get(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint, void *local_address,
               uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
               mca_btl_base_registration_handle_t *remote_handle, size_t size, int flags, int order,
               mca_btl_base_rdma_completion_fn_t cbfunc, void *cbcontext, void *cbdata)
{
    const struct request request = {btl,           endpoint, local_address, remote_address, local_handle,
                                    remote_handle, cbfunc,   cbcontext,     cbdata};
    const velo_rma_t operation
        = {.kind = VELO_RMA_GET, .bytes = mca_btl_velo_receivable(local_address, size, cbcontext, cbdata)};

    (void) flags;
    (void) order;
    return post(&request, &operation);
}

static int to_atomic(mca_btl_base_atomic_op_t op, velo_atomic_t *atomic)
{
    switch (op) {
    case MCA_BTL_ATOMIC_ADD:
        *atomic = VELO_ATOMIC_ADD;
        return OPAL_SUCCESS;
    case MCA_BTL_ATOMIC_AND:
        *atomic = VELO_ATOMIC_AND;
        return OPAL_SUCCESS;
    case MCA_BTL_ATOMIC_OR:
        *atomic = VELO_ATOMIC_OR;
        return OPAL_SUCCESS;
    case MCA_BTL_ATOMIC_XOR:
        *atomic = VELO_ATOMIC_XOR;
        return OPAL_SUCCESS;
    case MCA_BTL_ATOMIC_SWAP:
        *atomic = VELO_ATOMIC_SWAP;
        return OPAL_SUCCESS;
    case MCA_BTL_ATOMIC_MIN:
        *atomic = VELO_ATOMIC_MIN;
        return OPAL_SUCCESS;
    case MCA_BTL_ATOMIC_MAX:
        *atomic = VELO_ATOMIC_MAX;
        return OPAL_SUCCESS;
    /* osc/rdma of Open MPI 4.1 hands these over without asking for them in btl_atomic_flags. */
    case MCA_BTL_ATOMIC_LAND:
        *atomic = VELO_ATOMIC_LOGICAL_AND;
        return OPAL_SUCCESS;
    case MCA_BTL_ATOMIC_LOR:
        *atomic = VELO_ATOMIC_LOGICAL_OR;
        return OPAL_SUCCESS;
    case MCA_BTL_ATOMIC_LXOR:
        *atomic = VELO_ATOMIC_LOGICAL_XOR;
        return OPAL_SUCCESS;
    default:
        return OPAL_ERR_NOT_SUPPORTED;
    }
}

static uint32_t width_of(int flags)
{
    return flags & MCA_BTL_ATOMIC_FLAG_32BIT ? 4 : 8;
}

static int atomic_fop(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint, void *local_address,
                      uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                      mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t op,
                      uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t cbfunc,
                      void *cbcontext, void *cbdata)
{
    const struct request request = {btl,           endpoint, local_address, remote_address, local_handle,
                                    remote_handle, cbfunc,   cbcontext,     cbdata};
    velo_rma_t operation = {.kind = VELO_RMA_ATOMIC, .width = width_of(flags), .operand = operand};

    (void) order;
    if (OPAL_SUCCESS != to_atomic(op, &operation.atomic) || flags & MCA_BTL_ATOMIC_FLAG_FLOAT) {
        return OPAL_ERR_NOT_SUPPORTED;
    }
    return post(&request, &operation);
}

static int atomic_op(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint, uint64_t remote_address,
                     mca_btl_base_registration_handle_t *remote_handle, mca_btl_base_atomic_op_t op,
                     uint64_t operand, int flags, int order, mca_btl_base_rdma_completion_fn_t cbfunc,
                     void *cbcontext, void *cbdata)
{
    return atomic_fop(btl, endpoint, NULL, remote_address, NULL, remote_handle, op, operand, flags, order,
                      cbfunc, cbcontext, cbdata);
}

static int atomic_cswap(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint, void *local_address,
                        uint64_t remote_address, mca_btl_base_registration_handle_t *local_handle,
                        mca_btl_base_registration_handle_t *remote_handle, uint64_t compare, uint64_t value,
                        int flags, int order, mca_btl_base_rdma_completion_fn_t cbfunc, void *cbcontext,
                        void *cbdata)
{
    const struct request request = {btl,           endpoint, local_address, remote_address, local_handle,
                                    remote_handle, cbfunc,   cbcontext,     cbdata};
    const velo_rma_t operation = {.kind = VELO_RMA_ATOMIC,
                                  .atomic = VELO_ATOMIC_COMPARE_SWAP,
                                  .width = width_of(flags),
                                  .operand = value,
                                  .compare = compare};

    (void) order;
    return post(&request, &operation);
}

void mca_btl_velo_rdma_init(mca_btl_base_module_t *btl)
{
    btl->btl_flags |= MCA_BTL_FLAGS_RDMA | MCA_BTL_FLAGS_ATOMIC_OPS | MCA_BTL_FLAGS_ATOMIC_FOPS;
    /* GLOB: the target's own CPU executes them, so they mix with its loads, stores and atomics. */
    btl->btl_atomic_flags = MCA_BTL_ATOMIC_SUPPORTS_ADD | MCA_BTL_ATOMIC_SUPPORTS_AND
                            | MCA_BTL_ATOMIC_SUPPORTS_OR | MCA_BTL_ATOMIC_SUPPORTS_XOR
                            | MCA_BTL_ATOMIC_SUPPORTS_SWAP | MCA_BTL_ATOMIC_SUPPORTS_MIN
                            | MCA_BTL_ATOMIC_SUPPORTS_MAX | MCA_BTL_ATOMIC_SUPPORTS_32BIT
                            | MCA_BTL_ATOMIC_SUPPORTS_CSWAP | MCA_BTL_ATOMIC_SUPPORTS_LAND
                            | MCA_BTL_ATOMIC_SUPPORTS_LOR | MCA_BTL_ATOMIC_SUPPORTS_LXOR
                            | MCA_BTL_ATOMIC_SUPPORTS_GLOB;
    btl->btl_registration_handle_size = sizeof(mca_btl_base_registration_handle_t);
    /* None: ob1 does not retry a get that was refused. */
    btl->btl_get_limit = SIZE_MAX;
    btl->btl_put_limit = SIZE_MAX;
    btl->btl_get_local_registration_threshold = SIZE_MAX;
    btl->btl_put_local_registration_threshold = SIZE_MAX;
    btl->btl_register_mem = register_mem;
    btl->btl_deregister_mem = deregister_mem;
    btl->btl_put = put;
    btl->btl_get = get;
    btl->btl_atomic_op = atomic_op;
    btl->btl_atomic_fop = atomic_fop;
    btl->btl_atomic_cswap = atomic_cswap;
}
