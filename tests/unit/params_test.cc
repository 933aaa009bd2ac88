/// The table of parameters: what each of them takes, and what is refused, in a sentence with the remedy.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "tests/unit/option_errors.h"

namespace velo {
namespace {

TEST(Params, every_whole_number_is_held_to_its_range) {
    struct Range {
        const char* name;
        int velo_params_t::*field;
        int smallest, largest;
    };
    const Range ranges[] = {
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) \
    {#name, &velo_params_t::name, smallest, largest},
#define VELO_PARAM_TEXT(name, value, audience, text)
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    };
    for (const Range& range : ranges) {
        for (int value : {range.smallest - 1, range.largest + 1}) {
            velo_params_t params = defaults();
            params.*range.field = value;
            expect_names(error_of(params),
                         {range.name, std::to_string(value).c_str(), std::to_string(range.smallest).c_str()});
        }
    }
}

std::string set_error(const char* name, const char* text, velo_params_t& params) {
    char error[256] = "";
    const bool taken = velo_params_set(&params, name, text, error, sizeof error);
    EXPECT_EQ(taken, error[0] == '\0') << error;
    return error;
}

TEST(Params, a_number_is_decimal_digits_in_its_range_and_nothing_else) {
    velo_params_t params = defaults();
    for (const char* text : {"0", "1", "58", "65535"}) {
        EXPECT_EQ(set_error("slots", text, params), "");
        EXPECT_EQ(params.slots, std::atoi(text));
    }
    const char* const refused[] = {"", " ", "58k", "abc", "-1", "-0", "+1", " 58", "58 ", "0x3a", "058", "00",
                                   "5.8", "1e3", "5'8", "k", "65536",
                                   "4294967296", "4294967354", "18446744073709551616", "18446744073709551674",
                                   "99999999999999999999999999", nullptr};
    for (const char* text : refused) {
        params.slots = 7;
        const std::string name = "btl_velo_slots=" + std::string(text == nullptr ? "" : text) + " ";
        expect_names(set_error("slots", text, params), {name.c_str(), "is not a number from 0 to 65535"});
        EXPECT_EQ(params.slots, 7) << "what is refused changes nothing";
    }
    expect_names(set_error("slots", std::string(300, '9').c_str(), params), {"9... is not a number"});
    expect_names(set_error("no_such", "1", params), {"btl_velo_no_such is no parameter"});
}

TEST(Params, a_parameter_of_earlier_versions_is_refused_with_what_takes_its_place) {
    struct Gone {
        const char* name;
        std::string_view text;
    };
    constexpr Gone gone[] = {
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text)
#define VELO_PARAM_TEXT(name, value, audience, text)
#define VELO_PARAM_GONE(name, text) {#name, text},
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    };
    EXPECT_GE(std::size(gone), 20u);
    for (const auto& [name, text] : gone) {
        velo_params_t params = defaults();
        const std::string error = set_error(name, "1", params);
        EXPECT_EQ(error, "btl_velo_" + std::string(name) + " is no parameter of velo any more: " + std::string(text));
        // A sentence on parameters names such as there are.
        for (size_t at = 0; (at = text.find("btl_velo_", at)) != text.npos;) {
            at += std::strlen("btl_velo_");
            const std::string other(text.substr(at, text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", at) - at));
            EXPECT_EQ(set_error(other.c_str(), "1", params).find("no parameter"), std::string::npos) << other;
        }
    }
}

TEST(Params, there_are_few_parameters_and_fewer_for_users_and_tuners) {
    uint32_t all = 0;
    uint32_t of_users = 0;
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) \
    ++all, of_users += VELO_AUDIENCE_##audience != VELO_AUDIENCE_developer;
#define VELO_PARAM_TEXT(name, value, audience, text) \
    ++all, of_users += VELO_AUDIENCE_##audience != VELO_AUDIENCE_developer;
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
    EXPECT_LE(all, 30u);
    EXPECT_LE(of_users, 12u);
}

TEST(Params, a_number_of_bytes_may_have_a_suffix) {
    velo_params_t params = defaults();
    const std::pair<const char*, int> good[] = {
        {"0", 0},        {"1k", 1 << 10}, {"1K", 1 << 10}, {"12m", 12 << 20},
        {"1M", 1 << 20}, {"1g", 1 << 30}, {"1G", 1 << 30}};
    for (const auto& [text, bytes] : good) {
        EXPECT_EQ(set_error("mailbox_bytes", text, params), "");
        EXPECT_EQ(params.mailbox_bytes, bytes);
    }
    for (const char* text : {"2g", "1025m", "1kk", "1kb", "k", "01k", "1 k", "-1k", "18014398509481984k",
                             "17179869184g"}) {
        expect_names(set_error("mailbox_bytes", text, params),
                     {"btl_velo_mailbox_bytes=", "is not a number from 0 to 1073741824", "k, m or g"});
    }
    char error[256] = "";
    EXPECT_TRUE(velo_is_bytes("max_send_size", "17179869183g", error, sizeof error));
    EXPECT_FALSE(velo_is_bytes("max_send_size", "17179869184g", error, sizeof error));
    expect_names(error, {"btl_velo_max_send_size=17179869184g is not a number from 0 to 18446744073709551615"});
}

TEST(Params, every_default_is_what_its_text_says) {
    const velo_params_t expected = defaults();
    velo_params_t params = {};
#define VELO_PARAM_INT(name, value, smallest, largest, audience, text) \
    EXPECT_EQ(set_error(#name, #value, params), "");                   \
    EXPECT_EQ(params.name, expected.name);
#define VELO_PARAM_TEXT(name, value, audience, text) \
    EXPECT_EQ(set_error(#name, value, params), "");  \
    EXPECT_STREQ(params.name, expected.name);
#include "velo/params.def"
#undef VELO_PARAM_INT
#undef VELO_PARAM_TEXT
}

}  // namespace
}  // namespace velo
