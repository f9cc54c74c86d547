#ifndef PAGEMILL_SYCL_OPS_LATENT_WRITE_LATENT_WRITE_PARAMS_H_
#define PAGEMILL_SYCL_OPS_LATENT_WRITE_LATENT_WRITE_PARAMS_H_

#include "cc/ops/latent_write/latent_f8_row.h"
#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct LatentWriteParams {
  Rows latent, rope;                     // rows of latent_size, and of the rest of `width`
  Rows cache;                            // pages of rows_of_page rows
  ElementType type = ElementType::kF32;  // of the cache
  ops::LatentF8Row f8_row{};             // of a cache in fp8
  const int32_t* slots = nullptr;        // [tokens]
  int32_t tokens_of_row = 1;             // of the cache
  int32_t rows_of_page = 0;
  int64_t tokens = 0, latent_size = 0, width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_LATENT_WRITE_LATENT_WRITE_PARAMS_H_
