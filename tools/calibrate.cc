// A fixed piece of compiling: tools/time_build.py scales CPU seconds by it, which vary with what else a machine does.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>
template <int N> struct T { std::map<std::string, std::vector<std::function<int(int)>>> m; std::unordered_map<int, std::shared_ptr<T<N - 1>>> u; int f(int x) { for (auto& [k, v] : m) { std::sort(v.begin(), v.end(), [](auto& a, auto& b) { return a(1) < b(1); }); for (auto& g : v) x += g(x) * N; } for (auto& [k, p] : u) x += p->f(x + k); return x; } };
template <> struct T<0> { int f(int x) { return x; } };
int run(const std::string& s) { T<24> t; std::regex r("(a|b)*c[0-9]{2,5}"); std::smatch m; return t.f(static_cast<int>(s.size())) + std::regex_match(s, m, r); }
