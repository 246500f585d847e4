// Options of a parameter server, from their Python names.
#pragma once

#include "bindings/bindings.h"
#include "services/parameter_server/options.h"

namespace pyc {

/// What `engine_arguments()` of a class of pycollectives.parameter_server.sync returns: `kind`, and the options of that
/// kind by their names in SyncOptions.
server::SyncOptions sync_options_from(const py::dict& arguments);

}  // namespace pyc
