/*
 * The argument with which ob1 calls a get. Included by the header of each series, which says how long ob1's
 * headers are there and holds the offsets against those that were measured.
 */
#ifndef VELO_OB1_FRAGMENT_H
#define VELO_OB1_FRAGMENT_H

#include <stddef.h>
#include <stdint.h>

#include "opal/class/opal_free_list.h"

#include "series_limits.h"

/* mca_pml_ob1_rdma_frag_t of ompi/mca/pml/ob1/pml_ob1_rdmafrag.h, which is not installed. */
struct mca_pml_base_request_t;
struct velo_ob1_fragment {
    opal_free_list_item_t super;
    const void *bml;
    uint64_t header[VELO_OB1_HEADER_BYTES / 8];
    int state;
    size_t length;
    size_t bytes_remaining;
    const struct mca_pml_base_request_t *request;
    uint32_t retries;
    void (*callback)(void);
    uint64_t offset;
    const void *local_address;
};

#endif /* VELO_OB1_FRAGMENT_H */
