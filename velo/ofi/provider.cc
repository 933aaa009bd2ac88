#include "velo/ofi/provider.h"

#include <net/if.h>
#include <netinet/in.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <tuple>

#include "velo/ofi/interfaces.h"
#include "velo/ofi/receive_space.h"
#include "velo/ofi/wire.h"
#include "velo/os/shared_segment.h"

namespace velo::ofi {
namespace {

constexpr uint64_t kMrModes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
constexpr uint64_t kModes = FI_CONTEXT | FI_CONTEXT2;
constexpr uint64_t kCapsNeeded = FI_MSG | FI_SEND | FI_RECV | FI_MULTI_RECV;
constexpr uint64_t kCapsWanted = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SOURCE;

/// Providers in their order of preference. Real networks come first (written from documentation, not tried); net is
/// faster than tcp;ofi_rxm and connects again after a failure (measured). Those after kByNameOnly are for one host.
struct Kind {
    const char* name;
    bool by_name_only = false;
    const char* refused = nullptr;
    uint32_t part_packets_max = kPartPacketsMin;
    bool over_stream = false;
};
/// ofi_rxm cuts what is longer than its 16 KiB buffers into pieces, and lets the messages behind it overtake those
/// that find no buffer (seen with 31 senders; libfabric 1.17).
constexpr uint32_t kRxmPackets = 224;
constexpr std::array kKinds = {
    Kind{"cxi"},
    Kind{"efa"},
    Kind{"opx"},
    Kind{"psm3"},
    Kind{"psm2"},
    Kind{"verbs;ofi_rxm", false, nullptr, kRxmPackets},
    Kind{"net", false, nullptr, kPartPacketsMax, true},
    Kind{"tcp", false, nullptr, kPartPacketsMax, true},  // of libfabric 2: what net is called there
    Kind{"tcp;ofi_rxm", false, nullptr, kRxmPackets, true},
    Kind{"shm", true},
    Kind{"sockets", true},
    Kind{"udp;ofi_rxd", false, "a wrong key hangs it"},
    Kind{"net;ofi_rxm", false, "net does the same without ofi_rxm"},
};
constexpr int kUnknownKind = kKinds.size();

int kind_of(const std::string& provider) {
    const auto found = std::ranges::find(kKinds, provider, &Kind::name);
    return static_cast<int>(found - kKinds.begin());
}

/// The IP address that a provider would use, in text; empty for addresses of other kinds.
std::string ip_of(const fi_info& info) {
    return ip_text(info.addr_format, {static_cast<const std::byte*>(info.src_addr), info.src_addrlen});
}

template <class Each>
bool any_word(std::string_view rest, Each&& each) {
    while (!rest.empty()) {
        const size_t comma = std::min(rest.find(','), rest.size());
        std::string_view word = rest.substr(0, comma);
        if (word.starts_with('^')) word.remove_prefix(1);
        if (!word.empty() && each(std::string(word))) return true;
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return false;
}

/// The words of a list that may be used: those in front of the first ^.
std::string_view allowed(const char* list) {
    const std::string_view words = list == nullptr ? "" : list;
    return words.substr(0, words.find('^'));
}
/// The words that may not.
std::string_view refused_by(const char* list) {
    return list == nullptr ? "" : list + allowed(list).size();
}

/// How many of the words name the candidate.
size_t times_named(std::string_view words, const Candidate& candidate) {
    size_t times = 0;
    any_word(words, [&](const std::string& word) {
        times += names_address(word, candidate.interface, candidate.label, candidate.address);
        return false;
    });
    return times;
}

/// A feature that velo cannot do without and that is missing; empty: none is.
std::string missing_feature(const fi_info& info) {
    if ((info.caps & FI_MSG) == 0) return "it has no FI_MSG";
    if ((info.caps & FI_MULTI_RECV) == 0) return "it has no FI_MULTI_RECV";
    if ((info.tx_attr->msg_order & FI_ORDER_SAS) == 0) return "it does not keep the order of messages (FI_ORDER_SAS)";
    if ((info.mode & ~kModes) != 0) return "it wants a mode that velo has not";
    if (info.ep_attr->max_msg_size < kPartBytesMax) return "its messages are too short";
    if (info.src_addrlen > kEndpointNameBytesMax) return "its addresses are too long";
    return "";
}

std::string refusal_of_provider(const Candidate& candidate, const NetworkOptions& options) {
    const int kind = kind_of(candidate.provider);
    if (kind != kUnknownKind && kKinds[kind].refused != nullptr) return kKinds[kind].refused;
    const std::string_view words = allowed(options.provider_include);
    if (list_has(refused_by(options.provider_include), candidate.provider)) {
        return "btl_velo_provider_include has it behind a ^";
    }
    const bool named = list_has(words, candidate.provider);
    if (!words.empty() && !named) return "btl_velo_provider_include does not have it";
    if (kind == kUnknownKind && !named) return "velo does not know it: only with btl_velo_provider_include";
    if (kind != kUnknownKind && kKinds[kind].by_name_only && !named) return "only with btl_velo_provider_include";
    return missing_feature(*candidate.info);
}

std::string refusal_of_interface(const Candidate& candidate, unsigned flags, const NetworkOptions& options) {
    const std::string_view words = allowed(options.interface_include);
    if (times_named(refused_by(options.interface_include), candidate) != 0) {
        return "btl_velo_if_include has it behind a ^";
    }
    if (!words.empty()) return times_named(words, candidate) != 0 ? "" : "btl_velo_if_include does not have it";
    if ((flags & IFF_UP) == 0) return "the interface is down";
    if ((flags & IFF_RUNNING) == 0) return "the interface has no carrier";
    if ((flags & IFF_LOOPBACK) != 0) return "it reaches this host only: not without btl_velo_if_include";
    if (candidate.address.starts_with("fe80:")) return "the address is of one link";
    return "";
}

/// Of two addresses of one provider the IPv4 one comes first. That from which the kernel reaches other hosts is ahead
/// of both, and then come others of its interface.
constexpr int kPreferencePerKind = 8;
constexpr int kOtherInterface = 4;
constexpr int kOtherAddress = 2;
constexpr int kIpv6 = 1;

Candidate examine(const fi_info& info, const std::vector<Interface>& system, const NetworkOptions& options) {
    Candidate candidate;
    candidate.info.reset(fi_dupinfo(&info));
    if (!candidate.info) throw std::bad_alloc();
    candidate.provider = info.fabric_attr->prov_name;
    candidate.preference = kPreferencePerKind * kind_of(candidate.provider);
    candidate.refused = refusal_of_provider(candidate, options);
    candidate.address = ip_of(info);
    const auto found = std::ranges::find(system, candidate.address, &Interface::address);
    if (candidate.address.empty() || found == system.end()) {
        candidate.interface = info.domain_attr->name == nullptr ? "" : info.domain_attr->name;
        return candidate;
    }
    candidate.interface = found->name;
    candidate.label = found->label;
    candidate.place = found->place;
    candidate.preference += candidate.address.find(':') != std::string::npos ? kIpv6 : 0;
    if (candidate.refused.empty()) candidate.refused = refusal_of_interface(candidate, found->flags, options);
    return candidate;
}

InfoPtr make_hints() {
    InfoPtr hints(fi_allocinfo());
    if (!hints) throw std::bad_alloc();
    hints->mode = kModes;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = kMrModes;
    return hints;
}

InfoPtr get_info(const fi_info* hints) {
    fi_info* first = nullptr;
    return InfoPtr(fi_getinfo(kApiVersion, nullptr, nullptr, 0, hints, &first) == 0 ? first : nullptr);
}

bool same_place(const fi_info& one, const fi_info& other) {
    if (std::strcmp(one.fabric_attr->prov_name, other.fabric_attr->prov_name) != 0) return false;
    if (std::strcmp(one.domain_attr->name, other.domain_attr->name) != 0) return false;
    return one.addr_format == other.addr_format && ip_of(one) == ip_of(other);
}

/// Whether a message's source is the right one or not known. In shm of libfabric before 2 a sender that was not
/// inserted yet is taken for the first one that was.
bool source_is_right(const fi_info& info) {
    return std::strcmp(info.fabric_attr->prov_name, "shm") != 0;
}

/// The description of a provider on an interface, asked for what velo uses of it and nothing else. nullptr: it has
/// that not.
InfoPtr narrowed(const fi_info& of) {
    InfoPtr hints = make_hints();
    hints->caps = kCapsNeeded | (of.caps & kCapsWanted);
    hints->addr_format = of.addr_format;
    hints->fabric_attr->prov_name = strdup(of.fabric_attr->prov_name);
    hints->domain_attr->name = strdup(of.domain_attr->name);
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    hints->domain_attr->av_type = FI_AV_TABLE;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    const InfoPtr all = get_info(hints.get());
    for (const fi_info* at = all.get(); at != nullptr; at = at->next) {
        if (!same_place(*at, of)) continue;
        InfoPtr info(fi_dupinfo(at));
        if (info && !source_is_right(of)) info->caps &= ~FI_SOURCE;
        return info;
    }
    return nullptr;
}

std::string describe(const std::vector<Candidate>& all) {
    std::string text;
    std::vector<std::string> said;
    for (const Candidate& candidate : all) {
        std::string line = candidate.provider;
        if (!candidate.interface.empty()) line += " (" + candidate.interface + ")";
        line += ": " + candidate.refused;
        if (std::ranges::find(said, line) != said.end()) continue;
        text += (text.empty() ? "" : "; ") + line;
        said.push_back(std::move(line));
    }
    return text.empty() ? "libfabric has none with reliable datagram endpoints" : text;
}

/// Of several addresses that could be used, those come last that the kernel would not send from to another host of the
/// job: the bridge of a container engine has an address as good as the network's, and an interface may have more than
/// one, some of which no other host can reach, or several hosts have.
void prefer_way_to(const char* host, const std::vector<Interface>& system, std::vector<Candidate>& candidates) {
    std::string first;
    const bool several = std::ranges::any_of(candidates, [&first](const Candidate& candidate) {
        if (!candidate.refused.empty() || candidate.address.empty()) return false;
        if (first.empty()) first = candidate.address;
        return candidate.address != first;
    });
    if (!several) return;
    const std::vector<std::string> sources = source_addresses_to(host);
    std::vector<std::string> ways;
    for (const Interface& interface : system) {
        if (std::ranges::find(sources, interface.address) != sources.end()) ways.push_back(interface.name);
    }
    for (Candidate& candidate : candidates) {
        if (std::ranges::find(ways, candidate.interface) == ways.end()) {
            candidate.preference += kOtherInterface;
        } else if (std::ranges::find(sources, candidate.address) == sources.end()) {
            candidate.preference += kOtherAddress;
        }
    }
}

/// The providers over TCP read these once, when libfabric looks for providers for the first time in this process.
void hand_over(const PortRange& ports) {
    if (!ports.given()) return;
    for (const char* provider : {"NET", "TCP"}) {
        const std::string name = std::string("FI_") + provider + "_PORT_";
        setenv((name + "LOW_RANGE").c_str(), std::to_string(ports.low).c_str(), 1);
        setenv((name + "HIGH_RANGE").c_str(), std::to_string(ports.high).c_str(), 1);
    }
}

/// Whether one key and one address can name a registration at several endpoints.
bool shares_registrations(const fi_info& info) {
    return (info.caps & FI_RMA) != 0 && (info.domain_attr->mr_mode & (FI_MR_PROV_KEY | FI_MR_RAW)) == 0;
}

/// Whether a usable candidate, of the provider of the first rail, is on an interface that has no rail yet, or is named
/// by a word of the user's that names none of the rails.
bool carries_a_rail(const Candidate& candidate, const std::vector<Choice>& rails, std::string_view included) {
    const fi_info& first = *rails.front().info;
    if (candidate.provider != first.fabric_attr->prov_name || candidate.info->addr_format != first.addr_format) {
        return false;
    }
    if (std::ranges::find(rails, candidate.interface, &Choice::interface) == rails.end()) return true;
    return any_word(included, [&](const std::string& word) {
        return names_address(word, candidate.interface, candidate.label, candidate.address) &&
               std::ranges::none_of(rails, [&word](const Choice& rail) {
                   return names_address(word, rail.interface, rail.interface, rail.address);
               });
    });
}

/// Of two cards of one provider the near one comes first. Not of interfaces with IP addresses: these may be in networks
/// that do not meet, so that all processes have to take the same ones.
CardNearness nearness_of(const Candidate& candidate) {
    return candidate.address.empty() ? card_nearness(*candidate.info) : CardNearness::kUnknown;
}

[[noreturn]] void refuse_all(const std::vector<Candidate>& all, const NetworkOptions& options) {
    std::string text = "No libfabric provider can be used here. There is: " + describe(all) + ".";
    const bool loopback_only = std::ranges::none_of(
        interfaces(), [](const Interface& interface) { return (interface.flags & (IFF_LOOPBACK | IFF_UP)) == IFF_UP; });
    if (loopback_only && allowed(options.interface_include).empty()) {
        text +=
            " The only interface that is up is the loopback one, which reaches this host alone; give "
            "btl_velo_if_include=lo to use it.";
    } else {
        text += " See btl_velo_provider_include and btl_velo_if_include.";
    }
    throw base::SetupError(text);
}

}  // namespace

uint32_t part_packets_max(const std::string& provider) {
    const int kind = kind_of(provider);
    return kind == kUnknownKind ? kPartPacketsMin : kKinds[kind].part_packets_max;
}

bool over_stream(const std::string& provider) {
    const int kind = kind_of(provider);
    return kind != kUnknownKind && kKinds[kind].over_stream;
}

bool list_has(std::string_view words, const std::string& word) {
    return any_word(words, [&word](const std::string& one) { return one == word; });
}

size_t address_bytes(uint32_t format) {
    return format == FI_SOCKADDR_IN ? sizeof(sockaddr_in) : format == FI_SOCKADDR_IN6 ? sizeof(sockaddr_in6) : 0;
}

std::string ip_text(uint32_t format, std::span<const std::byte> address) {
    sockaddr_storage whole = {};
    const bool ip = address_bytes(format) != 0 || format == FI_SOCKADDR;
    if (!ip || address.empty() || address.size() < address_bytes(format) || address.size() > sizeof whole) return "";
    std::memcpy(&whole, address.data(), address.size());
    return address_text(reinterpret_cast<const sockaddr*>(&whole));
}

uint16_t ip_port(uint32_t format, std::span<const std::byte> address) {
    // It is at one place in both.
    static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
    sockaddr_in in = {};
    if (address_bytes(format) == 0 || address.size() < sizeof in) return 0;
    std::memcpy(&in, address.data(), sizeof in);
    return ntohs(in.sin_port);
}

std::vector<Candidate> look_for_providers(const NetworkOptions& options) {
    hand_over({options.port_low, options.port_high});
    const std::vector<Interface> system = interfaces();
    const InfoPtr all = get_info(make_hints().get());
    std::vector<Candidate> candidates;
    for (const fi_info* at = all.get(); at != nullptr; at = at->next) {
        candidates.push_back(examine(*at, system, options));
    }
    prefer_way_to(options.other_host, system, candidates);
    for (Candidate& candidate : candidates) candidate.nearness = nearness_of(candidate);
    std::ranges::stable_sort(candidates, {}, [](const Candidate& candidate) {
        return std::tuple(!candidate.refused.empty(), candidate.preference, candidate.place, candidate.nearness);
    });
    return candidates;
}

std::vector<Choice> choose_rails(const NetworkOptions& options, uint32_t rails_max) {
    std::vector<Candidate> all = look_for_providers(options);
    const PortRange ports = {options.port_low, options.port_high};
    const std::string_view included = allowed(options.interface_include);
    std::vector<Choice> rails;
    std::vector<size_t> more;  // of each rail's address: as often as the user named it
    for (Candidate& candidate : all) {
        if (!candidate.refused.empty() || rails.size() == rails_max) break;
        if (!rails.empty() && !carries_a_rail(candidate, rails, included)) continue;
        InfoPtr info = narrowed(*candidate.info);
        if (!info) {
            candidate.refused = "it does not offer together what velo needs";
            continue;
        }
        rails.push_back({.info = std::move(info),
                         .interface = candidate.interface,
                         .address = candidate.address,
                         .ports = ports});
        more.push_back(std::max<size_t>(times_named(included, candidate), 1) - 1);
        if (!shares_registrations(*rails.front().info)) return rails;
    }
    if (rails.empty()) refuse_all(all, options);
    // One on each interface comes first.
    for (size_t at = 0; rails.size() < rails_max && std::ranges::any_of(more, [](size_t left) { return left != 0; });
         at = (at + 1) % more.size()) {
        if (more[at] == 0) continue;
        --more[at];
        InfoPtr info(fi_dupinfo(rails[at].info.get()));
        if (!info) throw std::bad_alloc();
        rails.push_back({.info = std::move(info),
                         .interface = rails[at].interface,
                         .address = rails[at].address,
                         .ports = ports});
    }
    return rails;
}

Choice choose_provider(const NetworkOptions& options) {
    return std::move(choose_rails(options, 1).front());
}

}  // namespace velo::ofi
