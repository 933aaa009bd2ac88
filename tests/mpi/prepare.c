/*
 * A message that is longer than what a BTL sends at once, of which it prepares what fits. ob1 asks for no more than
 * that, but btl.h lets it. Each pair of ranks asks its modules, for data that stay in place and for data that are
 * packed.
 */
#include "ompi_config.h"

#include <stdio.h>
#include <stdlib.h>

#include "mpi.h"
#include "ompi/communicator/communicator.h"
#include "ompi/datatype/ompi_datatype.h"
#include "ompi/mca/bml/base/base.h"
#include "ompi/proc/proc.h"
#include "opal/datatype/opal_convertor.h"

enum { BLOCKS = 4096, BLOCK_BYTES = 4096, RESERVE_BYTES = 64 };

static size_t longest_message(const mca_btl_base_module_t *btl)
{
    const size_t first = btl->btl_eager_limit > btl->btl_rndv_eager_limit ? btl->btl_eager_limit
                                                                          : btl->btl_rndv_eager_limit;

    return first > btl->btl_max_send_size ? first : btl->btl_max_send_size;
}

/* Bytes of a descriptor for BLOCKS blocks, of which each begins `stride` bytes behind the one before; 0: none. */
static size_t prepared_bytes(ompi_proc_t *proc, const mca_bml_base_btl_t *by, int stride, const void *memory)
{
    mca_btl_base_module_t *btl = by->btl;
    size_t size = (size_t) BLOCKS * BLOCK_BYTES, bytes = 0;
    mca_btl_base_descriptor_t *descriptor;
    opal_convertor_t convertor;
    MPI_Datatype type;

    MPI_Type_vector(BLOCKS, BLOCK_BYTES, stride, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    OBJ_CONSTRUCT(&convertor, opal_convertor_t);
    opal_convertor_copy_and_prepare_for_send(proc->super.proc_convertor, &type->super, 1, memory, 0, &convertor);
    descriptor = btl->btl_prepare_src(btl, by->btl_endpoint, &convertor, MCA_BTL_NO_ORDER, RESERVE_BYTES, &size, 0);
    if (NULL != descriptor) {
        for (size_t i = 0; i < descriptor->des_segment_count; ++i) {
            bytes += descriptor->des_segments[i].seg_len;
        }
        bytes = bytes == RESERVE_BYTES + size ? bytes : 0;
        btl->btl_free(btl, descriptor);
    }
    OBJ_DESTRUCT(&convertor);
    MPI_Type_free(&type);
    return bytes;
}

int main(int argc, char **argv)
{
    int rank, size, failures = 0, all = 0;
    char *memory = calloc(2 * BLOCKS, BLOCK_BYTES);

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int peer = 0; peer < size; ++peer) {
        ompi_proc_t *proc = ompi_comm_peer_lookup(MPI_COMM_WORLD, peer);
        mca_bml_base_endpoint_t *endpoint = mca_bml_base_get_endpoint(proc);
        for (size_t i = 0; peer != rank && i < mca_bml_base_btl_array_get_size(&endpoint->btl_eager); ++i) {
            const mca_bml_base_btl_t *by = mca_bml_base_btl_array_get_index(&endpoint->btl_eager, i);
            for (int stride = 1; stride <= 2; ++stride) {
                const size_t bytes = prepared_bytes(proc, by, stride * BLOCK_BYTES, memory);
                if (RESERVE_BYTES >= bytes || bytes > longest_message(by->btl)) {
                    ++failures;
                    printf("FAIL longer_than_a_message: rank %d to %d, stride %d: prepared %zu bytes of at most %zu\n",
                           rank, peer, stride, bytes, longest_message(by->btl));
                }
            }
        }
    }
    fflush(stdout);
    MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (0 == rank && 0 == all) {
        printf("PASS longer_than_a_message\n");
    }
    MPI_Finalize();
    free(memory);
    return 0 != failures;
}
