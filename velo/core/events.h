/// Events for the host: queued under the engine's lock, delivered without it, in the order in which they came about.
///
/// So an upcall finds nothing half done, and may call any function of velo.h but velo_close. Messages alone
/// are handed up in the middle of a poll, where they lie (Engine::Handler).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "velo/base/check.h"
#include "velo/base/lock.h"
#include "velo/base/status.h"
#include "velo/velo_match.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock, which deliver() gives up for each upcall.
class Events {
  public:
    Events(const velo_host_t& host, base::OptionalLock& lock) : host_(host), lock_(lock), threads_(lock.threads()) {}

    /// A message that was queued has left, or never will.
    void sent(velo_send_t& send, Status status) {
        queue_.push_back({.of = Event::Of::kSend, .status = status, .what = &send});
    }
    void rma_done(velo_rma_t& rma, Status status) {
        queue_.push_back({.of = Event::Of::kRma, .status = status, .what = &rma});
    }
    /// Events of matching are for a host of its own.
    [[gnu::cold]] void match_with(const velo_match_host_t& host) { match_host_ = host; }
    [[nodiscard]] const velo_match_host_t& match_host() const { return match_host_; }
    void match_sent(velo_match_send_t& send) {
        queue_.push_back({.of = Event::Of::kMatchSend, .what = &send});
    }
    /// As match_sent(), of a message that a caller waits for until `done`.
    void match_sent(volatile bool& done) {
        queue_.push_back({.of = Event::Of::kMatchWait, .what = const_cast<bool*>(&done)});
    }
    void match_received(velo_match_receive_t& receive) {
        queue_.push_back({.of = Event::Of::kMatchReceive, .what = &receive});
    }
    /// Reports a received message at once, unless other events are queued before it. To be called where the engine is
    /// as it is when a message is handed up.
    [[gnu::always_inline]] void match_received_now(velo_match_receive_t& receive) {
        if (!queue_.empty()) [[unlikely]]
            return match_received(receive);
        if (threads_) [[unlikely]]
            return tell_received(receive);
        match_host_.receive_done(match_host_.context, &receive);
    }
    [[gnu::cold]] void peer_ended(const velo_end_t& end) {
        if (host_.peer_ended == nullptr) return;
        queue_.push_back({.of = Event::Of::kEnd, .end = std::make_unique<velo_end_t>(end)});
    }
    /// Queues the end of the job. `line`: for the user. False: the host does not want to know.
    [[nodiscard, gnu::cold]] bool job_failed(velo_path_t path, uint64_t name, std::string line) {
        if (host_.job_failed == nullptr) return false;
        auto failed = std::make_unique<Failed>(Failed{std::move(line), name, path});
        queue_.push_back({.of = Event::Of::kFailed, .failed = std::move(failed)});
        return true;
    }

    [[nodiscard]] bool empty() const { return queue_.empty(); }
    /// Every event has been delivered.
    [[nodiscard]] bool all_told() const { return queue_.empty() && delivering_ == 0; }
    /// An upcall is being made; the events that it causes are delivered after it.
    [[nodiscard]] bool delivering() const { return delivering_ != 0; }
    /// Delivers every event to the host. It may nest, because an upcall may wait for another event.
    void deliver() {
        ++delivering_;
        while (next_ != queue_.size()) {
            VELO_DCHECK(next_ < queue_.size(), "event %zu of %zu", next_, queue_.size());
            const Event event = std::move(queue_[next_++]);
            if (next_ == queue_.size()) {
                queue_.clear();
                next_ = 0;
            }
            const base::Unlocked unlocked(lock_);
            tell(event);
        }
        --delivering_;
    }

  private:
    struct Failed {
        std::string line;
        uint64_t name;
        velo_path_t path;
    };
    struct Event {
        enum class Of : uint8_t { kSend, kRma, kMatchSend, kMatchWait, kMatchReceive, kEnd, kFailed };
        Of of;
        Status status = Status::kOk;
        void* what = nullptr;  ///< of the first five
        std::unique_ptr<velo_end_t> end{};
        std::unique_ptr<Failed> failed{};
    };

    [[gnu::noinline]] void tell_received(velo_match_receive_t& receive) {
        const base::Unlocked unlocked(lock_);
        match_host_.receive_done(match_host_.context, &receive);
    }
    void tell(const Event& event) {
        using Of = Event::Of;
        const int status = static_cast<int>(event.status);
        switch (event.of) {
            case Of::kSend: return host_.sent(host_.context, static_cast<velo_send_t*>(event.what), status);
            case Of::kRma: return host_.rma_done(host_.context, static_cast<velo_rma_t*>(event.what), status);
            case Of::kMatchSend:
                return match_host_.send_done(match_host_.context,
                                             static_cast<velo_match_send_t*>(event.what));
            case Of::kMatchWait: *static_cast<volatile bool*>(event.what) = true; return;
            case Of::kMatchReceive:
                return match_host_.receive_done(match_host_.context,
                                                static_cast<velo_match_receive_t*>(event.what));
            case Of::kEnd: return host_.peer_ended(host_.context, event.end.get());
            case Of::kFailed: {
                const velo_failure_t failure = {.line = event.failed->line.c_str(),
                                                .name = event.failed->name,
                                                .path = event.failed->path};
                return host_.job_failed(host_.context, &failure);
            }
        }
    }

    const velo_host_t& host_;
    velo_match_host_t match_host_ = {};
    base::OptionalLock& lock_;
    const bool threads_;
    std::vector<Event> queue_;
    size_t next_ = 0;
    uint32_t delivering_ = 0;
};

}  // namespace velo
