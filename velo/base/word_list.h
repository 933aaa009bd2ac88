/// Lists as users write them: words with commas between them, each NAME=VALUE or a word alone. Set-up only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace velo::base {

struct ListWord {
    std::string_view text;
    std::string_view name;   ///< empty where it is not named
    std::string_view value;  ///< empty where it is not named
    bool named = false;      ///< it is of the form NAME=VALUE
};

/// Calls each(word) for each word, empty ones among others included. An empty list has none.
template <class Each>
void for_each_word(std::string_view list, Each&& each) {
    if (list.empty()) return;
    for (size_t at = 0; at <= list.size();) {
        const size_t end = std::min(list.find(',', at), list.size());
        ListWord word = {.text = list.substr(at, end - at), .name = {}, .value = {}};
        if (const size_t equals = word.text.find('='); equals != std::string_view::npos) {
            word.name = word.text.substr(0, equals);
            word.value = word.text.substr(equals + 1);
            word.named = true;
        }
        each(word);
        at = end + 1;
    }
}

}  // namespace velo::base
