/* Called by the C++ runtime for an exception that nothing catches, of which there should be none. */
#include <stdio.h>
#include <stdlib.h>

/* The runtime's own prints the exception's type, and brings a demangler of 60 KiB into every process. This one
 * takes its place in a plugin that contains its runtime; in one that does not, nothing refers to it. */
void verbose_terminate_handler(void) __asm__("_ZN9__gnu_cxx27__verbose_terminate_handlerEv");

void verbose_terminate_handler(void)
{
    fputs("velo: internal error: an exception that nothing catches\n", stderr);
    abort();
}
