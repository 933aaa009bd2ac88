# Shared by the two runners: options, layouts, one mpirun and its verdict, counts. Sourced, never run itself.
#
# A sourcing script sets: usage_text, all_programs, and the functions np_list_of PROGRAM, which prints the
# numbers of ranks it may run with, and launch PROGRAM NP, which calls run_mpi and returns its verdict.
# shellcheck shell=bash

all_layouts=(one_node one_rank_a_node two_ranks_a_node)

bindir=
plugindir=
btl=
mca_extra=()
np_list=(2 4 8)
layouts=()
programs=()
program_arguments=()
quick=
timeout_s=120
logs=
mpirun=${MPIRUN:-mpirun}
# shellcheck source=../../tools/host.bash
source "${BASH_SOURCE[0]%/*}/../../tools/host.bash"
host_read "$mpirun"
passed=0
failed=0

die() {
    printf '%s: %s\n' "$(basename "$0")" "$1" >&2
    exit 2
}

contains() {
    local wanted=$1 word
    shift
    for word in "$@"; do [[ $word == "$wanted" ]] && return 0; done
    return 1
}

parse_options() {
    while (($#)); do
        case $1 in
            -h | --help) printf '%s\n' "$usage_text"; exit 0 ;;
            --quick) quick=--quick; shift; continue ;;
            --*) (($# > 1)) || die "$1 needs a value" ;;&
            --bindir) bindir=$2 ;;
            --plugindir) plugindir=$(realpath -e "$2") || die "no directory $2" ;;
            --btl) btl=$2 ;;
            --mca-extra) read -r -a words <<<"$2"; mca_extra+=("${words[@]}") ;;
            --np) read -r -a np_list <<<"${2//,/ }" ;;
            --layout) read -r -a words <<<"${2//,/ }"; layouts+=("${words[@]}") ;;
            --only | --skip | --seed) program_arguments+=("$1" "$2") ;;
            --timeout) timeout_s=$2 ;;
            --logs) logs=$2 ;;
            -*) die "unknown option $1; --help lists them" ;;
            *)
                contains "$1" "${all_programs[@]}" || die "unknown program $1; known: ${all_programs[*]}"
                programs+=("$1")
                shift
                continue
                ;;
        esac
        shift 2
    done
    ((${#programs[@]})) || programs=("${all_programs[@]}")
    # Only velo can be told to see one machine as several nodes.
    if [[ $btl ]]; then
        ((${#layouts[@]} == 0)) || die "--layout applies to velo, not to --btl $btl"
        layouts=("$btl")
    elif ((${#layouts[@]} == 0)); then
        layouts=("${all_layouts[@]}")
    fi
    local layout
    for layout in "${layouts[@]}"; do
        [[ $btl ]] || contains "$layout" "${all_layouts[@]}" ||
            die "unknown layout $layout; known: ${all_layouts[*]}"
    done
    if [[ $logs ]]; then
        mkdir -p "$logs" || exit 2
    else
        logs=$(mktemp -d "${TMPDIR:-/tmp}/mpi-tests.XXXXXX") || exit 2
    fi
    work=$(mktemp -d "${TMPDIR:-/tmp}/mpi-tests-work.XXXXXX") || exit 2
    # The directory of logs stays only if there is something in it.
    trap 'rm -rf "$work"; rmdir "$logs" 2>/dev/null' EXIT
}

# Prints, one a line, the mpirun arguments that choose the transport for a layout.
transport_arguments() {
    printf '%s\n' --mca pml ob1
    if [[ $btl ]]; then
        printf '%s\n' --mca btl "$btl"
        # On 4.1 neither osc/rdma nor Debian's defaults offer one-sided communication over tcp alone.
        [[ $host_series == 4.* && $btl == *tcp* && $btl != *vader* ]] && printf '%s\n' --mca osc pt2pt
        return
    fi
    printf '%s\n' --mca btl velo,self
    [[ $plugindir ]] && printf '%s\n' --mca mca_base_component_path "$(host_path "$plugindir")"
    case $1 in
        one_rank_a_node) printf '%s\n' --mca btl_velo_ranks_per_node 1 ;;
        two_ranks_a_node) printf '%s\n' --mca btl_velo_ranks_per_node 2 ;;
    esac
}

velo_in_shm() { find /dev/shm -maxdepth 1 -name '*velo*' 2>/dev/null | sort; }

# run_mpi NP COMMAND...: runs it in $work under the current $layout, with output in $log. Fails if it does, or
# if it leaves something of velo's in /dev/shm.
run_mpi() {
    local np=$1
    shift
    local -a arguments
    mapfile -t arguments < <(transport_arguments "$layout")
    ((UID == 0)) && arguments+=(--allow-run-as-root)
    local cores
    cores=$(nproc)
    # A spawned job needs slots of its own, hence more than the ranks asked for.
    ((np > cores)) || [[ $program == lifecycle || $program == jobs || $program == mpi4py_objects ]] && arguments+=(--oversubscribe)
    # The threads of two ranks already outnumber most machines' cores.
    ((np > cores)) || [[ $program == threads* || $program == jobs ]] && arguments+=(--mca mpi_yield_when_idle 1)
    local before after left
    before=$(velo_in_shm)
    printf '+ %s' "$mpirun" >"$log"
    printf ' %q' "${arguments[@]}" "${mca_extra[@]}" -np "$np" "$@" >>"$log"
    printf '\n' >>"$log"
    (
        cd "$work" &&
            exec timeout -k 10 "$timeout_s" "$mpirun" "${arguments[@]}" "${mca_extra[@]}" -np "$np" "$@"
    ) >>"$log" 2>&1 </dev/null
    local status=$?
    if ((status == 124 || status == 137)); then
        printf 'no end after %s s\n' "$timeout_s" >>"$log"
    elif ((status)); then
        printf 'exit status %s\n' "$status" >>"$log"
    fi
    after=$(velo_in_shm)
    left=$(comm -13 <(printf '%s\n' "$before") <(printf '%s\n' "$after"))
    if [[ $left ]]; then
        # Another job's segment may have been seen at its birth; what is ours would stay.
        sleep 1
        left=$(comm -12 <(printf '%s\n' "$left") <(velo_in_shm))
    fi
    if [[ $left ]]; then
        printf 'left in /dev/shm: %s\n' "$left" >>"$log"
        status=1
    fi
    return "$status"
}

# Everything asked for, one line each, and the counts. The exit status of the script.
run_all() {
    local layout program np log start_s seconds
    for layout in "${layouts[@]}"; do
        for program in "${programs[@]}"; do
            for np in $(np_list_of "$program"); do
                log=$work/log
                start_s=$EPOCHREALTIME
                if launch "$program" "$np"; then
                    verdict=PASS
                    passed=$((passed + 1))
                else
                    verdict=FAIL
                    failed=$((failed + 1))
                fi
                seconds=$(awk -v from="${start_s/,/.}" -v to="${EPOCHREALTIME/,/.}" \
                    'BEGIN { printf "%.1f", to - from }')
                printf '%s %s %s %s %s\n' "$verdict" "$program" "$layout" "$np" "$seconds"
                if [[ $verdict == FAIL ]]; then
                    local kept=$logs/$program-${layout//,/+}-$np.log
                    mv "$log" "$kept"
                    # A check's verdict matters more than mpirun's about the exit that follows.
                    { grep '^FAIL' "$kept" | cut -c 1-1000; tail -n 15 "$kept"; } | sed 's/^/    /'
                    printf '    log: %s\n' "$kept"
                fi
            done
        done
    done
    printf '%s passed, %s failed\n' "$passed" "$failed"
    ((failed == 0 && passed > 0))
}
