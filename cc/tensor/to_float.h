// File: cc/tensor/to_float.h
// Converts between f32 and the other types of program values, element by element.
//
//   std::vector<float> wide(view.Elements());
//   ToFloat(view, wide.data());          // f32, bf16, f16 or i32; rows may have a stride
//   FromFloat(wide.data(), view);        // f32, bf16 or f16
#ifndef PAGEMILL_CC_TENSOR_TO_FLOAT_H_
#define PAGEMILL_CC_TENSOR_TO_FLOAT_H_

#include "cc/tensor/tensor_view.h"

namespace pagemill {

// Writes the elements of `view` to `to`, dense. Aborts for other types.
void ToFloat(const TensorView& view, float* to);

// Writes dense floats to the elements of `view`, rounded to nearest, ties to even (float16.h).
// Aborts for other types.
void FromFloat(const float* from, const TensorView& view);

}  // namespace pagemill

#endif  // PAGEMILL_CC_TENSOR_TO_FLOAT_H_
