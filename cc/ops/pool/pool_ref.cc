#include <algorithm>
#include <cmath>

#include "cc/ops/pool/pool.h"

namespace pagemill::ops {
namespace {

double PooledElement(const PoolArgs& args, int64_t begin, int64_t end, int64_t i) {
  if (begin == end) return 0;
  if (args.kind == PoolKind::kFirst) return args.x.Row<float>(begin)[i];
  if (args.kind == PoolKind::kLast) return args.x.Row<float>(end - 1)[i];
  if (args.kind == PoolKind::kSplade) {
    double largest = 0;
    for (int64_t t = begin; t < end; ++t) {
      largest = std::max(largest, static_cast<double>(args.x.Row<float>(t)[i]));
    }
    return std::log1p(largest);
  }
  double sum = 0;
  for (int64_t t = begin; t < end; ++t) sum += args.x.Row<float>(t)[i];
  return sum / static_cast<double>(end - begin);
}

// Row `row` of y, from tokens [begin, end).
void PoolRow(const PoolArgs& args, int64_t row, int64_t begin, int64_t end) {
  double squares = 0;
  for (int64_t i = 0; i < args.x.RowElements(); ++i) {
    const double v = PooledElement(args, begin, end, i);
    squares += v * v;
  }
  const double norm = args.normalize ? std::fmax(std::sqrt(squares), 1e-12) : 1;
  for (int64_t i = 0; i < args.x.RowElements(); ++i) {
    args.y.Row<float>(row)[i] = static_cast<float>(PooledElement(args, begin, end, i) / norm);
  }
}

}  // namespace

void PoolReference(const OpCall& call, KernelContext&) {
  const PoolArgs args = ToPoolArgs(call);
  const bool all = args.kind == PoolKind::kAll;
  const int32_t* start = args.batch->query_start;
  for (int64_t row = 0; row < args.y.shape[0]; ++row) {
    PoolRow(args, row, all ? row : start[row], all ? row + 1 : start[row + 1]);
  }
}

}  // namespace pagemill::ops
