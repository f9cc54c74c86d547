#include "cc/ops/sample/row_adjustments.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr uint32_t kThreads = 256;
constexpr int64_t kColumns = 4096;  // for each block

PAGEMILL_KERNEL AddBiases(Rows<float> x, Rows<const int32_t> biases, int64_t num_biases) {
  const int64_t n = static_cast<int64_t>(BlockIndex().x) * kThreads + ThreadIndex().x;
  if (n >= num_biases) return;
  const int32_t* const words = biases[n];
  x[words[0]][words[1]] += BitsToFloat(static_cast<uint32_t>(words[2]));
}

PAGEMILL_KERNEL Penalize(Rows<float> x, Rows<const int32_t> counts,
                         Rows<const int32_t> penalties, const int32_t* ids, int64_t size) {
  const int32_t* const words = penalties[BlockIndex().x];
  const auto real = [words](int i) { return BitsToFloat(static_cast<uint32_t>(words[i])); };
  const ops::RowPenalties of_row = {words[0], words[1], real(2),  real(3),
                                    real(4),  words[5], words[6]};
  const int32_t* const counted = counts[of_row.slot];
  float* const row = x[of_row.row];
  const int64_t begin = BlockIndex().y * kColumns;
  const int64_t end = begin + kColumns < size ? begin + kColumns : size;
  for (int64_t i = begin + ThreadIndex().x; i < end; i += kThreads) {
    const int32_t of_token =
        ops::CountedForRow(counted[i], static_cast<int32_t>(i), ids, of_row);
    if (of_token != 0) row[i] = ops::PenalizedLogit(row[i], of_token, of_row);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& biases = call.inputs[2];
  const TensorView& penalties = call.inputs[3];
  const int64_t num_biases = biases.shape[0], size = x.shape[1];
  if (num_biases > 0) {
    Launch(*context.stream, {.blocks = {DivideUp(num_biases, kThreads)}, .threads = {kThreads}},
           AddBiases, RowsOf<float>(x), RowsOf<const int32_t>(biases), num_biases);
  }
  if (penalties.shape[0] == 0) return;
  Launch(*context.stream,
         {.blocks = {static_cast<uint32_t>(penalties.shape[0]), DivideUp(size, kColumns)},
          .threads = {kThreads}},
         Penalize, RowsOf<float>(x), RowsOf<const int32_t>(call.inputs[1]),
         RowsOf<const int32_t>(penalties), call.inputs[4].Data<const int32_t>(), size);
}

constexpr ops::Kernel kKernels[] = {{"adjust_logits", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> AdjustLogitsKernels() { return kKernels; }

}  // namespace pagemill::gpu
