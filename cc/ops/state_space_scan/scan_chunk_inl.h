// File: cc/ops/state_space_scan/scan_chunk_inl.h
// The body of ScanChunk*, over the `Vec` of the file that includes it (cc/ops/vec/vec_portable.h).
//
// A tile of the state, some of its N rows by some columns of the head, stays in registers while all
// tokens of the chunk pass. Columns lie in the lanes, so that nothing is summed across lanes; each
// element of y collects its N products in their order, whatever the tile.
#ifndef PAGEMILL_CC_OPS_STATE_SPACE_SCAN_SCAN_CHUNK_INL_H_
#define PAGEMILL_CC_OPS_STATE_SPACE_SCAN_SCAN_CHUNK_INL_H_

#include "cc/ops/state_space_scan/scan_chunk.h"

namespace pagemill::ops {
namespace {

// Half of the registers hold the state.
constexpr int kTileVectors = 2;
constexpr int kTileStates = Vec::kRegisters / 2 / kTileVectors;

// Some columns of a head: kVectors registers, or the first `lanes` of one.
template <int kVectors, bool kPartial>
struct Columns {
  int64_t first = 0;
  int lanes = 0;

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
};

// The states [first, first + kStates).
template <int kStates, int kVectors, bool kPartial>
inline void ScanTile(const ScanChunk& k, const Columns<kVectors, kPartial>& columns,
                     int64_t first) {
  Vec::F h[kStates][kVectors];
  for (int s = 0; s < kStates; ++s) {
    for (int v = 0; v < kVectors; ++v) {
      h[s][v] =
          k.source == nullptr ? Vec::Zero() : columns.Load(k.source + (first + s) * k.head_dim, v);
    }
  }
  for (int64_t t = 0; t < k.tokens; ++t) {
    const float* b = k.b + t * k.row_stride + first;
    const float* c = k.c + t * k.row_stride + first;
    const Vec::F decay = Vec::Set(k.decay[t]), step = Vec::Set(k.step[t]);
    Vec::F input[kVectors], y[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      input[v] = Vec::Mul(step, columns.Load(k.x + t * k.row_stride, v));
      y[v] = columns.Load(k.y + t * k.y_stride, v);
    }
    for (int s = 0; s < kStates; ++s) {
      const Vec::F b_s = Vec::Set(b[s]), c_s = Vec::Set(c[s]);
      for (int v = 0; v < kVectors; ++v) {
        h[s][v] = Vec::Fma(b_s, input[v], Vec::Mul(decay, h[s][v]));
        y[v] = Vec::Fma(c_s, h[s][v], y[v]);
      }
    }
    for (int v = 0; v < kVectors; ++v) columns.Store(k.y + t * k.y_stride, v, y[v]);
  }
  for (int s = 0; s < kStates; ++s) {
    for (int v = 0; v < kVectors; ++v) {
      columns.Store(k.target + (first + s) * k.head_dim, v, h[s][v]);
    }
  }
}

template <int kVectors, bool kPartial>
inline void ScanColumns(const ScanChunk& k, const Columns<kVectors, kPartial>& columns) {
  const Vec::F skip = Vec::Set(k.skip);
  for (int64_t t = 0; t < k.tokens; ++t) {
    for (int v = 0; v < kVectors; ++v) {
      const Vec::F x = columns.Load(k.x + t * k.row_stride, v);
      columns.Store(k.y + t * k.y_stride, v, Vec::Mul(skip, x));
    }
  }
  int64_t s = 0;
  for (; s + kTileStates <= k.states; s += kTileStates) ScanTile<kTileStates>(k, columns, s);
  for (; s < k.states; ++s) ScanTile<1>(k, columns, s);
}

inline void Scan(const ScanChunk& k) {
  constexpr int64_t kTileColumns = kTileVectors * Vec::kLanes;
  int64_t p = 0;
  for (; p + kTileColumns <= k.head_dim; p += kTileColumns) {
    ScanColumns<kTileVectors, false>(k, {.first = p});
  }
  for (; p + Vec::kLanes <= k.head_dim; p += Vec::kLanes) ScanColumns<1, false>(k, {.first = p});
  if (p == k.head_dim) return;
  ScanColumns<1, true>(k, {.first = p, .lanes = static_cast<int>(k.head_dim - p)});
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_STATE_SPACE_SCAN_SCAN_CHUNK_INL_H_
