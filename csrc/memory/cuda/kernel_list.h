// PYC_CUDA_KERNELS(X): X(name, body) of every kernel, where `body` is a type of kernels.cuh. Integers of one width
// share sums and products; kernel_names.h gives the kernel of each operation.
#pragma once

#define PYC_ORDERS(X, type, ...)             \
  X(fold_min_##type, Fold<__VA_ARGS__, Min>) \
  X(fold_max_##type, Fold<__VA_ARGS__, Max>)

#define PYC_FLOATS(X, type, ...)               \
  X(fold_sum_##type, Mean<__VA_ARGS__>)        \
  X(fold_prod_##type, Fold<__VA_ARGS__, Prod>) \
  PYC_ORDERS(X, type, __VA_ARGS__)             \
  X(weighted_sum_##type, WeightedSum<__VA_ARGS__>)

#define PYC_INTEGERS(X, type, ...)             \
  X(fold_sum_##type, Fold<__VA_ARGS__, Sum>)   \
  X(fold_prod_##type, Fold<__VA_ARGS__, Prod>) \
  PYC_ORDERS(X, type, __VA_ARGS__)

#define PYC_CONVERSIONS(X, type, ...) \
  X(load_##type, Load<__VA_ARGS__>)   \
  X(store_##type, Store<__VA_ARGS__>)

#define PYC_AVERAGES(X, type, ...)      \
  X(fold_avg_##type, Mean<__VA_ARGS__>) \
  PYC_CONVERSIONS(X, type, __VA_ARGS__)

#define PYC_CUDA_KERNELS(X)                        \
  PYC_FLOATS(X, float16, Float16)                  \
  PYC_FLOATS(X, bfloat16, Bfloat16)                \
  PYC_FLOATS(X, float32, Plain<float>)             \
  PYC_FLOATS(X, float64, Plain<double>)            \
  PYC_INTEGERS(X, uint8, Plain<std::uint8_t>)      \
  PYC_INTEGERS(X, uint16, Plain<std::uint16_t>)    \
  PYC_INTEGERS(X, uint32, Plain<std::uint32_t>)    \
  PYC_INTEGERS(X, uint64, Plain<std::uint64_t>)    \
  PYC_ORDERS(X, int8, Plain<std::int8_t>)          \
  PYC_ORDERS(X, int16, Plain<std::int16_t>)        \
  PYC_ORDERS(X, int32, Plain<std::int32_t>)        \
  PYC_ORDERS(X, int64, Plain<std::int64_t>)        \
  PYC_AVERAGES(X, int8, Averaged<std::int8_t>)     \
  PYC_AVERAGES(X, int16, Averaged<std::int16_t>)   \
  PYC_AVERAGES(X, int32, Averaged<std::int32_t>)   \
  PYC_AVERAGES(X, uint8, Averaged<std::uint8_t>)   \
  PYC_AVERAGES(X, uint16, Averaged<std::uint16_t>) \
  PYC_AVERAGES(X, uint32, Averaged<std::uint32_t>) \
  X(fold_avg_int64, Mean<Plain<std::int64_t>>)     \
  X(fold_avg_uint64, Mean<Plain<std::uint64_t>>)   \
  PYC_CONVERSIONS(X, float16, Float16)             \
  PYC_CONVERSIONS(X, bfloat16, Bfloat16)
