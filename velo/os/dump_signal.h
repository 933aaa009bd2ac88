/// A signal by which a user asks this process for a report.
#pragma once

namespace velo::base {

enum class SignalOutcome {
    kInstalled,
    kTaken,       ///< the program, or another library, handles or ignores it
    kImpossible,  ///< there is no such signal, or it cannot be caught
};

/// Catches `number` from now on, unless the program does already. The handler sets a flag and nothing else.
/// Process-wide; for one signal at a time.
SignalOutcome catch_dump_signal(int number) noexcept;

/// Undoes catch_dump_signal(), if its handler is still in place: its code may be unloaded soon.
void release_dump_signal() noexcept;

/// True once after each time, or several in short order, that the signal came.
bool take_dump_request() noexcept;

}  // namespace velo::base
