// File: cuda/ops/latent_write/latent_pages.h
// Pages of a latent cache (cc/ops/latent_write/latent_cache.h) in kernels, by the type of their
// rows.
//
//   WithLatentPages(call, cache, width, [&](const auto& pages) { Launch(..., pages, ...); });
//   ...
//   const auto row = pages.Row(page, i);   // row i of a page
//   const float value = ToFloat(row[d]);
#ifndef PAGEMILL_CUDA_OPS_LATENT_WRITE_LATENT_PAGES_H_
#define PAGEMILL_CUDA_OPS_LATENT_WRITE_LATENT_PAGES_H_

#include <cstdint>

#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/latent_write/latent_f8_row.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// Rows of `width` elements of type C.
template <typename C>
struct LatentPages {
  Rows<C> pages;
  int64_t width;

  PAGEMILL_DEVICE C* Row(int64_t page, int64_t row) const { return pages[page] + row * width; }
};

// A row in fp8.
struct LatentF8Bytes {
  uint8_t* bytes;
  ops::LatentF8Row parts;

  PAGEMILL_DEVICE uint32_t* scales() const {
    return reinterpret_cast<uint32_t*>(bytes + parts.scales_offset());
  }
  PAGEMILL_DEVICE BFloat16* rest() const {
    return reinterpret_cast<BFloat16*>(bytes + parts.rest_offset());
  }
  PAGEMILL_DEVICE float operator[](int64_t i) const {
    if (i >= parts.codes) return ToFloat(rest()[i - parts.codes]);
    return Float8PairToFloats(bytes[i]).low * BitsToFloat(scales()[i / ops::kLatentGroup]);
  }
};

struct LatentF8Pages {
  Rows<uint8_t> pages;
  ops::LatentF8Row parts;

  PAGEMILL_DEVICE LatentF8Bytes Row(int64_t page, int64_t row) const {
    return {pages[page] + row * parts.bytes(), parts};
  }
};

inline LatentF8Pages LatentF8PagesOf(const ops::OpCall& call, const TensorView& cache,
                                     int64_t width) {
  return {RowsOf<uint8_t>(cache), ops::LatentF8RowOf(call, width)};
}

// Calls `body` with the pages of a cache whose rows have `width` elements.
template <typename Body>
void WithLatentPages(const ops::OpCall& call, const TensorView& cache, int64_t width,
                     const Body& body) {
  switch (cache.dtype) {
    case DType::kF32:
      return body(LatentPages<float>{RowsOf<float>(cache), width});
    case DType::kBF16:
      return body(LatentPages<BFloat16>{RowsOf<BFloat16>(cache), width});
    case DType::kF8E4M3:
      return body(LatentF8PagesOf(call, cache, width));
    default:
      PAGEMILL_CHECK(false);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LATENT_WRITE_LATENT_PAGES_H_
