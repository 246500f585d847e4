"""Shared code of the benchmarks. README.md lists the modules whose import starts MPI."""
