# Parameters that contradict each other or cannot be: the line names value, source and remedy. Sourced by run.
# shellcheck shell=bash

two=(-np 2 --mca btl_velo_ranks_per_node 1)
refused unknown_flow_control_is_named_with_the_modes "btl_velo_flow_control=bogus none static command" \
    "${two[@]}" --mca btl_velo_flow_control bogus "$program"
refused mailbox_too_small_names_the_smallest "mailbox of 3 slots btl_velo_slots=4 btl_velo_mailbox_bytes=256" \
    "${two[@]}" --mca btl_velo_slots 3 "$program"
refused mailbox_sized_twice_names_both_and_their_sources \
    "btl_velo_slots=10 640 bytes btl_velo_mailbox_bytes=639 environment only one of them" \
    "${two[@]}" --mca btl_velo_mailbox_bytes 639 --mca btl_velo_slots 10 "$program"
works a_mailbox_that_is_sized_twice_alike "${two[@]}" --mca btl_velo_mailbox_bytes 640 --mca btl_velo_slots 10 \
    "$program" --quick
refused a_mailbox_of_less_than_a_slot "btl_velo_mailbox_bytes=63 64 command line" \
    "${two[@]}" --mca btl_velo_mailbox_bytes 63 "$program"
refused slots_of_the_whole_mailbox_are_slots_or_bytes_now "btl_velo_mailbox_slots any more btl_velo_slots btl_velo_mailbox_bytes" \
    "${two[@]}" --mca btl_velo_mailbox_slots 64 "$program"
refused value_out_of_range_names_the_range "btl_velo_chunk=5 4096 8388608" \
    "${two[@]}" --mca btl_velo_chunk 5 "$program"
refused unknown_fault_is_named_with_the_faults "btl_velo_faults=foo=3 seed delay" \
    "${two[@]}" --mca btl_velo_faults foo=3 "$program"
refused unknown_single_copy_is_named "btl_velo_single_copy=xpmem cma none" \
    "${two[@]}" --mca btl_velo_single_copy xpmem "$program"
refused ring_smaller_than_its_messages_is_refused "btl_velo_ring_bytes=16384 btl_velo_shm_max_send_size" \
    "${two[@]}" --mca btl_velo_ring_bytes 16384 "$program"
# Each with what the other rank has: the default, but for ranks_per_node. mpirun of 5.0.7 crashes where a job has two
# programs, so rank 1 sets its own.
# shellcheck disable=SC2016
differing=(-np 2 -x OMPI_MCA_btl_velo_ranks_per_node=1
    bash -c '((OMPI_COMM_WORLD_RANK == 0)) || export "OMPI_MCA_btl_velo_$1"; exec "$0"' "$program")
refused ranks_that_differ_in_flow_control_name_both "btl_velo_flow_control dynamic none rank" \
    "${differing[@]}" flow_control=none
eager_limit=2104 # 2 KiB and ob1's longest header
[[ $host_series == 4.* ]] || eager_limit=2128
for pair in "slots 5000 0" "mailbox_bytes 1048576 0" "ranks_per_node 2 1" "ranks_per_node 0 1" "max_send_size 4000 $eager_limit"; do
    read -r name value other <<<"$pair"
    refused "ranks_that_differ_in_${name}_name_both_$value" "rank btl_velo_$name is $value $other" \
        "${differing[@]}" "$name=$value"
done

# Another series of Open MPI is known by its version string alone.
other_version=5.0.7
[[ $host_series == 4.* ]] || other_version=4.1.4
echo "const char opal_version_string[] = \"$other_version\";" >"$work/series.c"
if ${CC:-cc} -shared -fPIC -o "$work/series.so" "$work/series.c"; then
    refused another_series_of_open_mpi_is_refused_in_one_line "$host_series $other_version --with-ompi" \
        -np 2 -x LD_PRELOAD="$work/series.so" "$program"
else
    verdict another_series_of_open_mpi_is_refused_in_one_line 'the library of another version was not compiled'
fi

for text in flow_control single_copy rails; do
    refused "a_${text}_that_is_set_to_nothing_is_refused" "btl_velo_$text= command line" \
        "${two[@]}" --mca "btl_velo_$text" "" "$program"
done
works faults_that_are_set_to_nothing_are_none "${two[@]}" --mca btl_velo_faults "" "$program" --quick
for gone in "rounding up velo_sim" "stealing silent velo_sim" "link 1000 btl_velo_emulate=link=N" "if_exclude lo btl_velo_if_include=^"; do
    read -r name value instead <<<"$gone"
    refused "${name}_of_earlier_versions_names_what_is_so_now" "btl_velo_$name any more $instead command line" \
        "${two[@]}" --mca "btl_velo_$name" "$value" "$program"
done
refused an_unknown_setting_of_a_list_is_named_with_the_others "btl_velo_emulate 'lnk=5' link=N buffer=N sink=N command line" \
    "${two[@]}" --mca btl_velo_emulate lnk=5 "$program"
refused a_setting_of_a_list_that_is_no_number_is_named "btl_velo_rails 'wait=x' not a number from 1 command line" \
    "${two[@]}" --mca btl_velo_rails dynamic,wait=x "$program"
# Under the MTL the job ends with the first rank that cannot go on, and not before the value is named.
under_mtl() {
    local mtl=yes
    local -a base=()
    use_btls velo,self
    "$@"
}
under_mtl refused a_wrong_parameter_is_named_where_velo_matches "btl_velo_rails=bogus is not one of command line" \
    "${two[@]}" --mca btl_velo_rails bogus "$program"
# Open MPI asks the plugins in each job.
hears_nothing() {
    local -a base=(--mca mca_base_component_path "$(host_path "$plugindir")" --mca btl "$host_sm,self")
    passes "$@" && ! grep -q 'velo:' "$log"
}
try a_job_without_velo_hears_nothing_of_it hears_nothing "${two[@]}" "$program" --quick
# Also what Open MPI's own reading would take, or cut: suffixes, signs, other bases, 2^32 + 58 and 2^64 + 58.
for text in nonsense abc 1e3 58k 58kk -1 +58 0x3a 072 5.8 65536 4294967296 4294967354 18446744073709551674 ""; do
    refused "'$text'_is_no_number_and_is_named_as_written" \
        "btl_velo_slots=$text not a number from 0 to 65535 command line" \
        "${two[@]}" --mca btl_velo_slots "$text" "$program"
done
for pair in stats=2 ports=9 stall_report=1k mailbox_bytes=2g ring_bytes=16mb ring_bytes=17m; do
    refused "${pair}_names_its_range" "btl_velo_$pair not a number from command line" \
        "${two[@]}" --mca "btl_velo_${pair%=*}" "${pair#*=}" "$program"
done
for text in 4 65535; do
    works "${text}_slots_are_a_number" "${two[@]}" --mca btl_velo_slots "$text" "$program" --quick
done
works a_number_may_have_a_suffix "${two[@]}" --mca btl_velo_chunk 128k "$program" --quick
echo 'btl_velo_ranks_per_node = one' >"$work/mca-params.conf"
refused a_number_in_a_file_that_is_none_names_the_file "btl_velo_ranks_per_node=one number $work/mca-params.conf" \
    -np 2 -x OMPI_MCA_mca_base_param_files="$work/mca-params.conf" "$program"
for text in 4x -1 0x1000 20000000000g; do
    refused "a_size_of_${text}_is_none_and_is_named_as_written" "btl_velo_max_send_size=$text not a number command line" \
        "${two[@]}" --mca btl_velo_max_send_size "$text" "$program"
done
for parameter in get_alignment put_alignment; do
    for value in 1 8 4096; do
        refused "${parameter}_$value" "btl_velo_$parameter=$value leave 0 command line" \
            -np 2 --mca "btl_velo_$parameter" "$value" "$program"
    done
done
for parameter in get_limit put_limit; do
    for value in 1 7; do
        refused "${parameter}_$value" "btl_velo_$parameter=$value 4096 command line" \
            -np 2 --mca "btl_velo_$parameter" "$value" "$program"
    done
    works "${parameter}_4096" -np 2 --mca "btl_velo_$parameter" 4096 "$program" --quick
done
refused a_ring_that_is_no_power_of_two_names_the_nearest "btl_velo_ring_bytes=100000 65536 131072" \
    -np 2 --mca btl_velo_ring_bytes 100000 "$program"
refused messages_too_long_for_the_device_name_what_to_lower "4294967295 16777216 btl_velo_max_send_size command line" \
    "${two[@]}" --mca btl_velo_max_send_size 4294967296 "$program"
refused messages_too_long_for_a_ring_name_what_to_change "btl_velo_ring_bytes=131072 btl_velo_shm_max_send_size" \
    -np 2 --mca btl_velo_ring_bytes 131072 --mca btl_velo_shm_max_send_size 1000000 "$program"
refused a_first_part_too_long_for_a_ring_is_named "btl_velo_ring_bytes=131072 btl_velo_shm_rndv_eager_limit: command line" \
    -np 2 --mca btl_velo_ring_bytes 131072 --mca btl_velo_shm_rndv_eager_limit 1000000 "$program"
echo 'btl_velo_chunk = 0' >"$work/mca-params.conf"
refused a_value_from_a_file_names_the_file "btl_velo_chunk=0 4096 8388608 $work/mca-params.conf" \
    -np 2 -x OMPI_MCA_mca_base_param_files="$work/mca-params.conf" "$program"
