#include <algorithm>
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
// numbers, so that sums do not depend on their order. A row is read once or twice, to list the few
// tokens that may be kept; digit by digit if there are many.

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 1024;
constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
// The weight of the most likely token. Rows of 2^20 columns have a total below 2^60.
constexpr uint64_t kOne = uint64_t{1} << 40;

// A row with the limits that are found so far: tokens whose key is above `last`, and those equal to
// it that are among the first `ties` of them.
struct RowLimits {
  const float* row;
  int64_t size;
  float most, inverse_temperature;
  uint32_t last;
  int64_t ties;

  PAGEMILL_DEVICE uint64_t Weight(float logit) const {
    return static_cast<uint64_t>(Exp((logit - most) * inverse_temperature) * static_cast<float>(kOne));
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

// Where tokens are read from. ForEach() calls body(column, logit) for a part of them in each thread.
struct TokensOfRow {
  const float* row;
  int64_t size;

  template <typename Body>
  PAGEMILL_DEVICE void ForEach(const Body& body) const {
    ForColumns(row, ThreadIndex().x, size, kThreads, [&](int64_t column, float logit) {
      body(static_cast<int32_t>(column), logit);
    });
  }
};

// Some tokens of a row, in shared memory: each warp has a part of the list.
struct ListedToken {
  int32_t column;
  float logit;
};
struct ListedTokens {
  const ListedToken* of_warp;
  int count;

  template <typename Body>
  PAGEMILL_DEVICE void ForEach(const Body& body) const {
    for (int i = Lane(); i < count; i += WarpLanes()) body(of_warp[i].column, of_warp[i].logit);
  }
};

// One token for each thread.
struct TokensOfThreads {
  float logit;

  template <typename Body>
  PAGEMILL_DEVICE void ForEach(const Body& body) const {
    body(static_cast<int32_t>(ThreadIndex().x), logit);
  }
};

// The sum of measure(column, logit) over tokens; the same in every thread.
template <typename Tokens, typename Measure>
PAGEMILL_DEVICE uint64_t SumOf(const Tokens& tokens, const Measure& measure) {
  PAGEMILL_SHARED(WarpSums, sums);
  uint64_t own = 0;
  tokens.ForEach([&](int32_t column, float logit) { own += measure(column, logit); });
  return SumsOfWarps(SumOfWarp(own), sums).Total();
}

// Sums over the tokens that have a digit. Most logits have one of a few first digits, and lanes that
// add to the same sum wait for each other, so each digit has several, and then one for all.
constexpr int kSums = 16;
using DigitSums = uint64_t[kDigits][kSums + 1];

// Orders of tokens: whole numbers of kBits bits.
struct ByLogit {
  static constexpr int kBits = 32;
  PAGEMILL_DEVICE uint32_t operator()(int32_t, float logit) const { return KeyOf(logit); }
};
struct ByColumn {  // the first is the largest
  static constexpr int kBits = 24;
  PAGEMILL_DEVICE uint32_t operator()(int32_t column, float) const { return ColumnOf(column); }
  PAGEMILL_DEVICE static uint32_t ColumnOf(uint32_t key) { return (1u << kBits) - 1 - key; }
};

struct LastKey {
  uint32_t key;
  uint64_t above;  // the sum over keys above it
};

// The largest key whose tokens, with those above, reach `target`, of sums of measure(column, logit),
// which reach it in all. `sums` is shared memory.
template <typename Order, typename Tokens, typename Measure>
PAGEMILL_DEVICE LastKey FindLast(const Tokens& tokens, uint64_t target, const Measure& measure,
                                 DigitSums& sums) {
  PAGEMILL_SHARED(uint32_t, found_digit);
  PAGEMILL_SHARED(uint64_t, found_above);
  const int thread = static_cast<int>(ThreadIndex().x);
  LastKey last = {0, 0};
  for (int shift = Order::kBits - kDigitBits; shift >= 0; shift -= kDigitBits) {
    SyncBlock();
    for (int i = thread; i < kDigits * kSums; i += kThreads) sums[i / kSums][i % kSums] = 0;
    SyncBlock();
    tokens.ForEach([&](int32_t column, float logit) {
      const uint32_t key = Order()(column, logit);
      if ((uint64_t{key} ^ last.key) >> (shift + kDigitBits) != 0) return;
      const uint64_t value = measure(column, logit);
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

// A row's tokens that may be kept, as far as there is room for them.
class TokenList {
 public:
  // Lists the tokens of a row with a key of at least limits.last and a weight above `least`.
  // `memory`: shared, for `room` tokens.
  PAGEMILL_DEVICE TokenList(const RowLimits& limits, uint64_t least, ListedToken* memory, int room) {
    PAGEMILL_SHARED(WarpSums, weights);
    PAGEMILL_SHARED(WarpSums, lists_without_room);
    const int room_of_warp = room / SumsOfWarps::Count();
    ListedToken* const list = memory + Warp() * room_of_warp;
    const LaneMask lanes_before = (LaneMask{1} << Lane()) - 1;
    int count = 0;
    uint64_t own = 0;
    constexpr int kAhead = 8;  // loads under way
    for (int64_t begin = 0; begin < limits.size; begin += kAhead * kThreads) {
      const int64_t first = begin + ThreadIndex().x;
      float logits[kAhead];
      PAGEMILL_UNROLL
      for (int j = 0; j < kAhead; ++j) {
        const int64_t column = first + j * kThreads;
        logits[j] = column < limits.size ? limits.row[column] : -INFINITY;
      }
      PAGEMILL_UNROLL
      for (int j = 0; j < kAhead; ++j) {
        const int64_t column = first + j * kThreads;
        const bool may_be_kept = column < limits.size && KeyOf(logits[j]) >= limits.last;
        const uint64_t weight = may_be_kept ? limits.Weight(logits[j]) : 0;
        const bool listed = weight > least;
        own += weight;
        const LaneMask lanes = Ballot(AllLanes(), listed);
        const int place = count + CountBits(lanes & lanes_before);
        if (listed && place < room_of_warp) list[place] = {static_cast<int32_t>(column), logits[j]};
        count += CountBits(lanes);
      }
    }
    tokens_ = {list, count};
    weight_ = SumsOfWarps(SumOfWarp(own), weights).Total();
    fits_ = SumsOfWarps(count > room_of_warp ? 1 : 0, lists_without_room).Total() == 0;
  }

  PAGEMILL_DEVICE bool Fits() const { return fits_; }
  PAGEMILL_DEVICE const ListedTokens& tokens() const { return tokens_; }
  // The sum over the tokens of the row with a key of at least limits.last.
  PAGEMILL_DEVICE uint64_t weight() const { return weight_; }

 private:
  ListedTokens tokens_;
  bool fits_;
  uint64_t weight_;
};

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

// A row's parameters, as its RowDraw has them.
struct DrawOptions {
  float temperature, min_p, top_p;
  int32_t top_k;
  uint64_t seed, position;

  PAGEMILL_DEVICE explicit DrawOptions(const int32_t* words)
      : temperature(Number(words, offsetof(ops::RowDraw, temperature))),
        min_p(Number(words, offsetof(ops::RowDraw, min_p))),
        top_p(Number(words, offsetof(ops::RowDraw, top_p))),
        top_k(Integer(words, offsetof(ops::RowDraw, top_k))),
        seed(uint64_t{Word(words, offsetof(ops::RowDraw, seed_high))} << 32 |
             Word(words, offsetof(ops::RowDraw, seed_low))),
        position(Word(words, offsetof(ops::RowDraw, position))) {}

 private:
  PAGEMILL_DEVICE static uint32_t Word(const int32_t* words, size_t offset) {
    return static_cast<uint32_t>(Integer(words, offset));
  }
};

PAGEMILL_DEVICE uint64_t TargetOf(float top_p, uint64_t total) {
  const auto share = static_cast<uint64_t>(static_cast<double>(top_p) * static_cast<double>(total));
  return share > 0 ? share : 1;
}

// The weight up to which no token is needed: by top-p, half of what it leaves out whatever the
// others weigh, as sums are rounded. With top-k, which counts before, those without weight: they
// come after all others.
PAGEMILL_DEVICE uint64_t LeastWeight(const DrawOptions& draw, int64_t size) {
  if (draw.top_k > 0) return 0;
  return (kOne - TargetOf(draw.top_p, kOne)) / 2 / static_cast<uint64_t>(size);
}

// Top-k and top-p, as limits. `total`: the weight of the tokens with a key of at least limits.last,
// before top-k.
template <typename Tokens>
PAGEMILL_DEVICE void Limit(const Tokens& tokens, const DrawOptions& draw, uint64_t total,
                           RowLimits& limits, DigitSums& sums) {
  const auto number = [&](int32_t, float logit) -> uint64_t {
    return KeyOf(logit) >= limits.last ? 1 : 0;
  };
  const auto weight = [&](int32_t, float logit) -> uint64_t {
    return KeyOf(logit) >= limits.last ? limits.Weight(logit) : 0;
  };
  if (draw.top_k > 0) {
    const auto target = static_cast<uint64_t>(draw.top_k);
    if (SumOf(tokens, number) > target) {
      limits.last = FindLast<ByLogit>(tokens, target, number, sums).key;
    }
    total = SumOf(tokens, weight);
  }
  if (draw.top_p < 1) {
    const uint64_t target = TargetOf(draw.top_p, total);
    // Tokens of at most this weight are not needed to reach the target.
    const uint64_t least = (total - target) / static_cast<uint64_t>(limits.size);
    const auto needed = [&](int32_t column, float logit) {
      const uint64_t own = weight(column, logit);
      return own > least ? own : 0;
    };
    const LastKey last = FindLast<ByLogit>(tokens, target, needed, sums);
    limits.last = last.key;
    const uint64_t of_tie = limits.Weight(LogitOf(last.key));
    const uint64_t left = target > last.above ? target - last.above : 1;
    limits.ties = of_tie == 0 ? 1 : static_cast<int64_t>((left + of_tie - 1) / of_tie);
  }
}

// Not above the key of the top_k-th token: the top_k-th of the threads' largest, of which there are
// kThreads.
PAGEMILL_DEVICE uint32_t LowestOfTopK(const TokensOfRow& tokens, int32_t top_k, DigitSums& sums) {
  float most = -INFINITY;
  tokens.ForEach([&](int32_t, float logit) { most = fmaxf(most, logit); });
  const auto one = [](int32_t, float) -> uint64_t { return 1; };
  return FindLast<ByLogit>(TokensOfThreads{most}, static_cast<uint64_t>(top_k), one, sums).key;
}

PAGEMILL_DEVICE int32_t DrawListed(const ListedTokens& tokens, const RowLimits& limits,
                                   double uniform, int32_t most_likely, DigitSums& sums) {
  const auto tie = [&](int32_t, float logit) -> uint64_t {
    return KeyOf(logit) == limits.last ? 1 : 0;
  };
  uint32_t last_tie = 0;  // the first columns are kept
  if (SumOf(tokens, tie) > static_cast<uint64_t>(limits.ties)) {
    last_tie = FindLast<ByColumn>(tokens, static_cast<uint64_t>(limits.ties), tie, sums).key;
  }
  const auto kept = [&](int32_t column, float logit) -> uint64_t {
    const uint32_t key = KeyOf(logit);
    const bool is_late_tie = key == limits.last && ByColumn()(column, logit) < last_tie;
    return key < limits.last || is_late_tie ? 0 : limits.Weight(logit);
  };
  const uint64_t total = SumOf(tokens, kept);
  const auto target = static_cast<uint64_t>(uniform * static_cast<double>(total));
  if (target >= total) return most_likely;
  const uint32_t key = FindLast<ByColumn>(tokens, target + 1, kept, sums).key;
  return static_cast<int32_t>(ByColumn::ColumnOf(key));
}

// Dynamic shared memory: a list of `room` tokens.
PAGEMILL_KERNEL_OF(kThreads, 1)
DrawToken(Rows<const float> x, int64_t size, const int32_t* columns, const float* values,
          Rows<const int32_t> draws, int32_t* y, int room) {
  PAGEMILL_SHARED(DigitSums, sums);
  const int64_t l = BlockIndex().x;
  const DrawOptions draw(draws[l]);
  const int32_t most_likely = columns[l];
  if (most_likely < 0 || !(draw.temperature > 0)) {
    if (ThreadIndex().x == 0) y[l] = most_likely;
    return;
  }
  const TokensOfRow row = {x[l], size};
  RowLimits limits = {row.row,          size, values[l], 1.0f / draw.temperature,
                      KeyOf(-INFINITY), INT64_MAX};
  if (draw.min_p > 0) limits.last = KeyOf(limits.most + draw.temperature * logf(draw.min_p));
  if (draw.top_k > 0 && draw.top_k <= kThreads) {
    const uint32_t lowest = LowestOfTopK(row, draw.top_k, sums);
    if (lowest > limits.last) limits.last = lowest;
  }
  const double uniform = ops::PhiloxUniform(draw.seed, draw.position);
  int32_t drawn = -1;
  if (draw.top_k > 0 || draw.top_p < 1) {
    const TokenList list(limits, LeastWeight(draw, size), DynamicShared<ListedToken>(), room);
    if (list.Fits()) {
      Limit(list.tokens(), draw, list.weight(), limits, sums);
      drawn = DrawListed(list.tokens(), limits, uniform, most_likely, sums);
    } else {
      Limit(row, draw, list.weight(), limits, sums);
      drawn = DrawKept(limits, uniform, most_likely);
    }
  } else {
    drawn = DrawKept(limits, uniform, most_likely);
  }
  if (ThreadIndex().x == 0) y[l] = drawn;
}

// Tokens for which a block has memory beside its sums.
int RoomOf(const device::GpuCapabilities& gpu) {
  constexpr int64_t kMost = 8192, kBeside = 40 << 10;
  const int64_t room = (gpu.shared_memory_per_block_bytes - kBeside) /
                       static_cast<int64_t>(sizeof(ListedToken));
  return static_cast<int>(std::clamp<int64_t>(room, 0, kMost));
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const int room = RoomOf(static_cast<const GpuStream&>(*context.stream).capabilities());
  Launch(*context.stream,
         {.blocks = {static_cast<uint32_t>(x.shape[0])},
          .threads = {kThreads},
          .shared_bytes = room * static_cast<int64_t>(sizeof(ListedToken))},
         DrawToken, RowsOf<const float>(x), x.shape[1], call.inputs[1].Data<const int32_t>(),
         call.inputs[2].Data<const float>(), RowsOf<const int32_t>(call.inputs[3]),
         call.outputs[0].Data<int32_t>(), room);
}

constexpr ops::Kernel kKernels[] = {{"draw_tokens", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> DrawTokensKernels() { return kKernels; }

}  // namespace pagemill::gpu
