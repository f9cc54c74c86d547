// File: cc/ops/matrix_wkv/wkv_head.h
// Some tokens of one head of `matrix_wkv`, for each instruction set. Plain data and functions only:
// files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_MATRIX_WKV_WKV_HEAD_H_
#define PAGEMILL_CC_OPS_MATRIX_WKV_WKV_HEAD_H_

#include <cstdint>

namespace pagemill::ops {

inline constexpr int64_t kMaxWkvKeys = 256;
inline constexpr float kWkvDecayScale = -0.60653066f;  // -exp(-1/2): of sigmoid(w) in RWKV-7
inline constexpr float kWkvLeastSquares = 1e-24f;      // of |removal * k|^2

// A token's operands of a head, [keys] each.
struct WkvOperands {
  const float* receptance = nullptr;
  const float* decay = nullptr;
  const float* key = nullptr;
  const float* bonus = nullptr;
  const float* rate = nullptr;  // null: no key is removed; removal and boost are not read
  const float* removal = nullptr;
  const float* boost = nullptr;
};

// What a token does to the state, [keys] each.
struct WkvUpdate {
  float* decay = nullptr;    // factors of the state's rows
  float* key = nullptr;      // added, times the value
  float* removed = nullptr;  // x: what the state has for it is removed
  float* share = nullptr;    // -a * x, the rows that it is removed from
};

struct WkvTokens {
  const float* source = nullptr;      // [keys, values]; null: zeros
  float* target = nullptr;            // [keys, values]; may be source
  const float* receptance = nullptr;  // [tokens, keys], rows of `receptance_stride` floats
  const float* value = nullptr;       // [tokens, values], rows of `value_stride`
  const float* own = nullptr;         // [tokens]: factors of the tokens' own values
  float* y = nullptr;                 // [tokens, values], rows of `y_stride`
  float* own_y = nullptr;             // likewise, rows of `own_y_stride`; null: added to y
  WkvUpdate update;                   // [tokens, keys]; removed: [tokens + 1, keys]
  bool removes = false;
  int64_t tokens = 0;  // at least 1
  int64_t keys = 0;    // at most kMaxWkvKeys
  int64_t values = 0;
  int64_t receptance_stride = 0;
  int64_t value_stride = 0;
  int64_t y_stride = 0;
  int64_t own_y_stride = 0;
};

struct WkvHeadFunctions {
  // Makes a token's update and returns r^T (bonus * k).
  float (*prepare)(const WkvOperands& operands, int64_t keys, const WkvUpdate& update);
  void (*run)(const WkvTokens& tokens);
};

extern const WkvHeadFunctions kWkvHeadPortable;
extern const WkvHeadFunctions kWkvHeadAvx2;
extern const WkvHeadFunctions kWkvHeadAvx512;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MATRIX_WKV_WKV_HEAD_H_
