/// The translation table in shared memory, which peers may overwrite.
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "velo/wire/atu_table.h"

namespace velo::fuzz {

/// The owner translates what it registered, whatever others wrote; and a reader of a damaged table
/// stays inside it.
void atu(Input& input) {
    constexpr uint32_t kCapacity = 8;
    const HeapMemory memory(base::AtuTable::bytes_for(kCapacity));
    base::AtuTable table(memory.data(), kCapacity);
    const base::AtuView reader(memory.data(), kCapacity);
    std::vector<Registration> standing;
    std::vector<uint64_t> bases;
    for (int step = 0; step < kStepsMax && !input.empty(); ++step) {
        switch (input.below(4)) {
            case 0: damage(input, memory.bytes()); break;
            case 1: {
                Registration registration;
                const uint64_t base = input.take<uint32_t>();
                const uint64_t bytes = input.take<uint16_t>();
                const Status status = table.add(reinterpret_cast<void*>(base), bytes,
                                                static_cast<uint32_t>(input.below(8)), registration);
                require((status == Status::kOk) == (standing.size() < kCapacity), "a free slot is given out");
                if (status != Status::kOk) break;
                standing.push_back(registration);
                bases.push_back(base);
                break;
            }
            case 2: {
                if (standing.empty()) break;
                const size_t which = input.below(standing.size());
                require(table.remove(standing[which]) == Status::kOk, "what was registered can be revoked");
                require(table.remove(standing[which]) != Status::kOk, "and only once");
                standing.erase(standing.begin() + static_cast<std::ptrdiff_t>(which));
                bases.erase(bases.begin() + static_cast<std::ptrdiff_t>(which));
                break;
            }
            case 3: {
                uint64_t nla = input.take<uint64_t>();
                uint32_t key = input.take<uint32_t>();
                if (!standing.empty() && input.flag()) {
                    const Registration& known = standing[input.below(standing.size())];
                    nla = known.nla + nla % (known.bytes + 2);
                    key = known.key;
                }
                const uint64_t bytes = input.flag() ? input.take<uint64_t>() : input.byte();
                const auto access = static_cast<uint32_t>(input.below(8));
                uint64_t address = 0;
                (void)reader.translate(nla, bytes, key, access, address);
                if (table.view().translate(nla, bytes, key, access, address) != Status::kOk) break;
                bool registered = false;
                for (size_t i = 0; i < standing.size(); ++i) {
                    registered |= standing[i].key == key && (standing[i].access & access) == access &&
                                  address >= bases[i] && bytes <= standing[i].bytes &&
                                  address - bases[i] <= standing[i].bytes - bytes;
                }
                require(registered, "the owner translates what it registered and nothing else");
                break;
            }
        }
    }
    require(table.registrations() == standing.size(), "registrations are counted");
}

}  // namespace velo::fuzz
