#include <cstddef>
#include <cstdint>

#include "cc/ops/sample/philox.h"
#include "cc/ops/sample/row_draw.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

// Nothing is sorted: a digit after the other is found of the key of the last token that top-k or
// top-p keeps, from the number or the weight of the tokens that have each digit. Weights are whole
// numbers, so that sums do not depend on their order.

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 1024;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
// The weight of the most likely token. Rows of 2^20 columns have a total below 2^60.
constexpr float kOne = 1.0f * (int64_t{1} << 40);

// A row with the limits that are found so far: tokens whose key is above `last`, and those equal to
// it that are among the first `ties` of them.
struct RowLimits {
  const float* row;
  int64_t size;
  float most, inverse_temperature;
  uint32_t last;
  int64_t ties;

  PAGEMILL_DEVICE uint64_t Weight(float logit) const {
    return static_cast<uint64_t>(Exp((logit - most) * inverse_temperature) * kOne);
  }
};

// Larger for larger logits; 0 and -0 are equal.
PAGEMILL_DEVICE uint32_t KeyOf(float logit) {
  const uint32_t bits = FloatToBits(logit + 0.0f);
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
PAGEMILL_DEVICE float LogitOf(uint32_t key) {
  return BitsToFloat((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

// What is summed of a token: its weight, or 1.
struct ByWeight {
  PAGEMILL_DEVICE uint64_t operator()(const RowLimits& limits, float logit) const {
    return limits.Weight(logit);
  }
};
struct ByNumber {
  PAGEMILL_DEVICE uint64_t operator()(const RowLimits&, float) const { return 1; }
};

// The sum over tokens whose key is at least `key`; the same in every thread.
template <typename Measure>
PAGEMILL_DEVICE uint64_t SumFrom(const RowLimits& limits, uint32_t key, Measure measure) {
  PAGEMILL_SHARED(uint64_t, total);
  SyncBlock();
  if (ThreadIndex().x == 0) total = 0;
  SyncBlock();
  uint64_t own = 0;
  for (int64_t i = ThreadIndex().x; i < limits.size; i += kThreads) {
    if (KeyOf(limits.row[i]) >= key) own += measure(limits, limits.row[i]);
  }
  if (own > 0) AtomicAdd(&total, own);
  SyncBlock();
  return total;
}

struct LastKey {
  uint32_t key;
  uint64_t above;  // the sum over keys above it
};

// The largest key whose tokens, with those above, reach `target`; among tokens of keys from `least`
// on, whose sum is at least `target`.
template <typename Measure>
PAGEMILL_DEVICE LastKey FindLast(const RowLimits& limits, uint32_t least, uint64_t target,
                                 Measure measure) {
  PAGEMILL_SHARED(uint64_t[kDigits], sums);
  PAGEMILL_SHARED(uint32_t, found_digit);
  PAGEMILL_SHARED(uint64_t, found_above);
  LastKey last = {0, 0};
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    SyncBlock();
    for (int i = static_cast<int>(ThreadIndex().x); i < kDigits; i += kThreads) sums[i] = 0;
    SyncBlock();
    for (int64_t i = ThreadIndex().x; i < limits.size; i += kThreads) {
      const uint32_t key = KeyOf(limits.row[i]);
      const bool same_begin = (uint64_t{key} ^ last.key) >> (shift + kDigitBits) == 0;
      if (key < least || !same_begin) continue;
      const uint64_t value = measure(limits, limits.row[i]);
      if (value > 0) AtomicAdd(&sums[key >> shift & (kDigits - 1)], value);
    }
    SyncBlock();
    if (ThreadIndex().x == 0) {
      uint64_t above = last.above;
      int digit = kDigits - 1;
      // Digit 0 is the last one in any case.
      while (digit > 0 && above + sums[digit] < target) above += sums[digit--];
      found_digit = static_cast<uint32_t>(digit);
      found_above = above;
    }
    SyncBlock();
    last.key |= found_digit << shift;
    last.above = found_above;
  }
  return last;
}

// The weight of token `i`, which has `ties_before` tokens before it that equal the last one; 0 if it
// is not kept.
PAGEMILL_DEVICE uint64_t KeptWeight(const RowLimits& limits, int64_t i, int64_t ties_before) {
  const float logit = limits.row[i];
  const uint32_t key = KeyOf(logit);
  if (key < limits.last || (key == limits.last && ties_before >= limits.ties)) return 0;
  return limits.Weight(logit);
}

// A column of those kept, by the share `uniform` of their weight in the order of columns. Each
// thread has a run of columns.
PAGEMILL_DEVICE int32_t DrawKept(const RowLimits& limits, double uniform, int32_t most_likely) {
  PAGEMILL_SHARED(uint64_t[kThreads], sums);
  PAGEMILL_SHARED(int32_t[kThreads], ties);
  PAGEMILL_SHARED(int32_t, drawn);
  const int thread = static_cast<int>(ThreadIndex().x);
  const int64_t run = (limits.size + kThreads - 1) / kThreads;
  const int64_t begin = thread * run < limits.size ? thread * run : limits.size;
  const int64_t end = begin + run < limits.size ? begin + run : limits.size;
  int32_t own_ties = 0;
  for (int64_t i = begin; i < end; ++i) own_ties += KeyOf(limits.row[i]) == limits.last ? 1 : 0;
  ties[thread] = own_ties;
  SyncBlock();
  if (thread == 0) {
    int32_t before = 0;
    for (int i = 0; i < kThreads; ++i) {
      const int32_t here = ties[i];
      ties[i] = before;
      before += here;
    }
  }
  SyncBlock();
  uint64_t own = 0;
  int64_t seen = ties[thread];
  for (int64_t i = begin; i < end; ++i) {
    own += KeptWeight(limits, i, seen);
    seen += KeyOf(limits.row[i]) == limits.last ? 1 : 0;
  }
  sums[thread] = own;
  if (thread == 0) drawn = most_likely;
  SyncBlock();
  if (thread == 0) {
    uint64_t before = 0;
    for (int i = 0; i < kThreads; ++i) {
      const uint64_t here = sums[i];
      sums[i] = before;
      before += here;
    }
    sums[0] = before;  // the total: nothing is before the first
  }
  SyncBlock();
  const auto target = static_cast<uint64_t>(uniform * static_cast<double>(sums[0]));
  const uint64_t before = thread == 0 ? 0 : sums[thread];
  if (before <= target && target < before + own) {
    uint64_t sum = before;
    seen = ties[thread];
    for (int64_t i = begin; i < end; ++i) {
      sum += KeptWeight(limits, i, seen);
      seen += KeyOf(limits.row[i]) == limits.last ? 1 : 0;
      if (sum > target) {
        drawn = static_cast<int32_t>(i);
        break;
      }
    }
  }
  SyncBlock();
  return drawn;
}

// Fields of a RowDraw by their offset.
PAGEMILL_DEVICE int32_t Integer(const int32_t* words, size_t offset) {
  return words[offset / sizeof(int32_t)];
}
PAGEMILL_DEVICE float Number(const int32_t* words, size_t offset) {
  return BitsToFloat(static_cast<uint32_t>(Integer(words, offset)));
}

PAGEMILL_KERNEL DrawToken(Rows<const float> x, int64_t size, const int32_t* columns,
                          const float* values, Rows<const int32_t> draws, int32_t* y) {
  using ops::RowDraw;
  const int64_t l = BlockIndex().x;
  const int32_t* const words = draws[l];
  const float temperature = Number(words, offsetof(RowDraw, temperature));
  const int32_t most_likely = columns[l];
  if (most_likely < 0 || !(temperature > 0)) {
    if (ThreadIndex().x == 0) y[l] = most_likely;
    return;
  }
  RowLimits limits = {x[l], size, values[l], 1.0f / temperature, KeyOf(-INFINITY), INT64_MAX};
  const float min_p = Number(words, offsetof(RowDraw, min_p));
  const int32_t top_k = Integer(words, offsetof(RowDraw, top_k));
  const float top_p = Number(words, offsetof(RowDraw, top_p));
  if (min_p > 0) limits.last = KeyOf(limits.most + temperature * logf(min_p));
  if (top_k > 0 && SumFrom(limits, limits.last, ByNumber{}) > static_cast<uint64_t>(top_k)) {
    limits.last = FindLast(limits, limits.last, static_cast<uint64_t>(top_k), ByNumber{}).key;
  }
  if (top_p < 1) {
    const uint64_t total = SumFrom(limits, limits.last, ByWeight{});
    const auto target =
        static_cast<uint64_t>(static_cast<double>(top_p) * static_cast<double>(total));
    const LastKey last = FindLast(limits, limits.last, target > 0 ? target : 1, ByWeight{});
    limits.last = last.key;
    const uint64_t weight = limits.Weight(LogitOf(last.key));
    const uint64_t left = target > last.above ? target - last.above : 1;
    limits.ties = weight == 0 ? 1 : static_cast<int64_t>((left + weight - 1) / weight);
  }
  const auto low = static_cast<uint32_t>(Integer(words, offsetof(RowDraw, seed_low)));
  const auto high = static_cast<uint32_t>(Integer(words, offsetof(RowDraw, seed_high)));
  const auto position = static_cast<uint64_t>(Integer(words, offsetof(RowDraw, position)));
  const double uniform = ops::PhiloxUniform(uint64_t{high} << 32 | low, position);
  const int32_t drawn = DrawKept(limits, uniform, most_likely);
  if (ThreadIndex().x == 0) y[l] = drawn;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  Launch(*context.stream,
         {.blocks = {static_cast<uint32_t>(x.shape[0])}, .threads = {kThreads}}, DrawToken,
         RowsOf<const float>(x), x.shape[1], call.inputs[1].Data<const int32_t>(),
         call.inputs[2].Data<const float>(), RowsOf<const int32_t>(call.inputs[3]),
         call.outputs[0].Data<int32_t>());
}

constexpr ops::Kernel kKernels[] = {{"draw_tokens", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> DrawTokensKernels() { return kKernels; }

}  // namespace pagemill::gpu
