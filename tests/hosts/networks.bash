# Addresses and ports between hosts: interfaces with several addresses, networks that do not meet, firewalls. Sourced by
# run_hosts.
# shellcheck shell=bash

p2p=("$bindir/p2p" --watchdog 40 --quick)

run_networks() {
    if [[ $btl == *tcp* ]]; then
        skip "networks over $btl" 'btl/tcp would carry what velo does not'
        return
    fi
    with_hosts 2 all_networks
}

all_networks() {
    other_networks
    several_addresses
    if command -v nft >/dev/null; then
        firewalls
    else
        skip "firewalls over $btl" 'nft (package nftables) is missing'
    fi
}

# ends_and_says PATTERN LAYOUT ARGUMENT...: a job that ends by itself, and says this.
ends_and_says() {
    local pattern=$1
    if run_job "${@:2}"; then
        why='it passed'
    elif ! grep -qE -- "$pattern" "$log"; then
        why="no line says '$pattern'"
    fi
}

# Each host gets a further network that no other one is in, as a container engine makes it. A job finds the way by the names of
# its hosts; where it is told to take these networks, it ends with a line that names them.
other_networks() {
    local host
    wanted networks_of_one_host || wanted networks_that_do_not_meet || return 0
    for host in 1 2; do
        "$hosts" on "h$host" ip -batch - <<IP
link add name aaa0 type veth peer name aaa1
addr add 172.$((16 + host)).0.1/16 dev aaa0
link set aaa0 up
link set aaa1 up
IP
    done
    run_case networks_of_one_host 1+1 "${p2p[@]}"
    case_on_hosts 'networks_that_do_not_meet 1+1' ends_and_says \
        'never answered \(.*\)\. Its address is in another network than aaa0 \(172\.' 1+1 \
        --mca btl_velo_if_include 172.16.0.0/12 --mca btl_velo_peer_timeout 3 "${p2p[@]}"
    for host in 1 2; do "$hosts" on "h$host" ip link del aaa0; done
}

# with_addresses INTERFACE ADDRESS1 ADDRESS2 COMMAND...: h1 and h2 have these further addresses meanwhile; - is none.
with_addresses() {
    local interface=$1 host
    local -a addresses=(- "$2" "$3")
    for host in 1 2; do
        [[ ${addresses[host]} == - ]] || "$hosts" on "h$host" ip addr add "${addresses[host]}" dev "$interface"
    done
    "${@:4}"
    for host in 1 2; do
        [[ ${addresses[host]} == - ]] || "$hosts" on "h$host" ip addr del "${addresses[host]}" dev "$interface"
    done
}

# Of several addresses of one interface a job takes those between which its hosts reach each other. A floating address is on
# both hosts, as a cluster manager may leave it.
several_addresses() {
    local floating=10.77.0.99
    with_addresses eth0 192.168.1.5/24 192.168.2.5/24 run_case second_address_of_both 1+1 "${p2p[@]}"
    with_addresses eth0 - 192.168.2.5/24 run_case second_address_of_one 1+1 "${p2p[@]}"
    with_addresses eth0 192.168.1.5/24 - run_case second_address_of_the_other 1+1 "${p2p[@]}"
    with_addresses eth0 fd00:1::1/64 fd00:2::1/64 run_case an_address_of_each_kind 1+1 "${p2p[@]}"
    with_addresses eth0 "$floating/32" "$floating/32" run_case floating_address 1+1 "${p2p[@]}"
    with_addresses eth0 "$floating/24" "$floating/24" run_case floating_address_of_a_network 1+1 "${p2p[@]}"
    with_addresses eth0 "$floating/32" "$floating/32" run_case floating_address_is_left_out 1+1 \
        --mca btl_velo_if_include "10.77.0.0/16,^$floating" "${p2p[@]}"
    with_addresses eth0 "$floating/32" "$floating/32" case_on_hosts 'floating_address_is_named 1+1' ends_and_says \
        "at $floating port [0-9]+, never answered .*Its address is one of this host, too \(eth0\).* \^$floating in btl_velo_if_include" 1+1 \
        --mca btl_velo_if_include "$floating" --mca btl_velo_peer_timeout 3 "${p2p[@]}"
    # A job that knows of no other host yet takes the address that the system has first.
    with_addresses eth0 "$floating/32" "$floating/32" run_case spawn_beside_a_floating_address 2to8 "$bindir/lifecycle" \
        --watchdog 40 --quick --only comm_spawn
    with_addresses eth0 10.80.0.1/24 10.80.0.2/24 case_on_hosts 'networks_of_one_interface_are_rails 1+1' both_carry 1+1 \
        "${two_rails[@]}" --mca btl_velo_if_include 10.77.0.0/24,10.80.0.0/24 "${p2p[@]}"
}

# Behind a firewall a process that runs is not said to have ended: lines name its address, its port and what a connection
# met. Connections that are admitted one way suffice, whichever of the ranks connects.
firewalls() {
    local refused='Connection refused\). It has ended before its first message, or a firewall rejects'
    local prohibited='No route to host\). No way leads there, or a firewall forbids it'
    local dropped='Connection timed out\). A firewall drops connections to that port'
    case_on_hosts 'firewall_that_drops 1+1' behind_firewalls drop "$dropped"
    case_on_hosts 'firewall_that_rejects 1+1' behind_firewalls reject "$prohibited"
    case_on_hosts 'firewall_that_refuses 1+1' behind_firewalls refuse "$refused"
    case_on_hosts 'firewall_that_admits_the_ports 2+2' admitted 2+2 42000-42007
    case_on_hosts 'firewall_that_admits_other_ports 1+1' admits_others
}

# firewall VERDICT [PORTS]
firewall() {
    local host
    for host in h1 h2; do "$hosts" firewall "$host" "$@" || why='no firewall could be made'; done
}

# behind_firewalls VERDICT PATTERN
behind_firewalls() {
    firewall "$1"
    ends_and_says "node [0-9]+, VPID 0, at 10\.77\.0\.[12] port [0-9]+, never answered \($2.* btl_velo_port_range=LOW-HIGH" \
        1+1 --mca btl_velo_peer_timeout 4 "${p2p[@]}"
    firewall off
    if [[ ! $why ]] && grep -q 'velo: rank .* has ended; the other ranks' "$log"; then
        why='a rank that runs is said to have ended'
    elif [[ ! $why ]] && ! grep -qE 'velo: rank [01] \(pid [0-9]+ on h[12]\) was never reached from here' "$log"; then
        why='no line says which rank was never reached'
    fi
}

# admitted LAYOUT PORTS: a job through a firewall, by ports that it admits.
admitted() {
    firewall drop "$2"
    run_job "$1" --mca btl_velo_port_range "$2" "${p2p[@]}" || why=${why:-it did not pass}
    firewall off
}

# The firewall holds at all.
admits_others() {
    firewall drop 43000-43007
    ends_and_says 'never answered \(Connection timed out' 1+1 --mca btl_velo_port_range 42000-42007 \
        --mca btl_velo_peer_timeout 4 "${p2p[@]}"
    firewall off
}
