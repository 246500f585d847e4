"""What the benchmarks share. Importing a module from here never starts MPI unless its name says so (see README.md)."""
