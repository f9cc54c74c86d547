// The bodies of a LatentKernel.
//
// The context is read once, kKeys tokens at a time, which stay in L1 for all rows. A row keeps its
// largest score and its sum of weights; its weighted sum of latents is y itself, rescaled when a
// larger score occurs. Up to kBlockRows rows of one token, which see the same keys, are computed
// together; each score and each element of y is one chain of multiply-adds in the same order
// however rows are blocked. Rows of a cache in fp8 become floats when their tile is read, so that
// the sums have the bits of a cache of another type with the same values.
#include "cc/ops/latent_attention/latent_rows.h"

#include "cc/ops/latent_attention/decode_latents_inl.h"
#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"

namespace pagemill::ops {
namespace {

constexpr int kKeys = kLatentKeys;
constexpr int kKeyBlock = 4;     // keys whose scores are summed at once
constexpr int kColumnBlock = 4;  // vectors of y that stay in registers for all keys
constexpr int kBlockRows = Vec::kRegisters >= 32 ? 4 : 2;

// Consecutive rows of the context, or of those chosen: [size + rope_size] each.
template <typename Element>
struct LatentKeys {
  const Element* key[kKeys];
};

// Softmax state of a row.
struct LatentState {
  float max = -__builtin_inff();
  float sum = 0;
};

// kRows heads of one token.
template <int kRows>
struct LatentHeads {
  const float* q[kRows];
  const float* rope[kRows];
  float* y[kRows];
  LatentState* state;
};

// Where row `key` of what the tile sees lies, in a cache with rows of `row_bytes`.
inline const uint8_t* LocateKey(const LatentRows& r, int32_t key, int64_t row_bytes) {
  const int32_t position = r.chosen != nullptr ? r.chosen[key] : key;
  const uint8_t* const page = static_cast<const uint8_t*>(r.cache) +
                              r.block_table[position / r.block_size] * r.page_stride_bytes;
  return page + (position % r.block_size) * row_bytes;
}

// Keys of a tile that some row sees: [first, count), counted from `begin`. `end` is that of the
// last tile.
struct KeyRange {
  int32_t begin, first, count, end;
};

// Prefetches the row of the next tile that is as far in it as key `k` is in this one. Always
// inlined: GCC drops calls of functions that only prefetch.
[[gnu::always_inline]] inline void PrefetchNext(const LatentRows& r, const KeyRange& range,
                                                int32_t k, int64_t row_bytes) {
  constexpr int64_t kLine = 64;
  if (range.begin + kKeys + k >= range.end) return;
  const uint8_t* const row = LocateKey(r, range.begin + kKeys + k, row_bytes);
  for (int64_t i = 0; i < row_bytes; i += kLine) __builtin_prefetch(row + i);
}

// A cache whose rows are as kernels compute with them.
template <typename T>
struct PlainRows {
  using Element = T;

  static LatentKeys<T> Locate(const LatentRows& r, const KeyRange& range) {
    LatentKeys<T> keys;
    const int64_t row_bytes = (r.size + r.rope_size) * static_cast<int64_t>(sizeof(T));
    for (int32_t k = range.first; k < range.count; ++k) {
      keys.key[k] = reinterpret_cast<const T*>(LocateKey(r, range.begin + k, row_bytes));
    }
    return keys;
  }
};

// Rows that are decoded, while those of the next tile are prefetched: they are read once and soon,
// where plain rows are read again and again.
struct F8Rows {
  using Element = float;

  static LatentKeys<float> Locate(const LatentRows& r, const KeyRange& range) {
    LatentKeys<float> keys;
    const int64_t width = r.size + r.rope_size;
    const LatentF8Row row = {.codes = width - r.bf16_elements, .rest = r.bf16_elements};
    for (int32_t k = range.first; k < range.count; ++k) {
      PrefetchNext(r, range, k, row.bytes());
      float* const decoded = r.decoded + k * width;
      DecodeLatent(row, LocateKey(r, range.begin + k, row.bytes()), decoded);
      keys.key[k] = decoded;
    }
    return keys;
  }
};

// sums[row][key] += x[row] key[key][offset...], over `size` elements.
template <int kRows, int kCount, typename Element>
inline void AddProducts(const float* const* x, const Element* const* key, int64_t offset, int size,
                        Vec::F sums[kRows][kCount]) {
  const auto add = [&](const auto& load_x, const auto& load_key) {
    Vec::F k[kCount];
    for (int j = 0; j < kCount; ++j) k[j] = load_key(key[j] + offset);
    for (int row = 0; row < kRows; ++row) {
      const Vec::F v = load_x(x[row]);
      for (int j = 0; j < kCount; ++j) sums[row][j] = Vec::Fma(v, k[j], sums[row][j]);
    }
  };
  int i = 0;
  for (; i + Vec::kLanes <= size; i += Vec::kLanes) {
    add([i](const float* p) { return Vec::Load(p + i); },
        [i](const Element* p) { return Vec::Load(p + i); });
  }
  const int rest = size - i;
  if (rest == 0) return;
  add([i, rest](const float* p) { return Vec::LoadN(p + i, rest); },
      [i, rest](const Element* p) { return Vec::LoadN(p + i, rest); });
}

// Scores of kCount keys from `first` on, in powers of 2.
template <int kRows, int kCount, typename Element>
inline void ScoreKeys(const LatentRows& r, const LatentHeads<kRows>& heads,
                      const Element* const* keys, int first, float scores[kRows][kKeys]) {
  Vec::F sums[kRows][kCount];
  for (int row = 0; row < kRows; ++row) {
    for (int j = 0; j < kCount; ++j) sums[row][j] = Vec::Zero();
  }
  const Element* const* key = keys + first;
  AddProducts<kRows, kCount>(heads.q, key, 0, r.size, sums);
  AddProducts<kRows, kCount>(heads.rope, key, r.size, r.rope_size, sums);
  for (int row = 0; row < kRows; ++row) {
    for (int j = 0; j < kCount; ++j) {
      scores[row][first + j] = Vec::Sum(sums[row][j]) * r.log2_scale;
    }
  }
}

// Converts scores to weights; returns the factor that rescales the row's sums so far.
inline float WeighKeys(int count, float* scores, LatentState* state) {
  float max = state->max;
  for (int k = 0; k < count; ++k) max = scores[k] > max ? scores[k] : max;
  Vec::F sum = Vec::Zero();
  for (int k = 0; k < count; k += Vec::kLanes) {
    const int n = count - k < Vec::kLanes ? count - k : Vec::kLanes;
    const Vec::F weight = Exp2(Vec::Sub(Vec::Load(scores + k), Vec::Set(max)));
    const Vec::F visible = Vec::Range(weight, Vec::Zero(), 0, n);
    Vec::Store(scores + k, visible);
    sum = Vec::Add(sum, visible);
  }
  const bool first = state->max == -__builtin_inff();
  const float factor = first ? 0.0f : Vec::First(Exp2(Vec::Set(state->max - max)));
  state->sum = state->sum * factor + Vec::Sum(sum);
  state->max = max;
  return factor;
}

// y = y factor + weights keys, in kColumns vectors of y from column `column` on. `load` and `store`
// move one vector.
template <int kRows, int kColumns, typename Element, typename Load, typename Store>
inline void AddValues(const LatentHeads<kRows>& heads, const Element* const* key, int count,
                      const float weights[kRows][kKeys], const float* factor, int64_t column,
                      const Load& load, const Store& store) {
  Vec::F sums[kRows][kColumns];
  for (int row = 0; row < kRows; ++row) {
    for (int c = 0; c < kColumns; ++c) {
      const Vec::F y = load(heads.y[row] + column + c * Vec::kLanes);
      sums[row][c] = Vec::Mul(y, Vec::Set(factor[row]));
    }
  }
  for (int k = 0; k < count; ++k) {
    Vec::F value[kColumns];
    for (int c = 0; c < kColumns; ++c) value[c] = load(key[k] + column + c * Vec::kLanes);
    for (int row = 0; row < kRows; ++row) {
      const Vec::F weight = Vec::Set(weights[row][k]);
      for (int c = 0; c < kColumns; ++c) {
        sums[row][c] = Vec::Fma(weight, value[c], sums[row][c]);
      }
    }
  }
  for (int row = 0; row < kRows; ++row) {
    for (int c = 0; c < kColumns; ++c) {
      store(heads.y[row] + column + c * Vec::kLanes, sums[row][c]);
    }
  }
}

// Adds `count` keys, all of them visible to the token of `heads`.
template <int kRows, typename Element>
inline void AttendKeys(const LatentRows& r, const LatentHeads<kRows>& heads,
                       const Element* const* keys, int count) {
  float scores[kRows][kKeys];
  int k = 0;
  for (; k + kKeyBlock <= count; k += kKeyBlock) {
    ScoreKeys<kRows, kKeyBlock>(r, heads, keys, k, scores);
  }
  for (; k < count; ++k) ScoreKeys<kRows, 1>(r, heads, keys, k, scores);
  float factor[kRows];
  for (int row = 0; row < kRows; ++row) {
    for (int i = count; i < kKeys; ++i) scores[row][i] = 0;
    factor[row] = WeighKeys(count, scores[row], heads.state + row);
  }
  const auto load = [](const auto* p) { return Vec::Load(p); };
  const auto store = [](float* p, Vec::F v) { Vec::Store(p, v); };
  int column = 0;
  for (; column + kColumnBlock * Vec::kLanes <= r.size; column += kColumnBlock * Vec::kLanes) {
    AddValues<kRows, kColumnBlock>(heads, keys, count, scores, factor, column, load, store);
  }
  for (; column + Vec::kLanes <= r.size; column += Vec::kLanes) {
    AddValues<kRows, 1>(heads, keys, count, scores, factor, column, load, store);
  }
  const int rest = r.size - column;
  if (rest == 0) return;
  AddValues<kRows, 1>(
      heads, keys, count, scores, factor, column,
      [rest](const auto* p) { return Vec::LoadN(p, rest); },
      [rest](float* p, Vec::F v) { Vec::StoreN(p, v, rest); });
}

inline float* ResultOf(const LatentRows& r, int32_t row) {
  return r.y + row / r.heads * r.y_stride + static_cast<int64_t>(row % r.heads) * r.size;
}

template <int kRows, typename Element>
inline void AttendBlock(const LatentRows& r, int32_t row, const Element* const* keys, int count,
                        LatentState* states) {
  LatentHeads<kRows> heads;
  heads.state = states + (row - r.first_row);
  const int64_t token = row / r.heads, head = row % r.heads;
  for (int i = 0; i < kRows; ++i) {
    heads.q[i] = r.q + token * r.q_stride + (head + i) * r.size;
    heads.rope[i] = r.rope + token * r.rope_stride + (head + i) * r.rope_size;
    heads.y[i] = ResultOf(r, row + i);
  }
  AttendKeys<kRows>(r, heads, keys, count);
}

// The keys that a token of the step sees, without a choice, are those from FirstKey() to before
// EndOfKeys().
inline int32_t FirstKey(const LatentRows& r, int32_t token) {
  const int32_t first = r.first_position + token + 1 - r.window;
  return r.window > 0 && first > 0 ? first : 0;
}
inline int32_t EndOfKeys(const LatentRows& r, int32_t token) {
  return (r.first_position + token + 1) / r.tokens_of_row;
}

template <typename Cache>
void AttendRows(const LatentRows& r) {
  LatentState states[kMaxLatentRows];
  const int32_t end = r.first_row + r.rows;
  for (int32_t row = r.first_row; row < end; ++row) {
    float* const y = ResultOf(r, row);
    for (int i = 0; i < r.size; ++i) y[i] = 0;
  }
  const bool chooses = r.chosen != nullptr;
  const int32_t keys_end = chooses ? r.num_chosen : EndOfKeys(r, (end - 1) / r.heads);
  // Keys are grouped by their position, whatever the first one that is seen.
  const int32_t first_key = FirstKey(r, r.first_row / r.heads);
  for (int32_t begin = first_key / kKeys * kKeys; begin < keys_end; begin += kKeys) {
    const int32_t count = keys_end - begin < kKeys ? keys_end - begin : kKeys;
    const LatentKeys<typename Cache::Element> keys =
        Cache::Locate(r, {.begin = begin,
                          .first = first_key > begin ? first_key - begin : 0,
                          .count = count,
                          .end = keys_end});
    for (int32_t row = r.first_row; row < end;) {
      const int32_t token = row / r.heads;
      const int32_t left = (token + 1) * r.heads < end ? (token + 1) * r.heads - row : end - row;
      const int32_t seen = chooses ? count : EndOfKeys(r, token) - begin;
      const int32_t first = FirstKey(r, token) > begin ? FirstKey(r, token) - begin : 0;
      const int32_t visible = (seen < count ? seen : count) - first;
      const int32_t block = left < kBlockRows ? 1 : kBlockRows;
      if (visible > 0 && block > 1) {
        AttendBlock<kBlockRows>(r, row, keys.key + first, visible, states);
      } else if (visible > 0) {
        AttendBlock<1>(r, row, keys.key + first, visible, states);
      }
      row += block;
    }
  }
  for (int32_t row = r.first_row; row < end; ++row) {
    float* const y = ResultOf(r, row);
    const LatentState& state = states[row - r.first_row];
    if (r.totals != nullptr) r.totals[row - r.first_row] = {state.max, state.sum};
    if (state.sum == 0) continue;  // it sees nothing
    const float inverse = 1.0f / state.sum;
    for (int i = 0; i < r.size; ++i) y[i] *= inverse;
  }
}

[[maybe_unused]] constexpr LatentKernel kKernel = {.f32 = AttendRows<PlainRows<float>>,
                                                   .bf16 = AttendRows<PlainRows<uint16_t>>,
                                                   .f8 = AttendRows<F8Rows>};

}  // namespace

const LatentKernel PAGEMILL_VEC_NAME(kLatent) = kKernel;

}  // namespace pagemill::ops
