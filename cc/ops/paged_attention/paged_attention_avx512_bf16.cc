// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/paged_attention/attention_bf16_inl.h"
// clang-format on

namespace pagemill::ops {
namespace {

// Rows of bf16 in scratch.q, [rows, padded_dim], zero beyond head_dim.
void LoadRoundedQueries(const AttentionShape& shape, const AttentionTile& tile,
                        const AttentionScratch& scratch) {
  for (int row = 0; row < tile.rows; ++row) {
    const int32_t r = tile.first_row + row;
    const float* q = tile.q + r / shape.group * tile.q_stride +
                     static_cast<int64_t>(r % shape.group) * shape.head_dim;
    uint16_t* target = reinterpret_cast<uint16_t*>(scratch.q) + row * shape.padded_dim;
    for (int i = 0; i < shape.padded_dim; i += Vec::kLanes) {
      const int left = shape.head_dim - i;
      const __m512 v = left > 0 ? Vec::LoadN(q + i, left) : Vec::Zero();
      _mm256_storeu_si256((__m256i*)(target + i), (__m256i)_mm512_cvtneps_pbh(v));
    }
  }
}

using DotChunk = Chunk<uint16_t, kDotGroups>;

// The weights of kRows rows from `row`, all of which see a part of the chunk.
template <int kRows>
void WeighRows(const AttentionShape& shape, const AttentionScratch& scratch, const DotChunk& chunk,
               const RowKeys* keys, int row, const AttentionState& state) {
  const int first = keys[row].range.low / kAttentionKeyGroup;
  const int last = (keys[row + kRows - 1].range.high + kAttentionKeyGroup - 1) / kAttentionKeyGroup;
  const uint16_t* q = reinterpret_cast<const uint16_t*>(scratch.q) + row * shape.padded_dim;
  if (shape.block_size == kAttentionKeyGroup && shape.head_dim % 2 == 0) {
    DotScoreRows<kRows, true>(shape, q, chunk, first, last, scratch.scores);
  } else {
    DotScoreRows<kRows, false>(shape, q, chunk, first, last, scratch.scores);
  }
  for (int r = 0; r < kRows; ++r) {
    DotSoftmaxRow(shape, keys[row + r], scratch.scores + r * kDotChunk,
                  scratch.weights + (row + r) * kDotChunk, state.max + row + r,
                  state.sum + (row + r) * kSumLanes);
  }
}

// Asks for the values of groups [first, last) while the keys are read: the cache's pages are too
// short and too scattered for the CPU to see them coming.
void AskForValues(const AttentionShape& shape, const DotChunk& chunk, int first, int last) {
  const int64_t bytes = int64_t{2} * kAttentionKeyGroup * shape.head_dim;
  for (int g = first; g < last; ++g) {
    const char* page = reinterpret_cast<const char*>(chunk.values[g]);
    for (int64_t i = 0; i < bytes; i += 64) _mm_prefetch(page + i, _MM_HINT_T1);
  }
}

// All rows' weights first, then all rows' values, so that the first-level cache holds the chunk's
// keys, then its values.
void AttendDots(const AttentionShape& shape, const AttentionTile& tile,
                const AttentionScratch& scratch, int32_t begin, const AttentionState& state) {
  for (int row = 0; row < tile.rows; ++row) state.max[row] = -__builtin_inff();
  const RowRange rows = RowsThatSee(shape, tile, begin, kDotChunk);
  if (rows.first >= rows.last) return;
  RowKeys keys[kAttentionTileRows];
  for (int row = rows.first; row < rows.last; ++row) {
    keys[row] = KeysOfRow(shape, tile, row, begin, VisibleKeys(shape, tile, row, begin, kDotChunk));
  }
  const int first = keys[rows.first].range.low / kAttentionKeyGroup;
  const int last = (keys[rows.last - 1].range.high + kAttentionKeyGroup - 1) / kAttentionKeyGroup;
  const DotChunk chunk = LocateChunk<uint16_t, kDotGroups>(shape, tile, begin, first, last);
  AskForValues(shape, chunk, first, last);
  ForRowBlocks(rows.first, rows.last, [&]<int kRows>(int row) {
    WeighRows<kRows>(shape, scratch, chunk, keys, row, state);
  });
  ForRowBlocks(rows.first, rows.last, [&]<int kRows>(int row) {
    DotValueRows<kRows>(shape, chunk, keys + row, scratch.weights + row * kDotChunk,
                        state.acc + row * shape.padded_dim);
  });
}

// Puts each 32 dimensions of the accumulators into their order, then divides.
void FinishDots(const AttentionShape& shape, const AttentionTile& tile,
                const AttentionState& state) {
  // Unpacking takes 4 of each 8 dimensions into the first register, the other 4 into the second.
  const __m512i order[2] = {
      _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0),
      _mm512_set_epi32(31, 30, 29, 28, 15, 14, 13, 12, 27, 26, 25, 24, 11, 10, 9, 8)};
  for (int row = 0; row < tile.rows; ++row) {
    for (int i = 0; i < shape.head_dim; i += kDotUnit) {
      float* acc = state.acc + row * shape.padded_dim + i;
      const __m512 a = _mm512_loadu_ps(acc), b = _mm512_loadu_ps(acc + 16);
      _mm512_storeu_ps(acc, _mm512_permutex2var_ps(a, order[0], b));
      _mm512_storeu_ps(acc + 16, _mm512_permutex2var_ps(a, order[1], b));
    }
  }
  Finish(shape, tile, state);
}

}  // namespace

const AttentionKernel kAttentionAvx512Bf16 = {.load_queries = LoadRoundedQueries,
                                              .attend_f32 = nullptr,
                                              .attend_bf16 = AttendDots,
                                              .attend_int8 = nullptr,
                                              .merge = Merge,
                                              .finish = FinishDots};

}  // namespace pagemill::ops
