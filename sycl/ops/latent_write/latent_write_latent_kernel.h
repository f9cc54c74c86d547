#ifndef PAGEMILL_SYCL_OPS_LATENT_WRITE_LATENT_WRITE_LATENT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_LATENT_WRITE_LATENT_WRITE_LATENT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/latent_write/latent_write_params.h"

// Element i of what is stored of a token.
inline float LatentElement(const LatentWriteParams& p, int64_t token, int64_t i) {
  return i < p.latent_size ? Load(p.latent.Row<const Act>(token) + i)
                           : Load(p.rope.Row<const Act>(token) + i - p.latent_size);
}

// The row of the cache that stores a token; -1: none does.
inline int32_t RowOfToken(const LatentWriteParams& p, int64_t token) {
  const int32_t slot = p.slots[token];
  return slot < 0 || (slot + 1) % p.tokens_of_row != 0 ? -1 : slot / p.tokens_of_row;
}

// A work-item for each element of each token, in f32 or bf16.
PAGEMILL_KERNEL void latent_write_kernel(LatentWriteParams p) {
  const int64_t token = GlobalId() / p.width, i = GlobalId() % p.width;
  if (token >= p.tokens) return;
  const int32_t row = RowOfToken(p, token);
  if (row < 0) return;
  const int64_t at = row % p.rows_of_page * p.width + i;
  const float value = LatentElement(p, token, i);
  if (p.type == ElementType::kF32) {
    p.cache.Row<float>(row / p.rows_of_page)[at] = value;
  } else {
    Store(p.cache.Row<Bf16>(row / p.rows_of_page) + at, value);
  }
}

// In fp8: a work-item for each group of codes of each token, and for each element in bf16.
PAGEMILL_KERNEL void latent_write_f8_kernel(LatentWriteParams p) {
  namespace ops = pagemill::ops;
  const ops::LatentF8Row& parts = p.f8_row;
  const int64_t items = parts.groups() + parts.rest;
  const int64_t token = GlobalId() / items, i = GlobalId() % items;
  if (token >= p.tokens) return;
  const int32_t row = RowOfToken(p, token);
  if (row < 0) return;
  char* const stored =
      p.cache.Row<char>(row / p.rows_of_page) + row % p.rows_of_page * parts.bytes();
  if (i >= parts.groups()) {
    const int64_t d = i - parts.groups();
    Store(reinterpret_cast<Bf16*>(stored + parts.rest_offset()) + d,
          LatentElement(p, token, parts.codes + d));
    return;
  }
  const int64_t begin = i * ops::kLatentGroup;
  const int64_t end = sycl::min(begin + ops::kLatentGroup, parts.codes);
  uint32_t largest = 0;
  for (int64_t d = begin; d < end; ++d) {
    const float value = LatentElement(p, token, d);
    largest = sycl::max(largest, __builtin_bit_cast(uint32_t, value) & 0x7fffffffu);
  }
  const uint32_t scale = ops::LatentScaleBits(largest);
  reinterpret_cast<uint32_t*>(stored + parts.scales_offset())[i] = scale;
  for (int64_t d = begin; d < end; ++d) {
    stored[d] = static_cast<char>(ops::LatentCode(LatentElement(p, token, d), scale));
  }
}

#endif  // PAGEMILL_SYCL_OPS_LATENT_WRITE_LATENT_WRITE_LATENT_KERNEL_H_
