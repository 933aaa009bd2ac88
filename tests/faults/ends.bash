# Ends of a job, and what is left behind. Sourced by run.
# shellcheck shell=bash

# A survivor's line on a rank that was killed. %d: its rank, its process.
death_line='velo: rank %d\\b.*\(pid %d\\b.*\) has ended'
# Survivors must be gone by then.
end_seconds=5
velo_folders=(/dev/shm /tmp)

# start_end LAYOUT HOW...: `end` in the background, from when three ranks have named their processes: $ranks.
start_end() {
    start_job --oversubscribe --bind-to none -np 3 --mca btl_velo_ranks_per_node "$@"
    await 30 three_ranks && return
    kill -TERM "$job" 2>/dev/null
    wait "$job"
    return 1
}
three_ranks() {
    mapfile -t ranks < <(sed -n 's/.*pid \([0-9]*\)$/\1/p' "$log")
    ((${#ranks[@]} >= 3))
}

# none_alive PID...: all of them have ended.
none_alive() {
    local pid
    for pid in "$@"; do kill -0 "$pid" 2>/dev/null && return 1; done
    return 0
}

# gone SECONDS: mpirun and the ranks end in time, and leave nothing. A process that is left after that is ended here.
gone() {
    if ! await "$1" none_alive "$job" "${ranks[@]}"; then
        kill -KILL "$job" "${ranks[@]}" 2>/dev/null
        wait "$job" 2>/dev/null
        return 1
    fi
    ! left_since "$files_before"
}

# The cases; the first word of each is LAYOUT.
ends_clean() { start_end "$1" "$faultdir/end" clean && gone 30 && wait "$job" && said_pass; }
ends_by_abort() { start_end "$1" "$faultdir/end" abort && gone 30 && ! wait "$job"; }
ends_by_kill() {
    start_end "$1" "$faultdir/end" stay || return
    kill -KILL "$job" "${ranks[@]}"
    wait "$job" 2>/dev/null
    gone $end_seconds
}

# one_is_killed LAYOUT RECOVERY
one_is_killed() {
    local pid victim=
    start_end "$1" --mca orte_enable_recovery "$2" "$faultdir/end" stay || return
    # The environment of a process has its rank.
    for pid in "${ranks[@]}"; do
        grep -qz '^OMPI_COMM_WORLD_RANK=1$' "/proc/$pid/environ" && victim=$pid
    done
    kill -KILL "$victim"
    # shellcheck disable=SC2059
    gone $end_seconds && grep -qE "$(printf "$death_line" 1 "$victim")" "$log"
}

for layout in 0 1; do
    try "after_clean_end_nothing_is_left_with_${layout}_ranks_a_node" ends_clean $layout
    try "after_abort_end_nothing_is_left_with_${layout}_ranks_a_node" ends_by_abort $layout
    try "after_everything_is_killed_nothing_is_left_with_${layout}_ranks_a_node" ends_by_kill $layout
    # mpirun ends the others when one is killed; told not to, it leaves that to them.
    for recovery in 0 1; do
        try "a_killed_rank_is_named_and_the_others_end_with_${layout}_ranks_a_node_and_recovery_$recovery" \
            one_is_killed $layout $recovery
    done
done
