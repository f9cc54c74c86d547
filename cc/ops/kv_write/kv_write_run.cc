// The bodies of a KvWriteKernel.
#include "cc/ops/kv_write/kv_write_run.h"

#include <cstring>
#include <limits>

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

template <typename Element>
inline void StoreRun(const KvWriteRun& run) {
  StoreKeys<Element>(run);
  StoreValues<Element>(run);
}

// Elements of a row that are rounded together.
constexpr int kQuantizedPiece = 64;

// Returns the scale of x[0, dims); calls store(i, q, count) for each piece, which begins at element
// i.
template <typename StorePiece>
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
  const Vec::F inverse = Vec::Set(any ? 127.0f / most : 0.0f);
  for (int i = 0; i < dims; i += kQuantizedPiece) {
    float rounded[kQuantizedPiece] = {};
    const int end = dims - i < kQuantizedPiece ? dims - i : kQuantizedPiece;
    for (int j = 0; any && j < end; j += kLanes) {
      const Vec::F v = end - j < kLanes ? Vec::LoadN(x + i + j, end - j) : Vec::Load(x + i + j);
      Vec::Store(rounded + j, Vec::Round(Vec::Mul(v, inverse)));
    }
    int8_t q[kQuantizedPiece];
    for (int j = 0; j < kQuantizedPiece; ++j) q[j] = static_cast<int8_t>(rounded[j]);
    store(i, q, end);
  }
  return any ? most / 127.0f : finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
}

inline void QuantizeRun(const KvWriteRun& run) {
  for (int t = 0; t < run.tokens; ++t) {
    const int64_t slot = run.offset + t;
    const auto store_key = [&](int first, const int8_t* q, int count) {
      int8_t* page = static_cast<int8_t*>(run.k_page) + slot;
      for (int i = 0; i < count; ++i) page[int64_t{first + i} * run.block_size] = q[i];
    };
    const auto store_value = [&](int first, const int8_t* q, int count) {
      int8_t* row = static_cast<int8_t*>(run.v_page) + slot * run.head_dim;
      std::memcpy(row + first, q, count);
    };
    const float scales[2] = {QuantizeRow(run.k + t * run.k_stride, run.head_dim, store_key),
                             QuantizeRow(run.v + t * run.v_stride, run.value_dim, store_value)};
    std::memset(static_cast<int8_t*>(run.v_page) + slot * run.head_dim + run.value_dim, 0,
                run.head_dim - run.value_dim);
    std::memcpy(static_cast<char*>(run.k_scales) + slot * 4, &scales[0], 4);
    std::memcpy(static_cast<char*>(run.v_scales) + slot * 4, &scales[1], 4);
  }
}

}  // namespace

const KvWriteKernel PAGEMILL_VEC_NAME(kKvWrite) = {StoreRun<float>, StoreRun<uint16_t>,
                                                   StoreRun<uint8_t>, QuantizeRun};

}  // namespace pagemill::ops
