// File: cc/program/weights/assemble.h
// Makes the bytes of a weight that is assembled of tensors of a checkpoint (cc/program/assembly.h).
//
//   PM_RETURN_IF_ERROR(Assemble(program, weight_id, weights, target, pool));
//
// What is exact: q4_0, q8_0 and both numbers of q4_1 where scales are f16, but for the minimum of
// q4_1, d = scale, m = -d * zero: a zero point has 4 bits, so m is rounded to the 11 bits of f16,
// by 2^-11 * 16 d = d / 128 or less, the same for all elements of a group. That is the worst error
// of a dequantization to f16 too, (q - zero) * scale of up to 15 d rounded to 11 bits; a bf16 one
// is off by 8 times as much, and quantization itself by d / 2. bf16 and f32 scales become f16: off
// by at most 2^-11 of themselves or 2^-25 (bf16 ones of 2^-17 or more, by nothing). Refused where
// that could be more than 2^-8 of a matrix's largest scale. bf16 weights are scale * (q - zero),
// computed in f32 and rounded once.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_ASSEMBLE_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_ASSEMBLE_H_

#include <cstddef>
#include <string_view>

#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/program/program.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

// Of the bytes that Assemble() makes: copies on disk are found by it.
inline constexpr std::string_view kAssemblyVersion = "assembly 1";

// Writes `weight`, Value::Bytes() of it, row after row, with all threads, each of which takes 0.5
// to 0.8 ns an element. kDataLoss, and nothing written, where a scale is not finite or an index
// names no group; kUnimplemented where scales are out of the range of f16.
Status Assemble(const Program& program, ValueId weight, const Weights& weights, std::byte* target,
                device::ThreadPool& pool);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_ASSEMBLE_H_
