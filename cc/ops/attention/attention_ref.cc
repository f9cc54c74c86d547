#include <algorithm>
#include <cstddef>
#include <vector>

#include "cc/ops/attention/attention.h"
#include "cc/ops/attention/grid_windows.h"
#include "cc/ops/double_dot/double_dot.h"
#include "cc/ops/double_softmax/double_softmax.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxHeadDim = 512;

// One head of one query, over keys [begin, end).
class Query {
 public:
  Query(const OpCall& call, int64_t token, int64_t head)
      : k_(call.inputs[1]),
        v_(call.inputs[2]),
        head_dim_(call.inputs[0].shape[2]),
        kv_head_(head / (call.inputs[0].shape[1] / k_.shape[1])),
        scale_(call.attributes->Get("scale", 1)),
        token_(token),
        q_(call.inputs[0].Row<float>(token) + head * head_dim_),
        y_(call.outputs[0].Row<float>(token) + head * head_dim_) {
    if (call.inputs.size() <= kAttentionBiases) return;
    biases_ = call.inputs[kAttentionBiases].Row<float>(head);
    reach_ = call.inputs[kAttentionBiases].shape[1] / 2;
  }

  void Run(int64_t begin, int64_t end) const {
    DoubleSoftmax<kMaxHeadDim> softmax(head_dim_);
    for (int64_t key = begin; key < end; ++key) {
      softmax.Add(Score(key), v_.Row<float>(key) + kv_head_ * head_dim_);
    }
    for (int64_t d = 0; d < head_dim_; ++d) y_[d] = static_cast<float>(softmax.Mean(d));
  }

 private:
  double Score(int64_t key) const {
    const float* k = k_.Row<float>(key) + kv_head_ * head_dim_;
    const double bias =
        biases_ == nullptr ? 0 : biases_[reach_ + std::clamp(key - token_, -reach_, reach_)];
    return DoubleDot(q_, k, head_dim_) * scale_ + bias;
  }

  const TensorView& k_;
  const TensorView& v_;
  const int64_t head_dim_;
  const int64_t kv_head_;
  const double scale_;
  const int64_t token_;
  const float* const q_;
  float* const y_;
  const float* biases_ = nullptr;
  int64_t reach_ = 0;
};

}  // namespace

void AttentionReference(const OpCall& call, KernelContext&) {
  const bool causal = call.attributes->GetInt("causal", 1) != 0;
  const int64_t window = call.attributes->GetInt("window", 0);
  std::vector<std::byte> plan(static_cast<size_t>(GridWindowsBytes(call)));
  ListGridWindows(call, plan);
  const TokenKeys* const windows = GridWindows(call, plan.data());
  const int32_t* start = call.batch->query_start;
  for (int32_t r = 0; r < call.batch->num_requests; ++r) {
    for (int64_t token = start[r]; token < start[r + 1]; ++token) {
      int64_t begin = start[r], end = causal ? token + 1 : start[r + 1];
      if (window > 0) {
        begin = std::max(begin, token + 1 - window);
        end = std::min(end, token + window);
      }
      if (windows != nullptr) {
        begin = start[r] + windows[token].first;
        end = start[r] + windows[token].end;
      }
      for (int64_t head = 0; head < call.inputs[0].shape[1]; ++head) {
        Query(call, token, head).Run(begin, end);
      }
    }
  }
}

}  // namespace pagemill::ops
