#ifndef PAGEMILL_SYCL_OPS_LATENT_WRITE_LATENT_WRITE_LATENT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_LATENT_WRITE_LATENT_WRITE_LATENT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/latent_write/latent_write_params.h"

// A work-item for each element of each token.
PAGEMILL_KERNEL void latent_write_kernel(LatentWriteParams p) {
  const int64_t token = GlobalId() / p.width, i = GlobalId() % p.width;
  if (token >= p.tokens) return;
  const int32_t slot = p.slots[token];
  if (slot < 0 || (slot + 1) % p.tokens_of_row != 0) return;
  const int32_t row = slot / p.tokens_of_row;
  const int64_t at = row % p.rows_of_page * p.width + i;
  const float value = i < p.latent_size ? Load(p.latent.Row<const Act>(token) + i)
                                        : Load(p.rope.Row<const Act>(token) + i - p.latent_size);
  if (p.type == ElementType::kF32) {
    p.cache.Row<float>(row / p.rows_of_page)[at] = value;
  } else {
    Store(p.cache.Row<Bf16>(row / p.rows_of_page) + at, value);
  }
}

#endif  // PAGEMILL_SYCL_OPS_LATENT_WRITE_LATENT_WRITE_LATENT_KERNEL_H_
