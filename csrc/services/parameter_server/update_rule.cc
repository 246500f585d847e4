#include "services/parameter_server/update_rule.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "memory/numbers.h"
#include "services/parameter_server/streaming.h"

namespace pyc::server {
namespace {

template <class T>
void descend(std::byte* __restrict weights, const std::byte* __restrict gradient, std::size_t count, T rate) {
  for (std::size_t i = 0; i < count; ++i) {
    store_at(weights, i, load_at<T>(weights, i) - rate * load_at<T>(gradient, i));
  }
}

/// Explicit vectors, because compilers do not vectorize around non-temporal stores.
template <class T>
void descend_and_give(std::byte* weights, const std::byte* gradient, std::byte* out, std::size_t count, T rate) {
  using Vector [[gnu::vector_size(16)]] = T;
  constexpr std::size_t kVectors = kCacheLine / sizeof(Vector);
  const auto one_by_one = [&](std::size_t first, std::size_t end) {
    for (std::size_t i = first; i < end; ++i) {
      const T value = load_at<T>(weights, i) - rate * load_at<T>(gradient, i);
      store_at(weights, i, value);
      store_at(out, i, value);
    }
  };
  std::size_t done = bytes_to_line(out) % sizeof(T) == 0 ? std::min(count, bytes_to_line(out) / sizeof(T)) : count;
  one_by_one(0, done);
  for (; done + kCacheLine / sizeof(T) <= count; done += kCacheLine / sizeof(T)) {
    const std::size_t at = done * sizeof(T);
    Vector line[kVectors];
    for (std::size_t v = 0; v < kVectors; ++v) {
      Vector w;
      Vector g;
      std::memcpy(&w, weights + at + v * sizeof w, sizeof w);
      std::memcpy(&g, gradient + at + v * sizeof g, sizeof g);
      line[v] = w - rate * g;
    }
    std::memcpy(weights + at, line, kCacheLine);
    stream_line(out + at, line);
  }
  one_by_one(done, count);
  end_stream();
}

template <class T>
void descend_with_momentum(std::byte* __restrict weights, std::byte* __restrict velocity,
                           const std::byte* __restrict gradient, std::size_t count, T rate, T momentum) {
  for (std::size_t i = 0; i < count; ++i) {
    const T v = momentum * load_at<T>(velocity, i) + load_at<T>(gradient, i);
    store_at(velocity, i, v);
    store_at(weights, i, load_at<T>(weights, i) - rate * v);
  }
}

/// Kingma and Ba, "Adam", 2015, Algorithm 1.
template <class T>
void descend_by_adam(std::byte* __restrict weights, std::byte* __restrict first, std::byte* __restrict second,
                     const std::byte* __restrict gradient, std::size_t count, const UpdateOptions& options,
                     Version number) {
  const auto steps = static_cast<double>(number);
  const auto rate = static_cast<T>(options.rate / (1 - std::pow(options.beta1, steps)));
  const auto scale = static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, steps)));
  const auto beta1 = static_cast<T>(options.beta1);
  const auto beta2 = static_cast<T>(options.beta2);
  const auto epsilon = static_cast<T>(options.epsilon);
  for (std::size_t i = 0; i < count; ++i) {
    const T g = load_at<T>(gradient, i);
    const T m = beta1 * load_at<T>(first, i) + (1 - beta1) * g;
    const T v = beta2 * load_at<T>(second, i) + (1 - beta2) * g * g;
    store_at(first, i, m);
    store_at(second, i, v);
    store_at(weights, i, load_at<T>(weights, i) - rate * m / (std::sqrt(v) * scale + epsilon));
  }
}

template <class T>
void average_elastically(std::byte* __restrict center, std::byte* __restrict weights, std::size_t count, T alpha) {
  for (std::size_t i = 0; i < count; ++i) {
    const T x = load_at<T>(weights, i);
    const T c = load_at<T>(center, i);
    const T step = alpha * (x - c);
    store_at(weights, i, x - step);
    store_at(center, i, c + step);
  }
}

}  // namespace

void UpdateRule::apply(std::byte* weights, std::byte* const* state, const std::byte* gradient, std::size_t count,
                       Version number) const {
  of_float(type_, "weights", [&](auto zero) {
    using T = decltype(zero);
    const auto rate = static_cast<T>(options_.rate);
    if (options_.rule == Rule::kAdam) {
      descend_by_adam<T>(weights, state[0], state[1], gradient, count, options_, number);
    } else if (options_.momentum != 0) {
      descend_with_momentum<T>(weights, state[0], gradient, count, rate, static_cast<T>(options_.momentum));
    } else {
      descend<T>(weights, gradient, count, rate);
    }
  });
}

void UpdateRule::apply_and_give(std::byte* weights, const std::byte* gradient, std::byte* out,
                                std::size_t count) const {
  of_float(type_, "weights", [&](auto zero) {
    using T = decltype(zero);
    descend_and_give<T>(weights, gradient, out, count, static_cast<T>(options_.rate));
  });
}

void UpdateRule::average(std::byte* center, std::byte* weights, std::size_t count) const {
  of_float(type_, "weights", [&](auto zero) {
    using T = decltype(zero);
    average_elastically<T>(center, weights, count, static_cast<T>(options_.alpha));
  });
}

}  // namespace pyc::server
