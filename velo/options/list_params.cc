#include "velo/options/list_params.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "velo/base/read_number.h"
#include "velo/base/word_list.h"
#include "velo/options/options.h"

namespace velo {
namespace {

using base::SetupError;

/// A setting of a list, and where its number goes.
struct Setting {
    std::string_view name;
    base::NumberRange range;
    uint64_t* value;
};

std::string listed(std::span<const Setting> settings) {
    std::string list;
    for (const Setting& setting : settings) list += (list.empty() ? "" : ", ") + std::string(setting.name) + "=N";
    return list;
}

/// Reads the words of a list. `first`, unless nullptr, gets a first word that is not of the form NAME=NUMBER.
void read_settings(const std::string& parameter, std::string_view list, std::span<const Setting> settings,
                   std::string_view* first) {
    base::for_each_word(list, [&](const base::ListWord& word) {
        if (!word.named && first != nullptr && word.text.data() == list.data()) {
            *first = word.text;
            return;
        }
        constexpr size_t kShown = 64;
        const std::string shown =
            "btl_velo_" + parameter + " has '" + std::string(word.text.substr(0, kShown)) + "', which ";
        const auto known = std::ranges::find(settings, word.name, &Setting::name);
        if (!word.named || known == settings.end()) {
            throw SetupError(shown + "is none of " + listed(settings) +
                             "; write numbers, and commas between the settings");
        }
        const auto value = base::read_number(word.value, known->range);
        if (!value) throw SetupError(shown + base::why_no_number(known->range));
        *known->value = *value;
    });
}

}  // namespace

LinkOptions read_emulate(std::string_view list) {
    constexpr base::NumberRange kRate = {.smallest = 0, .largest = 1'000'000};
    uint64_t link = 0, buffer = 256u << 10, sink = 0, source = 0;
    const Setting settings[] = {{"link", {.smallest = 1, .largest = kRate.largest}, &link},
                                {"buffer", {.smallest = 1024, .largest = 1u << 30, .bytes = true}, &buffer},
                                {"sink", kRate, &sink},
                                {"source", kRate, &source}};
    read_settings("emulate", list, settings, nullptr);
    if (!list.empty() && link == 0) {
        throw SetupError("btl_velo_emulate=" + std::string(list) +
                         " has no link=N, without which nothing is emulated; add it, in bytes per "
                         "microsecond of a port");
    }
    return {.bytes_per_us = static_cast<uint32_t>(link),
            .sink_bytes_per_us = static_cast<uint32_t>(sink),
            .source_bytes_per_us = static_cast<uint32_t>(source),
            .buffer_bytes = static_cast<uint32_t>(buffer)};
}

RailsParam read_rails(std::string_view list) {
    constexpr std::array<std::string_view, 5> kRules = {"static", "round_robin", "local_dynamic", "dynamic", "hybrid"};
    RailsParam rails;
    const Setting settings[] = {{"striping", {.smallest = 0, .largest = 100}, &rails.striping_percent},
                                {"short", {.smallest = 0, .largest = 1u << 30, .bytes = true}, &rails.short_bytes},
                                {"retry", {.smallest = 1, .largest = 86'400'000}, &rails.retry_ms},
                                {"wait", {.smallest = 1, .largest = 3'600'000}, &rails.wait_ms}};
    read_settings("rails", list, settings, &rails.rule);
    if (std::ranges::find(kRules, rails.rule) == kRules.end()) {
        std::string rules;
        for (const std::string_view rule : kRules) rules += (rules.empty() ? "" : ", ") + std::string(rule);
        throw SetupError("btl_velo_rails=" + std::string(rails.rule) + " is not one of " + rules);
    }
    return rails;
}

StallParam read_stall_report(std::string_view list) {
    StallParam stall;
    std::string_view seconds = "0";
    const Setting settings[] = {{"signal", {.smallest = 1, .largest = 64}, &stall.signal}};
    read_settings("stall_report", list, settings, &seconds);
    stall.seconds = read_param("stall_report", seconds, {.smallest = 0, .largest = 86400});
    return stall;
}

}  // namespace velo
