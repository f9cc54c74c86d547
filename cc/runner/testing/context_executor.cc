#include "cc/runner/testing/context_executor.h"

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

Status ContextExecutor::Execute(const ops::StepBatch& batch, program::ExecutorOutput* output) {
  if (on_execute) PM_RETURN_IF_ERROR(on_execute(batch));
  ++num_steps;
  num_tokens += batch.num_tokens;
  const ops::BatchView view = batch.View(0);
  for (int32_t t = 0; t < view.num_tokens; ++t) {
    kv_[static_cast<size_t>(view.slot_mapping[t])] = view.token_ids[t];
  }
  const auto columns = static_cast<size_t>(model_->vocab_size());
  logits_.clear();
  maxima_.clear();
  for (int32_t row = 0; row < view.num_logits_rows; ++row) {
    const std::vector<int32_t> context = ContextOf(view, view.logits_rows[row]);
    const std::vector<float> logits =
        drafts ? model_->DraftLogits(context) : model_->Logits(context);
    logits_.insert(logits_.end(), logits.begin(), logits.end());
    if (view.argmax_columns == 0) continue;
    ops::Observe(&logits_[logits_.size() - columns], view.argmax_columns, 0,
                 &maxima_.emplace_back());
  }
  outputs_.clear();
  if (maxima_.empty()) {
    outputs_.push_back({"logits", TensorView::Dense(logits_.data(), DType::kF32,
                                                    {view.num_logits_rows, model_->vocab_size()})});
  }
  output->outputs = outputs_;
  output->maxima = maxima_;
  return OkStatus();
}

}  // namespace pagemill::runner
