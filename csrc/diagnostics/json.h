// Formats text as a quoted JSON string.
#pragma once

#include <string>

namespace pyc {

std::string json_string(const std::string& text);

}  // namespace pyc
