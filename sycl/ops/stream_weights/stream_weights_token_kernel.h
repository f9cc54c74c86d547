#ifndef PAGEMILL_SYCL_OPS_STREAM_WEIGHTS_STREAM_WEIGHTS_TOKEN_KERNEL_H_
#define PAGEMILL_SYCL_OPS_STREAM_WEIGHTS_STREAM_WEIGHTS_TOKEN_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/stream_weights/stream_weights_params.h"

// Divides n numbers by their sum + eps.
inline void DivideBySum(float* x, int32_t n, int32_t stride, float eps) {
  float sum = eps;
  for (int32_t i = 0; i < n; ++i) sum += x[i * stride];
  for (int32_t i = 0; i < n; ++i) x[i * stride] /= sum;
}

// x = softmax(x) + eps.
inline void SoftmaxOf(float* x, int32_t n, float eps) {
  float largest = x[0], sum = 0;
  for (int32_t i = 1; i < n; ++i) largest = sycl::fmax(largest, x[i]);
  for (int32_t i = 0; i < n; ++i) sum += x[i] = sycl::exp(x[i] - largest);
  for (int32_t i = 0; i < n; ++i) x[i] = x[i] / sum + eps;
}

// A work-item for each row.
PAGEMILL_KERNEL void stream_weights_kernel(StreamWeightsParams p) {
  const int64_t row = GlobalId();
  if (row >= p.rows) return;
  const int32_t n = p.streams;
  const auto mixed = [&](int32_t kind, int32_t i) {
    return sycl::fma(p.mixes.Row<const float>(row)[i], p.scale[kind], p.base[i]);
  };
  const auto sigmoid = [](float x) { return 1 / (1 + sycl::exp(-x)); };
  for (int32_t i = 0; i < n; ++i) p.before.Row<float>(row)[i] = sigmoid(mixed(0, i)) + p.eps;
  if (p.after.data == nullptr) return;
  float pairs[kMaxWeightedStreams * kMaxWeightedStreams];
  for (int32_t j = 0; j < n; ++j) {
    for (int32_t k = 0; k < n; ++k) pairs[j * n + k] = mixed(2, 2 * n + j * n + k);
    SoftmaxOf(pairs + j * n, n, p.eps);
  }
  for (int32_t i = 0; i < p.iterations; ++i) {
    for (int32_t j = 0; j < n && i > 0; ++j) DivideBySum(pairs + j * n, n, 1, p.eps);
    for (int32_t k = 0; k < n; ++k) DivideBySum(pairs + k, n, n, p.eps);
  }
  for (int32_t k = 0; k < n; ++k) {
    float* after = p.after.Row<float>(row) + k * (n + 1);
    for (int32_t j = 0; j < n; ++j) after[j] = pairs[j * n + k];
    after[n] = 2 * sigmoid(mixed(1, n + k));
  }
}

#endif  // PAGEMILL_SYCL_OPS_STREAM_WEIGHTS_STREAM_WEIGHTS_TOKEN_KERNEL_H_
