/// Two connected engines that match, in one process.
#pragma once

#include <array>
#include <cstddef>
#include <vector>

#include "tests/unit/job.h"
#include "velo/velo_match.h"

namespace velo::test {

inline velo_params_t with_room(int records, int bytes) {
    velo_params_t params = default_params();
    params.unexpected_records = 64 * records;
    params.unexpected_bytes = bytes;
    return params;
}

/// Two connected engines that match.
class MatchEngine : public testing::Test {
  protected:
    explicit MatchEngine(const velo_params_t& params = default_params(), const Tuning& tuning = {})
        : job_(2, params, tuning) {
        for (uint32_t i = 0; i < 2; ++i) {
            host_[i] = {.context = &done_[i],
                        .send_done =
                            [](void* context, velo_match_send_t* send) {
                                static_cast<Done*>(context)->sends.push_back(send);
                            },
                        .receive_done =
                            [](void* context, velo_match_receive_t* receive) {
                                static_cast<Done*>(context)->receives.push_back(receive);
                            },
                        .wait =
                            [](void* context, const volatile bool* done) {
                                auto& self = *static_cast<Done*>(context);
                                ++self.waits;
                                while (!*done) self.test->progress();
                            }};
            done_[i].test = this;
            velo_match_open(job_[i].engine, &host_[i]);
        }
        for (uint32_t i = 0; i < 2; ++i) {
            peer_[i] = velo_match_peer_of(job_[i].engine, job_[i].peers[1 - i]);
            self_[i] = velo_match_peer_of(job_[i].engine, nullptr);
        }
    }
    struct Done {
        std::vector<velo_match_send_t*> sends;
        std::vector<velo_match_receive_t*> receives;
        uint32_t waits = 0;  ///< calls of the host's wait()
        MatchEngine* test = nullptr;
    };

    void progress() {
        for (int i = 0; i < 20; ++i) {
            velo_progress(job_[0].engine);
            velo_progress(job_[1].engine);
        }
    }
    /// From 0 to 1, as a host does. Whether it was done at once.
    bool send(int tag, const std::vector<std::byte>& data, velo_match_send_t& send,
              bool synchronous = false) {
        if (!synchronous && try_send(tag, data)) return true;
        return velo_match_send(job_[0].engine, peer_[0], velo_place(3, 0), tag, data.data(), data.size(),
                               synchronous, &send);
    }
    bool try_send(int tag, const std::vector<std::byte>& data) {
        return velo_match_try_send(job_[0].engine, peer_[0], velo_place(3, 0), tag, data.data(), data.size());
    }
    bool receive(int tag, std::vector<std::byte>& buffer, velo_match_receive_t& receive, int source = 0) {
        return velo_match_receive(job_[1].engine, source < 0 ? nullptr : peer_[1], velo_place(3, source), tag,
                                  buffer.data(), buffer.size(), &receive);
    }

    Job job_;
    std::array<Done, 2> done_;
    std::array<velo_match_host_t, 2> host_{};
    std::array<velo_match_peer_t*, 2> peer_{};
    std::array<velo_match_peer_t*, 2> self_{};
};

}  // namespace velo::test
