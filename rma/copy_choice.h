/// The way that blocks of a peer on the node take: through the ring, with one kind of stores or another, or by direct
/// copies of both ends.
///
/// Each may be the fastest one by a factor of two or more; it depends on the CPU, the kernel, on how far the cores are
/// from each other and on whether both processes fetch at once. None of these says by how much, so each way is measured
/// while it is in use, by the time that CPUs spend on a byte. For the ring that is the sum of both ends where both
/// processes fetch at once, and otherwise twice that of the slower end, for which the other one waits. Direct copies of
/// one direction are shared out by the speed of each end; where both processes fetch each copies its own. The ways not
/// in use are tried now and then, in turn.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "rma/coop_method.h"
#include "velo/base/check.h"

namespace velo::rma {

/// Of one peer, one kind of block and one distance. Pure. Owner: the peer. Thread: the engine's, under its lock.
class CopyChoice {
  public:
    /// `both`: its blocks are those that are fetched while the peer fetches from here, too.
    explicit CopyChoice(bool both = false) : both_(both) {}

    /// Bytes of a trial that are measured: through the ring, for the first time or not, and by direct copies.
    static constexpr uint64_t kTrialBytes = 1u << 20;
    static constexpr uint64_t kFirstTrialBytes = 2u << 20;
    static constexpr uint64_t kDirectTrialBytes = 4u << 20;
    /// The first bytes of a trial do not count: the ring's memory is out of the caches, or even new. Direct copies get
    /// their final time only after each buffer has been read and written this way once or twice.
    static constexpr uint64_t kColdBytes = 512u << 10;
    static constexpr uint64_t kNewBytes = 1u << 20;
    static constexpr uint64_t kDirectColdBytes = 8u << 20;
    /// A trial ends after a quarter if its bytes take this many times as long. One of direct copies ends with the first
    /// of those that do not count if they take even longer.
    static constexpr double kHopeless = 1.5;
    static constexpr uint64_t kColdHopelessBytes = 2u << 20;
    static constexpr double kColdHopeless = 2;
    /// Another way takes over when it takes less than this part of the time: above what one way varies.
    static constexpr double kGain = 0.93;
    /// The ring takes over after its first trial, with memory that is new to both processes, at less than
    /// this part of the time. Between this and kFirstLoss such a trial goes on, to as many bytes, in which
    /// that memory gets used.
    static constexpr double kFirstGain = 0.75;
    static constexpr double kFirstLoss = 1.25;
    static constexpr uint64_t kLongFirstTrialBytes = 8u << 20;
    /// Moved bytes before the first trial, so that two windows of 64 blocks have gone through the same memory, or many
    /// bytes; between two trials while not every way is known; and between later ones: the longer, the more often they
    /// have changed nothing.
    static constexpr uint32_t kFirstBlocks = 128;
    static constexpr uint64_t kFirstBytesMax = 64u << 20;
    static constexpr uint64_t kBetweenUnknownBytes = 1u << 20;
    static constexpr uint64_t kBetweenBytesMin = 64u << 20;
    static constexpr uint64_t kBetweenBytesMax = uint64_t{16} << 30;
    /// Moved bytes after which a trial is given up if none were measured, or too few: the peer takes no part. A window
    /// of blocks is begun before the first one is measured, so as many blocks must have been begun, too.
    static constexpr uint64_t kSilentBytes = 4u << 20;
    static constexpr uint64_t kGiveUpBytes = 64u << 20;
    static constexpr uint32_t kGiveUpBlocks = 128;

    /// The way of the next block. `may_try`: something else than the way in use, too.
    [[nodiscard]] CoopMethod choose(uint32_t bytes, bool may_try = true) {
        moved_ += bytes;
        ++blocks_;
        if (trying_ && blocks_ > kGiveUpBlocks && moved_ > (measured_ == 0 ? kSilentBytes : kGiveUpBytes)) {
            end_trial(false);
        } else if (!trying_ && may_try && moved_ >= wait_) {
            if (known_ || blocks_ >= kFirstBlocks || moved_ >= kFirstBytesMax) begin_trial();
        }
        return trying_ ? tried_ : method_;
    }

    /// Of these bytes: the reader took so long, and before it the owner. Either of them makes a direct copy alone.
    void measured(CoopMethod method, uint64_t bytes, uint64_t reader_ns, uint64_t owner_ns = 0) {
        if (bytes == 0) return;
        if (!trying_ || method != tried_) {
            cost(method).add(bytes, reader_ns, owner_ns);
            return;
        }
        // An earlier time is of long ago, or of cold caches.
        if (measured_ == 0 || (measured_ <= uncounted_ && measured_ + bytes > uncounted_)) cost(method) = {};
        measured_ += bytes;
        cost(method).add(bytes, reader_ns, owner_ns);
        const double ratio = ps_a_byte(method) / ps_a_byte(method_);
        if (measured_ <= uncounted_) {
            if (method == CoopMethod::kDirect && measured_ >= kColdHopelessBytes && ratio > kColdHopeless)
                end_trial(false);
            return;
        }
        const uint64_t counted = measured_ - uncounted_;
        if (counted >= trial_bytes_ && trial_bytes_ == kFirstTrialBytes && ratio >= kFirstGain && ratio < kFirstLoss) {
            trial_bytes_ = kLongFirstTrialBytes;
        } else if (counted >= trial_bytes_ || (counted >= trial_bytes_ / 4 && ratio > kHopeless)) {
            end_trial(ratio < kGain);
        }
    }

    /// The way in use, apart from trials.
    [[nodiscard]] CoopMethod method() const { return method_; }
    /// Changes of it so far.
    [[nodiscard]] uint32_t switches() const { return switches_; }
    /// 0: not measured yet.
    [[nodiscard]] double ps_a_byte(CoopMethod method) const {
        const double reader = costs_[index(method)].reader.ps;
        const double owner = costs_[index(method)].owner.ps;
        if (method != CoopMethod::kDirect) return both_ ? reader + owner : 2 * std::max(reader, owner);
        if (owner == 0 || (both_ && reader != 0)) return reader;
        return reader == 0 ? owner : 2 * reader * owner / (reader + owner);
    }

  private:
    /// Time of a byte: the mean of some MiB, and from then on one that forgets. An interrupted copy counts little.
    struct Mean {
        static constexpr uint64_t kMemoryBytes = 4u << 20;
        static constexpr double kOutlier = 4;

        void add(uint64_t bytes, uint64_t ns) {
            if (ns == 0) return;
            const double sample = 1000.0 * static_cast<double>(ns) / static_cast<double>(bytes);
            const bool first = seen == 0;
            seen = std::min(seen + bytes, kMemoryBytes);
            const double weight = std::min(static_cast<double>(bytes) / static_cast<double>(seen), 1.0);
            ps += weight * ((first ? sample : std::min(sample, kOutlier * ps)) - ps);
        }

        double ps = 0;
        uint64_t seen = 0;  ///< bytes
    };
    struct Cost {
        void add(uint64_t bytes, uint64_t reader_ns, uint64_t owner_ns) {
            reader.add(bytes, reader_ns);
            owner.add(bytes, owner_ns);
        }

        Mean reader, owner;
    };

    static_assert(kCoopMethods == 3, "begin_trial() chooses of two others");
    [[nodiscard]] static size_t index(CoopMethod method) { return static_cast<size_t>(method); }
    [[nodiscard]] Cost& cost(CoopMethod method) { return costs_[index(method)]; }
    [[nodiscard]] static CoopMethod next(CoopMethod method) {
        return static_cast<CoopMethod>((index(method) + 1) % kCoopMethods);
    }
    void begin_trial() {
        // Something to compare with comes first.
        if (ps_a_byte(method_) == 0) return;
        tried_ = next(tried_);
        if (tried_ == method_) tried_ = next(tried_);
        const CoopMethod other = next(tried_) == method_ ? next(method_) : next(tried_);
        if (ps_a_byte(tried_) != 0 && ps_a_byte(other) == 0) tried_ = other;
        VELO_CHECK(!trying_ && tried_ != method_, "way %zu is tried while it is in use", index(tried_));
        const bool direct = tried_ == CoopMethod::kDirect;
        const bool first = !direct && !ring_tried_;
        uncounted_ = first ? kNewBytes : direct ? kDirectColdBytes : kColdBytes;
        trial_bytes_ = first ? kFirstTrialBytes : direct ? kDirectTrialBytes : kTrialBytes;
        trying_ = true;
        measured_ = moved_ = blocks_ = 0;
    }
    void end_trial(bool takes_over) {
        VELO_CHECK(trying_, "a trial of way %zu ends that has not begun", index(tried_));
        trying_ = false;
        ring_tried_ = ring_tried_ || tried_ != CoopMethod::kDirect;
        if (takes_over) {
            method_ = tried_;
            ++switches_;
        }
        if (unknown_ != 0) --unknown_;
        known_ = true;
        between_ = std::clamp(takes_over ? between_ / 2 : 2 * between_, kBetweenBytesMin, kBetweenBytesMax);
        wait_ = unknown_ != 0 ? kBetweenUnknownBytes : between_;
        moved_ = 0;
    }

    std::array<Cost, kCoopMethods> costs_;
    uint64_t between_ = kBetweenBytesMin / 4;  ///< doubled by each of the first two trials
    uint64_t moved_ = 0;  ///< since the last trial began, or ended
    uint64_t wait_ = kBetweenUnknownBytes;
    /// Of the present trial:
    uint32_t blocks_ = 0;
    uint64_t measured_ = 0;
    uint64_t uncounted_ = 0;
    uint64_t trial_bytes_ = 0;
    uint32_t switches_ = 0;
    uint32_t unknown_ = kCoopMethods - 1;  ///< ways to be tried soon
    CoopMethod method_ = CoopMethod::kDirect;  ///< the one that takes no memory
    CoopMethod tried_ = CoopMethod::kRingNontemporal;  ///< last; kRing is next
    bool both_ = false;
    bool trying_ = false;
    bool known_ = false;  ///< there has been a trial
    bool ring_tried_ = false;
};

/// The choices for one peer.
class CopyChoices {
  public:
    /// The choice for blocks of `bytes`; `both`: while the peer fetches from here, too; `far`: its core is.
    /// Processes that move to and fro find what they knew.
    [[nodiscard]] CopyChoice& of(uint32_t bytes, bool both, bool far) {
        size_t kind = 0;
        while (kind < kEnds.size() && bytes >= kEnds[kind]) ++kind;
        return choices_[far][kind][both];
    }
    /// Calls visit(bytes, both, far, choice) for each that has been measured; `bytes` is the kind's smallest block.
    template <class Visit>
    void for_each_measured(Visit&& visit) const {
        for (const bool far : {false, true}) {
            for (size_t kind = 0; kind < kKinds; ++kind) {
                for (const bool both : {false, true}) {
                    const CopyChoice& choice = choices_[far][kind][both];
                    if (choice.ps_a_byte(choice.method()) == 0) continue;
                    visit(kind == 0 ? 0 : kEnds[kind - 1], both, far, choice);
                }
            }
        }
    }

  private:
    /// A block of less fits the second cache of its reader; of more, none.
    static constexpr std::array<uint32_t, 2> kEnds = {256u << 10, 2u << 20};
    static constexpr size_t kKinds = kEnds.size() + 1;
    static_assert(std::ranges::is_sorted(kEnds));

    struct EitherDirection {
        [[nodiscard]] CopyChoice& operator[](bool both) { return both ? both_ways : one_way; }
        [[nodiscard]] const CopyChoice& operator[](bool both) const { return both ? both_ways : one_way; }

        CopyChoice one_way{false};
        CopyChoice both_ways{true};
    };
    std::array<std::array<EitherDirection, kKinds>, 2> choices_;
};

}  // namespace velo::rma
