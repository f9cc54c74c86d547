// The header that selects the instruction set must be included first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
// clang-format on
#include "cc/ops/layer_norm/layer_norm.h"
#include "cc/ops/row_split.h"
#include "cc/ops/vec/vec_sum.h"

namespace pagemill::ops {
namespace {

// `w` and `b` are those of the row.
void NormalizeRow(const LayerNormArgs& args, const float* x, const float* w, const float* b,
                  float* y) {
  const int64_t size = args.size();
  const float count = static_cast<float>(size);
  const Vec::F mean = Vec::Set(SumTerms(x, size, [](Vec::F v) { return v; }) / count);
  const float squares = SumTerms(x, size, [&](Vec::F v) {
    const Vec::F difference = Vec::Sub(v, mean);
    return Vec::Mul(difference, difference);
  });
  const Vec::F scale = Vec::Set(1.0f / __builtin_sqrtf(squares / count + args.eps));
  const Vec::F offset = Vec::Set(args.weight_offset);
  const auto normalize = [&](Vec::F v, Vec::F weight, Vec::F bias) {
    return Vec::Fma(Vec::Mul(Vec::Sub(v, mean), scale), Vec::Add(weight, offset), bias);
  };
  int64_t i = 0;
  for (; i + Vec::kLanes <= size; i += Vec::kLanes) {
    Vec::Store(y + i, normalize(Vec::Load(x + i), Vec::Load(w + i), Vec::Load(b + i)));
  }
  if (i < size) {
    const int n = static_cast<int>(size - i);
    Vec::StoreN(y + i, normalize(Vec::LoadN(x + i, n), Vec::LoadN(w + i, n), Vec::LoadN(b + i, n)),
                n);
  }
}

}  // namespace

void LayerNormPortable(const OpCall& call, KernelContext& context) {
  const LayerNormArgs args = ToLayerNormArgs(call);
  const int64_t size = args.size();
  const int64_t groups = args.x.RowElements() / size;
  const float* const w = args.w.Data<const float>();
  const float* const b = args.b.Data<const float>();
  context.pool->ParallelFor(
      args.x.shape[0] * groups, RowsPerChunk(size), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t group = i % groups, parameters = args.ParametersOf(group);
          NormalizeRow(args, args.x.Row<float>(i / groups) + group * size, w + parameters,
                       b + parameters, args.y.Row<float>(i / groups) + group * size);
        }
      });
}

}  // namespace pagemill::ops
