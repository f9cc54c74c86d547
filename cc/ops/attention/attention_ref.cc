#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "cc/ops/attention/attention.h"
#include "cc/ops/attention/listed_keys.h"
#include "cc/ops/double_dot/double_dot.h"
#include "cc/ops/double_softmax/double_softmax.h"
#include "cc/ops/paged_attention/paged_attention.h"  // BiasOf

namespace pagemill::ops {
namespace {

using Softmax = DoubleSoftmax</*kMaxSize=*/512>;

// One head of one query, over keys [begin, end).
class Query {
 public:
  // Row `row`, of the request that begins at row `start`.
  Query(const OpCall& call, int64_t start, int64_t row, int64_t head)
      : k_(call.inputs[1]),
        v_(call.inputs[2]),
        head_dim_(call.inputs[0].shape[2]),
        head_(head),
        kv_head_(head / (call.inputs[0].shape[1] / k_.shape[1])),
        scale_(call.attributes->Get("scale", 1)),
        soft_cap_(call.attributes->Get("soft_cap", 0)),
        sink_(AttentionSinks(call) == nullptr ? Softmax::kNoSink : AttentionSinks(call)[head]),
        start_(start),
        row_(row),
        q_(call.inputs[0].Row<float>(row) + head * head_dim_),
        y_(call.outputs[0].Row<float>(row) + head * head_dim_),
        biases_(AttentionBiases(call)) {}

  void Run(int64_t begin, int64_t end) const {
    Softmax softmax(head_dim_, sink_);
    for (int64_t key = begin; key < end; ++key) {
      softmax.Add(Score(key), v_.Row<float>(key) + kv_head_ * head_dim_);
    }
    for (int64_t d = 0; d < head_dim_; ++d) y_[d] = static_cast<float>(softmax.Mean(d));
  }

 private:
  double Score(int64_t key) const {
    const float* k = k_.Row<float>(key) + kv_head_ * head_dim_;
    const double score = DoubleDot(q_, k, head_dim_) * scale_ +
                         BiasOf(biases_, row_, head_, row_ - start_, key - start_);
    return soft_cap_ > 0 ? soft_cap_ * std::tanh(score / soft_cap_) : score;
  }

  const TensorView& k_;
  const TensorView& v_;
  const int64_t head_dim_;
  const int64_t head_, kv_head_;
  const double scale_, soft_cap_;
  const double sink_;  // or Softmax::kNoSink
  const int64_t start_, row_;
  const float* const q_;
  float* const y_;
  const DistanceBiases biases_;
};

}  // namespace

void AttentionReference(const OpCall& call, KernelContext&) {
  const bool causal = call.attributes->GetInt("causal", 1) != 0;
  const int64_t window = call.attributes->GetInt("window", 0);
  std::vector<std::byte> plan(static_cast<size_t>(ListedKeysBytes(call)));
  ListKeys(call, plan);
  const RowKeyRange* const listed = ListedKeys(call, plan.data());
  const int64_t of_token = RowsOfToken(call);
  for (int32_t r = 0; r < call.batch->num_requests; ++r) {
    const int64_t start = call.batch->query_start[r] * of_token;
    const int64_t last = call.batch->query_start[r + 1] * of_token;
    for (int64_t row = start; row < last; ++row) {
      int64_t begin = start, end = causal ? row + 1 : last;
      if (window > 0) {
        begin = std::max(begin, row + 1 - window);
        end = std::min(end, row + window);
      }
      if (listed != nullptr) {
        begin = start + listed[row].first;
        end = start + listed[row].end;
      }
      for (int64_t head = 0; head < call.inputs[0].shape[1]; ++head) {
        Query(call, start, row, head).Run(begin, end);
      }
    }
  }
}

}  // namespace pagemill::ops
