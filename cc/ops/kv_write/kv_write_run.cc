// The bodies of a KvWriteKernel.
#include "cc/ops/kv_write/kv_write_run.h"

#include <cstring>
#include <limits>

#include "cc/ops/kv_write/int4_row.h"
#include "cc/ops/vec/vec.h"

namespace pagemill::ops {
namespace {

// The `count` <= kLanes numbers from x on, scaled for a page of Element, before rounding.
template <typename Element>
inline Vec::F LoadScaled(const float* x, int count, float inverse_scale) {
  const Vec::F v = count < Vec::kLanes ? Vec::LoadN(x, count) : Vec::Load(x);
  constexpr bool kIsF8 = sizeof(Element) == 1;
  return kIsF8 ? Vec::Mul(v, Vec::Set(inverse_scale)) : v;
}

// Rounds kLanes dimensions of one token and scatters them down a column of the page.
template <typename Element>
inline void StoreKeyColumn(const KvWriteRun& run, const float* k, Element* page, int dims) {
  Element lanes[Vec::kLanes];
  Vec::Store(lanes, LoadScaled<Element>(k, dims, run.k_inverse_scale));
  for (int i = 0; i < dims; ++i) page[static_cast<int64_t>(i) * run.block_size] = lanes[i];
}

// Transposes kLanes dimensions of up to kLanes tokens.
template <typename Element>
inline void StoreKeyTile(const KvWriteRun& run, int first, int dim, int tokens, int dims) {
  Vec::F tile[Vec::kLanes];
  const float* k = run.k + first * run.k_stride + dim;
  for (int t = 0; t < Vec::kLanes; ++t) {
    tile[t] = t >= tokens ? Vec::Zero()
                          : LoadScaled<Element>(k + t * run.k_stride, dims, run.k_inverse_scale);
  }
  Vec::Transpose(tile);
  Element* page = static_cast<Element*>(run.k_page) + static_cast<int64_t>(dim) * run.block_size +
                  run.offset + first;
  for (int i = 0; i < dims; ++i) {
    Element* target = page + static_cast<int64_t>(i) * run.block_size;
    if (tokens == Vec::kLanes) {
      Vec::Store(target, tile[i]);
    } else {
      Vec::StoreN(target, tile[i], tokens);
    }
  }
}

template <typename Element>
inline void StoreKeys(const KvWriteRun& run) {
  constexpr int kLanes = Vec::kLanes;
  for (int first = 0; first < run.tokens; first += kLanes) {
    const int tokens = run.tokens - first < kLanes ? run.tokens - first : kLanes;
    for (int dim = 0; dim < run.head_dim; dim += kLanes) {
      const int dims = run.head_dim - dim < kLanes ? run.head_dim - dim : kLanes;
      if (tokens > 1) {
        StoreKeyTile<Element>(run, first, dim, tokens, dims);
      } else {
        Element* page = static_cast<Element*>(run.k_page) +
                        static_cast<int64_t>(dim) * run.block_size + run.offset + first;
        StoreKeyColumn(run, run.k + first * run.k_stride + dim, page, dims);
      }
    }
  }
}

template <typename Element>
inline void StoreValues(const KvWriteRun& run) {
  constexpr int kLanes = Vec::kLanes;
  for (int t = 0; t < run.tokens; ++t) {
    const float* v = run.v + t * run.v_stride;
    Element* target =
        static_cast<Element*>(run.v_page) + static_cast<int64_t>(run.offset + t) * run.head_dim;
    int i = 0;
    for (; i + kLanes <= run.value_dim; i += kLanes) {
      Vec::Store(target + i, LoadScaled<Element>(v + i, kLanes, run.v_inverse_scale));
    }
    const int rest = run.value_dim - i;
    if (rest > 0) {
      Vec::StoreN(target + i, LoadScaled<Element>(v + i, rest, run.v_inverse_scale), rest);
    }
    std::memset(target + run.value_dim, 0, (run.head_dim - run.value_dim) * sizeof(Element));
  }
}

// Elements of a row that are rounded together.
constexpr int kQuantizedPiece = 64;

// Whole numbers from -127 to 127, times a scale.
struct Int8Codes {
  static constexpr float kLargest = 127, kHighest = 127, kMiddle = 0;
};
// The codes of int4_row.h.
struct Int4Codes {
  static constexpr float kLargest = kLargestInt4, kHighest = 7.5f, kMiddle = 7.5f;
};

// Returns the scale of x[0, dims), largest |x| / kLargest; calls store(i, q, count) for each piece,
// which begins at element i: x kHighest / largest |x| + kMiddle, rounded; 0 if the scale is not
// above 0.
template <class Codes, typename StorePiece>
inline float QuantizeRow(const float* x, int dims, const StorePiece& store) {
  constexpr int kLanes = Vec::kLanes;
  Vec::F largest = Vec::Zero(), bad = Vec::Zero();
  for (int i = 0; i < dims; i += kLanes) {
    const Vec::F v = dims - i < kLanes ? Vec::LoadN(x + i, dims - i) : Vec::Load(x + i);
    largest = Vec::Max(Vec::Abs(v), largest);
    bad = Vec::Fma(v, Vec::Zero(), bad);  // infinity and NaN leave a NaN
  }
  const float most = Vec::Maximum(largest);
  const bool finite = Vec::Sum(bad) == 0, any = finite && most >= 1e-30f;
  const Vec::F inverse = Vec::Set(any ? Codes::kHighest / most : 0.0f);
  const Vec::F middle = Vec::Set(Codes::kMiddle);
  for (int i = 0; i < dims; i += kQuantizedPiece) {
    float rounded[kQuantizedPiece] = {};
    const int end = dims - i < kQuantizedPiece ? dims - i : kQuantizedPiece;
    for (int j = 0; any && j < end; j += kLanes) {
      const Vec::F v = end - j < kLanes ? Vec::LoadN(x + i + j, end - j) : Vec::Load(x + i + j);
      Vec::Store(rounded + j, Vec::Round(Vec::Add(Vec::Mul(v, inverse), middle)));
    }
    int8_t q[kQuantizedPiece];
    for (int j = 0; j < kQuantizedPiece; ++j) q[j] = static_cast<int8_t>(rounded[j]);
    store(i, q, end);
  }
  return any ? most / Codes::kLargest : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
}

inline void StoreScale(void* scales, int64_t slot, float scale) {
  std::memcpy(static_cast<char*>(scales) + slot * 4, &scale, 4);
}

inline void StoreInt8Keys(const KvWriteRun& run) {
  for (int t = 0; t < run.tokens; ++t) {
    const int64_t slot = run.offset + t;
    const auto store = [&](int first, const int8_t* q, int count) {
      int8_t* page = static_cast<int8_t*>(run.k_page) + slot;
      for (int i = 0; i < count; ++i) page[int64_t{first + i} * run.block_size] = q[i];
    };
    const float* const k = run.k + t * run.k_stride;
    StoreScale(run.k_scales, slot, QuantizeRow<Int8Codes>(k, run.head_dim, store));
  }
}

inline void StoreInt8Values(const KvWriteRun& run) {
  for (int t = 0; t < run.tokens; ++t) {
    const int64_t slot = run.offset + t;
    int8_t* const row = static_cast<int8_t*>(run.v_page) + slot * run.head_dim;
    const auto store = [&](int first, const int8_t* q, int count) {
      std::memcpy(row + first, q, count);
    };
    const float* const v = run.v + t * run.v_stride;
    StoreScale(run.v_scales, slot, QuantizeRow<Int8Codes>(v, run.value_dim, store));
    std::memset(row + run.value_dim, 0, run.head_dim - run.value_dim);
  }
}

// Stores the `dims` elements at x, and zeros behind them, as a row of int4; returns its scale. Byte
// i is at page[offset(i)].
template <typename Offset>
inline float StoreInt4Row(const float* x, int dims, int head_dim, void* page,
                          const Offset& offset) {
  float row[kMaxInt4Dim];
  std::memcpy(row, x, dims * sizeof(float));
  std::memset(row + dims, 0, (head_dim - dims) * sizeof(float));
  RotateRow(row, head_dim, 1.0f / static_cast<float>(Int4Rotation(head_dim)));
  return QuantizeRow<Int4Codes>(row, head_dim, [&](int first, const int8_t* q, int count) {
    const auto code = [&](int i) { return i < count ? q[i] : 0; };
    for (int i = 0; i < count; i += 8) {
      for (int j = i; j < i + 4; ++j) {
        static_cast<uint8_t*>(page)[offset(Int4Byte(first + j))] =
            static_cast<uint8_t>(code(j) | code(j + 4) << 4);
      }
    }
  });
}

inline void StoreInt4Keys(const KvWriteRun& run) {
  for (int t = 0; t < run.tokens; ++t) {
    const int64_t slot = run.offset + t;
    const auto offset = [&](int64_t i) { return Int4KeyOffset(i, slot, run.block_size); };
    const float* const k = run.k + t * run.k_stride;
    StoreScale(run.k_scales, slot, StoreInt4Row(k, run.head_dim, run.head_dim, run.k_page, offset));
  }
}

inline void StoreInt4Values(const KvWriteRun& run) {
  const int64_t row_bytes = (run.head_dim + 7) / 8 * 4;
  for (int t = 0; t < run.tokens; ++t) {
    const int64_t slot = run.offset + t;
    const auto offset = [&](int64_t i) { return Int4ValueOffset(i, slot, row_bytes); };
    const float* const v = run.v + t * run.v_stride;
    StoreScale(run.v_scales, slot,
               StoreInt4Row(v, run.value_dim, run.head_dim, run.v_page, offset));
  }
}

template <typename Element>
constexpr KvRowStore kStore = {StoreKeys<Element>, StoreValues<Element>};

}  // namespace

const KvWriteKernel PAGEMILL_VEC_NAME(kKvWrite) = {.f32 = kStore<float>,
                                                   .bf16 = kStore<uint16_t>,
                                                   .f8 = kStore<uint8_t>,
                                                   .int8 = {StoreInt8Keys, StoreInt8Values},
                                                   .int4 = {StoreInt4Keys, StoreInt4Values}};

}  // namespace pagemill::ops
