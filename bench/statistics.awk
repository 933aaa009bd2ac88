# Of values[key, 1] to values[key, count[key]]: the one at `part` of the way from the least (0) to the largest (1), and the
# median. "" when there are none. For other awk programs, which come after it: awk -f statistics.awk -f ...
function rank_of(key, part,    n, i, j, x, v, place) {
    n = count[key]
    if (n == 0) return ""
    for (i = 1; i <= n; i++) {
        x = values[key, i]
        for (j = i - 1; j > 0 && v[j] > x; j--) v[j + 1] = v[j]
        v[j + 1] = x
    }
    place = 1 + (n - 1) * part
    i = int(place)
    return i == n ? v[n] : v[i] + (place - i) * (v[i + 1] - v[i])
}
function median(key) { return rank_of(key, 0.5) }
