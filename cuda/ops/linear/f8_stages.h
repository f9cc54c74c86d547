// File: cuda/ops/linear/f8_stages.h
// Weights of e4m3 as products in e4m3 multiply them (gpu_wgmma.h, gpu_matrix_cores.h): in stages of
// kF8Columns columns, in which a row of weights and a row of x have one scale each. By wgmma:
//
//   ScalesOfLane<kN> x_scales(shared.x_scales[stage]);
//   AwaitProducts<0>(sums);
//   x_scales.AddScaled(sums, w_scales, totals);
#ifndef PAGEMILL_CUDA_OPS_LINEAR_F8_STAGES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_F8_STAGES_H_

#include <cstdint>

#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/rounded_groups.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {

// One matrix, or a stack of them.
using F8Weights = ScaledWeights<DType::kF8E4M3>;

// True for whole stages, with scales of whole rows or of kF8Columns columns.
inline bool HaveF8Stages(const TensorView& w) {
  if (!ops::IsScaled(w) || w.dtype != DType::kF8E4M3) return false;
  const int64_t columns = w.shape[w.rank - 1], of_scale = w.parts->format.block_columns;
  return columns > 0 && columns % kF8Columns == 0 &&
         (of_scale == kF8Columns || of_scale >= columns);
}

// True for weights in stages if their rows lie at multiples of 16 bytes, and matrices of a stack at
// multiples of a row.
inline bool AreF8StagesRead(const TensorView& w) {
  const auto weights = F8Weights::Of(w);
  return HasAlignedRows(ops::PartOf(w, w.parts->values, 0)) &&
         weights.matrix_bytes % weights.row_bytes == 0;
}

struct F8StageScales {
  const float* data;
  int64_t of_matrix;
  int32_t of_row, block_rows;  // of a row of blocks, and its rows of weights
  int32_t step;                // from the scale of a stage to the next: 0 or 1

  static F8StageScales Of(const F8Weights& w) {
    return {.data = w.scales,
            .of_matrix = w.matrix_scales,
            .of_row = static_cast<int32_t>(w.row_scales),
            .block_rows = w.block_rows,
            .step = w.block_columns == 0 ? 0 : 1};
  }

  // Where that of a stage is from `data` on, less the scales of matrices in front.
  PAGEMILL_DEVICE int IndexOf(int output, int stage) const {
    return output / block_rows * of_row + stage * step;
  }
};

// The scales of kN rows of x that a lane has sums of.
template <int kN>
struct ScalesOfLane {
  Vector<float, 2> rows[kN / 8];

  PAGEMILL_DEVICE explicit ScalesOfLane(const float* scales) {
    PAGEMILL_UNROLL
    for (int j = 0; j < kN / 8; ++j) {
      rows[j] = *reinterpret_cast<const Vector<float, 2>*>(scales + 8 * j + Lane() % 4 * 2);
    }
  }

  // Adds the sums of a stage to those of all, times the scales of rows of x and of the two outputs
  // of each part.
  template <int kParts>
  PAGEMILL_DEVICE void AddScaled(const float (&sums)[kParts][kN / 2],
                                 const float (&outputs)[kParts][2],
                                 float (&totals)[kParts][kN / 2]) const {
    PAGEMILL_UNROLL
    for (int part = 0; part < kParts; ++part) {
      PAGEMILL_UNROLL
      for (int i = 0; i < kN / 2; ++i) {
        totals[part][i] +=
            sums[part][i] * (outputs[part][i / 2 % 2] * rows[i / 4].values[i % 2]);
      }
    }
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_F8_STAGES_H_
