// The submodule _core.testing: the memory's kernels, for comparison with NumPy.
#include "bindings/bindings.h"
#include "memory/memory.h"

namespace pyc {
namespace {

const char* format_of(DataType type) {
  constexpr const char* formats[] = {"f2", "u2", "f4", "f8", "i1", "i2", "i4", "i8", "u1"};  // bfloat16 as its bits
  return formats[static_cast<std::size_t>(type)];
}

py::array new_array(const char* format, std::size_t count) {
  return py::array(py::dtype(format), std::vector<py::ssize_t>{static_cast<py::ssize_t>(count)});
}
std::byte* bytes(py::array& array) { return static_cast<std::byte*>(array.mutable_data()); }
const std::byte* bytes(const py::array& array) { return static_cast<const std::byte*>(array.data()); }
std::size_t count(const py::array& array) { return static_cast<std::size_t>(array.size()); }

}  // namespace

void bind_testing(py::module_& m) {
  py::module_ t = m.def_submodule("testing");
  const auto elements = [](const std::string& dtype, const std::string& op) {
    return elements_of(data_type(dtype), reduce_op(op));
  };
  t.def("load", [=](const std::string& dtype, const std::string& op, const py::array& from) {
    const Elements e = elements(dtype, op);
    py::array into = new_array(format_of(e.accumulator), count(from));
    host_memory().load(e, bytes(into), bytes(from), count(from));
    return into;
  });
  t.def("accumulate", [=](const std::string& dtype, const std::string& op, py::array into, const py::array& from) {
    host_memory().accumulate(elements(dtype, op), reduce_op(op), bytes(into), bytes(from), count(from));
  });
  t.def("reduce", [=](const std::string& dtype, const std::string& op, py::array into, const py::array& from) {
    host_memory().reduce(elements(dtype, op), reduce_op(op), bytes(into), bytes(from), count(from));
  });
  t.def("add", [=](const std::string& dtype, const std::string& op, py::array into, const py::array& from,
                   std::size_t divisor) {
    host_memory().add(elements(dtype, op), bytes(into), bytes(from), count(from), divisor);
  });
  t.def("store", [=](const std::string& dtype, const std::string& op, const py::array& from, std::size_t divisor) {
    const Elements e = elements(dtype, op);
    py::array into = new_array(format_of(e.type), count(from));
    host_memory().store(e, bytes(into), bytes(from), count(from), divisor);
    return into;
  });
  t.def("identity", [=](const std::string& dtype, const std::string& op, std::size_t n) {
    const Elements e = elements(dtype, op);
    py::array into = new_array(format_of(e.accumulator), n);
    host_memory().fill_identity(e, reduce_op(op), bytes(into), n);
    return into;
  });
}

}  // namespace pyc
