// File: cc/tensor/to_float.h
// Between f32 and the other types that values of a program have, element by element.
//
//   std::vector<float> wide(view.Elements());
//   ToFloat(view, wide.data());          // f32, bf16, f16 or i32; rows may have a stride
#ifndef PAGEMILL_CC_TENSOR_TO_FLOAT_H_
#define PAGEMILL_CC_TENSOR_TO_FLOAT_H_

#include "cc/tensor/tensor_view.h"

namespace pagemill {

// Writes the elements of `view` to `to`, dense. Aborts for any other type.
void ToFloat(const TensorView& view, float* to);

}  // namespace pagemill

#endif  // PAGEMILL_CC_TENSOR_TO_FLOAT_H_
