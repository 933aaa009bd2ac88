# Shortages of memory, descriptors, room in /dev/shm and processors. Sourced by run.
# shellcheck shell=bash

# A /dev/shm of a few full pages, with files of another user that have the names of velo's memory.
within_full_dev_shm=(unshare --mount)
((UID == 0)) || within_full_dev_shm+=(--map-root-user)
# shellcheck disable=SC2016
within_full_dev_shm+=(bash -c '
    mount -t tmpfs -o size=16k,mode=1777 tmpfs /dev/shm || exit 90
    for name in velo velo-on-node velo-device; do : >"/dev/shm/$name" || exit 91; done
    chmod 000 /dev/shm/velo*
    chown 65534:65534 /dev/shm/velo* 2>/dev/null
    head -c 1M /dev/zero >/dev/shm/full 2>/dev/null
    exec "$@"' full_dev_shm)

within=("${within_full_dev_shm[@]}")
for layout in 0 1; do
    works "a_full_dev_shm_does_not_matter_with_${layout}_ranks_a_node" -np 2 --mca btl_velo_ranks_per_node $layout \
        "$program" --quick
done
within=()

for layout in 0 1; do
    works "no_locked_memory_with_${layout}_ranks_a_node" -np 2 --mca btl_velo_ranks_per_node $layout \
        bash -c "$(limited '-l 0' "$program" --quick)"
    works "few_descriptors_with_${layout}_ranks_a_node" -np 4 --oversubscribe --mca btl_velo_ranks_per_node $layout \
        bash -c "$(limited '-n 40' "$program" --quick)"
done
# Room for what is opened before velo, and not for velo's own.
descriptors=16
[[ $host_series == 4.* ]] || descriptors=15
refused no_descriptors_is_one_line "velo not used Too many open files ulimit -n" \
    -np 2 bash -c "$(limited "-n $descriptors" "$program" --quick)"
refused no_file_size_is_one_line "velo not used File too large ulimit -f" \
    -np 2 bash -c "$(limited '-f 0' "$program" --quick)"
refused no_room_for_a_ring_is_one_line "velo: rank ring posix_fallocate ulimit -f btl_velo_timeout" \
    -np 2 --mca btl_velo_timeout 1 bash -c "$(limited '-f 200' "$program" --quick)"

refused no_address_space_for_a_ring_is_one_line "velo: rank 1 btl_velo_ring_bytes ulimit -v mmap" \
    -np 2 --mca btl_velo_timeout 1 --mca btl_velo_ring_bytes 16777216 "$faultdir/end" short
# Some rings fit, some do not: the sender cannot make one, or the receiver cannot attach it.
refused too_little_address_space_for_six_ranks_is_one_line \
    "velo: rank ring (pid messages mmap: Cannot allocate memory btl_velo_timeout btl_velo_ring_bytes ulimit -v" \
    -np 6 --oversubscribe --mca btl_velo_timeout 1 --mca btl_velo_ring_bytes 16777216 "$faultdir/end" scarce
refused a_rank_that_hides_its_memory_is_named "velo: rank 0 rank 1 /proc/PID/fd Permission denied dumpable" \
    -np 2 --mca btl_velo_timeout 1 --mca btl_velo_single_copy none "$faultdir/end" hidden
refused a_rank_that_was_never_to_be_seen_is_named \
    "velo: rank 0 cannot reach rank 1 /proc/PID/fd Permission denied dumpable" \
    -np 2 --mca btl_velo_single_copy none "$faultdir/end" secret
works little_address_space_is_enough -np 2 bash -c "$(limited '-v 400000' "$program" --quick)"

# Eight ranks on two processors, whatever this machine has.
cpus=0,1
(($(nproc) > 1)) || cpus=0
for layout in 0 1 2; do
    seconds_max=120 OMPI_MCA_mpi_yield_when_idle=1 works "eight_ranks_on_two_processors_with_${layout}_a_node" -np 8 \
        --oversubscribe --bind-to none --mca btl_velo_ranks_per_node $layout \
        taskset -c $cpus "$bindir/collectives" --quick
done
seconds_max=120 OMPI_MCA_mpi_yield_when_idle=0 works eight_ranks_on_two_processors_that_do_not_yield -np 8 \
    --oversubscribe --bind-to none taskset -c $cpus "$program" --quick
