#include "velo/device/faults.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "velo/os/shared_segment.h"

namespace velo::base {
namespace {

/// One setting, and the list of those that the device injects.
struct Token {
    std::string text;
    std::string_view settings;
};

[[noreturn]] void refuse(const Token& token, const std::string& why) {
    throw SetupError("fault setting '" + token.text + "': " + why + ". Valid settings: " + std::string(token.settings) +
                     ", separated by commas; P is a probability of 0 to 1, T a time such as 200us, 1ms, 2s.");
}

/// Whether a list such as Faults::kSettings has a setting of this name.
bool has_setting(std::string_view settings, std::string_view name) {
    return !name.empty() && (", " + std::string(settings)).find(", " + std::string(name) + "=") != std::string::npos;
}

template <class T>
bool parse_all(std::string_view text, T& value) {
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    return error == std::errc() && stopped == end;
}

uint64_t parse_count(const Token& token, std::string_view text) {
    uint64_t value = 0;
    if (!parse_all(text, value)) refuse(token, "'" + std::string(text) + "' is not a whole number");
    return value;
}

/// Digits with at most one point, whatever the locale. From whole numbers, because reading floating point is
/// 25 KiB of library in every process.
double parse_probability(const Token& token, std::string_view text) {
    const size_t point = std::min(text.find('.'), text.size());
    const std::string_view decimals = text.substr(std::min(point + 1, text.size()));
    uint64_t whole = 0;
    uint64_t part = 0;
    const bool read = (point == 0 || parse_all(text.substr(0, point), whole)) &&
                      (decimals.empty() || parse_all(decimals, part)) && text.size() > (point < text.size());
    double unit = 1;
    for (size_t digit = 0; digit < decimals.size(); ++digit) unit /= 10;
    const double value = static_cast<double>(whole) + static_cast<double>(part) * unit;
    if (!read || value > 1) refuse(token, "'" + std::string(text) + "' is not a probability");
    return value;
}

uint64_t parse_time_ns(const Token& token, std::string_view text) {
    const size_t unit_at = text.find_first_not_of("0123456789");
    const std::string_view unit = unit_at == std::string_view::npos ? "" : text.substr(unit_at);
    const uint64_t ns = unit == "ns"   ? 1
                        : unit == "us" ? 1'000
                        : unit == "ms" ? 1'000'000
                        : unit == "s"  ? 1'000'000'000
                                       : 0;
    uint64_t value = 0;
    if (ns == 0 || !parse_all(text.substr(0, unit_at), value) || value > UINT64_MAX / 2 / ns) {
        refuse(token, "'" + std::string(text) + "' is not a time");
    }
    return value * ns;
}

/// SplitMix64: any state is as good as another, so a stream may begin at a hash.
uint64_t next_random(uint64_t& state) {
    state += 0x9e3779b97f4a7c15;
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

}  // namespace

std::unique_ptr<Faults> Faults::parse(const std::string& text, uint16_t node, uint8_t vpid,
                                      std::string_view settings) {
    if (text.empty()) return nullptr;
    auto faults = std::make_unique<Faults>();
    uint64_t seed = 0;
    for_each_word(text, [&](const ListWord& word) { faults->set(word, settings, seed); });
    for (uint32_t kind = 0; kind < kKinds; ++kind) {
        uint64_t state = seed;
        state = next_random(state) ^ (uint64_t{node} << 16 | uint64_t{vpid} << 8 | kind);
        faults->kinds_[kind].state = next_random(state);
    }
    return faults;
}

void Faults::set(const ListWord& word, std::string_view settings, uint64_t& seed) {
    const Token token = {.text = std::string(word.text), .settings = settings};
    if (!word.named) refuse(token, "it is not of the form name=value");
    const std::string_view name = word.name;
    const std::string_view value = word.value;
    if (!has_setting(settings, name) && has_setting(kSettings, name)) {
        refuse(token, "this device injects no such fault");
    }
    const size_t colon = value.find(':');
    const auto pair = [&]() -> std::pair<std::string_view, std::string_view> {
        if (colon == std::string_view::npos) refuse(token, "a second value, after a colon, is missing");
        return {value.substr(0, colon), value.substr(colon + 1)};
    };
    const auto set_kind = [&](Kind kind, std::string_view probability, uint64_t time_ns) {
        kinds_[kind].threshold = static_cast<uint64_t>(std::ldexp(parse_probability(token, probability), 63));
        kinds_[kind].time_ns = time_ns;
    };
    if (name == "seed") {
        seed = parse_count(token, value);
    } else if (name == "delay" || name == "stall" || name == "rma_late" || name == "port_flap") {
        const auto [probability, time] = pair();
        set_kind(name == "delay"   ? kDelay
                 : name == "stall" ? kStall
                 : name == "rma_late" ? kRmaLate
                                      : kPortFlap,
                 probability, parse_time_ns(token, time));
    } else if (name == "rma_fail") {
        set_kind(kRmaFail, value, 0);
    } else if (name == "rma_denied") {
        set_kind(kRmaDenied, value, 0);
    } else if (name == "atu_fault") {
        set_kind(kAtuFault, value, 0);
    } else if (name == "port_down") {
        const auto [port, operations] = pair();
        down_port_ = static_cast<uint32_t>(std::min<uint64_t>(parse_count(token, port), UINT32_MAX - 1));
        down_after_ = parse_count(token, operations);
    } else if (name == "die_after") {
        die_after_ = parse_count(token, value);
    } else {
        refuse(token, "there is no setting of this name");
    }
}

bool Faults::draw(Kind kind) {
    KindState& state = kinds_[kind];
    if (state.threshold == 0) return false;
    const bool hit = next_random(state.state) >> 1 < state.threshold;
    injected_ += hit;
    return hit;
}

RmaFault Faults::rma(uint32_t port, uint64_t now_ns) {
    RmaFault fault;
    if (draw(kRmaLate)) fault.late_ns = kinds_[kRmaLate].time_ns;
    const bool failed = draw(kRmaFail);
    const bool denied = draw(kRmaDenied);
    const bool atu_fault = draw(kAtuFault);
    bool down = false;
    if (port == down_port_) {
        down = down_after_ == 0;
        down_after_ -= !down;
        injected_ += down;
    }
    if (port < kFlapPorts && kinds_[kPortFlap].threshold != 0) {
        fault.takes_port = draw(kPortFlap);
        if (fault.takes_port) down_until_ns_[port] = now_ns + kinds_[kPortFlap].time_ns;
        down = down || now_ns < down_until_ns_[port];
    }
    if (down) {
        fault.status = Status::kNotBegun;
    } else if (failed) {
        fault.status = Status::kFailed;
    } else if (denied) {
        fault.status = Status::kUnsupported;
    } else if (atu_fault) {
        fault.status = Status::kAtuFault;
    }
    return fault;
}

uint32_t Faults::ports_down(uint64_t now_ns) const {
    uint32_t down = 0;
    for (uint32_t port = 0; port < kFlapPorts; ++port) {
        if (now_ns < down_until_ns_[port] || (port == down_port_ && down_after_ == 0)) down |= 1u << port;
    }
    return down;
}

bool Faults::dies(uint64_t packets) {
    if (!dead_ && packets > die_after_) {
        dead_ = true;
        ++injected_;
    }
    return dead_;
}

}  // namespace velo::base
