# Several rails, those that fail, and slow ones. Sourced by run.
# shellcheck shell=bash

rails() { printf '%s\n' "${two[@]}" --mca btl_velo_ports "$1" --mca btl_velo_rails "$2"; }

refused unknown_rule_of_rails_is_named_with_the_rules "btl_velo_rails=bogus static, round_robin, local_dynamic, hybrid" \
    "${two[@]}" --mca btl_velo_rails bogus "$program"
refused too_many_ports_are_named_with_the_range "btl_velo_ports=9 1 8" "${two[@]}" --mca btl_velo_ports 9 "$program"
refused static_rails_for_too_many_nodes_name_both_numbers "static 2 nodes 2 rails 4; btl_velo_ports=4" \
    -np 4 --mca btl_velo_ranks_per_node 1 --mca btl_velo_ports 2 --mca btl_velo_rails static "$program"

says_and_goes_on() { passes "${@:2}" && has_line "$1"; }
for rule in static hybrid; do
    mapfile -t on_rails < <(rails 2 $rule)
    for faults in port_down=1:0 port_down=1:20; do
        try "$rule,_one_of_two_rails_with_${faults//[=:]/_}_loses_nothing" says_and_goes_on "rail 1 fails, tried again" \
            "${on_rails[@]}" --mca btl_velo_faults $faults "$bindir/sizes" --quick
    done
done
mapfile -t on_rails < <(rails 4 hybrid,retry=1)
works rails_that_come_and_go_lose_nothing "${on_rails[@]}" \
    --mca btl_velo_faults seed=1,port_flap=0.02:1ms "$bindir/sizes" --quick
works one_sided_rails_that_come_and_go_lose_nothing "${on_rails[@]}" \
    --mca btl_velo_faults seed=1,port_flap=0.02:1ms "$faultdir/onesided" move
works atomics_go_by_other_rails_than_a_dead_one "${on_rails[@]}" --mca btl_velo_faults port_down=1:0 "$faultdir/onesided" add
works slow_links_and_a_slow_receiver "${on_rails[@]}" \
    --mca btl_velo_emulate link=2000,sink=1000,buffer=16k "$bindir/sizes" --quick
