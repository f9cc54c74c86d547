// The body of ScanChunk*.
//
// A tile of the state, some of its N rows by some columns of the head, stays in registers for all
// tokens of the chunk. Lanes hold columns, so that nothing is summed across lanes; each element of
// y adds its N products in order, whatever the tile. The tile's columns of y and of dt x are copied
// to contiguous buffers: rows of a step may be a multiple of a page apart, and would then share few
// lines of the first-level cache.
#include "cc/ops/state_space_scan/scan_chunk.h"

#include "cc/ops/vec/vec.h"

namespace pagemill::ops {
namespace {

// Half of the registers hold the state.
constexpr int kTileVectors = 2;
constexpr int kTileStates = Vec::kRegisters / 2 / kTileVectors;

// Some columns of a head: kVectors registers, or the first `lanes` of one.
template <int kVectors, bool kPartial>
struct Columns {
  static constexpr int kWidth = kVectors * Vec::kLanes;

  Vec::F Load(const float* row, int v) const {
    if constexpr (kPartial) return Vec::LoadN(row + first, lanes);
    return Vec::Load(row + first + v * Vec::kLanes);
  }
  void Store(float* row, int v, Vec::F value) const {
    if constexpr (kPartial) {
      Vec::StoreN(row + first, value, lanes);
    } else {
      Vec::Store(row + first + v * Vec::kLanes, value);
    }
  }

  int64_t first = 0;
  int lanes = 0;
  float input[kMaxScanTokens * kWidth];  // [tokens, kWidth]: dt x
  float y[kMaxScanTokens * kWidth];
};

// Computes states [first, first + kStates).
template <int kStates, int kVectors, bool kPartial>
inline void ScanTile(const ScanChunk& k, int64_t first, Columns<kVectors, kPartial>* columns) {
  Vec::F h[kStates][kVectors];
  for (int s = 0; s < kStates; ++s) {
    for (int v = 0; v < kVectors; ++v) {
      h[s][v] =
          k.source == nullptr ? Vec::Zero() : columns->Load(k.source + (first + s) * k.head_dim, v);
    }
  }
  const float* input = columns->input;
  float* y = columns->y;
  for (int64_t t = 0; t < k.tokens; ++t) {
    const float* b = k.b + t * k.row_stride + first;
    const float* c = k.c + t * k.row_stride + first;
    const Vec::F decay = Vec::Set(k.decay[t]);
    Vec::F sum[kVectors];
    for (int v = 0; v < kVectors; ++v) sum[v] = Vec::Load(y + v * Vec::kLanes);
    for (int s = 0; s < kStates; ++s) {
      const Vec::F b_s = Vec::Set(b[s]), c_s = Vec::Set(c[s]);
      for (int v = 0; v < kVectors; ++v) {
        const Vec::F decayed = Vec::Mul(decay, h[s][v]);
        h[s][v] = Vec::Fma(b_s, Vec::Load(input + v * Vec::kLanes), decayed);
        sum[v] = Vec::Fma(c_s, h[s][v], sum[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) Vec::Store(y + v * Vec::kLanes, sum[v]);
    input += columns->kWidth;
    y += columns->kWidth;
  }
  for (int s = 0; s < kStates; ++s) {
    for (int v = 0; v < kVectors; ++v) {
      columns->Store(k.target + (first + s) * k.head_dim, v, h[s][v]);
    }
  }
}

template <int kVectors, bool kPartial>
inline void ScanColumns(const ScanChunk& k, int64_t first, int lanes) {
  Columns<kVectors, kPartial> columns;
  columns.first = first;
  columns.lanes = lanes;
  const Vec::F skip = Vec::Set(k.skip);
  for (int64_t t = 0; t < k.tokens; ++t) {
    const Vec::F step = Vec::Set(k.step[t]);
    for (int v = 0; v < kVectors; ++v) {
      const Vec::F x = columns.Load(k.x + t * k.row_stride, v);
      const int64_t at = t * columns.kWidth + v * Vec::kLanes;
      Vec::Store(columns.input + at, Vec::Mul(step, x));
      Vec::Store(columns.y + at, Vec::Mul(skip, x));
    }
  }
  int64_t s = 0;
  for (; s + kTileStates <= k.states; s += kTileStates) ScanTile<kTileStates>(k, s, &columns);
  for (; s < k.states; ++s) ScanTile<1>(k, s, &columns);
  for (int64_t t = 0; t < k.tokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      const float* y = columns.y + t * columns.kWidth + v * Vec::kLanes;
      columns.Store(k.y + t * k.y_stride, v, Vec::Load(y));
    }
  }
}

inline void Scan(const ScanChunk& k) {
  constexpr int64_t kTileColumns = kTileVectors * Vec::kLanes;
  int64_t p = 0;
  for (; p + kTileColumns <= k.head_dim; p += kTileColumns) {
    ScanColumns<kTileVectors, false>(k, p, Vec::kLanes);
  }
  for (; p + Vec::kLanes <= k.head_dim; p += Vec::kLanes) {
    ScanColumns<1, false>(k, p, Vec::kLanes);
  }
  if (p < k.head_dim) ScanColumns<1, true>(k, p, static_cast<int>(k.head_dim - p));
}

}  // namespace

void PAGEMILL_VEC_NAME(ScanChunk)(const ScanChunk& chunk) { Scan(chunk); }

}  // namespace pagemill::ops
