// File: cuda/gpu_vendor.h
// What kernels are written in: one vocabulary, compiled by nvcc, by clang for AMD's GPUs (HIP), and
// by g++ for the emulation (cuda/emulation/launch.h). A kernel uses nothing of a vendor but these
// names; gpu_wgmma.h and gpu_matrix_cores.h have further ones, of some GPUs:
//
//   PAGEMILL_KERNEL, PAGEMILL_DEVICE     a kernel; a function that kernels call
//   PAGEMILL_KERNEL_OF(threads, blocks)  a kernel that has registers for this many blocks at a time
//                                        on a multiprocessor, of at most this many threads
//   PAGEMILL_SHARED(type, name);         static shared memory; type may be an array: float[4]
//   PAGEMILL_UNROLL                      before a loop: its arrays stay in registers
//   Dim  ThreadIndex() BlockIndex() BlockSize() GridSize()
//   int  WarpLanes() Lane() Warp()       lanes of a warp: 32 (64 on some AMD GPUs)
//   T*   DynamicShared<T>()              16-byte aligned
//   void SyncBlock()                     every thread of the block
//   void SyncWarp(mask)                  LaneMask: a bit a lane; AllLanes() names the whole warp
//   T    Shuffle(mask, value, source)    the value of a lane; T of 4 or 8 bytes
//   T    ShuffleXor(mask, value, bits)   the value of lane `Lane() ^ bits`
//   LaneMask Ballot(mask, predicate)     the lanes of `mask` that pass true
//   void AtomicAdd(uint64_t*, value)     whole numbers only: their sum has no order
//   uint64_t LoadAcquire(from)           of system scope: see what other GPUs and the host wrote
//   void StoreRelease(to, value)         before they stored the loaded value, and let them see what
//                                        was written here before. For a word that others wait for,
//                                        in the memory of a GPU or of the host; a SyncBlock()
//                                        extends either to the threads of the block
//   uint64_t Nanoseconds()               of a clock that all blocks of a GPU share
//   void LetNextBegin()                  a kernel that is launched early (gpu_launch.h) behind this
//                                        one may begin once every block has called it or is done
//   void AwaitInputs()                   in such a kernel: returns when all work in front of it is
//                                        done, of which it must not read anything before
//   void PrefetchLine(from)              128 bytes of global memory into the GPU's cache
//   int  CountBits(mask)                 the lanes of a mask
//   void CopyAsync16(to, from)           16 bytes from global to shared memory, both aligned
//   void CopyAsync4(to, from)            likewise 4 bytes
//   void CommitCopies(); WaitCopies<N>() groups of copies; waits until N groups are under way.
//                                        Other threads see the bytes after a further SyncBlock().
//   void Mma16x8x16(c, a, b)             bf16 tensor core product of a warp of 32 lanes, below
//   void Mma16x8x32(c, a, b)             the same for int8
//   void LoadTransposed(r, row)          fragments of it from shared memory, below
//   bool kHasMma                         these are instructions; otherwise they end the kernel
//   Vector<T, N>                         N values in one aligned load or store
//   BFloat16, Half                       types of memory; kernels compute in fp32
//   float ToFloat(x); FromFloat<T>(x)    T: float, BFloat16, Half; rounds to nearest even
//   uint32_t PackBFloat16(low, high)     two floats as bf16, rounded likewise
//   uint32_t WithByte(above, word, i)    `above` with byte i of a word in place of its lowest byte
//   FloatPair Float8PairToFloats(bits)   two e4m3 numbers, the low one in the low byte
//   uint32_t PackFloat8(a, b, c, d)      four floats as e4m3, rounded to nearest even, a in the lowest
//                                        byte. Beyond 448: +-448
//   float RoundedProduct(a, b)           never fused with an addition
//   float Exp(x) InverseSqrt(x)          and functions of <cmath> for float: sqrtf, fmaxf, ...
//
// Every lane in `mask` calls the same line with the same mask.
//
// Mma16x8x16 adds A [16, 16] times B [16, 8] to C [16, 8] (PTX ISA, "Matrix Fragments for
// mma.m16n8k16"). With g = Lane() / 4 and t = Lane() % 4, a lane holds, two bf16 a register:
//   a[i], i in 0..3   row g + 8 * (i % 2), columns 2 * t + 8 * (i / 2) and the next one
//   b[i], i in 0..1   rows 2 * t + 8 * i and the next one, column g
//   c[i], i in 0..3   row g + 8 * (i / 2), column 2 * t + i % 2
// Mma16x8x32 adds A [16, 32] times B [32, 8], int8, to C of int32, four int8 a register:
//   a[i], i in 0..3   row g + 8 * (i % 2), columns 4 * t + 16 * (i / 2) and the next three
//   b[i], i in 0..1   rows 4 * t + 16 * i and the next three, column g
//
// LoadTransposed reads four 8 x 8 matrices of 2-byte elements. Lane 8 * i + j passes the address of
// row j of matrix i: 16 bytes of shared memory, aligned. A lane receives, of matrix i,
//   r[i], i in 0..3   rows 2 * t and 2 * t + 1, column g
#ifndef PAGEMILL_CUDA_GPU_VENDOR_H_
#define PAGEMILL_CUDA_GPU_VENDOR_H_

#include <cmath>
#include <cstdint>
#include <type_traits>

#if defined(__CUDACC__)
#include "cuda/internal/nvcc_vocabulary.h"
#elif defined(__HIP__)
#include "cuda/internal/hip_vocabulary.h"
#else
#include "cuda/emulation/vocabulary.h"
#endif

namespace pagemill::gpu {

template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T values[N];
};

struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

PAGEMILL_DEVICE float ToFloat(float value) { return value; }
PAGEMILL_DEVICE float ToFloat(BFloat16 value) {
  return BitsToFloat(static_cast<uint32_t>(value.bits) << 16);
}
PAGEMILL_DEVICE float ToFloat(Half value) { return HalfBitsToFloat(value.bits); }

template <typename T>
PAGEMILL_DEVICE T FromFloat(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return {FloatToBFloat16Bits(value)};
  } else {
    static_assert(std::is_same_v<T, Half>);
    return {FloatToHalfBits(value)};
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_VENDOR_H_
