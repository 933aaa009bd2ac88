# The programs of tests/mpi between hosts, and processes that one host starts on another. Sourced by run_hosts.
# shellcheck shell=bash

programs=(p2p requests matching rules sizes many datatypes collectives collectives_mixed lifecycle threads backlog big
    onesided dynamic atomics accumulates threads_onesided)
# Programs that do not pass on 4.1.4 beside tcp, each with the reason; without tcp they run.
one_window='4.1 makes windows only over one BTL that reaches every rank, and ends with MPI_ERR_WIN'
# Whichever BTL carries it: the owner of a window takes the lock of its list of regions exclusively, and then waits for
# the same lock to share it (ompi_osc_rdma_find_dynamic_region).
no_dynamic_windows='between hosts, osc/rdma of 4.1.4 waits for a lock that it has itself'
declare -A not_beside_tcp=(
    [backlog]='it measures what velo keeps of a message that waits; btl/tcp keeps more'
    [big]='btl/tcp ends with "readv error: Bad address" on one message of more than 4 GiB'
    [onesided]=$one_window
    [dynamic]=$one_window
    [atomics]=$one_window
    [accumulates]=$one_window
    [threads_onesided]=$one_window
)

run_programs() {
    with_hosts 2 all_programs
}

# Of a program between hosts, a line each.
arguments_of() {
    printf '%s\n' --watchdog 40 --quick
    case $1 in
        lifecycle) printf '%s\n' --skip comm_spawn ;;
        onesided | atomics | accumulates | threads_onesided) printf '%s\n' --skip '*_dynamic' --skip attach_and_detach ;;
    esac
}

# Messages of big and backlog are between the first rank and the last one; more ranks only wait. Processes that
# lifecycle starts are a part of their own.
all_programs() {
    local program layout
    local -a layouts arguments
    for program in "${programs[@]}"; do
        wanted "$program" || continue
        if [[ $btl == *tcp* && ${not_beside_tcp[$program]:-} ]]; then
            skip "$program over $btl" "${not_beside_tcp[$program]}"
            continue
        fi
        if [[ $program == dynamic ]]; then
            skip "$program over $btl" "$no_dynamic_windows"
            continue
        fi
        layouts=(1+1 2+2 3+1)
        case $program in
            big) layouts=(1+1); [[ $full ]] || continue ;;
            backlog) layouts=(1+1) ;;
            atomics | accumulates | threads_onesided) [[ $full ]] || layouts=(1+1 2+2) ;;
        esac
        mapfile -t arguments < <(arguments_of "$program")
        for layout in "${layouts[@]}"; do
            run_case "$program" "$layout" "$bindir/$program" "${arguments[@]}"
        done
    done
    return 0
}

# Jobs of two mpiruns (tests/mpi/run: two_jobs) do not meet between hosts: orted crashes in orte_rml_base_parse_uris, over
# every BTL. They do where mpirun itself starts the ranks.
run_spawn() {
    with_hosts 2 all_spawns
}

# Without contact slots a mailbox is for its job alone: a job that meets another one ends, and says what to do.
refused_spawn() {
    if run_job 2to8 --mca btl_velo_flow_control static "$bindir/lifecycle" --watchdog 40 \
        --quick --only comm_spawn; then
        why='it passed'
    elif ! grep -q 'cannot reach rank .* of another job, on another host, .*btl_velo_flow_control=dynamic' "$log"; then
        why='no line says that the peer is of another job, and what to do'
    fi
}

# Numbers of processes of another host mean nothing under --own-pids, and jobs waits until its children's are gone.
all_spawns() {
    run_case lifecycle 2to8 "$bindir/lifecycle" --watchdog 40 --quick --only comm_spawn
    run_case leaving 2to8 "$bindir/leaving" --watchdog 60 --quick
    if [[ $host_series == 4.* ]]; then
        run_case jobs_connect 1+1 "$bindir/jobs" --watchdog 40 --quick --only connect_within_a_job
    elif wanted jobs_connect; then
        skip "jobs_connect over $btl" 'MPI_Comm_accept fails between hosts of 5.0.7, over tcp as well'
    fi
    [[ $btl == *tcp* ]] || case_on_hosts 'spawn_is_refused 2to8' refused_spawn
    if [[ $full && ! $own_pids ]]; then
        run_case jobs_spawns 2to8 "$bindir/jobs" --watchdog 40 --quick --only several_spawns_alive --only spawn_leaves_nothing
    fi
    wanted two_jobs && skip "two_jobs over $btl" 'orted of 4.1.4 crashes when jobs of two mpiruns meet through a port'
    return 0
}
