// File: cc/ops/wkv/wkv_run.h
// Some channels of `wkv` over the tokens between two states, for each instruction set. Plain data
// and functions only: files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_WKV_WKV_RUN_H_
#define PAGEMILL_CC_OPS_WKV_WKV_RUN_H_

#include <cstdint>

namespace pagemill::ops {

// Strides are in floats.
struct WkvRun {
  const float* source = nullptr;  // rows of `state_stride`; null: a request's first tokens
  float* target = nullptr;        // may be source
  const float* key = nullptr;     // [tokens], rows of `key_stride`
  const float* value = nullptr;   // [tokens]
  const float* decay = nullptr;   // [size]
  const float* first = nullptr;   // [size]
  float* y = nullptr;             // [tokens]
  int64_t tokens = 0;
  int64_t size = 0;  // channels
  int64_t state_stride = 0;
  int64_t key_stride = 0;
  int64_t value_stride = 0;
  int64_t y_stride = 0;
};

using WkvRunFunction = void (*)(const WkvRun& run);

void WkvRunPortable(const WkvRun& run);
void WkvRunAvx2(const WkvRun& run);
void WkvRunAvx512(const WkvRun& run);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_WKV_WKV_RUN_H_
