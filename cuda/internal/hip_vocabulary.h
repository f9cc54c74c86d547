// File: cuda/internal/hip_vocabulary.h
// The vocabulary of cuda/gpu_vendor.h, for clang's HIP. Include that header.
//
// A warp is a wavefront: 64 lanes on gfx9, 32 on gfx11 and gfx12, where the upper half of a mask
// is 0. Lanes of a wavefront that take part in a call run it together, so masks name what the
// hardware does anyway: HIP's own functions with masks loop over the masks that lanes could have.
#ifndef PAGEMILL_CUDA_INTERNAL_HIP_VOCABULARY_H_
#define PAGEMILL_CUDA_INTERNAL_HIP_VOCABULARY_H_

#include <hip/hip_runtime.h>

#include <cstdint>
#include <type_traits>

#include "cc/tensor/float8.h"

#define PAGEMILL_KERNEL static __global__ void
// Wavefronts of a SIMD unit instead of blocks of a multiprocessor, which has four of 64 lanes.
#define PAGEMILL_KERNEL_OF(threads, blocks)                             \
  __attribute__((amdgpu_flat_work_group_size(1, threads),               \
                 amdgpu_waves_per_eu(((threads) * (blocks) + 255) / 256))) \
  static __global__ void
#define PAGEMILL_DEVICE __device__ __forceinline__
#define PAGEMILL_UNROLL _Pragma("unroll")
#define PAGEMILL_SHARED(type, name) __shared__ std::type_identity_t<type> name

namespace pagemill::gpu {

struct Dim {
  uint32_t x, y, z;
};
using LaneMask = uint64_t;

PAGEMILL_DEVICE Dim ThreadIndex() { return {threadIdx.x, threadIdx.y, threadIdx.z}; }
PAGEMILL_DEVICE Dim BlockIndex() { return {blockIdx.x, blockIdx.y, blockIdx.z}; }
PAGEMILL_DEVICE Dim BlockSize() { return {blockDim.x, blockDim.y, blockDim.z}; }
PAGEMILL_DEVICE Dim GridSize() { return {gridDim.x, gridDim.y, gridDim.z}; }
PAGEMILL_DEVICE int LinearThread() {
  return static_cast<int>(threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z));
}
PAGEMILL_DEVICE int WarpLanes() { return static_cast<int>(__builtin_amdgcn_wavefrontsize()); }
PAGEMILL_DEVICE int Lane() { return LinearThread() % WarpLanes(); }
PAGEMILL_DEVICE int Warp() { return LinearThread() / WarpLanes(); }
PAGEMILL_DEVICE LaneMask AllLanes() { return ~uint64_t{0} >> (64 - WarpLanes()); }

template <typename T>
PAGEMILL_DEVICE T* DynamicShared() {
  extern __shared__ __attribute__((aligned(16))) unsigned char pagemill_dynamic_shared[];
  return reinterpret_cast<T*>(pagemill_dynamic_shared);
}

PAGEMILL_DEVICE void SyncBlock() { __syncthreads(); }
PAGEMILL_DEVICE void SyncWarp(LaneMask) { __syncwarp(); }

template <typename T>
PAGEMILL_DEVICE T Shuffle(LaneMask, T value, int source) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  struct Words {
    int words[sizeof(T) / 4];
  };
  auto result = __builtin_bit_cast(Words, value);
  PAGEMILL_UNROLL
  for (int& word : result.words) word = __builtin_amdgcn_ds_bpermute(source * 4, word);
  return __builtin_bit_cast(T, result);
}
template <typename T>
PAGEMILL_DEVICE T ShuffleXor(LaneMask mask, T value, int bits) {
  return Shuffle(mask, value, Lane() ^ bits);
}
PAGEMILL_DEVICE LaneMask Ballot(LaneMask mask, bool predicate) {
  return __builtin_amdgcn_ballot_w64(predicate) & mask;
}

PAGEMILL_DEVICE void AtomicAdd(uint64_t* to, uint64_t value) {
  __hip_atomic_fetch_add(to, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

PAGEMILL_DEVICE uint64_t LoadAcquire(const uint64_t* from) {
  return __hip_atomic_load(from, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
PAGEMILL_DEVICE void StoreRelease(uint64_t* to, uint64_t value) {
  __hip_atomic_store(to, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}
// The clock has 100 MHz.
PAGEMILL_DEVICE uint64_t Nanoseconds() { return static_cast<uint64_t>(wall_clock64()) * 10; }

// No kernel begins early.
PAGEMILL_DEVICE void LetNextBegin() {}
PAGEMILL_DEVICE void AwaitInputs() {}
PAGEMILL_DEVICE void PrefetchLine(const void*) {}

PAGEMILL_DEVICE int CountBits(LaneMask mask) { return __popcll(mask); }

// Copies are plain: done where they are issued, and seen by others after their SyncBlock().
struct alignas(16) CopiedBytes {
  uint64_t words[2];
};
PAGEMILL_DEVICE void CopyAsync16(void* to, const void* from) {
  *static_cast<CopiedBytes*>(to) = *static_cast<const CopiedBytes*>(from);
}
PAGEMILL_DEVICE void CopyAsync4(void* to, const void* from) {
  *static_cast<uint32_t*>(to) = *static_cast<const uint32_t*>(from);
}
PAGEMILL_DEVICE void CommitCopies() {}
template <int N>
PAGEMILL_DEVICE void WaitCopies() {}

PAGEMILL_DEVICE float BitsToFloat(uint32_t bits) { return __builtin_bit_cast(float, bits); }
PAGEMILL_DEVICE uint32_t FloatToBits(float value) { return __builtin_bit_cast(uint32_t, value); }

PAGEMILL_DEVICE uint16_t FloatToBFloat16Bits(float value) {
  return __builtin_bit_cast(uint16_t, static_cast<__bf16>(value));
}
PAGEMILL_DEVICE uint32_t PackBFloat16(float low, float high) {
  return FloatToBFloat16Bits(low) | static_cast<uint32_t>(FloatToBFloat16Bits(high)) << 16;
}
PAGEMILL_DEVICE uint32_t WithByte(uint32_t above, uint32_t word, int i) {
  return __builtin_amdgcn_perm(above, word, 0x07060500u | static_cast<uint32_t>(i));
}
PAGEMILL_DEVICE uint16_t FloatToHalfBits(float value) {
  return __builtin_bit_cast(uint16_t, static_cast<_Float16>(value));
}
PAGEMILL_DEVICE float HalfBitsToFloat(uint16_t bits) {
  return static_cast<float>(__builtin_bit_cast(_Float16, bits));
}

struct FloatPair {
  float low, high;
};
PAGEMILL_DEVICE FloatPair Float8PairToFloats(uint16_t bits) {
#if defined(__gfx950__) || defined(__GFX12__)
  const auto pair = __builtin_amdgcn_cvt_pk_f32_fp8(bits, /*of_upper_half=*/false);
  return {pair[0], pair[1]};
#else
  return {F8E4M3ToFloat(static_cast<uint8_t>(bits)), F8E4M3ToFloat(static_cast<uint8_t>(bits >> 8))};
#endif
}

PAGEMILL_DEVICE uint32_t PackFloat8(float a, float b, float c, float d) {
  return uint32_t{FloatToF8E4M3(a)} | uint32_t{FloatToF8E4M3(b)} << 8 |
         uint32_t{FloatToF8E4M3(c)} << 16 | uint32_t{FloatToF8E4M3(d)} << 24;
}

PAGEMILL_DEVICE float RoundedProduct(float a, float b) {
#pragma clang fp contract(off)
  return a * b;
}
PAGEMILL_DEVICE float Exp(float value) { return expf(value); }
PAGEMILL_DEVICE float InverseSqrt(float value) { return rsqrtf(value); }

// AMD's matrix instructions want their operands in other lanes than NVIDIA's (gpu_matrix_cores.h):
// kernels that need these end here, and are not chosen.
inline constexpr bool kHasMma = false;
PAGEMILL_DEVICE void Mma16x8x16(float (&)[4], const uint32_t (&)[4], const uint32_t (&)[2]) {
  __builtin_trap();
}
PAGEMILL_DEVICE void Mma16x8x32(int32_t (&)[4], const uint32_t (&)[4], const uint32_t (&)[2]) {
  __builtin_trap();
}
PAGEMILL_DEVICE void LoadTransposed(uint32_t (&)[4], const void*) { __builtin_trap(); }

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_INTERNAL_HIP_VOCABULARY_H_
