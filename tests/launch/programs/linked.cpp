// Wrong use of the library without Python: `linked WAY` prints the status and the text of rank 0 and of the last rank.
#include <mpi.h>
#include <pycollectives.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  int level = 0;
  int rank = 0;
  int size = 0;
  const std::string way = argc > 1 ? argv[1] : "";
  MPI_Init_thread(&argc, &argv, way == "level" ? MPI_THREAD_FUNNELED : MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  pyc_communicator* comm = nullptr;
  pyc_collective* made = nullptr;
  pyc_status status = pyc_open(MPI_COMM_WORLD, 30.0, &comm);
  if (status == PYC_OK) {
    const bool is_first = rank == 0;
    const std::size_t count = way == "count" && is_first ? 2 : 1;
    const char* const policy = way == "policy" && is_first ? "quorum:9" : "solo";
    status = pyc_make_allreduce(comm, count, PYC_FLOAT64, PYC_SUM, policy, "sum", &made);
  }
  for (int turn = 0; turn < size; ++turn) {
    if (turn == rank)
      std::printf("%d: %d %s\n", rank, static_cast<int>(status), status == PYC_OK ? "" : pyc_error_text());
    std::fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  if (way != "forgotten" && comm != nullptr) pyc_close(&comm, 30.0);
  MPI_Finalize();
  return 0;
}
