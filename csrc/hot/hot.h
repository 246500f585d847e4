// For code that ranks run right after a sleep, with nothing in their caches. README.md says what it is worth and how to
// compare.
#pragma once

/// Functions that are marked lie together in the library. In the order of the sources, the few hundred instructions of a
/// call are scattered over twenty pages, and finding a page costs more than running what is on it.
/// `-DPYC_COLD` takes the mark off, to measure what it gains.
#ifdef PYC_COLD
#define PYC_HOT
#else
#define PYC_HOT [[gnu::hot]]
#endif
