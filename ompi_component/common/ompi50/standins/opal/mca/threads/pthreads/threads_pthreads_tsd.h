/* Stand-in for a header of Open MPI 5.0 that it does not install: see threads_pthreads_mutex.h beside it. */
#ifndef VELO_STANDIN_THREADS_PTHREADS_TSD_H
#define VELO_STANDIN_THREADS_PTHREADS_TSD_H

#include <pthread.h>

typedef pthread_key_t opal_tsd_key_t;

static inline int opal_tsd_get(opal_tsd_key_t key, void **value)
{
    *value = pthread_getspecific(key);
    return 0;
}

static inline int opal_tsd_set(opal_tsd_key_t key, void *value)
{
    return pthread_setspecific(key, value);
}

#endif /* VELO_STANDIN_THREADS_PTHREADS_TSD_H */
