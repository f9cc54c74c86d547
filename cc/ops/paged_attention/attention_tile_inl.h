// File: cc/ops/paged_attention/attention_tile_inl.h
// The functions of an AttentionKernel, over the `Vec` of the file that includes it
// (cc/ops/vec/vec_portable.h).
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_TILE_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_TILE_INL_H_

#include "cc/ops/paged_attention/attention_int4_inl.h"

namespace pagemill::ops {
namespace {

constexpr int kSumLanes = kAttentionKeyGroup;

// The keys of the chunk of `size` at `begin` that row `row` of the tile sees; none if high <= low.
inline KeyRange VisibleKeys(const AttentionShape& shape, const AttentionTile& tile, int row,
                            int32_t begin, int size = kAttentionChunk) {
  const int32_t position = tile.first_position + (tile.first_row + row) / shape.group;
  const int32_t high = EndOfKeys(shape, tile, position);
  const int32_t low = FirstKey(shape, tile, position);
  return {.low = low > begin ? low - begin : 0, .high = high - begin < size ? high - begin : size};
}

inline int Head(const AttentionShape& shape, const AttentionTile& tile, int row) {
  return tile.kv_head * shape.group + (tile.first_row + row) % shape.group;
}

inline RowKeys KeysOfRow(const AttentionShape& shape, const AttentionTile& tile, int row,
                         int32_t begin, KeyRange range) {
  RowKeys keys{.range = range};
  const int32_t position = tile.first_position + (tile.first_row + row) / shape.group;
  if (shape.grows_from > 0 && position > shape.grows_from) {
    keys.growth = shape.growth * __builtin_logf(static_cast<float>(position));
  }
  if (shape.slopes == nullptr && !shape.biases.AreThere()) return keys;
  keys.distance = begin - position;
  const int head = Head(shape, tile, row);
  if (shape.slopes != nullptr) keys.slope = shape.slopes[head] * kLog2E;
  if (shape.biases.keys.data != nullptr) {
    const int64_t first_key = tile.first_query - tile.first_position + begin;
    keys.key_biases = shape.biases.keys.Of(first_key, head);
  }
  if (shape.biases.rows.data == nullptr) return keys;
  const int64_t query = tile.first_query + (tile.first_row + row) / shape.group;
  keys.biases = shape.biases.rows.Of(query, head);
  if (shape.biases.grid_columns == 0) return keys;
  keys.column_biases = shape.biases.columns.Of(query, head);
  keys.grid_row = position / shape.biases.grid_columns;
  keys.grid_column = position % shape.biases.grid_columns;
  return keys;
}

// Rows [first, last) of a tile.
struct RowRange {
  int first = 0;
  int last = 0;
};

// The rows that see a key of the chunk of `size` at `begin`: without causality every row sees the
// same keys; with it, or with a window or ranges, later rows see later ones.
inline RowRange RowsThatSee(const AttentionShape& shape, const AttentionTile& tile, int32_t begin,
                            int size) {
  RowRange rows{.first = 0, .last = tile.rows};
  while (rows.first < rows.last && VisibleKeys(shape, tile, rows.first, begin, size).high <= 0) {
    ++rows.first;
  }
  while (rows.last > rows.first &&
         VisibleKeys(shape, tile, rows.last - 1, begin, size).low >= size) {
    --rows.last;
  }
  return rows;
}

// The keys and values of a KV head in a block, and their scales, if the elements have any.
template <typename Key, typename Value>
struct HeadPages {
  const Key* keys;
  const Value* values;
  const float* key_scales = nullptr;
  const float* value_scales = nullptr;
};

template <typename Key, typename Value>
inline HeadPages<Key, Value> LocateHead(const AttentionShape& shape, int64_t block, int kv_head) {
  const int64_t key_page = static_cast<int64_t>(shape.key_size) * shape.block_size;
  const int64_t value_page = static_cast<int64_t>(shape.value_size) * shape.block_size;
  const Key* const keys = reinterpret_cast<const Key*>(static_cast<const char*>(shape.cache) +
                                                       block * shape.block_stride_bytes);
  const Value* const values = reinterpret_cast<const Value*>(keys + shape.kv_heads * key_page);
  HeadPages<Key, Value> head{.keys = keys + kv_head * key_page,
                             .values = values + kv_head * value_page};
  if constexpr (kHasScales<Key>) {
    const float* scales = reinterpret_cast<const float*>(values + shape.kv_heads * value_page);
    head.key_scales = scales + kv_head * shape.block_size;
    head.value_scales = head.key_scales + shape.kv_heads * shape.block_size;
  }
  return head;
}

template <typename Key, typename Value, int kGroups = kGroupsPerChunk>
inline Chunk<Key, Value, kGroups> LocateChunk(const AttentionShape& shape,
                                              const AttentionTile& tile, int32_t begin,
                                              int first_group, int last_group) {
  Chunk<Key, Value, kGroups> chunk = {};
  for (int g = first_group; g < last_group; ++g) {
    const int32_t key = begin + g * kAttentionKeyGroup;
    const int32_t offset = key % shape.block_size;
    const auto head =
        LocateHead<Key, Value>(shape, tile.block_table[key / shape.block_size], tile.kv_head);
    chunk.keys.at[g] = head.keys + int64_t{offset} * kSideBySide<Key>;
    chunk.values.at[g] = head.values + static_cast<int64_t>(offset) * shape.value_size;
    chunk.keys.ahead[g] = chunk.keys.at[g];
    chunk.values.ahead[g] = chunk.values.at[g];
    if constexpr (kHasScales<Key>) {
      chunk.keys.scales[g] = head.key_scales + offset;
      chunk.values.scales[g] = head.value_scales + offset;
    }
  }
  return chunk;
}

// Calls step<kRows>(row) for blocks of at most kMaxRows rows that cover [row, end).
template <typename Step>
inline void ForRowBlocks(int row, int end, const Step& step) {
  if constexpr (kMaxRows >= 6) {
    for (; end - row >= 6; row += 6) step.template operator()<6>(row);
  }
  if constexpr (kMaxRows >= 4) {
    for (; end - row >= 4; row += 4) step.template operator()<4>(row);
  }
  if constexpr (kMaxRows >= 3) {
    for (; end - row >= 3; row += 3) step.template operator()<3>(row);
  }
  for (; end - row >= 2; row += 2) step.template operator()<2>(row);
  if (end - row == 1) step.template operator()<1>(row);
}

// The rows [first, last) of a tile and the groups of keys of a chunk of which they see a part.
struct ChunkRows {
  int32_t begin = 0;  // of the chunk
  int first = 0;
  int last = 0;
  int first_group = 0;
  int last_group = 0;
};

// Adds the chunk to the rows.
template <typename Key, typename Value>
inline void AttendRows(const AttentionShape& shape, const AttentionTile& tile,
                       const AttentionScratch& scratch, const ChunkRows& rows,
                       const Chunk<Key, Value>& chunk, const AttentionState& state) {
  const auto [begin, first, last, first_group, last_group] = rows;
  ForRowBlocks(first, last, [&]<int kRows>(int row) {
    ScoreRows<kRows>(shape, scratch.q + row * shape.padded_dim, chunk.keys, first_group, last_group,
                     scratch.scores + row * kAttentionChunk);
  });
  const GroupScales scales = ScalesOf(chunk);
  KeyRange range[kAttentionTileRows];
  float scale[kAttentionTileRows];
  for (int row = first; row < last; ++row) {
    range[row] = VisibleKeys(shape, tile, row, begin);
    RowKeys keys = KeysOfRow(shape, tile, row, begin, range[row]);
    if (kHasScales<Key>) keys.scales = &scales;
    scale[row] = SoftmaxRow(shape, keys, scratch.scores + row * kAttentionChunk, state.max + row,
                            state.sum + row * kSumLanes);
  }
  for (int row = first; row < last;) {
    int end = row + 1;
    while (end < last && range[end] == range[row]) ++end;
    ForRowBlocks(row, end, [&]<int kRows>(int r) {
      ValueRows<kRows>(shape, chunk.values, range[r], scratch.scores + r * kAttentionChunk,
                       scale + r, state.acc + r * shape.padded_dim);
    });
    row = end;
  }
}

// Adds the chunk at `begin` to the rows [first, last) of the tile, all of which see a part of it.
template <typename Key, typename Value>
inline void AttendChunk(const AttentionShape& shape, const AttentionTile& tile,
                        const AttentionScratch& scratch, int32_t begin, int first, int last,
                        const AttentionState& state) {
  const int first_group = VisibleKeys(shape, tile, first, begin).low / kAttentionKeyGroup;
  const int last_group = (VisibleKeys(shape, tile, last - 1, begin).high + kAttentionKeyGroup - 1) /
                         kAttentionKeyGroup;
  const ChunkRows rows{begin, first, last, first_group, last_group};
  const auto chunk = LocateChunk<Key, Value>(shape, tile, begin, first_group, last_group);
  if constexpr (kIsInt4<Key> || kIsInt4<Value>) {
    const DecodedChunk decoded = DecodeChunk(shape, chunk, first_group, last_group, scratch);
    AttendRows(decoded.shape, tile, scratch, rows, decoded.chunk, state);
  } else {
    AttendRows(shape, tile, scratch, rows, chunk, state);
  }
}

// The state of rows that have seen no key.
inline void Clear(const AttentionShape& shape, int32_t rows, const AttentionState& state) {
  for (int row = 0; row < rows; ++row) state.max[row] = -__builtin_inff();
  for (int i = 0; i < rows * kSumLanes; ++i) state.sum[i] = 0;
  for (int i = 0; i < rows * shape.padded_dim; ++i) state.acc[i] = 0;
}

template <typename Key, typename Value>
void Attend(const AttentionShape& shape, const AttentionTile& tile, const AttentionScratch& scratch,
            int32_t begin, const AttentionState& state) {
  Clear(shape, tile.rows, state);
  for (int32_t chunk = begin; chunk < begin + kAttentionSplit; chunk += kAttentionChunk) {
    const RowRange rows = RowsThatSee(shape, tile, chunk, kAttentionChunk);
    if (rows.first < rows.last) {
      AttendChunk<Key, Value>(shape, tile, scratch, chunk, rows.first, rows.last, state);
    }
  }
}

template <typename Key>
void LoadQueries(const AttentionShape& shape, const AttentionTile& tile,
                 const AttentionScratch& scratch) {
  for (int row = 0; row < tile.rows; ++row) {
    const int32_t r = tile.first_row + row;
    const float* q = tile.q + r / shape.group * tile.q_stride +
                     static_cast<int64_t>(r % shape.group) * shape.head_dim;
    float* target = scratch.q + row * shape.padded_dim;
    for (int i = 0; i < shape.head_dim; ++i) target[i] = q[i] * shape.query_scale;
    if constexpr (kIsInt4<Key>) RotateRow(target, shape.head_dim, 1.0f);
  }
}

inline void CopyRow(const AttentionShape& shape, int row, const AttentionState& to,
                    const AttentionState& from) {
  to.max[row] = from.max[row];
  for (int i = 0; i < kSumLanes; ++i) to.sum[row * kSumLanes + i] = from.sum[row * kSumLanes + i];
  for (int i = 0; i < shape.padded_dim; ++i) {
    to.acc[row * shape.padded_dim + i] = from.acc[row * shape.padded_dim + i];
  }
}

// a = a x + b y, elementwise.
inline void Combine(float* a, Vec::F x, const float* b, Vec::F y, int size) {
  for (int i = 0; i < size; i += Vec::kLanes) {
    Vec::Store(a + i, Vec::Fma(Vec::Load(b + i), y, Vec::Mul(Vec::Load(a + i), x)));
  }
}

inline void Merge(const AttentionShape& shape, int32_t rows, const AttentionState& total,
                  const AttentionState& next) {
  const float none = -__builtin_inff();
  for (int row = 0; row < rows; ++row) {
    if (next.max[row] == none) continue;
    if (total.max[row] == none) {
      CopyRow(shape, row, total, next);
      continue;
    }
    const float max = total.max[row] > next.max[row] ? total.max[row] : next.max[row];
    const Vec::F x = Exp2(Vec::Set(total.max[row] - max));
    const Vec::F y = Exp2(Vec::Set(next.max[row] - max));
    Combine(total.sum + row * kSumLanes, x, next.sum + row * kSumLanes, y, kSumLanes);
    Combine(total.acc + row * shape.padded_dim, x, next.acc + row * shape.padded_dim, y,
            shape.padded_dim);
    total.max[row] = max;
  }
}

// 1 / sum, or with a sink 1 / (sum + 2^(sink - max)), scaled such that the larger of the two
// exponentials is 1.
inline float InverseSum(const AttentionShape& shape, const AttentionTile& tile, int row, float max,
                        float sum) {
  if (shape.sinks == nullptr) return 1.0f / sum;
  const float sink = shape.sinks[Head(shape, tile, row)] * kLog2E;
  const float highest = sink > max ? sink : max;
  const float scale = Vec::First(Exp2(Vec::Set(max - highest)));
  return scale / (sum * scale + Vec::First(Exp2(Vec::Set(sink - highest))));
}

template <typename Value>
inline void Finish(const AttentionShape& shape, const AttentionTile& tile,
                   const AttentionState& state) {
  for (int row = 0; row < tile.rows; ++row) {
    const int32_t r = tile.first_row + row;
    float* y = tile.y + r / shape.group * tile.y_stride +
               static_cast<int64_t>(r % shape.group) * shape.head_dim;
    Vec::F sum = Vec::Load(state.sum + row * kSumLanes);
    for (int v = 1; v < kVecsPerGroup; ++v) {
      sum = Vec::Add(sum, Vec::Load(state.sum + row * kSumLanes + v * Vec::kLanes));
    }
    const float inverse_sum = InverseSum(shape, tile, row, state.max[row], Vec::Sum(sum));
    const Vec::F unit = Vec::Set(shape.value_scale * inverse_sum);
    const float* acc = state.acc + row * shape.padded_dim;
    int i = 0;
    for (; i + Vec::kLanes <= shape.head_dim; i += Vec::kLanes) {
      Vec::Store(y + i, Vec::Mul(Vec::Load(acc + i), unit));
    }
    const int rest = shape.head_dim - i;
    if (rest > 0) Vec::StoreN(y + i, Vec::Mul(Vec::LoadN(acc + i, rest), unit), rest);
    if constexpr (kIsInt4<Value>) RotateRow(y, shape.head_dim, 1.0f);
  }
}

template <typename Key, typename Value = Key>
constexpr AttentionKernel kKernel = {.load_queries = LoadQueries<Key>,
                                     .attend = Attend<Key, Value>,
                                     .merge = Merge,
                                     .finish = Finish<Value>};

[[maybe_unused]] constexpr AttentionKernels kKernels = {.f32 = kKernel<float>,
                                                        .bf16 = kKernel<uint16_t>,
                                                        .f8 = kKernel<uint8_t>,
                                                        .int8 = kKernel<int8_t>,
                                                        .int4 = kKernel<Int4Pair>,
                                                        .k8v4 = kKernel<int8_t, Int4Pair>};

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_TILE_INL_H_
