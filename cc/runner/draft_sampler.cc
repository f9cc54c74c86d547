#include "cc/runner/draft_sampler.h"

#include <algorithm>

#include "cc/base/status.h"
#include "cc/ops/sample/sample.h"
#include "cc/sampling/rejection_sampler.h"
#include "cc/sampling/sampler.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {

DraftSampler::DraftSampler(const DraftSamplerOptions& options, device::ThreadPool* pool)
    : options_(options), pool_(pool), passes_(ops::ChooseRowPasses(options.capabilities)) {
  PAGEMILL_CHECK(options.num_columns >= 1 && options.num_columns <= options.vocab_size);
  storage_.resize(static_cast<size_t>(pool->num_threads()));
}

void DraftSampler::Begin(size_t num_drafts) {
  token_ids_.assign(num_drafts, 0);
  drawn_.assign(num_drafts, 0);
  if (probabilities_.size() < num_drafts) probabilities_.resize(num_drafts);
}

void DraftSampler::Run(const program::ExecutorOutput& output, std::span<const DraftRow> rows) {
  if (!output.maxima.empty()) {
    for (size_t i = 0; i < rows.size(); ++i) {
      token_ids_[rows[i].draft] = TokenOf(std::max(0, output.maxima[i].column));
    }
    return;
  }
  const TensorView logits = output.logits();
  const auto num_columns = static_cast<size_t>(options_.num_columns);
  pool_->ParallelFor(
      static_cast<int64_t>(rows.size()), /*grain=*/1, [&](int64_t begin, int64_t end, int worker) {
        storage_[worker].resize(num_columns);
        for (int64_t i = begin; i < end; ++i) {
          Choose({logits.Row<const float>(i), num_columns}, rows[i], storage_[worker]);
        }
      });
}

void DraftSampler::Choose(std::span<const float> logits, const DraftRow& row,
                          std::span<ops::Candidate> storage) {
  const ops::MaxEntry max = ops::ArgMax(passes_, logits);
  token_ids_[row.draft] = TokenOf(std::max(0, max.token_id));
  if (row.params->greedy() || max.token_id < 0) return;
  std::vector<float>& probabilities = probabilities_[row.draft];
  probabilities.resize(static_cast<size_t>(options_.vocab_size));
  const ops::KeptTokens kept =
      ops::WeighKept(passes_, logits, max, sampling::DrawParamsOf(*row.params), storage);
  if (!options_.token_ids.empty()) {
    const auto first = static_cast<size_t>(kept.tokens.data() - storage.data());
    for (ops::Candidate& token : storage.subspan(first, kept.tokens.size())) {
      token.token_id = TokenOf(token.token_id);
    }
  }
  token_ids_[row.draft] = sampling::DrawDraft(
      kept, sampling::UniformOf(row.params->seed, row.position, sampling::Purpose::kDraft),
      probabilities);
  drawn_[row.draft] = 1;
}

}  // namespace pagemill::runner
