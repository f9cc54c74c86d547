// File: cuda/ops/linear/testing/random_scaled.h
// A random matrix of i8 or f8_e4m3 with scales (cc/tensor/quantized.h). Test code only.
//
//   RandomScaled weights(DType::kF8E4M3, /*rows=*/200, /*columns=*/512, {128, 128}, random);
//   AlignedProduct product(/*n=*/45, weights.view(), DType::kF32);
#ifndef PAGEMILL_CUDA_OPS_LINEAR_TESTING_RANDOM_SCALED_H_
#define PAGEMILL_CUDA_OPS_LINEAR_TESTING_RANDOM_SCALED_H_

#include <cstdint>
#include <memory>

#include "cc/ops/conformance.h"
#include "cc/tensor/quantized.h"

namespace pagemill::gpu {

// Rows and columns that share a scale.
struct ScaleBlock {
  int64_t rows, columns;
};

class RandomScaled {
 public:
  RandomScaled(DType dtype, int64_t rows, int64_t columns, ScaleBlock block,
               ops::conformance::Random& random)
      : values_(dtype, {rows, columns}),
        scales_(DType::kF32, {(rows + block.rows - 1) / block.rows,
                              (columns + block.columns - 1) / block.columns}) {
    values_.FillUniform(random, -127, 127);
    scales_.FillUniform(random, -0.01f, 0.01f);
    *parts_ = {.format = {.block_rows = block.rows, .block_columns = block.columns},
               .values = values_.view(),
               .scales = scales_.view(),
               .zeros = {},
               .groups = {}};
  }

  // The matrix was made for activations of its type.
  void SetQuantizedActivations() { parts_->format.quantized_activations = true; }

  TensorView view() const {
    TensorView view = values_.view();
    view.parts = parts_.get();
    return view;
  }

 private:
  ops::conformance::TestTensor values_, scales_;
  const std::unique_ptr<QuantizedParts> parts_ = std::make_unique<QuantizedParts>();
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_TESTING_RANDOM_SCALED_H_
