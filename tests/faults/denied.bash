# Direct copies that are denied, and devices that fail. Sourced by run.
# shellcheck shell=bash

for layout in 0 1; do
    works "truncating_receives_overrun_nothing_with_${layout}_ranks_a_node" -np 2 \
        --mca btl_velo_ranks_per_node $layout "$bindir/requests" \
        --only truncation_rendezvous_exact --only truncation_large_exact
done
works counters_of_the_on_node_path_move -np 2 "$bindir/counters" on_node
works counters_of_the_device_move "${two[@]}" "$bindir/counters" device
works copied_chunks_on_the_node -np 2 --mca btl_velo_single_copy none "$bindir/sizes" --quick
works copied_chunks_between_nodes "${two[@]}" --mca btl_velo_single_copy none "$bindir/sizes" --quick
works a_full_registration_table "${two[@]}" --mca btl_velo_registrations 16 "$bindir/many" --quick
works device_denies_direct_copies_now_and_then "${two[@]}" --mca btl_velo_faults seed=3,rma_denied=0.01 \
    "$bindir/sizes" --quick
works delayed_packets_stalls_and_late_transfers "${two[@]}" \
    --mca btl_velo_faults seed=1,delay=0.01:200us,stall=0.001:1ms,rma_late=0.05:1ms "$bindir/sizes" --quick
works smallest_mailbox "${two[@]}" --mca btl_velo_slots 4 "$bindir/many" --quick
works no_flow_control "${two[@]}" --mca btl_velo_flow_control none "$bindir/many" --quick
works odd_mailboxes -np 4 --mca btl_velo_ranks_per_node 1 --mca btl_velo_mailbox_bytes 6208 "$bindir/collectives" --quick

# says_denied LINES MPIRUN_ARGUMENTS...: data is right, and LINES lines tell of denied copies and name the remedy.
says_denied() {
    local line='velo: rank [0-9]*: the kernel does not permit direct copies .*btl_velo_single_copy=none'
    passes "${@:2}" && (($(grep -c "$line" "$log") == $1))
}

# denied RANKS WHEN ERRNO LAYOUT [NP]: one rank of each node that is denied says so.
denied() {
    local name="direct_copies_denied_to_$1_at_the_$2_by_$3_with_$4_ranks_a_node" lines=1 np=${5:-2}
    ((np > 2)) && name+="_on_$np"
    [[ $1 == all && $4 == 1 ]] && lines=$np
    try "$name" says_denied "$lines" -np "$np" --mca btl_velo_ranks_per_node "$4" "$faultdir/denied" "$1" "$2" "$3"
}
for layout in 0 1; do
    denied 1 start EPERM $layout
    denied 0 middle EPERM $layout
    denied 0 middle ENOSYS $layout
    denied all start ENOSYS $layout
    denied all middle EPERM $layout
done
denied all start EPERM 0 4
denied all middle EPERM 0 4

# Memory that is no other process's to touch is moved by its owners, under both ways of matching.
matched_by_velo() {
    local base=("${base[@]/#ob1/cm}" --mca mtl velo)
    works "$@"
}
for how in memfd filter; do
    for layout in 0 1; do
        works "memory_that_the_kernel_keeps_from_others_by_${how}_with_${layout}_ranks_a_node" -np 2 \
            --mca btl_velo_ranks_per_node $layout "$faultdir/secret" $how
    done
    matched_by_velo "memory_that_the_kernel_keeps_from_others_by_${how}_under_the_mtl" -np 2 "$faultdir/secret" $how
done

# A datatype that Open MPI cannot pack: by a return code, or by bytes that are missing.
cat >"$work/pack.c" <<'EOF'
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
int32_t opal_convertor_pack(void *convertor, void *iov, uint32_t *count, size_t *bytes);
int32_t opal_convertor_pack(void *convertor, void *iov, uint32_t *count, size_t *bytes)
{
    (void) convertor, (void) iov, (void) count;
    if (strcmp(getenv("PACK"), "short") != 0)
        return -1;
    *bytes = 0;
    return 1;
}
EOF
${CC:-cc} -shared -fPIC -o "$work/pack.so" "$work/pack.c" || failed=$((failed + 1))
for how in fails short; do
    for bytes in small large; do
        refused "a_${bytes}_message_whose_packing_${how/short/is_short}_ends_the_job" \
            "velo: rank 0: opal_convertor_pack packed" \
            -np 2 -x LD_PRELOAD="$work/pack.so" -x PACK=$how "$faultdir/gaps" $bytes
    done
done

# Operations that cannot be carried out are told of, with rank and cause, and the job ends.
for layout in 0 1; do
    for what in get put; do
        refused "a_${what}_of_protected_memory_is_one_line_with_${layout}_ranks_a_node" \
            "velo: rank 1 $what of 8 bytes rank 0 failed unmapped or protected" \
            -np 2 --mca btl_velo_ranks_per_node $layout "$faultdir/onesided" $what
    done
done
refused an_atomic_that_the_device_fails_is_one_line "velo: rank an atomic of 8 bytes to rank failed: failure of the device" \
    "${two[@]}" --mca btl_velo_faults rma_fail=1 "$faultdir/onesided" add
# Operations that can go another way do, and are right.
works denied_atomics_go_in_messages "${two[@]}" --mca btl_velo_faults seed=3,rma_denied=0.5 "$faultdir/onesided" add
works faults_of_the_device_table_are_asked_about_again "${two[@]}" --mca btl_velo_faults atu_fault=1 \
    "$faultdir/onesided" move
for faults in rma_fail=1 port_down=0:0 port_down=0:20; do
    works "a_device_with_${faults//[=:]/_}_loses_nothing" "${two[@]}" --mca btl_velo_faults $faults "$bindir/sizes" \
        --quick
    works "one_sided_a_device_with_${faults//[=:]/_}_loses_nothing" "${two[@]}" --mca btl_velo_faults $faults \
        "$faultdir/onesided" move
done

# The device of a network, by loopback, where it was built.
if [[ -e $plugindir/velo_ofi.so ]]; then
    network=("${two[@]}" --mca btl_velo_device ofi --mca btl_velo_if_include lo)
    works delayed_packets_and_stalls_over_a_network "${network[@]}" \
        --mca btl_velo_faults seed=1,delay=0.01:200us,stall=0.001:1ms "$bindir/sizes" --quick
    goes_on_in_messages() { passes "$@" && has_line "device failed a transfer messages"; }
    for program_words in "$bindir/sizes --quick" "$faultdir/onesided move"; do
        # shellcheck disable=SC2086
        try "$(basename "${program_words% *}")_over_a_network_that_fails_transfers_loses_nothing" goes_on_in_messages \
            "${network[@]}" --mca btl_velo_faults seed=1,rma_fail=0.3 $program_words
    done
    refused a_fault_that_a_network_has_not_is_named_with_those_that_it_has \
        "btl_velo_faults=seed=1,die_after=5 'die_after=5' no such fault delay=P:T, stall=P:T, rma_fail=P," \
        "${network[@]}" --mca btl_velo_faults seed=1,die_after=5 "$program"
fi
