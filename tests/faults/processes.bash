# Processes that fork, change their memory or run beside another job. Sourced by run.
# shellcheck shell=bash

for layout in 0 1; do
    works "ranks_may_fork_with_${layout}_ranks_a_node" -np 2 --mca btl_velo_ranks_per_node $layout "$faultdir/fork"
    works "changed_memory_is_never_stale_with_${layout}_ranks_a_node" -np 2 --mca btl_velo_ranks_per_node $layout \
        "$faultdir/remap"
    works "changed_memory_is_never_stale_when_copied_with_${layout}_ranks_a_node" -np 2 \
        --mca btl_velo_ranks_per_node $layout --mca btl_velo_single_copy none "$faultdir/remap"
done

# two_at_once MPIRUN_ARGUMENTS...: two such jobs pass at the same time.
two_at_once() {
    local first ok=yes
    log=$work/first passes "$@" &
    first=$!
    log=$work/second passes "$@" || ok=no
    wait "$first" || ok=no
    cat "$work/first" "$work/second" >"$log"
    [[ $ok == yes ]]
}
for layout in 0 1; do
    try "two_jobs_at_once_with_${layout}_ranks_a_node" two_at_once -np 2 --bind-to none \
        --mca btl_velo_ranks_per_node $layout "$program" --quick
done
