// File: cuda/internal/nvcc_vocabulary.h
// The vocabulary of cuda/gpu_vendor.h, for nvcc. Include that header.
#ifndef PAGEMILL_CUDA_INTERNAL_NVCC_VOCABULARY_H_
#define PAGEMILL_CUDA_INTERNAL_NVCC_VOCABULARY_H_

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cc/tensor/float8.h"

#define PAGEMILL_KERNEL static __global__ void
#define PAGEMILL_KERNEL_OF(threads, blocks) \
  static __global__ void __launch_bounds__(threads, blocks)
#define PAGEMILL_DEVICE __device__ __forceinline__
#define PAGEMILL_UNROLL _Pragma("unroll")
#define PAGEMILL_SHARED(type, name) __shared__ std::type_identity_t<type> name

namespace pagemill::gpu {

using Dim = uint3;
using LaneMask = uint32_t;

PAGEMILL_DEVICE Dim ThreadIndex() { return threadIdx; }
PAGEMILL_DEVICE Dim BlockIndex() { return blockIdx; }
PAGEMILL_DEVICE Dim BlockSize() { return {blockDim.x, blockDim.y, blockDim.z}; }
PAGEMILL_DEVICE Dim GridSize() { return {gridDim.x, gridDim.y, gridDim.z}; }
PAGEMILL_DEVICE int LinearThread() {
  return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
PAGEMILL_DEVICE constexpr int WarpLanes() { return 32; }
PAGEMILL_DEVICE int Lane() { return LinearThread() % WarpLanes(); }
PAGEMILL_DEVICE int Warp() { return LinearThread() / WarpLanes(); }
PAGEMILL_DEVICE constexpr LaneMask AllLanes() { return 0xffffffffu; }

template <typename T>
PAGEMILL_DEVICE T* DynamicShared() {
  extern __shared__ __align__(16) unsigned char pagemill_dynamic_shared[];
  return reinterpret_cast<T*>(pagemill_dynamic_shared);
}

PAGEMILL_DEVICE void SyncBlock() { __syncthreads(); }
PAGEMILL_DEVICE void SyncWarp(LaneMask mask) { __syncwarp(mask); }

template <typename T>
PAGEMILL_DEVICE T Shuffle(LaneMask mask, T value, int source) {
  return __shfl_sync(mask, value, source);
}
template <typename T>
PAGEMILL_DEVICE T ShuffleXor(LaneMask mask, T value, int bits) {
  return __shfl_xor_sync(mask, value, bits);
}
PAGEMILL_DEVICE LaneMask Ballot(LaneMask mask, bool predicate) {
  return __ballot_sync(mask, predicate);
}

PAGEMILL_DEVICE void AtomicAdd(uint64_t* to, uint64_t value) {
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

PAGEMILL_DEVICE uint64_t LoadAcquire(const uint64_t* from) {
  uint64_t value;
  asm volatile("ld.acquire.sys.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
PAGEMILL_DEVICE void StoreRelease(uint64_t* to, uint64_t value) {
  asm volatile("st.release.sys.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
PAGEMILL_DEVICE uint64_t Nanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

PAGEMILL_DEVICE void LetNextBegin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
PAGEMILL_DEVICE void AwaitInputs() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
PAGEMILL_DEVICE void PrefetchLine(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

PAGEMILL_DEVICE int CountBits(LaneMask mask) { return __popc(mask); }

PAGEMILL_DEVICE void CopyAsync16(void* to, const void* from) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}
PAGEMILL_DEVICE void CopyAsync4(void* to, const void* from) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(from) : "memory");
}
PAGEMILL_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
PAGEMILL_DEVICE void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

inline constexpr bool kHasMma = true;
PAGEMILL_DEVICE void Mma16x8x16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

PAGEMILL_DEVICE void Mma16x8x32(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

PAGEMILL_DEVICE void LoadTransposed(uint32_t (&r)[4], const void* row) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared)
               : "memory");
}

PAGEMILL_DEVICE float BitsToFloat(uint32_t bits) { return __uint_as_float(bits); }
PAGEMILL_DEVICE uint32_t FloatToBits(float value) { return __float_as_uint(value); }

PAGEMILL_DEVICE uint16_t FloatToBFloat16Bits(float value) {
  uint16_t bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
PAGEMILL_DEVICE uint32_t PackBFloat16(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
PAGEMILL_DEVICE uint32_t WithByte(uint32_t above, uint32_t word, int i) {
  return __byte_perm(word, above, 0x7650u | static_cast<uint32_t>(i));
}
PAGEMILL_DEVICE uint16_t FloatToHalfBits(float value) {
  uint16_t bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}
PAGEMILL_DEVICE float HalfBitsToFloat(uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

struct FloatPair {
  float low, high;
};
PAGEMILL_DEVICE FloatPair Float8PairToFloats(uint16_t bits) {
#if __CUDA_ARCH__ >= 890
  uint32_t halves;  // f16 has every one of them
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(bits));
  return {HalfBitsToFloat(static_cast<uint16_t>(halves)),
          HalfBitsToFloat(static_cast<uint16_t>(halves >> 16))};
#else
  return {F8E4M3ToFloat(static_cast<uint8_t>(bits)), F8E4M3ToFloat(static_cast<uint8_t>(bits >> 8))};
#endif
}

PAGEMILL_DEVICE uint32_t PackFloat8(float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 890
  uint16_t low, high;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(low) : "f"(b), "f"(a));
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(high) : "f"(d), "f"(c));
  return low | uint32_t{high} << 16;
#else
  return uint32_t{FloatToF8E4M3(a)} | uint32_t{FloatToF8E4M3(b)} << 8 |
         uint32_t{FloatToF8E4M3(c)} << 16 | uint32_t{FloatToF8E4M3(d)} << 24;
#endif
}

PAGEMILL_DEVICE float RoundedProduct(float a, float b) { return __fmul_rn(a, b); }
PAGEMILL_DEVICE float Exp(float value) { return expf(value); }
PAGEMILL_DEVICE float InverseSqrt(float value) { return rsqrtf(value); }

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_INTERNAL_NVCC_VOCABULARY_H_
