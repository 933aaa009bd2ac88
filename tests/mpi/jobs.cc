// Processes of other jobs: spawned again and again, met through a port, met through a socket. Resources that departed
// processes held have to come back while this job goes on. Started with `--child` it is the spawned side; the
// script `run` starts it with `--server FILE` and `--client FILE` as two jobs, which meet through the port
// named in FILE.
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <chrono>
#include <climits>
#include <fstream>
#include <thread>

#include "intercomm.h"
#include "mpi_test.h"
#include "spawned.h"

namespace {

using mpi_test::Check;
using mpi_test::exchange_with_remote;
using mpi_test::filled;
using mpi_test::GuardedBuffer;
using mpi_test::kChildren;
using mpi_test::own_path;
using mpi_test::Suite;

constexpr int kTag = 5;

/// Traffic of two jobs that have met.
void meet(Check& check, MPI_Comm inter, std::uint64_t side) {
    exchange_with_remote(check, inter, side, {0, 57, 2000, 5000, 300000});
}

/// Resources of a process that departed peers may have left behind.
struct Held {
    long descriptors = 0;
    long mappings = 0;       ///< of velo's segments
    long segment_bytes = 0;  ///< of this process's own segments
};

Held held() {
    Held held;
    if (DIR* directory = opendir("/proc/self/fd")) {
        while (const dirent* entry = readdir(directory)) {
            ++held.descriptors;
            struct stat info = {};
            const std::string path = std::string("/proc/self/fd/") + entry->d_name;
            char target[PATH_MAX] = "";
            if (readlink(path.c_str(), target, sizeof target - 1) > 0 &&
                std::strstr(target, "velo-on-node") != nullptr && stat(path.c_str(), &info) == 0) {
                held.segment_bytes += info.st_blocks * 512;
            }
        }
        closedir(directory);
    }
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
        held.mappings += line.find("velo-") != std::string::npos;
    return held;
}

/// Makes progress for so long, and so often, as on a busy machine time alone means little.
void progress_for(std::chrono::milliseconds time, int calls) {
    const auto end = std::chrono::steady_clock::now() + time;
    for (int i = 0; i < calls || std::chrono::steady_clock::now() < end; ++i) {
        int flag = 0;
        MPI_Iprobe(MPI_ANY_SOURCE, kTag, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    }
}

/// A parent's farewell: the children's verdict and process numbers, and their end.
void part(Check& check, MPI_Comm& children, int count) {
    std::vector<int> pids(static_cast<std::size_t>(count));
    int failures = -1;
    MPI_Bcast(&failures, 1, MPI_INT, 0, children);
    check.equal(failures, 0, "failures in the children");
    MPI_Allgather(&failures, 0, MPI_INT, pids.data(), 1, MPI_INT, children);
    MPI_Comm_disconnect(&children);
    for (const int pid : pids) {
        while (kill(pid, 0) == 0) progress_for(std::chrono::milliseconds(1), 1);
    }
    progress_for(std::chrono::milliseconds(50), 1000);
}

/// Returns when the children have ended, and this process had the time to notice it.
void spawn_once(Check& check) {
    char argument[] = "--child";
    char* arguments[] = {argument, nullptr};
    std::vector<int> errors(kChildren, MPI_SUCCESS);
    MPI_Comm children;
    MPI_Comm_spawn(own_path().c_str(), arguments, kChildren, MPI_INFO_NULL, 0, check.comm, &children,
                   errors.data());
    meet(check, children, 0);
    part(check, children, kChildren);
}

/// The first round sets things up once; after it a round leaves nothing behind.
void spawn_leaves_nothing(Check& check) {
    const int rounds = check.quick || check.size > 2 ? 4 : 20;
    spawn_once(check);
    const Held before = held();
    for (int round = 1; round < rounds; ++round) spawn_once(check);
    const Held after = held();
    check.equal(after.descriptors, before.descriptors, "descriptors");
    check.equal(after.mappings, before.mappings, "mappings of velo's segments");
    check.equal(after.segment_bytes, before.segment_bytes, "bytes of own segments");
}

/// Children of several spawns live at the same time, and each talks to all of its parents.
void several_spawns_alive(Check& check) {
    constexpr int kJobs = 3;
    char argument[] = "--child";
    char* arguments[] = {argument, nullptr};
    std::vector<MPI_Comm> children(kJobs);
    for (MPI_Comm& inter : children) {
        MPI_Comm_spawn(own_path().c_str(), arguments, 1, MPI_INFO_NULL, 0, check.comm, &inter,
                       MPI_ERRCODES_IGNORE);
    }
    for (MPI_Comm& inter : children) {
        meet(check, inter, 0);
        part(check, inter, 1);
    }
}

int child_main(MPI_Comm parents) {
    Check check(MPI_COMM_WORLD, {});
    meet(check, parents, 1);
    int mine = static_cast<int>(check.failure_count());
    int total = 0;
    MPI_Allreduce(&mine, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (mine != 0) std::fprintf(stderr, "spawned child: %s\n", check.texts().c_str());
    MPI_Bcast(&total, 1, MPI_INT, check.rank == 0 ? MPI_ROOT : MPI_PROC_NULL, parents);
    const int pid = getpid();
    MPI_Allgather(&pid, 1, MPI_INT, nullptr, 0, MPI_INT, parents);
    MPI_Comm_disconnect(&parents);
    MPI_Finalize();
    return total == 0 ? 0 : 1;
}

/// The two halves of a job meet once more, through a port.
void connect_within_a_job(Check& check) {
    const bool accepts = check.rank < (check.size + 1) / 2;
    char port[MPI_MAX_PORT_NAME] = "";
    if (check.rank == 0) MPI_Open_port(MPI_INFO_NULL, port);
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, check.comm);
    MPI_Comm half;
    MPI_Comm_split(check.comm, accepts ? 0 : 1, check.rank, &half);
    for (int round = 0; round < 3; ++round) {
        MPI_Comm inter;
        if (accepts) {
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
        } else {
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
        }
        meet(check, inter, accepts ? 0 : 1);
        MPI_Comm_disconnect(&inter);
    }
    MPI_Comm_free(&half);
    if (check.rank == 0) MPI_Close_port(port);
}

/// A connected socket between rank 0 and the last one; -1 elsewhere.
int socket_to_partner(Check& check) {
    sockaddr_in address = {};
    socklen_t length = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (check.rank == 0) {
        const bool listens = bind(fd, generic, sizeof address) == 0 && listen(fd, 1) == 0 &&
                             getsockname(fd, generic, &length) == 0;
        check.equal(listens, 1, "listens");
        MPI_Send(&address, sizeof address, MPI_BYTE, check.size - 1, kTag, check.comm);
        const int accepted = accept(fd, nullptr, nullptr);
        close(fd);
        return accepted;
    }
    MPI_Recv(&address, sizeof address, MPI_BYTE, 0, kTag, check.comm, MPI_STATUS_IGNORE);
    check.equal(connect(fd, generic, sizeof address), 0, "connects");
    return fd;
}

void join_over_a_socket(Check& check) {
    if (check.rank != 0 && check.rank != check.size - 1) return;
    const int fd = socket_to_partner(check);
    MPI_Comm inter = MPI_COMM_NULL;
    check.equal(MPI_Comm_join(fd, &inter), MPI_SUCCESS, "join");
    meet(check, inter, check.rank == 0 ? 0 : 1);
    MPI_Comm_disconnect(&inter);
    close(fd);
}

/// The first word of a port's file is the port: it is renamed into place, so that no reader finds half of it.
std::string read_port(const std::string& file) {
    for (;;) {
        std::string port;
        if (std::ifstream in(file); std::getline(in, port)) return port;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

/// One side of two jobs that meet, disconnect, and meet again.
void meet_another_job(Check& check, const std::string& file, bool serves) {
    char port[MPI_MAX_PORT_NAME] = "";
    if (check.rank == 0 && serves) {
        MPI_Open_port(MPI_INFO_NULL, port);
        std::ofstream(file + ".new") << port << '\n';
        check.equal(std::rename((file + ".new").c_str(), file.c_str()), 0, "rename");
    } else if (check.rank == 0) {
        read_port(file).copy(port, sizeof port - 1);
    }
    MPI_Bcast(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, check.comm);
    for (int round = 0; round < 3; ++round) {
        MPI_Comm inter;
        if (serves) {
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, check.comm, &inter);
        } else {
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, check.comm, &inter);
        }
        meet(check, inter, serves ? 0 : 1);
        MPI_Comm_disconnect(&inter);
    }
    if (check.rank == 0 && serves) MPI_Close_port(port);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Comm parents = mpi_test::init_spawned(argc, argv);
    if (parents != MPI_COMM_NULL) return child_main(parents);
    std::string role;
    std::string file;
    if (argc > 2 && (std::strcmp(argv[1], "--server") == 0 || std::strcmp(argv[1], "--client") == 0)) {
        role = argv[1];
        file = argv[2];
        argv[2] = argv[0];
        argv += 2;
        argc -= 2;
    }
    int result = 0;
    {
        Suite suite(argc, argv);
        if (role.empty()) {
            suite.check("connect_within_a_job", connect_within_a_job);
            suite.check("join_over_a_socket", join_over_a_socket);
            suite.check("several_spawns_alive", several_spawns_alive);
            suite.check("spawn_leaves_nothing", spawn_leaves_nothing);
        } else {
            suite.check("meet_another_job",
                        [&](Check& check) { meet_another_job(check, file, role == "--server"); });
        }
        result = suite.finish();
    }
    MPI_Finalize();
    return result;
}
