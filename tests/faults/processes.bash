# Other things that processes do: fork, change their memory, run beside another job. Sourced by run.
# shellcheck shell=bash

for layout in 0 1; do
    works "ranks_may_fork_with_${layout}_ranks_a_node" -np 2 --mca btl_velo_ranks_per_node $layout "$faultdir/fork"
    works "changed_memory_is_never_stale_with_${layout}_ranks_a_node" -np 2 --mca btl_velo_ranks_per_node $layout \
        "$faultdir/remap"
    works "changed_memory_is_never_stale_when_copied_with_${layout}_ranks_a_node" -np 2 \
        --mca btl_velo_ranks_per_node $layout --mca btl_velo_single_copy none "$faultdir/remap"
done

for layout in 0 1; do
    name="two_jobs_at_once_with_${layout}_ranks_a_node"
    wanted "$name" || continue
    ok=yes
    jobs=()
    for job in 1 2; do
        timeout -k 5 60 mpirun "${base[@]}" -np 2 --bind-to none --mca btl_velo_ranks_per_node $layout "$program" \
            --quick >"$work/job$job" 2>&1 &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job" || ok=no; done
    cat "$work/job1" "$work/job2" >"$work/out"
    (($(grep -c '^FAIL' "$work/out") == 0)) || ok=no
    (($(grep -c '^PASS' "$work/job1") > 0 && $(grep -c '^PASS' "$work/job2") > 0)) || ok=no
    verdict "$name" "$ok"
done
