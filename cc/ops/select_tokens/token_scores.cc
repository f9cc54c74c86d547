// The bodies of a ScoreKernel. Four tokens are multiplied with some heads at once; each product is
// one chain of multiply-adds, and each score the sum over heads in their order, however tokens and
// heads are blocked.
#include "cc/ops/select_tokens/token_scores.h"

#include "cc/ops/vec/vec.h"

namespace pagemill::ops::select_tokens {
namespace {

constexpr int kKeyBlock = 4;
constexpr int kHeadBlock = Vec::kRegisters >= 32 ? 4 : 2;

template <typename Element>
inline const Element* KeyAt(const IndexQuery& query, int32_t position) {
  const char* const page =
      static_cast<const char*>(query.cache) +
      query.block_table[position / query.block_size] * query.page_stride_bytes;
  const int64_t width = query.size + query.rope_size;
  return reinterpret_cast<const Element*>(page) + (position % query.block_size) * width;
}

// sums[head][key] += x[head * size...] key[offset...], over `size` elements.
template <int kHeads, int kKeys, typename Element>
inline void AddProducts(const float* x, int size, const Element* const* key, int offset,
                        Vec::F sums[kHeads][kKeys]) {
  const auto add = [&](int at, const auto& load) {
    Vec::F k[kKeys];
    for (int j = 0; j < kKeys; ++j) k[j] = load(key[j] + offset + at);
    for (int h = 0; h < kHeads; ++h) {
      const Vec::F v = load(x + static_cast<int64_t>(h) * size + at);
      for (int j = 0; j < kKeys; ++j) sums[h][j] = Vec::Fma(v, k[j], sums[h][j]);
    }
  };
  int i = 0;
  for (; i + Vec::kLanes <= size; i += Vec::kLanes) {
    add(i, [](const auto* p) { return Vec::Load(p); });
  }
  const int rest = size - i;
  if (rest > 0) add(i, [rest](const auto* p) { return Vec::LoadN(p, rest); });
}

// Adds what the heads [head, head + kHeads) contribute to the scores of kKeys tokens.
template <int kHeads, int kKeys, typename Element>
inline void AddHeads(const IndexQuery& query, int head, const Element* const* key, float* scores) {
  Vec::F sums[kHeads][kKeys];
  for (int h = 0; h < kHeads; ++h) {
    for (int j = 0; j < kKeys; ++j) sums[h][j] = Vec::Zero();
  }
  const float* const q = query.q + static_cast<int64_t>(head) * query.size;
  const float* const rope = query.rope + static_cast<int64_t>(head) * query.rope_size;
  AddProducts<kHeads, kKeys>(q, query.size, key, 0, sums);
  AddProducts<kHeads, kKeys>(rope, query.rope_size, key, query.size, sums);
  for (int h = 0; h < kHeads; ++h) {
    for (int j = 0; j < kKeys; ++j) {
      const float product = Vec::Sum(sums[h][j]);
      scores[j] += query.weights[head + h] * (product < 0 ? 0 : product);
    }
  }
}

template <int kKeys, typename Element>
inline void ScoreKeys(const IndexQuery& query, int32_t begin, float* scores) {
  const Element* key[kKeys];
  for (int j = 0; j < kKeys; ++j) {
    key[j] = KeyAt<Element>(query, begin + j);
    scores[j] = 0;
  }
  int head = 0;
  for (; head + kHeadBlock <= query.heads; head += kHeadBlock) {
    AddHeads<kHeadBlock, kKeys>(query, head, key, scores);
  }
  for (; head < query.heads; ++head) AddHeads<1, kKeys>(query, head, key, scores);
}

template <typename Element>
void Score(const IndexQuery& query, int32_t begin, int32_t count, float* scores) {
  int32_t i = 0;
  for (; i + kKeyBlock <= count; i += kKeyBlock) {
    ScoreKeys<kKeyBlock, Element>(query, begin + i, scores + i);
  }
  for (; i < count; ++i) ScoreKeys<1, Element>(query, begin + i, scores + i);
}

[[maybe_unused]] constexpr ScoreKernel kKernel = {.f32 = Score<float>, .bf16 = Score<uint16_t>};

}  // namespace

const ScoreKernel PAGEMILL_VEC_NAME(kScore) = kKernel;

}  // namespace pagemill::ops::select_tokens
