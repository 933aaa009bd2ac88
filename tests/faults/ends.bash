# Ends of a job, and what is left behind. Sourced by run.
# shellcheck shell=bash

# A survivor's message about a rank that was killed. %d: its rank, its process.
death_line='velo: rank %d\\b.*\(pid %d\\b.*\) has ended'
# Survivors must be gone by then.
end_seconds=5

velo_files() { find /dev/shm /tmp -maxdepth 2 -name '*velo*' ! -path "$work*" 2>/dev/null | sort; }

# job LAYOUT HOW...: starts `end` in the background as $mpirun_pid, with its output in $work/out.
job() {
    local layout=$1
    shift
    files_before=$(velo_files)
    : >"$work/out"
    mpirun "${base[@]}" --oversubscribe --bind-to none -np 3 --mca btl_velo_ranks_per_node "$layout" "$@" \
        >"$work/out" 2>&1 &
    mpirun_pid=$!
}

# Waits until three ranks have named their processes, and keeps them in $ranks; fails after 30 s.
await_ranks() {
    local tries
    for ((tries = 0; tries < 300; ++tries)); do
        mapfile -t ranks < <(sed -n 's/.*pid \([0-9]*\)$/\1/p' "$work/out")
        ((${#ranks[@]} >= 3)) && return 0
        sleep 0.1
    done
    return 1
}

# gone SECONDS PID...: all of them end in time. The rest is ended here after that.
gone() {
    local tries left pid
    ((tries = $1 * 10))
    shift
    for (( ; tries > 0; --tries)); do
        left=0
        for pid in "$@"; do kill -0 "$pid" 2>/dev/null && left=1; done
        ((left)) || return 0
        sleep 0.1
    done
    kill -KILL "$@" 2>/dev/null
    wait "$mpirun_pid" 2>/dev/null
    return 1
}

# Nothing of velo's is in a file system, and no process has memory of those ranks.
nothing_left() {
    local left
    left=$(comm -13 <(printf '%s\n' "$files_before") <(velo_files))
    # Another job may have made its own; what stays is ours.
    if [[ $left ]]; then
        sleep 1
        left=$(comm -12 <(printf '%s\n' "$left") <(velo_files))
    fi
    [[ -z $left ]] || { printf 'left behind: %s\n' "$left" >>"$work/out"; return 1; }
}

for layout in 0 1; do
    for how in clean abort; do
        name="after_${how}_end_nothing_is_left_with_${layout}_ranks_a_node"
        wanted "$name" || continue
        ok=no
        job $layout "$faultdir/end" $how
        if await_ranks && gone 30 "$mpirun_pid" "${ranks[@]}" && nothing_left; then
            wait "$mpirun_pid"
            status=$?
            [[ $how == clean ]] && ((status == 0)) && grep -q '^PASS' "$work/out" && ok=yes
            [[ $how == abort ]] && ((status != 0)) && ok=yes
        fi
        verdict "$name" "$ok"
    done

    name="after_everything_is_killed_nothing_is_left_with_${layout}_ranks_a_node"
    if wanted "$name"; then
        ok=no
        job $layout "$faultdir/end" stay
        if await_ranks; then
            kill -KILL "$mpirun_pid" "${ranks[@]}"
            wait "$mpirun_pid" 2>/dev/null
            gone $end_seconds "$mpirun_pid" "${ranks[@]}" && nothing_left && ok=yes
        fi
        verdict "$name" "$ok"
    fi

    # mpirun ends the others when one is killed; told not to, it leaves that to them.
    for recovery in 0 1; do
        name="a_killed_rank_is_named_and_the_others_end_with_${layout}_ranks_a_node_and_recovery_$recovery"
        wanted "$name" || continue
        ok=no
        job $layout --mca orte_enable_recovery $recovery "$faultdir/end" stay
        if await_ranks; then
            # Which rank the process is, its environment says.
            for pid in "${ranks[@]}"; do
                tr '\0' '\n' <"/proc/$pid/environ" | grep -q '^OMPI_COMM_WORLD_RANK=1$' && victim=$pid
            done
            kill -KILL "$victim"
            # shellcheck disable=SC2059
            gone $end_seconds "$mpirun_pid" "${ranks[@]}" && nothing_left &&
                grep -qE "$(printf "$death_line" 1 "$victim")" "$work/out" && ok=yes
        fi
        verdict "$name" "$ok"
    done
done
