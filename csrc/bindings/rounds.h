// The Python types Round and RoundInfo.
#pragma once

#include <memory>

#include "bindings/bound_allreduce.h"

namespace pyc {

void bind_rounds(py::module_& m);

/// Return new references. `owner`: the Python object that contains `collective`.
PyObject* make_round(PyObject* owner, BoundPartialAllreduce& collective, std::shared_ptr<Call> call);
PyObject* make_round_info(const RoundInfo& info);

}  // namespace pyc
