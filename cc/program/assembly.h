// File: cc/program/assembly.h
// Group-quantized matrices as checkpoints store them, and what they become when a program is bound
// (cc/program/weights/assemble.h): a block format that `linear` computes on, or bf16.
//
//   w[n, k] = scale[n, g] * (q[n, k] - zero[n, g]),   g = k / group, or groups[k]
//
// Rows n are outputs, columns k inputs. Integers q and zeros of 4 or 8 bits lie in i32 words, the
// first in the lowest bits; G is the number of groups, P = 32 / bits:
//
//   layout          values        zeros             scales    a word holds
//   awq             [K, N / 8]    [G, N / 8]        [G, N]    8 rows: 0, 2, 4, 6, 1, 3, 5, 7
//   gptq, gptq_v2   [K / P, N]    [G, N / P]        [G, N]    P columns (zeros: P rows)
//   pack_quantized  [N, K / P]    [ceil(N / P), G]  [N, G]    P columns (zeros: P rows)
//
// gptq stores each zero less one (0 as the largest integer), the others store it as it is. Scales
// are f16, bf16 or f32; groups (act-order) i32 [K]. AWQ has 4 bits. awq is AutoAWQ's GEMM version,
// pack_quantized what compressed-tensors writes: integers there are signed and stored with 2^(bits
// - 1) added.
#ifndef PAGEMILL_CC_PROGRAM_ASSEMBLY_H_
#define PAGEMILL_CC_PROGRAM_ASSEMBLY_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "cc/base/status.h"
#include "cc/program/program.h"

namespace pagemill::program {

inline constexpr char kPackedLayouts[] = "awq, gptq, gptq_v2, pack_quantized";
std::string_view NameOf(PackedLayout layout);
std::optional<PackedLayout> ParsePackedLayout(std::string_view name);

// Columns of a first column, a group and a row come in multiples of it.
inline constexpr int64_t kAssemblyBlock = 32;

// The size of the checkpoint's matrix, from the shape of the integers.
struct PackedShape {
  int64_t rows = 0;     // N
  int64_t columns = 0;  // K
  int64_t groups = 0;   // G
};
PackedShape PackedShapeOf(const Assembly& assembly, const Shape& values);

// Do dtype, shape and parts of `weight`, which has an assembly, fit each other? Dtypes: q4_0 (4
// bits, no zeros), q4_1 (4 bits, zeros), q8_0 (8 bits, no zeros), each without groups; bf16.
Status CheckAssembly(const Program& program, const Value& weight);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_ASSEMBLY_H_
