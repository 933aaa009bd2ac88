# Of the CSV of bench/imb or bench/npb: benchmark,configuration,ranks,speed relative to vader's, one line for each.
# A speed is the geometric mean over sizes of the ratio of the medians over rounds. Variable: unit.
BEGIN { FS = "," }
NR > 1 && $7 == "ok" && $6 > 0 {
    key = $1 "," $2 "," $3 "," $4
    values[key, ++count[key]] = $6 + 0
    if (!(($1, $3, $4) in seen)) { seen[$1, $3, $4] = 1; rows[++row_count] = $1 "," $3 "," $4 }
    if (!(($1, $2, $4) in seen_size)) { seen_size[$1, $2, $4] = 1; sizes[$1, $4, ++size_count[$1, $4]] = $2 }
}
END {
    for (r = 1; r <= row_count; r++) {
        split(rows[r], field, ",")
        if (field[2] == "vader") continue
        sum = n = 0
        for (s = 1; s <= size_count[field[1], field[3]]; s++) {
            size = sizes[field[1], field[3], s]
            own = median(field[1] "," size "," field[2] "," field[3])
            vader = median(field[1] "," size ",vader," field[3])
            if (own <= 0 || vader <= 0) continue
            sum += log(unit == "us" ? vader / own : own / vader)
            n++
        }
        if (n) printf("%s,%.4f\n", rows[r], exp(sum / n))
    }
}
