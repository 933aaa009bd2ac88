/// Explores a model of a protocol, every reachable state once, and looks for more than explorer.h does: the
/// number of states from which the goal cannot be reached any more, and cycles without progress that a weakly
/// fair schedule allows.
///
/// A schedule is weakly fair if no action is enabled from some step on and never taken. A cycle without
/// progress is one that such a schedule may repeat without end if each action that is enabled in all of its
/// states is taken in it. It is enough to look at strongly connected components of the steps without
/// progress: an action that is enabled in all states of a component, and only leaves it, leaves every cycle
/// within it, too. A fault is no such action: no schedule has to take it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "tests/exhaustive/explorer.h"

namespace velo::exhaustive {

struct FairVerdict {
    uint64_t states = 0;
    uint64_t steps = 0;
    uint64_t stuck = 0;   ///< states from which the goal is out of reach
    uint64_t cyclic = 0;  ///< states of fair cycles without progress
    std::string violation;
    std::string path;  ///< a shortest one to one of these

    [[nodiscard]] bool holds() const { return stuck == 0 && cyclic == 0 && violation.empty(); }
    [[nodiscard]] std::string text() const {
        return std::to_string(states) + " states, " + std::to_string(steps) + " steps, " +
               std::to_string(stuck) + " stuck, " + std::to_string(cyclic) + " in fair cycles" +
               (violation.empty() ? "" : ", " + violation) + (path.empty() ? "" : " after" + path);
    }
};

/// World: State, Step; initial(), append_steps(state, steps), apply(state, step) -> progress,
/// action(state, step) < 64, kFault (the action of steps that may never be taken), is_goal(state),
/// violation(state), append_key(state, key), describe(step).
template <typename World>
class FairExplorer {
  public:
    explicit FairExplorer(const World& world) : world_(world) {}

    FairVerdict run() {
        add(world_.initial(), kNoParent, {});
        while (verdict_.violation.empty() && !frontier_.empty()) {
            const auto [id, state] = std::move(frontier_.front());
            frontier_.pop_front();
            steps_.clear();
            world_.append_steps(state, steps_);
            for (const Step step : steps_) {
                State next = state;
                const uint32_t action = world_.action(state, step);
                const bool progress = world_.apply(next, step);
                targets_.push_back(add(std::move(next), id, step));
                labels_.push_back(static_cast<uint8_t>(action | (progress ? kProgress : 0)));
                if (!verdict_.violation.empty()) break;
            }
            ends_.push_back(static_cast<uint32_t>(targets_.size()));
        }
        verdict_.states = visited_.size();
        verdict_.steps = targets_.size();
        if (verdict_.violation.empty()) {
            count_stuck();
            find_cycles();
        }
        return std::move(verdict_);
    }

  private:
    using State = typename World::State;
    using Step = typename World::Step;
    static constexpr uint32_t kNoParent = ~uint32_t{0};
    static constexpr uint32_t kProgress = 64;
    struct Origin {
        uint32_t parent;
        Step step;
    };

    [[nodiscard]] uint32_t first(uint32_t id) const { return id == 0 ? 0 : ends_[id - 1]; }

    uint32_t add(State&& state, uint32_t parent, Step step) {
        key_.clear();
        world_.append_key(state, key_);
        const auto [id, fresh] = visited_.insert(key_);
        if (!fresh) return id;
        origins_.push_back({parent, step});
        goals_.push_back(world_.is_goal(state));
        verdict_.violation = world_.violation(state);
        if (!verdict_.violation.empty()) note_path(id);
        frontier_.emplace_back(id, std::move(state));
        return id;
    }

    void count_stuck() {
        const auto states = static_cast<uint32_t>(visited_.size());
        std::vector<uint32_t> starts(states + 1, 0);
        for (const uint32_t to : targets_) ++starts[to + 1];
        for (uint32_t id = 0; id < states; ++id) starts[id + 1] += starts[id];
        std::vector<uint32_t> sources(targets_.size());
        std::vector<uint32_t> filled(starts.begin(), starts.end() - 1);
        for (uint32_t id = 0; id < states; ++id) {
            for (uint32_t at = first(id); at < ends_[id]; ++at) sources[filled[targets_[at]]++] = id;
        }
        std::vector<bool> reaches = goals_;
        std::vector<uint32_t> pending;
        for (uint32_t id = 0; id < states; ++id) {
            if (reaches[id]) pending.push_back(id);
        }
        while (!pending.empty()) {
            const uint32_t id = pending.back();
            pending.pop_back();
            for (uint32_t at = starts[id]; at < starts[id + 1]; ++at) {
                if (reaches[sources[at]]) continue;
                reaches[sources[at]] = true;
                pending.push_back(sources[at]);
            }
        }
        for (uint32_t id = states; id-- != 0;) {
            if (reaches[id]) continue;
            ++verdict_.stuck;
            note_path(id);
        }
    }

    /// Tarjan's components of the steps without progress.
    void find_cycles() {
        const auto states = static_cast<uint32_t>(visited_.size());
        std::vector<uint32_t> order(states, 0);
        std::vector<uint32_t> low(states, 0);
        component_.assign(states, kNoParent);
        std::vector<uint32_t> stack;
        std::vector<std::pair<uint32_t, uint32_t>> calls;  // state, its next step
        uint32_t count = 0;
        for (uint32_t root = 0; root < states; ++root) {
            if (order[root] != 0) continue;
            calls.emplace_back(root, first(root));
            order[root] = low[root] = ++count;
            stack.push_back(root);
            while (!calls.empty()) {
                const uint32_t id = calls.back().first;
                uint32_t& at = calls.back().second;
                while (at < ends_[id] && (labels_[at] & kProgress) != 0) ++at;
                if (at < ends_[id]) {
                    const uint32_t to = targets_[at++];
                    if (order[to] == 0) {
                        order[to] = low[to] = ++count;
                        stack.push_back(to);
                        calls.emplace_back(to, first(to));
                    } else if (component_[to] == kNoParent) {
                        low[id] = std::min(low[id], order[to]);
                    }
                    continue;
                }
                calls.pop_back();
                if (!calls.empty()) low[calls.back().first] = std::min(low[calls.back().first], low[id]);
                if (low[id] == order[id]) close_component(stack, id);
            }
        }
    }

    void close_component(std::vector<uint32_t>& stack, uint32_t root) {
        const auto begin = std::find(stack.rbegin(), stack.rend(), root).base() - 1;
        for (auto id = begin; id != stack.end(); ++id) component_[*id] = root;
        uint64_t always = ~uint64_t{0};
        uint64_t taken = 0;
        for (auto id = begin; id != stack.end(); ++id) {
            uint64_t enabled = 0;
            for (uint32_t at = first(*id); at < ends_[*id]; ++at) {
                const uint64_t action = uint64_t{1} << (labels_[at] % kProgress);
                if (labels_[at] % kProgress != World::kFault) enabled |= action;
                if ((labels_[at] & kProgress) == 0 && component_[targets_[at]] == root) taken |= action;
            }
            always &= enabled;
        }
        if (taken != 0 && (always & ~taken) == 0) {
            verdict_.cyclic += static_cast<uint64_t>(stack.end() - begin);
            note_path(root);
        }
        stack.erase(begin, stack.end());
    }

    void note_path(uint32_t id) {
        std::vector<Step> path;
        for (; origins_[id].parent != kNoParent; id = origins_[id].parent) path.push_back(origins_[id].step);
        verdict_.path.clear();
        for (auto step = path.rbegin(); step != path.rend(); ++step) {
            verdict_.path += " " + world_.describe(*step);
        }
    }

    const World& world_;
    FairVerdict verdict_;
    KeySet visited_;
    std::deque<std::pair<uint32_t, State>> frontier_;
    std::vector<Origin> origins_;
    std::vector<bool> goals_;
    std::vector<uint32_t> targets_;  ///< of the steps, by state
    std::vector<uint8_t> labels_;    ///< action, and kProgress
    std::vector<uint32_t> ends_;
    std::vector<uint32_t> component_;
    std::vector<Step> steps_;
    Key key_;
};

}  // namespace velo::exhaustive
