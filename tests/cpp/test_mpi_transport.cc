// On two ranks or more: the others do nothing.
#include <mpi.h>

#include <optional>
#include <vector>

#include "core/error.h"
#include "cpp_test.h"
#include "transport/mpi_transport.h"

namespace pyc {
namespace {

struct Received : Listener {
  void on_sent(Cookie) override {}
  void on_received(Cookie, ConstBytes, bool) override { ++count; }
  void on_message(Rank, ConstBytes) override {}
  int count = 0;
};

/// Rank 1 sends so many bytes, and rank 0 receives as many as it expects. Whether it gets an error, at last.
void exchange(std::size_t sent, std::size_t expected) {
  constexpr double kLimit = 20;
  MpiTransport transport(MPI_COMM_WORLD, 1);
  Received listener;
  const std::vector<std::byte> from(sent);
  std::vector<std::byte> to(expected);
  std::optional<std::string> error;
  const double start = MPI_Wtime();
  if (transport.rank() == 1) transport.send(0, 5, {}, from, true, 0);
  if (transport.rank() == 0) transport.recv(1, 5, to, 0);
  try {
    while (transport.rank() == 0 && listener.count == 0 && MPI_Wtime() - start < kLimit) transport.poll(listener);
  } catch (const TransportError& e) {
    error = e.what();
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (transport.rank() != 0) return;
  PYC_CHECK(listener.count == 0);
  PYC_CHECK(error.has_value());
  PYC_CHECK(error->find("a message of " + std::to_string(sent) + " bytes from rank 1 met a receive of " +
                        std::to_string(expected)) != std::string::npos);
}

}  // namespace

PYC_TEST(mpi_transport_finds_that_a_short_message_meets_a_long_receive) { exchange(100, 1 << 20); }
PYC_TEST(mpi_transport_finds_that_a_shorter_message_meets_a_short_receive) { exchange(100, 200); }

}  // namespace pyc
