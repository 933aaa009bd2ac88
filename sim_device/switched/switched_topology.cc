#include "sim_device/switched/switched_topology.h"

#include <array>
#include <charconv>

#include "velo/os/shared_segment.h"

namespace velo::switched {
namespace {

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
    throw base::SetupError("--topology '" + text + "' " + why);
}

std::string number(uint64_t value) {
    return std::to_string(value);
}

}  // namespace

SwitchedTopology SwitchedTopology::parse(std::string_view given) {
    constexpr const char* kForms =
        "is not understood; give dragonfly:p,a,h (nodes of a router, routers of a group, global links of a "
        "router: dragonfly:6,12,6) or fattree:k,levels (fattree:4,3)";
    SwitchedTopology made;
    made.text_ = given;
    const size_t colon = given.find(':');
    const std::string_view kind = given.substr(0, colon);
    const bool dragonfly = kind == "dragonfly";
    if (colon == std::string_view::npos || (!dragonfly && kind != "fattree")) refuse(made.text_, kForms);
    std::array<uint32_t, 3> numbers = {};
    const uint32_t wanted = dragonfly ? 3 : 2;
    const char* at = given.data() + colon + 1;
    const char* const end = given.data() + given.size();
    for (uint32_t i = 0; i < wanted; ++i) {
        const auto [next, error] = std::from_chars(at, end, numbers[i]);
        const bool last = i + 1 == wanted;
        if (error != std::errc{} || (last ? next != end : next == end || *next != ','))
            refuse(made.text_, kForms);
        if (numbers[i] == 0 || numbers[i] > kNodesMax)
            refuse(made.text_,
                   "has " + number(numbers[i]) + "; each number is from 1 to " + number(kNodesMax));
        at = next + 1;
    }
    if (dragonfly)
        made.make_dragonfly(numbers[0], numbers[1], numbers[2]);
    else
        made.make_fat_tree(numbers[0], numbers[1]);
    return made;
}

void SwitchedTopology::make_dragonfly(uint32_t p, uint32_t a, uint32_t h) {
    const uint64_t groups = uint64_t{a} * h + 1;
    const uint64_t ports = uint64_t{p} + a - 1 + h;
    if (ports > kPortsMax)
        refuse(text_, "needs routers of " + number(ports) + " ports (p + a - 1 + h); give at most " +
                          number(kPortsMax));
    if (groups * a * p > kNodesMax)
        refuse(text_,
               "has " + number(groups * a * p) + " nodes (p a (a h + 1)); give at most " + number(kNodesMax));
    nodes_ = static_cast<uint32_t>(groups * a * p);
    routers_ = static_cast<uint32_t>(groups * a);
    ports_ = static_cast<uint32_t>(ports);
    terminals_ = p;
    groups_ = static_cast<uint32_t>(groups);
    const uint32_t first_global = p + a - 1;
    for (uint32_t link = 0; link < a * h; ++link)
        exits_.push_back({static_cast<uint8_t>(link / h), static_cast<uint8_t>(first_global + link % h)});
    for (uint32_t router = 0; router < routers_; ++router) {
        group_of_.push_back(static_cast<uint16_t>(router / a));
        place_of_.push_back(static_cast<uint8_t>(router % a));
    }
    links_.reserve(size_t{routers_} * ports_);
    for (uint32_t router = 0; router < routers_; ++router) {
        const uint32_t group = router / a;
        const uint32_t place = router % a;
        const auto add = [&](LinkKind kind, uint32_t peer, uint32_t port) {
            links_.push_back({kind, static_cast<uint8_t>(port), static_cast<uint16_t>(peer)});
        };
        for (uint32_t i = 0; i < p; ++i) add(LinkKind::kTerminal, router * p + i, 0);
        for (uint32_t other = 0; other < a; ++other)
            if (other != place) add(LinkKind::kLocal, group * a + other, port_to_place(other, place));
        for (uint32_t i = 0; i < h; ++i) {
            const uint32_t link = place * h + i;
            const uint32_t back =
                a * h - 1 - link;  // so that (group + link + 1) + back + 1 = group, modulo groups
            add(LinkKind::kGlobal, (group + link + 1) % groups_ * a + back / h, first_global + back % h);
        }
    }
}

void SwitchedTopology::make_fat_tree(uint32_t k, uint32_t levels) {
    if (2 * k > kPortsMax)
        refuse(text_,
               "needs routers of " + number(2 * k) + " ports (2 k); give at most " + number(kPortsMax));
    uint64_t nodes = 1;
    powers_.push_back(1);
    for (uint32_t level = 0; level < levels; ++level) {
        nodes *= k;
        if (nodes > kNodesMax || powers_.size() > 16)
            refuse(text_,
                   "has more than " + number(kNodesMax) + " nodes (k^levels) or 16 levels; give fewer");
        powers_.push_back(static_cast<uint32_t>(nodes));
    }
    nodes_ = static_cast<uint32_t>(nodes);
    const uint32_t row = nodes_ / k;
    if (uint64_t{row} * levels > kNodesMax)
        refuse(text_,
               "has " + number(uint64_t{row} * levels) + " routers; give at most " + number(kNodesMax));
    routers_ = row * levels;
    ports_ = 2 * k;
    terminals_ = k;
    links_.resize(size_t{routers_} * ports_);
    for (uint32_t level = 0; level < levels; ++level) {
        for (uint32_t place = 0; place < row; ++place) {
            const uint32_t router = level * row + place;
            Link* const ports = &links_[size_t{router} * ports_];
            if (level == 0) {
                for (uint32_t i = 0; i < k; ++i)
                    ports[i] = {LinkKind::kTerminal, 0, static_cast<uint16_t>(place * k + i)};
            }
            if (level + 1 == levels) continue;
            // Upwards, the digit of this level becomes the port; back, the port is the digit that was.
            const uint32_t power = powers_[level];
            const uint32_t digit = place / power % k;
            for (uint32_t i = 0; i < k; ++i) {
                const uint32_t upper = (level + 1) * row + place - digit * power + i * power;
                ports[k + i] = {LinkKind::kLocal, static_cast<uint8_t>(digit), static_cast<uint16_t>(upper)};
                links_[size_t{upper} * ports_ + digit] = {LinkKind::kLocal, static_cast<uint8_t>(k + i),
                                                          static_cast<uint16_t>(router)};
            }
        }
    }
}

bool SwitchedTopology::is_above(uint32_t router, uint32_t node) const {
    const uint32_t row = nodes_ / terminals_;
    const uint32_t power = powers_[router / row];
    return router % row / power == node / terminals_ / power;
}

uint32_t SwitchedTopology::port_down(uint32_t router, uint32_t node) const {
    return node / powers_[router / (nodes_ / terminals_)] % terminals_;
}

uint32_t SwitchedTopology::port_up(uint32_t router, uint32_t node) const {
    return terminals_ + port_down(router, node);
}

}  // namespace velo::switched
