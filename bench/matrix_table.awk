# Makes the markdown table of what matrix.awk printed. Variable: configurations, space-separated.
# An NPB benchmark is named NAME.CLASS, and each class has geometric means of its own; other names have no class.
BEGIN {
    FS = ","
    n = split(configurations, all, " ")
    for (i = 1; i <= n; i++) if (all[i] != "vader") columns[++column_count] = all[i]
}
{
    speed[$1, $2, $3] = $4
    if (!(($1, $3) in seen)) { seen[$1, $3] = 1; names[++row_count] = $1; ranks[row_count] = $3 }
    class = match($1, /\.[A-Z]$/) ? "class " substr($1, RSTART + 1) : "all"
    if (!((class, $3) in seen_class)) { seen_class[class, $3] = 1; classes[++class_count] = class; class_ranks[class_count] = $3 }
    sum[class, $2, $3] += log($4)
    count[class, $2, $3]++
}
END {
    printf("\n| benchmark | ranks |")
    for (c = 1; c <= column_count; c++) printf(" %s |", columns[c])
    printf("\n|:--|--:|")
    for (c = 1; c <= column_count; c++) printf("--:|")
    print ""
    for (r = 1; r <= row_count; r++) {
        printf("| %s | %s |", names[r], ranks[r])
        for (c = 1; c <= column_count; c++) {
            key = names[r] SUBSEP columns[c] SUBSEP ranks[r]
            printf(" %s |", key in speed ? sprintf("%.2f", speed[key]) : "–")
        }
        print ""
    }
    for (r = 1; r <= class_count; r++) {
        printf("| **geometric mean, %s** | %s |", classes[r], class_ranks[r])
        for (c = 1; c <= column_count; c++) {
            key = classes[r] SUBSEP columns[c] SUBSEP class_ranks[r]
            printf(" %s |", key in sum ? sprintf("**%.3f**", exp(sum[key] / count[key])) : "–")
        }
        print ""
    }
}
