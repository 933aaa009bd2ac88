# Layouts, and the runs of each program, for the two runners. Sourced, never run itself.
#
# A sourcing script sets all_programs, and the functions np_list_of PROGRAM, which prints the numbers of ranks that the
# program may run with, and launch PROGRAM NP, which calls run_mpi.
# shellcheck shell=bash

# shellcheck source=../job.bash
source "${BASH_SOURCE[0]%/*}/../job.bash"

all_layouts=(one_node one_rank_a_node two_ranks_a_node)
options+=([--btl]=word [--np]=word [--layout]=list [--timeout]=word [--quick]=flag [--without]=list
    [--only]=program [--skip]=program [--seed]=program)
btl='' np='2 4 8' layout=() timeout=120 quick='' without=() programs=()

contains() { [[ " ${*:2} " == *" $1 "* ]]; }

operand() {
    contains "$1" "${all_programs[@]}" || wrong "there is no program $1; known: ${all_programs[*]}"
    programs+=("$1")
}

# begin_programs WORD...
begin_programs() {
    local name
    begin -- "$@"
    seconds_max=$timeout
    read -r -a np_list <<<"${np//,/ }"
    read -r -a layouts <<<"${layout[*]//,/ }"
    ((${#programs[@]})) || programs=("${all_programs[@]}")
    for name in "${without[@]}"; do
        contains "$name" "${all_programs[@]}" || wrong "there is no program $name; known: ${all_programs[*]}"
        mapfile -t programs < <(printf '%s\n' "${programs[@]}" | grep -vxF "$name")
    done
    # Only velo can be told to see one machine as several nodes.
    if [[ $btl ]]; then
        ((${#layouts[@]} == 0)) || wrong "--layout applies to velo, not to --btl $btl"
        layouts=("$btl")
    elif ((${#layouts[@]} == 0)); then
        layouts=("${all_layouts[@]}")
    fi
    for name in "${layouts[@]}"; do
        [[ $btl ]] || contains "$name" "${all_layouts[@]}" || wrong "unknown layout $name; known: ${all_layouts[*]}"
    done
}

# run_mpi NP COMMAND...: runs it under the present $layout.
run_mpi() {
    local np=$1 cores
    cores=$(nproc)
    use_btls "${btl:-velo,self}"
    # On 4.1 neither osc/rdma nor Debian's defaults offer one-sided communication over tcp alone.
    [[ $host_series == 4.* && $btl == *tcp* && $btl != *vader* ]] && base+=(--mca osc pt2pt)
    case $layout in
        one_rank_a_node) base+=(--mca btl_velo_ranks_per_node 1) ;;
        two_ranks_a_node) base+=(--mca btl_velo_ranks_per_node 2) ;;
    esac
    # A spawned job needs slots of its own, hence more than the ranks asked for.
    ((np > cores)) || [[ $program == @(lifecycle|leaving|jobs|mpi4py_objects) ]] && base+=(--oversubscribe)
    # The threads of two ranks already outnumber most machines' cores.
    ((np > cores)) || [[ $program == @(threads*|leaving|jobs) ]] && base+=(--mca mpi_yield_when_idle 1)
    job -np "$np" "${@:2}"
}

# Everything asked for, one line each, and the counts. The exit status of the script.
run_all() {
    local layout program np
    for layout in "${layouts[@]}"; do
        for program in "${programs[@]}"; do
            for np in $(np_list_of "$program"); do try "$program $layout $np" launch "$program" "$np"; done
        done
    done
    finish
}
