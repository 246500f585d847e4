// A mark for the functions that a call of a partial allreduce runs.
//
// A program calls between milliseconds of computing, which evicts the library from the caches: the time of a call is
// the number of pages and cache lines that it touches. In the order of the sources its few hundred instructions are
// scattered over twenty pages; functions with the mark lie together.
//
// What it gains: docs/results/hot-8.jsonl. -DCMAKE_CXX_FLAGS=-DPYC_COLD takes the mark off, to measure it again.
#pragma once

#ifdef PYC_COLD
#define PYC_HOT
#else
#define PYC_HOT [[gnu::hot]]
#endif
