#include "velo/report/credit_trace.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

#include "flowctl/mode.h"
#include "velo/base/check.h"
#include "velo/base/text.h"

namespace velo {
namespace {

using base::number;

constexpr int kVersion = 1;
constexpr size_t kBufferBytes = 64 << 10;
constexpr uint64_t kKeptNsMax = 1'000'000'000;
/// Longer than any line.
constexpr size_t kLineBytes = 512;

bool exists(const std::string& path) {
    struct stat found;
    return ::stat(path.c_str(), &found) == 0;
}

struct Expanded {
    std::string path;
    bool ranked = false;  ///< the rank is in it
};

Expanded expand(std::string_view pattern, uint64_t job, uint32_t rank) {
    std::string path;
    bool ranked = false;
    for (size_t at = 0; at < pattern.size(); ++at) {
        const char next = pattern[at] == '%' && at + 1 < pattern.size() ? pattern[at + 1] : '\0';
        switch (next) {
            case 'r': path += std::to_string(rank); break;
            case 'j': path += std::to_string(job); break;
            case '%': path += '%'; break;
            default: path += pattern[at]; continue;
        }
        ranked |= next == 'r';
        ++at;
    }
    return {path, ranked};
}

}  // namespace

std::string CreditTrace::path_of(std::string_view pattern, uint64_t job, uint32_t rank) {
    const Expanded expanded = expand(pattern, job, rank);
    return expanded.ranked ? expanded.path : expanded.path + "." + std::to_string(rank);
}

bool CreditTrace::names_directory(std::string_view pattern, uint64_t job, uint32_t rank) {
    const std::string path = expand(pattern, job, rank).path;
    struct stat found;
    return path.ends_with('/') || (::stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode));
}

std::unique_ptr<CreditTrace> CreditTrace::open(const std::string& path, const Header& header,
                                               std::string& error, bool& common) {
    const auto refuse = [&](const std::string& why, bool of_all) {
        error = "btl_velo_trace: " + path + " cannot be written (" + why;
        common = of_all;
        return nullptr;
    };
    // Nothing is emptied that the name does not say, and a FIFO without a reader is not waited for.
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (fd < 0) {
        const int reason = errno;
        if (reason == ELOOP) return refuse("it is a link); name the file itself", false);
        // A mistake in a directory is one for all ranks, unless each has its own.
        return refuse(
            std::string(std::strerror(reason)) + "); name a file in a directory that can be written to",
            !exists(path) && reason != EMFILE && reason != ENFILE);
    }
    struct stat found;
    const char* why = nullptr;
    if (::fstat(fd, &found) != 0 || !S_ISREG(found.st_mode)) {
        why = "it is no file); name another one";
    } else if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        why = "another process writes it); put %j, the number of the job, into the name";
    } else if (::ftruncate(fd, 0) != 0) {
        why = "it cannot be emptied); name another file";
    }
    if (why != nullptr) {
        ::close(fd);
        return refuse(why, false);
    }
    return std::unique_ptr<CreditTrace>(new CreditTrace(fd, path, header));
}

CreditTrace::CreditTrace(int fd, std::string path, const Header& header)
    : fd_(fd), path_(std::move(path)), pid_(getpid()), start_ns_(header.start_ns), last_(header.plan.peers) {
    buffer_.reserve(kBufferBytes);
    const flowctl::Plan& plan = header.plan;
    line(
        "velo-trace %d job=%llu rank=%u size=%u mode=%s peers=%u mailbox_slots=%u data_slots=%u "
        "credit_slots=%u "
        "quota=%u period_ms=%llu start_ns=%llu start_unix=%llu\n",
        kVersion, number(header.identity.job), header.identity.rank, header.identity.job_size,
        std::string(flowctl::to_string(plan.mode)).c_str(), plan.peers, plan.mailbox_slots,
        plan.data_region_slots, plan.credit_slots, plan.quota, number(header.period_ms),
        number(header.start_ns), number(header.start_unix));
    flush();  // so that what cannot be written is reported at the start
}

CreditTrace::~CreditTrace() {
    ::close(fd_);
}

unsigned long long CreditTrace::time_us(uint64_t now_ns) const {
    return (now_ns - std::min(now_ns, start_ns_)) / 1000;
}

void CreditTrace::line(const char* format, ...) {
    if (failed_) return;
    char text[kLineBytes];
    va_list arguments;
    va_start(arguments, format);
    const int bytes = std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    VELO_CHECK(bytes > 0 && static_cast<size_t>(bytes) < sizeof text, "a line of %d bytes", bytes);
    if (buffer_.size() + static_cast<size_t>(bytes) > kBufferBytes) flush();
    buffer_.append(text, static_cast<size_t>(bytes));
    ++lines_;
}

void CreditTrace::flush() {
    size_t done = 0;
    while (!failed_ && pid_ == getpid() && done < buffer_.size()) {
        const ssize_t written = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
        if (written > 0) {
            done += static_cast<size_t>(written);
        } else if (written == 0 || errno != EINTR) {
            failed_ = true;
            error_ = "btl_velo_trace: " + path_ + " cannot be written any more (" +
                     (written == 0 ? "no progress" : std::strerror(errno)) + "); its trace ends here";
        }
    }
    buffer_.clear();
}

void CreditTrace::sample(uint64_t now_ns, uint32_t index, uint32_t rank, const PeerCredits& now) {
    if (index >= last_.size()) last_.resize(size_t{index} + 1);
    Last& last = last_[index];
    if (last.seen && last.credits == now) return;
    last = {.seen = true, .credits = now};
    line("s %llu %u %u %u %u %llu %llu\n", time_us(now_ns), rank, now.credits, now.granted, now.quota,
         number(now.stalls), number(now.stall_ns));
}

void CreditTrace::sample_available(uint64_t now_ns, uint32_t slots) {
    if (std::exchange(last_available_, slots) != slots) line("a %llu %u\n", time_us(now_ns), slots);
}

void CreditTrace::write_old(uint64_t now_ns) {
    if (now_ns - written_ns_ < kKeptNsMax) return;
    written_ns_ = now_ns;
    flush();
}

void CreditTrace::total(uint32_t rank, const PeerCredits& credits) {
    line("p %u %u %u %u %llu %llu\n", rank, credits.credits, credits.granted, credits.quota,
         number(credits.stalls), number(credits.stall_ns));
}

void CreditTrace::total(const CreditStalls::Histogram& waits) {
    for (size_t power = 0; power < waits.size(); ++power) {
        if (waits[power] != 0) line("w %zu %llu\n", power, number(waits[power]));
    }
}

void CreditTrace::total(const velo_counters_t& counters) {
#define VELO_COUNTER(name, text) line("c " #name " %llu\n", number(counters.name));
#include "velo/counters.def"
#undef VELO_COUNTER
}

void CreditTrace::finish(uint64_t now_ns) {
    line("e %llu %llu\n", time_us(now_ns), number(lines_));
    flush();
}

std::string CreditTrace::take_error() {
    return std::exchange(error_, {});
}

}  // namespace velo
