// File: cc/ops/kv_write/int4_layout.h
// Where the codes of int4 rows lie in a page, and what they stand for (int4_row.h). Constant
// expressions only.
#ifndef PAGEMILL_CC_OPS_KV_WRITE_INT4_LAYOUT_H_
#define PAGEMILL_CC_OPS_KV_WRITE_INT4_LAYOUT_H_

#include <cstdint>

namespace pagemill::ops {
namespace {

constexpr int kMaxInt4Dim = 512;  // elements of a row
constexpr float kLargestInt4 = 15;

// The place of element `d`: its byte of the row, and whether it is the byte's high half.
constexpr int64_t Int4Byte(int64_t d) { return d / 8 * 4 + d % 4; }
constexpr bool IsInt4High(int64_t d) { return d % 8 >= 4; }

// The offset of byte `byte` of a key, or of a value of `row_bytes`, among those of its head;
// `token` counts from the block's first.
constexpr int64_t Int4KeyOffset(int64_t byte, int64_t token, int64_t block_size) {
  return (byte / 4 * block_size + token) * 4 + byte % 4;
}
constexpr int64_t Int4ValueOffset(int64_t byte, int64_t token, int64_t row_bytes) {
  return (token / 4 * row_bytes + byte) * 4 + token % 4;
}

// The number that a code stands for, in scales.
constexpr int Int4Value(int code) { return 2 * code - 15; }

// Elements that are rotated together: B.
constexpr int Int4Rotation(int dims) { return dims & -dims; }

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_WRITE_INT4_LAYOUT_H_
