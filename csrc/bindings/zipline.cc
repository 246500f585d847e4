// The extension module pycollectives._zipline: ZipLine on NumPy arrays. Apart from _core, since it needs no MPI.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "bindings/gil.h"
#include "zipline/algorithms.h"
#include "zipline/incremental.h"
#include "zipline/rows.h"

namespace pyc {
namespace {

namespace py = pybind11;
namespace zl = zipline;

template <class T>
using Array = py::array_t<T, py::array::c_style>;

template <class T>
std::span<const T> span_of(const Array<T>& array) {
  return {array.data(), static_cast<std::size_t>(array.size())};
}

template <class Time>
zl::Rows<Time> checked_rows(const Array<Time>& points, const Array<std::int64_t>& ends) {
  const zl::Rows<Time> rows{span_of(points), span_of(ends)};
  zl::check_rows(rows);
  return rows;
}

/// (t_sync, d, iterations)
template <class Time>
py::tuple tuple_of(const zl::Barrier<Time>& barrier) {
  py::tuple iterations(barrier.iterations.size());
  for (std::size_t worker = 0; worker < barrier.iterations.size(); ++worker) {
    iterations[worker] = barrier.iterations[worker];
  }
  return py::make_tuple(barrier.t_sync, barrier.d, iterations);
}

template <class Time>
void bind_algorithm(py::module_& m, const char* name, zl::Barrier<Time> (*algorithm)(const zl::Rows<Time>&)) {
  m.def(
      name,
      [algorithm](const Array<Time>& points, const Array<std::int64_t>& ends) {
        const zl::Rows<Time> rows = checked_rows(points, ends);
        zl::Barrier<Time> barrier;
        {
          const GilReleased others_may_run;
          barrier = algorithm(rows);
        }
        return tuple_of(barrier);
      },
      py::arg("points").noconvert(), py::arg("ends").noconvert());
}

template <class Time>
void bind_algorithms(py::module_& m) {
  m.def(
      "check", [](const Array<Time>& points, const Array<std::int64_t>& ends) { checked_rows(points, ends); },
      py::arg("points").noconvert(), py::arg("ends").noconvert());
  bind_algorithm<Time>(m, "zipline_linear", &zl::zipline_linear<Time>);
  bind_algorithm<Time>(m, "zipline", &zl::zipline<Time>);
  bind_algorithm<Time>(m, "zipline_opt", &zl::zipline_opt<Time>);
  bind_algorithm<Time>(m, "zipline_opt_bs", &zl::zipline_opt_bs<Time>);
  bind_algorithm<Time>(m, "grid_scan", &zl::grid_scan<Time>);
  bind_algorithm<Time>(m, "full_grid_scan", &zl::full_grid_scan<Time>);
}

/// It keeps the GIL, so threads take turns.
template <class Time>
void bind_incremental(py::module_& m, const char* name) {
  using Incremental = zl::Incremental<Time>;
  py::class_<Incremental>(m, name)
      .def(py::init([](const Array<Time>& points, const Array<std::int64_t>& ends) {
             return Incremental(zl::Rows<Time>{span_of(points), span_of(ends)});
           }),
           py::arg("points").noconvert(), py::arg("ends").noconvert())
      .def(
          "update",
          [](Incremental& i, std::size_t worker, const Array<Time>& row) {
            return tuple_of(i.update(worker, span_of(row)));
          },
          py::arg("worker"), py::arg("row").noconvert())
      .def("barrier", [](const Incremental& i) { return tuple_of(i.barrier()); })
      .def_property_readonly("size", &Incremental::size);
}

}  // namespace
}  // namespace pyc

PYBIND11_MODULE(_zipline, m) {
  pyc::bind_algorithms<std::int64_t>(m);
  pyc::bind_algorithms<double>(m);
  pyc::bind_incremental<std::int64_t>(m, "IncrementalInt64");
  pyc::bind_incremental<double>(m, "IncrementalFloat64");
}
