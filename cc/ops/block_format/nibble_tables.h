// File: cc/ops/block_format/nibble_tables.h
// What a code of 4 bits stands for in formats whose values are not evenly spaced, and blocks of
// such codes that no GGUF file has.
#ifndef PAGEMILL_CC_OPS_BLOCK_FORMAT_NIBBLE_TABLES_H_
#define PAGEMILL_CC_OPS_BLOCK_FORMAT_NIBBLE_TABLES_H_

#include <array>
#include <cstdint>

#include "cc/tensor/dtype.h"

namespace pagemill::ops {

using NibbleTable = std::array<int8_t, 16>;

// iq4_nl and iq4_xs (the GGUF Python package, gguf/quants.py).
inline constexpr NibbleTable kNonlinearNibbles = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                  1,    13,   25,  38,  53,  69,  89,  113};

// Twice a float of 4 bits, e2m1 (OCP Microscaling Formats, 5.3.3): of mxfp4 and nvfp4.
inline constexpr NibbleTable kE2m1Doubled = {0, 1,  2,  3,  4,  6,  8,  12,
                                             0, -1, -2, -3, -4, -6, -8, -12};

// Blocks that CPUs make of nvfp4: 32 elements of a row, with half of the scales of its two groups
// of 16, times the matrix's factor, as f16, and 16 bytes of nibbles, elements 0..15 in the low
// ones. As a dtype they have that of nvfp4's values; what is packed has no parts.
inline constexpr DType kNvfp4Blocks = DType::kU4;
inline constexpr int64_t kNvfp4BlockElements = 32;
inline constexpr int64_t kNvfp4BlockBytes = 20;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_BLOCK_FORMAT_NIBBLE_TABLES_H_
