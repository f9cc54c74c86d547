// File: cc/ops/paged_attention/attention_chunk_inl.h
// The three steps over one chunk of keys: scores, softmax, weighted values; over the `Vec` of the
// file that includes it (cc/ops/vec/vec_portable.h).
//
// Every score is one chain of fused multiply-adds over the dimensions, and every element of an
// accumulator one chain over the keys, whatever the number of rows in a register block. So a row's
// result is independent of its neighbours.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_CHUNK_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_CHUNK_INL_H_

#include <type_traits>

#include "cc/ops/kv_write/int4_row.h"
#include "cc/ops/paged_attention/attention_kernel.h"
#include "cc/ops/vec/vec_math.h"

namespace pagemill::ops {
namespace {

constexpr int kGroupsPerChunk = kAttentionChunk / kAttentionKeyGroup;
constexpr int kVecsPerGroup = kAttentionKeyGroup / Vec::kLanes;
constexpr int kVecsPerChunk = kGroupsPerChunk * kVecsPerGroup;
// Registers for accumulators; the others hold operands.
constexpr int kAccumulators = Vec::kRegisters == 32 ? 24 : 12;
constexpr int kMaxRows = kAccumulators / kVecsPerGroup < 6 ? kAccumulators / kVecsPerGroup : 6;

constexpr int AtMost(int value, int limit) { return value < limit ? value : limit; }

// Groups of keys that a block of `rows` rows scores at once, such that accumulators, one operand
// per group and a broadcast fit into the registers.
constexpr int GroupsAtOnce(int rows) {
  int groups = kGroupsPerChunk;
  while (groups > 1 && (rows + 1) * groups * kVecsPerGroup + 1 > Vec::kRegisters) --groups;
  return groups;
}

// Registers of values that a block of `rows` rows processes at once.
constexpr int ValuesAtOnce(int rows) {
  int vecs = 8;
  while (vecs > 2 && (rows + 1) * vecs + 1 > Vec::kRegisters) vecs /= 2;
  return vecs;
}

// uint16_t holds bf16, uint8_t f8_e4m3.
template <typename Element>
constexpr bool kIsInt4 = std::is_same_v<Element, Int4Pair>;
template <typename Element>
constexpr bool kHasScales = std::is_same_v<Element, int8_t> || kIsInt4<Element>;
// Elements of a key that are side by side.
template <typename Element>
constexpr int kSideBySide = kIsInt4<Element> ? 4 : 1;

// Addresses of the keys, or the values, of a chunk: one pointer for each group of 16.
template <typename Element, int kGroups = kGroupsPerChunk>
struct ChunkSide {
  // Keys [head_dim, block_size], at the group's first key; values [16, value_size].
  const Element* at[kGroups];
  // Another group, which is prefetched line by line while this one is read; or the same group, for
  // no prefetch.
  const Element* ahead[kGroups];
  // [16] scales of int8 and int4 keys, or values; unused for other elements.
  const float* scales[kGroups];
};

template <typename Key, typename Value, int kGroups = kGroupsPerChunk>
struct Chunk {
  ChunkSide<Key, kGroups> keys;
  ChunkSide<Value, kGroups> values;
};

// The keys [low, high) of the chunk that a row sees.
struct KeyRange {
  int low = 0;
  int high = 0;
  bool operator==(const KeyRange& o) const { return low == o.low && high == o.high; }
};

// Scales of each group, which multiply scores and weights instead of keys and values.
struct GroupScales {
  const float* const* keys = nullptr;
  const float* const* values = nullptr;
};

template <typename Key, typename Value, int kGroups>
GroupScales ScalesOf(const Chunk<Key, Value, kGroups>& chunk) {
  return {.keys = chunk.keys.scales, .values = chunk.values.scales};
}

// The keys of a chunk that a row sees, and what is added to their scores: ALiBi's slope (distance +
// j) for key j, in units of log2(e), or the biases of that distance.
struct RowKeys {
  KeyRange range;
  float growth = 1;  // by which capped scores are multiplied
  float slope = 0;
  int distance = 0;  // from the row's position to the chunk's first key; negative if it is past
  // Entries of DistanceBiases::rows and columns for the row's query and head, in nats.
  const float* biases = nullptr;
  const float* column_biases = nullptr;
  const float* key_biases = nullptr;    // of DistanceBiases::keys, for the chunk's first key
  int grid_row = 0, grid_column = 0;    // of the row's position, in a grid
  const GroupScales* scales = nullptr;  // of int8 and int4 keys and values
};

// 0, 1, 2, ...; f32 represents all positions exactly.
constexpr int kNumbers = kAttentionSplit;
struct Numbers {
  constexpr Numbers() {
    for (int i = 0; i < kNumbers; ++i) values[i] = static_cast<float>(i);
  }
  float values[kNumbers] = {};
};
inline constexpr Numbers kCounted;

// Adds the ALiBi term to scores `v` of the kLanes keys from `first` on.
inline Vec::F AddSlope(Vec::F v, const RowKeys& keys, int first) {
  const Vec::F start = Vec::Set(static_cast<float>(keys.distance));
  const Vec::F distance = Vec::Add(Vec::Load(kCounted.values + first), start);
  return Vec::Fma(Vec::Set(keys.slope), distance, v);
}

// The biases of kLanes distances from `distance` on, of those of one query and head; those beyond
// the reach are that of the reach.
inline Vec::F BiasesFrom(const BiasTable& table, const float* biases, int distance) {
  const int last = 2 * table.reach, entry = distance + table.reach;
  if (entry >= 0 && entry + Vec::kLanes - 1 <= last) return Vec::Load(biases + entry);
  float lanes[Vec::kLanes];
  for (int i = 0; i < Vec::kLanes; ++i) {
    const int clamped = entry + i < 0 ? 0 : entry + i < last ? entry + i : last;
    lanes[i] = biases[clamped];
  }
  return Vec::Load(lanes);
}

inline float BiasAt(const BiasTable& table, const float* biases, int distance) {
  const int within = distance < -table.reach  ? -table.reach
                     : distance > table.reach ? table.reach
                                              : distance;
  return biases[table.reach + within];
}

// The biases of kLanes keys from `first` on by the distances of rows and columns of a grid.
inline Vec::F GridBiases(const DistanceBiases& biases, const RowKeys& keys, int first) {
  const int width = biases.grid_columns;
  const int key = keys.grid_row * width + keys.grid_column + keys.distance + first;
  int row = key / width - keys.grid_row, column = key % width;
  if (column + Vec::kLanes <= width) {
    const Vec::F of_row = Vec::Set(BiasAt(biases.rows, keys.biases, row));
    const int distance = column - keys.grid_column;
    return Vec::Add(of_row, BiasesFrom(biases.columns, keys.column_biases, distance));
  }
  float lanes[Vec::kLanes];
  for (int i = 0; i < Vec::kLanes; ++i) {
    lanes[i] = BiasAt(biases.rows, keys.biases, row) +
               BiasAt(biases.columns, keys.column_biases, column - keys.grid_column);
    if (++column == width) {
      column = 0;
      ++row;
    }
  }
  return Vec::Load(lanes);
}

// The biases that kLanes keys from `first` on have for their distances. Keys behind the row's range
// may be behind the step's last row: they count as the last key of the range.
inline Vec::F BiasesOfKeys(const BiasTable& table, const RowKeys& keys, int first) {
  float lanes[Vec::kLanes];
  for (int i = 0; i < Vec::kLanes; ++i) {
    const int key = AtMost(first + i, keys.range.high - 1);
    lanes[i] = BiasAt(table, keys.key_biases + key * table.row_stride, keys.distance + key);
  }
  return Vec::Load(lanes);
}

// Likewise, with the biases of each distance.
inline Vec::F AddBiases(const AttentionShape& shape, Vec::F v, const RowKeys& keys, int first) {
  const DistanceBiases& biases = shape.biases;
  const Vec::F unit = Vec::Set(shape.bias_unit);
  if (biases.rows.data != nullptr) {
    const Vec::F of_query = biases.grid_columns > 0
                                ? GridBiases(biases, keys, first)
                                : BiasesFrom(biases.rows, keys.biases, keys.distance + first);
    v = Vec::Fma(unit, of_query, v);
  }
  if (biases.keys.data == nullptr) return v;
  return Vec::Fma(unit, BiasesOfKeys(biases.keys, keys, first), v);
}

// Scores of products `v`, in units of shape.query_scale, with the kLanes keys from `first` on.
inline Vec::F ScoresOf(const AttentionShape& shape, Vec::F v, const RowKeys& keys, int first) {
  if (shape.biases.AreThere()) v = AddBiases(shape, v, keys, first);
  if (shape.soft_cap != 0) v = Vec::Mul(Tanh(v), Vec::Set(shape.soft_cap));
  if (shape.grows_from > 0) v = Vec::Mul(v, Vec::Set(keys.growth));
  return shape.slopes != nullptr ? AddSlope(v, keys, first) : v;
}

// scores[r][16 g + j] = sum_d q[r][d] key[g][d][j] for kRows rows and kGroups groups from `first`.
template <int kRows, int kGroups, typename Element>
[[gnu::noinline]] void ScoreBlock(const AttentionShape& shape, const float* q,
                                  const ChunkSide<Element>& side, int first, float* scores) {
  Vec::F sum[kRows][kGroups][kVecsPerGroup];
  for (int r = 0; r < kRows; ++r) {
    for (int g = 0; g < kGroups; ++g) {
      for (int v = 0; v < kVecsPerGroup; ++v) sum[r][g][v] = Vec::Zero();
    }
  }
  const Element* keys[kGroups];
  for (int g = 0; g < kGroups; ++g) keys[g] = side.at[first + g];
  for (int d = 0; d < shape.head_dim; ++d) {
    Vec::F key[kGroups][kVecsPerGroup];
    for (int g = 0; g < kGroups; ++g) {
      for (int v = 0; v < kVecsPerGroup; ++v) key[g][v] = Vec::Load(keys[g] + v * Vec::kLanes);
      keys[g] += shape.block_size;
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec::F factor = Vec::Set(q[r * shape.padded_dim + d]);
      for (int g = 0; g < kGroups; ++g) {
        for (int v = 0; v < kVecsPerGroup; ++v) {
          sum[r][g][v] = Vec::Fma(factor, key[g][v], sum[r][g][v]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int g = 0; g < kGroups; ++g) {
      float* target = scores + r * kAttentionChunk + (first + g) * kAttentionKeyGroup;
      for (int v = 0; v < kVecsPerGroup; ++v) Vec::Store(target + v * Vec::kLanes, sum[r][g][v]);
    }
  }
}

// Groups [first, last) for kRows rows, as many groups at once as there are registers.
template <int kRows, typename Element>
inline void ScoreRows(const AttentionShape& shape, const float* q, const ChunkSide<Element>& keys,
                      int first, int last, float* scores) {
  constexpr int kMost = GroupsAtOnce(kRows);
  while (last - first >= kMost) {
    ScoreBlock<kRows, kMost>(shape, q, keys, first, scores);
    first += kMost;
  }
  if constexpr (kMost > 1) {
    if (last - first == 3) ScoreBlock<kRows, AtMost(3, kMost)>(shape, q, keys, first, scores);
    if (last - first == 2) ScoreBlock<kRows, AtMost(2, kMost)>(shape, q, keys, first, scores);
    if (last - first == 1) ScoreBlock<kRows, 1>(shape, q, keys, first, scores);
  }
}

// The body of SoftmaxRow; kWhole: the row sees the whole chunk.
template <bool kWhole>
inline float SoftmaxScores(const AttentionShape& shape, const RowKeys& keys, float* scores,
                           float* max, float* sum) {
  constexpr int kLanes = Vec::kLanes;
  const KeyRange range = keys.range;
  const GroupScales* scales = keys.scales;
  const int first = kWhole ? 0 : range.low / kLanes;
  const int last = kWhole ? kVecsPerChunk : (range.high + kLanes - 1) / kLanes;
  // Keys of the row's vectors that it does not see are replaced by `other`.
  const auto seen = [&](Vec::F v, Vec::F other, int i) {
    return kWhole ? v : Vec::Range(v, other, range.low - i * kLanes, range.high - i * kLanes);
  };
  const auto of_vector = [](const float* const* of_groups, int i) {
    return Vec::Load(of_groups[i / kVecsPerGroup] + i % kVecsPerGroup * kLanes);
  };
  const Vec::F none = Vec::Set(-__builtin_inff());
  Vec::F highest = none;
  Vec::F score[kVecsPerChunk];
  for (int i = first; i < last; ++i) {
    Vec::F v = Vec::Load(scores + i * kLanes);
    if (scales != nullptr) v = Vec::Mul(v, of_vector(scales->keys, i));
    score[i] = seen(ScoresOf(shape, v, keys, i * kLanes), none, i);
    highest = Vec::Max(highest, score[i]);
  }
  const float chunk_max = Vec::Maximum(highest);
  const float new_max = *max > chunk_max ? *max : chunk_max;
  const Vec::F shift = Vec::Set(new_max);
  const Vec::F scale = Exp2(Vec::Sub(Vec::Set(*max), shift));
  Vec::F total[kVecsPerGroup];
  for (int j = 0; j < kVecsPerGroup; ++j) total[j] = Vec::Mul(Vec::Load(sum + j * kLanes), scale);
  for (int i = first; i < last; ++i) {
    const Vec::F weight = seen(Exp2(Vec::Sub(score[i], shift)), Vec::Zero(), i);
    const Vec::F scaled =
        scales == nullptr ? weight
                          : seen(Vec::Mul(weight, of_vector(scales->values, i)), Vec::Zero(), i);
    Vec::Store(scores + i * kLanes, scaled);
    total[i % kVecsPerGroup] = Vec::Add(total[i % kVecsPerGroup], weight);
  }
  for (int j = 0; j < kVecsPerGroup; ++j) Vec::Store(sum + j * kLanes, total[j]);
  *max = new_max;
  return Vec::First(scale);
}

// Converts a row's scores in its range to weights 2^(score - max); weights of other keys in the
// same vectors become 0; weights of int8 values are multiplied by their scales. Updates max and
// sum; returns the factor that rescales the row's accumulator first. Not inlined: one copy of the
// arithmetic for all rows; the row's own range selects one of its two bodies.
[[gnu::noinline]] inline float SoftmaxRow(const AttentionShape& shape, const RowKeys& keys,
                                          float* scores, float* max, float* sum) {
  if (keys.range.low == 0 && keys.range.high == kAttentionChunk) {
    return SoftmaxScores<true>(shape, keys, scores, max, sum);
  }
  return SoftmaxScores<false>(shape, keys, scores, max, sum);
}

// kVecs registers of dimensions from `dim`, for kRows rows that see the same keys: acc[r] = acc[r]
// scale[r] + sum_j weight[r][j] value[j]. If kPartial, only the first `width` dimensions of the
// last register exist.
template <int kRows, int kVecs, bool kPartial, typename Element>
[[gnu::noinline]] void ValueBlock(const AttentionShape& shape, const ChunkSide<Element>& values,
                                  KeyRange range, int dim, const float* weights, const float* scale,
                                  float* acc) {
  Vec::F sum[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      sum[r][v] = Vec::Mul(Vec::Load(acc + r * shape.padded_dim + dim + v * Vec::kLanes),
                           Vec::Set(scale[r]));
    }
  }
  int key = range.low;
  while (key < range.high) {
    const int group = key / kAttentionKeyGroup;
    const int end = AtMost((group + 1) * kAttentionKeyGroup, range.high);
    const Element* value =
        values.at[group] + (key - group * kAttentionKeyGroup) * shape.value_size + dim;
    for (; key < end; ++key, value += shape.value_size) {
      Vec::F element[kVecs];
      for (int v = 0; v < kVecs; ++v) {
        element[v] =
            kPartial ? Vec::LoadN(value, shape.head_dim - dim) : Vec::Load(value + v * Vec::kLanes);
      }
      for (int r = 0; r < kRows; ++r) {
        const Vec::F weight = Vec::Set(weights[r * kAttentionChunk + key]);
        for (int v = 0; v < kVecs; ++v) sum[r][v] = Vec::Fma(weight, element[v], sum[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVecs; ++v) {
      Vec::Store(acc + r * shape.padded_dim + dim + v * Vec::kLanes, sum[r][v]);
    }
  }
}

// All dimensions for kRows rows that see the same keys.
template <int kRows, typename Element>
inline void ValueRows(const AttentionShape& shape, const ChunkSide<Element>& values, KeyRange range,
                      const float* weights, const float* scale, float* acc) {
  constexpr int kMost = ValuesAtOnce(kRows);
  constexpr int kLanes = Vec::kLanes;
  int dim = 0;
  const auto left = [&] { return (shape.head_dim - dim) / kLanes; };
  for (; left() >= kMost; dim += kMost * kLanes) {
    ValueBlock<kRows, kMost, false>(shape, values, range, dim, weights, scale, acc);
  }
  if constexpr (kMost > 4) {
    if (left() >= 4) {
      ValueBlock<kRows, 4, false>(shape, values, range, dim, weights, scale, acc);
      dim += 4 * kLanes;
    }
  }
  if constexpr (kMost > 2) {
    if (left() >= 2) {
      ValueBlock<kRows, 2, false>(shape, values, range, dim, weights, scale, acc);
      dim += 2 * kLanes;
    }
  }
  if (left() >= 1) {
    ValueBlock<kRows, 1, false>(shape, values, range, dim, weights, scale, acc);
    dim += kLanes;
  }
  if (dim < shape.head_dim) {
    ValueBlock<kRows, 1, true>(shape, values, range, dim, weights, scale, acc);
  }
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_CHUNK_INL_H_
