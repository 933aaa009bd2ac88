# The programs of tests/mpi in two containers of one host: they share its name and network, and each has mounts, /dev/shm,
# System V IPC and process numbers of its own. mpirun runs outside of them. Sourced by run_hosts.
# shellcheck shell=bash

run_containers() {
    local kind=-c
    with_hosts 2 all_containers
}

# Started by mpirun: runs a program in h1 for the first half of the ranks, in h2 for the others.
# shellcheck disable=SC2016
in_container=(bash -c 'exec "$0" on "h$((1 + OMPI_COMM_WORLD_RANK * 2 / OMPI_COMM_WORLD_SIZE))" "$@"' "$hosts")

all_containers() {
    local -a ofi=(--mca btl_velo_device ofi) arguments=(--watchdog 40 --quick)
    if [[ $btl == *tcp* ]]; then
        skip "containers over $btl" 'btl/tcp would carry what velo refuses'
        return
    fi
    run_case containers_p2p '2|2' "${ofi[@]}" "${in_container[@]}" "$bindir/p2p" "${arguments[@]}"
    run_case containers_onesided '2|2' "${ofi[@]}" "${in_container[@]}" "$bindir/onesided" "${arguments[@]}" \
        --skip '*_dynamic' --skip attach_and_detach
    run_case containers_lifecycle '1|1' "${ofi[@]}" "${in_container[@]}" "$bindir/lifecycle" "${arguments[@]}"
    if unshare --user true 2>/dev/null; then
        run_case containers_of_users_p2p '1|1' "${ofi[@]}" unshare --user --map-root-user "$bindir/p2p" "${arguments[@]}"
    else
        skip containers_of_users_p2p 'user namespaces cannot be made here'
    fi
    case_on_hosts 'containers_are_refused 1|1' refused_containers
}

# A job that sees one host only has no network, and says what to do.
refused_containers() {
    if run_job '1|1' "${in_container[@]}" "$bindir/p2p" --watchdog 40 --quick; then
        why='it passed'
    elif ! grep -q 'cannot reach rank .*its shared memory cannot be attached: .*btl_velo_device=ofi' "$log"; then
        why='no line says that the peer is in another container, and what to do'
    fi
}
