// The submodule _core.testing: the memory's kernels, for comparison with NumPy.
#include "bindings/bindings.h"
#include "memory/memory.h"

namespace pyc {
namespace {

const char* accumulator_format(DataType type) {
  constexpr const char* formats[] = {"f4", "f4", "f4", "f8", "i1", "i2", "i4", "i8", "u1"};
  return formats[static_cast<std::size_t>(type)];
}
const char* element_format(DataType type) {
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
  t.def("load", [](const std::string& dtype, const py::array& from) {
    const DataType type = data_type(dtype);
    py::array into = new_array(accumulator_format(type), count(from));
    host_memory().load(type, bytes(into), bytes(from), count(from));
    return into;
  });
  t.def("accumulate", [](const std::string& dtype, const std::string& op, py::array into, const py::array& from) {
    host_memory().accumulate(data_type(dtype), reduce_op(op), bytes(into), bytes(from), count(from));
  });
  t.def("reduce", [](const std::string& dtype, const std::string& op, py::array into, const py::array& from) {
    host_memory().reduce(data_type(dtype), reduce_op(op), bytes(into), bytes(from), count(from));
  });
  t.def("add", [](const std::string& dtype, py::array into, const py::array& from, std::size_t divisor) {
    host_memory().add(data_type(dtype), bytes(into), bytes(from), count(from), divisor);
  });
  t.def("store", [](const std::string& dtype, const py::array& from, std::size_t divisor) {
    const DataType type = data_type(dtype);
    py::array into = new_array(element_format(type), count(from));
    host_memory().store(type, bytes(into), bytes(from), count(from), divisor);
    return into;
  });
  t.def("identity", [](const std::string& dtype, const std::string& op, std::size_t n) {
    const DataType type = data_type(dtype);
    py::array into = new_array(accumulator_format(type), n);
    host_memory().fill_identity(type, reduce_op(op), bytes(into), n);
    return into;
  });
}

}  // namespace pyc
