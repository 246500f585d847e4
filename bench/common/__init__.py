"""What the benchmarks share. README.md says which modules start MPI when they are imported."""
