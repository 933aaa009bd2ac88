# Shared by the measuring scripts, which source it. The upper half, of which Open MPI and how to compile, is
# everyone's; the lower half is ./demo's: jobs of four ranks on two emulated nodes over velo and over Open MPI's own, and
# one table of what they printed.
#
# Set before: root (the repository), out (a directory for raw output), plugin (where mca_btl_velo.so is).
# shellcheck shell=bash

: "${root:?}" "${out:?}" "${plugin?}"

# shellcheck source=../tools/host.bash
source "$root/tools/host.bash"

measure_mpirun=mpirun
measure_mpicxx=mpicxx

measure_fail() {
    printf '\nfailed: %s\n' "$*" >&2
    exit 1
}

# The one that the build was configured for, or the one on the path.
measure_find_mpi() {
    local makefile=$root/build/Makefile name value
    for name in MPIRUN MPICXX; do
        value=$(sed -n "s/^$name = //p" "$makefile" 2>/dev/null || true)
        [[ -x $value ]] || continue
        if [[ $name == MPIRUN ]]; then measure_mpirun=$value; else measure_mpicxx=$value; fi
    done
    command -v "$measure_mpirun" >/dev/null || measure_fail "no mpirun; run tools/install-deps"
    command -v "$measure_mpicxx" >/dev/null || measure_fail "no mpicxx; run tools/install-deps"
    host_read "$measure_mpirun"
}

# measure_compile PROGRAM COMPILER SUFFIX: bench/PROGRAM.cc to build/bench/PROGRAMSUFFIX.
measure_compile() {
    local source=$root/bench/$1.cc program=$root/build/bench/$1$3
    mkdir -p "${program%/*}"
    [[ -x $program && $program -nt $source && $program -nt $root/bench/measuring.h &&
        $program -nt $root/bench/ranks.h ]] && return
    "$2" -std=c++20 -O2 -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX -pthread -o "$program" "$source" ||
        measure_fail "bench/$1.cc does not compile with $2"
}

# The ompi_info that belongs to mpirun.
measure_ompi_info() {
    local name=${measure_mpirun##*/}
    "${measure_mpirun%"$name"}ompi_info" "$@"
}

measure_pairs="0-1,0-2"
measure_path_of_pair='path["0-1"] = "on node"; path["0-2"] = "between nodes"'

# mpirun's options for one transport, velo or $host_sm, in the array measure_options.
measure_set_options() {
    # Two ranks run at a time and do not yield, so both transports poll as they do with a core each.
    measure_options=(-np 4 --oversubscribe --bind-to none --mca mpi_yield_when_idle 0 --mca pml ob1
        --mca btl "$1,self")
    if ((EUID == 0)); then measure_options=(--allow-run-as-root "${measure_options[@]}"); fi
    if [[ $1 == velo ]]; then
        measure_options+=(--mca mca_base_component_path "$(host_path "$plugin")" --mca btl_velo_ranks_per_node 2
            --mca btl_velo_show_paths 1 --mca btl_velo_stats 1)
    fi
}

# measure_job TRANSPORT ROUND SIZES: one job; CSV and log go to $out/TRANSPORT-ROUND.{csv,log}.
measure_job() {
    local transport=$1 name=$out/$1-$2 sizes=$3 status=0
    measure_set_options "$transport"
    timeout --kill-after=10 300 "$measure_mpirun" "${measure_options[@]}" "$root/build/bench/pairs" \
        --label "$transport" --pairs "$measure_pairs" --measures latency,bandwidth --sizes "$sizes" </dev/null >"$name.csv" 2>"$name.log" || status=$?
    if ((status != 0)); then
        tail -n 30 "$name.log" >&2
        ((status == 124 || status == 137)) && measure_fail "the $transport job did not end within 300 s"
        measure_fail "the $transport job ended with $status; its output is in $name.log"
    fi
    # Both measures of each size of each pair, or something was lost on the way.
    local expected rows
    expected=$((4 * $(tr ',' '\n' <<<"$sizes" | wc -l)))
    rows=$(grep -cE "^$transport,[^,]*,(latency|bandwidth)," "$name.csv" || true)
    ((rows == expected)) || measure_fail "the $transport job printed $rows figures, not $expected: $name.csv"
}

# Medians over rounds of the CSV files given, one line for each path and size:
# path|size|latency velo|other|ratio|bandwidth velo|other|ratio; size "line" is the transfer of a cache line.
measure_medians() {
    awk -F, -v other="$host_sm" "BEGIN { $measure_path_of_pair }"'
        function add(key, value) { values[key, ++count[key]] = value + 0 }
        function median(key,    n, i, j, x, v) {
            n = count[key]
            if (n == 0) return -1
            for (i = 1; i <= n; i++) {
                x = values[key, i]
                for (j = i - 1; j > 0 && v[j] > x; j--) v[j + 1] = v[j]
                v[j + 1] = x
            }
            return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
        }
        function ratio(a, b) { return b == 0 ? 0 : a / b }
        function row(pair, size, digits, bandwidth,    a, b, c, d) {
            a = median("velo," pair "," size ",l"); b = median(other "," pair "," size ",l")
            if (a < 0 || b < 0) return
            printf("%s|%s|%." digits "f|%." digits "f|%.2f|", path[pair], size, a, b, ratio(a, b))
            if (bandwidth) {
                c = median("velo," pair "," size ",b"); d = median(other "," pair "," size ",b")
                printf("%.0f|%.0f|%.2f\n", c, d, ratio(c, d))
            } else {
                print "||"
            }
        }
        $3 == "line" { add($1 "," $2 ",line,l", $5 / 1000) }
        $3 == "latency" {
            if (!($4 in seen)) { seen[$4] = 1; sizes[++size_count] = $4 }
            add($1 "," $2 "," $4 ",l", $5)
        }
        $3 == "bandwidth" { add($1 "," $2 "," $4 ",b", $5) }
        END {
            split("0-1 0-2", pairs, " ")
            for (p = 1; p <= 2; p++) {
                row(pairs[p], "line", 3, 0)
                for (s = 1; s <= size_count; s++) row(pairs[p], sizes[s], 2, 1)
            }
        }' "$@"
}

# The value of a counter of a rank in a job's log; 0 when it never moved.
measure_counter() {
    local log=$1 rank=$2 name=$3
    awk -v rank="$rank" -v name="$name" '
        match($0, "velo: rank " rank " counters:") {
            n = split($0, words, " ")
            for (i = 1; i <= n; i++) if (index(words[i], name "=") == 1) value = substr(words[i], length(name) + 2)
        }
        END { print value == "" ? 0 : value }' "$log"
}

# Fails unless all three paths carried traffic in a velo job, and nothing happened that must not.
measure_check_paths() {
    local log=$1 rank name
    for rank in 0 1 2 3; do
        grep -q "velo: rank $rank counters:" "$log" ||
            measure_fail "rank $rank printed no counters, so velo was not used: $log"
        for name in on_node_garbage velo_rx_malformed velo_backpressure velo_overflows rma_failed atu_faults \
            engine_malformed; do
            (($(measure_counter "$log" "$rank" "$name") == 0)) ||
                measure_fail "counter $name of rank $rank is not 0, which is a defect of velo: $log"
        done
    done
    (($(measure_counter "$log" 1 on_node_rx_messages) > 1000)) ||
        measure_fail "rank 1 got no messages through an on-node ring from rank 0: $log"
    (($(measure_counter "$log" 2 velo_rx_packets) > 1000)) ||
        measure_fail "rank 2 got no VELO packets from rank 0: $log"
    # Of the four ranks, 2 fetches large messages through the device only, and 1 on its node only.
    for rank in 1 2; do
        (($(measure_counter "$log" "$rank" rma_get_bytes) + $(measure_counter "$log" "$rank" rma_ring_bytes) > 1000000)) &&
            continue
        measure_fail "rank $rank fetched no large message directly ($(measure_counter "$log" "$rank" \
            rma_copied_bytes) bytes were copied in messages instead). velo reads the other process's memory" \
            "by process_vm_readv; a container must permit that (docker run --cap-add=SYS_PTRACE): $log"
    done
}
