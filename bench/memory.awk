# Makes bench/compare's table of memory of its CSV (group,round,column,where,measure,size,value); memory rows only.
# Each rank printed its sizes; a job's figure is the mean of its ranks, and over rounds the median of that.
BEGIN { FS = "," }
$1 == "memory" {
    job = $3 "," $4 "," $5 "," $6 "," $2
    sum[job] += $7
    ranks[job]++
    if ($4 != "np1" && !($4 in seen)) { seen[$4] = 1; nps[++np_count] = $4 }
}
function median_of(prefix,    job, n, i, j, x, v) {
    n = 0
    for (job in sum) {
        if (index(job, prefix ",") != 1) continue
        x = sum[job] / ranks[job]
        for (j = n++; j > 0 && v[j] > x; j--) v[j + 1] = v[j]
        v[j + 1] = x
    }
    if (n == 0) return ""
    return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
}
# KiB that a rank has more than one without a transport would have.
function added(column, np, measure, exchanges,    value, base, tcp, alone) {
    value = median_of(column "," np "," measure "," exchanges)
    base = median_of("tcp," np "," measure ",0")
    tcp = median_of("tcp,np1," measure ",0")
    alone = median_of("alone,np1," measure ",0")
    if (value == "" || base == "" || tcp == "" || alone == "") return ""
    return value - base + (tcp - alone)
}
function cell(value) { return value == "" ? "–" : sprintf("%.0f", value) }
function cells(value, vader,    ratio) {
    if (value == "" || vader == "") return cell(value) " | – | –"
    if (vader <= 0) return cell(value) " | – | vader's is lost in the noise"
    ratio = value / vader
    targets++
    if (ratio <= 0.5) { aims++; return sprintf("%.0f | %.2f | aim", value, ratio) }
    if (ratio <= 1) { musts++; return sprintf("%.0f | %.2f | must", value, ratio) }
    return sprintf("%.0f | %.2f | **no**", value, ratio)
}
END {
    if (np_count == 0) exit
    print "\n## Memory\n"
    print "KiB that a rank has more than one without any transport, mean of the ranks. must: ≤ 1.00 × vader's, aim: ≤ 0.50."
    print "PSS counts a page that n processes share as 1/n in each; RSS counts it whole in each."
    print "\n| | ranks | after exchanges | vader | velo on node | ratio | met | velo, one rank a node | ratio | met |"
    print "|:--|--:|--:|--:|--:|--:|:--|--:|--:|:--|"
    split("pss rss", measures, " ")
    for (m = 1; m <= 2; m++) {
        for (n = 1; n <= np_count; n++) {
            for (e = 1; e <= 300; e += 299) {
                vader = added("vader", nps[n], measures[m], e)
                printf("| %s | %s | %d | %s | %s | %s |\n", toupper(measures[m]), substr(nps[n], 3), e, cell(vader), \
                    cells(added("velo", nps[n], measures[m], e), vader), \
                    cells(added("device", nps[n], measures[m], e), vader))
            }
        }
    }
    printf("summary memory: of %d targets, %d reach the aim, %d only the must, %d neither\n", targets, aims, musts, \
        targets - aims - musts)
}
