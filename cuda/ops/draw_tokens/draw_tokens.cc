#include <cstddef>
#include <cstdint>

#include "cc/ops/sample/philox.h"
#include "cc/ops/sample/row_draw.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/argmax/row_columns.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/sums/sums_before.h"

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

// What is summed of a token: its weight if that is above `least`, or 1.
struct ByWeight {
  uint64_t least = 0;
  PAGEMILL_DEVICE uint64_t operator()(const RowLimits& limits, float logit) const {
    const uint64_t weight = limits.Weight(logit);
    return weight > least ? weight : 0;
  }
};
struct ByNumber {
  PAGEMILL_DEVICE uint64_t operator()(const RowLimits&, float) const { return 1; }
};

PAGEMILL_DEVICE uint64_t SumOfWarp(uint64_t value) {
  for (int bits = WarpLanes() / 2; bits > 0; bits /= 2) {
    value += ShuffleXor(AllLanes(), value, bits);
  }
  return value;
}

// Sums of the warps of a block, in shared memory. Every thread of the block calls the same
// functions.
using WarpSums = uint64_t[kThreads / 32];

class SumsOfWarps {
 public:
  // `value` is the same in the lanes of a warp.
  PAGEMILL_DEVICE SumsOfWarps(uint64_t value, WarpSums& memory) : sums_(memory) {
    SyncBlock();  // those before have been read
    if (Lane() == 0) memory[Warp()] = value;
    SyncBlock();
  }
  PAGEMILL_DEVICE static int Count() { return kThreads / WarpLanes(); }
  PAGEMILL_DEVICE uint64_t Of(int warp) const { return sums_[warp]; }
  PAGEMILL_DEVICE uint64_t Before(int warp) const {
    uint64_t sum = 0;
    for (int i = 0; i < warp; ++i) sum += sums_[i];
    return sum;
  }
  PAGEMILL_DEVICE uint64_t Total() const { return Before(Count()); }

 private:
  const WarpSums& sums_;
};

// The sum of the values of the threads before this one.
PAGEMILL_DEVICE uint64_t SumOfThreadsBefore(uint64_t value) {
  PAGEMILL_SHARED(WarpSums, sums);
  const uint64_t of_lanes = SumOfLanesBefore(value);
  return SumsOfWarps(SumOfWarp(value), sums).Before(Warp()) + of_lanes;
}

// The sum over tokens whose key is at least `key`; the same in every thread.
template <typename Measure>
PAGEMILL_DEVICE uint64_t SumFrom(const RowLimits& limits, uint32_t key, const Measure& measure) {
  PAGEMILL_SHARED(WarpSums, sums);
  uint64_t own = 0;
  ForColumns(limits.row, ThreadIndex().x, limits.size, kThreads, [&](int64_t, float logit) {
    if (KeyOf(logit) >= key) own += measure(limits, logit);
  });
  return SumsOfWarps(SumOfWarp(own), sums).Total();
}

// Sums over the tokens that have a digit. Most logits have one of a few first digits, and lanes that
// add to the same sum wait for each other, so each digit has several, and then one for all.
constexpr int kSums = 16;
using DigitSums = uint64_t[kDigits][kSums + 1];

struct LastKey {
  uint32_t key;
  uint64_t above;  // the sum over keys above it
};

// The largest key whose tokens, with those above, reach `target`; among tokens of keys from `least`
// on, whose sum is at least `target`. `sums` is shared memory.
template <typename Measure>
PAGEMILL_DEVICE LastKey FindLast(const RowLimits& limits, uint32_t least, uint64_t target,
                                 const Measure& measure, DigitSums& sums) {
  PAGEMILL_SHARED(uint32_t, found_digit);
  PAGEMILL_SHARED(uint64_t, found_above);
  const int thread = static_cast<int>(ThreadIndex().x);
  LastKey last = {0, 0};
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    SyncBlock();
    for (int i = thread; i < kDigits * kSums; i += kThreads) sums[i / kSums][i % kSums] = 0;
    SyncBlock();
    ForColumns(limits.row, thread, limits.size, kThreads, [&](int64_t, float logit) {
      const uint32_t key = KeyOf(logit);
      const bool same_begin = (uint64_t{key} ^ last.key) >> (shift + kDigitBits) == 0;
      if (key < least || !same_begin) return;
      const uint64_t value = measure(limits, logit);
      if (value > 0) AtomicAdd(&sums[key >> shift & (kDigits - 1)][Lane() % kSums], value);
    });
    SyncBlock();
    if (thread < kDigits) {
      uint64_t sum = 0;
      for (int i = 0; i < kSums; ++i) sum += sums[thread][i];
      sums[thread][kSums] = sum;
    }
    SyncBlock();
    if (Warp() == 0) {  // each lane has some digits, the first lane the largest
      const int share = kDigits / WarpLanes();
      const int lowest = kDigits - (Lane() + 1) * share;
      uint64_t own = 0;
      for (int i = 0; i < share; ++i) own += sums[lowest + i][kSums];
      uint64_t above = last.above + SumOfLanesBefore(own);
      // Digit 0 is the last one in any case.
      if (above < target && (above + own >= target || lowest == 0)) {
        int digit = lowest + share - 1;
        while (digit > lowest && above + sums[digit][kSums] < target) above += sums[digit--][kSums];
        found_digit = static_cast<uint32_t>(digit);
        found_above = above;
      }
    }
    SyncBlock();
    last.key |= found_digit << shift;
    last.above = found_above;
  }
  return last;
}

// The weight of a token that has `ties_before` tokens before it that equal the last one; 0 if it is
// not kept.
PAGEMILL_DEVICE uint64_t KeptWeight(const RowLimits& limits, float logit, int64_t ties_before) {
  const uint32_t key = KeyOf(logit);
  if (key < limits.last || (key == limits.last && ties_before >= limits.ties)) return 0;
  return limits.Weight(logit);
}

// Columns of a row.
struct Segment {
  int64_t begin, end;
  uint64_t before;      // the weight that is kept of the columns before
  int64_t ties_before;  // those of them that equal the last one
};

// The segment, of one for each warp, where the share `uniform` of the weight that is kept is
// reached, and that weight; an empty one if there is none.
PAGEMILL_DEVICE Segment FindSegment(const RowLimits& limits, double uniform, uint64_t* target) {
  PAGEMILL_SHARED(WarpSums, sums_of_ties);
  PAGEMILL_SHARED(WarpSums, sums_kept);
  const int warps = SumsOfWarps::Count();
  const int64_t length = (limits.size + warps - 1) / warps;
  const auto columns_of = [&](int warp) -> Segment {
    const int64_t begin = warp * length < limits.size ? warp * length : limits.size;
    return {begin, begin + length < limits.size ? begin + length : limits.size, 0, 0};
  };
  const Segment own = columns_of(Warp());
  uint64_t above = 0, ties = 0;
  ForColumns(limits.row, own.begin + Lane(), own.end, WarpLanes(), [&](int64_t, float logit) {
    const uint32_t key = KeyOf(logit);
    if (key > limits.last) above += limits.Weight(logit);
    if (key == limits.last) ++ties;
  });
  const uint64_t of_tie = limits.Weight(LogitOf(limits.last));
  const auto kept_ties = [&](int64_t before, uint64_t here) {
    const int64_t left = limits.ties > before ? limits.ties - before : 0;
    return static_cast<uint64_t>(left) < here ? static_cast<uint64_t>(left) : here;
  };
  ties = SumOfWarp(ties);
  const SumsOfWarps all_ties(ties, sums_of_ties);
  const auto ties_before = static_cast<int64_t>(all_ties.Before(Warp()));
  const SumsOfWarps kept(SumOfWarp(above) + kept_ties(ties_before, ties) * of_tie, sums_kept);
  *target = static_cast<uint64_t>(uniform * static_cast<double>(kept.Total()));
  uint64_t before = 0;
  for (int warp = 0; warp < warps; ++warp) {
    if (*target < before + kept.Of(warp)) {
      Segment found = columns_of(warp);
      found.before = before;
      found.ties_before = static_cast<int64_t>(all_ties.Before(warp));
      return found;
    }
    before += kept.Of(warp);
  }
  return {0, 0, 0, 0};
}

// A column of those kept, by the share `uniform` of their weight in the order of columns.
PAGEMILL_DEVICE int32_t DrawKept(const RowLimits& limits, double uniform, int32_t most_likely) {
  PAGEMILL_SHARED(int32_t, drawn);
  uint64_t target = 0;
  const Segment segment = FindSegment(limits, uniform, &target);
  // Each thread has a run of columns.
  const int64_t run = (segment.end - segment.begin + kThreads - 1) / kThreads;
  const int64_t first = segment.begin + static_cast<int64_t>(ThreadIndex().x) * run;
  const int64_t begin = first < segment.end ? first : segment.end;
  const int64_t end = begin + run < segment.end ? begin + run : segment.end;
  const auto is_tie = [&](int64_t i) { return KeyOf(limits.row[i]) == limits.last ? 1 : 0; };
  uint64_t own_ties = 0;
  for (int64_t i = begin; i < end; ++i) own_ties += is_tie(i);
  const int64_t ties_before =
      segment.ties_before + static_cast<int64_t>(SumOfThreadsBefore(own_ties));
  uint64_t own = 0;
  int64_t seen = ties_before;
  for (int64_t i = begin; i < end; ++i) {
    own += KeptWeight(limits, limits.row[i], seen);
    seen += is_tie(i);
  }
  if (ThreadIndex().x == 0) drawn = most_likely;
  uint64_t sum = segment.before + SumOfThreadsBefore(own);
  if (sum <= target && target < sum + own) {
    seen = ties_before;
    for (int64_t i = begin; i < end; ++i) {
      sum += KeptWeight(limits, limits.row[i], seen);
      seen += is_tie(i);
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

PAGEMILL_KERNEL_OF(kThreads, 1)
DrawToken(Rows<const float> x, int64_t size, const int32_t* columns, const float* values,
          Rows<const int32_t> draws, int32_t* y) {
  using ops::RowDraw;
  PAGEMILL_SHARED(DigitSums, sums);
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
    const auto target = static_cast<uint64_t>(top_k);
    limits.last = FindLast(limits, limits.last, target, ByNumber{}, sums).key;
  }
  if (top_p < 1) {
    const uint64_t total = SumFrom(limits, limits.last, ByWeight{});
    const auto share =
        static_cast<uint64_t>(static_cast<double>(top_p) * static_cast<double>(total));
    const uint64_t target = share > 0 ? share : 1;
    // Tokens of at most this weight are not needed to reach the target.
    const uint64_t least = (total - target) / static_cast<uint64_t>(size);
    const LastKey last = FindLast(limits, limits.last, target, ByWeight{least}, sums);
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
