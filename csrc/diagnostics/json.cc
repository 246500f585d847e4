#include "diagnostics/json.h"

#include <cstdio>

namespace pyc {

std::string json_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    char code[8] = {c};
    if (static_cast<unsigned char>(c) < 0x20) std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += code;
  }
  return quoted + '"';
}

}  // namespace pyc
