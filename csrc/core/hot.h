// Marks the functions that run in a call of a partial allreduce, so that they lie together.
//
// Computation between calls evicts the library from the caches. The time of a call then depends on the pages and cache
// lines that it touches; without the mark, a few hundred instructions are scattered over twenty pages. Compile with
// -DCMAKE_CXX_FLAGS=-DPYC_COLD to remove the mark; docs/results/hot-8.jsonl compares both.
#pragma once

#ifdef PYC_COLD
#define PYC_HOT
#else
#define PYC_HOT [[gnu::hot]]
#endif
