// File: cuda/emulation/matrix_cores.h
// The words of cuda/gpu_matrix_cores.h, for the emulation. Kernels include that header.
#ifndef PAGEMILL_CUDA_EMULATION_MATRIX_CORES_H_
#define PAGEMILL_CUDA_EMULATION_MATRIX_CORES_H_

#include <cstdint>
#include <span>

#include "cuda/emulation/vocabulary.h"

namespace pagemill::gpu {
namespace emulation {

// Registers have elements of bf16 if there are four, and of e4m3 if there are two.
void MultiplyOnMatrixCores(std::span<const uint32_t> a, std::span<const uint32_t> b,
                           std::span<float> sums, const Location& where);

}  // namespace emulation

template <int kLanes>
struct MatrixCores : MatrixCoreShape<kLanes> {
  using MatrixCoreShape<kLanes>::kParts, MatrixCoreShape<kLanes>::kSums;

  static constexpr bool kDoublesFactors = false;

  static int RowOfSum(int i) {
    const int part = Lane() / 16;
    const bool in_turn = kLanes == 32 && emulation::CurrentBlock().options().sums_in_turn;
    return in_turn ? kParts * i + part : kSums * part + i;
  }
  static void Multiply(const uint32_t (&a)[4], const uint32_t (&b)[4], float (&sums)[kSums],
                       Location where = Location::current()) {
    emulation::MultiplyOnMatrixCores(a, b, sums, where);
  }
  static void Multiply(const uint32_t (&a)[2], const uint32_t (&b)[2], float (&sums)[kSums],
                       Location where = Location::current()) {
    emulation::MultiplyOnMatrixCores(a, b, sums, where);
  }
  // As on gfx942.
  static float Float8Unit() { return 4; }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_EMULATION_MATRIX_CORES_H_
