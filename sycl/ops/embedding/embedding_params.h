#ifndef PAGEMILL_SYCL_OPS_EMBEDDING_EMBEDDING_PARAMS_H_
#define PAGEMILL_SYCL_OPS_EMBEDDING_EMBEDDING_PARAMS_H_

#include "sycl/ops/operands.h"
#include "sycl/ops/weight_matrices.h"

namespace pagemill::sycl {

struct EmbeddingParams {
  const int32_t* ids = nullptr;  // [rows]
  WeightMatrices table;          // [table_rows, width]
  Rows y;                        // [rows, width]
  int32_t table_rows = 0;
  int32_t outside = -1;  // the row that ids of no row read; -1: there are no such ids
  int64_t rows = 0, width = 0;
  float scale = 1;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_EMBEDDING_EMBEDDING_PARAMS_H_
