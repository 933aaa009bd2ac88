/*
 * Life of the component, and the processes that it reaches.
 */
#include "mtl_velo.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ompi/mca/pml/base/base.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"

#define VELO_ENGINE_FILE "mca_btl_velo.so"

static int component_query(mca_base_module_t **module, int *priority);
static int component_register(void);

static int priority = 10;

static int component_open(void)
{
    return OMPI_SUCCESS;
}

static int component_close(void)
{
    return OMPI_SUCCESS;
}

static mca_mtl_base_module_t *component_init(VELO_MTL_INIT_PARAMETERS);

OMPI_DECLSPEC mca_mtl_base_component_2_0_0_t mca_mtl_velo_component = {
    .mtl_version =
        {
            MCA_MTL_BASE_VERSION_2_0_0,
            .mca_component_name = "velo",
            MCA_BASE_MAKE_VERSION(component, VELO_MAJOR_VERSION, VELO_MINOR_VERSION, VELO_RELEASE_VERSION),
            .mca_open_component = component_open,
            .mca_close_component = component_close,
            .mca_query_component = component_query,
            .mca_register_component_params = component_register,
        },
    .mtl_data = {MCA_BASE_METADATA_PARAM_NONE},
    .mtl_init = component_init,
};

/* The loader compares neither versions nor struct layouts, and those differ between series. */
static bool right_series(void)
{
    int major = 0, minor = 0;

    if (2 == sscanf(opal_version_string, "%d.%d", &major, &minor) && OPAL_MAJOR_VERSION == major
        && OPAL_MINOR_VERSION == minor) {
        return true;
    }
    opal_output(0, "velo: this mca_mtl_velo.so was built for Open MPI %d.%d and is not used by Open MPI %s; "
                   "build velo again with --with-ompi pointing at the Open MPI that runs it.",
                OPAL_MAJOR_VERSION, OPAL_MINOR_VERSION, opal_version_string);
    return false;
}

static int component_register(void)
{
    if (!right_series()) {
        return OMPI_ERR_NOT_AVAILABLE;
    }
    (void) mca_base_component_var_register(&mca_mtl_velo_component.mtl_version, "priority",
                                           "Priority of pml/cm over this component. ob1 has 20, so that matching is "
                                           "that of velo only where it is asked for.",
                                           MCA_BASE_VAR_TYPE_INT, NULL, 0, 0, OPAL_INFO_LVL_9,
                                           MCA_BASE_VAR_SCOPE_READONLY, &priority);
    return OMPI_SUCCESS;
}

static int component_query(mca_base_module_t **module, int *own_priority)
{
    *own_priority = priority;
    *module = (mca_base_module_t *) &mca_mtl_velo.super;
    return OMPI_SUCCESS;
}

/* Whether a list of components, as the user gave it, has this one. */
static bool named(const mca_base_framework_t *framework, const char *name)
{
    const char *list = framework->framework_selection;

    return NULL != list && '^' != *list && NULL != strstr(list, name);
}

/* Open MPI asks cm, and cm this component, in jobs that match elsewhere, too: those hear nothing. Others end now, and
 * with the first rank that does; the line is from the first one of each host, and others leave it the time. */
static void refuse(const char *line)
{
    const unsigned int seconds_to_speak = 2;

    if (!named(&ompi_mtl_base_framework, "velo") && !named(&ompi_pml_base_framework, "cm")) {
        opal_output_verbose(1, ompi_mtl_base_framework.framework_output, "%s", line);
    } else if (0 == velo_series_local_rank()) {
        opal_output(0, "%s", line);
    } else {
        (void) sleep(seconds_to_speak);
    }
}

/* The table of the component that has the engine: the file beside this one, which Open MPI has loaded, so that to open
 * it again gives the same. NULL, with a line. */
static const velo_faces_t *find_faces(void)
{
    char path[4096], line[4400];
    const char *slash;
    velo_faces_fn_t faces = NULL;
    const velo_faces_t *found;
    void *file;
    Dl_info self;

    if (0 == dladdr((void *) &mca_mtl_velo_component, &self) || NULL == (slash = strrchr(self.dli_fname, '/'))) {
        return NULL;
    }
    snprintf(path, sizeof path, "%.*s/" VELO_ENGINE_FILE, (int) (slash - self.dli_fname), self.dli_fname);
    file = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (NULL == file) {
        snprintf(line, sizeof line,
                 "velo: matching needs %s, which Open MPI has not loaded or, as a line above says, cannot use: install "
                 "both files in one directory, and have velo among the BTLs (--mca btl velo,self).",
                 path);
        refuse(line);
        return NULL;
    }
    *(void **) &faces = dlsym(file, "velo_faces");
    found = NULL == faces ? NULL : faces();
    if (NULL == found || sizeof *found != found->bytes || 0 != strcmp(VELO_VERSION, found->version)) {
        snprintf(line, sizeof line, "velo: %s is of another build than mca_mtl_velo.so beside it; install both of one.",
                 path);
        refuse(line);
        found = NULL;
    }
    (void) dlclose(file); /* Open MPI has it open */
    return found;
}

static mca_mtl_base_module_t *component_init(VELO_MTL_INIT_PARAMETERS)
{
    static const velo_match_host_t host = {.send_done = mca_mtl_velo_send_done,
                                           .receive_done = mca_mtl_velo_receive_done,
                                           .wait = mca_mtl_velo_wait};
    const velo_faces_t *faces;

    VELO_MTL_INIT_UNUSED;
    if (0 != velo_series_init_bml(enable_progress_threads, enable_mpi_threads)) {
        return NULL;
    }
    faces = find_faces();
    if (NULL == faces) {
        return NULL;
    }
    mca_mtl_velo.faces = *faces;
    mca_mtl_velo.engine = mca_mtl_velo.faces.engine();
    if (NULL == mca_mtl_velo.engine) {
        refuse("velo: matching needs velo among the BTLs (--mca btl velo,self), where it is not now.");
        return NULL;
    }
    mca_mtl_velo.faces.open_matching(mca_mtl_velo.engine, &host);
    mca_mtl_velo.faces.match();
    if (OPAL_SUCCESS != opal_progress_register(mca_mtl_velo.faces.progress)) {
        return NULL;
    }
    return &mca_mtl_velo.super;
}

static int add_procs(mca_mtl_base_module_t *mtl, size_t count, ompi_proc_t **procs)
{
    (void) mtl;
    for (size_t i = 0; i < count; ++i) {
        const bool self = procs[i] == ompi_proc_local();
        velo_peer_t *peer = NULL;

        if (NULL != procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL]) {
            continue;
        }
        if (!self) {
            peer = mca_mtl_velo.faces.connect(&procs[i]->super);
            if (NULL == peer) {
                return OMPI_ERR_UNREACH;
            }
        }
        procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] = mca_mtl_velo.faces.peer_of(mca_mtl_velo.engine, peer);
    }
    return OMPI_SUCCESS;
}

static int del_procs(mca_mtl_base_module_t *mtl, size_t count, ompi_proc_t **procs)
{
    (void) mtl;
    for (size_t i = 0; i < count; ++i) {
        if (NULL != procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] && procs[i] != ompi_proc_local()) {
            mca_mtl_velo.faces.disconnect(&procs[i]->super);
        }
        procs[i]->proc_endpoints[OMPI_PROC_ENDPOINT_TAG_MTL] = NULL;
    }
    return OMPI_SUCCESS;
}

/* The BTL, and the engine, end later: this component may not be called by then. */
static int finalize(mca_mtl_base_module_t *mtl)
{
    (void) mtl;
    mca_mtl_velo.faces.leave_matching();
    (void) opal_progress_unregister(mca_mtl_velo.faces.progress);
    return OMPI_SUCCESS;
}

/* A message's context and rank say all; those of a communicator that is not made here yet wait as unexpected. */
static int add_comm(mca_mtl_base_module_t *mtl, ompi_communicator_t *comm)
{
    (void) mtl;
    (void) comm;
    return OMPI_SUCCESS;
}

mca_mtl_velo_module_t mca_mtl_velo = {
    .super =
        {
            .mtl_max_contextid = UINT16_MAX,
            .mtl_max_tag = INT32_MAX,
            .mtl_request_size = sizeof(mca_mtl_velo_request_t) - sizeof(mca_mtl_request_t),
            .mtl_add_procs = add_procs,
            .mtl_del_procs = del_procs,
            .mtl_finalize = finalize,
            .mtl_send = mca_mtl_velo_send,
            .mtl_isend = mca_mtl_velo_isend,
            .mtl_irecv = mca_mtl_velo_irecv,
            .mtl_iprobe = mca_mtl_velo_iprobe,
            .mtl_imrecv = mca_mtl_velo_imrecv,
            .mtl_improbe = mca_mtl_velo_improbe,
            .mtl_cancel = mca_mtl_velo_cancel,
            .mtl_add_comm = add_comm,
            .mtl_del_comm = add_comm,
        },
};
