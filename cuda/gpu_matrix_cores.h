// File: cuda/gpu_matrix_cores.h
// Further words for kernels of AMD GPUs alone: products of small matrices by a warp, of 64 lanes
// (MFMA of gfx9) or of 32 (WMMA of gfx11 and gfx12). The emulation has them, too.
//
//   using Cores = MatrixCores<64>;      // lanes of a warp
//   float sums[Cores::kSums] = {};
//   Cores::Multiply(a, b, sums);
//
// Multiply() adds A [16, kColumns] times B [kColumns, 16] to C [16, 16]. Factors are bf16, in four
// registers of a lane, or e4m3, in two. Whole warps call it. On GPUs with other warps it ends the
// kernel, as it does in e4m3 on those without such an instruction (HasF8MatrixCores() of
// gpu_support.h).
//
//   int   kParts           lanes that share a row of A, and a column of B
//   int   kColumns         8 * kParts
//   int   kSums            what a lane has of C
//   int   RowOfSum(i)      the row of C of a lane's sum i
//   bool  kDoublesFactors  the instruction takes factors in twice the registers, which Multiply()
//                          fills
//   float Float8Unit()     what 1 stands for in sums of products in e4m3
//
// With g = Lane() % 16 and t = Lane() / 16, a lane has columns 8 * t to 8 * t + 7 of row g of A, and
// the same rows of column g of B, one element behind the other. Its sums are of column g.
#ifndef PAGEMILL_CUDA_GPU_MATRIX_CORES_H_
#define PAGEMILL_CUDA_GPU_MATRIX_CORES_H_

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// What both have.
template <int kLanes>
struct MatrixCoreShape {
  static_assert(kLanes == 32 || kLanes == 64);
  static constexpr int kParts = kLanes / 16;
  static constexpr int kColumns = 8 * kParts;
  static constexpr int kSums = 256 / kLanes;
};

}  // namespace pagemill::gpu

#if defined(__HIP__)
#include "cuda/internal/hip_matrix_cores.h"
#else
#include "cuda/emulation/matrix_cores.h"
#endif

#endif  // PAGEMILL_CUDA_GPU_MATRIX_CORES_H_
