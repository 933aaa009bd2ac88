# Makes bench/compare's tables of its CSV (group,round,column,where,measure,size,value), for one class of rounds.
#
# Variables: class (near or far; of mixed rounds only the number is told), near_ns (the rule), columns (on-node ones, in order, space-separated),
# titles (of all columns, as name=title, separated by ;), absent (columns without figures, likewise).
# Lines that begin with "summary" say how many targets were met; bench/compare takes them out.
BEGIN {
    FS = ","
    column_count = split(columns, column_names, " ")
    n = split(titles, parts, ";")
    for (i = 1; i <= n; i++) { split(parts[i], pair, "="); title[pair[1]] = pair[2] }
    n = split(absent, parts, ";")
    for (i = 1; i <= n; i++) { split(parts[i], pair, "="); why_absent[pair[1]] = pair[2] }
    incumbent["vader"] = incumbent["vader_copied"] = incumbent["ucx"] = incumbent["mpich"] = 1
    peer_of["device"] = peer_of["device_before"] = "vader"
}
$5 == "line" {
    key = $1 "," $2
    if (!(key in line_min) || $7 < line_min[key]) line_min[key] = $7 + 0
    if ($7 > line_max[key]) line_max[key] = $7 + 0
}
{ rows[++row_count] = $0 }

function class_of(key) {
    if (!(key in line_min)) return "near"
    if (line_max[key] < near_ns) return "near"
    return line_min[key] >= near_ns ? "far" : "mixed"
}
function size_text(bytes) {
    if (bytes >= 1048576 && bytes % 1048576 == 0) return bytes / 1048576 " MiB"
    if (bytes >= 1024 && bytes % 1024 == 0) return bytes / 1024 " KiB"
    return bytes " B"
}
function figure(value) {
    if (value == "") return "–"
    if (value < 10) return sprintf("%.3f", value)
    if (value < 1000) return sprintf("%.1f", value)
    return sprintf("%.0f", value)
}

# Sets must and aim for a column's row: "" when there is no target.
function set_targets(column, measure, bytes) {
    must = aim = ""
    if (column ~ /^device/) {
        if (measure == "latency" && bytes == 8) { must = 1.3; aim = 1.0 }
        if (measure == "latency" && bytes == 2048) { must = 1.5; aim = 1.0 }
        if (measure ~ /^(bandwidth|both)$/ && bytes >= 65536) { must = 1.0; aim = 1.3 }
    } else if (measure == "latency") {
        must = bytes <= 2048 ? 1.0 : 0.9
        aim = bytes <= 2048 ? 0.85 : 0.6
    } else if (measure == "bandwidth" || measure == "both") {
        if (bytes >= 4096) { must = 1.0; aim = 1.3 }
    } else if (measure == "rate") {
        if (bytes == 8) { must = 1.0; aim = 1.5 }
    } else if (measure == "alltoall") {
        must = 1.03; aim = 1.01
    }
}
# "aim", "must", "no", or "–" without a target.
function met(ratio, lower_wins) {
    if (must == "" || ratio == "") return "–"
    targets++
    if (lower_wins ? ratio <= aim : ratio >= aim) { aims++; return "aim" }
    if (lower_wins ? ratio <= must : ratio >= must) { musts++; return "must" }
    return "**no**"
}
function target_text(value, lower_wins) {
    return value == "" ? "–" : sprintf("%s %.2f", lower_wins ? "≤" : "≥", value)
}
# Lowest to highest ratio of the two columns over the rounds that have both, and how many these are.
function range_text(group, measure, size, a, b,    i, n, round, ratio, low, high) {
    n = 0
    for (i = 1; i <= round_count[group]; i++) {
        round = rounds[group, i]
        if (!((group, round, a, measure, size) in single) || !((group, round, b, measure, size) in single)) continue
        ratio = single[group, round, a, measure, size] / single[group, round, b, measure, size]
        if (n++ == 0 || ratio < low) low = ratio
        if (n == 1 || ratio > high) high = ratio
    }
    return n == 0 ? "–" : n == 1 ? "(1)" : sprintf("%.2f–%.2f (%d)", low, high, n)
}

function ratio_cells(group, measure, size, column, other, lower_wins,    a, b, ratio) {
    a = median(group "," column "," measure "," size)
    b = other == "" ? "" : median(group "," other "," measure "," size)
    ratio = a == "" || b == "" || b == 0 ? "" : a / b
    set_targets(column, measure, size)
    return sprintf(" %s | %s | %s | %s | %s |", ratio == "" ? "–" : sprintf("%.2f", ratio),
        range_text(group, measure, size, column, other), target_text(must, lower_wins),
        target_text(aim, lower_wins), met(ratio, lower_wins))
}
function line_row(group, list, n,    i, text, any, value) {
    text = "| one cache line, ns |"
    for (i = 1; i <= n; i++) {
        value = median(group "," list[i] ",line,0")
        if (value != "") any = 1
        text = text " " (value == "" ? "–" : sprintf("%.0f", value)) " |"
    }
    return any ? text : ""
}

# One measure of the on-node columns.
function on_node_table(group, measure, heading, lower_wins,    i, s, c, text, value, best, best_column, any) {
    if (!((group, measure) in size_count)) return
    for (c = 1; c <= column_count; c++) if ((group, column_names[c]) in seen_column) any = 1
    if (!any) return
    printf("\n### %s\n\n| |", heading)
    for (c = 1; c <= column_count; c++) printf(" %s |", title[column_names[c]])
    printf(" best other | velo / best | in rounds | must | aim | met |\n|--:|")
    for (c = 1; c <= column_count; c++) printf("--:|")
    print "--:|--:|--:|--:|--:|:--|"
    for (s = 1; s <= size_count[group, measure]; s++) {
        i = sizes[group, measure, s]
        best = best_column = ""
        text = "| " size_text(i) " |"
        for (c = 1; c <= column_count; c++) {
            value = median(group "," column_names[c] "," measure "," i)
            text = text " " (column_names[c] in why_absent ? why_absent[column_names[c]] : figure(value)) " |"
            if (value == "" || !(column_names[c] in incumbent)) continue
            if (best == "" || (lower_wins ? value < best : value > best)) { best = value; best_column = column_names[c] }
        }
        print text " " (best_column == "" ? "–" : title[best_column]) " |" ratio_cells(group, measure, i, "velo", best_column, lower_wins)
    }
    text = line_row(group, column_names, column_count)
    if (text != "") print text " | | | | | |"
}

# One measure of velo with one rank a node, beside vader with CMA.
function device_table(group, measure, heading, lower_wins,    s, i, n, list, c, text) {
    if (!((group, measure) in size_count) || !((group, "device") in seen_column)) return
    n = 0
    list[++n] = "device"
    if ((group, "device_before") in seen_column) list[++n] = "device_before"
    list[++n] = "vader"
    printf("\n### %s\n\n| |", heading)
    for (c = 1; c <= n; c++) printf(" %s |", title[list[c]])
    printf(" velo / vader | in rounds | must | aim | met |\n|--:|")
    for (c = 1; c <= n; c++) printf("--:|")
    print "--:|--:|--:|--:|:--|"
    for (s = 1; s <= size_count[group, measure]; s++) {
        i = sizes[group, measure, s]
        text = "| " size_text(i) " |"
        for (c = 1; c <= n; c++) text = text " " figure(median(group "," list[c] "," measure "," i)) " |"
        print text ratio_cells(group, measure, i, "device", "vader", lower_wins)
    }
    text = line_row(group, list, n)
    if (text != "") print text " | | | | |"
}

function flow_table(    s, size) {
    if (!(("flow", "alltoall") in size_count)) return
    print "\n### Alltoall of 2 KiB for each process, one rank a node, 58 slots, us\n"
    print "| ranks | static | none | static / none | in rounds | must | aim | met |"
    print "|--:|--:|--:|--:|--:|--:|--:|:--|"
    for (s = 1; s <= size_count["flow", "alltoall"]; s++) {
        size = sizes["flow", "alltoall", s]
        print "| " substr(size, 3) " | " figure(median("flow,static,alltoall," size)) " | " \
            figure(median("flow,none,alltoall," size)) " |" ratio_cells("flow", "alltoall", size, "static", "none", 1)
    }
}

END {
    for (i = 1; i <= row_count; i++) {
        split(rows[i], field, ",")
        group = field[1]; round = field[2]; column = field[3]; measure = field[5]
        if (group == "memory" || class_of(group "," round) != class) continue
        # Alltoalls differ in where the ranks are, not in the size.
        size = measure == "alltoall" ? field[4] : field[6]
        key = group "," column "," measure "," size
        values[key, ++count[key]] = field[7] + 0
        single[group, round, column, measure, size] = field[7] + 0
        seen_column[group, column] = 1
        if (!((group, round) in seen_round)) { seen_round[group, round] = 1; rounds[group, ++round_count[group]] = round }
        if (measure != "line" && !((group, measure, size) in seen_size)) {
            seen_size[group, measure, size] = 1
            # In order, whatever part of a round was first in this class; "np2" is 0 and stays where it came.
            for (s = size_count[group, measure]++; s > 0 && sizes[group, measure, s] + 0 > size + 0; s--) {
                sizes[group, measure, s + 1] = sizes[group, measure, s]
            }
            sizes[group, measure, s + 1] = size
        }
    }
    any = 0
    n = split("latency bandwidth rate flow", groups, " ")
    for (i = 1; i <= n; i++) {
        if (round_count[groups[i]] == 0) continue
        text = text (any++ ? ", " : "") round_count[groups[i]] " of " groups[i]
    }
    if (!any) exit
    if (class == "mixed") {
        print "\nMixed parts of rounds, whose jobs ran at different distances, are in the CSV only: " text "."
        exit
    }
    print "\n## " toupper(substr(class, 1, 1)) substr(class, 2) " rounds\n\nParts of rounds: " text "."
    on_node_table("latency", "latency", "One-way latency on node, us", 1)
    on_node_table("bandwidth", "bandwidth", "Streaming on node, one direction, MB/s", 0)
    on_node_table("bandwidth", "both", "Streaming on node, both directions, MB/s", 0)
    on_node_table("rate", "rate", "Message rate on node, messages/s", 0)
    device_table("latency", "latency", "One-way latency, one rank a node, us", 1)
    device_table("bandwidth", "bandwidth", "Streaming, one rank a node, one direction, MB/s", 0)
    device_table("bandwidth", "both", "Streaming, one rank a node, both directions, MB/s", 0)
    device_table("rate", "rate", "Message rate, one rank a node, messages/s", 0)
    flow_table()
    printf("summary %s rounds: of %d targets, %d reach the aim, %d only the must, %d neither\n", class, targets, aims, \
        musts, targets - aims - musts)
}
