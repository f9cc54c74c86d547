// The reference of `latent_attention`: one head of one query after the other, in double.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cc/ops/double_dot/double_dot.h"
#include "cc/ops/double_softmax/double_softmax.h"
#include "cc/ops/latent_attention/latent_attention.h"
#include "cc/ops/latent_write/latent_cache.h"
#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops::latent_attention {
namespace {

// One head of one query.
class Query {
 public:
  Query(const OpCall& call, int64_t request, int64_t token, int64_t head)
      : cache_(call.inputs[2]),
        block_table_(call.batch->block_table + request * call.batch->block_table_stride),
        scale_(call.attributes->Get("scale", 1)),
        size_(call.inputs[0].shape[2]),
        rope_size_(HasInput(call, 1) ? call.inputs[1].shape[2] : 0),
        parts_(LatentF8RowOf(call, size_ + rope_size_)),
        q_(call.inputs[0].Row<const float>(token) + head * size_),
        rope_(rope_size_ > 0 ? call.inputs[1].Row<const float>(token) + head * rope_size_
                             : nullptr),
        y_(call.outputs[0].Row<float>(token) + head * size_),
        lse_(call.outputs.size() > 1 ? call.outputs[1].Row<float>(token) + head : nullptr),
        chosen_(HasInput(call, 3) ? call.inputs[3].Row<const int32_t>(token) : nullptr) {
    const int64_t position =
        call.batch->seq_lens[request] - call.batch->query_start[request + 1] + token;
    const int64_t window = call.attributes->GetInt("window", 0);
    keys_ = VisibleRows(static_cast<int32_t>(position), TokensOfRow(call, /*input=*/2));
    if (chosen_ != nullptr) {
      keys_ = std::find(chosen_, chosen_ + call.inputs[3].shape[1], -1) - chosen_;
    } else if (window > 0) {
      first_ = std::max<int64_t>(0, keys_ - window);
    }
  }

  void Run() const {
    DoubleSoftmax<kMaxLatentSize> softmax(size_);
    for (int64_t key = first_; key < keys_; ++key) {
      const CacheRow row = RowOf(key);
      softmax.Add(Score(row), row);
    }
    for (int64_t i = 0; i < size_; ++i) {
      y_[i] = first_ < keys_ ? static_cast<float>(softmax.Mean(i)) : 0;
    }
    if (lse_ != nullptr) *lse_ = static_cast<float>(softmax.LogSumExp());
  }

 private:
  // A row of the cache from some element on.
  struct CacheRow {
    DType dtype;
    const std::byte* bytes;
    LatentF8Row parts;  // of a cache in fp8
    int64_t first = 0;

    double operator[](int64_t i) const {
      const int64_t at = first + i;
      if (dtype == DType::kF32) return reinterpret_cast<const float*>(bytes)[at];
      if (dtype == DType::kBF16) return Bf16(bytes, at);
      if (at >= parts.codes) return Bf16(bytes + parts.rest_offset(), at - parts.codes);
      const auto* const scales = reinterpret_cast<const float*>(bytes + parts.scales_offset());
      return F8E4M3ToFloat(static_cast<uint8_t>(bytes[at])) * double{scales[at / kLatentGroup]};
    }
    CacheRow From(int64_t i) const { return {dtype, bytes, parts, first + i}; }

    static double Bf16(const std::byte* from, int64_t i) {
      return Bf16ToFloat(reinterpret_cast<const uint16_t*>(from)[i]);
    }
  };

  CacheRow RowOf(int64_t key) const {
    const int64_t position = chosen_ != nullptr ? chosen_[key] : key;
    const int64_t block_size = cache_.shape[1], page = block_table_[position / block_size];
    const int64_t first = position % block_size * RowBytes(cache_.dtype, cache_.shape[2]);
    return {cache_.dtype, cache_.Row<const std::byte>(page) + first, parts_};
  }

  double Score(const CacheRow& row) const {
    const CacheRow rotated = row.From(size_);
    return (DoubleDot(q_, row, size_) + DoubleDot(rope_, rotated, rope_size_)) * scale_;
  }

  const TensorView& cache_;
  const int32_t* block_table_;
  double scale_;
  int64_t size_, rope_size_;
  LatentF8Row parts_;  // of a row, if the cache is in fp8
  const float* q_;
  const float* rope_;
  float* y_;
  float* lse_;             // null if not wanted
  const int32_t* chosen_;  // the keys that it sees; null: those from `first_` on
  int64_t first_ = 0;
  int64_t keys_ = 0;  // the end of those that it sees
};

}  // namespace

void RunReference(const OpCall& call, KernelContext&) {
  for (int64_t request = 0; request < call.batch->num_requests; ++request) {
    for (int64_t token = call.batch->query_start[request];
         token < call.batch->query_start[request + 1]; ++token) {
      for (int64_t head = 0; head < call.inputs[0].shape[1]; ++head) {
        Query(call, request, token, head).Run();
      }
    }
  }
}

}  // namespace pagemill::ops::latent_attention
