// The software EXTOLL device's additions to the contract, and its reactions when peers misbehave or die.
#include "sim_device/shim/shim_device.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>

namespace velo::shim {
namespace {

constexpr uint64_t kPatienceNs = 60'000'000'000;

struct Published {
    std::byte bytes[kDeviceAddressBytesMax];
    size_t length;
    std::atomic<bool> ready;
    std::atomic<int> step;
    [[nodiscard]] std::span<const std::byte> span() const { return {bytes, length}; }
};

Published& shared_board() {
    static Published& board = *static_cast<Published*>(
        mmap(nullptr, sizeof(Published), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return board;
}

DeviceConfig config(uint16_t node, uint32_t mailbox_slots = 16) {
    return {.node = node, .job_token = 5, .mailbox_slots = mailbox_slots, .faults = {}};
}

/// The device's log is added to `text`.
DeviceConfig logging(DeviceConfig config, std::string& text) {
    config.log = {.write = [](void* to, int, const char* line) { *static_cast<std::string*>(to) += line; },
                  .context = &text};
    return config;
}

DeviceAddr connect(ShimDevice& from, ShimDevice& to) {
    Published address;
    address.length = to.address(address.bytes);
    DeviceAddr peer = kNoAddr;
    EXPECT_EQ(from.connect(address.span(), peer), Status::kOk);
    return peer;
}

/// The address as it is published: for tests that put garbage into a segment.
base::SegmentAddress segment_of(const ShimDevice& device) {
    std::byte bytes[kDeviceAddressBytesMax];
    device.address(bytes);
    base::SegmentAddress address;
    std::memcpy(&address, bytes + sizeof(uint64_t), sizeof address);
    return address;
}

PacketStatus no_payload(uint32_t, std::byte*) {
    return {};
}

template <class Done>
bool wait_for(Done&& done) {
    const auto clock_ns = [] {
        return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    };
    for (const uint64_t end_ns = clock_ns() + kPatienceNs; !done();) {
        if (clock_ns() > end_ns) return false;
        sched_yield();
    }
    return true;
}

/// Time as progress() gets it; a test may let it go by.
struct Clock {
    uint64_t now_ns = 0;
    uint64_t tick() { return now_ns += 1'000'000; }
};

TEST(ShimDevice, settings_that_cannot_be_are_refused_with_the_reason) {
    const auto refusal = [](DeviceConfig wanted) -> std::string {
        try {
            ShimDevice device(wanted);
        } catch (const base::SetupError& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_NE(refusal({.ports = 0, .faults = {}}).find("1 to 8 ports"), std::string::npos);
    EXPECT_NE(refusal({.ports = 9, .faults = {}}).find("not 9"), std::string::npos);
    EXPECT_NE(refusal({.mailbox_slots = UINT32_MAX, .faults = {}}).find("4294967295"), std::string::npos);
    EXPECT_NE(refusal({.faults = "nonsense=1"}).find("nonsense"), std::string::npos);
    EXPECT_EQ(refusal({.ports = 8, .faults = {}}), "");
}

TEST(ShimDevice, a_process_without_mailbox_sends_and_is_not_sent_to) {
    ShimDevice without(config(1, 0));
    ShimDevice with(config(2));
    const DeviceAddr to_with = connect(without, with);
    const DeviceAddr to_without = connect(with, without);
    EXPECT_EQ(with.send(to_without, 1, Admission::kCredited, no_payload), Status::kUnsupported);
    EXPECT_EQ(with.send(to_without, 1, Admission::kGuarded, no_payload), Status::kUnsupported);
    EXPECT_EQ(without.send(to_with, 1, Admission::kCredited, no_payload), Status::kOk);
    DeviceAddr from = kNoAddr;
    EXPECT_NE(with.peek(from), nullptr);
    EXPECT_EQ(without.peek(from), nullptr);
}

TEST(ShimDevice, a_batch_of_none_or_more_than_a_mailbox_is_a_bad_parameter) {
    ShimDevice first(config(1));
    ShimDevice second(config(2, 5));
    const DeviceAddr to = connect(first, second);
    for (const Admission admission : {Admission::kCredited, Admission::kGuarded}) {
        EXPECT_EQ(first.send(to, 0, admission, no_payload), Status::kBadParam);
        EXPECT_EQ(first.send(to, 6, admission, no_payload), Status::kBadParam);
        EXPECT_EQ(first.send(to, UINT32_MAX, admission, no_payload), Status::kBadParam);
    }
    EXPECT_EQ(first.send(to, 5, Admission::kGuarded, no_payload), Status::kOk);
}

TEST(ShimDevice, a_process_may_talk_to_itself) {
    ShimDevice device(config(1));
    const DeviceAddr self = connect(device, device);
    ASSERT_EQ(device.send(self, 3, Admission::kGuarded, no_payload), Status::kOk);
    DeviceAddr from = kNoAddr;
    for (int i = 0; i < 3; ++i) {
        ASSERT_NE(device.peek(from), nullptr);
        EXPECT_EQ(from, self);
        device.advance();
    }
    uint64_t word = 4;
    Registration registration;
    ASSERT_EQ(device.register_memory(&word, 8, kAccessAny, registration), Status::kOk);
    ASSERT_EQ(device.post({.kind = RmaKind::kFetchAdd,
                           .peer = self,
                           .nla = registration.nla,
                           .key = registration.key,
                           .bytes = 8,
                           .operand = 3}),
              Status::kOk);
    Notification notification;
    for (uint64_t i = 0; i < 4 && !device.poll_notification(notification); ++i) device.progress(i);
    EXPECT_EQ(notification.value, 4u);
    EXPECT_EQ(word, 7u);
}

TEST(ShimDevice, a_name_that_is_taken_is_refused_while_its_bearer_lives) {
    std::string text;
    ShimDevice device(logging(config(1), text));
    auto bearer = std::make_unique<ShimDevice>(config(2));
    const DeviceAddr first = connect(device, *bearer);
    ShimDevice second(config(2));
    Published address;
    address.length = second.address(address.bytes);
    DeviceAddr peer = kNoAddr;
    EXPECT_EQ(device.connect(address.span(), peer), Status::kUnsupported);
    EXPECT_NE(text.find("node 2, VPID 0"), std::string::npos) << text;
    bearer.reset();
    device.progress(ShimDevice::kLifeCheckNs);
    EXPECT_EQ(device.connect(address.span(), peer), Status::kOk);
    EXPECT_NE(peer, first);
    EXPECT_FALSE(device.alive(first));
    EXPECT_TRUE(device.alive(peer));
    const DeviceAddr back = connect(second, device);
    ASSERT_EQ(second.send(back, 1, Admission::kGuarded, no_payload), Status::kOk);
    DeviceAddr from = kNoAddr;
    ASSERT_NE(device.peek(from), nullptr);
    EXPECT_EQ(from, peer);
}

/// Packets, requests, answers, notifications and contacts that no device would write.
TEST(ShimDevice, what_strangers_and_liars_write_is_dropped_and_counted) {
    ShimDevice victim(config(1));
    ShimDevice honest(config(2));
    const DeviceAddr to = connect(honest, victim);
    victim.progress(1);
    base::SharedSegment segment;
    ASSERT_EQ(base::SharedSegment::attach(segment_of(victim), segment), Status::kOk);
    const SegmentView view(segment.bytes().data(), Layout(16, 1));

    MailboxWriter stranger(view.mailbox_control(), view.slots(), 16);
    stranger.write(5, source_id(77, 7), no_payload);
    ASSERT_EQ(honest.send(to, 1, Admission::kCredited, no_payload), Status::kOk);
    DeviceAddr from = kNoAddr;
    ASSERT_NE(victim.peek(from), nullptr);
    EXPECT_EQ(victim.peer(from).node, 2);
    EXPECT_EQ(victim.counters().packets_unknown_source, 5u);
    victim.advance();

    alignas(8) std::byte memory[16] = {};
    Registration registration;
    ASSERT_EQ(victim.register_memory(memory, 16, kAccessAny, registration), Status::kOk);
    const Request base = {.nla = registration.nla,
                          .operand = UINT64_MAX,
                          .key = static_cast<uint32_t>(registration.key),
                          .node = 2,
                          .kind = static_cast<uint8_t>(RmaKind::kImmediatePut),
                          .bytes = 8};
    std::vector<Request> requests(8, base);
    requests[0].node = 77;  // never connected
    requests[1].kind = 200;
    requests[2].kind = static_cast<uint8_t>(RmaKind::kGet);
    requests[3].bytes = 9;
    requests[4].bytes = 0;
    requests[5].key += 2;
    requests[6].kind = static_cast<uint8_t>(RmaKind::kFetchAdd), requests[6].nla += 4;
    requests[7].nla += 9;
    RequestRing ring = view.requests(0);
    for (const Request& request : requests) ASSERT_EQ(ring.push(request), Status::kOk);
    AnswerRing answers = view.answers();
    for (uint32_t id : {0u, 1u, 255u, 256u, UINT32_MAX}) {
        ASSERT_EQ(answers.push({.value = 1, .operation_id = id, .node = 2, .vpid = 0, .status = 0}),
                  Status::kOk);
    }
    NotificationRing notifications = view.notifications();
    ASSERT_EQ(notifications.push({.node = 77, .kind = kNotifyCompleter}), Status::kOk);
    ASSERT_EQ(notifications.push({.node = 2, .kind = kNotifyRequester}), Status::kOk);
    ASSERT_EQ(
        notifications.push({.node = 2, .kind = kNotifyCompleter, .operation = static_cast<RmaKind>(99)}),
        Status::kOk);
    ASSERT_EQ(notifications.push({.node = 2, .kind = static_cast<Notify>(7)}), Status::kOk);
    ContactRing contacts = view.contacts();
    base::SegmentAddress nonsense = segment_of(honest);
    nonsense.token ^= 1;
    ASSERT_EQ(contacts.push({.segment = {}}), Status::kOk);
    ASSERT_EQ(contacts.push({.segment = nonsense}), Status::kOk);
    for (uint64_t i = 2; i < 6; ++i) victim.progress(i);
    Notification notification;
    EXPECT_FALSE(victim.poll_notification(notification));
    for (const std::byte byte : memory) EXPECT_EQ(byte, std::byte{0});
    EXPECT_EQ(victim.counters().packets_unknown_source, 6u);
    EXPECT_EQ(victim.shim_counters().contacts_refused, 2u);
    // Four requests that make no sense, five answers and four notifications.
    EXPECT_EQ(victim.shim_counters().malformed, 4u + 5 + 4);
    // The answers that the requests got name no operation of the honest process. An offer gets none.
    honest.progress(1);
    EXPECT_FALSE(honest.poll_notification(notification));
    EXPECT_EQ(honest.shim_counters().malformed, 6u);
}

TEST(ShimDevice, a_table_that_peers_overwrite_does_not_open_memory_to_atomics) {
    ShimDevice victim(config(1));
    ShimDevice liar(config(2));
    const DeviceAddr to = connect(liar, victim);
    uint64_t secret = 7;
    uint64_t open = 0;
    Registration registration;
    ASSERT_EQ(victim.register_memory(&open, 8, kAccessAny, registration), Status::kOk);
    base::SharedSegment segment;
    ASSERT_EQ(base::SharedSegment::attach(segment_of(victim), segment), Status::kOk);
    const SegmentView view(segment.bytes().data(), Layout(16, 1));
    auto& entry =
        reinterpret_cast<base::AtuEntry*>(view.atu_memory())[registration.nla >> base::kNlaOffsetBits];
    entry.base = reinterpret_cast<uint64_t>(&secret);
    ASSERT_EQ(liar.post({.kind = RmaKind::kFetchAdd,
                         .peer = to,
                         .nla = registration.nla,
                         .key = registration.key,
                         .bytes = 8,
                         .operand = 1}),
              Status::kOk);
    for (uint64_t i = 0; i < 4; ++i) {
        liar.progress(i);
        victim.progress(i);
    }
    EXPECT_EQ(secret, 7u);
    EXPECT_EQ(open, 1u);
}

TEST(ShimDevice, overflow_is_counted_reported_once_and_survived) {
    ShimDevice sender(config(1));
    std::string text;
    ShimDevice receiver(logging(config(2, 4), text));
    const DeviceAddr to = connect(sender, receiver);
    for (int i = 0; i < 7; ++i) ASSERT_EQ(sender.send(to, 1, Admission::kCredited, no_payload), Status::kOk);
    DeviceAddr from = kNoAddr;
    for (int i = 0; i < 4; ++i) {
        ASSERT_NE(receiver.peek(from), nullptr);
        receiver.advance();
    }
    EXPECT_EQ(receiver.peek(from), nullptr);
    EXPECT_EQ(receiver.counters().mailbox_overflows, 3u);
    receiver.progress(1);
    for (int i = 0; i < 6; ++i) ASSERT_EQ(sender.send(to, 1, Admission::kCredited, no_payload), Status::kOk);
    ASSERT_NE(receiver.peek(from), nullptr);
    EXPECT_EQ(receiver.counters().mailbox_overflows, 5u);
    receiver.progress(1 + ShimDevice::kLifeCheckNs);
    EXPECT_NE(text.find("node 2, VPID 0"), std::string::npos) << text;
    EXPECT_EQ(text.find("internal error"), text.rfind("internal error"));
}

/// A child that connects to the device on the board and runs `body`; ends with 0 when that returns true.
pid_t spawn(uint16_t node, const std::function<bool(ShimDevice&, DeviceAddr)>& body) {
    const pid_t child = fork();
    if (child != 0) return child;
    ShimDevice device(config(node));
    DeviceAddr to = kNoAddr;
    if (!wait_for([] { return shared_board().ready.load(); })) _exit(2);
    if (device.connect(shared_board().span(), to) != Status::kOk) _exit(3);
    _exit(body(device, to) ? 0 : 1);
}

void publish(const ShimDevice& device) {
    Published& board = shared_board();
    board.length = device.address(board.bytes);
    board.ready = true;
}

class ShimDeaths : public testing::Test {
  protected:
    ShimDeaths() {
        shared_board().ready = false;
        shared_board().step = 0;
    }
    static void ended(pid_t child, bool well) {
        int status = -1;
        waitpid(child, &status, 0);
        EXPECT_EQ(WIFEXITED(status) && WEXITSTATUS(status) == 0, well) << status;
    }
};

TEST_F(ShimDeaths, slots_that_a_killed_sender_had_claimed_do_not_hold_up_the_others) {
    const pid_t killed = spawn(1, [](ShimDevice& device, DeviceAddr to) {
        shared_board().step = -1;
        if (!wait_for([] { return shared_board().step.load() == -2; })) return true;
        (void)device.send(to, 4, Admission::kCredited, [](uint32_t i, std::byte*) {
            if (i == 2) raise(SIGKILL);
            return PacketStatus{.tag = static_cast<uint8_t>(i)};
        });
        return true;
    });
    const pid_t survivor = spawn(2, [](ShimDevice& device, DeviceAddr to) {
        if (!wait_for([] { return shared_board().step.load() == 1; })) return false;
        const auto fill = [](uint32_t, std::byte*) { return PacketStatus{.tag = 9}; };
        if (device.send(to, 1, Admission::kGuarded, fill) != Status::kOk) return false;
        shared_board().step = 2;
        return wait_for([] { return shared_board().step.load() == 3; });
    });
    ShimDevice device(config(0));
    publish(device);
    ASSERT_TRUE(wait_for([] { return shared_board().step.load() == -1; }));
    Clock clock;
    // It is known before it dies.
    while (device.shim_counters().contacts_accepted < 2) device.progress(clock.tick());
    shared_board().step = -2;
    ended(killed, false);
    shared_board().step = 1;
    ASSERT_TRUE(wait_for([] { return shared_board().step.load() == 2; }));
    std::vector<uint8_t> tags;
    for (int i = 0; i < 500; ++i) {
        DeviceAddr from = kNoAddr;
        device.progress(clock.tick());
        while (const Packet* packet = device.peek(from)) {
            tags.push_back(PacketStatus::unpack(packet->status).tag);
            device.advance();
        }
    }
    // Of the four packets none comes without those before it: the end of a message is no message.
    ASSERT_FALSE(tags.empty());
    EXPECT_EQ(tags.back(), 9);
    for (size_t i = 0; i + 1 < tags.size(); ++i) EXPECT_EQ(tags[i], i);
    EXPECT_LE(tags.size(), 4u);
    EXPECT_EQ(device.shim_counters().abandoned_claims, 1u);
    EXPECT_EQ(device.counters().mailbox_overflows, 0u);
    shared_board().step = 3;
    ended(survivor, true);
}

/// A mailbox with contact slots, and the raw count of those that are taken.
struct ContactMailbox {
    static constexpr uint32_t kSlots = 16, kContacts = 3;

    ContactMailbox() : device(settings()) {
        EXPECT_EQ(base::SharedSegment::attach(segment_of(device), segment), Status::kOk);
    }
    static DeviceConfig settings() {
        DeviceConfig of = config(0, kSlots);
        of.contact_slots = kContacts;
        return of;
    }
    std::atomic<uint32_t>& taken() {
        return SegmentView(segment.bytes().data(), Layout(kSlots, 1)).mailbox_control()->contacts;
    }
    /// Reads what there is for that long. Returns how many packets.
    uint32_t run(int milliseconds) {
        uint32_t packets = 0;
        for (int i = 0; i < milliseconds; ++i) {
            DeviceAddr from = kNoAddr;
            device.progress(clock.tick());
            for (; device.peek(from) != nullptr; device.advance()) ++packets;
        }
        return packets;
    }

    ShimDevice device;
    base::SharedSegment segment;
    Clock clock;
};

TEST_F(ShimDeaths, contact_slots_of_senders_that_were_killed_come_back) {
    const pid_t killed = spawn(1, [](ShimDevice& device, DeviceAddr to) {
        (void)device.send(to, 1, Admission::kContact, [](uint32_t, std::byte*) {
            shared_board().step = 1;
            wait_for([] { return shared_board().step.load() == 2; });
            raise(SIGKILL);
            return PacketStatus{.contact = true};
        });
        return true;
    });
    ContactMailbox mailbox;
    publish(mailbox.device);
    ASSERT_TRUE(wait_for([] { return shared_board().step.load() == 1; }));
    ++mailbox.taken();  // and one that died before it claimed a place for its packet
    mailbox.run(500);
    EXPECT_EQ(mailbox.taken(), 2u) << "a slow sender was taken for a dead one";
    shared_board().step = 2;
    ended(killed, false);
    EXPECT_EQ(mailbox.run(500), 0u);
    EXPECT_EQ(mailbox.taken(), 0u);
}

TEST_F(ShimDeaths, contact_slots_that_packets_free_meanwhile_are_not_freed_again) {
    ContactMailbox mailbox;
    ShimDevice sender(config(1));
    const DeviceAddr to = connect(sender, mailbox.device);
    mailbox.run(1);
    const auto fill = [](uint32_t, std::byte*) { return PacketStatus{.end_of_message = true, .contact = true}; };
    ++mailbox.taken();  // its sender has died
    for (int i = 0; i < 50; ++i) {
        ASSERT_EQ(sender.send(to, 1, Admission::kContact, fill), Status::kOk);
        ASSERT_EQ(mailbox.taken(), 2u);
        ASSERT_EQ(mailbox.run(7), 1u);
        ASSERT_EQ(mailbox.taken(), 1u);
    }
    // With nothing freed meanwhile it is certain.
    mailbox.run(500);
    EXPECT_EQ(mailbox.taken(), 0u);
    // Those of packets that are not read stay.
    for (uint32_t i = 0; i < ContactMailbox::kContacts; ++i) {
        ASSERT_EQ(sender.send(to, 1, Admission::kContact, fill), Status::kOk);
    }
    for (int i = 0; i < 500; ++i) mailbox.device.progress(mailbox.clock.tick());
    EXPECT_EQ(mailbox.taken(), ContactMailbox::kContacts);
    EXPECT_EQ(sender.send(to, 1, Admission::kContact, fill), Status::kAgain);
}

TEST_F(ShimDeaths, a_slow_sender_is_never_taken_for_a_dead_one) {
    const pid_t killed = spawn(1, [](ShimDevice&, DeviceAddr) { return raise(SIGKILL) == 0; });
    const pid_t slow = spawn(2, [](ShimDevice& device, DeviceAddr to) {
        return device.send(to, 2, Admission::kCredited, [](uint32_t i, std::byte*) {
            if (i == 1) {
                shared_board().step = 1;
                wait_for([] { return shared_board().step.load() == 2; });
            }
            return PacketStatus{.tag = static_cast<uint8_t>(i)};
        }) == Status::kOk;
    });
    ShimDevice device(config(0));
    publish(device);
    ended(killed, false);
    ASSERT_TRUE(wait_for([] { return shared_board().step.load() == 1; }));
    Clock clock;
    std::vector<uint8_t> tags;
    const auto read = [&] {
        DeviceAddr from = kNoAddr;
        device.progress(clock.tick());
        while (const Packet* packet = device.peek(from)) {
            tags.push_back(PacketStatus::unpack(packet->status).tag);
            device.advance();
        }
    };
    for (int i = 0; i < 5'000; ++i) read();
    EXPECT_LE(tags.size(), 1u);
    shared_board().step = 2;
    ended(slow, true);
    read();
    EXPECT_EQ(tags, (std::vector<uint8_t>{0, 1}));
    EXPECT_EQ(device.shim_counters().abandoned_claims, 0u);
}

TEST_F(ShimDeaths, memory_unmapped_under_its_registration_is_bad) {
    void* memory = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ShimDevice owner(config(0));
    ShimDevice reader(config(1));
    const DeviceAddr peer = connect(reader, owner);
    Registration registration;
    ASSERT_EQ(owner.register_memory(memory, 8192, kAccessAny, registration), Status::kOk);
    munmap(static_cast<std::byte*>(memory) + 4096, 4096);
    std::vector<std::byte> local(8192);
    ASSERT_EQ(reader.post({.peer = peer,
                           .local = local.data(),
                           .nla = registration.nla,
                           .key = registration.key,
                           .bytes = 8192}),
              Status::kOk);
    Notification notification;
    for (uint64_t i = 0; i < 5 && !reader.poll_notification(notification); ++i) reader.progress(i);
    EXPECT_EQ(notification.status, Status::kBadMemory);
    EXPECT_EQ(notification.value, 0u);
    munmap(memory, 4096);
}

TEST_F(ShimDeaths, a_child_of_fork_that_closes_its_copy_does_not_close_the_device) {
    auto device = std::make_unique<ShimDevice>(config(0));
    ShimDevice peer(config(1));
    const DeviceAddr to = connect(peer, *device);
    const pid_t child = fork();
    if (child == 0) {
        device.reset();
        _exit(0);
    }
    ended(child, true);
    peer.progress(ShimDevice::kLifeCheckNs);
    EXPECT_TRUE(peer.alive(to));
    EXPECT_EQ(peer.send(to, 1, Admission::kGuarded, no_payload), Status::kOk);
    DeviceAddr from = kNoAddr;
    EXPECT_NE(device->peek(from), nullptr);
}

TEST(SourceIndex, finds_each_of_many_and_nobody_else) {
    SourceIndex index;
    for (uint32_t i = 0; i < 5'000; ++i) index.set(i * 65536 % 0xffffff + i, DeviceAddr(i));
    for (uint32_t i = 0; i < 5'000; ++i) EXPECT_EQ(index.find(i * 65536 % 0xffffff + i), i);
    EXPECT_EQ(index.find(0xfffffe), kNoAddr);
    index.set(0, 77);
    EXPECT_EQ(index.find(0), 77u);
}

TEST(ShimSizes, a_peer_costs_little) {
    EXPECT_LE(sizeof(Peer), 320u);
    EXPECT_LE(Layout(0, 1).bytes, 160u * 1024);
}

}  // namespace
}  // namespace velo::shim
