# The figures of bench/real. Sourced by it, never run itself. Each reads $out/PART.csv and writes to $results.
#
# A figure is a median over rounds; columns NAME_low and NAME_high are the lowest and the highest round, and in
# real-cost.csv the quartiles. Times of runs in which others took more than foreign_max per cent of a CPU do not count.
# shellcheck shell=bash

: "${root:?}" "${out:?}" "${foreign_max:?}"

schemes=(hardware static growing dynamic)

# For awk, after statistics.awk: at["COLUMN"] of the CSV's header; add(KEY, VALUE).
statistics='
    BEGIN { FS = OFS = "," }
    FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["foreign"] > foreign_max { disturbed++ }
    function calm() { return $at["foreign"] <= foreign_max }
    function add(key, value) { values[key, ++count[key]] = value + 0 }
    function rounded(value) { return value == "" ? "" : sprintf("%.4g", value) }
    function three(key) { return rounded(rank_of(key, 0.5)) OFS rounded(rank_of(key, 0)) OFS rounded(rank_of(key, 1)) }
    END { if (disturbed) printf("%d of %d rows do not count: others took more than %d %% of a CPU\n", disturbed, FNR - 1, foreign_max) >"/dev/stderr" }
'

# summarise RAW CSV PROGRAM [-v NAME=VALUE]…
summarise() {
    local raw=$1 csv=$2 program=$3
    shift 3
    [[ -s $raw ]] || measure_fail "there are no runs yet: $raw"
    awk -v foreign_max="$foreign_max" "$@" -f "$root/bench/statistics.awk" -f <(printf '%s' "$statistics$program") "$raw" >"$results/$csv.csv"
    (($(wc -l <"$results/$csv.csv") > 1)) || measure_fail "no run of $raw counts"
    printf 'wrote %s\n' "$results/$csv.csv" >&2
}

# draw NAME: gnuplot's commands on stdin, for $results/NAME.svg.
draw() {
    {
        printf 'set terminal svg size 760,440 font "sans-serif,13" background rgb "white"\n'
        printf 'set output "%s.svg"\nset datafile separator ","\nset grid ytics lc rgb "#dddddd"\n' "$results/$1"
        printf 'set key outside right top\n'
        local number=0 colour
        for colour in 0072b2 d55e00 009e73 cc79a7 555555; do
            printf 'set linetype %d lc rgb "#%s"\n' $((++number)) "$colour"
        done
        cat
    } | gnuplot
    printf 'wrote %s\n' "$results/$1.svg" >&2
}

# window_figure FIGURE TASK BYTES BUFFERS X TITLE LABEL
window_figure() {
    # shellcheck disable=SC2016  # awk
    summarise "$out/windows.csv" "ibfc-$1" '
        !calm() || $at["slots"] != buffers { next }
        # A run begins and ends with a line; it counts when the cores were near at both.
        $at["task"] == "line" {
            if (open = !open) first_ns = $at["value"]
            else if (first_ns < 110 && $at["value"] < 110) for (i = 1; i <= held; i++) add(held_key[i], held_value[i])
            held = 0
        }
        $at["task"] == task && (bytes == 0 || $at["bytes"] == bytes) {
            x = $at[column]
            if (!(x in seen)) { seen[x] = 1; xs[++x_count] = x }
            held_key[++held] = $at["mode"] "," x
            held_value[held] = $at["value"]
        }
        END {
            n = split("hardware static growing dynamic dynamic8", mode, " ")
            printf "%s", column
            for (m = 1; m <= n; m++) printf ",%s,%s_low,%s_high", mode[m], mode[m], mode[m]
            print ""
            for (i = 1; i <= x_count; i++) {
                printf "%s", xs[i]
                for (m = 1; m <= n; m++) printf ",%s", three(mode[m] "," xs[i])
                print ""
            }
        }' -v task="$2" -v bytes="$3" -v buffers="$4" -v column="$5"
    draw "ibfc-$1" <<END
set title "$6"
set xlabel "$([[ $5 == bytes ]] && echo bytes || echo window)"
set ylabel "$7"
set yrange [0:*]
$([[ $5 == bytes ]] && echo 'set logscale x 2')
f = "$results/ibfc-$1.csv"
plot f using 1:2 with linespoints pt 7 ps 0.5 title "hardware", f using 1:5 with linespoints pt 7 ps 0.5 title "static", \
    f using 1:8 with linespoints pt 7 ps 0.5 title "growing", f using 1:11 with linespoints pt 7 ps 0.5 title "dynamic", \
    f using 1:14 with linespoints pt 7 ps 0.5 title "dynamic, 8 ranks"
END
}

report_windows() {
    window_figure 2 latency 0 100 bytes "Latency, 100 buffers (IBFC figure 2)" "us"
    window_figure 3 blocking 4 100 window "4 bytes, 100 buffers, blocking (IBFC figure 3)" "MB/s"
    window_figure 4 nonblocking 4 100 window "4 bytes, 100 buffers, non-blocking (IBFC figure 4)" "MB/s"
    window_figure 5 blocking 4 10 window "4 bytes, 10 buffers, blocking (IBFC figure 5)" "MB/s"
    window_figure 6 nonblocking 4 10 window "4 bytes, 10 buffers, non-blocking (IBFC figure 6)" "MB/s"
    window_figure 7 blocking 32768 10 window "32 KiB, 10 buffers, blocking (IBFC figure 7)" "MB/s"
    window_figure 8 nonblocking 32768 10 window "32 KiB, 10 buffers, non-blocking (IBFC figure 8)" "MB/s"
}

# pattern_figure TASK RANKS: per cent over the mean of the two runs without flow control of the same round.
pattern_figure() {
    local task=$1 np=$2 columns
    # shellcheck disable=SC2016  # awk
    summarise "$out/patterns.csv" "real-$task-$np" '
        calm() && $at["task"] == task && $at["ranks"] == np {
            mode = $at["mode"]; active = $at["active"]; slots = $at["slots"]; round = $at["round"]
            value[round, mode, slots, active] = $at["value"]
            rounds = round > rounds ? round : rounds
            if (!(active in seen_active)) { seen_active[active] = 1; actives[++active_count] = active }
            if (slots > 0 && !(slots in seen_slots)) { seen_slots[slots] = 1; slot[++slot_count] = slots }
        }
        END {
            print "active,slots,none_us,static,static_low,static_high,dynamic,dynamic_low,dynamic_high,none_again,none_again_low,none_again_high,rounds"
            for (a = 1; a <= active_count; a++) {
                active = actives[a]
                for (r = 1; r <= rounds; r++) {
                    if (!((r, "none", 0, active) in value) || !((r, "again", 0, active) in value)) continue
                    base = (value[r, "none", 0, active] + value[r, "again", 0, active]) / 2
                    add("base" active, base)
                    add("again" active, 100 * (value[r, "again", 0, active] / value[r, "none", 0, active] - 1))
                    for (s = 1; s <= slot_count; s++) for (m = 1; m <= 2; m++) {
                        mode = m == 1 ? "static" : "dynamic"
                        if ((r, mode, slot[s], active) in value)
                            add(mode slot[s] "," active, 100 * (value[r, mode, slot[s], active] / base - 1))
                    }
                }
                for (s = 1; s <= slot_count; s++)
                    print active, slot[s], rounded(rank_of("base" active, 0.5)), three("static" slot[s] "," active), \
                        three("dynamic" slot[s] "," active), three("again" active), count["base" active]
            }
        }' -v task="$task" -v np="$np"
    columns=$(awk -F, 'NR > 1 && !seen[$1]++ { print $1 }' "$results/real-$task-$np.csv")
    draw "real-$task-$np" <<END
set title "$task of 2 KiB, $np ranks on $(nproc) cores, one rank a node"
set xlabel "slots a process"
set ylabel "over none, %"
set xtics ($(awk -F, 'NR > 1 && !seen[$2]++ { printf "%s%s", sep, $2; sep = "," }' "$results/real-$task-$np.csv"))
f = "$results/real-$task-$np.csv"
plot $(i=0; for active in $columns; do ((++i)); for mode in 4 7; do
        printf '%s f using 2:($1==%s?$%s:1/0) with linespoints lc %s dt %s pt 7 ps 0.5 title "%s, %s active"' \
            "$( ((i == 1 && mode == 4)) || printf ', ')" "$active" "$mode" "$i" "$((mode == 4 ? 2 : 1))" \
            "$( ((mode == 4)) && echo static || echo dynamic)" "$active"
    done; done)
END
}

report_patterns() {
    local np task
    for np in $(awk -F, 'NR > 1 && !seen[$6]++ { print $6 }' "$out/patterns.csv"); do
        for task in alltoall pingpong; do pattern_figure "$task" "$np"; done
    done
}

# A run counts as near or as far when it found the cores so before and after; 110 ns as in bench/compare. Overhead of each run is
# over the median of those without flow control at the same distance.
report_cost() {
    # shellcheck disable=SC2016  # awk
    summarise "$out/cost.csv" real-cost '
        !calm() { next }
        { run = $at["ranks"] "," $at["round"] "," $at["mode"] "," $at["slots"] }
        $at["task"] == "line" { if ($at["value"] < 110) near[run] = 1; else far[run] = 1; line[run] = $at["value"]; next }
        {
            key = $at["task"] "," $at["ranks"]
            if (!(key in seen)) { seen[key] = 1; keys[++key_count] = key }
            if ($at["slots"] > 0 && !($at["slots"] in seen_slots)) { seen_slots[$at["slots"]] = 1; slot[++slot_count] = $at["slots"] }
            row_key[++rows] = key; row_run[rows] = run; row_mode[rows] = $at["mode"]; row_slots[rows] = $at["slots"]; row_value[rows] = $at["value"]
        }
        function quartiles(key) { return rounded(rank_of(key, 0.5)) OFS rounded(rank_of(key, 0.25)) OFS rounded(rank_of(key, 0.75)) }
        function where_of(run) { return !(run in far) ? "near" : !(run in near) ? "far" : "" }
        END {
            print "task,ranks,cores,slots,rounds,line_ns,none_us,static,static_low,static_high,dynamic,dynamic_low,dynamic_high,dynamic_exact,dynamic_exact_low,dynamic_exact_high,hardware,hardware_low,hardware_high,none_again,none_again_low,none_again_high"
            for (i = 1; i <= rows; i++) {
                where = where_of(row_run[i])
                if (where != "" && row_slots[i] == 0) add(where "base" row_key[i], row_value[i])
            }
            for (i = 1; i <= rows; i++) {
                where = where_of(row_run[i])
                if (where == "") { mixed++; continue }
                add(where "line" row_key[i], line[row_run[i]])
                if (!((where row_key[i]) in base)) base[where row_key[i]] = rank_of(where "base" row_key[i], 0.5)
                if (base[where row_key[i]] == "") continue
                add(where row_mode[i] row_key[i] row_slots[i], 100 * (row_value[i] / base[where row_key[i]] - 1))
            }
            if (mixed) printf("%d of %d runs do not count: near and far\n", mixed, rows) >"/dev/stderr"
            for (k = 1; k <= key_count; k++) for (w = 1; w <= 2; w++) for (s = 1; s <= slot_count; s++) {
                key = keys[k]
                where = w == 1 ? "near" : "far"
                if (count[where "dynamic" key slot[s]])
                    print key, where, slot[s], count[where "dynamic" key slot[s]], rounded(rank_of(where "line" key, 0.5)), \
                        rounded(base[where key]), quartiles(where "static" key slot[s]), \
                        quartiles(where "dynamic" key slot[s]), quartiles(where "exact" key slot[s]), \
                        quartiles(where "hardware" key slot[s]), quartiles(where "again" key 0)
            }
        }'
    draw real-cost <<END
set title "2 KiB, every rank active, one rank a node: quartiles over rounds"
set ylabel "over none, %"
set style data histograms
set style histogram errorbars gap 2 lw 1
set style fill solid 0.6
set xtics rotate by -30
f = "$results/real-cost.csv"
plot f using 8:9:10:xtic(sprintf("%s, %s ranks %s, %s slots", strcol(1), strcol(2), strcol(3), strcol(4))) skip 1 title "static", \
    f using 11:12:13 skip 1 title "dynamic", f using 14:15:16 skip 1 title "dynamic, exact mailbox", f using 17:18:19 skip 1 title "hardware", \
    f using 20:21:22 skip 1 title "none again"
END
    column -s, -t <"$results/real-cost.csv"
}

# bars NAME TITLE LABEL COLUMN STEP: the modes' columns, STEP apart, as bars.
bars() {
    if ! awk -F, -v c="$4" 'NR > 1 && $c != "" { found = 1 } END { exit !found }' "$results/$1.csv"; then
        printf 'no time of %s counts\n' "$1" >&2
        return
    fi
    draw "$1" <<END
set title "$2"
set ylabel "$3"
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.6
f = "$results/$1.csv"
plot for [i=0:3] f using (column($4 + i * $5)):xtic(1) skip 1 title word("${schemes[*]}", i + 1)
END
}

report_npb() {
    local buffers
    # shellcheck disable=SC2016  # awk
    local common='
        $at["verdict"] != "ok" { next }
        {
            b = $at["benchmark"]; key = b "," $at["buffers"] "," $at["mode"]
            ranks[b] = $at["ranks"]
            if (!(b in seen)) { seen[b] = 1; names[++name_count] = b }
            if (calm()) add("s" key, $at["seconds"])
            add("e" key, $at["explicit"]); add("m" key, $at["messages"])
            if ($at["share_slots"] != "") add("share" key, $at["share_slots"])
        }
        BEGIN { n = split("hardware static growing dynamic", mode, " ") }
    '
    # shellcheck disable=SC2016
    summarise "$out/npb.csv" ibfc-9 "$common"'
        END {
            printf "benchmark,ranks"
            for (m = 1; m <= n; m++) printf ",%s,%s_low,%s_high", mode[m], mode[m], mode[m]
            print ""
            for (i = 1; i <= name_count; i++) {
                printf "%s,%s", names[i], ranks[names[i]]
                for (m = 1; m <= n; m++) printf ",%s", three("s" names[i] ",100," mode[m])
                print ""
            }
        }'
    bars ibfc-9 "NPB, 100 buffers (IBFC figure 9)" "seconds" 3 3
    for buffers in 1 least; do
        # shellcheck disable=SC2016
        summarise "$out/npb.csv" "ibfc-10-$buffers" "$common"'
            END {
                printf "benchmark,ranks"
                for (m = 1; m <= n; m++) printf ",%s", mode[m]
                print ""
                for (i = 1; i <= name_count; i++) {
                    printf "%s,%s", names[i], ranks[names[i]]
                    for (m = 1; m <= n; m++) {
                        few = rank_of("s" names[i] "," buffers "," mode[m], 0.5)
                        many = rank_of("s" names[i] ",100," mode[m], 0.5)
                        printf ",%s", few == "" || many == "" || many == 0 ? "" : sprintf("%.1f", 100 * (few / many - 1))
                    }
                    print ""
                }
            }' -v buffers="$buffers"
    done
    bars ibfc-10-1 "NPB, 1 buffer of 2 KiB against 100 (IBFC figure 10)" "more time, %" 3 1
    bars ibfc-10-least "NPB, the smallest mailbox against 100 buffers" "more time, %" 3 1
    # shellcheck disable=SC2016
    summarise "$out/npb.csv" ibfc-table-1 "$common"'
        END {
            print "benchmark,buffers,mode,explicit_a_connection,messages_a_connection,explicit_percent"
            split("100 1 least", sizes, " ")
            for (i = 1; i <= name_count; i++) for (s = 1; s <= 3; s++) for (m = 2; m <= n; m++) {
                key = names[i] "," sizes[s] "," mode[m]
                if (!count["e" key]) continue
                e = rank_of("e" key, 0.5); t = rank_of("m" key, 0.5); links = ranks[names[i]] * (ranks[names[i]] - 1)
                printf("%s,%s,%s,%.1f,%.1f,%.1f\n", names[i], sizes[s], mode[m], e / links, t / links, e + t ? 100 * e / (e + t) : 0)
            }
        }'
    # shellcheck disable=SC2016
    summarise "$out/npb.csv" ibfc-table-2 "$common"'
        END {
            print "benchmark,slots_from_1,buffers_from_1,slots_from_1_buffer,buffers_from_1_buffer"
            for (i = 1; i <= name_count; i++) {
                a = rank_of("share" names[i] ",least,growing", 1); b = rank_of("share" names[i] ",1,growing", 1)
                print names[i], a, a == "" ? "" : int((a + 36) / 37), b, b == "" ? "" : int((b + 36) / 37)
            }
        }'
}

report_matrix() {
    awk -F, '
        NR == 1 { next }
        {
            row = $1 "," $4; column = $2 " " $3
            if (!(row in seen)) { seen[row] = 1; rows[++row_count] = row }
            if (!(column in seen_column)) { seen_column[column] = 1; columns[++column_count] = column }
            cell[row, column] = $5 == "ok" ? "pass" : $5 " (" $6 ")"
        }
        END {
            printf "program,ranks"
            for (c = 1; c <= column_count; c++) printf ",%s", columns[c]
            print ""
            for (r = 1; r <= row_count; r++) {
                printf "%s", rows[r]
                for (c = 1; c <= column_count; c++) printf ",%s", cell[rows[r], columns[c]]
                print ""
            }
        }' "$out/matrix.csv" >"$results/real-matrix.csv"
    printf 'wrote %s: %s runs, %s not right\n' "$results/real-matrix.csv" "$(($(wc -l <"$out/matrix.csv") - 1))" \
        "$(awk -F, 'NR > 1 && $5 != "ok"' "$out/matrix.csv" | wc -l)" >&2
}
