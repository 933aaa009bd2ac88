# Shared by bench/imb and bench/npb: options, one run under a configuration, the CSV, tables and baselines; bench/real
# uses the runs. Sourced, never run itself.
#
# A sourcing script sets before: usage_text, name, unit (us or mop_s), tolerance, out, and the functions
# set_extra_option OPTION VALUE, which fails when it does not know the option, and run_matrix, which calls run_one
# and add_row.
#
# The CSV: benchmark,bytes,configuration,ranks,round,value,verdict. A verdict is ok, wrong, failed or timeout,
# and cut for a size that the program left out.
# shellcheck shell=bash

: "${usage_text:?}" "${name:?}" "${unit:?}" "${tolerance:?}" "${out:?}"

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
plugin=$root/build/.libs
bin=
np_list=(2 4 8)
all_configurations=(one_node two_ranks_a_node one_rank_a_node vader tcp)
configurations=("${all_configurations[@]}")
rounds=1
run_seconds_max=300
baseline=
save_baseline=
defects=0

# shellcheck source=bench/measure.sh
source "$root/bench/measure.sh"

usage_error() {
    printf 'bench/%s: %s; see --help\n' "$name" "$*" >&2
    exit 2
}

contains() {
    local wanted=$1 word
    shift
    for word in "$@"; do [[ $word == "$wanted" ]] && return; done
    return 1
}

set_option() {
    local word
    case $1 in
        --bin) bin=$2 ;;
        --np)
            IFS=, read -r -a np_list <<<"$2"
            for word in "${np_list[@]}"; do
                [[ $word =~ ^[1-9][0-9]*$ ]] || usage_error "--np takes numbers of ranks such as 2,4,8"
            done
            ;;
        --configurations)
            IFS=, read -r -a configurations <<<"$2"
            for word in "${configurations[@]}"; do
                contains "$word" "${all_configurations[@]}" ||
                    usage_error "'$word' is not a configuration; there are: ${all_configurations[*]}"
            done
            ;;
        --rounds)
            [[ $2 =~ ^[1-9][0-9]?$ ]] || usage_error "--rounds takes a number from 1 to 99"
            rounds=$2
            ;;
        --timeout)
            [[ $2 =~ ^[1-9][0-9]*$ ]] || usage_error "--timeout takes seconds"
            run_seconds_max=$2
            ;;
        --tolerance)
            [[ $2 =~ ^[0-9]+$ ]] || usage_error "--tolerance takes percent"
            tolerance=$2
            ;;
        --plugin) plugin=$2 ;;
        --out) out=$2 ;;
        --baseline) baseline=$2 ;;
        --save-baseline) save_baseline=$2 ;;
        *) set_extra_option "$1" "$2" || usage_error "unknown argument '$1'" ;;
    esac
}

# The command as a table names it: without places on this machine.
command_line=bench/$name
parse_options() {
    while (($#)); do
        case $1 in
            --out | --plugin | --baseline | --save-baseline) ;;
            --bin) command_line+=" --bin DIR" ;;
            *) command_line+=" $1 ${2:-}" ;;
        esac
        if [[ $1 == --help || $1 == -h ]]; then
            printf '%s\n' "$usage_text"
            exit 0
        fi
        (($# > 1)) || usage_error "'$1' is unknown or needs a value"
        set_option "$1" "$2"
        shift 2
    done
    [[ $bin ]] || usage_error "--bin must name the directory of the programs"
    [[ -d $bin ]] || measure_fail "--bin: there is no directory $bin"
    bin=$(cd "$bin" && pwd)
    [[ -z $baseline || -f $baseline ]] || measure_fail "--baseline: there is no file $baseline"
    if [[ $baseline || $save_baseline ]] && ! contains vader "${configurations[@]}"; then
        usage_error "a baseline holds speeds relative to vader, so vader must be among --configurations"
    fi
    rm -f "$out/results.csv" "$out/table.md"
    prepare_runs
    csv=$out/results.csv
    printf 'benchmark,bytes,configuration,ranks,round,value,verdict\n' >"$csv"
}

# Finds Open MPI and the plugin, and empties what a run leaves in $out.
prepare_runs() {
    [[ -f $plugin/mca_btl_velo.so ]] || measure_fail "there is no mca_btl_velo.so in $plugin; run tools/build"
    measure_find_mpi
    rm -rf "$out/logs" "$out/plugin"
    mkdir -p "$out/logs" "$out/plugin" "$out/work"
    out=$(cd "$out" && pwd)
    # A copy, so that a build in the meantime does not change what runs.
    cp "$plugin/mca_btl_velo.so" "$out/plugin"
}

is_velo() { [[ $1 != vader && $1 != tcp ]]; }

# Two ranks with two a node are on one node.
skips() { [[ $1 == two_ranks_a_node ]] && (($2 <= 2)); }

# Of each rank that runs.
threads=1
# More of mpirun's options for a run over velo.
velo_options=()
# In front of the command of a run, such as a lock: the time limit is the run's own.
under=()
# 1: the program pins its ranks itself, and those that take no part sleep.
self_pinning=

# run_one CONFIGURATION RANKS LOG COMMAND...: sets verdict to ok, failed or timeout.
run_one() {
    local configuration=$1 np=$2 log=$3 status=0 bind=core yield=0
    shift 3
    # Ranks with a core each keep it and poll; more must yield to each other.
    if ((np * threads > $(nproc))); then bind=none yield=1; fi
    if [[ $self_pinning ]]; then bind=none yield=0; fi
    local command=("$measure_mpirun" -np "$np" --oversubscribe --bind-to "$bind" --mca mpi_yield_when_idle "$yield"
        --mca pml ob1)
    if ((EUID == 0)); then command+=(--allow-run-as-root); fi
    case $configuration in
        vader) command+=(--mca btl "vader,self") ;;
        tcp) command+=(--mca btl "tcp,self" --mca btl_tcp_if_include lo) ;;
        *) command+=(--mca btl "velo,self" --mca mca_base_component_path "$(host_path "$out/plugin")" "${velo_options[@]}") ;;
    esac
    case $configuration in
        two_ranks_a_node) command+=(--mca btl_velo_ranks_per_node 2) ;;
        one_rank_a_node) command+=(--mca btl_velo_ranks_per_node 1) ;;
    esac
    {
        printf '+'
        printf ' %q' "${command[@]}" "$@"
        printf '\n'
    } >"$log"
    (cd "$out/work" && exec "${under[@]}" timeout --kill-after=10 "$run_seconds_max" "${command[@]}" "$@") \
        </dev/null >>"$log" 2>&1 || status=$?
    verdict=ok
    ((status != 0)) && verdict=failed
    ((status == 124 || status == 137)) && verdict=timeout
    return 0
}

# Rows of IMB's tables: benchmark,bytes,us,defects; "-" where IMB did not check, "cut" where it left a size out
# because its time, or its memory, was over.
imb_rows() {
    awk '
        /^# Benchmarking / { name = $3; bytes_column = time_column = defects_column = 0; next }
        /^# *MODE:/ { name = name "-" tolower($3) }
        /#bytes|#repetitions/ {
            bytes_column = time_column = defects_column = 0
            for (i = 1; i <= NF; i++) {
                if ($i == "#bytes") bytes_column = i
                if ($i ~ /^(t|t_avg|t_ovrl)\[usec\]$/) time_column = i
                if ($i == "defects") defects_column = i
            }
            next
        }
        time_column && bytes_column && $1 ~ /^[0-9]+$/ && $2 !~ /^[0-9]+$/ { print name "," $1 ",0,cut"; next }
        time_column && $1 ~ /^[0-9]+$/ {
            print name "," (bytes_column ? $bytes_column : 0) "," $time_column "," (defects_column ? $defects_column : "-")
        }' "$1"
}

# Some say "Verification = SUCCESSFUL", some "VERIFICATION SUCCESSFUL" above it; neither says so when it is not.
npb_verified() { grep -qE 'Verification *= *SUCCESSFUL' "$1" && ! grep -qi 'UNSUCCESSFUL' "$1"; }

# NPB that wants a power of two.
npb_allows() {
    case $1 in
        is | ft | cg | mg) (($2 > 0 && ($2 & ($2 - 1)) == 0)) ;;
    esac
}

# add_row BENCHMARK BYTES CONFIGURATION RANKS ROUND VALUE VERDICT
add_row() {
    local IFS=,
    printf '%s\n' "$*" >>"$csv"
}

# report BENCHMARK CONFIGURATION RANKS VERDICT LOG: says how a run ended; only velo's defects count.
report() {
    printf '%-8s %s %s %s\n' "$4" "$1" "$2" "$3" >&2
    [[ $4 == ok ]] && return
    tail -n 8 "$5" | sed 's/^/    /' >&2
    printf '    log: %s\n' "$5" >&2
    if is_velo "$2"; then ((++defects)); fi
    return 0
}

# Tables, baseline and exit status.
finish() {
    local regressions=0
    awk -v unit="$unit" -f "$root/bench/statistics.awk" -f "$root/bench/matrix.awk" "$csv" >"$out/speeds"
    {
        printf '## %s\n\nSpeed relative to vader in the same run: above 1 is faster than vader. ' "${name^^}"
        printf 'Geometric means over sizes, of medians over %s.\n' "$rounds round(s)"
        printf '\n`%s`: %s runs, %s defects.\n' "$command_line" "$runs" "$defects"
        awk -v configurations="${configurations[*]}" -f "$root/bench/matrix_table.awk" "$out/speeds"
    } | tee "$out/table.md"
    if [[ $save_baseline ]]; then
        cp "$out/speeds" "$save_baseline"
        printf 'wrote %s\n' "$save_baseline" >&2
    fi
    if [[ $baseline ]]; then
        awk -F, -v tolerance="$tolerance" '
            NR == FNR { before[$1 "," $2 "," $3] = $4; next }
            !(($1 "," $2 "," $3) in before) || $2 == "tcp" { next }
            { compared++ }
            $4 < before[$1 "," $2 "," $3] * (1 - tolerance / 100) {
                printf("slower   %s %s %s: %.2f times the speed of vader, %.2f in the baseline\n", $1, $2, $3, $4,
                       before[$1 "," $2 "," $3])
            }
            END { printf("compared with the baseline: %d figures, tolerance %d %%\n", compared, tolerance) }' \
            "$baseline" "$out/speeds" | tee "$out/regressions" >&2
        regressions=$(grep -c '^slower' "$out/regressions" || true)
    fi
    printf '%s runs, %s defects, %s slower than the baseline\nwrote %s and %s\n' "$runs" "$defects" "$regressions" \
        "$csv" "$out/table.md" >&2
    ((runs > 0 && defects == 0 && regressions == 0))
}
runs=0
