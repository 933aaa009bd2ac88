/* Traffic with checked contents for some seconds, for a job to which something happens meanwhile.
 *
 *   traffic SECONDS
 *
 * Each round, each rank passes messages of every size around the ring, and exchanges one with every other
 * rank at once; rank 0 then says whether another round follows. Rank 0 prints "started" when all ranks have
 * spoken to each other, a line each second, and at the end PASS or FAIL with the bytes received, the errors
 * and the longest round.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Below, around and above the limits of eager messages, and one that is moved in parts. */
static const int kRingBytes[] = {8, 1000, 4096, 40000, 300000, 2000000};
static const int kAllBytes[] = {64, 2000, 70000};
enum {
    kRingSizes = sizeof kRingBytes / sizeof *kRingBytes,
    kAllSizes = sizeof kAllBytes / sizeof *kAllBytes,
    kBytesMax = 2000000,
    kAllBytesMax = 70000,
    kTag = 1,
};

static int rank_, size_;
static uint64_t bytes_, errors_;

/* The content of a message depends on its source, destination, size and round in every byte of its 8-byte
 * words. */
static uint64_t word(int from, int to, int bytes, uint64_t round, int index) {
    uint64_t x = (uint64_t)from << 48 ^ (uint64_t)to << 32 ^ (uint64_t)bytes ^ round * 0x9e3779b97f4a7c15;
    x = (x + (uint64_t)index) * 0xbf58476d1ce4e5b9;
    return x ^ x >> 29;
}

static void fill(unsigned char* data, int from, int to, int bytes, uint64_t round) {
    for (int i = 0; i < bytes; ++i)
        data[i] = (unsigned char)(word(from, to, bytes, round, i / 8) >> i % 8 * 8);
}

static void check(const unsigned char* data, int from, int bytes, uint64_t round, const MPI_Status* status) {
    int count = 0;
    MPI_Get_count(status, MPI_BYTE, &count);
    bytes_ += (uint64_t)count;
    int at = 0;
    while (at < bytes && data[at] == (unsigned char)(word(from, rank_, bytes, round, at / 8) >> at % 8 * 8))
        ++at;
    if (count == bytes && at == bytes) return;
    if (++errors_ <= 3) {
        printf("FAIL rank %d, round %llu, from rank %d: %d of %d bytes, the first wrong one at %d\n", rank_,
               (unsigned long long)round, from, count, bytes, at);
    }
}

static void pass_around_the_ring(unsigned char* out, unsigned char* in, uint64_t round) {
    const int next = (rank_ + 1) % size_;
    const int previous = (rank_ + size_ - 1) % size_;
    for (int i = 0; i < kRingSizes; ++i) {
        const int bytes = kRingBytes[i];
        MPI_Status status;
        fill(out, rank_, next, bytes, round);
        MPI_Sendrecv(out, bytes, MPI_BYTE, next, kTag, in, bytes, MPI_BYTE, previous, kTag, MPI_COMM_WORLD,
                     &status);
        check(in, previous, bytes, round, &status);
    }
}

static void exchange_with_all(unsigned char* out, unsigned char* in, MPI_Request* requests,
                              MPI_Status* statuses, uint64_t round) {
    for (int i = 0; i < kAllSizes; ++i) {
        const int bytes = kAllBytes[i];
        for (int peer = 0; peer < size_; ++peer) {
            unsigned char* to = out + (size_t)peer * kAllBytesMax;
            fill(to, rank_, peer, bytes, round);
            MPI_Irecv(in + (size_t)peer * kAllBytesMax, bytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD,
                      &requests[peer]);
            MPI_Isend(to, bytes, MPI_BYTE, peer, kTag, MPI_COMM_WORLD, &requests[size_ + peer]);
        }
        MPI_Waitall(2 * size_, requests, statuses);
        for (int peer = 0; peer < size_; ++peer)
            check(in + (size_t)peer * kAllBytesMax, peer, bytes, round, &statuses[peer]);
    }
}

int main(int argc, char** argv) {
    const double seconds = argc == 2 ? atof(argv[1]) : 0;
    if (seconds <= 0) {
        fprintf(stderr, "usage: traffic SECONDS\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    const size_t bytes_max =
        (size_t)size_ * kAllBytesMax > kBytesMax ? (size_t)size_ * kAllBytesMax : kBytesMax;
    unsigned char* out = malloc(bytes_max);
    unsigned char* in = malloc(bytes_max);
    MPI_Request* requests = malloc(2 * (size_t)size_ * sizeof *requests);
    MPI_Status* statuses = malloc(2 * (size_t)size_ * sizeof *statuses);
    if (!out || !in || !requests || !statuses) MPI_Abort(MPI_COMM_WORLD, 1);

    double start_s = 0, told_s = 0, before_s = 0, longest_s = 0;
    int goes_on = 1;
    for (uint64_t round = 0; goes_on; ++round) {
        pass_around_the_ring(out, in, round);
        exchange_with_all(out, in, requests, statuses, round);
        const double now_s = MPI_Wtime();
        if (round == 0) {
            start_s = told_s = before_s = now_s;
            if (rank_ == 0) printf("started\n");
        }
        if (now_s - before_s > longest_s) longest_s = now_s - before_s;
        before_s = now_s;
        if (rank_ == 0 && now_s >= told_s + 1) {
            printf("%.1f s: round %llu, %llu bytes\n", now_s - start_s, (unsigned long long)round,
                   (unsigned long long)bytes_);
            told_s = now_s;
        }
        goes_on = now_s < start_s + seconds;
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }

    const uint64_t mine[2] = {bytes_, errors_};
    uint64_t all[2] = {0, 0};
    MPI_Reduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank_ == 0) {
        printf("%s traffic: %llu bytes, %llu errors, longest round %.2f s\n", all[1] ? "FAIL" : "PASS",
               (unsigned long long)all[0], (unsigned long long)all[1], longest_s);
    }
    free(statuses);
    free(requests);
    free(in);
    free(out);
    MPI_Finalize();
    return errors_ != 0;
}
