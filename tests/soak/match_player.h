/// One process that matches under a random program: sends, named and open receives, truncation, cancels, probes,
/// matched probes. The rules of MPI judge what it has seen (tests/match_rules.h).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include "tests/match_rules.h"
#include "tests/unit/job.h"
#include "velo/velo_match.h"

namespace velo::test {

/// A message of a program. Those of one sender, receiver, communicator and tag differ in length.
struct PlannedMessage {
    int from;
    int to;
    uint32_t context;
    int tag;
    uint64_t bytes;
    bool synchronous;
};

/// Draws what programs consist of.
class Dice {
  public:
    static constexpr std::array kTags = {0, 1, 2, -17};
    static constexpr std::array kContexts = {3u, 4u, 9u};

    Dice(uint64_t seed, uint32_t processes) : random_(seed), processes_(processes) {}

    uint32_t below(uint32_t end) { return static_cast<uint32_t>(random_() % end); }
    uint32_t process() { return below(processes_); }
    uint32_t context() { return kContexts[below(kContexts.size())]; }
    uint64_t bytes() {
        switch (below(10)) {
            case 0: return 0;
            case 1: return 17000 + below(20000);
            case 2: return 66000 + below(60000);
            case 3: return 2000 + below(200);
            case 4:
            case 5: return 200 + below(300);
            default: return below(60);
        }
    }
    PlannedMessage message(int from) {
        return {from, static_cast<int>(process()), context(), kTags[below(kTags.size())], bytes(), below(4) == 0};
    }
    MatchRules::Pattern pattern() {
        return {.context = context(),
                .source = below(2) == 0 ? MatchRules::kAny : static_cast<int>(process()),
                .tag = below(3) == 0 ? MatchRules::kAny : kTags[below(kTags.size())]};
    }

  private:
    std::mt19937_64 random_;
    uint32_t processes_;
};

class MatchPlayer {
  public:
    static constexpr size_t kUnderWayMax = 48;

    /// The job of the player.
    class World {
      public:
        /// The next message of the player; the receiver's rules know of it then.
        virtual std::optional<PlannedMessage> next(int from) = 0;
        virtual void progress() = 0;
        [[nodiscard]] virtual uint64_t now() const = 0;
        /// A synchronous send has ended, so its receive is posted; what that has got may not be known yet.
        virtual void matched(const PlannedMessage&) {}
        virtual void received(int /*source*/) {}

      protected:
        World() = default;
        World(const World&) = default;
        World& operator=(const World&) = default;
        ~World() = default;
    };

    MatchPlayer(World& world, Dice& dice, velo_engine_t* engine, int rank)
        : world_(world), dice_(dice), engine_(engine), rank_(rank) {
        host_ = {.context = this,
                 .send_done = [](void* self, velo_match_send_t* send) { of(self).send_ended(*send); },
                 .receive_done = [](void* self, velo_match_receive_t* face) { of(self).receive_ended(*face); },
                 .wait = nullptr};
        velo_match_open(engine_, &host_);
    }
    MatchPlayer(const MatchPlayer&) = delete;
    MatchPlayer& operator=(const MatchPlayer&) = delete;

    /// Adds the peer of the next rank; that of the own rank is null.
    void meet(velo_peer_t* peer) { peers_.push_back(velo_match_peer_of(engine_, peer)); }

    void act() {
        switch (dice_.below(16)) {
            case 5:
            case 6:
            case 7:
            case 8:
            case 9: return receive(dice_.pattern());
            case 10:
            case 11: return cancel_some();
            case 12: return probe();
            case 13: (void)take(dice_.pattern()); return;
            case 14: return receive_taken();
            default: return send();
        }
    }
    void send() {
        const auto open = [](const Send& send) { return !send.done; };
        const auto under_way = std::count_if(sends_.begin(), sends_.end(), open);
        if (static_cast<size_t>(under_way) >= kUnderWayMax) return;
        const std::optional<PlannedMessage> next = world_.next(rank_);
        if (!next) return;
        Send& send = sends_.emplace_back();
        send.message = *next;
        send.data = data_of(*next);
        velo_match_peer_t* const to = peers_[static_cast<size_t>(next->to)];
        const uint64_t place = velo_place(next->context, rank_);
        const bool left =
            !next->synchronous && dice_.below(4) != 0 &&
            velo_match_try_send(engine_, to, place, next->tag, send.data.data(), send.data.size()) != 0;
        if (left || velo_match_send(engine_, to, place, next->tag, send.data.data(), send.data.size(),
                                    next->synchronous, &send.face) != 0)
            ended(send);
    }
    /// Receives any message; one of the calls that end a program, so that all messages are received by and by.
    void take_any() {
        if (dice_.below(8) == 0) cancel_some();
        (void)take({dice_.context(), MatchRules::kAny, dice_.below(4) == 0 ? -17 : MatchRules::kAny});
        receive_taken();
    }
    [[nodiscard]] bool has_received_all() const { return rules.unreceived() == 0 && taken_.empty(); }
    [[nodiscard]] bool has_sent_all() const {
        return std::all_of(sends_.begin(), sends_.end(), [](const Send& send) { return send.done; });
    }
    /// Cancels what still waits, and compares what probes reported of messages with what was received.
    void finish() {
        for (Receive& receive : receives_) {
            if (receive.done || receive.cancelled) continue;
            EXPECT_TRUE(cancel(receive)) << "a receive has matched and is not done";
        }
        for (const auto& [receive, status] : probed_) {
            EXPECT_EQ(receive->face.source, status.source);
            EXPECT_EQ(receive->face.tag, status.tag);
            EXPECT_EQ(receive->face.bytes, status.bytes);
        }
    }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] velo_engine_t* engine() { return engine_; }

    MatchRules rules;

  private:
    static constexpr std::byte kUntouched{0xa5};

    struct Send {
        velo_match_send_t face;
        PlannedMessage message;
        bool done = false;
        std::vector<std::byte> data;
    };
    struct Receive {
        velo_match_receive_t face;
        int number;  ///< in the rules
        MatchRules::Pattern pattern;
        uint64_t capacity;
        bool done = false;
        bool cancelled = false;
        std::vector<std::byte> buffer;  ///< longer than its capacity
    };
    struct Taken {
        velo_match_message_t* message;
        MatchRules::Pattern pattern;
        velo_match_status_t status;
        int number;
    };
    struct Probed {
        const Receive* receive;
        velo_match_status_t status;
    };

    static MatchPlayer& of(void* self) { return *static_cast<MatchPlayer*>(self); }
    [[nodiscard]] static std::vector<std::byte> data_of(const PlannedMessage& of) {
        const int key = ((of.from * 7 + of.to) * 31 + static_cast<int>(of.context)) * 67 + of.tag;
        return pattern(of.bytes, static_cast<uint32_t>(key * 131 + static_cast<int>(of.bytes) * 977));
    }
    [[nodiscard]] static uint64_t place(const MatchRules::Pattern& pattern) {
        return velo_place(pattern.context, pattern.source);
    }
    [[nodiscard]] velo_match_peer_t* named(const MatchRules::Pattern& pattern) const {
        return pattern.source < 0 ? nullptr : peers_[static_cast<size_t>(pattern.source)];
    }

    void send_ended(velo_match_send_t& face) {
        for (Send& send : sends_) {
            if (&send.face == &face) return ended(send);
        }
        ADD_FAILURE() << "an unknown send is done";
    }
    void ended(Send& send) {
        EXPECT_FALSE(send.done) << "a send is done twice";
        send.done = true;
        if (send.message.synchronous) world_.matched(send.message);
        std::fill(send.data.begin(), send.data.end(), kUntouched);
    }

    void receive(const MatchRules::Pattern& pattern) {
        Receive& receive = add(pattern, rules.posted(pattern, world_.now()));
        if (dice_.below(2) == 0) {
            receive.face.from = named(pattern);
            (void)velo_match_post(engine_, place(pattern), pattern.tag, receive.buffer.data(), receive.capacity,
                                  &receive.face);
        } else if (velo_match_receive(engine_, named(pattern), place(pattern), pattern.tag, receive.buffer.data(),
                                      receive.capacity, &receive.face)) {
            ended(receive);
        }
    }
    Receive& add(const MatchRules::Pattern& pattern, int number) {
        Receive& receive = receives_.emplace_back();
        receive.number = number;
        receive.pattern = pattern;
        receive.capacity = dice_.below(3) == 0 ? dice_.below(3000) : 200'000;
        receive.buffer.assign(receive.capacity + 64, kUntouched);
        return receive;
    }
    void receive_ended(velo_match_receive_t& face) {
        for (Receive& receive : receives_) {
            if (&receive.face == &face) return ended(receive);
        }
        ADD_FAILURE() << "an unknown receive is done";
    }
    void ended(Receive& receive) {
        EXPECT_FALSE(receive.done) << "a receive is done twice";
        EXPECT_FALSE(receive.cancelled) << "a receive that was cancelled is done";
        EXPECT_EQ(receive.face.status, VELO_OK);
        receive.done = true;
        const velo_match_receive_t& face = receive.face;
        if (rules.got(receive.number, {face.source, face.tag, face.bytes}, world_.now()) < 0) return;
        world_.received(face.source);
        const std::vector<std::byte> data =
            data_of({face.source, rank_, receive.pattern.context, face.tag, face.bytes, false});
        const auto here = static_cast<ptrdiff_t>(std::min(face.bytes, receive.capacity));
        EXPECT_TRUE(std::equal(data.begin(), data.begin() + here, receive.buffer.begin()))
            << "other data, of " << face.bytes << " bytes into " << receive.capacity;
        EXPECT_TRUE(std::all_of(receive.buffer.begin() + here, receive.buffer.end(),
                                [](std::byte byte) { return byte == kUntouched; }))
            << "written behind the end, of " << face.bytes << " bytes into " << receive.capacity;
        std::vector<std::byte>().swap(receive.buffer);
    }
    void cancel_some() {
        if (!receives_.empty()) cancel(receives_[dice_.below(static_cast<uint32_t>(receives_.size()))]);
    }
    /// Cancels a receive that is posted, has matched, is done, or was cancelled already.
    bool cancel(Receive& receive) {
        const bool cancelled = velo_match_cancel(engine_, &receive.face);
        EXPECT_FALSE(cancelled && (receive.done || receive.cancelled));
        if (!cancelled) return false;
        receive.cancelled = true;
        rules.cancelled(receive.number, world_.now());
        return true;
    }
    void probe() {
        const MatchRules::Pattern pattern = dice_.pattern();
        velo_match_status_t status;
        for (uint32_t tries = 1 + dice_.below(6); tries != 0; --tries) {
            if (velo_match_probe(engine_, named(pattern), place(pattern), pattern.tag, &status, nullptr)) {
                rules.probed(pattern, {status.source, status.tag, status.bytes}, world_.now());
                if (dice_.below(2) == 0) receive({pattern.context, status.source, status.tag});
                return;
            }
            world_.progress();
        }
    }
    bool take(const MatchRules::Pattern& pattern) {
        Taken taken = {.message = nullptr, .pattern = pattern, .status = {}, .number = 0};
        if (!velo_match_probe(engine_, named(pattern), place(pattern), pattern.tag, &taken.status, &taken.message))
            return false;
        taken.number = rules.posted(pattern, world_.now());
        taken_.push_back(taken);
        return true;
    }
    void receive_taken() {
        if (taken_.empty()) return;
        const uint32_t at = dice_.below(static_cast<uint32_t>(taken_.size()));
        const Taken taken = taken_[at];
        taken_.erase(taken_.begin() + at);
        Receive& receive = add(taken.pattern, taken.number);
        if (velo_match_receive_message(engine_, taken.message, receive.buffer.data(), receive.capacity,
                                       &receive.face) != 0)
            ended(receive);
        probed_.push_back({&receive, taken.status});
    }

    World& world_;
    Dice& dice_;
    velo_engine_t* engine_;
    int rank_;
    velo_match_host_t host_ = {};
    std::vector<velo_match_peer_t*> peers_;
    std::deque<Send> sends_;
    std::deque<Receive> receives_;
    std::vector<Taken> taken_;
    std::vector<Probed> probed_;
};

}  // namespace velo::test
