# One MPI job between hosts, its verdict, and what it may not leave behind. Sourced by run_hosts; runs on h0.
# shellcheck shell=bash

# Hosts need no name resolution beyond /etc/hosts, and all ranks share this machine's few cores.
start_inside() {
    work=$(mktemp -d)
    log=$work/log
    : >"$log"
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_base_warn_component_unused=0
    export OMPI_MCA_orte_base_help_aggregate=0
    local -a agent=(--mca plm rsh --mca plm_rsh_agent "$HOSTS_AGENT")
    [[ $host_series == 4.* ]] || agent=(--prtemca plm_ssh_agent "$HOSTS_AGENT")
    base=("${agent[@]}" --bind-to none --mca mpi_yield_when_idle 1 --mca pml ob1 --mca btl "$btl"
        --mca mca_base_component_path "$(host_path "$plugindir")" "${mca_extra[@]}")
}

# Whether a case was asked for.
wanted() {
    local glob
    ((${#only[@]})) || return 0
    # shellcheck disable=SC2053
    for glob in "${only[@]}"; do [[ $1 == $glob ]] && return 0; done
    return 1
}

# ranks LAYOUT: prints mpirun's arguments for that many ranks on h1, h2, ...: 3+1 gives h1:3,h2:1 and 4 ranks. 2to8 gives
# 2 ranks on h1, and room for 8 that they start on h2. 2|2 gives 4 ranks on h0, which start in its two containers, and
# may start others there.
ranks() {
    if [[ $1 == *'|'* ]]; then
        printf '%s\n' --host "h0:$((${1%|*} + ${1#*|}))" -np "$((${1%|*} + ${1#*|}))" --oversubscribe
        return
    fi
    if [[ $1 == *to* ]]; then
        printf '%s\n' --host "h1:${1%to*},h2:${1#*to}" -np "${1%to*}"
        return
    fi
    local -a counts
    IFS=+ read -r -a counts <<<"$1"
    local i list='' np=0
    for ((i = 0; i < ${#counts[@]}; ++i)); do
        list+=,h$((i + 1)):${counts[i]}
        np=$((np + counts[i]))
    done
    printf '%s\n' --host "${list#,}" -np "$np"
}

# left_on HOST: prints what is on a host that no job should leave there.
left_on() {
    "$hosts" processes "$1" | sed "s/^/process on $1: /"
    "$hosts" on "$1" find /dev/shm -mindepth 1 | sed "s/^/file on $1: /"
}

# nothing_left [PATTERN]: within 5 s no living host has processes, nor files in /dev/shm; or none that match.
nothing_left() {
    local host tries left
    for ((tries = 0; tries < 25; ++tries)); do
        left=
        for host in ${HOSTS_LIST//,/ }; do
            [[ -e $HOSTS_DIR/$host ]] || continue
            left+=$(left_on "$host" | grep -E "${1:-.}")
        done
        [[ $left ]] || return 0
        sleep 0.2
    done
    printf 'left behind: %s\n' "$left" >>"$log"
    return 1
}

# sweep: kills what a job has left on the hosts, so that the next case is not blamed for it.
sweep() {
    local host process
    for host in ${HOSTS_LIST//,/ }; do
        [[ -e $HOSTS_DIR/$host ]] || continue
        while read -r process _; do kill -KILL "$process" 2>/dev/null; done < <("$hosts" processes "$host")
        "$hosts" on "$host" find /dev/shm -mindepth 1 -delete
    done
}

seconds_since() { awk -v from="${1/,/.}" -v to="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%.1f", to - from }'; }

# verdict NAME LAYOUT START WHY: PASS without a reason; else FAIL, the reason and what matters of the log.
verdict() {
    local name=$1 layout=$2 seconds
    seconds=$(seconds_since "$3")
    if [[ ! $4 ]]; then
        echo "PASS $name $layout $seconds"
        return
    fi
    echo "FAIL $name $layout $seconds: $4"
    { grep '^FAIL' "$log" | cut -c 1-1000; tail -n 25 "$log"; } | sed 's/^/    /'
    [[ $logs ]] && cp "$log" "$logs/$name-$layout.log"
    sweep
}

# run_job LAYOUT ARGUMENT...: runs mpirun with its output in $log; fails unless the program passes and leaves nothing.
run_job() {
    local layout=$1 status
    shift
    local -a where
    mapfile -t where < <(ranks "$layout")
    (cd "$work" && exec timeout -k 5 "${seconds_max:-60}" mpirun "${base[@]}" "${where[@]}" "$@") >"$log" 2>&1 </dev/null
    status=$?
    ((status)) && printf 'exit status %s (124 and 137: no end after %s s)\n' "$status" "${seconds_max:-60}" >>"$log"
    nothing_left && ((status == 0)) && grep -q '^PASS' "$log" && ! grep -q '^FAIL' "$log"
}

# run_case NAME LAYOUT ARGUMENT...: a job with its verdict. Open MPI may fail to start a spawned process (spawned.h);
# such a run says nothing about velo, and is made again.
run_case() {
    local name=$1 layout=$2 start=$EPOCHREALTIME tries why
    shift 2
    wanted "$name" || return 0
    for ((tries = 1; tries <= 3; ++tries)); do
        why=
        run_job "$layout" "$@" && break
        why='the program did not pass, or left something'
        grep -q 'hung in PMIx_Init, before any BTL was loaded' "$log" || break
        sweep
    done
    verdict "$name" "$layout" "$start" "$why"
}
