# One MPI job between hosts, and what it may not leave behind. Sourced by run_hosts; runs on h0.
# shellcheck shell=bash

# Hosts need no name resolution beyond /etc/hosts, and all ranks share this machine's few cores.
start_inside() {
    export OMPI_MCA_btl_base_warn_component_unused=0 OMPI_MCA_orte_base_help_aggregate=0
    local -a agent=(--mca plm rsh --mca plm_rsh_agent "$HOSTS_AGENT")
    [[ $host_series == 4.* ]] || agent=(--prtemca plm_ssh_agent "$HOSTS_AGENT")
    use_btls "$btl"
    base=("${agent[@]}" --bind-to none --mca mpi_yield_when_idle 1 "${base[@]}")
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
    local left
    await 5 hosts_are_clean "${1:-.}" && return
    printf 'left behind: %s\n' "$left" >>"$log"
    return 1
}
hosts_are_clean() {
    local host
    left=
    for host in ${HOSTS_LIST//,/ }; do
        [[ -e $HOSTS_DIR/$host ]] && left+=$(left_on "$host" | grep -E "$1")
    done
    [[ ! $left ]]
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

# run_job LAYOUT ARGUMENT...: runs mpirun; fails unless the program passes and leaves nothing.
run_job() {
    local layout=$1 ok=yes
    local -a where
    mapfile -t where < <(ranks "$layout")
    passes "${where[@]}" "${@:2}" || ok=no
    nothing_left && [[ $ok == yes ]]
}

# passes_again LAYOUT ARGUMENT...: a job that passes.
before_again() { sweep; }
passes_again() { again 2 "$hung" run_job "$@" || why=${why:-the program did not pass, or left something}; }

# case_on_hosts NAME COMMAND...: a case, behind which the hosts are clean.
case_on_hosts() { try "$@" || sweep; }

# run_case NAME LAYOUT ARGUMENT...
run_case() { case_on_hosts "$1 $2" passes_again "${@:2}"; }
