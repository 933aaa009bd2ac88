/*
 * The modules: descriptors, sends and messages received.
 */
#include "btl_velo.h"

#include <stdlib.h>
#include <string.h>

#include "opal/datatype/opal_convertor.h"
#include "opal/util/output.h"
#include "opal/util/proc.h"

static void construct_frag(mca_btl_velo_frag_t *frag)
{
    frag->segments[0].seg_addr.pval = frag + 1;
    frag->base.des_segments = frag->segments;
    frag->base.des_segment_count = 1;
}

OBJ_CLASS_INSTANCE(mca_btl_velo_frag_t, mca_btl_base_descriptor_t, construct_frag, NULL);
OBJ_CLASS_INSTANCE(mca_btl_velo_registration_t, opal_free_list_item_t, NULL, NULL);

static int finalize(mca_btl_base_module_t *btl)
{
    (void) btl;
    if (0 == --mca_btl_velo_component.modules) {
        mca_btl_velo_leave();
        mca_btl_velo_settle(velo_busy);
    }
    return OPAL_SUCCESS;
}

/* The lists are short, so that what waits in large numbers costs its own size and goes back to the system. */
static mca_btl_velo_frag_t *get_frag(mca_btl_velo_module_t *module, mca_btl_velo_endpoint_t *endpoint, size_t size)
{
    opal_free_list_t *list = size <= MCA_BTL_VELO_SHORT_BYTES ? &mca_btl_velo_component.short_frags
                                                              : &mca_btl_velo_component.long_frags;
    mca_btl_velo_frag_t *frag = NULL;

    if (OPAL_LIKELY(size <= MCA_BTL_VELO_LONG_BYTES)) {
        frag = (mca_btl_velo_frag_t *) opal_free_list_get(list);
    }
    if (OPAL_UNLIKELY(NULL == frag)) {
        list = NULL;
        frag = velo_allocate(mca_btl_velo_component.engine, endpoint->peer, sizeof *frag + size);
        if (NULL == frag) {
            return NULL;
        }
        OBJ_CONSTRUCT(frag, mca_btl_velo_frag_t);
    }
    frag->list = list;
    frag->module = module;
    return frag;
}

static void return_frag(mca_btl_velo_frag_t *frag)
{
    if (OPAL_LIKELY(NULL != frag->list)) {
        opal_free_list_return(frag->list, &frag->base.super);
        return;
    }
    OBJ_DESTRUCT(frag);
    velo_free(mca_btl_velo_component.engine, frag);
}

static size_t longest_message(const mca_btl_velo_module_t *module)
{
    return module->path == VELO_PATH_ON_NODE ? mca_btl_velo_component.params.on_node_message_bytes_max
                                             : mca_btl_velo_component.params.device_message_bytes_max;
}

static mca_btl_base_descriptor_t *alloc(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                                        uint8_t order, size_t size, uint32_t flags)
{
    mca_btl_velo_module_t *module = (mca_btl_velo_module_t *) btl;
    mca_btl_velo_frag_t *frag;

    if (OPAL_UNLIKELY(size > longest_message(module))) {
        return NULL;
    }
    frag = get_frag(module, endpoint, size);
    if (OPAL_UNLIKELY(NULL == frag)) {
        return NULL;
    }
    frag->segments[0].seg_len = size;
    frag->base.des_segment_count = 1;
    frag->base.des_flags = flags;
    frag->base.order = order;
    return &frag->base;
}

static int free_descriptor(mca_btl_base_module_t *btl, mca_btl_base_descriptor_t *descriptor)
{
    (void) btl;
    return_frag((mca_btl_velo_frag_t *) descriptor);
    return OPAL_SUCCESS;
}

static int pack(opal_convertor_t *convertor, void *to, size_t *bytes)
{
    struct iovec iov = {.iov_base = (IOVBASE_TYPE *) to, .iov_len = *bytes};
    uint32_t iov_count = 1;

    return opal_convertor_pack(convertor, &iov, &iov_count, bytes);
}

/* ob1 ignores that its message cannot be packed, or tries again without end: the job ends. */
static __attribute__((noreturn)) void pack_failed(const mca_btl_base_module_t *btl, int rc, size_t packed,
                                                  size_t bytes)
{
    char line[256];

    snprintf(line, sizeof line,
             "velo: rank %s: a message cannot be packed: opal_convertor_pack returned %d and packed %zu of %zu bytes. "
             "Look for a datatype that was freed, or memory that was overwritten.",
             OPAL_VPID_PRINT(opal_proc_local_get()->proc_name.vpid), rc, packed, bytes);
    mca_btl_velo_end_job(((const mca_btl_velo_module_t *) btl)->path, line);
}

/* Contiguous payload stays where it is until the message has left. */
static mca_btl_base_descriptor_t *prepare_in_place(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                                                   opal_convertor_t *convertor, uint8_t order, size_t reserve,
                                                   size_t *size, uint32_t flags)
{
    mca_btl_base_descriptor_t *descriptor = alloc(btl, endpoint, order, reserve, flags);
    mca_btl_velo_frag_t *frag = (mca_btl_velo_frag_t *) descriptor;
    struct iovec iov = {.iov_base = NULL, .iov_len = *size}; /* NULL: is set to where the payload lies */
    uint32_t iov_count = 1;
    const size_t wanted = *size;
    int rc;

    if (OPAL_UNLIKELY(NULL == descriptor)) {
        return NULL;
    }
    rc = opal_convertor_pack(convertor, &iov, &iov_count, size);
    if (OPAL_UNLIKELY(0 > rc || 0 == *size || *size > wanted)) {
        pack_failed(btl, rc, *size, wanted);
    }
    frag->segments[1].seg_addr.pval = iov.iov_base;
    frag->segments[1].seg_len = *size;
    descriptor->des_segment_count = 2;
    return descriptor;
}

static mca_btl_base_descriptor_t *prepare_src(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                                              opal_convertor_t *convertor, uint8_t order, size_t reserve,
                                              size_t *size, uint32_t flags)
{
    const size_t longest = longest_message((mca_btl_velo_module_t *) btl);
    mca_btl_base_descriptor_t *descriptor;

    if (OPAL_UNLIKELY(reserve > longest)) {
        return NULL;
    }
    if (*size > longest - reserve) {
        *size = longest - reserve;
    }
    if (0 != *size && !opal_convertor_need_buffers(convertor)) {
        return prepare_in_place(btl, endpoint, convertor, order, reserve, size, flags);
    }
    descriptor = alloc(btl, endpoint, order, reserve + *size, flags);
    if (OPAL_UNLIKELY(NULL == descriptor)) {
        return NULL;
    }
    if (0 != *size) {
        const size_t wanted = *size;
        const int rc = pack(convertor, (char *) descriptor->des_segments->seg_addr.pval + reserve, size);
        if (OPAL_UNLIKELY(0 > rc || 0 == *size || *size > wanted)) {
            pack_failed(btl, rc, *size, wanted);
        }
    }
    descriptor->des_segments->seg_len = reserve + *size;
    return descriptor;
}

/* A descriptor has left, or never will: its callback as the flags ask, and its memory. */
static void completed(mca_btl_velo_frag_t *frag, bool callback, int status)
{
    const uint32_t flags = frag->base.des_flags; /* the callback may reuse the descriptor */

    if (callback && NULL != frag->base.des_cbfunc) {
        frag->base.des_cbfunc(&frag->module->super, frag->endpoint, &frag->base, status);
    }
    if (flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP) {
        return_frag(frag);
    }
}

static int send_descriptor(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint,
                           mca_btl_base_descriptor_t *descriptor, mca_btl_base_tag_t tag)
{
    mca_btl_velo_frag_t *frag = (mca_btl_velo_frag_t *) descriptor;

    frag->endpoint = endpoint;
    frag->module = (mca_btl_velo_module_t *) btl;
    frag->send.bytes[1] = 0;
    for (size_t i = 0; i < descriptor->des_segment_count; ++i) {
        frag->send.data[i] = frag->segments[i].seg_addr.pval;
        frag->send.bytes[i] = (uint32_t) frag->segments[i].seg_len;
    }
    if (!velo_send(mca_btl_velo_component.engine, endpoint->peer, &frag->send, tag)) {
        return OPAL_SUCCESS; /* queued: the callback will come */
    }
    completed(frag, 0 != (frag->base.des_flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK), OPAL_SUCCESS);
    return 1;
}

void mca_btl_velo_sent(void *context, velo_send_t *sent, int status)
{
    mca_btl_velo_frag_t *frag
        = (mca_btl_velo_frag_t *) ((char *) sent - offsetof(mca_btl_velo_frag_t, send));

    (void) context;
    completed(frag, true, mca_btl_velo_status(status));
}

void mca_btl_velo_sent_late(void *context, velo_send_t *sent, int status)
{
    mca_btl_velo_frag_t *frag
        = (mca_btl_velo_frag_t *) ((char *) sent - offsetof(mca_btl_velo_frag_t, send));

    (void) context;
    completed(frag, false, mca_btl_velo_status(status));
}

/* Contiguous or empty payload: the parts go straight into the ring or the packets, or into a copy that waits if the
 * caller could not keep a descriptor. */
static inline int sendi_contiguous(velo_peer_t *peer, opal_convertor_t *convertor, void *header, size_t header_size,
                                   size_t payload_size, mca_btl_base_tag_t tag, bool copies)
{
    void *payload = NULL;

    if (0 != payload_size) {
        opal_convertor_get_current_pointer(convertor, &payload);
    }
    if (copies) {
        return velo_try_send_or_copy(mca_btl_velo_component.engine, peer, tag, header, header_size, payload,
                                 payload_size);
    }
    return velo_try_send(mca_btl_velo_component.engine, peer, tag, header, header_size, payload, payload_size);
}

/* All but sendi's most frequent use, and out of its way. */
static int __attribute__((noinline))
sendi_other(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint, opal_convertor_t *convertor, void *header,
            size_t header_size, size_t payload_size, uint8_t order, uint32_t flags, mca_btl_base_tag_t tag,
            mca_btl_base_descriptor_t **descriptor)
{
    const size_t total = header_size + payload_size;

    if (OPAL_LIKELY(total <= btl->btl_eager_limit)) {
        if (0 == payload_size || !opal_convertor_need_buffers(convertor)) {
            if (VELO_OK == sendi_contiguous(endpoint->peer, convertor, header, header_size, payload_size, tag, false)) {
                return OPAL_SUCCESS;
            }
        } else {
            /* Packed in the ring: by a fragment 8 bytes with gaps take the sender 1,665 instructions instead of 948. */
            char *room = velo_reserve(mca_btl_velo_component.engine, endpoint->peer, total);
            if (NULL != room) {
                size_t packed = payload_size;
                int rc;
                memcpy(room, header, header_size);
                rc = pack(convertor, room + header_size, &packed);
                if (OPAL_UNLIKELY(0 > rc || packed != payload_size)) {
                    velo_cancel(mca_btl_velo_component.engine);
                    pack_failed(btl, rc, packed, payload_size);
                }
                velo_commit(mca_btl_velo_component.engine, endpoint->peer, tag, total);
                return OPAL_SUCCESS;
            }
        }
    }
    if (NULL != descriptor) {
        *descriptor = alloc(btl, endpoint, order, total, flags);
    }
    return OPAL_ERR_OUT_OF_RESOURCE;
}

static int sendi(mca_btl_base_module_t *btl, mca_btl_base_endpoint_t *endpoint, opal_convertor_t *convertor,
                 void *header, size_t header_size, size_t payload_size, uint8_t order, uint32_t flags,
                 mca_btl_base_tag_t tag, mca_btl_base_descriptor_t **descriptor)
{
    if (OPAL_LIKELY(NULL == descriptor && header_size + payload_size <= btl->btl_eager_limit
                    && (0 == payload_size || !opal_convertor_need_buffers(convertor)))) {
        return VELO_OK == sendi_contiguous(endpoint->peer, convertor, header, header_size, payload_size, tag, true)
                   ? OPAL_SUCCESS
                   : OPAL_ERR_OUT_OF_RESOURCE;
    }
    return sendi_other(btl, endpoint, convertor, header, header_size, payload_size, order, flags, tag, descriptor);
}

bool mca_btl_velo_accepts(void *context, uint8_t tag)
{
    (void) context;
    /* ob1 registers its tags at the end of its first add_procs; a message may be earlier than that. */
    return tag >= MCA_BTL_TAG_MAX || NULL != mca_btl_base_active_message_trigger[tag].cbfunc;
}

void mca_btl_velo_receive(void *context, velo_path_t path, void *peer_context, uint8_t tag, void *data,
                          size_t bytes)
{
    mca_btl_velo_module_t *module = path == VELO_PATH_ON_NODE ? &mca_btl_velo_component.on_node
                                                              : &mca_btl_velo_component.device;
    mca_btl_velo_process_t *process = peer_context;
    mca_btl_base_segment_t segment = {.seg_addr.pval = data, .seg_len = bytes};

    (void) context;
    if (OPAL_UNLIKELY(tag >= MCA_BTL_TAG_MAX)) {
        return;
    }
    velo_series_receive(&module->super, NULL == process ? NULL : mca_btl_velo_endpoint_of(process, module), tag,
                        &segment);
}

static int register_error(mca_btl_base_module_t *btl, mca_btl_base_module_error_cb_fn_t cbfunc)
{
    ((mca_btl_velo_module_t *) btl)->error_cb = cbfunc;
    return OPAL_SUCCESS;
}

void mca_btl_velo_module_init(mca_btl_velo_module_t *module, velo_path_t path)
{
    mca_btl_base_module_t *btl = &module->super;
    const bool on_node = VELO_PATH_ON_NODE == path;

    memset(module, 0, sizeof *module);
    module->path = path;
    btl->btl_component = &mca_btl_velo_component.super;
    /* Above vader and sm, which have MCA_BTL_EXCLUSIVITY_HIGH: to be asked for velo is to get velo. */
    btl->btl_exclusivity = MCA_BTL_EXCLUSIVITY_HIGH + (on_node ? 2 : 1);
    /* 2 KiB of message beside ob1's largest header (FC 3: the border between VELO and RMA). */
    btl->btl_eager_limit = (on_node ? 32768 : 2048) + VELO_OB1_HEADER_BYTES;
    btl->btl_rndv_eager_limit = btl->btl_eager_limit;
    btl->btl_max_send_size = btl->btl_eager_limit;
    btl->btl_rdma_pipeline_send_length = btl->btl_eager_limit;
    btl->btl_rdma_pipeline_frag_size = 1 << 20;
    /* Never the put pipeline: the receiver fetches (RDRP 3). */
    btl->btl_min_rdma_pipeline_size = INT64_MAX;
    btl->btl_flags = MCA_BTL_FLAGS_SEND;
    btl->btl_latency = on_node ? 1 : 2;
    /* The on-node module must be worth at least half of the two, or ob1 will not fetch through it alone. */
    btl->btl_bandwidth = on_node ? 80000 : 40000;
    btl->btl_add_procs = mca_btl_velo_add_procs;
    btl->btl_del_procs = mca_btl_velo_del_procs;
    btl->btl_finalize = finalize;
    btl->btl_alloc = alloc;
    btl->btl_free = free_descriptor;
    btl->btl_prepare_src = prepare_src;
    btl->btl_send = send_descriptor;
    btl->btl_sendi = sendi;
    btl->btl_dump = mca_btl_base_dump;
    btl->btl_register_error = register_error;
    mca_btl_velo_rdma_init(btl);
    if (VELO_PATH_NONE == path) {
        /* Nothing that it could be preferred for: with the least exclusivity and no messages of its own, and so little
         * bandwidth that the other modules keep more than half of it together, ob1 leaves it alone. */
        btl->btl_flags &= ~MCA_BTL_FLAGS_SEND;
        btl->btl_exclusivity = MCA_BTL_EXCLUSIVITY_LOW;
        btl->btl_latency = 1;
        btl->btl_bandwidth = 1;
    }
}
