// File: cuda/ops/select_tokens/best_keys.h
// The positions of the largest of many scores, kept in shared memory by a block of kTileThreads
// threads. Among equal scores the lower position wins.
//
//   BestKeys best(choices, shared);              // BestKeysSharedBytes(choices)
//   for (...) best.Offer(key, position, valid);  // positions ascend with threads and calls
//   best.Finish();
//   for (i < best.count()) Use(best.position(i));   // ascending
//
// Every thread of the block calls the same functions.
#ifndef PAGEMILL_CUDA_OPS_SELECT_TOKENS_BEST_KEYS_H_
#define PAGEMILL_CUDA_OPS_SELECT_TOKENS_BEST_KEYS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/dot_tile.h"

namespace pagemill::gpu {

// Numbers that are ordered as scores are, above 0; NaN counts as -infinity.
PAGEMILL_DEVICE uint32_t OrderedKey(float score) {
  const uint32_t bits = FloatToBits(std::isnan(score) ? -INFINITY : score + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Keys that are kept until the best are selected.
inline constexpr int64_t BestKeysCapacity(int64_t choices) {
  return choices + std::max<int64_t>(choices, kTileThreads);
}
inline int64_t BestKeysSharedBytes(int64_t choices) {
  return BestKeysCapacity(choices) * 2 * static_cast<int64_t>(sizeof(uint32_t));
}

class BestKeys {
 public:
  PAGEMILL_DEVICE BestKeys(int choices, int capacity, float* shared)
      : choices_(choices),
        capacity_(capacity),
        keys_(reinterpret_cast<uint32_t*>(shared)),
        positions_(reinterpret_cast<int32_t*>(shared) + capacity) {}

  PAGEMILL_DEVICE void Offer(uint32_t key, int32_t position, bool valid) {
    Append(key, position, valid && key > floor_);
    if (count_ + kTileThreads > capacity_) Select();
  }

  PAGEMILL_DEVICE void Finish() {
    if (count_ > choices_) {
      Select();
    } else {
      SyncBlock();
    }
  }

  PAGEMILL_DEVICE int count() const { return count_; }
  PAGEMILL_DEVICE uint32_t key(int i) const { return keys_[i]; }
  PAGEMILL_DEVICE int32_t position(int i) const { return positions_[i]; }

 private:
  PAGEMILL_DEVICE static int Thread() { return static_cast<int>(ThreadIndex().x); }

  // A number of each warp: the sum of those of the warps before, and of all.
  struct Sums {
    int before = 0, all = 0;
  };
  PAGEMILL_DEVICE Sums SumOfWarps(int own) {
    PAGEMILL_SHARED(int[2][32], of_warps);
    turn_ = 1 - turn_;  // those of the call before may still be read
    if (Lane() == 0) of_warps[turn_][Warp()] = own;
    SyncBlock();
    Sums sums;
    for (int warp = 0; warp < kTileThreads / WarpLanes(); ++warp) {
      if (warp < Warp()) sums.before += of_warps[turn_][warp];
      sums.all += of_warps[turn_][warp];
    }
    return sums;
  }

  // Threads that pass true: those before this one, and all.
  PAGEMILL_DEVICE Sums RankOf(bool predicate) {
    const LaneMask mask = Ballot(AllLanes(), predicate);
    Sums ranks = SumOfWarps(CountBits(mask));
    ranks.before += CountBits(mask & ((LaneMask{1} << Lane()) - 1));
    return ranks;
  }

  PAGEMILL_DEVICE void Append(uint32_t key, int32_t position, bool kept) {
    const Sums ranks = RankOf(kept);
    if (kept) {
      keys_[count_ + ranks.before] = key;
      positions_[count_ + ranks.before] = position;
    }
    count_ += ranks.all;
  }

  // The number of keys of at least `least`.
  PAGEMILL_DEVICE int CountFrom(uint32_t least) {
    int of_warp = 0;
    for (int first = 0; first < count_; first += kTileThreads) {
      const int i = first + Thread();
      of_warp += CountBits(Ballot(AllLanes(), i < count_ && keys_[i] >= least));
    }
    return SumOfWarps(of_warp).all;
  }

  // Keeps the best `choices_` of more keys, in order.
  PAGEMILL_DEVICE void Select() {
    SyncBlock();  // all keys are there
    // The largest number that enough keys are not below, or one that no more are not below.
    uint32_t last = 0;
    int from_last = count_;
    for (int bit = 31; bit >= 0 && from_last > choices_; --bit) {
      const int from = CountFrom(last | 1u << bit);
      if (from < choices_) continue;
      last |= 1u << bit;
      from_last = from;
    }
    int equal = choices_ - CountFrom(last + 1);  // of those with key `last`, how many are kept
    const int before = count_;
    count_ = 0;
    for (int first = 0; first < before; first += kTileThreads) {
      const int i = first + Thread();
      const uint32_t key = i < before ? keys_[i] : 0;
      const int32_t position = i < before ? positions_[i] : 0;
      const Sums equals = RankOf(key == last);
      Append(key, position, key > last || (key == last && equals.before < equal));
      equal -= equals.all;
    }
    floor_ = last;
    SyncBlock();
  }

  const int choices_, capacity_;
  uint32_t* const keys_;
  int32_t* const positions_;
  int turn_ = 0;
  int count_ = 0;
  uint32_t floor_ = 0;  // keys up to it are not among the best
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_SELECT_TOKENS_BEST_KEYS_H_
