// Text in JSON.
#pragma once

#include <string>

namespace pyc {

/// `text` between quotes, as JSON writes it.
std::string json_string(const std::string& text);

}  // namespace pyc
