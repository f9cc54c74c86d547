#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cc/ops/double_dot/double_dot.h"
#include "cc/ops/double_softmax/double_softmax.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/int4_row.h"
#include "cc/ops/paged_attention/paged_attention.h"
#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

using Softmax = DoubleSoftmax</*kMaxSize=*/512>;

// The elements of a key or a value as they are stored, in a head's page: `stride` apart from
// `first` on, or, of int4, in the places of int4_row.h.
struct CacheRow {
  const std::byte* page;
  DType type;
  bool is_key;
  int64_t token, first, stride;
  int64_t block_size, row_bytes;

  double operator[](int64_t d) const {
    if (type == DType::kU4) return Int4At(d);
    const int64_t index = first + d * stride;
    if (type == DType::kI8) return reinterpret_cast<const int8_t*>(page)[index];
    if (type == DType::kF8E4M3) {
      return F8E4M3ToFloat(reinterpret_cast<const uint8_t*>(page)[index]);
    }
    if (type == DType::kF32) return reinterpret_cast<const float*>(page)[index];
    return Bf16ToFloat(reinterpret_cast<const uint16_t*>(page)[index]);
  }

  double Int4At(int64_t d) const {
    const int64_t byte = Int4Byte(d);
    const auto pair = static_cast<uint8_t>(page[is_key ? Int4KeyOffset(byte, token, block_size)
                                                       : Int4ValueOffset(byte, token, row_bytes)]);
    return Int4Value(IsInt4High(d) ? pair >> 4 : pair & 15);
  }
};

// One head of one query.
class Query {
 public:
  Query(const PagedAttentionArgs& args, int64_t request, int64_t token, int64_t head)
      : args_(args),
        block_table_(args.batch->block_table + request * args.batch->block_table_stride),
        head_dim_(args.q.shape[2]),
        types_(KvTypesOf(args.cache.dtype)),
        kv_head_(head / (args.q.shape[1] / args.kv_heads)),
        q_(args.q.Row<float>(token) + head * head_dim_,
           args.q.Row<float>(token) + (head + 1) * head_dim_),
        y_(args.y.Row<float>(token) + head * head_dim_),
        sink_(args.sinks == nullptr ? Softmax::kNoSink : args.sinks[head]),
        slope_(args.slopes == nullptr ? 0.0 : args.slopes[head]),
        token_(token),
        head_(head) {
    if (types_.key == DType::kU4) RotateRow(q_.data(), static_cast<int>(head_dim_), 1.0);
    const int64_t end = args.batch->query_start[request + 1];
    position_ = args.batch->seq_lens[request] - end + token;
    const int64_t seq_len = args.batch->seq_lens[request];
    high_ = args.causal       ? position_ + 1
            : args.window > 0 ? std::min<int64_t>(seq_len, position_ + args.window)
                              : seq_len;
    low_ = args.chunked      ? position_ / args.window * args.window
           : args.window > 0 ? std::max<int64_t>(0, position_ + 1 - args.window)
                             : 0;
    if (args.encoder_keys) high_ = std::min<int64_t>(high_, args.batch->encoder_ends[token]);
    if (args.decoder_keys && position_ >= args.batch->encoder_ends[token]) {
      low_ = args.batch->encoder_ends[token];
    }
    if (args.item_ends) high_ = std::max<int64_t>(high_, args.batch->item_ends[token]);
    if (args.key_ranges != nullptr) {
      low_ = args.key_ranges[2 * token];
      high_ = args.key_ranges[2 * token + 1];
    }
  }

  void Run() const {
    Softmax softmax(head_dim_, sink_);
    for (int64_t key = low_; key < high_; ++key) {
      softmax.Add(Score(key), ValueOf(key), Scale(key, args_.kv_heads + kv_head_));
    }
    std::vector<double> means(head_dim_);
    for (int64_t d = 0; d < head_dim_; ++d) means[d] = softmax.Mean(d);
    if (types_.value == DType::kU4) RotateRow(means.data(), static_cast<int>(head_dim_), 1.0);
    for (int64_t d = 0; d < head_dim_; ++d) {
      y_[d] = static_cast<float>(means[d] * args_.kv_scales.v);
    }
  }

 private:
  double Score(int64_t key) const {
    double dot = DoubleDot(q_.data(), KeyOf(key), head_dim_) * args_.scale * args_.kv_scales.k *
                 Scale(key, kv_head_);
    dot += BiasOf(args_.biases, token_, head_, position_, key);
    if (args_.soft_cap > 0) dot = args_.soft_cap * std::tanh(dot / args_.soft_cap);
    if (args_.grows_from > 0 && position_ > args_.grows_from) {
      dot *= std::log(static_cast<double>(position_)) / std::log(args_.grows_from);
    }
    return dot + slope_ * static_cast<double>(key - position_);
  }

  CacheRow KeyOf(int64_t key) const {
    const int64_t row_bytes = KvRowBytes(types_.key, head_dim_), token = key % BlockSize();
    const KeyStrides strides = KeyStridesOf(args_.keys_in_rows, head_dim_, BlockSize());
    return {.page = Block(key) + kv_head_ * row_bytes * BlockSize(),
            .type = types_.key,
            .is_key = true,
            .token = token,
            .first = token * strides.token,
            .stride = strides.element,
            .block_size = BlockSize(),
            .row_bytes = row_bytes};
  }

  CacheRow ValueOf(int64_t key) const {
    const int64_t row_bytes = KvRowBytes(types_.value, head_dim_), token = key % BlockSize();
    return {.page = Block(key) + KvValuesOffsetBytes(args_.cache.dtype, Heads(), BlockSize()) +
                    kv_head_ * row_bytes * BlockSize(),
            .type = types_.value,
            .is_key = false,
            .token = token,
            .first = token * head_dim_,
            .stride = 1,
            .block_size = BlockSize(),
            .row_bytes = row_bytes};
  }

  int64_t BlockSize() const { return args_.batch->block_size; }
  KvHeads Heads() const { return {.kv_heads = args_.kv_heads, .head_dim = head_dim_}; }
  // The block of position `key`.
  const std::byte* Block(int64_t key) const {
    return args_.cache.Row<std::byte>(block_table_[key / BlockSize()]);
  }

  // The scale of position `key`: of its keys by head, then of its values.
  double Scale(int64_t key, int64_t head) const {
    if (!HasKvScales(args_.cache.dtype)) return 1;
    const int64_t row = head * BlockSize() + key % BlockSize();
    float scale;
    std::memcpy(&scale,
                Block(key) + KvScalesOffsetBytes(args_.cache.dtype, Heads(), BlockSize()) +
                    row * static_cast<int64_t>(sizeof(float)),
                sizeof(float));
    return scale;
  }

  const PagedAttentionArgs& args_;
  const int32_t* block_table_;
  int64_t head_dim_;
  KvTypes types_;
  int64_t kv_head_;
  std::vector<double> q_;
  float* y_;
  double sink_;  // or Softmax::kNoSink
  double slope_;
  const int64_t token_, head_;
  int64_t position_ = 0;
  int64_t low_ = 0;
  int64_t high_ = 0;
};

}  // namespace

void PagedAttentionReference(const OpCall& call, KernelContext&) {
  const PagedAttentionArgs args = ToPagedAttentionArgs(call);
  for (int64_t request = 0; request < args.batch->num_requests; ++request) {
    for (int64_t token = args.batch->query_start[request];
         token < args.batch->query_start[request + 1]; ++token) {
      for (int64_t head = 0; head < args.q.shape[1]; ++head) {
        Query(args, request, token, head).Run();
      }
    }
  }
}

}  // namespace pagemill::ops
