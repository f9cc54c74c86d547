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

// The elements of a key or a value of a head, `stride` elements apart, as they are stored.
struct CacheRow {
  const void* block;
  DType dtype;
  int64_t first, stride;

  double operator[](int64_t i) const {
    const int64_t index = first + i * stride;
    if (dtype == DType::kI8) return static_cast<const int8_t*>(block)[index];
    if (dtype == DType::kF8E4M3) return F8E4M3ToFloat(static_cast<const uint8_t*>(block)[index]);
    if (dtype == DType::kF32) return static_cast<const float*>(block)[index];
    return Bf16ToFloat(static_cast<const uint16_t*>(block)[index]);
  }
};

// The elements of a key or a value of int4, of token `token` of a head's page.
struct Int4CacheRow {
  const uint8_t* page;
  bool is_key;
  int64_t token, block_size, row_bytes;

  double operator[](int64_t d) const {
    const int64_t byte = Int4Byte(d);
    const uint8_t pair = page[is_key ? Int4KeyOffset(byte, token, block_size)
                                     : Int4ValueOffset(byte, token, row_bytes)];
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
        is_int4_(args.cache.dtype == DType::kU4),
        kv_head_(head / (args.q.shape[1] / args.kv_heads)),
        q_(args.q.Row<float>(token) + head * head_dim_,
           args.q.Row<float>(token) + (head + 1) * head_dim_),
        y_(args.y.Row<float>(token) + head * head_dim_),
        sink_(args.sinks == nullptr ? Softmax::kNoSink : args.sinks[head]),
        slope_(args.slopes == nullptr ? 0.0 : args.slopes[head]),
        token_(token),
        head_(head) {
    if (is_int4_) RotateRow(q_.data(), static_cast<int>(head_dim_), 1.0);
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
      const int64_t row = ValueRow(key), block = BlockOf(key);
      const double scale = Scale(block, row);
      if (is_int4_) {
        softmax.Add(Score(key), Int4Row(key, /*is_key=*/false), scale);
      } else {
        softmax.Add(Score(key), Row(block, row * head_dim_, /*stride=*/1), scale);
      }
    }
    std::vector<double> means(head_dim_);
    for (int64_t d = 0; d < head_dim_; ++d) means[d] = softmax.Mean(d);
    if (is_int4_) RotateRow(means.data(), static_cast<int>(head_dim_), 1.0);
    for (int64_t d = 0; d < head_dim_; ++d) {
      y_[d] = static_cast<float>(means[d] * args_.kv_scales.v);
    }
  }

 private:
  double Score(int64_t key) const {
    const int64_t block_size = args_.batch->block_size;
    const int64_t block = BlockOf(key);
    double dot = (is_int4_ ? DoubleDot(q_.data(), Int4Row(key, /*is_key=*/true), head_dim_)
                           : DoubleDot(q_.data(), KeyOf(key), head_dim_)) *
                 args_.scale * args_.kv_scales.k *
                 Scale(block, kv_head_ * block_size + key % block_size);
    dot += BiasOf(args_.biases, token_, head_, position_, key);
    if (args_.soft_cap > 0) dot = args_.soft_cap * std::tanh(dot / args_.soft_cap);
    if (args_.grows_from > 0 && position_ > args_.grows_from) {
      dot *= std::log(static_cast<double>(position_)) / std::log(args_.grows_from);
    }
    return dot + slope_ * static_cast<double>(key - position_);
  }

  CacheRow KeyOf(int64_t key) const {
    const int64_t block_size = args_.batch->block_size;
    const KeyStrides strides = KeyStridesOf(args_.keys_in_rows, head_dim_, block_size);
    return Row(BlockOf(key), kv_head_ * head_dim_ * block_size + key % block_size * strides.token,
               strides.element);
  }

  // Of position `key`: its key, or its value.
  Int4CacheRow Int4Row(int64_t key, bool is_key) const {
    const int64_t block_size = args_.batch->block_size;
    const int64_t row_bytes = KvRowBytes(DType::kU4, head_dim_);
    const int64_t page = is_key ? kv_head_ : args_.kv_heads + kv_head_;
    return {args_.cache.Row<uint8_t>(BlockOf(key)) + page * row_bytes * block_size, is_key,
            key % block_size, block_size, row_bytes};
  }

  int64_t BlockOf(int64_t key) const { return block_table_[key / args_.batch->block_size]; }

  // In its block, behind the keys of all heads.
  int64_t ValueRow(int64_t key) const {
    const int64_t block_size = args_.batch->block_size;
    return (args_.kv_heads + kv_head_) * block_size + key % block_size;
  }

  CacheRow Row(int64_t block, int64_t first, int64_t stride) const {
    return {args_.cache.Row<std::byte>(block), args_.cache.dtype, first, stride};
  }

  // The scale of a row of int8 or int4: rows of K by head and token, then those of V.
  double Scale(int64_t block, int64_t row) const {
    if (!HasKvScales(args_.cache.dtype)) return 1;
    const KvHeads heads{.kv_heads = args_.kv_heads, .head_dim = head_dim_};
    float scale;
    std::memcpy(&scale,
                args_.cache.Row<std::byte>(block) +
                    KvScalesOffsetBytes(args_.cache.dtype, heads, args_.batch->block_size) +
                    row * static_cast<int64_t>(sizeof(float)),
                sizeof(float));
    return scale;
  }

  const PagedAttentionArgs& args_;
  const int32_t* block_table_;
  int64_t head_dim_;
  bool is_int4_;
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
