// File: cc/ops/linear/onednn/block_library.h
// What a library of matrix products gives to block_driver.h: functions over raw pointers for one
// block of weight rows at a time. Threads, chunks of x, bias and strides are the driver's, so that
// the library never has more than one thread and sees few shapes, all of them even.
//
// Obligations of a library:
//   1. An output has the same bits for any `height`: it is a sum in an order that depends on the
//      shape of the block alone. `supports` is false if that does not hold.
//   2. Any number of threads may call any of its functions at the same time.
//   3. The sum is accurate as the contract of `linear` wants it of Precision::kBf16.
#ifndef PAGEMILL_CC_OPS_LINEAR_ONEDNN_BLOCK_LIBRARY_H_
#define PAGEMILL_CC_OPS_LINEAR_ONEDNN_BLOCK_LIBRARY_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cc/device/capabilities.h"

namespace pagemill::ops::linear {

// Weight rows of a block are a multiple of kBlockRowMultiple, at most kMaxBlockRows; elements of k
// a multiple of kBlockKMultiple. What W lacks is zeros.
inline constexpr int64_t kBlockRowMultiple = 64;
inline constexpr int64_t kMaxBlockRows = 256;
inline constexpr int64_t kBlockKMultiple = 32;
// Rows of x that one product may have: 1 to kHeightStep, or a multiple of it. So there are few.
inline constexpr int64_t kHeightStep = 16;
inline constexpr int64_t kMaxHeight = 128;

struct BlockShape {
  int64_t rows;
  int64_t k;
  int64_t bytes() const { return rows * k * 2; }
  auto operator<=>(const BlockShape&) const = default;
};

struct BlockProduct {
  BlockShape shape;
  int64_t height;           // rows of x
  const uint16_t* x;        // bf16 [height, k], 64-byte aligned
  const std::byte* packed;  // of the block, shape.bytes(), 64-byte aligned
  float* y;                 // [height, rows], 64-byte aligned
};

struct BlockLibrary {
  // Name and version of the order of packed blocks.
  std::string_view layout;
  bool (*supports)(const device::Capabilities& caps, BlockShape shape);
  // `rows` are bf16 [shape.rows, shape.k].
  void (*pack)(BlockShape shape, const uint16_t* rows, std::byte* packed);
  // One row of x to bf16, to the nearest, ties to even; zeros from k to padded_k.
  void (*round)(const float* x, int64_t k, int64_t padded_k, uint16_t* out);
  void (*multiply)(const BlockProduct& product);
};

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_ONEDNN_BLOCK_LIBRARY_H_
