#include <algorithm>
#include <cmath>
#include <cstring>

#include "cc/ops/pool/pool.h"

namespace pagemill::ops {
namespace {

// Columns summed at once: their double sums stay in registers or the first-level cache.
constexpr int64_t kColumns = 64;
constexpr int64_t kTokensPerChunk = 16;

void MeanOfRows(const PoolArgs& args, int64_t begin, int64_t end, float* y) {
  const int64_t size = args.x.RowElements();
  for (int64_t column = 0; column < size; column += kColumns) {
    const int64_t width = std::min(kColumns, size - column);
    double sum[kColumns] = {};
    for (int64_t t = begin; t < end; ++t) {
      const float* x = args.x.Row<float>(t) + column;
      for (int64_t i = 0; i < width; ++i) sum[i] += x[i];
    }
    const double count = static_cast<double>(end - begin);
    for (int64_t i = 0; i < width; ++i) y[column + i] = static_cast<float>(sum[i] / count);
  }
}

void LogOfLargest(const PoolArgs& args, int64_t begin, int64_t end, float* y) {
  const int64_t size = args.x.RowElements();
  std::fill_n(y, size, 0.0f);
  for (int64_t t = begin; t < end; ++t) {
    const float* x = args.x.Row<float>(t);
    for (int64_t i = 0; i < size; ++i) y[i] = std::max(y[i], x[i]);
  }
  for (int64_t i = 0; i < size; ++i) {
    if (y[i] > 0) y[i] = static_cast<float>(std::log1p(static_cast<double>(y[i])));
  }
}

void ScaleToUnitNorm(float* y, int64_t size) {
  double squares = 0;
  for (int64_t i = 0; i < size; ++i) squares += static_cast<double>(y[i]) * y[i];
  const double norm = std::max(std::sqrt(squares), 1e-12);
  for (int64_t i = 0; i < size; ++i) y[i] = static_cast<float>(y[i] / norm);
}

void CopyToken(const PoolArgs& args, int64_t token) {
  const int64_t size = args.x.RowElements();
  float* y = args.y.Row<float>(token);
  std::memcpy(y, args.x.Row<float>(token), static_cast<size_t>(size) * sizeof(float));
  if (args.normalize) ScaleToUnitNorm(y, size);
}

void PoolRequest(const PoolArgs& args, int64_t request) {
  const int64_t begin = args.batch->query_start[request];
  const int64_t end = args.batch->query_start[request + 1];
  const int64_t size = args.x.RowElements();
  const size_t bytes = static_cast<size_t>(size) * sizeof(float);
  float* y = args.y.Row<float>(request);
  if (begin == end) {
    std::memset(y, 0, bytes);
  } else if (args.kind == PoolKind::kMean) {
    MeanOfRows(args, begin, end, y);
  } else if (args.kind == PoolKind::kSplade) {
    LogOfLargest(args, begin, end, y);
  } else {
    std::memcpy(y, args.x.Row<float>(args.kind == PoolKind::kFirst ? begin : end - 1), bytes);
  }
  if (args.normalize) ScaleToUnitNorm(y, size);
}

}  // namespace

void PoolPortable(const OpCall& call, KernelContext& context) {
  const PoolArgs args = ToPoolArgs(call);
  const bool all = args.kind == PoolKind::kAll;
  context.pool->ParallelFor(args.y.shape[0], all ? kTokensPerChunk : 1,
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t r = begin; r < end; ++r) {
                                all ? CopyToken(args, r) : PoolRequest(args, r);
                              }
                            });
}

}  // namespace pagemill::ops
