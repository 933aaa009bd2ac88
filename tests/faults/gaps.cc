// Rank 0 sends rank 1 a message with gaps, small (in one piece) or large (in several).
//
//   gaps small | large
#include <mpi.h>

#include <cstdio>
#include <string>
#include <vector>

int main(int argc, char** argv) {
    const std::string size = argc == 2 ? argv[1] : "";
    if (size != "small" && size != "large") {
        std::fprintf(stderr, "usage: gaps small|large\n");
        return 2;
    }
    const int blocks = size == "small" ? 100 : 1 << 20;
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Datatype gaps = MPI_DATATYPE_NULL;
    MPI_Type_vector(blocks, 1, 2, MPI_CHAR, &gaps);
    MPI_Type_commit(&gaps);
    std::vector<char> data(2 * static_cast<std::size_t>(blocks), static_cast<char>(rank + 1));
    if (rank == 0) {
        MPI_Send(data.data(), 1, gaps, 1, 1, MPI_COMM_WORLD);
    } else {
        MPI_Recv(data.data(), 1, gaps, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        std::printf("%s\n", data[0] == 1 && data[1] == 2 ? "PASS" : "FAIL");
    }
    MPI_Type_free(&gaps);
    MPI_Finalize();
    return 0;
}
