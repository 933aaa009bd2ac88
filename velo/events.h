/// News for the host: collected under the engine's lock, told without it, in the order in which they came about.
///
/// So an upcall finds nothing half done, and may call any function of velo.h but velo_close. Messages alone are handed
/// up in the middle of a poll, where they lie (Engine::Handler).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "velo/base/lock.h"
#include "velo/base/status.h"
#include "velo/velo_match.h"

namespace velo {

/// Owner: the engine. Thread: the engine's, under its lock, which deliver() gives up for each upcall.
class Events {
  public:
    Events(const velo_host_t& host, base::OptionalLock& lock) : host_(host), lock_(lock) {}

    /// A message that was queued has left, or never will.
    void sent(velo_send_t& send, Status status) { queue_.emplace_back(Sent{&send, status}); }
    void rma_done(velo_rma_t& rma, Status status) { queue_.emplace_back(Done{&rma, status}); }
    /// News of matching are for a host of its own.
    [[gnu::cold]] void match_with(const velo_match_host_t& host) { match_host_ = host; }
    void match_sent(velo_match_send_t& send, Status status) { queue_.emplace_back(MatchSent{&send, status}); }
    void match_received(velo_match_receive_t& receive) { queue_.emplace_back(MatchReceived{.receive = &receive}); }
    /// The same at once, where the engine is as it is when a message is handed up.
    [[gnu::always_inline]] void match_received_now(velo_match_receive_t& receive) {
        if (!queue_.empty()) [[unlikely]]
            return match_received(receive);
        const base::Unlocked unlocked(lock_);
        match_host_.receive_done(match_host_.context, &receive);
    }
    [[gnu::cold]] void peer_ended(const velo_end_t& end) {
        if (host_.peer_ended != nullptr) queue_.emplace_back(std::make_unique<velo_end_t>(end));
    }
    /// `line`: for the user. False: the host does not want to know.
    [[nodiscard, gnu::cold]] bool job_failed(velo_path_t path, uint64_t name, std::string line) {
        if (host_.job_failed == nullptr) return false;
        queue_.emplace_back(std::make_unique<Failed>(std::move(line), name, path));
        return true;
    }

    [[nodiscard]] bool empty() const { return queue_.empty(); }
    /// All has been told.
    [[nodiscard]] bool all_told() const { return queue_.empty() && delivering_ == 0; }
    /// An upcall is being made; the events that it causes are told after it.
    [[nodiscard]] bool delivering() const { return delivering_ != 0; }
    /// Tells the host everything. It may nest, because an upcall may wait for another event.
    void deliver() {
        ++delivering_;
        while (next_ != queue_.size()) {
            Event event = std::move(queue_[next_++]);
            if (next_ == queue_.size()) {
                queue_.clear();
                next_ = 0;
            }
            const base::Unlocked unlocked(lock_);
            std::visit([this](auto& what) { tell(what); }, event);
        }
        --delivering_;
    }

  private:
    struct Sent {
        velo_send_t* send;
        Status status;
    };
    struct Done {
        velo_rma_t* rma;
        Status status;
    };
    struct Failed {
        Failed(std::string text, uint64_t of, velo_path_t over) : line(std::move(text)), name(of), path(over) {}
        std::string line;
        uint64_t name;
        velo_path_t path;
    };
    struct MatchSent {
        velo_match_send_t* send;
        Status status;
    };
    struct MatchReceived {
        velo_match_receive_t* receive;
        uint64_t unused = 0;  ///< GCC 14 copies all small events as the longest of them, and warns of what is not set
    };
    using Event = std::variant<Sent, Done, MatchSent, MatchReceived, std::unique_ptr<velo_end_t>,
                               std::unique_ptr<Failed>>;

    void tell(const Sent& sent) { host_.sent(host_.context, sent.send, static_cast<int>(sent.status)); }
    void tell(const Done& done) { host_.rma_done(host_.context, done.rma, static_cast<int>(done.status)); }
    void tell(const MatchSent& sent) {
        match_host_.send_done(match_host_.context, sent.send, static_cast<int>(sent.status));
    }
    void tell(const MatchReceived& received) { match_host_.receive_done(match_host_.context, received.receive); }
    void tell(const std::unique_ptr<velo_end_t>& end) { host_.peer_ended(host_.context, end.get()); }
    void tell(const std::unique_ptr<Failed>& failed) {
        const velo_failure_t failure = {.line = failed->line.c_str(), .name = failed->name, .path = failed->path};
        host_.job_failed(host_.context, &failure);
    }

    const velo_host_t& host_;
    velo_match_host_t match_host_ = {};
    base::OptionalLock& lock_;
    std::vector<Event> queue_;
    size_t next_ = 0;
    uint32_t delivering_ = 0;
};

}  // namespace velo
