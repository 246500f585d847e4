// Defines Python functions with a tenth of the code of pybind11's `def`. They share one dispatcher, and Python itself
// parses the parameter lists. For calls that take microseconds; c_api.h is for faster ones.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/gil.h"

namespace pyc {

namespace py = pybind11;

struct Signature {
  static constexpr std::size_t kMost = 32;

  /// `parameters`: in Python's syntax, "x, *, timeout=None, **options". InternalError unless there are `count`.
  Signature(std::string name, const std::string& parameters, std::size_t count);

  std::string name;
  std::vector<py::object> names;
  std::vector<py::object> defaults;  // null if there is no default
  std::size_t by_position = 0;       // later parameters are keyword-only
  bool takes_rest = false;           // the last one is a dict of the other keyword arguments
};

class Values {
 public:
  /// TypeError unless each parameter has a value and each argument a parameter.
  Values(const Signature& signature, py::handle positional, py::handle named);

  template <class Value>
  struct Converted {
    /// TypeError if the value cannot be converted.
    Converted(const Values& values, std::size_t i) {
      if (!caster.load(values.values_[i], true)) values.refuse(i);
    }
    decltype(auto) value() { return py::detail::cast_op<Value>(std::move(caster)); }

    py::detail::make_caster<Value> caster;
  };

 private:
  [[noreturn]] void refuse(std::size_t i) const;

  const Signature& signature_;
  std::array<py::handle, Signature::kMost> values_;
  py::object rest_;
};

namespace detail {

template <class Operator>
struct CallBy;
template <class Return, class Self, class... Arguments>
struct CallBy<Return (Self::*)(Arguments...) const> {
  using Result = Return;
  static constexpr std::size_t kParameters = sizeof...(Arguments);
  template <class Function, std::size_t... I>
  static decltype(auto) of_function(const Function& function, const Values& values, std::index_sequence<I...>) {
    return function(Values::Converted<Arguments>(values, I).value()...);
  }
  template <class Function>
  static decltype(auto) of_function(const Function& function, const Values& values) {
    return of_function(function, values, std::index_sequence_for<Arguments...>());
  }
};
template <class Function>
using Call = CallBy<decltype(&Function::operator())>;

/// Wraps a pointer to a member or a function in a callable type, which calls it without the GIL if `WithoutGil`.
template <auto Pointer, bool WithoutGil = false>
struct Pointed;
template <class Return, class Self, class... Arguments, Return (Self::*Pointer)(Arguments...), bool WithoutGil>
struct Pointed<Pointer, WithoutGil> {
  Return operator()(Self& self, Arguments... arguments) const {
    const GilReleased released(WithoutGil);
    return (self.*Pointer)(std::forward<Arguments>(arguments)...);
  }
};
template <class Return, class Self, class... Arguments, Return (Self::*Pointer)(Arguments...) const, bool WithoutGil>
struct Pointed<Pointer, WithoutGil> {
  Return operator()(const Self& self, Arguments... arguments) const {
    const GilReleased released(WithoutGil);
    return (self.*Pointer)(std::forward<Arguments>(arguments)...);
  }
};
template <class Return, class... Arguments, Return (*Pointer)(Arguments...), bool WithoutGil>
struct Pointed<Pointer, WithoutGil> {
  Return operator()(Arguments... arguments) const {
    const GilReleased released(WithoutGil);
    return Pointer(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace detail

/// A function or member to define, called without the GIL. Its parameters and its result are no Python objects.
template <auto Pointer>
inline constexpr detail::Pointed<Pointer, true> kWithoutGil{};

/// Defines functions of a module or a class. Each is a pointer, or a lambda without captures.
class Definitions {
 public:
  explicit Definitions(py::handle scope) : scope_(scope) {}

  /// A function of a module, or a static method of a class.
  template <class Function>
  Definitions& function(const char* name, const std::string& parameters, Function) {
    add_function(name, parameters, described<Function>());
    return *this;
  }
  template <auto Pointer>
  Definitions& function(const char* name, const std::string& parameters) {
    return function(name, parameters, detail::Pointed<Pointer>());
  }
  template <class Function>
  Definitions& method(const char* name, const std::string& parameters, Function) {
    add_method(name, parameters, described<Function>());
    return *this;
  }
  template <auto Pointer>
  Definitions& method(const char* name, const std::string& parameters) {
    return method(name, parameters, detail::Pointed<Pointer>());
  }
  template <class Function>
  Definitions& property(const char* name, Function) {
    add_property(name, described<Function>());
    return *this;
  }
  template <auto Pointer>
  Definitions& property(const char* name) {
    return property(name, detail::Pointed<Pointer>());
  }

 protected:
  struct Described {
    py::object (*run)(const Values& values);
    std::size_t parameters;
  };
  struct Constructor {
    void (*construct)(py::detail::value_and_holder& place, const Values& values);
    std::size_t parameters;
  };

  void add_constructor(const std::string& parameters, Constructor constructor);

 private:
  template <class Function>
  static Described described() {
    return {&run<Function>, detail::Call<Function>::kParameters};
  }
  template <class Function>
  static py::object run(const Values& values) {
    using Result = typename detail::Call<Function>::Result;
    if constexpr (std::is_void_v<Result>) {
      detail::Call<Function>::of_function(Function(), values);
      return py::none();
    } else if constexpr (std::is_base_of_v<py::object, Result>) {
      return detail::Call<Function>::of_function(Function(), values);
    } else {
      return py::cast(detail::Call<Function>::of_function(Function(), values));
    }
  }

  void add_function(const char* name, const std::string& parameters, Described function);
  void add_method(const char* name, const std::string& parameters, Described function);
  void add_property(const char* name, Described function);

  py::handle scope_;
};

/// For a class that can be constructed, by a function that returns an object or its holder.
template <class Class>
class ClassDefinitions : public Definitions {
 public:
  explicit ClassDefinitions(const Class& type) : Definitions(type) {}

  template <class Function>
  ClassDefinitions& constructor(const std::string& parameters, Function) {
    const auto construct = [](py::detail::value_and_holder& place, const Values& values) {
      py::detail::initimpl::construct<Class>(place, detail::Call<Function>::of_function(Function(), values), false);
    };
    add_constructor(parameters, {construct, detail::Call<Function>::kParameters});
    return *this;
  }
};

}  // namespace pyc
