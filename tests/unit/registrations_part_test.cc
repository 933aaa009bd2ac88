// Registrations and cookies, each alone: the names by which peers ask for memory, and by which they answer.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <vector>

#include "tests/unit/fake_core.h"
#include "velo/rendezvous/cookie_table.h"
#include "velo/rendezvous/registrations.h"

namespace velo::rma {
namespace {

/// A device that takes registrations, or refuses them.
struct FakeDevice {
    bool takes = true;
    std::vector<uint64_t> registered;
    std::vector<uint64_t> deregistered;

    Status register_memory(void* /*base*/, size_t bytes, Access access, Registration& out) {
        if (!takes) return Status::kNoResource;
        registered.push_back(bytes);
        out = {.nla = 0x7000, .bytes = bytes, .key = 0xd00d + registered.size(), .access = access};
        return Status::kOk;
    }
    Status deregister(const Registration& registration) {
        deregistered.push_back(registration.key);
        return Status::kOk;
    }
};

struct FakeCore : test::PlainCore {
    struct {
        alignas(8) std::array<std::byte, base::AtuTable::bytes_for(2)> shared{};
        base::AtuTable table{shared.data(), 2};
        base::AtuTable& atu() { return table; }
    } on_node;
    std::optional<FakeDevice> device{FakeDevice{}};
};

class RegistrationsAlone : public testing::Test {
  protected:
    Status add(velo_handle_t& handle, uint32_t access = kAccessRead) {
        return registrations_.add(memory_.data(), memory_.size(), access, handle);
    }
    [[nodiscard]] uint64_t base() const { return reinterpret_cast<uint64_t>(memory_.data()); }
    [[nodiscard]] Status translated(const velo_handle_t& handle, uint32_t access) {
        uint64_t address = 0;
        return core_.on_node.table.view().translate(handle.nla[0], handle.bytes, handle.on_node_key, access,
                                                    address);
    }

    std::array<std::byte, 4096> memory_{};
    FakeCore core_;
    Registrations<FakeCore> registrations_{core_};
};

TEST_F(RegistrationsAlone, handle_names_the_memory_on_both_paths_and_checks_itself) {
    velo_handle_t handle{};
    ASSERT_EQ(add(handle), Status::kOk);
    EXPECT_TRUE(names(handle, base(), memory_.size()));
    EXPECT_FALSE(names(handle, base() + 1, memory_.size()));
    EXPECT_EQ(translated(handle, kAccessRead), Status::kOk);
    EXPECT_EQ(translated(handle, kAccessWrite), Status::kAtuFault) << "a right that was not given";
    EXPECT_EQ(handle.nla[1], 0x7000u);
    EXPECT_EQ(handle.device_key, 0xd00eu);
    EXPECT_EQ(core_.counters.registrations, 1u);
    velo_handle_t torn = handle;
    torn.nla[1] ^= 8;
    EXPECT_FALSE(names(torn, base(), 1)) << "half of another handle";
}

TEST_F(RegistrationsAlone, memory_that_the_device_refuses_is_registered_on_the_node_alone) {
    core_.device->takes = false;
    velo_handle_t handle{};
    ASSERT_EQ(add(handle), Status::kOk);
    EXPECT_EQ(handle.device_key, 0u);
    EXPECT_EQ(core_.counters.registrations_refused, 1u);
    EXPECT_EQ(core_.counters.registrations, 1u);
    registrations_.remove(handle);
    EXPECT_TRUE(core_.device->deregistered.empty()) << "it has nothing of it";
}

TEST_F(RegistrationsAlone, full_table_refuses_and_the_device_is_not_asked) {
    velo_handle_t handles[3] = {};
    EXPECT_EQ(add(handles[0]), Status::kOk);
    EXPECT_EQ(add(handles[1]), Status::kOk);
    EXPECT_EQ(add(handles[2]), Status::kNoResource);
    EXPECT_EQ(handles[2].check, 0u) << "nothing has changed";
    EXPECT_EQ(core_.device->registered.size(), 2u);
    EXPECT_EQ(core_.counters.registrations, 2u);
    registrations_.remove(handles[0]);
    EXPECT_EQ(add(handles[2]), Status::kOk);
}

TEST_F(RegistrationsAlone, removed_memory_is_revoked_on_both_paths) {
    velo_handle_t handle{};
    ASSERT_EQ(add(handle), Status::kOk);
    registrations_.remove(handle);
    EXPECT_EQ(translated(handle, kAccessRead), Status::kAtuFault);
    EXPECT_EQ(core_.device->deregistered, std::vector<uint64_t>{handle.device_key});
    EXPECT_DEATH(registrations_.remove(handle), "deregistration of 4096 bytes");
}

TEST_F(RegistrationsAlone, without_a_device_the_node_alone_is_named) {
    core_.device.reset();
    velo_handle_t handle{};
    ASSERT_EQ(add(handle), Status::kOk);
    EXPECT_EQ(handle.device_key, 0u);
    EXPECT_EQ(core_.counters.registrations_refused, 0u);
    registrations_.remove(handle);
    EXPECT_EQ(translated(handle, kAccessRead), Status::kAtuFault);
}

struct Waiting : CookieEntry {
    int value = 7;
};
using Table = CookieTable<Waiting>;

Cookie forged(Cookie cookie, uint32_t index, uint32_t generations) {
    return Cookie{(static_cast<uint32_t>(cookie) & ~0xffffu) + (generations << Table::kIndexBits) + index};
}

TEST(CookieTable, answer_that_comes_late_or_twice_finds_nothing) {
    Table table(4);
    Waiting* const first = table.take();
    const Cookie cookie = first->cookie;
    first->value = 1;
    EXPECT_EQ(table.find(cookie), first);
    table.release(*first);
    EXPECT_EQ(table.find(cookie), nullptr);
    Waiting* const next = table.take();
    ASSERT_EQ(next, first) << "the place is used again";
    EXPECT_EQ(next->value, 7) << "with nothing of the last operation";
    EXPECT_NE(next->cookie, cookie);
    EXPECT_EQ(table.find(cookie), nullptr) << "late";
    EXPECT_EQ(table.find(next->cookie), next);
}

TEST(CookieTable, made_up_cookie_finds_nothing) {
    Table table(100);
    const Cookie cookie = table.take()->cookie;
    EXPECT_EQ(table.find(forged(cookie, 0, 1)), nullptr) << "a generation that comes later";
    EXPECT_EQ(table.find(forged(cookie, 1, 0)), nullptr) << "made with its block, and never taken";
    EXPECT_EQ(table.find(forged(cookie, 99, 0)), nullptr) << "not made";
    EXPECT_EQ(table.find(forged(cookie, 0xffff, 0)), nullptr) << "beyond the table";
    EXPECT_EQ(table.find_index(1), nullptr);
    EXPECT_EQ(table.find_index(0xffff), nullptr);
    EXPECT_NE(table.find(cookie), nullptr);
}

/// Devices hold the index alone.
TEST(CookieTable, index_finds_whatever_generation_is_there_and_nothing_free) {
    Table table(4);
    Waiting* const first = table.take();
    table.release(*first);
    EXPECT_EQ(table.find_index(0), nullptr);
    EXPECT_EQ(table.take(), first);
    EXPECT_EQ(table.find_index(0), first);
    EXPECT_EQ(first->index(), 0u);
}

TEST(CookieTable, full_table_gives_none_and_entries_stay_where_they_are) {
    constexpr uint32_t kCapacity = 150;
    Table table(kCapacity);
    std::vector<Waiting*> taken;
    std::set<uint32_t> cookies;
    for (uint32_t i = 0; i < kCapacity; ++i) {
        taken.push_back(table.take());
        ASSERT_NE(taken.back(), nullptr);
        cookies.insert(static_cast<uint32_t>(taken.back()->cookie));
    }
    EXPECT_TRUE(table.full());
    EXPECT_EQ(table.take(), nullptr);
    EXPECT_EQ(cookies.size(), kCapacity);
    for (Waiting* const one : taken) EXPECT_EQ(table.find(one->cookie), one);
    uint32_t seen = 0;
    table.for_each([&](Waiting& one) {
        ++seen;
        table.release(one);
    });
    EXPECT_EQ(seen, kCapacity);
    EXPECT_EQ(table.taken(), 0u);
}

TEST(CookieTable, generations_wrap_above_the_index) {
    Table table(2);
    table.take();
    Waiting* const second = table.take();
    const Cookie cookie = second->cookie;
    for (uint32_t i = 0; i < 1u << 16; ++i) {
        table.release(*second);
        ASSERT_EQ(table.take(), second);
        ASSERT_EQ(second->index(), 1u);
    }
    EXPECT_EQ(second->cookie, cookie) << "after all generations";
}

TEST(CookieTable, operation_that_ends_twice_is_a_mistake_of_velos_own) {
    Table table(2);
    Waiting* const one = table.take();
    table.release(*one);
    EXPECT_DEATH(table.release(*one), "ends twice");
    EXPECT_DEATH(Table(65537), "65537 entries");
}

}  // namespace
}  // namespace velo::rma
