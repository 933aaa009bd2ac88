#!/usr/bin/env bash
# One MPI job and its verdict, for all runners of tests. They source it; by itself it is a job for other scripts:
#
#   tests/job.bash PLUGINDIR ARGUMENT...    mpirun with the arguments that every job has, and these
set -uo pipefail

# shellcheck source=../tools/host.bash
source "${BASH_SOURCE[0]%/*}/../tools/host.bash"
mpirun=${MPIRUN:-mpirun}
host_read "$mpirun"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# --- Options. A runner adds its own to this table; its function `operand` takes the words that are no options. Kinds:
# flag, path (exists), folder (is made), word (the last one counts), list (of all that were given), words (one word
# holds elements of a list) and program (is passed on to the program).
declare -A options=([--bindir]=path [--plugindir]=path [--only]=list [--logs]=folder [--mca-extra]=words
    [--mtl]=flag)
bindir='' plugindir='' logs='' mtl='' only=() mca_extra=() program_arguments=()

wrong() { printf '%s: %s; --help lists the options\n' "${0##*/}" "$*" >&2; exit 2; }
usage() {
    sed -n '2,/^set /{/^set /!s/^# \{0,1\}//p}' "$0"
    [[ ${all_programs[*]:-} ]] && printf 'Programs: %s\n' "${all_programs[*]}"
    return 0
}

# parse_options WORD...: each option sets the variable of its name: --mca-extra mca_extra.
parse_options() {
    local variable words
    while (($#)); do
        case $1 in
            -h | --help) usage; exit 0 ;;
            -*) ;;
            *) [[ $(type -t operand) ]] || wrong "unknown argument '$1'"; operand "$1"; shift; continue ;;
        esac
        [[ ${options[$1]:-} ]] || wrong "unknown option $1"
        variable=${1#--}
        local -n value=${variable//-/_}
        if [[ ${options[$1]} == flag ]]; then value=yes; shift; continue; fi
        (($# > 1)) || wrong "$1 needs a value"
        # shellcheck disable=SC2034
        case ${options[$1]} in
            path) value=$(realpath -e "$2") || exit 2 ;;
            folder) mkdir -p "$2" && value=$(realpath "$2") || exit 2 ;;
            word) value=$2 ;;
            list) value+=("$2") ;;
            words) read -r -a words <<<"$2"; value+=("${words[@]}") ;;
            program) program_arguments+=("$1" "$2") ;;
        esac
        shift 2
    done
}

# use_btls LIST: sets base, the arguments that every job has.
use_btls() {
    if [[ $mtl ]]; then
        base=(--mca pml cm --mca mtl velo --mca btl "$1")
    else
        base=(--mca pml ob1 --mca btl "$1")
    fi
    [[ $plugindir ]] && base+=(--mca mca_base_component_path "$(host_path "$plugindir")")
    base+=("${mca_extra[@]}")
}
# For jobs of more ranks than cores.
crowd=(--oversubscribe --mca mpi_yield_when_idle 1)

# begin NEEDED -- WORD...: a runner begins: its options, of which some are needed, and a folder for its jobs.
begin() {
    local -a needed=()
    while [[ $1 != -- ]]; do needed+=("$1"); shift; done
    parse_options "${@:2}"
    local option
    for option in "${needed[@]}"; do [[ ${!option} ]] || wrong "--$option is needed"; done
    work=$(mktemp -d "${TMPDIR:-/tmp}/job.XXXXXX") || exit 2
    [[ $logs ]] || logs=$(mktemp -d "${TMPDIR:-/tmp}/job-logs.XXXXXX") || exit 2
    # The folder of logs stays only if there is something in it.
    trap 'rm -rf "$work"; rmdir "$logs" 2>/dev/null' EXIT
    log=$work/log
    : >"$log"
    use_btls velo,self
}

# --- Jobs.

# await SECONDS COMMAND...: until it succeeds; fails if it does not in time.
await() {
    local end_us=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
    until "${@:2}"; do
        ((${EPOCHREALTIME/[.,]/} < end_us)) || return 1
        sleep 0.1
    done
}

# Folders in which a job may leave files of velo's, and those files. Left out are folders that tests work in,
# job*, of other scripts too.
velo_folders=(/dev/shm)
files_of_velo() { find "${velo_folders[@]}" -maxdepth 2 -name '*velo*' ! -path "${work%/*}/job*" 2>/dev/null | sort; }

# left_since FILES: whether there are others now, which stay; another job's may have been seen at their birth.
left_since() {
    local left
    left=$(comm -13 <(printf '%s\n' "$1") <(files_of_velo))
    [[ $left ]] || return
    sleep 1
    left=$(comm -12 <(printf '%s\n' "$left") <(files_of_velo))
    [[ $left ]] && why="left behind: $left"
}

# job ARGUMENT...: one mpirun in $work, started by $within, that ends within $seconds_max. Sets $log, its output, and
# $ended, the time of its end. Returns its status; if something is left behind, that sets why and is a failure.
within=()
job() {
    local before status limit_s=${seconds_max:-60}
    before=$(files_of_velo)
    command=("$mpirun" "${base[@]}" "$@")
    (cd "$work" && exec "${within[@]}" timeout -k 5 "$limit_s" "${command[@]}") >"$log" 2>&1 </dev/null
    status=$?
    ended=$EPOCHREALTIME
    ((status)) && printf 'exit status %s (124 and perhaps 137: no end after %s s)\n' "$status" "$limit_s" >>"$log"
    left_since "$before" && ((status == 0)) && status=1
    return "$status"
}

# start_job ARGUMENT...: the same in the background, without a limit, as process $job.
start_job() {
    files_before=$(files_of_velo)
    command=("$mpirun" "${base[@]}" "$@")
    : >"$log"
    (cd "$work" && exec "${command[@]}") >"$log" 2>&1 </dev/null &
    job=$!
}

# said_pass: the log is of a program that passed.
said_pass() { grep -q '^PASS' "$log" && ! grep -q '^FAIL' "$log"; }
# passes ARGUMENT...: the job passes.
passes() { job "$@" && said_pass; }

# again TIMES PATTERN COMMAND...: COMMAND, which is made again, at most so often, while its log has PATTERN: Open MPI itself
# failed to start a process, and the run says nothing of velo. In between it calls before_again.
hung='hung in PMIx_Init, before any BTL was loaded'  # spawned.h says it
before_again() { :; }
again() {
    local times=$1 pattern=$2
    shift 2
    while true; do
        why=
        "$@" && return
        ((times-- > 0)) && grep -q "$pattern" "$log" || return 1
        printf 'AGAIN %s: a spawned process hung\n' "$name"
        before_again
    done
}

# --- Verdicts.

passed=0
failed=0
started=$EPOCHREALTIME

seconds_since() { awk -v from="${1/,/.}" -v to="${EPOCHREALTIME/,/.}" 'BEGIN { printf "%.1f", to - from }'; }

# wanted NAME: whether --only has this case; what follows a blank says how it is run.
wanted() {
    local glob
    ((${#only[@]})) || return 0
    # shellcheck disable=SC2053
    for glob in "${only[@]}"; do [[ ${1%% *} == $glob ]] && return 0; done
    return 1
}

# verdict NAME WHY: PASS without a reason; else FAIL, the reason and what matters of the log, which is kept.
verdict() {
    local took kept
    took=$(seconds_since "$started")
    started=$EPOCHREALTIME
    if [[ ! $2 ]]; then
        echo "PASS $1 $took"
        passed=$((passed + 1))
        return
    fi
    failed=$((failed + 1))
    echo "FAIL $1 $took: $2"
    [[ -s $log ]] || return 1
    kept=${1// /-}
    kept=$logs/${kept//[^[:alnum:]_.+-]/+}.log
    { printf '+'; printf ' %q' "${command[@]}"; echo; cat "$log"; } >"$kept"
    # Failed checks come first: they matter more than mpirun's lines on the exit that follows.
    { grep '^FAIL' "$log" | cut -c 1-1000; tail -n 30 "$log"; echo "log: $kept"; } | sed 's/^/    /'
    return 1
}

# try NAME COMMAND...: a case, if it is wanted. It passes if COMMAND succeeds and sets no why. COMMAND may add to name.
try() {
    local name=$1 why=
    shift
    wanted "$name" || return 0
    started=$EPOCHREALTIME
    command=()
    : >"$log"
    "$@" || why=${why:-it did not pass}
    verdict "$name" "$why"
}

# logged COMMAND...: with its output in $log.
logged() { "$@" >"$log" 2>&1; }

skip() { echo "SKIP $1: $2"; }

# finish: the counts. The exit status of the script.
finish() {
    printf '%s passed, %s failed\n' "$passed" "$failed"
    ((failed == 0 && passed > 0))
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    plugindir=${1:?tests/job.bash needs a folder of plugins}
    use_btls velo,self
    exec "$mpirun" "${base[@]}" "${crowd[@]}" "${@:2}"
fi
