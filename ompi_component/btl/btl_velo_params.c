/*
 * Parameters and counters of the component, from the tables velo/params.def and velo/counters.def.
 */
#include "btl_velo.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/base/mca_base_pvar.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/base/mca_base_vari.h"

/* The parameter that is not possible, in a sentence; empty: none. */
static char refused[256];

static mca_base_component_t *version(void)
{
    return &mca_btl_velo_component.super.btl_version;
}

/* Open MPI 4.1 keeps the name of a file with the value that was read from it. */
static const char *file_of(const mca_base_var_t *var)
{
    const mca_base_var_file_value_t *value = var->mbv_file_value;
    const char *file = NULL != value ? value->mbvfv_file : var->mbv_source_file;

    return NULL != file ? file : "a file";
}

static const mca_base_var_t *var_of(const char *name)
{
    const mca_base_var_t *var = NULL;
    int index = mca_base_var_find("opal", "btl", "velo", name);

    return 0 <= index && OPAL_SUCCESS == mca_base_var_get(index, &var) ? var : NULL;
}

static const char *source_of(const char *name)
{
    const mca_base_var_t *var = var_of(name);

    if (NULL == var) {
        return NULL;
    }
    switch (var->mbv_source) {
    case MCA_BASE_VAR_SOURCE_DEFAULT:
        return "default";
    case MCA_BASE_VAR_SOURCE_COMMAND_LINE:
    case MCA_BASE_VAR_SOURCE_ENV:
        return "command line or environment";
    case MCA_BASE_VAR_SOURCE_FILE:
    case MCA_BASE_VAR_SOURCE_OVERRIDE:
        return file_of(var);
    default:
        return "set by the program";
    }
}

/* The user's text; NULL: none, or it is not known. */
static const char *written(const char *name)
{
    const mca_base_var_t *var = var_of(name);
    const mca_base_var_file_value_t *file;
    char full[96];

    if (NULL == var) {
        return NULL;
    }
    switch (var->mbv_source) {
    case MCA_BASE_VAR_SOURCE_COMMAND_LINE:
    case MCA_BASE_VAR_SOURCE_ENV:
        snprintf(full, sizeof full, "OMPI_MCA_btl_velo_%s", name);
        return getenv(full);
    case MCA_BASE_VAR_SOURCE_FILE:
    case MCA_BASE_VAR_SOURCE_OVERRIDE:
        file = var->mbv_file_value;
        return NULL != file ? file->mbvfv_value : NULL;
    default:
        return NULL;
    }
}

/* One of Open MPI's sizes, which it reads itself: it takes as many digits as there are, and cuts what is too large. */
static void check_size(const char *name)
{
    const char *text = written(name);

    if (NULL != text && '\0' == refused[0]) {
        (void) velo_is_bytes(name, text, refused, sizeof refused);
    }
}

static mca_base_var_info_lvl_t level_for(velo_audience_t audience)
{
    return (mca_base_var_info_lvl_t) (OPAL_INFO_LVL_1 + (int) audience - 1);
}

/* Open MPI knows a number as the text that the user wrote: its own reading of numbers is not strict. */
static void register_number(const char *name, const char *otherwise, const char *text, velo_audience_t audience,
                            const char **value)
{
    char error[sizeof refused];

    *value = otherwise;
    (void) mca_base_component_var_register(version(), name, text, MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0,
                                           level_for(audience), MCA_BASE_VAR_SCOPE_READONLY, value);
    if (!velo_params_set(&mca_btl_velo_component.params, name, *value, error, sizeof error) && '\0' == refused[0]) {
        memcpy(refused, error, sizeof refused);
    }
}

static void register_text(const char *name, const char *text, velo_audience_t audience, const char **value)
{
    (void) mca_base_component_var_register(version(), name, text, MCA_BASE_VAR_TYPE_STRING, NULL, 0, 0,
                                           level_for(audience), MCA_BASE_VAR_SCOPE_READONLY, value);
}

/* A parameter of earlier versions: ompi_info does not list it, and setting it is refused. */
static void register_gone(const char *name, const char **value)
{
    *value = "";
    (void) mca_base_component_var_register(version(), name, "", MCA_BASE_VAR_TYPE_STRING, NULL, 0,
                                           MCA_BASE_VAR_FLAG_INTERNAL, OPAL_INFO_LVL_9, MCA_BASE_VAR_SCOPE_READONLY,
                                           value);
    if ('\0' == refused[0] && 0 != strcmp("default", source_of(name))) {
        (void) velo_params_set(&mca_btl_velo_component.params, name, *value, refused, sizeof refused);
    }
}

static void register_size(const char *name, const char *text, size_t *value)
{
    (void) mca_base_component_var_register(version(), name, text, MCA_BASE_VAR_TYPE_SIZE_T, NULL, 0, 0,
                                           OPAL_INFO_LVL_4, MCA_BASE_VAR_SCOPE_READONLY, value);
}

/* `context` of a performance variable is the counter's offset in velo_counters_t. */
static int read_counter(const mca_base_pvar_t *pvar, void *value, void *object)
{
    velo_counters_t counters = {0};
    (void) object;
    if (NULL != mca_btl_velo_component.engine) {
        velo_counters(mca_btl_velo_component.engine, &counters);
    }
    *(unsigned long long *) value =
        *(const uint64_t *) ((const char *) &counters + (uintptr_t) pvar->ctx);
    return OPAL_SUCCESS;
}

static void register_counter(const char *name, const char *text, int class, size_t offset)
{
    (void) mca_base_component_pvar_register(
        version(), name, text, OPAL_INFO_LVL_4, class,
        MCA_BASE_VAR_TYPE_UNSIGNED_LONG_LONG, NULL, MCA_BASE_VAR_BIND_NO_OBJECT,
        MCA_BASE_PVAR_FLAG_READONLY | MCA_BASE_PVAR_FLAG_CONTINUOUS, read_counter, NULL, NULL,
        (void *) (uintptr_t) offset);
}

static void explain(const char *text, const char *name, char *sources, size_t bytes)
{
    char full[64];
    const char *at, *source;

    snprintf(full, sizeof full, "btl_velo_%s", name);
    at = strstr(text, full);
    /* A name may begin another one. */
    while (NULL != at && ('_' == at[strlen(full)] || isalnum((unsigned char) at[strlen(full)]))) {
        at = strstr(at + 1, full);
    }
    source = NULL == at ? NULL : source_of(name);
    if (NULL != source) {
        const size_t used = strlen(sources);
        snprintf(sources + used, bytes - used, "%s%s: %s", 0 == used ? "" : "; ", full, source);
    }
}

void mca_btl_velo_explain(const char *text, char *sources, size_t bytes)
{
    static const char *const limits[] = {"shm_eager_limit", "shm_rndv_eager_limit", "shm_max_send_size",
                                         "eager_limit", "rndv_eager_limit", "max_send_size",
                                         "get_limit", "put_limit", "get_alignment", "put_alignment"};

    sources[0] = '\0';
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; ++i) {
        explain(text, limits[i], sources, bytes);
    }
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text_) explain(text, #name, sources, bytes);
#define VELO_PARAM_TEXT(name, value, audience, text_) explain(text, #name, sources, bytes);
#define VELO_PARAM_GONE(name, text_) explain(text, #name, sources, bytes);
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
}

/* Open MPI's own, by name: a copy through a buffer that is aligned for a get, or for gets of a few bytes each, goes
 * wrong in ob1 4.1. */
static void check_transfer(const char *name, size_t alignment, size_t limit)
{
    static const size_t limit_least = 4096;

    if ('\0' != refused[0]) {
        return;
    }
    if (0 != alignment) {
        snprintf(refused, sizeof refused,
                 "btl_velo_%s_alignment=%zu is not possible: velo needs no alignment; leave it at 0", name, alignment);
    } else if (limit < limit_least) {
        snprintf(refused, sizeof refused,
                 "btl_velo_%s_limit=%zu is less than %zu; leave it out, velo cuts long transfers itself", name, limit,
                 limit_least);
    }
}

const char *mca_btl_velo_check_params(void)
{
    static const char *const sizes[] = {"shm_eager_limit", "shm_rndv_eager_limit", "shm_max_send_size", "eager_limit",
                                        "rndv_eager_limit", "max_send_size", "get_limit", "put_limit",
                                        "get_alignment", "put_alignment"};
    const mca_btl_base_module_t *btl = &mca_btl_velo_component.device.super;

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
        check_size(sizes[i]);
    }
    check_transfer("get", btl->btl_get_alignment, btl->btl_get_limit);
    check_transfer("put", btl->btl_put_alignment, btl->btl_put_limit);
    return '\0' == refused[0] ? NULL : refused;
}

/* Unless the user has set it. */
static void set_limit(const char *name, size_t *limit, size_t bytes)
{
    const mca_base_var_t *var = var_of(name);

    if (NULL == var || MCA_BASE_VAR_SOURCE_DEFAULT == var->mbv_source) {
        *limit = bytes;
    }
}

void mca_btl_velo_set_shared_cpu_limits(void)
{
    mca_btl_base_module_t *btl = &mca_btl_velo_component.on_node.super;
    const size_t bytes = VELO_SHARED_CPU_BYTES + VELO_OB1_HEADER_BYTES;

    set_limit("shm_eager_limit", &btl->btl_eager_limit, bytes);
    set_limit("shm_rndv_eager_limit", &btl->btl_rndv_eager_limit, bytes);
    btl->btl_rdma_pipeline_send_length = btl->btl_eager_limit;
}

void mca_btl_velo_set_network_limits(size_t bytes)
{
    mca_btl_base_module_t *btl = &mca_btl_velo_component.device.super;

    set_limit("eager_limit", &btl->btl_eager_limit, bytes);
    set_limit("rndv_eager_limit", &btl->btl_rndv_eager_limit, bytes);
    set_limit("max_send_size", &btl->btl_max_send_size, bytes);
    btl->btl_rdma_pipeline_send_length = btl->btl_eager_limit;
    /* Messages that wait for credits wait where they lie. */
    btl->btl_flags |= MCA_BTL_FLAGS_SEND_INPLACE;
}

int mca_btl_velo_register_params(void)
{
    static struct {
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) const char *name;
#define VELO_PARAM_TEXT(name, value, audience, text)
#define VELO_PARAM_GONE(name, text) const char *name;
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    } texts;
    velo_params_t *params = &mca_btl_velo_component.params;
    mca_btl_base_module_t *on_node = &mca_btl_velo_component.on_node.super;

    refused[0] = '\0';
    velo_params_default(params);
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) \
    register_number(#name, #value, text, VELO_AUDIENCE_##audience, &texts.name);
#define VELO_PARAM_TEXT(name, value, audience, text) \
    register_text(#name, text, VELO_AUDIENCE_##audience, &params->name);
#define VELO_PARAM_GONE(name, text) register_gone(#name, &texts.name);
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT

    /* The base's names (eager_limit and so on) belong to the device's module; these to the on-node one. */
    register_size("shm_eager_limit", "eager_limit of the on-node path (bytes, header included).",
                  &on_node->btl_eager_limit);
    register_size("shm_rndv_eager_limit", "rndv_eager_limit of the on-node path (bytes, header included).",
                  &on_node->btl_rndv_eager_limit);
    register_size("shm_max_send_size", "max_send_size of the on-node path (bytes).",
                  &on_node->btl_max_send_size);

#define VELO_COUNTER(name, text) \
    register_counter(#name, text, MCA_BASE_PVAR_CLASS_COUNTER, offsetof(velo_counters_t, name));
#define VELO_LEVEL(name, text) \
    register_counter(#name, text, MCA_BASE_PVAR_CLASS_LEVEL, offsetof(velo_counters_t, name));
#include "velo/counters.def"
#undef VELO_COUNTER
    return OPAL_SUCCESS;
}
