#include "cc/runner/testing/context_executor.h"

#include <utility>

#include "cc/device/capabilities.h"
#include "cc/ops/sample/sample.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {

// The tokens up to and including `token`, of its request.
std::vector<int32_t> ContextExecutor::ContextOf(const ops::BatchView& view, int32_t token) const {
  int32_t request = 0;
  while (view.query_start[request + 1] <= token) ++request;
  const int32_t* blocks = view.block_table + request * view.block_table_stride;
  std::vector<int32_t> context;
  for (int32_t p = 0; p <= view.positions[token]; ++p) {
    const int32_t block = blocks[p / view.block_size];
    context.push_back(kv_[static_cast<size_t>(block * view.block_size + p % view.block_size)]);
  }
  return context;
}

// With those of the step before in their places.
std::vector<int32_t> ContextExecutor::TokensOf(const ops::StepBatch& batch) {
  std::vector<int32_t> ids(batch.token_ids, batch.token_ids + batch.num_tokens);
  for (int32_t& id : ids) {
    if (id >= 0) continue;
    ++num_tokens_of_rows;
    id = last_maxima_.at(static_cast<size_t>(-1 - id)).column;
  }
  return ids;
}

Status ContextExecutor::Enqueue(const ops::StepBatch& batch) {
  if (on_enqueue) PM_RETURN_IF_ERROR(on_enqueue(batch));
  if (static_cast<int32_t>(steps_.size()) == max_steps_in_flight()) {
    return FailedPrecondition("too many steps are in flight");
  }
  ++num_steps;
  num_tokens += batch.num_tokens;
  num_overlapping_steps += !steps_.empty();
  const std::vector<int32_t> ids = TokensOf(batch);
  token_ids.insert(token_ids.end(), ids.begin(), ids.end());
  const ops::BatchView view = batch.View(0);
  for (int32_t t = 0; t < view.num_tokens; ++t) {
    kv_[static_cast<size_t>(view.slot_mapping[t])] = ids[static_cast<size_t>(t)];
  }
  const auto columns = static_cast<size_t>(model_->vocab_size());
  Output& output = steps_.emplace_back();
  output.rows = view.num_logits_rows;
  for (int32_t row = 0; row < view.num_logits_rows; ++row) {
    const std::vector<int32_t> context = ContextOf(view, view.logits_rows[row]);
    const std::vector<float> logits =
        drafts ? model_->DraftLogits(context) : model_->Logits(context);
    output.logits.insert(output.logits.end(), logits.begin(), logits.end());
    if (view.argmax_columns == 0) continue;
    ops::Observe(&output.logits[output.logits.size() - columns], view.argmax_columns, 0,
                 &output.maxima.emplace_back());
  }
  last_maxima_ = output.maxima;
  return OkStatus();
}

// With the instructions that a host's sampler chooses, so that tokens have its bits.
Status ContextExecutor::Sample(std::span<const ops::RowDraw> draws) {
  if (on_sample) PM_RETURN_IF_ERROR(on_sample(draws));
  if (steps_.empty() || draws.size() != steps_.back().maxima.size()) {
    return FailedPrecondition("tokens are drawn from a step that was not asked for so many maxima");
  }
  static const ops::RowPasses& passes = ops::ChooseRowPasses(device::DetectCapabilities());
  const auto columns = static_cast<size_t>(model_->vocab_size());
  std::vector<ops::Candidate> storage(columns);
  Output& output = steps_.back();
  for (size_t row = 0; row < draws.size(); ++row) {
    ops::RowMaximum& found = output.maxima[row];
    num_drawn += draws[row].temperature > 0.0f;
    found.column =
        ops::DrawRow(passes, std::span(output.logits).subspan(row * columns, columns),
                     {.token_id = found.column, .logit = found.logit}, draws[row], storage);
  }
  last_maxima_ = output.maxima;
  return OkStatus();
}

Status ContextExecutor::Collect(program::ExecutorOutput* output) {
  if (steps_.empty()) return FailedPrecondition("no step is in flight");
  collected_ = std::move(steps_.front());
  steps_.pop_front();
  if (on_collect) PM_RETURN_IF_ERROR(on_collect());
  outputs_.clear();
  if (collected_.maxima.empty()) {
    outputs_.push_back({"logits", TensorView::Dense(collected_.logits.data(), DType::kF32,
                                                    {collected_.rows, model_->vocab_size()})});
  }
  output->outputs = outputs_;
  output->maxima = collected_.maxima;
  return OkStatus();
}

}  // namespace pagemill::runner
