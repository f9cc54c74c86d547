#ifndef PAGEMILL_SYCL_OPS_SCORE_TOKENS_SCORE_TOKENS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_SCORE_TOKENS_SCORE_TOKENS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct ScoreTokensParams {
  Rows x;                            // rows of `width` f32
  Rows copies;                       // likewise
  const int32_t* columns = nullptr;  // of the rows of x; -1: no token
  Rows scored;                       // of ScoredRow
  Rows y;                            // of TokenScores
  int32_t width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_SCORE_TOKENS_SCORE_TOKENS_PARAMS_H_
