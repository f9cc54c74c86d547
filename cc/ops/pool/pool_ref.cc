#include <cmath>

#include "cc/ops/pool/pool.h"

namespace pagemill::ops {
namespace {

double PooledElement(const PoolArgs& args, int64_t begin, int64_t end, int64_t i) {
  if (begin == end) return 0;
  if (args.kind == PoolKind::kFirst) return args.x.Row<float>(begin)[i];
  if (args.kind == PoolKind::kLast) return args.x.Row<float>(end - 1)[i];
  double sum = 0;
  for (int64_t t = begin; t < end; ++t) sum += args.x.Row<float>(t)[i];
  return sum / static_cast<double>(end - begin);
}

}  // namespace

void PoolReference(const OpCall& call, KernelContext&) {
  const PoolArgs args = ToPoolArgs(call);
  for (int64_t r = 0; r < args.batch->num_requests; ++r) {
    const int64_t begin = args.batch->query_start[r];
    const int64_t end = args.batch->query_start[r + 1];
    double squares = 0;
    for (int64_t i = 0; i < args.x.RowElements(); ++i) {
      const double v = PooledElement(args, begin, end, i);
      squares += v * v;
    }
    const double norm = args.normalize ? std::fmax(std::sqrt(squares), 1e-12) : 1;
    for (int64_t i = 0; i < args.x.RowElements(); ++i) {
      args.y.Row<float>(r)[i] = static_cast<float>(PooledElement(args, begin, end, i) / norm);
    }
  }
}

}  // namespace pagemill::ops
