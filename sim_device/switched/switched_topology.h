/// Routers of a dragonfly or of a fat tree, their links, and the ports that lead from one towards another.
///
/// A router has `ports()` ports; those that a fat tree's roots lack are of kind kNone. A link joins port to
/// port and carries packets both ways. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace velo::switched {

enum class LinkKind : uint8_t { kNone, kTerminal, kLocal, kGlobal };

/// The other end of a port's link: a node (kTerminal), or a router's port.
struct Link {
    LinkKind kind = LinkKind::kNone;
    uint8_t port = 0;
    uint16_t peer = 0;  ///< a node or a router
};

class SwitchedTopology {
  public:
    static constexpr uint32_t kNodesMax = 1u << 16;  ///< a packet names a node in 16 bits
    static constexpr uint32_t kPortsMax = 64;        ///< a router's ports are bits of a word

    /// A network by its name. Throws base::SetupError with a sentence that says what is allowed.
    /// - "dragonfly:p,a,h": groups of `a` routers, all linked with each other, of `p` nodes and `h` global
    ///   links each. There are a * h + 1 groups and one link for each pair of them, in the consecutive
    ///   arrangement: link L of group g leads to group g + L + 1, and is of its router L / h. (RDRP 4.1:
    ///   dragonfly:6,12,6.)
    /// - "fattree:k,levels": a k-ary tree of k^levels nodes; `levels` rows of k^(levels - 1) routers of 2k
    ///   ports.
    static SwitchedTopology parse(std::string_view text);

    [[nodiscard]] uint32_t nodes() const { return nodes_; }
    [[nodiscard]] uint32_t routers() const { return routers_; }
    [[nodiscard]] uint32_t ports() const { return ports_; }
    [[nodiscard]] bool dragonfly() const { return groups_ != 0; }
    [[nodiscard]] const std::string& text() const { return text_; }
    [[nodiscard]] const Link& link(uint32_t router, uint32_t port) const {
        return links_[router * ports_ + port];
    }
    [[nodiscard]] uint32_t router_of(uint32_t node) const { return node / terminals_; }
    [[nodiscard]] uint32_t terminal_of(uint32_t node) const { return node % terminals_; }

    /// Dragonfly: groups; 0 for a fat tree.
    [[nodiscard]] uint32_t groups() const { return groups_; }
    [[nodiscard]] uint32_t group_of(uint32_t router) const { return group_of_[router]; }
    /// Dragonfly: the port that leads from a router towards another group by the one link there is.
    [[nodiscard]] uint32_t port_to_group(uint32_t router, uint32_t group) const {
        const uint32_t own = group_of_[router];
        const Exit exit = exits_[group > own ? group - own - 1 : group + groups_ - own - 1];
        const uint32_t place = place_of_[router];
        return exit.place == place ? exit.port : port_to_place(place, exit.place);
    }
    /// Dragonfly: the port that leads to another router of the same group.
    [[nodiscard]] uint32_t port_in_group(uint32_t router, uint32_t to) const {
        return port_to_place(place_of_[router], place_of_[to]);
    }

    /// Fat tree: the router is above the node, so that its way leads down only.
    [[nodiscard]] bool is_above(uint32_t router, uint32_t node) const;
    /// Fat tree: the port down towards a node that the router is above.
    [[nodiscard]] uint32_t port_down(uint32_t router, uint32_t node) const;
    /// Fat tree: the port up that packets to `node` take where the destination decides.
    [[nodiscard]] uint32_t port_up(uint32_t router, uint32_t node) const;
    /// Fat tree: k. Ports k to 2k - 1 lead up.
    [[nodiscard]] uint32_t arity() const { return terminals_; }

  private:
    struct Exit {
        uint8_t place = 0;  ///< of the router in its group
        uint8_t port = 0;
    };

    SwitchedTopology() = default;
    void make_dragonfly(uint32_t p, uint32_t a, uint32_t h);
    void make_fat_tree(uint32_t k, uint32_t levels);
    [[nodiscard]] uint32_t port_to_place(uint32_t from, uint32_t to) const {
        return terminals_ + (to < from ? to : to - 1);
    }

    std::string text_;
    uint32_t nodes_ = 0;
    uint32_t routers_ = 0;
    uint32_t ports_ = 0;
    uint32_t terminals_ = 0;  ///< nodes of a router that has any
    uint32_t groups_ = 0;
    std::vector<Link> links_;
    std::vector<uint16_t> group_of_;
    std::vector<uint8_t> place_of_;  ///< of a router in its group
    std::vector<Exit> exits_;        ///< by a group's link
    std::vector<uint32_t> powers_;   ///< fat tree: k^0 .. k^levels
};

}  // namespace velo::switched
