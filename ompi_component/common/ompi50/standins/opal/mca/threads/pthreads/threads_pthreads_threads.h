/* Stand-in for a header of Open MPI 5.0 that it does not install: see threads_pthreads_mutex.h beside it. */
#ifndef VELO_STANDIN_THREADS_PTHREADS_THREADS_H
#define VELO_STANDIN_THREADS_PTHREADS_THREADS_H

#include <pthread.h>
#include <sched.h>

static inline void opal_thread_yield(void)
{
    (void) sched_yield();
}

#endif /* VELO_STANDIN_THREADS_PTHREADS_THREADS_H */
