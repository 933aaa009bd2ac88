/// Parts that tests of the on-node path share: a small ring, a receiver of messages, a sender of them.
#pragma once

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "velo/shm/on_node.h"

namespace velo::shm {

constexpr OnNodeConfig config_for(uint64_t name) {
    return {.name = name, .geometry = {.lines = 128, .body_bytes = 16384}, .registrations_max = 16};
}

struct Inbox {
    std::vector<std::pair<PeerIndex, std::string>> messages;
    bool open = true;

    bool accepts(const Message&) const { return open; }
    void deliver(PeerIndex from, const Message& message) {
        messages.emplace_back(from, std::string(reinterpret_cast<const char*>(message.data), message.bytes));
    }
};

inline Status send(OnNode& from, PeerIndex to, const std::string& text) {
    Status status = Status::kOk;
    std::byte* room = from.reserve_whole(to, static_cast<uint32_t>(text.size()), status);
    if (room == nullptr) return status;
    std::memcpy(room, text.data(), text.size());
    from.commit(to, MessageClass::kHost, 0, static_cast<uint32_t>(text.size()), true);
    return Status::kOk;
}

}  // namespace velo::shm
