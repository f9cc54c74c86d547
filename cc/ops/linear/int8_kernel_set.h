// File: cc/ops/linear/int8_kernel_set.h
// What a file compiled for one instruction set gives for products of block-format weights with
// activations quantized to integers: functions over raw pointers. The driver (threads, workspace,
// choice of path) is compiled once, for the baseline. Plain data only, as in kernel_set.h.
//
// Quantized rows of x. K counts in groups of 128 elements, that is 4 blocks of 32; a row is padded
// with zeros to whole groups. A block's scale is its largest |x| / L; its 32 integers are x / scale
// rounded to the nearest, ties to even. One plane: L = 127, and they are bytes. Two planes:
// L = 127 * 128, and an integer is 128 * upper + lower, lower from -64 to 63. A group takes 256
// bytes, or 384:
//
//     0  int8     elements 0..15 of block 0, 1, 2 and 3 (of two planes, upper)
//    64  int8     elements 16..31 of block 0, 1, 2 and 3
//   128  float32  the scales of the blocks, each four times
//   192           weights with a zero point z: int32, -z * the sum of the integers of block j in
//                 element 4 * j, 0 elsewhere; where halves of blocks have scales (Q6_K): that of
//                 the first half in element 4 * j, of the second in 4 * j + 1; weights with a
//                 minimum: float32, the scale times the sum, each four times
//   256  int8     of two planes, lower, as from 0
//
// Order of accumulation: chain j = 0..3 of an output takes blocks j, j + 4, ... ascending, each by
//   chain = fma(float(sum of integer products), weight scale * x scale, chain)
//   chain = fma(weight minimum, x scale * sum of x, chain)     where the format has a minimum
// and y is ((chain 0 + chain 1) + chain 2) + chain 3, then + bias. Integer sums are exact: of
// two planes and Q6_K, its scales of 16 elements included, 32 * 32 * 127 * 128 * 128 < 2^31; of one
// plane, as floats too.
#ifndef PAGEMILL_CC_OPS_LINEAR_INT8_KERNEL_SET_H_
#define PAGEMILL_CC_OPS_LINEAR_INT8_KERNEL_SET_H_

#include <cstdint>

#include "cc/ops/linear/kernel_set.h"
#include "cc/tensor/dtype.h"

namespace pagemill::ops::linear {

inline constexpr int64_t kGroupElements = 128;
inline constexpr int64_t kLowerPlaneOfX = 256;
constexpr int64_t GroupBytesOfX(int planes) { return 128 + 128 * planes; }
inline constexpr int64_t kInt8PanelRows = 32;

// One call, x quantized.
struct Int8Operands {
  Operands call;  // its x is not read by `direct` and `multiply`
  const uint8_t* x;
  int64_t x_stride_bytes;
};

// Both multiplications accumulate each output in the order above, so their results have equal bits.
struct Int8KernelSet {
  int planes;  // of integers of x
  // `direct` takes at most this many rows of x; it decodes weights in registers as it goes.
  int64_t max_direct_n;
  // One row of k floats, for weights of `dtype`. `out` is 64-byte aligned.
  void (*quantize)(DType dtype, const float* x, int64_t k, uint8_t* out);
  void (*direct)(const Int8Operands& operands, int64_t m_begin, int64_t m_end);
  // Bytes of a panel of kInt8PanelRows weight rows of k elements: a multiple of 64.
  int64_t (*panel_bytes)(DType dtype, int64_t k);
  // Weight rows [m_begin, m_end), at most kInt8PanelRows, in the order that `multiply` reads.
  void (*pack)(const Operands& call, int64_t m_begin, int64_t m_end, uint8_t* panel);
  // Every row of x times the panel of these weight rows.
  void (*multiply)(const Int8Operands& operands, const uint8_t* panel, int64_t m_begin,
                   int64_t m_end);
};

#if defined(__x86_64__)
extern const Int8KernelSet kAvx512VnniKernels;       // one plane
extern const Int8KernelSet kAvx512VnniInt16Kernels;  // two
#endif

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_INT8_KERNEL_SET_H_
