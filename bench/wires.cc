/// Measures what lies below any MPI between two hosts, as rows of measuring.h, in a job of two ranks.
///
///   mpirun -np 2 … wires socket LABEL INTERFACE --sizes 8,65536 [--offsets 0,16,64] --measures latency
///   mpirun -np 2 … wires fabric LABEL INTERFACE --provider net --sizes …
///
/// socket: one TCP connection, not blocking, read straight into the receiver's memory; no MPI comes nearer to the
/// network. fabric: fi_send and fi_recv of one libfabric provider, receives posted ahead of their messages; what an MPI
/// over that provider takes longer is its own.
///
///   latency    half a ping-pong, us
///   bandwidth  windows of 64 messages in one direction, each answered by one byte, MB/s
///   rate       as bandwidth, in messages a second
/// Medians over batches. Offsets, and the time of a cache line before each figure and after the last, are as in
/// bench/pairs.cc. Contents are checked once for each figure.
#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/tcp.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>

#include "arguments.h"
#include "ranks.h"

namespace {

using measuring::seconds;

constexpr int kTag = 1;
constexpr size_t kWindow = 64;
constexpr size_t kBatches = 31;
constexpr size_t kBatchesMin = 7;
constexpr double kBatchSeconds = 0.002;
constexpr double kMeasureSeconds = 0.3;
constexpr size_t kPageBytes = 4096;

[[noreturn]] void fail(const char* what, const char* why) {
    std::fprintf(stderr, "wires: %s: %s\n", what, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
    std::abort();
}

in_addr address_of(const std::string& interface) {
    ifaddrs* all = nullptr;
    in_addr found = {};
    if (getifaddrs(&all) != 0) fail("getifaddrs", std::strerror(errno));
    for (const ifaddrs* at = all; at != nullptr; at = at->ifa_next) {
        if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET || interface != at->ifa_name) continue;
        found = reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr;
    }
    freeifaddrs(all);
    if (found.s_addr == 0) fail(interface.c_str(), "the interface has no IPv4 address");
    return found;
}

/// One way to the other rank. Messages keep their order, and each goes into the receive that was posted first.
class Wire {
  public:
    virtual ~Wire() = default;
    virtual void post(char* to, size_t bytes) = 0;
    virtual void send(const char* from, size_t bytes) = 0;
    /// Waits until `received` more of the messages with a posted receive are there, and the memory of sent ones is
    /// free.
    virtual void complete(size_t received) = 0;
};

class Socket final : public Wire {
  public:
    Socket(bool listens, const std::string& interface) : fd_(connect_to(listens, interface)) {}
    ~Socket() override { close(fd_); }

    void post(char* to, size_t bytes) override { posted_.push_back({to, bytes}); }
    void send(const char* from, size_t bytes) override {
        while (bytes != 0) {
            const ssize_t written = write(fd_, from, bytes);
            if (written < 0 && errno != EAGAIN) fail("write", std::strerror(errno));
            if (written <= 0) continue;
            from += written;
            bytes -= static_cast<size_t>(written);
        }
    }
    void complete(size_t received) override {
        for (; received != 0; --received) {
            auto [to, bytes] = posted_.front();
            posted_.pop_front();
            while (bytes != 0) {
                const ssize_t got = read(fd_, to, bytes);
                if (got == 0 || (got < 0 && errno != EAGAIN)) fail("read", std::strerror(errno));
                if (got <= 0) continue;
                to += got;
                bytes -= static_cast<size_t>(got);
            }
        }
    }

  private:
    /// Buffers that hold a long message, so that neither end waits for the other's; as root beyond the system's bound.
    static void enlarge(int fd) {
        const int bytes = 32 << 20;
        for (const int option : {SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE}) {
            setsockopt(fd, SOL_SOCKET, option, &bytes, sizeof bytes);
        }
    }
    static int connect_to(bool listens, const std::string& interface) {
        sockaddr_in address = {};
        socklen_t bytes = sizeof address;
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        enlarge(fd);
        if (listens) {
            address.sin_family = AF_INET;
            address.sin_addr = address_of(interface);
            if (bind(fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0) fail("bind", std::strerror(errno));
            if (listen(fd, 1) != 0) fail("listen", std::strerror(errno));
            getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
            MPI_Send(&address, sizeof address, MPI_BYTE, 1, kTag, MPI_COMM_WORLD);
            const int accepted = accept(fd, nullptr, nullptr);
            if (accepted < 0) fail("accept", std::strerror(errno));
            close(fd);
            fd = accepted;
        } else {
            MPI_Recv(&address, sizeof address, MPI_BYTE, 0, kTag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (connect(fd, reinterpret_cast<sockaddr*>(&address), bytes) != 0) fail("connect", std::strerror(errno));
        }
        const int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        fcntl(fd, F_SETFL, O_NONBLOCK);
        return fd;
    }

    struct Posted {
        char* to;
        size_t bytes;
    };
    int fd_;
    std::deque<Posted> posted_;
};

struct Close {
    template <class Object>
    void operator()(Object* object) const {
        fi_close(&object->fid);
    }
};
template <class Object>
using FabricPtr = std::unique_ptr<Object, Close>;

class Fabric final : public Wire {
  public:
    Fabric(int peer, const std::string& interface, const std::string& provider) {
        open(interface, provider);
        meet(peer);
    }

    void post(char* to, size_t bytes) override {
        until_taken("fi_recv", [&] { return fi_recv(ep_.get(), to, bytes, nullptr, FI_ADDR_UNSPEC, nullptr); });
    }
    void send(const char* from, size_t bytes) override {
        if (bytes <= inject_bytes_) {
            return until_taken("fi_inject", [&] { return fi_inject(ep_.get(), from, bytes, at_); });
        }
        until_taken("fi_send", [&] { return fi_send(ep_.get(), from, bytes, nullptr, at_, nullptr); });
        ++sends_open_;
    }
    void complete(size_t received) override {
        wanted_ += received;
        while (received_ < wanted_ || sends_open_ != 0) progress();
    }

  private:
    static void check(ssize_t result, const char* call) {
        if (result < 0) fail(call, fi_strerror(static_cast<int>(-result)));
    }
    template <class Call>
    void until_taken(const char* name, Call&& call) {
        for (;;) {
            const ssize_t result = call();
            if (result == 0) return;
            if (result != -FI_EAGAIN) check(result, name);
            progress();
        }
    }
    void progress() {
        std::array<fi_cq_msg_entry, 16> entries;
        const ssize_t count = fi_cq_read(cq_.get(), entries.data(), entries.size());
        if (count == -FI_EAGAIN) return;
        check(count, "fi_cq_read");
        for (ssize_t i = 0; i < count; ++i) {
            if ((entries[static_cast<size_t>(i)].flags & FI_RECV) != 0) {
                ++received_;
            } else {
                --sends_open_;
            }
        }
    }
    void open(const std::string& interface, const std::string& provider) {
        fi_info* hints = fi_allocinfo();
        hints->ep_attr->type = FI_EP_RDM;
        hints->caps = FI_MSG;
        hints->domain_attr->threading = FI_THREAD_DOMAIN;
        hints->tx_attr->msg_order = hints->rx_attr->msg_order = FI_ORDER_SAS;
        hints->fabric_attr->prov_name = strdup(provider.c_str());
        std::array<char, INET_ADDRSTRLEN> text = {};
        const in_addr address = address_of(interface);
        inet_ntop(AF_INET, &address, text.data(), text.size());
        fi_info* info = nullptr;
        check(fi_getinfo(FI_VERSION(1, 17), text.data(), nullptr, FI_SOURCE, hints, &info), "fi_getinfo");
        inject_bytes_ = info->tx_attr->inject_size;

        fid_fabric* fabric = nullptr;
        check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
        fabric_.reset(fabric);
        fid_domain* domain = nullptr;
        check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
        domain_.reset(domain);
        fi_av_attr av_attr = {};
        av_attr.type = FI_AV_TABLE;
        fid_av* av = nullptr;
        check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
        av_.reset(av);
        fi_cq_attr cq_attr = {};
        cq_attr.format = FI_CQ_FORMAT_MSG;
        cq_attr.size = 1024;
        cq_attr.wait_obj = FI_WAIT_NONE;
        fid_cq* cq = nullptr;
        check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
        cq_.reset(cq);
        fid_ep* ep = nullptr;
        check(fi_endpoint(domain, info, &ep, nullptr), "fi_endpoint");
        ep_.reset(ep);
        check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind");
        check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
        check(fi_enable(ep), "fi_enable");
        fi_freeinfo(info);
        fi_freeinfo(hints);
    }
    void meet(int peer) {
        std::array<char, 128> own = {}, other = {};
        size_t bytes = own.size();
        check(fi_getname(&ep_->fid, own.data(), &bytes), "fi_getname");
        MPI_Sendrecv(own.data(), own.size(), MPI_BYTE, peer, kTag, other.data(), other.size(), MPI_BYTE, peer, kTag,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (fi_av_insert(av_.get(), other.data(), 1, &at_, 0, nullptr) != 1) fail("fi_av_insert", "it took no address");
    }

    FabricPtr<fid_fabric> fabric_;
    FabricPtr<fid_domain> domain_;
    FabricPtr<fid_av> av_;
    FabricPtr<fid_cq> cq_;
    FabricPtr<fid_ep> ep_;
    fi_addr_t at_ = FI_ADDR_UNSPEC;
    size_t inject_bytes_ = 0;
    size_t wanted_ = 0;    ///< messages that were waited for
    size_t received_ = 0;  ///< messages that have come
    size_t sends_open_ = 0;
};

struct Options {
    std::string label;
    std::string interface;
    std::string provider;
    std::vector<std::string> measures;
    std::vector<size_t> sizes;
    std::vector<size_t> offsets;
};

/// One rank's side of a figure.
class Side {
  public:
    /// `memory`: of a window of messages each.
    Side(Wire& wire, bool leads, size_t bytes, char* out, char* in)
        : wire_(wire), leads_(leads), peer_(leads ? 1 : 0), bytes_(std::max<size_t>(bytes, 1)), out_(out), in_(in) {}

    /// us.
    double latency() {
        return timed([this](int count) {
                   wire_.post(in_, bytes_);
                   meet();
                   const double start = seconds();
                   for (int i = 0; i < count; ++i) {
                       if (leads_) wire_.send(out_, bytes_);
                       wire_.complete(1);
                       if (i + 1 < count) wire_.post(in_, bytes_);
                       if (!leads_) wire_.send(out_, bytes_);
                   }
                   wire_.complete(0);
                   return seconds() - start;
               }) /
               2 * 1e6;
    }
    double window_seconds() {
        return timed([this](int count) {
            post_window();
            meet();
            const double start = seconds();
            for (int i = 0; i < count; ++i) {
                if (leads_) {
                    for (size_t number = 0; number < kWindow; ++number) wire_.send(out_ + number * bytes_, bytes_);
                    wire_.complete(1);
                } else {
                    wire_.complete(kWindow);
                }
                if (i + 1 < count) post_window();
                if (!leads_) wire_.send(&answer_, 1);
            }
            wire_.complete(0);
            return seconds() - start;
        });
    }
    /// Ends the job unless a message arrives as the other side wrote it.
    void verify() {
        for (size_t i = 0; i < bytes_; ++i) out_[i] = expected(i, leads_);
        wire_.post(in_, bytes_);
        meet();
        meet();
        wire_.send(out_, bytes_);
        wire_.complete(1);
        for (size_t i = 0; i < bytes_; ++i) {
            if (in_[i] != expected(i, !leads_)) fail("contents", ("byte " + std::to_string(i) + " is wrong").c_str());
        }
    }

  private:
    static char expected(size_t i, bool leads) { return static_cast<char>((i * 2654435761u >> 16) + i + leads * 59); }
    void post_window() {
        if (leads_) return wire_.post(&answer_, 1);
        for (size_t number = 0; number < kWindow; ++number) wire_.post(in_ + number * bytes_, bytes_);
    }
    /// Both have posted what the other one is to send.
    void meet() {
        MPI_Sendrecv(nullptr, 0, MPI_BYTE, peer_, kTag, nullptr, 0, MPI_BYTE, peer_, kTag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
    }
    /// Seconds for one of what run(count) does `count` of, and takes. The leader finds out how many make a batch.
    template <class Run>
    double timed(Run&& run) {
        std::vector<double> batches;
        for (int count = 1;;) {
            MPI_Bcast(&count, 1, MPI_INT, 0, MPI_COMM_WORLD);
            if (count == 0) return batches.empty() ? 0 : measuring::median(batches);
            const double taken = run(count);
            if (!leads_) continue;
            if (batches.empty() && taken < kBatchSeconds / 4) {
                count *= 4;
                continue;
            }
            batches.push_back(taken / count);
            const bool enough = batches.size() >= kBatchesMin && taken * kBatches > kMeasureSeconds;
            if (batches.size() == kBatches || enough) count = 0;
        }
    }

    Wire& wire_;
    bool leads_;
    int peer_;
    size_t bytes_;
    char* out_;
    char* in_;
    char answer_ = 0;
};

void measure(const Options& options, Wire& wire, const measuring::Cpus& cpus, bool leads) {
    const std::vector<size_t> offsets = options.offsets.empty() ? std::vector<size_t>{0} : options.offsets;
    const size_t bytes_max = std::max<size_t>(*std::ranges::max_element(options.sizes), 1);
    const bool windows = options.measures != std::vector<std::string>{"latency"};
    const size_t memory_bytes = bytes_max * (windows ? kWindow : 1) + kPageBytes;
    const auto memory = [&] {
        char* start = static_cast<char*>(::operator new(memory_bytes, std::align_val_t{kPageBytes}));
        std::memset(start, 0, memory_bytes);
        return start;
    };
    char* const out = memory();
    char* const in = memory();
    std::string csv;
    const auto line = [&] { csv += measuring::line_between(options.label, "0-1", cpus, leads ? 1 : 0, leads); };
    for (const size_t bytes : options.sizes) {
        for (const std::string& name : options.measures) {
            for (const size_t offset : offsets) {
                Side side(wire, leads, bytes, out + offset, in + offset);
                side.verify();
                line();
                const double window_bytes = static_cast<double>(bytes) * kWindow;
                const double value = name == "latency"     ? side.latency()
                                     : name == "bandwidth" ? window_bytes / side.window_seconds() / 1e6
                                                           : kWindow / side.window_seconds();
                csv += measuring::row(options.label, "0-1",
                                      measuring::at_offset(name, offset, !options.offsets.empty()), bytes, value);
            }
        }
    }
    line();
    if (leads) measuring::print(csv);
    ::operator delete(out, std::align_val_t{kPageBytes});
    ::operator delete(in, std::align_val_t{kPageBytes});
}

std::string parse(int argc, char** argv, int ranks, Options& options) {
    if (ranks != 2) return "the job needs two ranks, not " + std::to_string(ranks);
    const std::string what = argc > 3 ? argv[1] : "";
    if (what != "socket" && what != "fabric") return "wrong arguments; the head of bench/wires.cc shows them";
    options.label = argv[2];
    options.interface = argv[3];
    std::string error = measuring::read_options(argc - 3, argv + 3,
                                                {{"--provider", &options.provider},
                                                 {"--measures", &options.measures},
                                                 {"--sizes", &options.sizes, {.largest = 1u << 30}},
                                                 {"--offsets", &options.offsets, {.largest = kPageBytes - 1}}});
    if (!error.empty()) return error;
    if (options.sizes.empty() || options.measures.empty()) return "--sizes and --measures must be given";
    for (const std::string& name : options.measures) {
        if (name != "latency" && name != "bandwidth" && name != "rate") {
            return "'" + name + "' is not a measure; there are latency, bandwidth and rate";
        }
    }
    if ((what == "fabric") == options.provider.empty()) return "--provider goes with fabric, and must be given there";
    return {};
}

}  // namespace

int main(int argc, char** argv) {
    const measuring::Session session(argc, argv);
    Options options;
    const std::string error = parse(argc, argv, session.ranks, options);
    if (!error.empty()) return session.refuse("wires: " + error);
    session.pin_pair();
    const bool leads = session.self == 0;
    std::unique_ptr<Wire> wire;
    if (options.provider.empty()) {
        wire = std::make_unique<Socket>(leads, options.interface);
    } else {
        wire = std::make_unique<Fabric>(leads ? 1 : 0, options.interface, options.provider);
    }
    measure(options, *wire, session.cpus, leads);
    measuring::nap_at_barrier();
    return 0;
}
