# Traffic between hosts while something happens to a host, a link, a rank or a connection. Sourced by run_hosts.
# shellcheck shell=bash

# The run shows one of these: the traffic passed; the job ended by itself with an error; it was told (a line of velo's
# matches, and no rank is left on a living host, but mpirun itself did not end); or it hung until the end of its time.
# Columns: case; default or full; seconds that it may take; outcomes allowed over BTLs with tcp, for which a bound on the
# machinery is all that can be said; outcomes allowed over velo alone; what may be left on living hosts: nothing, or orted;
# what one of velo's lines says when a job ends or is told. A job that passes has no line of velo's
# but one of a transfer that was repeated, where connections are reset.
fault_table='
link_down_5s             default 45 passed            passed     nothing -
link_down_for_good       full    60 passed|ended|hung ended|told orted   velo: rank [0-9]+ .*on h[12]\) has ended
fabric_cut_for_good      default 60 passed|ended|hung ended      nothing velo: rank [0-9]+ .*on h[12]\) has ended
loss_1_percent           default 45 passed            passed     nothing -
loss_5_percent           full    60 passed            passed     nothing -
delay_10_ms              default 45 passed            passed     nothing -
host_vanishes            full    60 passed|ended|hung ended|told orted   velo: rank [0-9]+ .*on h2\) has ended
rank_killed              default 30 ended             ended      nothing -
rank_stopped_10s         default 45 passed            passed     nothing -
connections_reset        default 25 passed|ended|hung passed|ended nothing velo: rank [0-9]+ .*on h[12]\) has ended
'
# Silence of a peer after which velo takes it for dead; shorter than velo's default, longer than link_down_5s.
peer_timeout_s=8

run_faults() {
    local name when
    while read -r name when _; do
        [[ $name ]] || continue
        wanted "$name" || continue
        [[ $when == default || $full || ${#only[@]} != 0 ]] || continue
        lacks_tool "$name" || with_hosts 2 fault "$name"
    done <<<"$fault_table"
}

# lacks_tool CASE: whether this machine lacks what the case needs, which is then said.
lacks_tool() {
    if [[ $1 == loss_* ]] && ! command -v nft >/dev/null; then
        skip "$1" 'nft (package nftables) is missing'
    elif [[ $1 == @(delay|fabric)_* && ! -c /dev/net/tun ]]; then
        skip "$1" '/dev/net/tun is missing'
    else
        return 1
    fi
}

# --- Parts of the cases. $job is mpirun, $traffic_s the seconds of traffic, $network the interface that it uses.

start_traffic() {
    local -a where
    mapfile -t where < <(ranks "$layout")
    start_job "${where[@]}" --mca btl_tcp_if_include "$network" --mca btl_velo_if_include "$network" \
        --mca btl_velo_peer_timeout "$peer_timeout_s" "$traffic" "$traffic_s"
    await 20 started_or_ended && grep -q '^started' "$log" && return
    why='the traffic did not start'
    return 1
}

job_ended() { ! kill -0 "$job" 2>/dev/null; }
started_or_ended() { grep -q '^started' "$log" || job_ended; }

# ranks_on HOST: prints the processes that exchange traffic there.
ranks_on() { "$hosts" processes "$1" | sed -n 's/ traffic$//p'; }

# A random moment, within a second.
random_pause() { sleep "0.$((RANDOM % 900 + 100))"; }

# make_relay OPTION...: joins h1 and h2 by a second network, slow0.
make_relay() {
    network=slow0
    : >"$work/relay.log"
    "$relay" "$@" "$(<"$HOSTS_DIR/h1")" "$(<"$HOSTS_DIR/h2")" >"$work/relay.log" 2>&1 </dev/null &
    relay_pid=$!
    await 3 grep -q '^ready' "$work/relay.log"
    local i
    for i in 1 2; do
        "$hosts" on "h$i" ip addr add "10.78.0.$i/24" dev slow0 && "$hosts" on "h$i" ip link set slow0 up && continue
        cp "$work/relay.log" "$log"
        why='the relay did not start'
        return 1
    done
}

end_relay() {
    [[ $relay_pid ]] || return 0
    kill -TERM "$relay_pid" 2>/dev/null
    wait "$relay_pid" 2>/dev/null
    cat "$work/relay.log" >>"$log"
    relay_pid=
}

# stood_still_for SECONDS: fails unless a round of the traffic took that long.
stood_still_for() {
    awk -v min="$1" '/^PASS traffic/ { found = $(NF - 1) >= min } END { exit !found }' "$log"
}

# --- The cases. Each starts the traffic and does its harm; how the job ends is looked at afterwards. felt_NAME says whether
# traffic that passed has met the harm at all.

fault_link_down_5s() {
    traffic_s=8
    start_traffic || return
    random_pause
    "$hosts" link h2 down
    sleep 5
    "$hosts" link h2 up
}
felt_link_down_5s() { stood_still_for 5; }

fault_link_down_for_good() {
    traffic_s=8
    start_traffic || return
    random_pause
    "$hosts" link h2 down
}

# mpirun still reaches both hosts.
fault_fabric_cut_for_good() {
    traffic_s=8
    make_relay && start_traffic || return
    random_pause
    kill -USR1 "$relay_pid"
}

# loses PER_MILLE SECONDS: of frames as they are on a wire; between namespaces the kernel hands over 64 KiB at once.
loses() {
    traffic_s=$2
    local host
    for host in h1 h2; do "$hosts" on "$host" ip link set eth0 gso_max_segs 1 || why='frames stay joined'; done
    start_traffic || return
    for host in h1 h2; do "$hosts" loss "$host" "$1" || why='nothing could be lost'; done
}
lost_on() { [[ $("$hosts" on "$1" nft list table inet hosts) == *'counter packets '[1-9]* ]]; }
fault_loss_1_percent() { loses 10 4; }
fault_loss_5_percent() { loses 50 8; }
felt_loss_1_percent() { lost_on h1 && lost_on h2; }
felt_loss_5_percent() { lost_on h1 && lost_on h2; }

fault_delay_10_ms() {
    traffic_s=4
    make_relay --delay-us 10000 && start_traffic
}
felt_delay_10_ms() { ! grep -qE '^from device [01]: .{1,3} carried' "$work/relay.log"; }

fault_host_vanishes() {
    traffic_s=8
    start_traffic || return
    random_pause
    "$hosts" link h2 down
    "$hosts" kill h2
}

fault_rank_killed() {
    traffic_s=8
    start_traffic || return
    random_pause
    kill -KILL "$(ranks_on h2 | head -n 1)"
}

fault_rank_stopped_10s() {
    traffic_s=13
    local victim
    start_traffic || return
    random_pause
    victim=$(ranks_on h2 | head -n 1)
    kill -STOP "$victim"
    sleep 10
    kill -CONT "$victim"
}
felt_rank_stopped_10s() { stood_still_for 10; }

# Each time whatever connection there is between the hosts.
fault_connections_reset() {
    traffic_s=5
    local times ended all=0
    start_traffic || return
    for times in 1 2 3; do
        random_pause
        ended=$("$hosts" reset h2)
        printf 'reset %s: %s connections\n' "$times" "$ended" >>"$work/resets"
        all=$((all + ended))
    done
    cat "$work/resets" >>"$log"
    ((all)) || why='no connection could be reset'
}

# --- How a job ends.

# wait_for_end SECONDS: sets outcome.
wait_for_end() {
    local status
    if ! await "$1" job_ended; then
        outcome=hung
        [[ $says != - ]] && grep -qE "$says" "$log" && no_ranks_left && outcome=told
        printf 'no end after %s s\n' "$1" >>"$log"
        kill -TERM "$job"
        await 3 job_ended
        kill -KILL "$job" 2>/dev/null
        wait "$job" 2>/dev/null
        return
    fi
    wait "$job"
    status=$?
    outcome=ended
    ((status == 0)) && grep -q '^PASS traffic' "$log" && outcome=passed
    grep -q '^FAIL' "$log" && outcome='wrong data'
    printf 'exit status %s\n' "$status" >>"$log"
}

# Whether no rank is left on a living host.
no_ranks_left() {
    local host
    for host in h1 h2; do
        [[ -e $HOSTS_DIR/$host && $(ranks_on "$host") ]] && return 1
    done
    return 0
}

# fault NAME
fault() {
    local layout=1+1
    [[ $full ]] && layout=2+2
    case_on_hosts "$1 $layout" run_fault "$1"
}

# run_fault NAME: compares what happened with the table.
run_fault() {
    local seconds over_tcp over_velo leaves says allowed
    local job='' outcome='' relay_pid='' network=eth0
    read -r _ _ seconds over_tcp over_velo leaves says < <(grep "^$1 " <<<"$fault_table")
    allowed=$over_velo
    [[ $btl == *tcp* ]] && allowed=$over_tcp
    "fault_$1"
    [[ $job ]] && wait_for_end "$seconds"
    end_relay
    if [[ ! $why && ! $outcome =~ ^($allowed)$ ]]; then
        why="it $outcome; expected over $btl: $allowed"
    elif [[ ! $why && $btl != *tcp* ]]; then
        judge_lines
    fi
    if [[ ! $why && $outcome == passed && $(type -t "felt_$1") ]] && ! "felt_$1"; then
        why='the traffic did not meet what was done to it'
    fi
    # A job that hung was killed, and what mpirun then leaves is its own.
    if [[ ! $why && $outcome != hung ]]; then
        if [[ $leaves == nothing ]]; then nothing_left; else nothing_left 'traffic|velo'; fi || why='something was left'
    fi
    [[ $why ]] || name+=" ($outcome)"
}

# velo is silent where nothing was lost, and says its sentence where the job ends.
judge_lines() {
    if [[ $outcome == passed ]]; then
        # A transfer whose connection was reset under way is repeated as messages, which velo says.
        local silent='^$'
        [[ $name == connections_reset* ]] && silent='velo: rank [0-9]+: the device failed a transfer with rank '
        grep -qvE -e "$silent" < <(grep 'velo: ' "$log") && why='velo said something, though the traffic passed'
    elif [[ $says != - ]]; then
        grep -qE "$says" "$log" || why="no line says '$says'"
    fi
    return 0
}
