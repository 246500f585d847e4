#pragma once

#include "bindings/bindings.h"
#include "services/parameter_server/options.h"

namespace pyc {

/// `arguments`: the result of `engine_arguments()` of a class of pycollectives.parameter_server.sync. It has `kind`,
/// and the options of that kind by their names in SyncOptions.
server::SyncOptions sync_options_from(const py::dict& arguments);
/// `arguments`: `rule`, and the options of that rule by their names in UpdateOptions.
server::UpdateOptions update_options_from(const py::dict& arguments);

}  // namespace pyc
