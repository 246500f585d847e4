#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "cpp_test.h"
#include "diagnostics/trace.h"

namespace pyc {
namespace {

std::string written(const Trace& trace, const std::filesystem::path& path) {
  trace.write();
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

PYC_TEST(a_trace_escapes_names_and_leaves_out_what_is_too_much) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const std::string stem = (folder / ("pyc-trace-" + std::to_string(getpid()))).string();
  const std::filesystem::path file = stem + ".rank0.json";
  Trace trace(stem + ".json", 0, 1, 0, "own", 2);
  trace.add("a \"ring\"", 0, 1, 1, 0);
  trace.end(7, 2, "b\\c", 1, 1);
  trace.add("too much", 2, 3, 1, 2);
  const std::string text = written(trace, file);
  std::filesystem::remove(file);
  PYC_CHECK(text.find(R"("name": "a \"ring\"")") != std::string::npos);
  PYC_CHECK(text.find(R"("name": "b\\c")") != std::string::npos);
  PYC_CHECK(text.find("too much") == std::string::npos);
  PYC_CHECK(text.find("full: 1 later events left out") != std::string::npos);
}

}  // namespace pyc
