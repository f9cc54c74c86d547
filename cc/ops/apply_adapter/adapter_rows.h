// File: cc/ops/apply_adapter/adapter_rows.h
// Up to kAdapterRows rows of `apply_adapter` that have one adapter, for each instruction set. Plain
// data and functions without templates: see cc/ops/vec/vec.h.
#ifndef PAGEMILL_CC_OPS_APPLY_ADAPTER_ADAPTER_ROWS_H_
#define PAGEMILL_CC_OPS_APPLY_ADAPTER_ADAPTER_ROWS_H_

#include <cstdint>

#include "cc/ops/apply_adapter/adapter_matrices.h"

namespace pagemill::ops {

// Rows that are multiplied together: each element of a matrix is loaded once for all of them.
inline constexpr int64_t kAdapterRows = 4;

struct AdapterRows {
  const AdapterMatrices* adapter = nullptr;
  const float* x[kAdapterRows] = {};
  const float* y[kAdapterRows] = {};
  float* z[kAdapterRows] = {};
  float* low[kAdapterRows] = {};  // scale * A x
  int64_t num_rows = 0;
  int64_t in = 0;                         // K
  int64_t out = 0;                        // M, of B and of rows of z
  int64_t first_column = 0, columns = 0;  // of z
};

// Computes `low` from x.
using AdapterDown = void (*)(const AdapterRows& rows);
void AdapterDownAvx512(const AdapterRows& rows);
void AdapterDownAvx2(const AdapterRows& rows);
void AdapterDownPortable(const AdapterRows& rows);

// Computes the columns of z from y and `low`.
using AdapterUp = void (*)(const AdapterRows& rows);
void AdapterUpAvx512(const AdapterRows& rows);
void AdapterUpAvx2(const AdapterRows& rows);
void AdapterUpPortable(const AdapterRows& rows);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_APPLY_ADAPTER_ADAPTER_ROWS_H_
