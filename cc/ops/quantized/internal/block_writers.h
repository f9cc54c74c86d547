// File: cc/ops/quantized/internal/block_writers.h
// Writes integers with scales as blocks that kernels multiply.
//
// `step` makes integers fit that are too large: round(q / step) is written, with a scale that is
// `step` times as large. 1 is exact, except for what f16 rounds.
#ifndef PAGEMILL_CC_OPS_QUANTIZED_INTERNAL_BLOCK_WRITERS_H_
#define PAGEMILL_CC_OPS_QUANTIZED_INTERNAL_BLOCK_WRITERS_H_

#include <cstdint>

#include "cc/ops/quantized/internal/integer_block.h"

namespace pagemill::ops::internal {

// A scale for 32 elements. q / step is in -8..8, but not both ends within 32 elements.
void WriteQ4_0(const IntegerBlock& block, int64_t elements, float step, uint8_t* out);

// A scale for 32 elements. q is in -128..127; there are no minima.
void WriteQ8_0(const IntegerBlock& block, int64_t elements, uint8_t* out);

// Rounds the values, minima included, of each 32 elements to multiples of 1 / 127 of the largest.
void WriteRoundedQ8_0(const IntegerBlock& block, int64_t elements, uint8_t* out);

// 256 elements, a scale of 0..63 for 32 of them. q / step is rounded to odd numbers in -15..15,
// which are twice an element of 0..15 less 15.
void WriteOddQ4K(const IntegerBlock& block, float step, uint8_t* out);

// 256 elements. q / step is in -32..31; there are no minima.
void WriteQ6K(const IntegerBlock& block, float step, uint8_t* out);

// Rounds the values, minima included, of each 16 elements to multiples of 1 / 31 of the largest, or
// of up to 1/8 more if scales of the block differ by less than 1 : 16.
void WriteRoundedQ6K(const IntegerBlock& block, uint8_t* out);

}  // namespace pagemill::ops::internal

#endif  // PAGEMILL_CC_OPS_QUANTIZED_INTERNAL_BLOCK_WRITERS_H_
