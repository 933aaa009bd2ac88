/// Conformance: devices in processes of their own, running at once.
///
/// For any device whose constructor and addresses are all that its processes need; `Traits::Device` names it, and
/// `Traits::kPackets` says how many packets a sender that is measured by them sends.
#pragma once

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <optional>

#include "tests/conformance/fabric.h"

namespace velo::conformance {

inline uint64_t clock_ns() {
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

/// Shared by the processes of a test, besides their devices.
struct Board {
    static constexpr size_t kProcesses = 8;
    struct Place {
        PublishedAddress address;
        std::atomic<bool> published;
    };
    Place places[kProcesses];
    std::atomic<uint64_t> words[8];
    Registration registrations[kProcesses];
};

/// The test's process is number 0; the others are its children.
template <class Traits>
class DeviceProcesses : public testing::Test {
  protected:
    using D = typename Traits::Device;
    /// Beyond any test's duration, under sanitizers and on a busy host too.
    static constexpr uint64_t kPatienceNs = 120'000'000'000;

    DeviceProcesses()
        : board_(*static_cast<Board*>(
              mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
    ~DeviceProcesses() override {
        for (const pid_t child : children_) {
            if (child <= 0) continue;
            kill(child, SIGKILL);
            waitpid(child, nullptr, 0);
        }
        munmap(&board_, sizeof(Board));
    }

    /// A process's view of a test.
    struct Process {
        D& device;
        Board& board;
        size_t number;

        /// Progresses until `done()`; ends the process, or fails the test, when that takes too long.
        template <class Done>
        bool drive(Done&& done) {
            const uint64_t end_ns = clock_ns() + kPatienceNs;
            while (!done()) {
                const uint64_t now_ns = clock_ns();
                if (now_ns > end_ns) return false;
                // Two processors serve more processes than two: who has nothing to do lets others work.
                if (device.progress(now_ns) == 0) sched_yield();
            }
            return true;
        }
        /// Progresses until `done()`, while something of a peer's is waited for; false when that takes too
        /// long.
        template <class Done>
        bool drive_watching(DeviceAddr peer, Done&& done) {
            return drive([&] { return health::watch(device, peer), done(); });
        }
        DeviceAddr connect(size_t to) {
            DeviceAddr peer = kNoAddr;
            Board::Place& place = board.places[to];
            drive([&] {
                return place.published.load(std::memory_order_acquire) &&
                       device.connect(place.address.span(), peer) != Status::kAgain;
            });
            return peer;
        }
        bool send(DeviceAddr to, uint32_t sender, uint64_t number_of_packet, uint32_t count) {
            Status status = Status::kAgain;
            return drive([&] {
                       status =
                           send_numbered(device, to, sender, number_of_packet, count, Admission::kGuarded);
                       return status != Status::kAgain;
                   }) &&
                   status == Status::kOk;
        }
        const Packet* receive(DeviceAddr& from) {
            const Packet* packet = nullptr;
            drive([&] { return (packet = device.peek(from)) != nullptr; });
            return packet;
        }
        bool receive_numbered(uint32_t sender, uint64_t number_of_packet) {
            DeviceAddr from = kNoAddr;
            const Packet* packet = receive(from);
            const bool right = packet != nullptr && TestPacket::is(*packet, sender, number_of_packet);
            if (packet != nullptr) device.advance();
            return right;
        }
        Notification run(const RmaOperation& operation) {
            Notification notification = {.status = Status::kProtocol};
            Status status = Status::kAgain;
            drive([&] { return (status = device.post(operation)) != Status::kAgain; });
            if (status == Status::kOk) {
                drive_watching(operation.peer, [&] { return device.poll_notification(notification); });
            }
            return notification;
        }
        /// An operation that the target's CPU executes, where there is one.
        [[nodiscard]] RmaKind served_kind() const {
            return device.traits().atomics ? RmaKind::kFetchAdd : RmaKind::kPut;
        }
        /// Whether an operation has ended as one does whose peer was killed: to a device that does not see
        /// processes, the network may report that it failed before the end is sure.
        [[nodiscard]] bool ended_with_peer(Status status) const {
            return status == Status::kPeerDead || (status == Status::kFailed && !device.traits().sees_processes);
        }
    };
    using Body = std::function<bool(Process&)>;

    static DeviceConfig config(size_t number) {
        return {.node = static_cast<uint16_t>(number),
                .vpid = 1,
                .job_token = 9,
                .mailbox_slots = 61,
                .faults = {},
                .peer_timeout_ns = 2'000'000'000};
    }

    /// Runs `body` as process `number` and publishes its address first.
    static bool run_as(Board& board, size_t number, const Body& body) {
        D device(config(number));
        board.places[number].address = address_of(device);
        board.places[number].published.store(true, std::memory_order_release);
        Process process{device, board, number};
        return body(process);
    }
    /// To be called before the test's own device is opened.
    pid_t spawn(size_t number, const Body& body) {
        const pid_t child = fork();
        if (child == 0) _exit(run_as(board_, number, body) ? 0 : 1);
        children_.push_back(child);
        return child;
    }
    void main(const Body& body) { EXPECT_TRUE(run_as(board_, 0, body)); }
    /// All children ended by themselves and well.
    void join() {
        for (pid_t& child : children_) {
            int status = -1;
            EXPECT_EQ(waitpid(child, &status, 0), child);
            EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "child's status " << status;
            child = 0;
        }
    }

    Board& board_;
    std::vector<pid_t> children_;
};
TYPED_TEST_SUITE_P(DeviceProcesses);

TYPED_TEST_P(DeviceProcesses, concurrent_senders_each_keep_order_and_content) {
    constexpr uint64_t kEach = TypeParam::kPackets;
    constexpr uint32_t kSenders = 3;
    for (uint32_t sender = 1; sender <= kSenders; ++sender) {
        this->spawn(sender, [sender](auto& process) {
            const DeviceAddr to = process.connect(0);
            std::mt19937 random(sender);
            for (uint64_t sent = 0; sent < kEach;) {
                const auto batch = static_cast<uint32_t>(std::min<uint64_t>(1 + random() % 9, kEach - sent));
                if (!process.send(to, sender, sent, batch)) return false;
                sent += batch;
            }
            // Stays until the receiver has everything.
            return process.drive([&] { return process.board.words[0].load() != 0; });
        });
    }
    this->main([](auto& process) {
        std::array<uint64_t, kSenders + 1> seen = {};
        std::array<DeviceAddr, kSenders + 1> names;
        names.fill(kNoAddr);
        for (uint64_t i = 0; i < kSenders * kEach; ++i) {
            DeviceAddr from = kNoAddr;
            const Packet* packet = process.receive(from);
            if (packet == nullptr) return false;
            const uint16_t sender = PacketStatus::unpack(packet->status).node;
            if (sender == 0 || sender > kSenders) return false;
            if (names[sender] == kNoAddr) names[sender] = from;
            EXPECT_EQ(names[sender], from);
            EXPECT_TRUE(TestPacket::is(*packet, sender, seen[sender]));
            ++seen[sender];
            process.device.advance();
        }
        EXPECT_EQ(process.device.counters().packets_received, kSenders * kEach);
        EXPECT_EQ(process.device.counters().packets_unknown_source, 0u);
        EXPECT_EQ(process.device.counters().mailbox_overflows, 0u);
        process.board.words[0] = 1;
        return true;
    });
    this->join();
}

TYPED_TEST_P(DeviceProcesses, two_processes_answer_each_other_for_many_laps) {
    constexpr uint64_t kRounds = 6'000;
    const auto play = [](auto& process, uint32_t other) {
        const auto self = static_cast<uint32_t>(process.number);
        const DeviceAddr to = process.connect(other);
        for (uint64_t round = 0; round < kRounds; ++round) {
            if (self == 0 && !process.send(to, self, round, 1)) return false;
            if (!process.receive_numbered(other, round)) return false;
            if (self == 1 && !process.send(to, self, round, 1)) return false;
        }
        return true;
    };
    this->spawn(1, [play](auto& process) {
        // The other side reads the last answer after we have ended: it is in its own memory.
        return play(process, 0);
    });
    this->main([play](auto& process) { return play(process, 1); });
    this->join();
}

TYPED_TEST_P(DeviceProcesses, puts_and_gets_cross_processes) {
    constexpr uint32_t kBytes = 5'000'001;
    this->spawn(1, [](auto& process) {
        std::vector<std::byte> memory(kBytes);
        for (size_t i = 0; i < kBytes; ++i) memory[i] = static_cast<std::byte>(i * 7 + i / 251);
        if (process.device.register_memory(memory.data(), kBytes, kAccessAny,
                                           process.board.registrations[1]) != Status::kOk) {
            return false;
        }
        process.connect(0);
        process.board.words[0] = 1;
        const bool notified = process.device.traits().notifies_targets;
        Notification notification = {.value = kBytes, .kind = kNotifyCompleter};
        if (!process.drive([&] {
                return notified ? process.device.poll_notification(notification) : process.board.words[1] == 1;
            })) {
            return false;
        }
        // All bytes of the put are here when its completer's notification is, or its requester's.
        for (size_t i = 0; i < kBytes; ++i) {
            if (memory[i] != static_cast<std::byte>(i * 11 + 3)) return false;
        }
        return notification.kind == kNotifyCompleter && notification.value == kBytes;
    });
    this->main([](auto& process) {
        const DeviceAddr peer = process.connect(1);
        process.drive([&] { return process.board.words[0].load() == 1; });
        const Registration registration = process.board.registrations[1];
        std::vector<std::byte> local(kBytes);
        RmaOperation operation = {.kind = RmaKind::kGet,
                                  .peer = peer,
                                  .local = local.data(),
                                  .nla = registration.nla,
                                  .key = registration.key,
                                  .bytes = kBytes};
        EXPECT_EQ(process.run(operation).status, Status::kOk);
        for (size_t i = 0; i < kBytes; ++i) {
            if (local[i] != static_cast<std::byte>(i * 7 + i / 251)) return false;
            local[i] = static_cast<std::byte>(i * 11 + 3);
        }
        operation.kind = RmaKind::kPut;
        operation.notify = kNotifyRequester;
        if (process.device.traits().notifies_targets) operation.notify |= kNotifyCompleter;
        EXPECT_EQ(process.run(operation).status, Status::kOk);
        process.board.words[1] = 1;
        return true;
    });
    this->join();
}

/// The child is killed in the middle of sending, and stays a zombie until the end of the test.
TYPED_TEST_P(DeviceProcesses, a_killed_process_is_noticed_and_its_operations_end) {
    const pid_t victim = this->spawn(1, [](auto& process) {
        const DeviceAddr to = process.connect(0);
        std::vector<std::byte> memory(4096);
        if (process.device.register_memory(memory.data(), 4096, kAccessAny, process.board.registrations[1]) !=
            Status::kOk) {
            return false;
        }
        process.board.words[0] = 1;
        for (uint64_t number = 0;; number += 3) process.send(to, 1, number, 3);
        return true;
    });
    this->main([victim](auto& process) {
        const DeviceAddr peer = process.connect(1);
        process.drive([&] { return process.board.words[0].load() == 1; });
        const Registration registration = process.board.registrations[1];
        uint64_t read = 0;
        for (; read < 5'000; ++read) {
            if (!process.receive_numbered(1, read)) return false;
        }
        EXPECT_TRUE(process.device.alive(peer));
        kill(victim, SIGKILL);
        siginfo_t info;
        waitid(P_PID, static_cast<id_t>(victim), &info, WEXITED | WNOWAIT);
        std::byte local[64];
        for (uint16_t cookie = 0; cookie < 4; ++cookie) {
            const RmaOperation operation = {.kind = cookie % 2 == 0 ? RmaKind::kGet : process.served_kind(),
                                            .cookie = cookie,
                                            .peer = peer,
                                            .local = local,
                                            .nla = registration.nla,
                                            .key = registration.key,
                                            .bytes = 8};
            EXPECT_TRUE(process.ended_with_peer(process.run(operation).status));
        }
        const uint64_t begin_ns = clock_ns();
        EXPECT_TRUE(process.drive_watching(peer, [&] { return !process.device.alive(peer); }));
        EXPECT_LT(clock_ns() - begin_ns, 5'000'000'000u);
        EXPECT_EQ(send_numbered(process.device, peer, 0, 0, 1), Status::kPeerDead);
        // Packets of the killed process are still there, in order.
        DeviceAddr from = kNoAddr;
        while (const Packet* packet = process.device.peek(from)) {
            EXPECT_TRUE(TestPacket::is(*packet, 1, read++));
            process.device.advance();
        }
        return true;
    });
}

/// A target is in progress() all the time, and may have a part of what is moved in hand when it is killed.
TYPED_TEST_P(DeviceProcesses, a_target_that_is_killed_while_long_operations_move_ends_them) {
    constexpr uint32_t kBytes = 1u << 20;
    constexpr size_t kVictims = 6;
    std::array<pid_t, kVictims + 1> victims = {};
    for (size_t number = 1; number <= kVictims; ++number) {
        victims[number] = this->spawn(number, [number](auto& process) {
            std::vector<std::byte> memory(kBytes, static_cast<std::byte>(number));
            if (process.device.register_memory(memory.data(), kBytes, kAccessAny,
                                               process.board.registrations[number]) != Status::kOk) {
                return false;
            }
            process.connect(0);
            process.board.words[0] += 1;
            return process.drive([] { return false; });
        });
    }
    this->main([&victims](auto& process) {
        std::array<DeviceAddr, kVictims + 1> peers;
        for (size_t number = 1; number <= kVictims; ++number) peers[number] = process.connect(number);
        process.drive([&] { return process.board.words[0].load() == kVictims; });
        std::vector<std::byte> local(4 * kBytes);
        for (size_t number = 1; number <= kVictims; ++number) {
            const Registration registration = process.board.registrations[number];
            uint64_t ended = 0;
            uint32_t outstanding = 0;
            bool dead = false;
            while (!dead || outstanding != 0) {
                if (!dead && outstanding < 4) {
                    const RmaOperation operation = {.kind = number % 2 == 0 ? RmaKind::kGet : RmaKind::kPut,
                                                    .peer = peers[number],
                                                    .local = local.data() + outstanding * kBytes,
                                                    .nla = registration.nla,
                                                    .key = registration.key,
                                                    .bytes = kBytes};
                    EXPECT_EQ(process.device.post(operation), Status::kOk);
                    ++outstanding;
                }
                Notification notification;
                if (!process.drive_watching(peers[number],
                                            [&] { return process.device.poll_notification(notification); }))
                    return false;
                --outstanding;
                if (++ended == 3 * number) kill(victims[number], SIGKILL);
                if (notification.status == Status::kOk) continue;
                EXPECT_TRUE(process.ended_with_peer(notification.status));
                dead = true;
            }
            EXPECT_GE(ended, 3 * number);
        }
        return true;
    });
}

REGISTER_TYPED_TEST_SUITE_P(DeviceProcesses, concurrent_senders_each_keep_order_and_content,
                            two_processes_answer_each_other_for_many_laps, puts_and_gets_cross_processes,
                            a_killed_process_is_noticed_and_its_operations_end,
                            a_target_that_is_killed_while_long_operations_move_ends_them);

/// Without DeviceTraits::sees_processes: who ends is found out by silence, which those that are stopped keep as well.
template <class Traits>
class DeviceStops : public DeviceProcesses<Traits> {};
TYPED_TEST_SUITE_P(DeviceStops);

TYPED_TEST_P(DeviceStops, a_process_that_is_stopped_for_less_than_the_timeout_has_not_ended) {
    constexpr uint64_t kStoppedNs = 1'000'000'000;  // half the timeout
    const pid_t stopped = this->spawn(1, [](auto& process) {
        const DeviceAddr to = process.connect(0);
        if (!process.send(to, 1, 0, 1) || !process.receive_numbered(0, 0)) return false;
        // The process waits for its peer while it is stopped, and does not hear from it then.
        if (!process.drive_watching(to, [&] { return process.board.words[0].load() == 1; })) return false;
        return process.device.alive(to) && process.receive_numbered(0, 1);
    });
    this->main([stopped](auto& process) {
        const DeviceAddr peer = process.connect(1);
        if (!process.receive_numbered(1, 0) || !process.send(peer, 0, 0, 1)) return false;
        for (int times = 0; times < 3; ++times) {
            kill(stopped, SIGSTOP);
            const uint64_t end_ns = clock_ns() + kStoppedNs;
            process.drive_watching(peer, [&] { return clock_ns() >= end_ns; });
            kill(stopped, SIGCONT);
            EXPECT_TRUE(process.device.alive(peer));
            const uint64_t heard_ns = clock_ns() + kStoppedNs / 2;
            process.drive_watching(peer, [&] { return clock_ns() >= heard_ns; });
        }
        process.board.words[0] = 1;
        EXPECT_TRUE(process.send(peer, 0, 1, 1));
        EXPECT_TRUE(process.drive([&] { return !process.device.alive(peer); })) << "it says when it closes";
        EXPECT_EQ(process.device.announced_ending(peer), base::Ending::kClosed);
        return true;
    });
    this->join();
}

REGISTER_TYPED_TEST_SUITE_P(DeviceStops, a_process_that_is_stopped_for_less_than_the_timeout_has_not_ended);

/// Suites for devices with DeviceTraits::atomics.
template <class Traits>
class DeviceProcessAtomics : public DeviceProcesses<Traits> {};
TYPED_TEST_SUITE_P(DeviceProcessAtomics);

TYPED_TEST_P(DeviceProcessAtomics, additions_of_processes_and_of_the_owner_sum_up) {
    constexpr uint64_t kEach = 5'000;
    constexpr size_t kRequesters = 3;
    for (size_t number = 1; number <= kRequesters; ++number) {
        this->spawn(number, [](auto& process) {
            const DeviceAddr peer = process.connect(0);
            process.drive([&] { return process.board.words[0].load() == 1; });
            const Registration registration = process.board.registrations[0];
            const RmaOperation add = {.kind = RmaKind::kFetchAdd,
                                      .peer = peer,
                                      .nla = registration.nla,
                                      .key = registration.key,
                                      .bytes = 8,
                                      .operand = 1};
            uint64_t ended = 0;
            for (uint64_t posted = 0; ended < kEach;) {
                if (posted < kEach && process.device.post(add) == Status::kOk) ++posted;
                Notification notification;
                process.device.progress(clock_ns());
                while (process.device.poll_notification(notification)) {
                    if (notification.status != Status::kOk) return false;
                    ++ended;
                }
            }
            process.board.words[1] += 1;
            return true;
        });
    }
    this->main([](auto& process) {
        alignas(8) uint64_t word = 0;
        EXPECT_EQ(process.device.register_memory(&word, 8, kAccessAtomic, process.board.registrations[0]),
                  Status::kOk);
        process.board.words[0] = 1;
        uint64_t own = 0;
        process.drive([&] {
            std::atomic_ref(word).fetch_add(1);
            ++own;
            return process.board.words[1].load() == kRequesters;
        });
        EXPECT_EQ(word, own + kRequesters * kEach);
        return true;
    });
    this->join();
}

REGISTER_TYPED_TEST_SUITE_P(DeviceProcessAtomics, additions_of_processes_and_of_the_owner_sum_up);

}  // namespace velo::conformance
