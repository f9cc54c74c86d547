// File: cuda/emulation/vocabulary_kernels.h
// Kernels that together use every word of cuda/gpu_vendor.h, for vocabulary_test.cc; nvcc compiles
// them too. `Mutation` removes what a rule requires: the test checks that the emulation notices.
#ifndef PAGEMILL_CUDA_EMULATION_VOCABULARY_KERNELS_H_
#define PAGEMILL_CUDA_EMULATION_VOCABULARY_KERNELS_H_

#include <cstdint>
#include <type_traits>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

enum class Mutation {
  kNone,
  kNoBarrier,
  kWrongMask,
  kNoWait,
  kDivergentBarrier,
  kEarlyReturn,
  kNoBarrierBehind,
};

inline constexpr int kMaxWarps = 8;

PAGEMILL_DEVICE float SumOfWarp(float value) {
  for (int bits = WarpLanes() / 2; bits > 0; bits /= 2) {
    value += ShuffleXor(AllLanes(), value, bits);
  }
  return value;
}

// total[block] = sum of x [blocks, size], one block a row.
template <Mutation kMutation>
PAGEMILL_KERNEL SumRows(const float* x, int size, float* total) {
  PAGEMILL_SHARED(float[kMaxWarps], partial);
  const int thread = static_cast<int>(ThreadIndex().x);
  const int threads = static_cast<int>(BlockSize().x);
  const float* row = x + static_cast<int64_t>(BlockIndex().x) * size;
  float sum = 0;
  for (int i = thread; i < size; i += threads) sum += row[i];
  if constexpr (kMutation == Mutation::kWrongMask) {
    if (Lane() != 0) sum = SumOfWarp(sum);
  } else {
    sum = SumOfWarp(sum);
  }
  if (Lane() == 0) partial[Warp()] = sum;
  if constexpr (kMutation == Mutation::kEarlyReturn) {
    if (thread == threads - 1) return;
  }
  if constexpr (kMutation == Mutation::kDivergentBarrier) {
    if (thread % 2 == 0) {
      SyncBlock();
    } else {
      SyncBlock();
    }
  } else if constexpr (kMutation != Mutation::kNoBarrier) {
    SyncBlock();
  }
  if (thread != 0) return;
  sum = 0;
  for (int warp = 0; warp < threads / WarpLanes(); ++warp) sum += partial[warp];
  total[BlockIndex().x] = sum;
}

// y [threads * 4] = x reversed in groups of four, through dynamic shared memory.
template <Mutation kMutation>
PAGEMILL_KERNEL ReverseGroups(const float* x, float* y) {
  using Four = Vector<float, 4>;
  Four* const staged = DynamicShared<Four>();
  const int thread = static_cast<int>(ThreadIndex().x);
  const int threads = static_cast<int>(BlockSize().x);
  CopyAsync16(&staged[thread], x + thread * 4);
  CommitCopies();
  if constexpr (kMutation != Mutation::kNoWait) WaitCopies<0>();
  SyncBlock();
  reinterpret_cast<Four*>(y)[thread] = staged[threads - 1 - thread];
  if constexpr (kMutation == Mutation::kNoWait) WaitCopies<0>();
}

// y [threads] = x of the other of two ranks, reversed. Both launch the kernel. A rank's inbox
// [threads] and arrival are written by the other; it waits for `limit_ns`.
template <Mutation kMutation>
PAGEMILL_KERNEL SwapWithPeer(const float* x, float* outbox, uint64_t* arrival_of_peer,
                             const float* inbox, const uint64_t* arrival, uint64_t limit_ns,
                             float* y) {
  const int thread = static_cast<int>(ThreadIndex().x);
  const int threads = static_cast<int>(BlockSize().x);
  outbox[thread] = x[thread];
  if constexpr (kMutation != Mutation::kNoBarrier) SyncBlock();
  if (thread == 0) {
    StoreRelease(arrival_of_peer, 1);
    if constexpr (kMutation != Mutation::kNoWait) {
      const uint64_t begin = Nanoseconds();
      while (LoadAcquire(arrival) == 0 && Nanoseconds() - begin < limit_ns) {
      }
    }
  }
  if constexpr (kMutation != Mutation::kNoBarrierBehind) SyncBlock();
  y[thread] = inbox[threads - 1 - thread];
}

// c [16, 8] = a [16, size] times b [8, size], transposed, of BFloat16 and float or of int8_t and
// int32_t; one warp; size % 32 == 0.
template <typename T, typename Sum>
PAGEMILL_KERNEL MultiplyTile(const T* a, const T* b, int size, Sum* c) {
  constexpr int kInRegister = 4 / sizeof(T);
  const int group = Lane() / 4, in_group = Lane() % 4;
  const auto load = [size](const T* from, int row, int column) {
    return *reinterpret_cast<const uint32_t*>(from + row * size + column);
  };
  Sum sums[4] = {};
  for (int k = kInRegister * in_group; k < size; k += 8 * kInRegister) {
    const int next = k + 4 * kInRegister;
    const uint32_t of_a[4] = {load(a, group, k), load(a, group + 8, k), load(a, group, next),
                              load(a, group + 8, next)};
    const uint32_t of_b[2] = {load(b, group, k), load(b, group, next)};
    if constexpr (std::is_same_v<T, BFloat16>) {
      Mma16x8x16(sums, of_a, of_b);
    } else {
      Mma16x8x32(sums, of_a, of_b);
    }
  }
  for (int i = 0; i < 4; ++i) c[(group + 8 * (i / 2)) * 8 + 2 * in_group + i % 2] = sums[i];
}

// y[i] = x transposed, for each of four matrices [8, 8]; one warp.
PAGEMILL_KERNEL TransposeMatrices(const uint16_t* x, uint32_t* y) {
  uint16_t* const staged = DynamicShared<uint16_t>();
  for (int i = 0; i < 8; ++i) staged[Lane() * 8 + i] = x[Lane() * 8 + i];
  SyncBlock();
  uint32_t pairs[4];
  LoadTransposed(pairs, staged + Lane() * 8);
  const int column = Lane() / 4, row_pair = Lane() % 4;
  for (int i = 0; i < 4; ++i) y[i * 32 + column * 4 + row_pair] = pairs[i];
}

// kept[warp] = a bit for each lane whose x is positive; first[thread] = x of the warp's lane 0.
PAGEMILL_KERNEL VoteAndBroadcast(const float* x, uint64_t* kept, float* first) {
  const int thread = static_cast<int>(ThreadIndex().x);
  const LaneMask positive = Ballot(AllLanes(), x[thread] > 0);
  if (Lane() == 0) kept[Warp()] = positive;
  SyncWarp(AllLanes());
  first[thread] = Shuffle(AllLanes(), x[thread], 0);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_EMULATION_VOCABULARY_KERNELS_H_
