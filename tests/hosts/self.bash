# Tests of hosts and relay themselves. Sourced by run_hosts; those that begin with inside_ run on h0.
# shellcheck shell=bash

up_s_max=3

# --- Outside.

# Every process that is started from here carries this word in its environment.
export HOSTS_TEST_MARK=$$-$RANDOM

# marked: prints these processes. No other program runs for it, as that would have the word too.
marked() {
    local process word words
    for process in /proc/[0-9]*; do
        { mapfile -d '' words <"$process/environ"; } 2>/dev/null || continue
        for word in "${words[@]}"; do
            [[ $word == "HOSTS_TEST_MARK=$HOSTS_TEST_MARK" ]] && printf '%s ' "${process#/proc/}"
        done
    done
}

# state: what hosts might leave on this machine.
state() {
    ip -oneline link | cut -d : -f 2
    cat /proc/self/mounts
    ls -A "$work/tmp"
    ls -d /run/hosts /dev/shm/hosts-test* 2>/dev/null
    hostname
    cksum /etc/hosts
}

# same_state: why this machine is not as before; nothing if it is. An interface ends a moment after its namespace.
same_state() {
    await 2 is_same && return
    printf 'left behind: processes %s; ' "$(marked)"
    diff <(printf '%s\n' "$before") <(state) | grep '^[<>]'
}

is_same() { [[ $(state) == "$before" && ! $(marked) ]]; }

# start_sleeper [OPTION]: hosts with a command that does not end, in the background; waits until they are up.
start_sleeper() {
    rm -f "$work/up"
    # Bash cannot trap a signal that is ignored at its start, as SIGINT is in the background.
    # shellcheck disable=SC2016
    TMPDIR=$work/tmp env --default-signal=INT "$hosts" "$@" 3 bash -c ': >"$1"; "$2" on h2 sleep 1000 & exec sleep 1000' up "$work/up" "$hosts" \
        >/dev/null 2>&1 </dev/null &
    sleeper=$!
    await 10 test -e "$work/up"
}

# ends_by SIGNAL STATUS [OPTION]: hosts is killed midway, and nothing is left.
ends_by() {
    local why='' status
    start_sleeper "${@:3}" || why='it did not come up'
    kill "-$1" "$sleeper"
    wait "$sleeper" 2>/dev/null
    status=$?
    [[ ! $why && $status != "$2" ]] && why="the exit status is $status, not $2"
    [[ $why ]] || why=$(same_state)
    verdict "nothing_is_left_after_SIG$1${3:+_own_pids}" "$why"
}

test_hosts() {
    local start seconds status why name
    mkdir "$work/tmp"
    with_hosts 2 inside_nothing
    before=$(state)
    for kind in '' -p; do
        name=${kind:+_own_pids}
        start=$EPOCHREALTIME
        with_hosts 4 inside_nothing
        seconds=$(seconds_since "$start")
        why=
        awk -v took="$seconds" -v max="$up_s_max" 'BEGIN { exit !(took >= max) }' && why="it took $seconds s"
        verdict "four_hosts_up_and_down_in_less_than_${up_s_max}_s$name" "$why"
        with_hosts 3 inside_hosts
        verdict "nothing_is_left$name" "$(same_state)"
    done
    kind=
    kind=-r
    with_hosts 3 inside_second_network
    verdict nothing_is_left_by_a_second_network "$(same_state)"
    kind=
    if [[ -c /dev/net/tun ]]; then
        with_hosts 2 inside_relay
        verdict nothing_is_left_by_the_relay "$(same_state)"
    else
        skip the_relay '/dev/net/tun is missing'
    fi
    ends_by TERM 143
    ends_by TERM 143 -p
    ends_by KILL 137
    ends_by INT 130 -p
    two_at_once
    why=
    "$hosts" 2 bash -c 'exit 7'
    status=$?
    ((status == 7)) || why="it is $status, not 7"
    verdict the_exit_status_is_the_commands "$why"
}

two_at_once() {
    local why='' first
    start_sleeper || why='the first did not come up'
    first=$sleeper
    with_hosts 2 inside_reachable
    kill -0 "$first" 2>/dev/null || why='the end of the second ended the first'
    kill -TERM "$first"
    wait "$first" 2>/dev/null
    [[ $why ]] || why=$(same_state)
    verdict two_at_once_do_not_meet "$why"
}

# --- On h0.

inside_nothing() { :; }

# answer FROM TO: prints refused if TO answers a connection attempt from FROM, as nothing listens there; the
# error or silence if not.
answer() {
    local said
    said=$("$hosts" on "$1" timeout 0.5 bash -c ': <>"/dev/tcp/$1/9"' connect "$2" 2>&1) || :
    case $said in
        *'Connection refused'*) echo refused ;;
        '') echo silence ;;
        *) printf '%s\n' "${said##*: }" ;;
    esac
}

# expect FROM TO ANSWER...: sets why unless the answer is one of those. A busy machine may need more attempts to answer.
expect() {
    local got tries
    for ((tries = 0; tries < 10; ++tries)); do
        got=$(LC_ALL=C answer "$1" "$2")
        [[ " ${*:3} " == *" ${got// /_} "* ]] && return
        [[ $3 == refused ]] || break
    done
    why="$1 to $2: $got instead of ${*:3}"
}
# The signs of a host behind a cut link.
unreachable=(silence No_route_to_host)

inside_reachable() {
    local why='' from to
    for from in ${HOSTS_LIST//,/ }; do
        for to in h0 ${HOSTS_LIST//,/ }; do expect "$from" "$to" refused; done
    done
    verdict every_host_reaches_every_host "$why"
}

inside_second_network() {
    local why='' second=10.79.0.2
    expect h1 "$second" refused
    "$hosts" link h2 down eth1
    expect h1 "$second" "${unreachable[@]}"
    expect h1 10.79.0.3 refused
    expect h1 h2 refused
    "$hosts" link h2 up eth1
    expect h1 "$second" refused
    verdict a_second_network_goes_down_and_up "$why"
}

inside_hosts() {
    local why='' host names
    inside_reachable
    names=$(for host in ${HOSTS_LIST//,/ }; do "$hosts" on "$host" hostname; done | tr '\n' ,)
    [[ $names == "$HOSTS_LIST," && $(hostname) == h0 ]] || why="they are $(hostname) and $names"
    verdict each_host_has_its_name "$why"

    why=
    "$hosts" on h1 touch /dev/shm/hosts-test
    [[ $("$hosts" on h1 ls /dev/shm) == hosts-test ]] || why='the file is not there'
    [[ $("$hosts" on h2 ls -A /dev/shm) || $(ls -A /dev/shm) ]] && why='a file of h1 is elsewhere'
    verdict each_host_has_its_shared_memory "$why"

    why=
    local space kinds=(net uts ipc mnt) own
    [[ $kind ]] && kinds+=(pid)
    for space in "${kinds[@]}"; do
        own=$({
            readlink "/proc/self/ns/$space"
            for host in ${HOSTS_LIST//,/ }; do "$hosts" on "$host" readlink "/proc/self/ns/$space"; done
        } | sort -u | wc -l)
        ((own == 4)) || why="of 4 hosts, $own have a namespace $space of their own"
    done
    verdict each_host_has_its_namespaces "$why"

    if [[ $kind ]]; then
        why=
        (($("$hosts" on h1 bash -c 'echo $$') < 100)) || why='the numbers of processes are high'
        [[ $("$hosts" on h1 cat /proc/1/cmdline | tr '\0' ' ') == *keep_host* ]] || why='the first process is another'
        verdict each_host_has_its_process_numbers "$why"
    fi

    why=
    "$hosts" on h2 bash -c 'sleep 1000 & disown; sleep 0.01 & disown'
    sleep 0.2
    [[ $("$hosts" processes h2) =~ ^[0-9]+\ sleep$ ]] || why="they are: $("$hosts" processes h2)"
    verdict processes_of_a_host "$why"

    why=
    "$hosts" link h2 down
    expect h1 h2 "${unreachable[@]}"
    expect h1 h3 refused
    "$hosts" link h2 up
    expect h1 h2 refused
    verdict a_link_goes_down_and_up "$why"

    # A kernel may be without sch_tbf, which is asked without what is tested.
    if "$hosts" on h2 tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 1ms 2>/dev/null; then
        why=
        "$hosts" rate h2 10gbit || why='no rate is set'
        [[ $("$hosts" on h2 tc qdisc show dev eth0) == *'tbf'*'rate 10Gbit'* ]] || why='the link has no rate'
        expect h1 h2 refused
        "$hosts" rate h2 off
        [[ $("$hosts" on h2 tc qdisc show dev eth0) != *tbf* ]] || why='the link keeps its rate'
        verdict a_link_has_a_rate_and_none "$why"
    else
        skip a_link_has_a_rate_and_none 'the kernel has no sch_tbf'
    fi

    if command -v nft >/dev/null; then
        why=
        "$hosts" loss h2 1000
        expect h1 h2 "${unreachable[@]}"
        "$hosts" loss h2 0
        expect h1 h2 refused
        verdict a_host_loses_what_arrives "$why"
        why=
        "$hosts" firewall h2 drop
        expect h1 h2 silence
        "$hosts" firewall h2 reject
        # The kernel hears the answer to the second attempt, where the first one is still in its hands.
        [[ $(LC_ALL=C "$hosts" on h1 timeout 10 bash -c ': <>/dev/tcp/h2/9' 2>&1) == *'No route to host'* ]] ||
            why='no connection is rejected'
        "$hosts" firewall h2 drop 9-9
        expect h1 h2 refused
        expect h1 h3 refused
        "$hosts" firewall h2 off
        expect h1 h2 refused
        verdict a_firewall_drops_and_rejects_connections_but_to_open_ports "$why"
    else
        skip a_host_loses_what_arrives 'nft (package nftables) is missing'
    fi

    why=
    "$hosts" kill h2
    expect h1 h2 "${unreachable[@]}"
    expect h1 h3 refused
    "$hosts" on h2 true 2>/dev/null && why='a command runs on the dead host'
    local alive
    alive=$(grep -ls '^sleep' /proc/[0-9]*/comm)
    [[ $alive ]] && why="a process of the dead host is alive: $alive"
    verdict a_killed_host_is_dead "$why"
}

# round_trip_ms: the shortest of five, of refused connections over the relay; the first one also resolves addresses.
round_trip_ms() {
    "$hosts" on h1 bash -c 'for ((i = 0; i < 5; ++i)); do
            from=$EPOCHREALTIME
            (: <>/dev/tcp/10.78.0.2/9) 2>/dev/null
            to=$EPOCHREALTIME
            echo $(((${to/[.,]/} - ${from/[.,]/}) / 1000))
        done' | sort -n | head -n 1
}

inside_relay() {
    local why='' ms lost address
    local relay_pid='' network=''
    make_relay --delay-us 20000
    ms=$(round_trip_ms)
    ((ms >= 40 && ms < 100)) || why="a round trip with 20 ms each way took $ms ms"
    verdict the_relay_delays "$why"

    why=
    kill -USR1 "$relay_pid"
    expect h1 10.78.0.2 "${unreachable[@]}"
    kill -USR2 "$relay_pid"
    expect h1 10.78.0.2 refused
    verdict the_relay_cuts_and_joins "$why"
    end_relay

    # Of 400 frames, 20 % +- 10 % are lost. The address is given, as its resolution may be lost as well.
    why=
    make_relay --loss-per-mille 200 --seed 3
    read -r _ address _ < <("$hosts" on h2 ip -oneline link show dev slow0 | grep -o 'link/ether.*')
    "$hosts" on h1 ip neighbour replace 10.78.0.2 lladdr "$address" dev slow0
    "$hosts" on h1 bash -c 'for ((i = 0; i < 400; ++i)); do echo >/dev/udp/10.78.0.2/9; ((i % 20)) || sleep 0.01; done' 2>/dev/null
    end_relay
    lost=$(sed -n 's/^from device 0: .* carried, \([0-9]*\) lost.*/\1/p' "$work/relay.log")
    ((lost >= 40 && lost <= 130)) || why="of 400 frames it lost $lost"
    verdict the_relay_loses "$why"

    why=
    "$relay" --loss-per-mille 2000 1 1 2>/dev/null
    (($? == 2)) || why='a loss of 2000 per mille is no usage error'
    "$relay" 1 99999999 >"$work/relay.log" 2>&1
    [[ $? == 1 && $(<"$work/relay.log") == *'cannot open /proc/99999999/ns/net'* ]] || why='a missing process is not named'
    verdict the_relay_says_what_is_wrong "$why"
}
