/// A model of nodes with one rail each, whose processes reserve it before each transfer: what
/// rma/rail_reservation.h is explored in, and what unsafe readings of RAILS 4 fail in.
///
/// Control messages are in order between two nodes, or in no order. Data takes a way of its own. Faults have
/// budgets, so that no cycle has one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rma/rail_reservation.h"
#include "tests/exhaustive/explorer.h"
#include "velo/base/check.h"

namespace velo::exhaustive {

constexpr uint32_t kNodesMax = 3;

struct RailWorldOptions {
    std::vector<std::vector<uint8_t>> transfers;  ///< of each node: peers, in order
    bool any_order = false;                       ///< of control messages
    bool requester_ends = false;                  ///< as in velo; else the granter does, as in RAILS
    bool numbers = true;                          ///< both ends agree on the request's number, too
    uint8_t aborts = 0;                           ///< requests and grants that a process gives up
    uint8_t node_deaths = 0;
    uint8_t rail_deaths = 0;
    bool rails_return = true;  ///< else a process gives up what a dead rail refuses
    uint8_t timeouts =
        0;  ///< a process stops waiting for an answer, and does not tell its rail (algorithm 4)
};

/// Rail: HalfDuplexRail, or what has its functions. `Make`: Rail(uint32_t node).
template <typename Rail, typename Make>
class RailWorld {
  public:
    enum class Kind : uint8_t {
        kAsk,
        kMove,
        kArrive,
        kRevive,
        kReport,
        kDeliver,
        kAbort,
        kDie,
        kRailDie,
        kTimeout
    };
    struct Step {
        Kind kind{};
        uint8_t node = 0;
        uint8_t other = 0;  ///< kDeliver: place among the messages; kReport: the dead node
    };
    enum class Process : uint8_t { kIdle, kAsked, kGranted, kMoving, kMoved };
    struct Flight {
        uint8_t from = 0;
        uint8_t to = 0;
        rma::RailMessage message;
    };
    struct Node {
        Rail rail;
        Process process = Process::kIdle;
        uint8_t done = 0;  ///< transfers
        bool dead = false;
        uint8_t reported = 0;  ///< nodes whose death it knows
    };
    /// Without allocation, because states are copied often.
    class Flights {
      public:
        void push_back(const Flight& flight) {
            VELO_CHECK(size_ < flights_.size(), "more than %zu messages", flights_.size());
            flights_[size_++] = flight;
        }
        void erase(size_t at) {
            std::copy(begin() + at + 1, end(), flights_.begin() + at);
            --size_;
        }
        template <typename Matches>
        void erase_if(Matches&& matches) {
            size_ = static_cast<size_t>(std::remove_if(flights_.begin(), flights_.begin() + size_, matches) -
                                        flights_.begin());
        }
        [[nodiscard]] const Flight& operator[](size_t at) const { return flights_[at]; }
        [[nodiscard]] size_t size() const { return size_; }
        [[nodiscard]] bool empty() const { return size_ == 0; }
        [[nodiscard]] const Flight* begin() const { return flights_.data(); }
        [[nodiscard]] const Flight* end() const { return flights_.data() + size_; }

      private:
        std::array<Flight, 20> flights_{};
        size_t size_ = 0;
    };
    struct State {
        std::array<Node, kNodesMax> nodes;
        Flights flights;  ///< oldest first
        uint8_t aborts = 0, node_deaths = 0, rail_deaths = 0, timeouts = 0;
    };

    RailWorld(RailWorldOptions options, Make make) : options_(std::move(options)), make_(std::move(make)) {}

    [[nodiscard]] State initial() const {
        VELO_CHECK(options_.transfers.size() <= kNodesMax, "%zu nodes", options_.transfers.size());
        return {.nodes = {Node{make_(0)}, Node{make_(1)}, Node{make_(2)}}, .flights = {}};
    }

    void append_steps(const State& state, std::vector<Step>& steps) const {
        for (uint8_t i = 0; i < nodes(); ++i) {
            const Node& node = state.nodes[i];
            if (node.dead) continue;
            const bool dead_rail = node.rail.state() == Rail::State::kDead;
            if (node.process == Process::kIdle && node.done < options_.transfers[i].size() &&
                node.rail.state() == Rail::State::kFree) {
                steps.push_back({Kind::kAsk, i});
            }
            if (node.process == Process::kGranted) steps.push_back({Kind::kMove, i});
            if (node.process == Process::kMoving && !lost(state, node)) steps.push_back({Kind::kArrive, i});
            if (dead_rail && options_.rails_return) steps.push_back({Kind::kRevive, i});
            for (uint8_t dead = 0; dead < nodes(); ++dead) {
                if (state.nodes[dead].dead && (node.reported >> dead & 1) == 0) {
                    steps.push_back({Kind::kReport, i, dead});
                }
            }
            const bool waits = node.process == Process::kAsked || node.process == Process::kGranted;
            if (waits && state.aborts < options_.aborts) steps.push_back({Kind::kAbort, i});
            if (state.node_deaths < options_.node_deaths) steps.push_back({Kind::kDie, i});
            if (state.rail_deaths < options_.rail_deaths && !dead_rail) steps.push_back({Kind::kRailDie, i});
            if (node.process == Process::kAsked && state.timeouts < options_.timeouts) {
                steps.push_back({Kind::kTimeout, i});
            }
        }
        for (uint8_t at = 0; at < state.flights.size(); ++at) {
            if (options_.any_order || is_first(state, at)) {
                steps.push_back({Kind::kDeliver, state.flights[at].to, at});
            }
        }
    }

    /// True: data arrives.
    bool apply(State& state, Step step) const {
        Node& node = state.nodes[step.node];
        switch (step.kind) {
            case Kind::kAsk:
                node.process = Process::kAsked;
                perform(state, step.node, node.rail.request(options_.transfers[step.node][node.done]));
                return false;
            case Kind::kMove: node.process = Process::kMoving; return false;
            case Kind::kArrive: arrive(state, step.node); return true;
            case Kind::kRevive: node.rail.rail_revived(); return false;
            case Kind::kReport: report(state, step.node, step.other); return false;
            case Kind::kDeliver: {
                const Flight flight = state.flights[step.other];
                state.flights.erase(step.other);
                perform(state, flight.to, node.rail.received(flight.message));
                return false;
            }
            case Kind::kAbort:
                ++state.aborts;
                node.process = Process::kIdle;
                perform(state, step.node, node.rail.abort());
                return false;
            case Kind::kDie:
                ++state.node_deaths;
                node.dead = true;
                state.flights.erase_if([&](const Flight& flight) { return flight.to == step.node; });
                return false;
            case Kind::kRailDie:
                ++state.rail_deaths;
                perform(state, step.node, node.rail.rail_died(sender(state, step.node)));
                return false;
            case Kind::kTimeout:
                ++state.timeouts;
                node.process = Process::kIdle;
                return false;
        }
        return false;
    }

    static constexpr uint32_t kFault = 63;
    /// Unit of weak fairness: a node's step, or the messages of one kind between two nodes.
    [[nodiscard]] uint32_t action(const State& state, Step step) const {
        if (step.kind < Kind::kDeliver) return static_cast<uint32_t>(step.kind) * kNodesMax + step.node;
        if (step.kind > Kind::kDeliver) return kFault;
        const Flight& flight = state.flights[step.other];
        const uint32_t pair =
            flight.from * (kNodesMax - 1u) + flight.to - (flight.to > flight.from ? 1u : 0u);
        const uint32_t kind = options_.any_order ? static_cast<uint32_t>(flight.message.kind) : 0;
        return static_cast<uint32_t>(Kind::kDeliver) * kNodesMax + pair * 6 + kind;
    }

    /// Each transfer between live nodes is over, and each rail of them free.
    [[nodiscard]] bool is_goal(const State& state) const {
        if (!state.flights.empty()) return false;
        for (uint32_t i = 0; i < nodes(); ++i) {
            const Node& node = state.nodes[i];
            if (node.dead) continue;
            if (node.process != Process::kIdle) return false;
            if (dead_for_good(node)) continue;
            if (node.done < options_.transfers[i].size()) return false;
            if (node.rail.state() != Rail::State::kFree || node.rail.grant()) return false;
        }
        return true;
    }

    [[nodiscard]] std::string violation(const State& state) const {
        for (uint32_t i = 0; i < nodes(); ++i) {
            const Node& node = state.nodes[i];
            if (node.dead || node.process != Process::kMoving || lost(state, node)) continue;
            const auto own = node.rail.own_request();
            if (node.rail.state() != Rail::State::kSending || !own)
                return "a rail moves data and is not Sending";
            const Node& peer = state.nodes[own->peer];
            if (own->peer != options_.transfers[i][node.done])
                return "data moves to another peer than it should";
            const auto grant = peer.rail.grant();
            if (!grant || grant->peer != i || (options_.numbers && grant->number != own->number)) {
                return "data moves on a rail that its peer has not set aside";
            }
        }
        return "";
    }

    void append_key(const State& state, Key& key) const {
        key.insert(key.end(), {state.aborts, state.node_deaths, state.rail_deaths, state.timeouts});
        for (uint32_t i = 0; i < nodes(); ++i) note_numbers(state, i);
        for (uint32_t i = 0; i < nodes(); ++i) {
            const Node& node = state.nodes[i];
            key.push_back(
                static_cast<uint8_t>(static_cast<uint8_t>(node.process) | node.done << 3 | node.dead << 7));
            key.push_back(node.reported);
            if (node.dead) continue;
            key.push_back(static_cast<uint8_t>(node.rail.state()));
            if (const auto own = node.rail.own_request()) {
                key.insert(key.end(), {static_cast<uint8_t>(own->peer | own->aborted << 4),
                                       rank(i, own->number), static_cast<uint8_t>(own->counter)});
            }
            const auto grant = node.rail.grant();
            key.push_back(grant ? static_cast<uint8_t>(grant->peer) : UINT8_MAX);
            if (grant) key.push_back(rank(grant->peer, grant->number));
            if constexpr (requires { node.rail.counter(); }) {
                key.push_back(static_cast<uint8_t>(node.rail.counter()));
            } else {
                key.push_back(static_cast<uint8_t>(node.rail.queued()));
                for (uint32_t at = 0; at < node.rail.queued(); ++at) {
                    const rma::RailGrant waiting = node.rail.queued_at(at);
                    key.insert(key.end(),
                               {static_cast<uint8_t>(waiting.peer), rank(waiting.peer, waiting.number)});
                }
            }
        }
        append_flights(state, key);
    }

    [[nodiscard]] std::string describe(Step step) const {
        constexpr const char* kNames[] = {"ask",     "move",  "arrive", "revive",    "report",
                                          "deliver", "abort", "dies",   "rail-dies", "timeout"};
        return std::string(kNames[static_cast<size_t>(step.kind)]) + std::to_string(step.node);
    }

  private:
    using Entry = std::array<uint8_t, 4>;

    [[nodiscard]] uint8_t nodes() const { return static_cast<uint8_t>(options_.transfers.size()); }
    auto sender(State& state, uint8_t from) const {
        return [&state, from](const rma::RailMessage& message) {
            const auto to = static_cast<uint8_t>(message.peer);
            if (state.nodes[to].dead) return;
            Flight flight{from, to, message};
            flight.message.peer = from;
            state.flights.push_back(flight);
        };
    }
    void perform(State& state, uint8_t at, const rma::RailActions& actions) const {
        if (actions.message) sender(state, at)(*actions.message);
        Node& node = state.nodes[at];
        switch (actions.answer) {
            case rma::RailAnswer::kNone: break;
            case rma::RailAnswer::kGranted:
                // A process that does not wait any more never looks at it (the timeout of algorithm 4).
                if (node.process == Process::kAsked) node.process = Process::kGranted;
                break;
            case rma::RailAnswer::kRefused:
                if (node.process == Process::kAsked) node.process = Process::kIdle;
                if (!options_.rails_return) skip_dead(state, at);
                break;
            case rma::RailAnswer::kLost:
            case rma::RailAnswer::kDone: end(state, at); break;
        }
    }
    /// The rail is not the process's any more. Whether data has moved it knows from the device.
    void end(State& state, uint8_t at) const {
        Node& node = state.nodes[at];
        if (node.process == Process::kMoved) ++node.done;
        node.process = Process::kIdle;
        skip_dead(state, at);
    }
    void skip_dead(State& state, uint8_t at) const {
        Node& node = state.nodes[at];
        const auto& transfers = options_.transfers[at];
        while (node.process == Process::kIdle && node.done < transfers.size() &&
               ((node.reported >> transfers[node.done] & 1) != 0 ||
                dead_for_good(state.nodes[transfers[node.done]]))) {
            ++node.done;
        }
    }
    [[nodiscard]] bool dead_for_good(const Node& node) const {
        return !options_.rails_return && node.rail.state() == Rail::State::kDead;
    }
    void arrive(State& state, uint8_t at) const {
        Node& node = state.nodes[at];
        node.process = Process::kMoved;
        const auto granter = static_cast<uint8_t>(node.rail.own_request()->peer);
        if (options_.requester_ends) {
            perform(state, at, node.rail.request_done());
            end(state, at);
        } else if (!state.nodes[granter].dead) {
            perform(state, granter, state.nodes[granter].rail.grant_done(sender(state, granter)));
        }
    }
    void report(State& state, uint8_t at, uint8_t dead) const {
        Node& node = state.nodes[at];
        node.reported |= static_cast<uint8_t>(1u << dead);
        state.flights.erase_if([&](const Flight& flight) { return flight.from == dead && flight.to == at; });
        perform(state, at, node.rail.peer_died(dead));
        skip_dead(state, at);
    }
    /// The data of a node in kMoving went down with a rail, which the device reports as the end of the
    /// transfer.
    [[nodiscard]] bool lost(const State& state, const Node& node) const {
        const auto own = node.rail.own_request();
        if (!own) return false;
        const Node& peer = state.nodes[own->peer];
        return peer.dead || peer.rail.state() == Rail::State::kDead ||
               (options_.rail_deaths != 0 && taken_back(state, node));
    }
    /// A NACK on its way takes the grant back.
    [[nodiscard]] bool taken_back(const State& state, const Node& node) const {
        const auto own = node.rail.own_request();
        const auto at = static_cast<uint8_t>(&node - state.nodes.data());
        return std::any_of(state.flights.begin(), state.flights.end(), [&](const Flight& flight) {
            return flight.to == at && flight.from == own->peer &&
                   flight.message.kind == rma::RailMessageKind::kNack && flight.message.number == own->number;
        });
    }
    [[nodiscard]] static bool is_first(const State& state, size_t at) {
        for (size_t i = 0; i < at; ++i) {
            if (state.flights[i].from == state.flights[at].from &&
                state.flights[i].to == state.flights[at].to)
                return false;
        }
        return true;
    }

    /// Numbers matter only by their order, so a key has their ranks.
    void note_numbers(const State& state, uint32_t of) const {
        std::vector<uint32_t>& numbers = numbers_[of];
        numbers.clear();
        for (uint32_t i = 0; i < nodes(); ++i) {
            const Rail& rail = state.nodes[i].rail;
            if (i == of && rail.own_request()) numbers.push_back(rail.own_request()->number);
            if (const auto grant = rail.grant(); grant && grant->peer == of) numbers.push_back(grant->number);
            if constexpr (requires { rail.queued(); }) {
                for (uint32_t at = 0; at < rail.queued(); ++at) {
                    if (rail.queued_at(at).peer == of) numbers.push_back(rail.queued_at(at).number);
                }
            }
        }
        for (const Flight& flight : state.flights) {
            if (requester(flight) == of) numbers.push_back(flight.message.number);
        }
        std::sort(numbers.begin(), numbers.end());
        numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    }
    [[nodiscard]] static uint8_t requester(const Flight& flight) {
        const bool of_granter = flight.message.kind == rma::RailMessageKind::kCts ||
                                flight.message.kind == rma::RailMessageKind::kNack ||
                                flight.message.kind == rma::RailMessageKind::kAck;
        return of_granter ? flight.to : flight.from;
    }
    [[nodiscard]] uint8_t rank(uint32_t of, uint32_t number) const {
        const std::vector<uint32_t>& numbers = numbers_[of];
        return static_cast<uint8_t>(std::lower_bound(numbers.begin(), numbers.end(), number) -
                                    numbers.begin());
    }
    void append_flights(const State& state, Key& key) const {
        std::vector<Entry>& entries = entries_;
        entries.clear();
        for (const Flight& flight : state.flights) {
            entries.push_back({static_cast<uint8_t>(flight.from << 4 | flight.to),
                               static_cast<uint8_t>(flight.message.kind),
                               rank(requester(flight), flight.message.number),
                               static_cast<uint8_t>(flight.message.counter)});
        }
        if (options_.any_order) {
            std::sort(entries.begin(), entries.end());
        } else {
            std::stable_sort(entries.begin(), entries.end(),
                             [](const Entry& a, const Entry& b) { return a[0] < b[0]; });
        }
        for (const Entry& entry : entries) key.insert(key.end(), entry.begin(), entry.end());
    }

    RailWorldOptions options_;
    Make make_;
    mutable std::array<std::vector<uint32_t>, kNodesMax> numbers_;
    mutable std::vector<Entry> entries_;
};

}  // namespace velo::exhaustive
