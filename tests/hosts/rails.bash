# Jobs between hosts with two networks, each of which is a rail. Sourced by run_hosts.
# shellcheck shell=bash

two_rails=(--mca btl_velo_ports 2 --mca btl_velo_stats 1)

run_rails() {
    if [[ $btl == *tcp* ]]; then
        skip "rails over $btl" 'they are those of velo alone'
        return
    fi
    local before=$kind
    kind=-r
    with_hosts 2 all_rails
    kind=$before
}

all_rails() {
    local program rule layout
    if [[ $full ]]; then
        # Not those that run elsewhere (programs.bash). Some have no long messages, so no second rail is asked for.
        for program in "${programs[@]}"; do
            [[ $program == dynamic || $program == big || $program == backlog || $program == lifecycle ]] && continue
            for rule in static round_robin local_dynamic dynamic hybrid; do rails_case "$program" "$rule" 2+2 passes_again; done
        done
    fi
    for program in p2p sizes onesided collectives; do
        for layout in 1+1 2+2; do rails_case "$program" hybrid "$layout"; done
    done
    for rule in static round_robin local_dynamic dynamic; do
        for program in p2p onesided; do rails_case "$program" "$rule" 1+1; done
    done
    with_addresses eth1 10.79.0.99/32 10.79.0.99/32 \
        case_on_hosts 'rails_beside_a_floating_address 1+1' both_carry 1+1 "${two_rails[@]}" "${p2p[@]}"
    with_addresses eth1 192.168.1.5/24 192.168.2.5/24 \
        case_on_hosts 'rails_beside_second_addresses 1+1' both_carry 1+1 "${two_rails[@]}" "${p2p[@]}"
    case_on_hosts 'rails_of_one_host 1+1' rails_of_one_host
    case_on_hosts 'rails_rank_killed 1+1' rails_rank_is_killed
    case_on_hosts 'rail_cut_6s 1+1' rail_is_cut 6
    [[ $full ]] && case_on_hosts 'rail_cut_for_good 1+1' rail_is_cut for_good
    return 0
}

# rails_case PROGRAM RULE LAYOUT [CHECK]
rails_case() {
    local -a arguments
    mapfile -t arguments < <(arguments_of "$1")
    case_on_hosts "rails_$1_$2 $3" "${4:-both_carry}" "$3" "${two_rails[@]}" --mca btl_velo_rails "$2" "$bindir/$1" "${arguments[@]}"
}

# moved RAIL: prints the bytes that it has moved for all ranks.
moved() {
    grep -o "rail_bytes_$1=[0-9]*" "$log" | awk -F = '{ sum += $2 } END { print sum + 0 }'
}

# both_carry LAYOUT ARGUMENT...: a job that passes, and both rails move bytes.
both_carry() {
    run_job "$@" || return
    local rail
    for rail in 0 1; do [[ $(moved "$rail") != 0 ]] || why="rail $rail moved nothing"; done
}

# Ranks of one host have one rail, and those of the other two.
rails_of_one_host() {
    "$hosts" on h2 ip link set eth1 down
    if ! run_job 1+1 "${two_rails[@]}" --mca btl_velo_rails static "$bindir/p2p" --watchdog 40 --quick; then
        why='it did not pass'
    elif [[ $(moved 0) == 0 ]]; then
        why='rail 0 moved nothing'
    elif ! grep -q 'btl_velo_ports=2, and .* (eth0) has 1 rail, too few for btl_velo_rails=static' "$log"; then
        why='no line says that a host has one rail'
    fi
    "$hosts" on h2 ip link set eth1 up
}

# A rank that dies takes its operations on all rails along.
rails_rank_is_killed() {
    local job='' outcome='' says=-
    start_on_rails 8 || return
    random_pause
    kill -KILL "$(ranks_on h2 | head -n 1)"
    wait_for_end 30
    [[ $outcome == ended ]] || why="it $outcome; expected: ended"
}

# start_on_rails SECONDS: traffic between two hosts.
start_on_rails() {
    local -a where
    mapfile -t where < <(ranks 1+1)
    start_job "${where[@]}" "${two_rails[@]}" "$traffic" "$1"
    await 20 started_or_ended && grep -q '^started' "$log" && return
    why='the traffic did not start'
    return 1
}

# rail_is_cut SECONDS|for_good: the second network of a host, in the middle of a job, which loses nothing.
rail_is_cut() {
    local job='' outcome='' says=- traffic_s=8
    [[ $1 == for_good ]] || traffic_s=$(($1 + 7))
    start_on_rails "$traffic_s" || return
    random_pause
    "$hosts" link h2 down eth1
    if [[ $1 != for_good ]]; then
        sleep "$1"
        "$hosts" link h2 up eth1
    fi
    wait_for_end $((traffic_s + 15))
    "$hosts" link h2 up eth1
    if [[ $outcome != passed ]]; then
        why="it $outcome; expected: passed"
    elif ! grep -q 'velo: rank [0-9]*: rail 1 .*fails, and is tried again' "$log"; then
        why='no line says that rail 1 failed'
    elif [[ $1 != for_good ]] && ! grep -q 'velo: rank [0-9]*: rail 1 .*works again' "$log"; then
        why='no line says that rail 1 works again'
    elif ! nothing_left; then
        why='something was left'
    fi
}
