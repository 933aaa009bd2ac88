/// Transfers over several rails of several processes (rma/rail_reservations.h), as a model for
/// fair_explorer.h.
///
/// Messages arrive in any order. Processes and rails die, some rails for good, paths fail, and messages are
/// lost, as often as the options say. A state is the steps that led to it: the machines are made again from
/// them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "rma/rail_reservations.h"
#include "tests/exhaustive/explorer.h"

namespace velo::exhaustive {

/// Processes that get (or put) from each other; a chunk a byte.
struct ReservedTransfer {
    uint8_t from = 0;  ///< the requester
    uint8_t to = 0;
    uint8_t chunks = 1;
    bool put = false;
};

struct RailReservationsOptions {
    std::vector<ReservedTransfer> transfers;
    uint8_t processes = 2;
    uint8_t rails = 2;
    uint8_t deaths = 0;       ///< of processes
    uint8_t rail_deaths = 0;  ///< of a rail at one end
    bool come_back = true;    ///< rails
    uint8_t paths = 0;        ///< that fail
    uint8_t losses = 0;       ///< of messages
    bool patient = false;     ///< no transfer goes without a reservation
    bool keeps = false;  ///< a mistake: a transfer keeps its grants until all that it asked for are there
};

class RailReservationsWorld {
  public:
    enum class Do : uint8_t {
        kDrive,
        kDeliver,
        kLose,
        kFirst,  ///< a first chunk is issued, by any rail
        kFirstEnds,
        kIssue,
        kEnd,
        kOverdue,
        kDie,
        kFollow,
        kRailDies,
        kRailReturns,
        kPath
    };
    struct Step {
        Do what{};
        uint8_t a = 0;
        uint8_t b = 0;
        uint8_t c = 0;
    };
    struct State {
        std::vector<Step> path;
    };
    static constexpr uint32_t kFault = 63;

    explicit RailReservationsWorld(const RailReservationsOptions& options) : options_(options) {}

    [[nodiscard]] static State initial() { return {}; }
    void append_steps(const State& state, std::vector<Step>& steps) const {
        const Live& live = at(state);
        for (uint8_t i = 0; i < live.messages.size(); ++i) {
            steps.push_back({Do::kDeliver, i});
            if (live.losses < options_.losses) steps.push_back({Do::kLose, i});
        }
        for (uint8_t process = 0; process < options_.processes; ++process) {
            const Node& node = live.nodes[process];
            if (node.dead) continue;
            if (node.machine->waits()) steps.push_back({Do::kDrive, process});
            if (node.machine->waits() && !options_.patient) steps.push_back({Do::kOverdue, process});
            if (live.deaths < options_.deaths) steps.push_back({Do::kDie, process});
            for (uint8_t other = 0; other < options_.processes; ++other) {
                if (other == process) continue;
                if (live.nodes[other].dead && (node.followed >> other & 1) == 0)
                    steps.push_back({Do::kFollow, process, other});
                for (uint8_t rail = 0; rail < options_.rails; ++rail) {
                    if (live.paths < options_.paths && (node.paths[other] >> rail & 1) == 0)
                        steps.push_back({Do::kPath, process, other, rail});
                }
            }
            for (uint8_t rail = 0; rail < options_.rails; ++rail) {
                const bool dead = (node.machine->dead() >> rail & 1) != 0;
                if (!dead && live.rail_deaths < options_.rail_deaths)
                    steps.push_back({Do::kRailDies, process, rail});
                if (dead && options_.come_back) steps.push_back({Do::kRailReturns, process, rail});
            }
        }
        for (uint8_t i = 0; i < live.transfers.size(); ++i) {
            const Run& run = live.transfers[i];
            if (!live.nodes[options_.transfers[i].from].dead) {
                if (run.transfer.begun && run.transfer.issued_bytes == 0) steps.push_back({Do::kFirst, i});
                if (run.first) steps.push_back({Do::kFirstEnds, i});
            }
            if (!run.admitted || run.ended || live.nodes[options_.transfers[i].from].dead) continue;
            const bool waits = options_.keeps && run.transfer.asked != 0;
            if (!run.transfer.all_issued() && !waits) {
                if (run.transfer.rails == 0) steps.push_back({Do::kIssue, i, options_.rails});
                for (uint8_t rail = 0; rail < options_.rails; ++rail)
                    if ((run.transfer.rails >> rail & 1) != 0) steps.push_back({Do::kIssue, i, rail});
            }
            for (uint8_t rail = 0; rail < options_.rails; ++rail)
                if (run.chunks[rail] != 0) steps.push_back({Do::kEnd, i, rail});
        }
    }
    /// True: data has moved.
    bool apply(State& state, Step step) const {
        state.path.push_back(step);
        return step.what == Do::kFirst || step.what == Do::kFirstEnds || step.what == Do::kIssue ||
               step.what == Do::kEnd;
    }
    /// Each delivery is one of its own: no message may be passed over without end.
    [[nodiscard]] uint32_t action(const State& state, Step step) const {
        switch (step.what) {
            case Do::kDeliver: {
                const Sent& sent = at(state).messages[step.a];
                return static_cast<uint32_t>(sent.message.kind) * 6 + sent.from * 2u + sent.rail % 2u;
            }
            case Do::kDrive: return 36u + step.a;
            case Do::kOverdue: return 39u + step.a;
            case Do::kFollow: return 42u + step.a;
            case Do::kRailReturns: return 45u + step.a;
            case Do::kFirst:
            case Do::kIssue: return 48u + step.a;
            case Do::kFirstEnds:
            case Do::kEnd: return 55u + step.a;
            default: return kFault;
        }
    }
    /// All transfers of processes that live have ended, and nothing is left of them.
    [[nodiscard]] bool is_goal(const State& state) const {
        const Live& live = at(state);
        for (size_t i = 0; i < live.transfers.size(); ++i)
            if (!live.transfers[i].ended && !live.nodes[options_.transfers[i].from].dead) return false;
        if (!live.messages.empty()) return false;
        // A lost message leaves a grant in place until the next request of the same process, if one comes.
        if (live.losses != 0) return true;
        for (const Node& node : live.nodes) {
            if (node.dead) continue;
            for_each_half(node, [&](const auto& rail) {
                quiet_ &= !rail.grant() && !rail.own_request() && rail.queued() == 0;
            });
        }
        return std::exchange(quiet_, true);
    }
    /// A rail that is held is set aside at the other end, unless that has died, or a word to the contrary is
    /// under way.
    [[nodiscard]] std::string violation(const State& state) const {
        const Live& live = at(state);
        if (!live.wrong.empty()) return live.wrong;
        if (live.losses != 0) return "";
        for (uint8_t process = 0; process < options_.processes; ++process) {
            if (live.nodes[process].dead) continue;
            for (uint32_t rail = 0; rail < options_.rails; ++rail) {
                for (const rma::RailDirection direction : kDirections) {
                    const auto& own = live.nodes[process].machine->rail(direction, rail);
                    const auto request = own.own_request();
                    if (!request || own.state() != rma::RailReservations::Rail::State::kSending) continue;
                    if (live.nodes[request->peer].dead) continue;
                    const auto grant = live.nodes[request->peer].machine->rail(direction, rail).grant();
                    if (grant == rma::RailGrant{process, request->number}) continue;
                    const bool told = std::ranges::any_of(live.messages, [&](const Sent& sent) {
                        return sent.to == process && sent.rail == rail && sent.direction == direction &&
                               sent.message.kind == rma::RailMessageKind::kNack &&
                               sent.message.number == request->number;
                    });
                    if (!told) return "a rail is held that is not set aside";
                }
            }
        }
        return "";
    }
    void append_key(const State& state, Key& key) const {
        const Live& live = at(state);
        // Their order is all that numbers are used for, so those who ask again come back to where they were.
        const auto numbers = numbers_in(live);
        const auto relative = [&](uint32_t requester, rma::RailDirection direction, uint32_t rail,
                                  uint32_t number) {
            const std::vector<uint32_t>& all = numbers[requester][rail * 2 + index(direction)];
            return static_cast<uint8_t>(
                std::ranges::count_if(all, [&](uint32_t other) { return other > number; }));
        };
        const auto add = [&](auto value) { key.push_back(static_cast<uint8_t>(value)); };
        add(live.deaths), add(live.rail_deaths), add(live.paths), add(live.losses);
        for (uint8_t process = 0; process < options_.processes; ++process) {
            const Node& node = live.nodes[process];
            add(node.dead), add(node.followed);
            if (node.dead) continue;
            add(node.machine->dead());
            for (const uint8_t paths : node.paths) add(paths);
            for (uint32_t rail = 0; rail < options_.rails; ++rail) {
                for (const rma::RailDirection direction : kDirections) {
                    const auto& half = node.machine->rail(direction, rail);
                    add(half.state());
                    if (const auto own = half.own_request())
                        add(own->peer), add(relative(process, direction, rail, own->number));
                    add(half.grant() ? half.grant()->peer : 0xff);
                    if (const auto grant = half.grant())
                        add(relative(grant->peer, direction, rail, grant->number));
                    add(half.queued());
                    for (uint32_t i = 0; i < half.queued(); ++i) {
                        const rma::RailGrant queued = half.queued_at(i);
                        add(queued.peer), add(relative(queued.peer, direction, rail, queued.number));
                    }
                }
            }
            node.machine->for_each_waiting([&](const rma::ReservingTransfer& transfer) {
                for (size_t i = 0; i < live.transfers.size(); ++i)
                    if (&live.transfers[i].transfer == &transfer) add(i);
            });
            add(0xfe);
        }
        for (const Run& run : live.transfers) {
            add(run.transfer.begun), add(run.first);
            add(run.admitted), add(run.ended), add(run.transfer.rails), add(run.transfer.asked);
            add(run.transfer.refused), add(run.transfer.issued_bytes), add(run.transfer.stage);
            for (uint32_t rail = 0; rail < options_.rails; ++rail)
                add(run.chunks[rail]), add(run.reserved[rail]);
        }
        std::vector<std::array<uint8_t, 6>> sent;
        for (const Sent& each : live.messages) {
            sent.push_back({each.from, each.to, static_cast<uint8_t>(each.message.kind),
                            static_cast<uint8_t>(each.rail), static_cast<uint8_t>(each.direction),
                            relative(requester_of(each), each.direction, each.rail, each.message.number)});
        }
        std::ranges::sort(sent);
        for (const auto& each : sent) key.insert(key.end(), each.begin(), each.end());
    }
    [[nodiscard]] static std::string describe(Step step) {
        constexpr const char* kNames[] = {"drive",   "deliver", "lose", "first",   "first_ends", "issue",
                                          "end",     "overdue", "dies", "follows", "rail_dies",  "rail_returns",
                                          "path"};
        return std::string(kNames[static_cast<size_t>(step.what)]) + "(" + std::to_string(step.a) + "," +
               std::to_string(step.b) + "," + std::to_string(step.c) + ")";
    }

  private:
    static constexpr std::array kDirections = {rma::RailDirection::kSending, rma::RailDirection::kReceiving};
    static constexpr uint64_t kWaitNs = uint64_t{1} << 40;
    /// Longer than any pause, so that each is over at the next step.
    static constexpr uint64_t kStepNs = 10'000'000;
    static constexpr uint32_t kMost = 3;

    struct Sent {
        uint8_t from;
        uint8_t to;
        rma::RailDirection direction;
        uint32_t rail;
        rma::RailMessage message;
    };
    struct Node {
        std::unique_ptr<rma::RailReservations> machine;
        bool dead = false;
        uint8_t followed = 0;                ///< ends of others that it knows of
        std::array<uint8_t, kMost> paths{};  ///< that have failed, by peer
    };
    struct Run {
        rma::ReservingTransfer transfer;
        std::array<uint8_t, 4> chunks{};    ///< under way, by rail
        std::array<uint8_t, 4> reserved{};  ///< of these
        bool first = false;  ///< its first chunk is under way
        bool admitted = false;
        bool ended = false;
    };
    struct Live {
        std::vector<Node> nodes;
        std::deque<Run> transfers;
        std::vector<Sent> messages;
        uint8_t deaths = 0, rail_deaths = 0, paths = 0, losses = 0;
        std::string wrong;
    };
    struct Host {
        const RailReservationsOptions& options;
        Live& live;
        uint8_t self;
        [[nodiscard]] rma::RailMask usable(const rma::ReservingTransfer& transfer) const {
            return rma::RailMask{(1u << options.rails) - 1u} &
                   ~rma::RailMask{live.nodes[self].paths[transfer.granter]};
        }
        [[nodiscard]] static rma::RailMask share(rma::RailMask free, uint64_t bytes) {
            for (; static_cast<uint64_t>(std::popcount(free)) > bytes; free &= free - 1) {
            }
            return free;
        }
        void send(rma::RailDirection direction, uint32_t rail, rma::RailMessage message) const {
            const auto to = static_cast<uint8_t>(message.peer);
            if (live.nodes[to].dead) return;
            message.peer = self;
            live.messages.push_back({self, to, direction, rail, message});
            std::ranges::stable_sort(live.messages, {}, [](const Sent& sent) {
                return std::tuple(sent.from, sent.to, sent.message.kind, sent.rail, sent.direction);
            });
        }
        void answer(rma::RailDirection direction, uint32_t rail, const rma::RailMessage& message) const {
            send(direction, rail, message);
        }
        void late(const rma::ReservingTransfer&) const {}
        void begin(const rma::ReservingTransfer&) const {}
        void admit(rma::ReservingTransfer& transfer) const {
            for (Run& run : live.transfers)
                if (&run.transfer == &transfer) run.admitted = true;
        }
    };

    [[nodiscard]] static uint8_t requester_of(const Sent& sent) {
        const bool request = sent.message.kind == rma::RailMessageKind::kRts ||
                             sent.message.kind == rma::RailMessageKind::kAbort ||
                             sent.message.kind == rma::RailMessageKind::kDone;
        return request ? sent.from : sent.to;
    }
    /// Each number that is anywhere, once, by requester, rail and direction.
    using Numbers = std::array<std::array<std::vector<uint32_t>, 8>, kMost>;
    [[nodiscard]] Numbers numbers_in(const Live& live) const {
        Numbers numbers;
        const auto add = [&](uint32_t requester, rma::RailDirection direction, uint32_t rail,
                             uint32_t number) {
            std::vector<uint32_t>& all = numbers[requester][rail * 2 + index(direction)];
            if (std::ranges::find(all, number) == all.end()) all.push_back(number);
        };
        for (uint8_t process = 0; process < options_.processes; ++process) {
            if (live.nodes[process].dead) continue;
            for (uint32_t rail = 0; rail < options_.rails; ++rail) {
                for (const rma::RailDirection direction : kDirections) {
                    const auto& half = live.nodes[process].machine->rail(direction, rail);
                    if (const auto own = half.own_request()) add(process, direction, rail, own->number);
                    if (const auto grant = half.grant()) add(grant->peer, direction, rail, grant->number);
                    for (uint32_t i = 0; i < half.queued(); ++i)
                        add(half.queued_at(i).peer, direction, rail, half.queued_at(i).number);
                }
            }
        }
        for (const Sent& sent : live.messages)
            add(requester_of(sent), sent.direction, sent.rail, sent.message.number);
        return numbers;
    }

    [[nodiscard]] static size_t index(rma::RailDirection direction) { return static_cast<size_t>(direction); }
    template <class Visit>
    void for_each_half(const Node& node, Visit&& visit) const {
        for (uint32_t rail = 0; rail < options_.rails; ++rail)
            for (const rma::RailDirection direction : kDirections) visit(node.machine->rail(direction, rail));
    }

    /// The last state asked for is kept.
    const Live& at(const State& state) const {
        const auto same = [](const Step& left, const Step& right) {
            return left.what == right.what && left.a == right.a && left.b == right.b && left.c == right.c;
        };
        if (live_ && std::ranges::equal(path_, state.path, same)) return *live_;
        // A step further, or from the beginning.
        const bool further = live_ && !state.path.empty() && path_.size() + 1 == state.path.size() &&
                             std::equal(path_.begin(), path_.end(), state.path.begin(), same);
        if (!further) begin();
        for (size_t done = further ? path_.size() : 0; done < state.path.size(); ++done)
            perform(*live_, state.path[done], (done + 1) * kStepNs);
        path_ = state.path;
        return *live_;
    }
    void begin() const {
        live_ = std::make_unique<Live>();
        for (uint8_t process = 0; process < options_.processes; ++process) {
            live_->nodes.emplace_back().machine =
                std::make_unique<rma::RailReservations>(rma::RailReservations::Settings{
                    .rails = options_.rails, .wait_ns = kWaitNs, .seed = process + 1u});
        }
        for (const ReservedTransfer& each : options_.transfers) {
            Run& run = live_->transfers.emplace_back();
            run.transfer.bytes = each.chunks;
            run.transfer.chunk_bytes = 1;
            live_->nodes[each.from].machine->post(
                run.transfer, each.to,
                each.put ? rma::RailDirection::kSending : rma::RailDirection::kReceiving, 0);
        }
    }
    void perform(Live& live, Step step, uint64_t now_ns) const {
        const auto host = [&](uint8_t process) { return Host{options_, live, process}; };
        const auto machine = [&](uint8_t process) -> rma::RailReservations& {
            return *live.nodes[process].machine;
        };
        switch (step.what) {
            case Do::kDrive: machine(step.a).drive(now_ns, host(step.a)); break;
            case Do::kOverdue: machine(step.a).drive(now_ns + 2 * kWaitNs, host(step.a)); break;
            case Do::kLose: ++live.losses; [[fallthrough]];
            case Do::kDeliver: {
                const Sent sent = live.messages[step.a];
                live.messages.erase(live.messages.begin() + step.a);
                if (step.what == Do::kLose || (live.nodes[sent.to].followed >> sent.from & 1) != 0) break;
                machine(sent.to).received(sent.direction, sent.rail, sent.message, now_ns, host(sent.to));
                break;
            }
            case Do::kFirst: {
                Run& run = live.transfers[step.a];
                run.transfer.issued_bytes = run.transfer.outstanding = 1;
                run.first = true;
                break;
            }
            case Do::kFirstEnds:
                live.transfers[step.a].first = false;
                --live.transfers[step.a].transfer.outstanding;
                settle(live, step.a);
                break;
            case Do::kIssue: {
                Run& run = live.transfers[step.a];
                const uint8_t from = options_.transfers[step.a].from;
                ++run.transfer.issued_bytes;
                if (step.b == options_.rails) {
                    settle(live, step.a);
                    break;  // it takes no time on a rail that is not reserved
                }
                ++run.chunks[step.b];
                ++run.transfer.outstanding;
                if (machine(from).chunk_began(run.transfer, step.b)) {
                    ++run.reserved[step.b];
                } else {
                    live.wrong = "a chunk on a rail that is not held";
                }
                settle(live, step.a);
                break;
            }
            case Do::kEnd: {
                Run& run = live.transfers[step.a];
                --run.chunks[step.b];
                --run.transfer.outstanding;
                if (run.reserved[step.b] != 0) {
                    --run.reserved[step.b];
                    machine(options_.transfers[step.a].from).chunk_ended(run.transfer, step.b);
                }
                settle(live, step.a);
                break;
            }
            case Do::kDie:
                ++live.deaths;
                live.nodes[step.a].dead = true;
                std::erase_if(live.messages, [&](const Sent& sent) { return sent.to == step.a; });
                break;
            case Do::kFollow:
                live.nodes[step.a].followed |= static_cast<uint8_t>(1u << step.b);
                std::erase_if(live.messages,
                              [&](const Sent& sent) { return sent.to == step.a && sent.from == step.b; });
                machine(step.a).peer_died(step.b, now_ns, host(step.a));
                break;
            case Do::kRailDies:
                ++live.rail_deaths;
                machine(step.a).rail_died(step.b, now_ns, host(step.a));
                break;
            case Do::kRailReturns: machine(step.a).rail_revived(step.b); break;
            case Do::kPath:
                ++live.paths;
                live.nodes[step.a].paths[step.b] |= static_cast<uint8_t>(1u << step.c);
                machine(step.a).path_lost(step.b, step.c, host(step.a));
                break;
        }
    }
    void settle(Live& live, uint8_t number) const {
        Run& run = live.transfers[number];
        const uint8_t from = options_.transfers[number].from;
        const Host host = {options_, live, from};
        if (run.admitted) live.nodes[from].machine->settle(run.transfer, host);
        if (!run.transfer.all_issued() || run.transfer.outstanding != 0) return;
        live.nodes[from].machine->ended(run.transfer, host);
        run.ended = true;
        if (!live.nodes[from].machine->settled(run.transfer))
            live.wrong = "a transfer that has ended has a rail";
    }

    RailReservationsOptions options_;
    mutable std::unique_ptr<Live> live_;
    mutable std::vector<Step> path_;
    mutable bool quiet_ = true;
};

}  // namespace velo::exhaustive
