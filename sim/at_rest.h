/// Conditions on every pair of processes when a simulated job has ended.
#pragma once

#include <string>

namespace velo::sim {

class Simulation;

/// The first process or pair that is not at rest, and in what; empty: all are.
///
/// At rest, no packet is in a mailbox, no control packet is due or refused, and no process waits for the
/// answer to a compulsory request. The two processes of a pair agree about their link, and the credits that
/// one of them holds are those that the other one has granted. A disagreement is a mistake of flow control
/// which a run can survive.
[[nodiscard]] std::string first_unrest(Simulation& simulation);

}  // namespace velo::sim
