#include "flowctl/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "velo/base/check.h"

namespace velo::flowctl {
namespace {

constexpr uint64_t kSlotsMax = std::numeric_limits<uint32_t>::max();

std::string text(uint64_t value) {
    return std::to_string(value);
}

PlanError refuse(std::string message, uint64_t smallest_mailbox_slots = 0) {
    return {.status = Status::kBadParam,
            .smallest_mailbox_slots =
                smallest_mailbox_slots <= kSlotsMax ? static_cast<uint32_t>(smallest_mailbox_slots) : 0,
            .message = std::move(message)};
}

/// Equation 2 (FC 5.2): the credit region has credit_slots for each peer, and the data region as many.
uint64_t smallest_mailbox(const Config& config) {
    return uint64_t{2} * config.peers * config.credit_slots;
}

uint64_t requested_mailbox(const Config& config) {
    if (config.mailbox_slots != 0) return config.mailbox_slots;
    return uint64_t{config.peers} * config.slots_per_peer;
}

std::optional<PlanError> refuse_common(const Config& config) {
    if (config.peers == 0) {
        return refuse("0 peers; a process without senders needs no mailbox, so give at least 1 peer");
    }
    const uint64_t requested = requested_mailbox(config);
    if (requested > kSlotsMax) {
        return refuse("a mailbox of " + text(config.peers) + " peers * " + text(config.slots_per_peer) +
                      " slots_per_peer = " + text(requested) + " slots is above the limit of " +
                      text(kSlotsMax) + "; lower slots_per_peer to at most " +
                      text(kSlotsMax / config.peers));
    }
    if (requested == 0) {
        return refuse("mailbox_slots and slots_per_peer are both 0; give one of them a value");
    }
    return std::nullopt;
}

std::optional<PlanError> refuse_credited(const Config& config) {
    if (config.credit_slots == 0 || config.credit_slots > kCreditSlotsMax) {
        return refuse("credit_slots is " + text(config.credit_slots) + "; give 1 to " +
                      text(kCreditSlotsMax) + " (" + text(kCreditSlotsDefault) + " is the default)");
    }
    const uint64_t smallest = smallest_mailbox(config);
    const uint64_t requested = requested_mailbox(config);
    if (config.mode == Mode::kDynamic && config.contact_slots != 0) {
        // Not all peers need to own slots at a time.
        const uint64_t least = uint64_t{2} * config.credit_slots + config.contact_slots;
        if (requested >= least) return std::nullopt;
        return refuse("a mailbox of " + text(requested) + " slots is too small for " +
                          text(config.contact_slots) + " contact slots and the " +
                          text(uint64_t{2} * config.credit_slots) +
                          " slots of one peer. The smallest mailbox that would do has " + text(least) +
                          " slots: slots_per_peer=" + text((least + config.peers - 1) / config.peers),
                      least);
    }
    if (requested >= smallest) return std::nullopt;
    if (smallest > kSlotsMax) {
        return refuse(text(config.peers) + " peers with " + text(config.credit_slots) +
                      " credit_slots need a mailbox of " + text(smallest) + " slots, above the limit of " +
                      text(kSlotsMax) + "; lower credit_slots");
    }
    return refuse("a mailbox of " + text(requested) + " slots is too small for " + text(config.peers) +
                      " peers with " + text(config.credit_slots) +
                      " credit slots each: the data region may not be smaller than the credit region of " +
                      text(uint64_t{config.peers} * config.credit_slots) +
                      " slots. The smallest mailbox that would do has " + text(smallest) +
                      " slots: slots_per_peer=" + text(uint64_t{2} * config.credit_slots),
                  smallest);
}

/// Holds a plan with credits to its promises (flowctl/plan.h).
Plan checked(const Plan& plan) {
    VELO_CHECK(plan.mailbox_slots == plan.data_region_slots + plan.credit_region_slots + plan.contact_slots,
               "%u slots are not %u, %u and %u", plan.mailbox_slots, plan.data_region_slots,
               plan.credit_region_slots, plan.contact_slots);
    VELO_CHECK(plan.quota >= 1 && plan.threshold <= plan.quota && plan.favoured_threshold <= plan.quota_max(),
               "a quota of %u with thresholds of %u and %u", plan.quota, plan.threshold,
               plan.favoured_threshold);
    VELO_CHECK(plan.contact_slots != 0 ||
                   uint64_t{plan.peers} * plan.quota + plan.excess_peers <= plan.data_region_slots,
               "%u peers with %u slots each of %u", plan.peers, plan.quota, plan.data_region_slots);
    return plan;
}

Plan plan_without_credits(const Config& config) {
    Plan plan;
    plan.mode = config.mode;
    plan.peers = config.peers;
    plan.mailbox_slots = static_cast<uint32_t>(requested_mailbox(config));
    plan.data_region_slots = plan.mailbox_slots;
    return plan;
}

PlanResult plan_static(const Config& config) {
    const uint64_t credit_region = uint64_t{config.peers} * config.credit_slots;
    const uint64_t data_region_requested = requested_mailbox(config) - credit_region;
    uint64_t quota = data_region_requested / config.peers;
    uint64_t excess_peers = data_region_requested % config.peers;
    if (config.rounding == Rounding::kUp && excess_peers != 0) ++quota;
    if (config.rounding != Rounding::kSubset) excess_peers = 0;

    // Whether or not these peers divide it: with a few peers more or less it would be refused.
    if (config.rounding == Rounding::kUp && requested_mailbox(config) + config.peers - 1 > kSlotsMax) {
        return refuse("a mailbox of " + text(requested_mailbox(config)) + " slots for " + text(config.peers) +
                      " peers may be above the limit of " + text(kSlotsMax) +
                      " slots when it is rounded up; choose rounding 'down' or a smaller mailbox");
    }
    const uint64_t data_region = quota * config.peers + excess_peers;
    const uint64_t threshold_max = (quota + (excess_peers != 0)) / (config.credit_slots + 1) + 1;
    if (threshold_max > kReturnMax) {
        return refuse("a quota of " + text(quota) + " slots with " + text(config.credit_slots) +
                      " credit_slots returns " + text(threshold_max) +
                      " credits at a time, and one packet carries at most " + text(kReturnMax) +
                      "; raise credit_slots, or lower the mailbox to at most " +
                      text(config.peers *
                           (kReturnMax * (uint64_t{config.credit_slots} + 1) - 1 + config.credit_slots)) +
                      " slots");
    }

    Plan plan;
    plan.mode = Mode::kStatic;
    plan.peers = config.peers;
    plan.mailbox_slots = static_cast<uint32_t>(credit_region + data_region);
    plan.data_region_slots = static_cast<uint32_t>(data_region);
    plan.credit_region_slots = static_cast<uint32_t>(credit_region);
    plan.credit_slots = config.credit_slots;
    plan.quota = static_cast<uint32_t>(quota);
    plan.excess_peers = static_cast<uint32_t>(excess_peers);
    plan.threshold = threshold_for(plan.quota, plan.credit_slots);
    plan.favoured_threshold = threshold_for(plan.quota_max(), plan.credit_slots);
    plan.piggyback = config.piggyback;
    return checked(plan);
}

/// Region and quota of each peer under dynamic mode.
void divide_dynamic(const Config& config, Plan& plan) {
    // Static slots (FC 6.3): as many as the credit region has.
    plan.quota = config.credit_slots;
    plan.stealing = config.stealing;
    if (config.contact_slots == 0) return;
    plan.contact_slots = config.contact_slots;
    plan.credit_region_slots = 0;
    plan.data_region_slots = plan.mailbox_slots - plan.contact_slots;
    // Rounded up: who comes last gets what is left.
    const uint64_t share = (uint64_t{plan.data_region_slots} + config.peers - 1) / config.peers;
    const uint64_t beside_credits = share - std::min<uint64_t>(share, config.credit_slots);
    plan.initial_quota = std::max(plan.quota, static_cast<uint32_t>(beside_credits));
}

/// Quota and thresholds under growing mode, of a data region that has a slot for each peer at least.
void divide_growing(const Config& config, Plan& plan) {
    // A return holds the largest threshold.
    const uint32_t most = std::min(plan.data_region_slots / config.peers, kReturnMax);
    plan.quota = std::clamp(config.growing_start, 1u, most);
    plan.growth = config.growth;
    plan.growing_step = config.growing_step;
    plan.threshold = plan.favoured_threshold = growing_threshold(plan.quota, plan.credit_slots);
}

/// Mailboxes whose shares change while the job runs. A limit is derived from regions that are final.
PlanResult plan_changing(const Config& config) {
    const uint64_t mailbox = requested_mailbox(config);
    const uint64_t credit_region = uint64_t{config.peers} * config.credit_slots;
    Plan plan;
    plan.mode = config.mode;
    plan.peers = config.peers;
    plan.mailbox_slots = static_cast<uint32_t>(mailbox);
    plan.credit_slots = config.credit_slots;
    plan.piggyback = config.piggyback;
    if (config.contact_slots == 0 || config.mode != Mode::kDynamic) {
        plan.credit_region_slots = static_cast<uint32_t>(credit_region);
        plan.data_region_slots = static_cast<uint32_t>(mailbox - credit_region);
    }
    if (config.mode == Mode::kDynamic) {
        divide_dynamic(config, plan);
    } else {
        divide_growing(config, plan);
    }
    if (config.sender_slots_max != 0 && config.sender_slots_max < plan.quota) {
        return refuse("sender_slots_max is " + text(config.sender_slots_max) + ", and a sender starts with " +
                      text(plan.quota) + " slots (" +
                      (config.mode == Mode::kDynamic ? "credit_slots" : "growing_start") +
                      "); give at least that, or 0 for no limit");
    }
    plan.sender_slots_max = config.sender_slots_max != 0 ? config.sender_slots_max : plan.data_region_slots;
    if (config.mode == Mode::kGrowing) plan.sender_slots_max = std::min(plan.sender_slots_max, kReturnMax);
    return checked(plan);
}

}  // namespace

uint32_t contact_slots_for(const Config& config, uint32_t most) {
    if (config.mode != Mode::kDynamic || config.stealing == Stealing::kPaper || most == 0) return 0;
    const uint64_t mailbox = requested_mailbox(config);
    const uint64_t one_peer = uint64_t{2} * config.credit_slots;
    // A 64th, unless that takes slots that one peer needs.
    const uint64_t beside_a_peer = mailbox - std::min(mailbox, one_peer);
    if (config.peers == 1 && beside_a_peer == 0) return 0;
    return static_cast<uint32_t>(std::clamp<uint64_t>(std::min(mailbox / 64, beside_a_peer), 1, most));
}

PlanResult plan(const Config& config) {
    if (auto error = refuse_common(config)) return *std::move(error);
    switch (config.mode) {
        case Mode::kNone:
        case Mode::kHardware: return plan_without_credits(config);
        case Mode::kStatic:
            if (auto error = refuse_credited(config)) return *std::move(error);
            return plan_static(config);
        case Mode::kGrowing:
        case Mode::kDynamic:
            if (auto error = refuse_credited(config)) return *std::move(error);
            return plan_changing(config);
    }
    return refuse("mode " + text(static_cast<uint64_t>(config.mode)) + " is none of velo's");
}

}  // namespace velo::flowctl
