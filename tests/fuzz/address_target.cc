/// The address of a process with several rails, as a peer published it: damaged, or made by one that lies.
#include <algorithm>
#include <array>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "velo/ofi/wire.h"

namespace velo::fuzz {

namespace {

using ofi::RailsAddress;

/// Its checksums are right; names of rails may be longer than any endpoint's.
RailsAddress any_address(Input& input) {
    RailsAddress address;
    address.first.head.token = input.take<uint64_t>();
    address.first.head.name_bytes = static_cast<uint16_t>(input.below(ofi::kEndpointNameBytesMax + 1));
    const auto name = input.bytes(address.first.head.name_bytes);
    std::ranges::copy(name, address.first.name.begin());
    const uint64_t others = input.below(ofi::kRailsMax);
    for (uint64_t rail = 0; rail < others; ++rail) {
        std::vector<std::byte>& other = address.others.emplace_back(input.below(2 * ofi::kEndpointNameBytesMax));
        const auto bytes = input.bytes(other.size());
        std::ranges::copy(bytes, other.begin());
    }
    return address;
}

}  // namespace

/// An address that is read is the one that was written, and nothing else is one.
void addresses(Input& input) {
    RailsAddress read;
    const auto any = input.bytes(input.below(kDeviceAddressBytesMax));
    (void)ofi::read_rails_address(any, read);

    const RailsAddress written = any_address(input);
    std::array<std::byte, kDeviceAddressBytesMax> bytes;
    const size_t length = ofi::write_rails_address(written, bytes);
    require(length != 0 && length <= bytes.size(), "an address has room");
    const Status status = ofi::read_rails_address(std::span(bytes).first(length), read);
    if (status == Status::kOk) {
        require(read.first.head.token == written.first.head.token, "the token comes back");
        require(read.others.size() <= written.others.size(), "no rail comes from nowhere");
        require(std::equal(read.others.begin(), read.others.end(), written.others.begin()), "names come back");
    } else {
        const auto too_long = [](const auto& name) { return name.size() > ofi::kEndpointNameBytesMax; };
        require(std::ranges::any_of(written.others, too_long), "an address that velo writes is read");
    }

    const size_t cut = input.below(length);
    require(ofi::read_rails_address(std::span(bytes).first(cut), read) == Status::kBadParam, "a cut one is refused");
    const auto flipped = static_cast<std::byte>(1u << input.below(8));
    bytes[input.below(length)] ^= flipped;
    require(ofi::read_rails_address(std::span(bytes).first(length), read) != Status::kOk, "a damaged one is refused");
}

}  // namespace velo::fuzz
