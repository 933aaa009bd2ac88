/*
 * Stand-in for a header of Open MPI 5.0 that its own headers include and that it does not install. configure puts it
 * on the include path where it is missing. Mutexes and conditions are those of POSIX, as opal/mca/threads/threads.h
 * shows, which is installed and names pthread_t.
 */
#ifndef VELO_STANDIN_THREADS_PTHREADS_MUTEX_H
#define VELO_STANDIN_THREADS_PTHREADS_MUTEX_H

#include <pthread.h>
#include <stdbool.h>

typedef pthread_mutex_t opal_thread_internal_mutex_t;
typedef pthread_cond_t opal_thread_internal_cond_t;

#define OPAL_THREAD_INTERNAL_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#define OPAL_THREAD_INTERNAL_COND_INITIALIZER PTHREAD_COND_INITIALIZER

static inline int opal_thread_internal_mutex_init(opal_thread_internal_mutex_t *mutex, bool recursive)
{
    pthread_mutexattr_t attributes;
    int rc;

    if (!recursive) {
        return pthread_mutex_init(mutex, NULL);
    }
    rc = pthread_mutexattr_init(&attributes);
    if (0 == rc) {
        (void) pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
        rc = pthread_mutex_init(mutex, &attributes);
        (void) pthread_mutexattr_destroy(&attributes);
    }
    return rc;
}

static inline void opal_thread_internal_mutex_destroy(opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_mutex_destroy(mutex);
}

static inline void opal_thread_internal_mutex_lock(opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_mutex_lock(mutex);
}

/* 0: it is locked now. */
static inline int opal_thread_internal_mutex_trylock(opal_thread_internal_mutex_t *mutex)
{
    return 0 != pthread_mutex_trylock(mutex);
}

static inline void opal_thread_internal_mutex_unlock(opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_mutex_unlock(mutex);
}

static inline int opal_thread_internal_cond_init(opal_thread_internal_cond_t *condition)
{
    return pthread_cond_init(condition, NULL);
}

static inline void opal_thread_internal_cond_wait(opal_thread_internal_cond_t *condition,
                                                  opal_thread_internal_mutex_t *mutex)
{
    (void) pthread_cond_wait(condition, mutex);
}

static inline void opal_thread_internal_cond_signal(opal_thread_internal_cond_t *condition)
{
    (void) pthread_cond_signal(condition);
}

static inline void opal_thread_internal_cond_broadcast(opal_thread_internal_cond_t *condition)
{
    (void) pthread_cond_broadcast(condition);
}

static inline void opal_thread_internal_cond_destroy(opal_thread_internal_cond_t *condition)
{
    (void) pthread_cond_destroy(condition);
}

#endif /* VELO_STANDIN_THREADS_PTHREADS_MUTEX_H */
