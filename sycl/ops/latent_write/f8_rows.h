// File: sycl/ops/latent_write/f8_rows.h
// Rows of a latent cache in kernels, in f32, bf16 or fp8 (cc/ops/latent_write/latent_f8_row.h).
//
//   const float value = LoadLatent(p.type, p.f8_row, row, d);   // element d of the row at `row`
#ifndef PAGEMILL_SYCL_OPS_LATENT_WRITE_F8_ROWS_H_
#define PAGEMILL_SYCL_OPS_LATENT_WRITE_F8_ROWS_H_

#include "cc/ops/latent_write/latent_f8_row.h"
#include "sycl/ops/kernel.h"

inline float LoadLatent(ElementType type, const pagemill::ops::LatentF8Row& parts, const char* row,
                        int32_t d) {
  if (type != ElementType::kF8E4M3) return LoadAs(type, row, d);
  if (d >= parts.codes) {
    return LoadAs(ElementType::kBF16, row + parts.rest_offset(), d - parts.codes);
  }
  const int64_t group = d / pagemill::ops::kLatentGroup;
  return LoadAs(type, row, d) * LoadAs(ElementType::kF32, row + parts.scales_offset(), group);
}

#endif  // PAGEMILL_SYCL_OPS_LATENT_WRITE_F8_ROWS_H_
