// File: cc/ops/linear/onednn/block_library.h
// Interface of a matrix multiply library for block_driver.h: functions over raw pointers for one
// block of weight rows at a time. The driver handles threads, chunks of x, bias and strides, so
// that the library runs on one thread with few, padded shapes.
//
// Obligations of a library:
//   1. An output has the same bits for any `height`: it is a sum in an order that depends on the
//      shape of the block alone. `supports` is false if that does not hold.
//   2. Any number of threads may call any of its functions at the same time.
//   3. The sum is as accurate as the contract of `linear` requires of Precision::kBf16.
#ifndef PAGEMILL_CC_OPS_LINEAR_ONEDNN_BLOCK_LIBRARY_H_
#define PAGEMILL_CC_OPS_LINEAR_ONEDNN_BLOCK_LIBRARY_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cc/device/capabilities.h"

namespace pagemill::ops::linear {

// A block has a multiple of kBlockRowMultiple weight rows, at most kMaxBlockRows, and a multiple of
// kBlockKMultiple elements of k. W is padded with zeros.
inline constexpr int64_t kBlockRowMultiple = 64;
inline constexpr int64_t kMaxBlockRows = 256;
inline constexpr int64_t kBlockKMultiple = 32;
// Rows of x of a product: 1 to kHeightStep, or a multiple of it, so that there are few products to
// compile.
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
  // Name and version of the layout of packed blocks.
  std::string_view layout;
  bool (*supports)(const device::Capabilities& caps, BlockShape shape);
  // `rows` are bf16 [shape.rows, shape.k].
  void (*pack)(BlockShape shape, const uint16_t* rows, std::byte* packed);
  // Rounds one row of x to bf16, to the nearest, ties to even; zeros from k to padded_k.
  void (*round)(const float* x, int64_t k, int64_t padded_k, uint16_t* out);
  void (*multiply)(const BlockProduct& product);
};

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_ONEDNN_BLOCK_LIBRARY_H_
