#include "cc/program/device/step_graphs.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace pagemill::program {
namespace {

// Buckets of fewer tokens would differ by less than what a kernel's launch costs.
constexpr int64_t kLeastMixedTokens = 16;

// The least of 1, 2, 3, 4, 6, 8, 12, ... that is at least `size` > 0.
int64_t RoundUp(int64_t size) {
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size)));
  const int64_t three_quarters = power / 4 * 3;
  return size <= three_quarters ? three_quarters : power;
}

}  // namespace

std::optional<ops::StepSizes> StepGraphs::BucketOf(const ops::StepSizes& step) const {
  const ops::StepSizes& max = options_.max_sizes;
  const int64_t max_tokens = std::min(options_.max_tokens, max.tokens);
  if (step.requests == 0 || step.media_rows > 0 || step.tokens > max_tokens) return std::nullopt;
  if (step.tokens == step.requests && step.logits_rows == step.requests) {
    const int64_t size =
        std::min({RoundUp(step.requests), max_tokens, max.requests, max.logits_rows});
    return ops::StepSizes{.tokens = size,
                          .requests = size,
                          .logits_rows = size,
                          .text_rows = step.text_rows > 0 ? size : 0};
  }
  ops::StepSizes bucket;
  bucket.requests = std::min(RoundUp(step.requests + 1), max.requests);
  const int64_t padding = bucket.requests - step.requests;
  bucket.tokens = std::min(RoundUp(std::max(kLeastMixedTokens, step.tokens + padding)), max_tokens);
  const int64_t rows = step.logits_rows <= bucket.requests ? bucket.requests : bucket.tokens;
  bucket.logits_rows = std::min(rows, max.logits_rows);
  if (step.text_rows > 0) bucket.text_rows = bucket.tokens;          // all: there are no media
  const int64_t last = bucket.tokens - step.tokens - (padding - 1);  // tokens of the last request
  if (padding == 0 || last < 1 || last > options_.max_padding_tokens ||
      step.logits_rows > bucket.logits_rows) {
    return std::nullopt;
  }
  return bucket;
}

Status StepGraphs::Run(const ops::StepSizes& bucket, bool with_adapters, int64_t step,
                       int64_t num_done, device::Stream& stream,
                       const std::function<void()>& enqueue) {
  const auto [found, is_new] = buckets_.try_emplace(
      {bucket.tokens, bucket.requests, bucket.logits_rows, with_adapters});
  Bucket& known = found->second;
  if (!is_new && known.graph == nullptr && MakeRoom(num_done)) {
    stream.BeginCapture();
    enqueue();
    StatusOr<std::unique_ptr<device::Graph>> graph = stream.EndCapture();
    if (graph.ok()) {
      known.graph = *std::move(graph);
      ++num_graphs_;
    } else if (graph.status().code() == StatusCode::kResourceExhausted) {
      options_.max_graphs = num_graphs_;
    } else {
      return graph.status();
    }
  }
  if (known.graph == nullptr) {
    enqueue();
    return OkStatus();
  }
  known.last_step = step;
  stream.Replay(*known.graph);
  return OkStatus();
}

// Drops the graph that was used longest ago if there is no room for another one. False if that is
// still in use.
bool StepGraphs::MakeRoom(int64_t num_done) {
  if (num_graphs_ < options_.max_graphs) return true;
  auto oldest = buckets_.end();
  for (auto it = buckets_.begin(); it != buckets_.end(); ++it) {
    if (it->second.graph == nullptr) continue;
    if (oldest == buckets_.end() || it->second.last_step < oldest->second.last_step) oldest = it;
  }
  if (oldest == buckets_.end() || oldest->second.last_step >= num_done) return false;
  buckets_.erase(oldest);
  --num_graphs_;
  return true;
}

}  // namespace pagemill::program
