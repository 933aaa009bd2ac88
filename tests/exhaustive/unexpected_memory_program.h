/// MPI programs of senders and one receiver, for unexpected_memory_world.h.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "match/envelope.h"
#include "match/grants.h"
#include "match/probe_watches.h"
#include "tests/exhaustive/explorer.h"

namespace velo::exhaustive {

/// Readings of the protocol that are not safe, or were needed to find out that they are.
enum class Reading {
    kProduction,
    kAgeIgnored,        ///< a request of an older age is taken
    kNotSticky,         ///< a flagged sender's message gets a record when there is memory
    kSeesAll,           ///< a flagged sender's message matches receives that were not offered
    kFlaggedRefused,    ///< a flagged sender's message is refused even if it fits
    kOldRefusalCounts,  ///< a refusal of an older age is taken for one of the present
    kNoOffers,          ///< a receive notifies no sender
    kOneFitForTwo,      ///< two receives of one offer choose the same message
    kOffersUnended,     ///< offers are sent while a pass is open
    kEndsAtOnce,        ///< a pass ends before its messages are requested
    kAllAreFirst,       ///< each request says that none waits before it
    kEagerPastQueue,    ///< a message goes eagerly although others wait
    kProbeUnoffered,    ///< a probe notifies no sender
    kProbePassesBy,     ///< a probe finds a message that a posted receive fits
    kProbeUntold,       ///< a probe finds a message of a sender that was not notified
    kAcceptedUnseen,    ///< a probe goes on although the message that was chosen for it has matched
    kProbeStays,        ///< a message that was found is still found when a receive was posted that fits it
    kReadings,
};

struct MemoryProgram {
    struct Send {
        int32_t tag;
        bool waits = false;  ///< until the message is accepted
        uint32_t context = 0;
    };
    /// A probe waits until it has found a message; the next receive of `probed` is for that one. A poll
    /// probes once, and does not look at the result.
    enum class Kind : uint8_t { kReceive, kProbe, kPoll };
    struct Call {
        int32_t source;
        int32_t tag;
        bool waits = true;  ///< until this receive and all before it are complete
        uint32_t context = 0;
        Kind kind = Kind::kReceive;
        bool probed = false;
    };

    std::vector<std::vector<Send>> senders;
    std::vector<Call> calls;
    /// Calls of more threads of the receiver.
    std::vector<std::vector<Call>> other_calls = {};
    uint32_t records = 0;
    /// Of each sender: its share of records beside the others, for messages that go eagerly. The first grant is one.
    uint32_t grants = 0;
    uint32_t window = 1;
    uint32_t offers_max = 1;
    uint32_t channel_max = 8;     ///< messages under way to the receiver, for each sender
    bool full_passes = false;     ///< may begin whenever there is a record
    uint32_t requests_max = ~0u;  ///< of all senders
    match::ProbeWatches::Limits probes = {.forgotten_after = 2};
    Reading reading = Reading::kProduction;

    /// Records of the receiver: those beside the grants, and those that may be granted.
    [[nodiscard]] uint32_t records_in_all() const {
        return records + grants * static_cast<uint32_t>(senders.size());
    }
    [[nodiscard]] match::Grants::Terms grant_terms() const {
        return {.records_max = uint64_t{grants} * senders.size(),
                .cells_max = 0,
                .senders = senders.size(),
                .first_records = 1};
    }
};

/// Forty messages, and a receive for each in another order. Receives of tag 1 name their source, and those of
/// tag 2 do not, so that none takes the message of another. `probes`: some messages are probed first.
inline MemoryProgram long_program(Random& random, bool probes) {
    MemoryProgram program;
    program.senders.resize(1 + random.below(4));
    std::vector<std::pair<int32_t, MemoryProgram::Send>> sends;
    for (uint32_t i = 0; i < 40; ++i) {
        const uint32_t sender = random.below(static_cast<uint32_t>(program.senders.size()));
        const MemoryProgram::Send send = {static_cast<int32_t>(1 + random.below(2)), false, random.below(2)};
        program.senders[sender].push_back(send);
        sends.push_back({static_cast<int32_t>(sender), send});
    }
    const uint32_t at_once = 1 + random.below(8);
    for (uint32_t left = 40; left > 0; --left) {
        const uint32_t i = random.below(left);
        const auto [sender, send] = sends[i];
        sends.erase(sends.begin() + i);
        const int32_t source = send.tag == 2 ? match::kAnySource : sender;
        MemoryProgram::Call call = {source, send.tag, random.below(at_once) == 0, send.context};
        if (probes && random.below(4) == 0) {
            call.kind = random.below(2) == 0 ? MemoryProgram::Kind::kProbe : MemoryProgram::Kind::kPoll;
            program.calls.push_back(call);
            call.probed = call.kind == MemoryProgram::Kind::kProbe;
            call.kind = MemoryProgram::Kind::kReceive;
        }
        program.calls.push_back(call);
    }
    program.records = random.below(6);
    program.window = 1 + random.below(4);
    program.offers_max = 1 + random.below(4);
    program.grants = random.below(3);
    program.full_passes = random.below(2) != 0;
    return program;
}

}  // namespace velo::exhaustive
