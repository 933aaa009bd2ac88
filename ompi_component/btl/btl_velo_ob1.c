/*
 * Facts about the parts of Open MPI above velo.
 *
 * First a guard against a fault of the host: when a message is longer than the receive that it matched, ob1 fetches all
 * of it all the same, past the end of the user's buffer. It reports MPI_ERR_TRUNCATE by itself
 * afterwards, so to fetch only what fits is enough.
 *
 * How much fits is in ob1's receive request, which depends on the fragment that ob1 passes as `cbdata`. The
 * fragment's layout is private to ob1 and mirrored in ob1_fragment.h; a get is ob1's, and the mirror fits,
 * only if everything that the fragment should say is what the call says. If it is not, nothing is assumed.
 */
#include "ompi_config.h"

#include "btl_velo.h"

#include "ompi/communicator/communicator.h"
#include "ompi/group/group.h"
#include "ompi/mca/pml/base/pml_base_request.h"
#include "ompi/proc/proc.h"

/* Bytes of [local_address, local_address + size) that a get with these arguments may fill. */
size_t mca_btl_velo_receivable(const void *local_address, size_t size, const void *cbcontext, const void *cbdata)
{
    const struct velo_ob1_fragment *fragment = cbdata;
    size_t fits;

    /* mca_bml_base_get passes the BML's handle, which the fragment repeats; osc/rdma passes something else. */
    if (NULL == fragment || NULL == cbcontext || cbcontext != fragment->bml || size != fragment->length
        || local_address != fragment->local_address || NULL == fragment->request
        || MCA_PML_REQUEST_RECV != fragment->request->req_type) {
        return size;
    }
    fits = fragment->request->req_convertor.local_size;
    fits = fits > fragment->offset ? fits - (size_t) fragment->offset : 0;
    return size < fits ? size : fits;
}

/* libmpi's own; a BTL is not linked with libmpi, and does without where libmpi is not visible to it. */
#pragma weak ompi_mpi_communicators

/* True as soon as visit returns true. */
static bool visit_group(const ompi_group_t *group, bool (*visit)(void *context, uint64_t name), void *context)
{
    if (NULL == group || 0 == group->grp_proc_count) {
        return false;
    }
    for (int i = 0; i < group->grp_proc_count; ++i) {
        ompi_proc_t *proc = group->grp_proc_pointers[i];
        opal_process_name_t here;

        if (NULL == proc) {
            continue;
        }
        here = ompi_proc_is_sentinel(proc) ? ompi_proc_sentinel_to_name((uintptr_t) proc)
                                           : proc->super.proc_name;
        if (visit(context, (uint64_t) here.jobid << 32 | here.vpid)) {
            return true;
        }
    }
    return false;
}

void mca_btl_velo_for_each_name(bool (*visit)(void *context, uint64_t name), void *context)
{
    if (NULL == &ompi_mpi_communicators) {
        return;
    }
    for (int i = 0; i < opal_pointer_array_get_size(&ompi_mpi_communicators); ++i) {
        const ompi_communicator_t *comm = opal_pointer_array_get_item(&ompi_mpi_communicators, i);
        const ompi_group_t *groups[2] = {NULL == comm ? NULL : comm->c_local_group,
                                         NULL == comm ? NULL : comm->c_remote_group};

        for (int side = 0; side < 2; ++side) {
            /* A group that is not dense is part of another one, which is looked at itself. */
            if (NULL != groups[side] && OMPI_GROUP_IS_DENSE(groups[side])
                && visit_group(groups[side], visit, context)) {
                return;
            }
        }
    }
}

static bool is_name(void *context, uint64_t name)
{
    return *(const uint64_t *) context == name;
}

static bool group_has(const ompi_group_t *group, uint64_t name)
{
    /* A group that is not dense refers to another one, which is not worth looking into. */
    return NULL != group && 0 != group->grp_proc_count
           && (!OMPI_GROUP_IS_DENSE(group) || visit_group(group, is_name, &name));
}

/* After MPI_Comm_disconnect Open MPI 4.1 keeps what it knows of the processes that were met, so this is the only way
 * to find out whether anybody can still miss one of them. */
bool mca_btl_velo_has_communicator_with(uint64_t name)
{
    if (NULL == &ompi_mpi_communicators) {
        return true;
    }
    for (int i = 0; i < opal_pointer_array_get_size(&ompi_mpi_communicators); ++i) {
        const ompi_communicator_t *comm = opal_pointer_array_get_item(&ompi_mpi_communicators, i);
        if (NULL != comm && (group_has(comm->c_local_group, name) || group_has(comm->c_remote_group, name))) {
            return true;
        }
    }
    return false;
}
