# The parts of bench/real. Sourced by it, never run itself.
#
# A part's raw figures are in $out/PART.csv, and stay with --add. Of windows, patterns and cost:
#   round,mode,slots,foreign,label,ranks,task,active,bytes,window,value        (from "label" on as bench/flow.cc prints it)
# foreign is the CPU time that others took during the run, per cent of one CPU.
# shellcheck shell=bash

: "${root:?}" "${out:?}" "${configuration:?}"

all_modes=(none hardware static growing dynamic)
flow=$root/build/bench/flow
flow_header=round,mode,slots,foreign,label,ranks,task,active,bytes,window,value

# A healthy job leaves these at 0; with credits, which keep mailboxes from filling, this too.
zero_counters=(on_node_garbage on_node_contacts_refused velo_rx_malformed velo_overflows rma_failed atu_faults
    engine_malformed)
zero_counters_credited=(velo_backpressure)

# begin_part PART: its raw file, and the first round to run.
begin_part() {
    local header=$flow_header
    case $1 in
        npb) header=round,mode,buffers,foreign,benchmark,ranks,seconds,explicit,messages,share_slots,verdict ;;
        matrix) header=program,mode,slots,ranks,verdict,reason ;;
    esac
    raw=$out/$1.csv
    if [[ ! $add || ! -f $raw ]]; then printf '%s\n' "$header" >"$raw"; fi
    round_first=$(awk -F, 'NR > 1 && $1 + 0 > last { last = $1 + 0 } END { print last + 1 }' "$raw")
    round_last=$((round_first + rounds - 1))
}

# set_mode MODE SLOTS [NAME VALUE]…: velo's options of a run; NAME is a parameter without btl_velo_. Mailboxes have
# exactly these slots for each peer, while dynamic's have 256 KiB at least where their bytes are not given.
set_mode() {
    velo_options=(--mca btl_velo_stats 1 --mca btl_velo_flow_control "$1" --mca btl_velo_slots "$2")
    [[ " $* " == *" mailbox_bytes "* ]] || velo_options+=(--mca btl_velo_mailbox_bytes 1073741824)
    shift 2
    while (($#)); do
        velo_options+=(--mca "btl_velo_$1" "$2")
        shift 2
    done
}

# Clock ticks of all CPUs in use, by whomever.
busy_ticks() { awk '$1 == "cpu" { print $2 + $3 + $4 + $7 + $8 + $9 }' /proc/stat; }
# The same of what this script has started and has ended.
own_ticks() { awk '{ print $16 + $17 }' "/proc/$$/stat"; }

# sums LOG COUNTER…: how many ranks printed counters, and the sum of each over the ranks.
sums() {
    local log=$1
    shift
    awk -v wanted="$*" '
        match($0, /velo: rank [0-9]+ counters:/) {
            ranks++
            n = split(substr($0, RSTART + RLENGTH), words, " ")
            for (i = 1; i <= n; i++) { split(words[i], pair, "="); sum[pair[1]] += pair[2] }
        }
        END {
            printf "%d", ranks
            n = split(wanted, name, " ")
            for (i = 1; i <= n; i++) printf " %d", sum[name[i]]
            print ""
        }' "$log"
}

# judge LOG MODE RANKS: sets reason, and verdict to wrong where counters are missing or moved that must not.
judge() {
    local log=$1 mode=$2 np=$3 names=("${zero_counters[@]}") i values
    reason=
    case $mode in
        none | again | hardware) ;;
        *) names+=("${zero_counters_credited[@]}") ;;
    esac
    read -r -a values < <(sums "$log" "${names[@]}")
    ((values[0] == np)) || reason="counters of ${values[0]} ranks"
    for ((i = 0; i < ${#names[@]}; ++i)); do
        ((values[i + 1] == 0)) || reason+="${reason:+ }${names[i]}=${values[i + 1]}"
    done
    [[ $verdict != ok ]] && reason="exit code${reason:+ }$reason"
    if [[ $reason && $verdict == ok ]]; then verdict=wrong; fi
    return 0
}

# one MODE RANKS LOG COMMAND…: one run; sets verdict, reason and foreign.
one() {
    local mode=$1 np=$2 log=$3 ticks own took
    shift 3
    ticks=$(busy_ticks) own=$(own_ticks) took=$(date +%s%N)
    run_one "$configuration" "$np" "$log" "$@"
    took=$((($(date +%s%N) - took) / 1000000))
    foreign=$((($(busy_ticks) - ticks) - ($(own_ticks) - own)))
    foreign=$(awk -v f="$foreign" -v ms="$took" -v ticks="$(getconf CLK_TCK)" \
        'BEGIN { v = 100 * f / ticks / (ms / 1000); printf "%.1f", v < 0 ? 0 : v }')
    judge "$log" "$mode" "$np"
    ((++runs))
    [[ $verdict == ok ]] && return
    ((++defects))
    printf '%s %s %s: %s\n    log: %s\n' "$verdict" "${velo_options[*]}" "$np ranks" "$reason" "$log" >&2
}

# measure_flow ROUND MODE SLOTS RANKS ARGUMENT…: one run of bench/flow into the raw file; set_mode comes before.
measure_flow() {
    local round=$1 mode=$2 slots=$3 np=$4 log
    shift 4
    log=$out/logs/$part-$mode-$slots-$np-$round.log
    one "$mode" "$np" "$log" "$flow" --label "$mode" "$@"
    grep -E "^$mode,$np," "$log" | sed "s/^/$round,$mode,$slots,$foreign,/" >>"$raw" || true
}

windows_list=1,2,5,10,20,30,40,60,80,100
# Between two pinned ranks: batches far shorter than a time slice, so that what else runs spoils few of them.
short=(--batches 41 --batch-us 400 --warm-us 5000)

# A buffer holds one short message, and so does a slot. Credit slots come on top. growing may grow to 256 slots.
run_windows() {
    local round buffers scheme np slots
    self_pinning=1
    for ((round = round_first; round <= round_last; ++round)); do
        for buffers in 100 10; do
            for scheme in hardware static growing dynamic dynamic8; do
                np=2 slots=$((buffers + 2))
                case $scheme in
                    hardware) set_mode hardware "$buffers" ;;
                    growing) set_mode growing 258 growing_start "$buffers" ;;
                    dynamic8) np=8 && set_mode dynamic "$slots" ;;
                    *) set_mode "$scheme" "$slots" ;;
                esac
                if ((buffers == 100)); then
                    measure_flow "$round" "$scheme" "$buffers" "$np" --tasks latency --sizes 4,16,64,256,1024,2048 "${short[@]}"
                else
                    measure_flow "$round" "$scheme" "$buffers" "$np" --tasks blocking,nonblocking --sizes 32768 \
                        --windows "$windows_list" "${short[@]}"
                fi
                measure_flow "$round" "$scheme" "$buffers" "$np" --tasks blocking,nonblocking --sizes 4 \
                    --windows "$windows_list" "${short[@]}"
            done
        done
    done
    self_pinning=
}

# The reference comes first and last in a round.
run_patterns() {
    local round np slots mode
    ((${#np_list[@]})) || np_list=(16 32 64)
    ((${#slots_list[@]})) || slots_list=(8 16 32 64)
    for np in "${np_list[@]}"; do
        local arguments=(--tasks alltoall,pingpong --sizes 2048 --active "$np,$((np / 2)),$((np / 4)),$((np / 8))"
            --batches 21 --batch-us 10000 --warm-us 100000)
        for ((round = round_first; round <= round_last; ++round)); do
            set_mode none 58
            measure_flow "$round" none 0 "$np" "${arguments[@]}"
            for slots in "${slots_list[@]}"; do
                for mode in static dynamic; do
                    set_mode "$mode" "$slots"
                    measure_flow "$round" "$mode" "$slots" "$np" "${arguments[@]}"
                done
            done
            set_mode none 58
            measure_flow "$round" again 0 "$np" "${arguments[@]}"
        done
    done
}

run_cost() {
    local round np mode slots
    if ((${#np_list[@]} == 0)); then
        np_list=(2 4)
        contains "$(nproc)" "${np_list[@]}" || np_list+=("$(nproc)")
    fi
    for np in "${np_list[@]}"; do
        for ((round = round_first; round <= round_last; ++round)); do
            for mode in none dynamic:16 exact:16 static:16 hardware:16 again dynamic:58 exact:58 static:58 hardware:58; do
                slots=${mode#*:} mode=${mode%:*}
                case $mode in
                    none | again) slots=0 && set_mode none 58 ;;
                    dynamic) set_mode dynamic "$slots" mailbox_bytes 0 ;;
                    exact) set_mode dynamic "$slots" ;;
                    *) set_mode "$mode" "$slots" ;;
                esac
                local batches=(--batches 61 --batch-us 5000)
                if ((np <= $(nproc))); then self_pinning=1 batches=(--batches 301 --batch-us 500); fi
                measure_flow "$round" "$mode" "$slots" "$np" --tasks alltoall,pingpong --sizes 2048 "${batches[@]}"
                self_pinning=
            done
        done
    done
}

# Of IBFC's buffers, of 2 KiB, each takes 37 packets here; "least" is the smallest mailbox that velo accepts:
# one packet and one credit slot a peer.
buffer_slots=37
set_buffers() {
    local mode=$1 buffers=$2 many=$((100 * buffer_slots + 2)) slots=1
    local step=4
    [[ $buffers == least ]] || slots=$((buffer_slots * buffers)) step=$buffer_slots
    case $mode in
        hardware) set_mode hardware "$slots" ;;
        growing) set_mode growing "$many" growing_start "$slots" growing_step "$step" ;;
        *)
            if [[ $buffers == least ]]; then
                set_mode "$mode" 2 credit_slots 1
            else
                set_mode "$mode" $((slots + 2))
            fi
            ;;
    esac
}

# Largest share that a sender came to own, of the traces PREFIX.RANK.
largest_share() {
    cat "$1".* | awk '$1 == "p" && $5 > most { most = $5 } END { print most + 0 }'
}

run_npb() {
    local round program np mode buffers log seconds explicit messages share _
    ((${#benchmarks[@]})) || benchmarks=(is.A ft.A cg.A mg.A lu.W sp.S bt.S)
    ((${#modes[@]})) || modes=(hardware static growing dynamic)
    for program in "${benchmarks[@]}"; do
        [[ -x $npb/$program.x ]] || measure_fail "--npb: there is no $program.x"
        # A square number of ranks, as many as there are of the others' or the next.
        np=8
        case ${program%.*} in sp | bt) np=9 ;; esac
        for ((round = round_first; round <= round_last; ++round)); do
            for buffers in 100 1 least; do
                for mode in "${modes[@]}"; do
                    log=$out/logs/npb-$program-$mode-$buffers-$round.log share=
                    set_buffers "$mode" "$buffers"
                    if [[ $mode == growing && $buffers != 100 ]]; then
                        rm -f "$out/work/trace".*
                        velo_options+=(--mca btl_velo_trace "$out/work/trace" --mca btl_velo_trace_period 1000)
                    fi
                    one "$mode" "$np" "$log" "$npb/$program.x"
                    if [[ $verdict == ok ]] && ! npb_verified "$log"; then
                        verdict=wrong
                        ((++defects))
                        printf 'not verified: %s\n' "$log" >&2
                    fi
                    seconds=$(sed -n 's/^ *Time in seconds *= *//p' "$log" | tail -n 1)
                    read -r _ explicit messages < <(sums "$log" credits_tx_packets velo_tx_messages)
                    [[ $mode == growing && $buffers != 100 ]] && share=$(largest_share "$out/work/trace")
                    (IFS=,; printf '%s\n' "$round,$mode,$buffers,$foreign,$program,$np,${seconds:-0},$explicit,$messages,$share,$verdict") >>"$raw"
                done
            done
        done
    done
}

# matrix_run PROGRAM MODE SLOTS RANKS COMMAND…
matrix_run() {
    local program=$1 mode=$2 slots=$3 np=$4 log wrong
    shift 4
    log=$out/logs/matrix-$program-$mode-$slots-$np.log
    set_mode "$mode" "$slots"
    one "$mode" "$np" "$log" "$@"
    wrong=
    if [[ $program == IMB-* ]]; then
        imb_rows "$log" >"$out/rows"
        [[ -s $out/rows ]] || wrong="no figures"
        awk -F, '$4 != "-" && $4 != "cut" && $4 != "0.00" { bad = 1 } END { exit !bad }' "$out/rows" && wrong=contents
    elif ! npb_verified "$log"; then
        wrong=verification
    fi
    if [[ $wrong ]]; then
        reason+="${reason:+ }$wrong"
        if [[ $verdict == ok ]]; then
            verdict=wrong
            ((++defects))
            printf 'wrong %s: %s: %s\n' "$program" "$wrong" "$log" >&2
        fi
    fi
    printf '%s,%s,%s,%s,%s,%s\n' "$program" "$mode" "$slots" "$np" "$verdict" "$reason" >>"$raw"
}

run_matrix() {
    local program mode slots np file
    ((${#np_list[@]})) || np_list=(2 4 8)
    ((${#modes[@]})) || modes=("${all_modes[@]}")
    ((${#slots_list[@]})) || slots_list=(8 16 64)
    if ((${#benchmarks[@]} == 0)); then
        for file in "$imb"/IMB-{MPI1,EXT,RMA} "$npb"/{is,ft,cg,mg,lu,sp,bt,ep}.S.x; do
            if [[ -x $file ]]; then benchmarks+=("$(basename "$file" .x)"); fi
        done
    fi
    for np in "${np_list[@]}"; do
        for mode in "${modes[@]}"; do
            for slots in "${slots_list[@]}"; do
                for program in "${benchmarks[@]}"; do
                    if [[ $program == IMB-* ]]; then
                        matrix_run "$program" "$mode" "$slots" "$np" "$imb/$program" -npmin "$np" -iter 10 -time 0.02 \
                            -msglog 0:16
                    elif npb_allows "${program%.*}" "$np"; then
                        matrix_run "$program" "$mode" "$slots" "$np" "$npb/$program.x"
                    fi
                done
            done
        done
    done
}
