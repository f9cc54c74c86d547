// File: cc/ops/paged_attention/attention_case.h
// A call of `paged_attention` with random queries, keys and values, for its conformance checks and
// benchmark: the cache is NaN except for the keys and values of the requests' tokens. Test code
// only.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_CASE_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_CASE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/kv_write/key_layout.h"
#include "cc/ops/kv_write/kv_scales.h"
#include "cc/ops/op.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops::conformance {

struct AttentionOptions {
  int64_t q_heads = 9;
  int64_t kv_heads = 3;
  int64_t head_dim = 64;
  int32_t block_size = 16;
  DType dtype = DType::kBF16;  // of the cache
  // Of queries and results. Rows of f32 are misaligned, with gaps between them; others are dense and
  // aligned.
  DType act = DType::kF32;
  int32_t window = 0;
  bool chunked = false;
  bool causal = true;
  bool encoder_keys = false;
  bool decoder_keys = false;
  int32_t encoder_end = 0;  // of request number 0; those of others are 3 more each; 0: none
  int32_t item_begin = 0;  // positions of an item in each request, unless item_end is 0
  int32_t item_end = 0;
  double soft_cap = 0;
  int32_t grows_from = 0;
  bool sinks = false;          // of all sizes, below and above the scores
  bool slopes = false;         // 1/2, 1/4, ...
  int32_t bias_reach = -1;     // biases of 2 * reach + 1 distances; negative: none
  int32_t common_blocks = 0;   // that all requests begin with
  bool zero_queries = false;   // all keys weigh the same
  bool round_queries = false;  // to bf16
  float value_factor = 1;      // by which values are multiplied
  KvScales kv_scales = {};     // of f8_e4m3 caches
  bool keys_in_rows = false;
};

class AttentionCase {
 public:
  // Query, key and value of a token depend only on its request's number and its position (request r
  // has number ids[r], or r). Keys and values that no query of the step sees stay NaN, and blocks
  // without visible keys are removed from the block table.
  AttentionCase(const AttentionOptions& options, std::vector<PagedRequest> requests,
                std::vector<int32_t> ids = {});
  AttentionCase(const AttentionCase&) = delete;

  // Poisons the output with NaN, runs the call and returns the rows of y, [T, q_heads * head_dim].
  std::vector<float> Run(const Kernel& kernel, device::ThreadPool& pool);
  void HideSharing() { batch_.HideSharing(); }
  const OpCall& call() const { return call_; }
  const BatchView& batch() const { return batch_.view(); }
  // Bytes of keys and values that the step's queries see, each block once per request.
  int64_t visible_bytes() const { return visible_bytes_; }

 private:
  int32_t EncoderEnd(int32_t id) const { return options_.encoder_end + 3 * id; }
  void StoreContext(int64_t request, int32_t id);
  void StoreToken(int64_t slot, const float* k, const float* v);
  // A row of the cache.
  struct StoredRow {
    std::byte* block;
    int64_t number;  // in the block: by head and token, those of K before those of V
    DType type;
    float kv_scale;
  };
  KvHeads Heads() const { return {.kv_heads = options_.kv_heads, .head_dim = options_.head_dim}; }
  // Stores x [head_dim] in a head's page: element d at at(d), or, of int4, byte i at byte_at(i).
  template <typename At, typename ByteAt>
  void StoreRow(const StoredRow& row, const float* x, std::byte* page, const At& at,
                const ByteAt& byte_at);
  // Stores and returns the scale of x [head_dim], if the cache has scales; else returns 1.
  float StoreScale(const StoredRow& row, const float* x);

  AttentionOptions options_;
  PagedBatch batch_;
  TestTensor q_, cache_, y_;
  Attributes attributes_;
  std::vector<float> sinks_, slopes_, biases_;
  TensorView inputs_[5];
  TensorView outputs_[1];
  OpCall call_;
  int64_t visible_bytes_ = 0;
};

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_CASE_H_
