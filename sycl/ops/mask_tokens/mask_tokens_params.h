#ifndef PAGEMILL_SYCL_OPS_MASK_TOKENS_MASK_TOKENS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_MASK_TOKENS_MASK_TOKENS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct MaskTokensParams {
  Rows x, y;    // [rows, width] f32
  Rows draws;   // [rows], words of a RowDraw
  Rows masks;   // rows of bits
  int64_t mask_word = 0;  // of a RowDraw: the index of the row's mask
  int64_t rows = 0, width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_MASK_TOKENS_MASK_TOKENS_PARAMS_H_
