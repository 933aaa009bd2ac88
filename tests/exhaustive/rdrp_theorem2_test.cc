// RDRP 3.1: table 1's seven receive orders, and the search over match bits by which theorem 2 is proven.
//
// Two sends have entries of match and ignore bits, which the sender chooses alone. Two receives fetch by
// match bits, which the receiver chooses alone, from its tag, its place and the tag of the receive before it.
// A combination of entries is viable when in all seven orders each receive fetches from the send that MPI
// matches it with.
//
// The paper finds no viable combination among 2^36. The last row of its table is printed wrong: (t2, any)
// matches s2 and s1, not s1 and s2. The search says this:
//
//   last row   entries                    r2 of (any, t1)     viable of 2^36
//   printed    either reading             either reading      0
//   MPI's      first in the list fits     may fetch anything  73,728
//   MPI's      first in the list fits     must find nothing   24,576
//   MPI's      exactly one of them fits   either reading      0
//
// The printed row contradicts the second one, so with it the 0 says nothing about match bits. With MPI's row,
// and with a list as Portals has it, the search does not prove the theorem for two sends whose tags are
// known.
//
// It does not refute the theorem either. In a viable combination the first entry rejects the second send's
// tag, which its sender does not know yet when it posts that entry. With tags of any number there is no such
// combination, but that is an argument and no result of this search. velo depends on neither: it fetches by
// an address and a key that came with the request, after the receiver has matched.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "match/posted_queue.h"
#include "match/unexpected_queue.h"

namespace velo::exhaustive {
namespace {

constexpr size_t kSends = 2;
constexpr size_t kOrders = 7;

/// A receive's tag: of the first send, of the second one, or open.
enum Tag : uint8_t { kFirst, kSecond, kAny };
using Order = std::array<Tag, kSends>;
/// The send that each receive of an order gets. None: it stays posted.
using Matching = std::array<std::optional<uint8_t>, kSends>;

constexpr std::array<Order, kOrders> kTable1 = {{{kFirst, kSecond},
                                                 {kSecond, kFirst},
                                                 {kAny, kAny},
                                                 {kAny, kSecond},
                                                 {kAny, kFirst},
                                                 {kFirst, kAny},
                                                 {kSecond, kAny}}};
constexpr std::array<Matching, kOrders> kPrinted = {
    {{0, 1}, {1, 0}, {0, 1}, {0, 1}, {0, std::nullopt}, {0, 1}, {0, 1}}};
constexpr size_t kMisprinted = 6;

constexpr std::array<Matching, kOrders> mpis_table() {
    std::array<Matching, kOrders> table = kPrinted;
    table[kMisprinted] = {1, 0};
    return table;
}
constexpr std::array<Matching, kOrders> kMpi = mpis_table();

/// MPI's matching of receives that are posted after both sends: each takes the oldest one that fits and is
/// left.
Matching oldest_that_fits(const Order& order) {
    Matching matching;
    for (size_t receive = 0; receive < kSends; ++receive) {
        for (uint8_t send = 0; send < kSends && !matching[receive]; ++send) {
            const bool fits = order[receive] == kAny || order[receive] == send;
            const bool taken = receive != 0 && matching[0] == send;
            if (fits && !taken) matching[receive] = send;
        }
    }
    return matching;
}

/// velo's queues, with sends and receives interleaved: bit i of `sends_next` says whether event i is a send.
Matching matched_by_velo(const Order& order, uint32_t sends_next) {
    constexpr int32_t kTags[] = {1, 2, match::kAnyTag};
    constexpr uint64_t kBudget = 1u << 20;
    match::PostedQueue<> posted;
    match::UnexpectedQueue<> unexpected(kBudget);
    std::array<match::Posted, kSends> receives{};
    std::map<match::UnexpectedQueue<>::Ref, uint8_t> sent;
    Matching matching;
    uint8_t sends = 0;
    uint8_t receives_posted = 0;
    for (uint32_t event = 0; event < 2 * kSends; ++event) {
        if ((sends_next >> event & 1) != 0) {
            const match::Envelope message{.tag = kTags[sends]};
            if (match::Posted* const taken = posted.take(message)) {
                matching[static_cast<size_t>(taken - receives.data())] = sends;
            } else {
                sent[unexpected.add(message)] = sends;
            }
            ++sends;
        } else {
            const match::Envelope receive{.tag = kTags[order[receives_posted]]};
            const auto found = unexpected.find(receive);
            if (found == match::kNoRecord) {
                posted.post(receives[receives_posted], receive);
            } else {
                matching[receives_posted] = sent.at(found);
                unexpected.remove(found);
            }
            ++receives_posted;
        }
    }
    return matching;
}

TEST(RdrpTable1, only_the_last_row_is_printed_wrong) {
    for (size_t row = 0; row < kOrders; ++row) {
        EXPECT_EQ(oldest_that_fits(kTable1[row]), kMpi[row]) << row;
        EXPECT_EQ(oldest_that_fits(kTable1[row]) == kPrinted[row], row != kMisprinted) << row;
    }
}

TEST(RdrpTable1, velo_matches_as_mpi_says_whatever_comes_first) {
    for (size_t row = 0; row < kOrders; ++row) {
        uint32_t interleavings = 0;
        for (uint32_t sends_next = 0; sends_next < 1u << 2 * kSends; ++sends_next) {
            if (std::popcount(sends_next) != kSends) continue;
            EXPECT_EQ(matched_by_velo(kTable1[row], sends_next), kMpi[row]) << row << " " << sends_next;
            ++interleavings;
        }
        EXPECT_EQ(interleavings, 6u);
    }
}

/// Match bits: one of each group, {t1, t2, any}, {first, second}, {none, t1, t2, any before it}.
constexpr uint32_t kBits = 9;
constexpr uint32_t kTagBit = 0;
constexpr uint32_t kPlaceBit = 3;
constexpr uint32_t kBeforeBit = 5;

constexpr uint32_t bits_of_get(const Order& order, size_t receive) {
    const uint32_t before = receive == 0 ? 0 : 1u + order[0];
    return 1u << (kTagBit + order[receive]) | 1u << (kPlaceBit + receive) | 1u << (kBeforeBit + before);
}

/// The gets that an entry accepts: bit 2 * row + receive.
using Accepted = uint32_t;
constexpr uint32_t kGets = kOrders * kSends;

constexpr Accepted accepted_by(uint32_t match_bits, uint32_t ignore_bits) {
    Accepted accepted = 0;
    for (uint32_t get = 0; get < kGets; ++get) {
        const uint32_t bits = bits_of_get(kTable1[get / kSends], get % kSends);
        if (((bits ^ match_bits) & ~ignore_bits) == 0) accepted |= 1u << get;
    }
    return accepted;
}

/// How a get finds its entry. Portals looks at a list in order, and takes the first one that fits.
enum class Lookup : uint8_t { kFirstInList, kExactlyOne };
/// A get of a receive that MPI matches with nothing.
enum class Unmatched : uint8_t { kMayFetch, kMustFindNothing };

/// An order fails when a get does not do what the table says.
bool viable(Accepted first, Accepted second, const std::array<Matching, kOrders>& table, Lookup lookup,
            Unmatched unmatched) {
    for (uint32_t get = 0; get < kGets; ++get) {
        const bool by_first = (first >> get & 1) != 0;
        const bool by_second = (second >> get & 1) != 0;
        const std::optional<uint8_t> wanted = table[get / kSends][get % kSends];
        if (!wanted) {
            if (unmatched == Unmatched::kMustFindNothing && (by_first || by_second)) return false;
        } else if (lookup == Lookup::kExactlyOne && by_first && by_second) {
            return false;
        } else if (*wanted == 0 ? !by_first : by_first || !by_second) {
            return false;
        }
    }
    return true;
}

/// Entries that accept the same gets are alike, so that few pairs stand for all.
class Search {
  public:
    Search() {
        std::vector<uint32_t> counts(1u << kGets);
        for (uint32_t match_bits = 0; match_bits < 1u << kBits; ++match_bits) {
            for (uint32_t ignore_bits = 0; ignore_bits < 1u << kBits; ++ignore_bits) {
                ++counts[accepted_by(match_bits, ignore_bits)];
            }
        }
        for (Accepted accepted = 0; accepted < counts.size(); ++accepted) {
            if (counts[accepted] != 0) kinds_.push_back({accepted, counts[accepted]});
        }
    }

    /// Combinations in all, of which each is looked at by its kinds.
    [[nodiscard]] uint64_t combinations() const {
        return count([](Accepted, Accepted) { return true; });
    }
    [[nodiscard]] uint64_t viable_ones(const std::array<Matching, kOrders>& table, Lookup lookup,
                                       Unmatched unmatched) const {
        return count(
            [&](Accepted first, Accepted second) { return viable(first, second, table, lookup, unmatched); });
    }

  private:
    struct Kind {
        Accepted accepted;
        uint64_t entries;
    };
    template <class Holds>
    [[nodiscard]] uint64_t count(Holds&& holds) const {
        uint64_t combinations = 0;
        for (const Kind& first : kinds_) {
            for (const Kind& second : kinds_) {
                if (holds(first.accepted, second.accepted)) combinations += first.entries * second.entries;
            }
        }
        return combinations;
    }

    std::vector<Kind> kinds_;
};

constexpr std::array kUnmatched = {Unmatched::kMayFetch, Unmatched::kMustFindNothing};

TEST(RdrpTheorem2, all_combinations_of_36_bits_are_looked_at) {
    EXPECT_EQ(Search().combinations(), uint64_t{1} << 4 * kBits);
}

TEST(RdrpTheorem2, none_is_viable_with_the_row_as_printed) {
    const Search search;
    for (const Unmatched unmatched : kUnmatched) {
        EXPECT_EQ(search.viable_ones(kPrinted, Lookup::kFirstInList, unmatched), 0u);
        EXPECT_EQ(search.viable_ones(kPrinted, Lookup::kExactlyOne, unmatched), 0u);
    }
    // No scheme at all would be: the same get has to find one send in the second row, and the other one in
    // the last.
    EXPECT_EQ(bits_of_get(kTable1[1], 0), bits_of_get(kTable1[kMisprinted], 0));
    EXPECT_NE(kPrinted[1][0], kPrinted[kMisprinted][0]);
}

TEST(RdrpTheorem2, some_are_viable_with_mpis_row_and_a_list) {
    const Search search;
    EXPECT_EQ(search.viable_ones(kMpi, Lookup::kFirstInList, Unmatched::kMayFetch), 73'728u);
    EXPECT_EQ(search.viable_ones(kMpi, Lookup::kFirstInList, Unmatched::kMustFindNothing), 24'576u);
}

TEST(RdrpTheorem2, none_is_viable_with_mpis_row_when_exactly_one_entry_may_fit) {
    const Search search;
    for (const Unmatched unmatched : kUnmatched) {
        EXPECT_EQ(search.viable_ones(kMpi, Lookup::kExactlyOne, unmatched), 0u);
    }
}

/// The first entry has to know the second send's tag; the second one takes the rest.
TEST(RdrpTheorem2, a_viable_combination_rejects_a_tag_that_is_sent_later) {
    constexpr uint32_t kAll = (1u << kBits) - 1;
    constexpr uint32_t kRejected =
        1u << (kTagBit + kSecond) | 1u << (kBeforeBit + 1 + kFirst) | 1u << (kBeforeBit + 1 + kAny);
    const Accepted rest = accepted_by(0, kAll);
    EXPECT_TRUE(
        viable(accepted_by(0, kAll & ~kRejected), rest, kMpi, Lookup::kFirstInList, Unmatched::kMayFetch));
    for (uint32_t bits = kRejected; bits != 0; bits &= bits - 1) {
        const uint32_t fewer = kRejected & ~(bits & -bits);
        EXPECT_FALSE(
            viable(accepted_by(0, kAll & ~fewer), rest, kMpi, Lookup::kFirstInList, Unmatched::kMayFetch));
    }
    // All that are viable reject it, in the first place and with nothing before it: a second entry that takes
    // the rest is the most that a first one can have.
    const Accepted of_second_tag = 1u << (kSends * kMisprinted);
    for (uint32_t match_bits = 0; match_bits <= kAll; ++match_bits) {
        for (uint32_t ignore_bits = 0; ignore_bits <= kAll; ++ignore_bits) {
            const Accepted first = accepted_by(match_bits, ignore_bits);
            if ((first & of_second_tag) == 0) continue;
            ASSERT_FALSE(viable(first, rest, kMpi, Lookup::kFirstInList, Unmatched::kMayFetch));
        }
    }
}

}  // namespace
}  // namespace velo::exhaustive
