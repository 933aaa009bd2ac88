# Shared by the cases: options, one mpirun with its verdict, counts. Sourced by run.
# shellcheck shell=bash

# shellcheck source=../../tools/host.bash
source "${BASH_SOURCE[0]%/*}/../../tools/host.bash"
host_read

bindir=
plugindir=
only=()
passed=0
failed=0

parse_options() {
    while (($#)); do
        case $1 in
            --bindir | --plugindir | --only) (($# > 1)) || { echo "run: $1 needs a value" >&2; exit 2; } ;;&
            --bindir) bindir=$(realpath -e "$2") || exit 2; shift 2 ;;
            --plugindir) plugindir=$(realpath -e "$2") || exit 2; shift 2 ;;
            --only) only+=("$2"); shift 2 ;;
            -h | --help) sed -n '2,/^set /{s/^# \{0,1\}//p}' "$0"; exit 0 ;;
            *) echo "run: unknown option $1; --help lists them" >&2; exit 2 ;;
        esac
    done
    [[ $bindir && $plugindir ]] || { echo "run: --bindir and --plugindir are needed" >&2; exit 2; }
    faultdir=$(realpath -e "$bindir/../faults") || exit 2
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    base=(--mca pml ob1 --mca btl velo,self --mca mca_base_component_path "$(host_path "$plugindir")")
    ((UID == 0)) && base+=(--allow-run-as-root)
    if (($(nproc) < 4)); then
        base+=(--oversubscribe)
        export OMPI_MCA_mpi_yield_when_idle=1
    fi
    program=$bindir/p2p
    export OMPI_MCA_orte_base_help_aggregate=1
}

# Whether a case was asked for.
wanted() {
    local glob
    ((${#only[@]})) || return 0
    # shellcheck disable=SC2053
    for glob in "${only[@]}"; do [[ $1 == $glob ]] && return 0; done
    return 1
}

verdict() {
    local name=$1 ok=$2
    if [[ $ok == yes ]]; then
        echo "PASS $name"
        passed=$((passed + 1))
    else
        echo "FAIL $name"
        sed 's/^/    /' "$work/out" | tail -n 25
        failed=$((failed + 1))
    fi
}

# has_line WORDS: one line of velo's in the output has every word.
has_line() {
    local line word ok
    while IFS= read -r line; do
        ok=yes
        for word in $1; do [[ $line == *"$word"* ]] || ok=no; done
        [[ $ok == yes ]] && return 0
    done < <(grep 'velo' "$work/out")
    return 1
}

# refused NAME WORDS MPIRUN_ARGUMENTS...: the job ends in time, not well, and one line of velo's has every word.
refused() {
    local name=$1 words=$2 ok=no status
    shift 2
    wanted "$name" || return 0
    timeout -k 5 30 mpirun "${base[@]}" "$@" >"$work/out" 2>&1
    status=$?
    ((status != 0 && status != 124 && status != 137)) && has_line "$words" && ok=yes
    verdict "$name" "$ok"
}

# passes MPIRUN_ARGUMENTS...: the program passes.
passes() {
    timeout -k 5 "${seconds:-60}" mpirun "${base[@]}" "$@" >"$work/out" 2>&1 && grep -q '^PASS' "$work/out" &&
        ! grep -q '^FAIL' "$work/out"
}

# works NAME MPIRUN_ARGUMENTS...
works() {
    local name=$1 ok=no
    shift
    wanted "$name" || return 0
    passes "$@" && ok=yes
    verdict "$name" "$ok"
}

# limited ULIMIT_ARGUMENTS PROGRAM...: the words that start a program under a limit.
limited() {
    local limit=$1
    shift
    printf 'ulimit %s; exec' "$limit"
    printf ' %q' "$@"
}
