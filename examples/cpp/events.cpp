// Ranks count events and learn the total without waiting for slow ranks. No Python.
#include <mpi.h>
#include <pycollectives.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

void check(pyc_status status) {
  if (status != PYC_OK) throw std::runtime_error(pyc_error_text());
}

std::int64_t newest(pyc_collective* total) {
  std::int64_t value = 0;
  check(pyc_result(total, &value, 1, PYC_INT64));
  return value;
}

void run(int rank, int size) {
  pyc_communicator* comm = nullptr;
  pyc_collective* total = nullptr;
  pyc_collective* mean = nullptr;
  check(pyc_open(MPI_COMM_WORLD, 30.0, &comm));
  check(pyc_make_allreduce(comm, 1, PYC_INT64, PYC_SUM, "solo", "sum", &total));
  check(pyc_make_preduce(comm, 1, PYC_FLOAT64, PYC_AVG, &mean));

  std::int64_t sum = 0;
  for (int step = 0; step < 20; ++step) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // slow; the others do not wait
    const std::int64_t events = rank + 1;
    pyc_request* request = nullptr;
    check(pyc_contribute(total, &events, 1, PYC_INT64, &request));
    check(pyc_wait(&request, PYC_DEFAULT_TIMEOUT, nullptr));
    sum += newest(total);
  }
  check(pyc_flush(total, PYC_DEFAULT_TIMEOUT, nullptr));
  sum += newest(total);

  double average = static_cast<double>(sum);
  std::vector<std::int32_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  check(pyc_preduce(mean, &average, 1, PYC_FLOAT64, all.data(), all.size(), PYC_DEFAULT_TIMEOUT));
  if (rank == 0)
    std::printf("%d ranks: %lld events, mean of all ranks %.1f\n", size, static_cast<long long>(sum), average);
  check(pyc_close(&comm, PYC_DEFAULT_TIMEOUT));
}

}  // namespace

int main(int argc, char** argv) {
  int level = 0;
  int rank = 0;
  int size = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  try {
    run(rank, size);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return 0;
}
