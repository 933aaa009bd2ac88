/// Explores a model of a protocol: every reachable state once, or one random path through them.
///
/// A model says what the states are, which steps each allows and what must hold. The explorer knows nothing
/// of any protocol. It reports the first state in which something does not hold, and the first from which
/// one of the model's goals cannot be reached any more, which covers deadlock (a state that rests before
/// its goal) and livelock (a set of states without a way out) alike.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace velo::exhaustive {

using Key = std::vector<uint8_t>;

/// Goals are bits. A goal counts as reached in a state that meets it and by a step that serves it.
template <typename M>
concept Model = requires(const M& model, const typename M::State& state, typename M::State& next, Key& key,
                         typename M::Step step, std::vector<typename M::Step>& steps) {
    { model.initial() } -> std::same_as<typename M::State>;
    {model.append_steps(state, steps)};
    { model.apply(next, step) } -> std::same_as<uint32_t>;
    { model.goals() } -> std::same_as<uint32_t>;
    { model.goals_met(state) } -> std::same_as<uint32_t>;
    /// Empty when all is well.
    { model.violation(state) } -> std::same_as<std::string>;
    {model.append_key(state, key)};
    { model.describe(step) } -> std::same_as<std::string>;
    /// A small number; a walk gives steps of one class one weight.
    { model.step_class(step) } -> std::same_as<uint32_t>;
};

struct Verdict {
    enum class Kind { kHolds, kViolation, kUnreachableGoal, kStateLimit };

    Kind kind = Kind::kHolds;
    uint64_t states = 0;
    uint64_t steps = 0;
    /// The property that did not hold, and the steps that lead there: the fewest possible when exhaustive.
    std::string what;

    [[nodiscard]] bool holds() const { return kind == Kind::kHolds; }
};

/// Byte strings to dense numbers, exact: no two states are taken for one because their hashes agree.
class KeySet {
  public:
    KeySet() : table_(1 << 12, kEmpty), starts_{0} {}

    /// The key's number, and whether it is a number that was not in use before.
    std::pair<uint32_t, bool> insert(const Key& key) {
        if (2 * hashes_.size() >= table_.size()) grow();
        const uint64_t hash = hash_of(key);
        for (size_t slot = hash & (table_.size() - 1);; slot = (slot + 1) & (table_.size() - 1)) {
            const uint32_t id = table_[slot];
            if (id == kEmpty) {
                const auto fresh = static_cast<uint32_t>(hashes_.size());
                table_[slot] = fresh;
                hashes_.push_back(hash);
                bytes_.insert(bytes_.end(), key.begin(), key.end());
                starts_.push_back(bytes_.size());
                return {fresh, true};
            }
            if (hashes_[id] == hash && equals(id, key)) return {id, false};
        }
    }

    [[nodiscard]] size_t size() const { return hashes_.size(); }

  private:
    static constexpr uint32_t kEmpty = ~uint32_t{0};

    static uint64_t hash_of(const Key& key) {
        uint64_t hash = key.size();
        for (size_t at = 0; at < key.size(); at += sizeof hash) {
            uint64_t word = 0;
            std::memcpy(&word, key.data() + at, std::min(sizeof word, key.size() - at));
            hash = (hash ^ word) * 0x9e3779b97f4a7c15;
            hash ^= hash >> 32;
        }
        return hash;
    }

    [[nodiscard]] bool equals(uint32_t id, const Key& key) const {
        return starts_[id + 1] - starts_[id] == key.size() &&
               std::memcmp(bytes_.data() + starts_[id], key.data(), key.size()) == 0;
    }

    void grow() {
        table_.assign(table_.size() * 2, kEmpty);
        for (uint32_t id = 0; id < hashes_.size(); ++id) {
            size_t slot = hashes_[id] & (table_.size() - 1);
            while (table_[slot] != kEmpty) slot = (slot + 1) & (table_.size() - 1);
            table_[slot] = id;
        }
    }

    std::vector<uint32_t> table_;
    std::vector<uint64_t> hashes_;
    std::vector<uint64_t> starts_;
    std::vector<uint8_t> bytes_;
};

/// Breadth first, so that a path to a failure is a shortest one.
template <Model M>
class Explorer {
  public:
    Explorer(const M& model, uint64_t states_max) : model_(model), states_max_(states_max) {}

    Verdict run() {
        add(model_.initial(), kNoParent, {});
        while (verdict_.holds() && !frontier_.empty()) {
            const auto [id, state] = std::move(frontier_.front());
            frontier_.pop_front();
            expand(id, state);
        }
        verdict_.states = visited_.size();
        verdict_.steps = edges_.size();
        if (verdict_.holds()) check_goals();
        return std::move(verdict_);
    }

  private:
    using State = typename M::State;
    using Step = typename M::Step;

    static constexpr uint32_t kNoParent = ~uint32_t{0};

    struct Origin {
        uint32_t parent;
        Step step;
    };
    struct Edge {
        uint32_t from;
        uint32_t to;
    };

    void expand(uint32_t id, const State& state) {
        steps_.clear();
        model_.append_steps(state, steps_);
        for (const Step step : steps_) {
            State next = state;
            reached_[id] |= model_.apply(next, step);
            edges_.push_back({id, add(std::move(next), id, step)});
            if (!verdict_.holds()) return;
        }
    }

    uint32_t add(State&& state, uint32_t parent, Step step) {
        key_.clear();
        model_.append_key(state, key_);
        const auto [id, fresh] = visited_.insert(key_);
        if (!fresh) return id;
        origins_.push_back({parent, step});
        reached_.push_back(model_.goals_met(state));
        if (std::string what = model_.violation(state); !what.empty()) {
            fail(Verdict::Kind::kViolation, what, id);
        } else if (visited_.size() > states_max_) {
            fail(Verdict::Kind::kStateLimit, "more states than the limit", id);
        }
        frontier_.emplace_back(id, std::move(state));
        return id;
    }

    /// From the states that reach a goal, backwards: what is not met on the way cannot reach it.
    void check_goals() {
        std::vector<uint32_t> first(reached_.size() + 1, 0);
        for (const Edge& edge : edges_) ++first[edge.to + 1];
        for (size_t id = 0; id < reached_.size(); ++id) first[id + 1] += first[id];
        std::vector<uint32_t> sources(edges_.size());
        std::vector<uint32_t> filled(first.begin(), first.end() - 1);
        for (const Edge& edge : edges_) sources[filled[edge.to]++] = edge.from;

        std::vector<uint32_t> pending;
        for (uint32_t id = 0; id < reached_.size(); ++id) {
            if (reached_[id] != 0) pending.push_back(id);
        }
        while (!pending.empty()) {
            const uint32_t id = pending.back();
            pending.pop_back();
            for (uint32_t at = first[id]; at < first[id + 1]; ++at) {
                uint32_t& reached = reached_[sources[at]];
                if ((reached | reached_[id]) == reached) continue;
                reached |= reached_[id];
                pending.push_back(sources[at]);
            }
        }
        for (uint32_t id = 0; id < reached_.size(); ++id) {
            if (const uint32_t missed = model_.goals() & ~reached_[id]; missed != 0) {
                return fail(Verdict::Kind::kUnreachableGoal,
                            "no way to reach goals " + std::to_string(missed), id);
            }
        }
    }

    void fail(Verdict::Kind kind, const std::string& what, uint32_t id) {
        std::vector<Step> path;
        for (; origins_[id].parent != kNoParent; id = origins_[id].parent) path.push_back(origins_[id].step);
        verdict_.kind = kind;
        verdict_.what = what + "\n  after " + std::to_string(path.size()) + " steps:";
        for (auto step = path.rbegin(); step != path.rend(); ++step) {
            verdict_.what += " " + model_.describe(*step);
        }
    }

    const M& model_;
    uint64_t states_max_;
    Verdict verdict_;
    KeySet visited_;
    std::deque<std::pair<uint32_t, State>> frontier_;
    std::vector<Origin> origins_;
    std::vector<uint32_t> reached_;
    std::vector<Edge> edges_;
    std::vector<Step> steps_;
    Key key_;
};

template <Model M>
[[nodiscard]] Verdict explore(const M& model, uint64_t states_max = 6'000'000) {
    return Explorer<M>(model, states_max).run();
}

/// Numbers from a seed, the same on every machine (SplitMix64).
class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
        mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
        mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
        return mixed ^ (mixed >> 31);
    }
    /// 0 .. bound - 1.
    uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) * bound >> 32); }

  private:
    uint64_t state_;
};

/// One path, drawn from the seed, until the model rests. Step classes get weights of 1, 8 or 64 from the
/// seed, so that some walks have a slow poller, a fast sender or a long wire, which even odds never show.
template <Model M>
[[nodiscard]] Verdict walk(const M& model, uint64_t seed, uint64_t steps_max) {
    Verdict verdict;
    Random random(seed);
    auto state = model.initial();
    std::vector<typename M::Step> steps;
    std::vector<uint32_t> weights;
    uint32_t reached = model.goals_met(state);
    const auto fail = [&](Verdict::Kind kind, const std::string& what) {
        verdict.kind = kind;
        verdict.what = what + "\n  after " + std::to_string(verdict.steps) + " steps of the walk with seed " +
                       std::to_string(seed);
        return verdict;
    };
    for (;; ++verdict.steps) {
        if (std::string what = model.violation(state); !what.empty()) {
            return fail(Verdict::Kind::kViolation, what);
        }
        steps.clear();
        model.append_steps(state, steps);
        if (steps.empty()) break;
        if (verdict.steps == steps_max) return fail(Verdict::Kind::kStateLimit, "more steps than the limit");
        uint32_t total = 0;
        for (const auto& step : steps) {
            const uint32_t step_class = model.step_class(step);
            while (weights.size() <= step_class) weights.push_back(1u << (3 * random.below(3)));
            total += weights[step_class];
        }
        uint32_t draw = random.below(total);
        size_t chosen = 0;
        for (; draw >= weights[model.step_class(steps[chosen])]; ++chosen) {
            draw -= weights[model.step_class(steps[chosen])];
        }
        reached |= model.apply(state, steps[chosen]);
        reached |= model.goals_met(state);
    }
    verdict.states = verdict.steps + 1;
    if (const uint32_t missed = model.goals() & ~reached; missed != 0) {
        return fail(Verdict::Kind::kUnreachableGoal, "rests without goals " + std::to_string(missed));
    }
    return verdict;
}

}  // namespace velo::exhaustive
