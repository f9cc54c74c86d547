// File: sycl/ops/select_tokens/best_keys.h
// The positions of the largest of many scores, kept in memory by a work-group. Among equal scores
// the lower position wins. Kernel text only.
//
//   BestKeys best(choices, capacity, keys, positions);
//   for (...) best.Offer(OrderedKey(score), position, valid);  // positions ascend
//   best.Finish();
//   for (i < best.count()) Use(positions[i]);                  // ascending
//
// Every work-item of the group calls the same functions. `capacity` is at least `choices` and the
// size of the group together.
#ifndef PAGEMILL_SYCL_OPS_SELECT_TOKENS_BEST_KEYS_H_
#define PAGEMILL_SYCL_OPS_SELECT_TOKENS_BEST_KEYS_H_

#include "sycl/ops/kernel.h"

namespace pagemill::sycl {

// Numbers that are ordered as scores are, above 0; NaN counts as -infinity.
inline uint32_t OrderedKey(float score) {
  const uint32_t bits =
      ::sycl::bit_cast<uint32_t>(::sycl::isnan(score) ? -kInfinity : score + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

class BestKeys {
 public:
  BestKeys(int32_t choices, int32_t capacity, uint32_t* keys, int32_t* positions)
      : choices_(choices), capacity_(capacity), keys_(keys), positions_(positions) {}

  void Offer(uint32_t key, int32_t position, bool valid) {
    Append(key, position, valid && key > floor_);
    if (count_ + GroupSize() > capacity_) Select();
  }

  void Finish() {
    if (count_ > choices_) Select();
    ::sycl::group_barrier(Group());
  }

  int32_t count() const { return count_; }

 private:
  static int32_t GroupSum(int32_t value) {
    return ::sycl::reduce_over_group(Group(), value, ::sycl::plus<int32_t>());
  }
  // The sum of the values of the work-items before this one.
  static int32_t SumBefore(int32_t value) {
    return ::sycl::exclusive_scan_over_group(Group(), value, ::sycl::plus<int32_t>());
  }

  void Append(uint32_t key, int32_t position, bool kept) {
    const int32_t at = count_ + SumBefore(kept ? 1 : 0);
    if (kept) {
      keys_[at] = key;
      positions_[at] = position;
    }
    count_ += GroupSum(kept ? 1 : 0);
  }

  // The number of keys of at least `least`.
  int32_t CountFrom(uint32_t least) const {
    int32_t count = 0;
    for (int32_t i = LocalId(); i < count_; i += GroupSize()) count += keys_[i] >= least ? 1 : 0;
    return GroupSum(count);
  }

  // Keeps the best `choices_` of more keys, in order.
  void Select() {
    ::sycl::group_barrier(Group());  // all keys are there
    // The largest number that enough keys are not below, or one that no more are not below.
    uint32_t last = 0;
    int32_t from_last = count_;
    for (int bit = 31; bit >= 0 && from_last > choices_; --bit) {
      const int32_t from = CountFrom(last | 1u << bit);
      if (from < choices_) continue;
      last |= 1u << bit;
      from_last = from;
    }
    int32_t equal = choices_ - CountFrom(last + 1);  // of those with key `last`, how many are kept
    const int32_t before = count_;
    count_ = 0;
    for (int32_t first = 0; first < before; first += GroupSize()) {
      const int32_t i = first + LocalId();
      const uint32_t key = i < before ? keys_[i] : 0;
      const int32_t position = i < before ? positions_[i] : 0;
      const bool is_equal = i < before && key == last;
      const int32_t rank = SumBefore(is_equal ? 1 : 0);
      ::sycl::group_barrier(Group());  // what is overwritten has been read
      Append(key, position, key > last || (is_equal && rank < equal));
      equal -= GroupSum(is_equal ? 1 : 0);
    }
    ::sycl::group_barrier(Group());
    floor_ = last;
  }

  const int32_t choices_, capacity_;
  uint32_t* const keys_;
  int32_t* const positions_;
  int32_t count_ = 0;
  uint32_t floor_ = 0;  // keys up to it are not among the best
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_SELECT_TOKENS_BEST_KEYS_H_
