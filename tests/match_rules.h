/// MPI's rules of matching (MPI 4.1, 3.5 and 3.8), held against what one process has seen.
///
/// The history of a receiver: what was sent to it, in the order of each sender; receives, probes and cancels,
/// in the order in which they were called; and which message each receive has got. Nothing here queues or
/// matches. The rules compare pairs:
///
/// - A receive gets a message only if every earlier one of that sender and communicator which it fits went to
///   an earlier receive (3.5, order).
/// - Meanwhile no earlier receive that fits the message waits for one (3.5, order and progress).
/// - A probe reports the message that a receive in its place would get from that sender (3.8.1). A matched
///   probe is such a receive.
///
/// Messages of one sender, communicator and tag differ in length, so a status names one.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace velo::test {

class MatchRules {
  public:
    static constexpr int kAny = -1;
    static constexpr uint64_t kNever = ~uint64_t{0};

    struct Pattern {
        uint32_t context = 0;
        int source = kAny;
        int tag = kAny;
    };
    struct Found {
        int source = 0;
        int tag = 0;
        uint64_t bytes = 0;
    };
    struct Message {
        uint32_t context = 0;
        int source = 0;
        int tag = 0;
        uint64_t bytes = 0;
        uint64_t sent_at = 0;
        uint32_t place = 0;  ///< among those of its sender and communicator
        int receive = -1;
    };

    /// The next message of its sender. False: one of that length was sent with the tag, and this is not.
    bool sent(uint32_t context, int source, int tag, uint64_t bytes, uint64_t now) {
        const auto [at, added] = named_.try_emplace({context, source, tag, bytes}, messages_.size());
        if (!added) return false;
        std::vector<size_t>& stream = streams_[{context, source}];
        messages_.push_back({context, source, tag, bytes, now, static_cast<uint32_t>(stream.size()), -1});
        stream.push_back(at->second);
        return true;
    }
    /// A receive, or a matched probe that has found something. Gives its number.
    int posted(const Pattern& pattern, uint64_t now) {
        receives_.push_back({pattern, now, kNever, kNever, kNone});
        return static_cast<int>(receives_.size()) - 1;
    }
    /// The message of a receive is known. Gives its place in the stream; -1: nothing of the kind was sent.
    int got(int receive, const Found& found, uint64_t now) {
        Receive& mine = receives_[static_cast<size_t>(receive)];
        const auto named = named_.find({mine.pattern.context, found.source, found.tag, found.bytes});
        if (named == named_.end()) {
            fault("%s has got what was not sent: source %d tag %d bytes %llu", name(receive).c_str(),
                  found.source, found.tag, ull(found.bytes));
            return -1;
        }
        Message& message = messages_[named->second];
        if (mine.message != kNone) fault("%s has got two messages", name(receive).c_str());
        if (message.receive >= 0)
            fault("%s was received twice, the second time by %s", name(message).c_str(),
                  name(receive).c_str());
        if (!fits(mine.pattern, message))
            fault("%s has got %s", name(receive).c_str(), name(message).c_str());
        message.receive = receive;
        mine.message = named->second;
        mine.known_at = now;
        ++received_;
        return static_cast<int>(message.place);
    }
    void cancelled(int receive, uint64_t now) { receives_[static_cast<size_t>(receive)].cancelled_at = now; }
    void probed(const Pattern& pattern, const Found& found, uint64_t now) {
        probes_.push_back({pattern, found, static_cast<int>(receives_.size()), now});
    }

    [[nodiscard]] uint64_t unreceived() const { return messages_.size() - received_; }
    /// When the receive of this message was posted; kNever: it has none.
    [[nodiscard]] uint64_t posted_at(uint32_t context, int source, int tag, uint64_t bytes) const {
        const Message& message = messages_[named_.at({context, source, tag, bytes})];
        return message.receive < 0 ? kNever : receives_[static_cast<size_t>(message.receive)].posted_at;
    }

    /// Broken rules, at the end of the history.
    [[nodiscard]] std::vector<std::string> faults() {
        for (size_t i = 0; i < receives_.size(); ++i) {
            if (receives_[i].message == kNone) continue;
            const Message& message = messages_[receives_[i].message];
            const std::string who = name(static_cast<int>(i));
            none_earlier(receives_[i].pattern, message, static_cast<int>(i), who);
            none_waits(message, static_cast<int>(i), receives_[i].known_at, who);
        }
        for (const Probe& probe : probes_) {
            const std::string who = "a probe before receive " + std::to_string(probe.before);
            const Found& found = probe.found;
            const auto named = named_.find({probe.pattern.context, found.source, found.tag, found.bytes});
            if (named == named_.end()) {
                fault("%s has found what was not sent", who.c_str());
                continue;
            }
            const Message& message = messages_[named->second];
            if (message.receive >= 0 && message.receive < probe.before)
                fault("%s has found %s, which %s had", who.c_str(), name(message).c_str(),
                      name(message.receive).c_str());
            none_earlier(probe.pattern, message, probe.before, who);
            none_waits(message, probe.before, probe.at, who);
        }
        for (const Message& message : messages_) {
            if (message.receive < 0) fault("%s was never received", name(message).c_str());
        }
        for (size_t i = 0; i < receives_.size(); ++i) {
            if (receives_[i].message != kNone && receives_[i].cancelled_at != kNever)
                fault("%s was cancelled and has got a message", name(static_cast<int>(i)).c_str());
        }
        return std::exchange(faults_, {});
    }

  private:
    static constexpr size_t kNone = ~size_t{0};
    static constexpr size_t kFaultsKept = 8;

    struct Receive {
        Pattern pattern;
        uint64_t posted_at;
        uint64_t known_at;  ///< its message; it may have matched long before
        uint64_t cancelled_at;
        size_t message;
    };
    struct Probe {
        Pattern pattern;
        Found found;
        int before;  ///< the number of the next receive
        uint64_t at;
    };

    [[nodiscard]] static bool fits(const Pattern& pattern, const Message& message) {
        if (pattern.context != message.context) return false;
        if (pattern.source != kAny && pattern.source != message.source) return false;
        // An open tag is for tags of the program, and those are not negative.
        return pattern.tag == kAny ? message.tag >= 0 : pattern.tag == message.tag;
    }

    void none_earlier(const Pattern& pattern, const Message& message, int receive, const std::string& who) {
        const std::vector<size_t>& stream = streams_.at({message.context, message.source});
        for (uint32_t place = 0; place < message.place; ++place) {
            const Message& earlier = messages_[stream[place]];
            if (!fits(pattern, earlier) || (earlier.receive >= 0 && earlier.receive < receive)) continue;
            fault("%s has got or found %s, past %s, which %s", who.c_str(), name(message).c_str(),
                  name(earlier).c_str(),
                  earlier.receive < 0 ? "was left" : ("went to " + name(earlier.receive)).c_str());
        }
    }
    void none_waits(const Message& message, int receive, uint64_t now, const std::string& who) {
        for (int i = 0; i < receive; ++i) {
            const Receive& earlier = receives_[static_cast<size_t>(i)];
            if (!fits(earlier.pattern, message)) continue;
            const bool waits = earlier.message != kNone ? messages_[earlier.message].sent_at > now
                                                        : earlier.cancelled_at > now;
            if (!waits) continue;
            fault("%s has got or found %s, while %s waited", who.c_str(), name(message).c_str(),
                  name(i).c_str());
        }
    }

    template <class... Values>
    void fault(const char* format, Values... values) {
        if (faults_.size() >= kFaultsKept) return;
        char text[400];
        std::snprintf(text, sizeof text, format, values...);
        faults_.emplace_back(text);
    }
    [[nodiscard]] static unsigned long long ull(uint64_t value) { return value; }
    [[nodiscard]] std::string name(int receive) const {
        const Pattern& pattern = receives_[static_cast<size_t>(receive)].pattern;
        char text[100];
        std::snprintf(text, sizeof text, "receive %d (communicator %u source %d tag %d)", receive,
                      pattern.context, pattern.source, pattern.tag);
        return text;
    }
    [[nodiscard]] static std::string name(const Message& message) {
        char text[120];
        std::snprintf(text, sizeof text, "message %u of %d (communicator %u tag %d bytes %llu)",
                      message.place, message.source, message.context, message.tag, ull(message.bytes));
        return text;
    }

    std::vector<Message> messages_;
    std::vector<Receive> receives_;
    std::vector<Probe> probes_;
    std::map<std::tuple<uint32_t, int, int, uint64_t>, size_t> named_;
    std::map<std::pair<uint32_t, int>, std::vector<size_t>> streams_;
    std::vector<std::string> faults_;
    uint64_t received_ = 0;
};

}  // namespace velo::test
