#include "cc/runner/draft_sampler.h"

#include <algorithm>
#include <string>

#include "cc/ops/sample/sample.h"
#include "cc/sampling/rejection_sampler.h"
#include "cc/sampling/sampler.h"

namespace pagemill::runner {

DraftSampler::DraftSampler(const DraftSamplerOptions& options, device::ThreadPool* pool)
    : options_(options), pool_(pool), passes_(ops::ChooseRowPasses(options.capabilities)) {
  PAGEMILL_CHECK(options.num_columns >= 1 && options.num_columns <= options.vocab_size);
  names_.push_back("logits");
  for (int32_t head = 1; head < options.num_heads; ++head) {
    names_.push_back("logits." + std::to_string(head));
  }
  storage_.resize(static_cast<size_t>(pool->num_threads()));
}

void DraftSampler::Begin(size_t num_drafts) {
  token_ids_.assign(num_drafts, 0);
  drawn_.assign(num_drafts, 0);
  if (probabilities_.size() < num_drafts) probabilities_.resize(num_drafts);
}

Status DraftSampler::Run(const program::ExecutorOutput& output, std::span<const DraftRow> rows) {
  if (!output.maxima.empty()) {
    for (const DraftRow& row : rows) {
      const ops::RowMaximum& max = output.maxima[static_cast<size_t>(row.row)];
      token_ids_[row.draft] = TokenOf(std::max(0, max.column));
    }
    return OkStatus();
  }
  logits_.clear();
  for (const std::string& name : names_) {
    logits_.push_back(output.Find(name));
    if (rows.empty()) continue;
    if (logits_.back().rank == 2 && logits_.back().shape[1] >= options_.num_columns) continue;
    return Internal("the draft model has " + name + " of fewer tokens than it may propose");
  }
  const auto num_columns = static_cast<size_t>(options_.num_columns);
  pool_->ParallelFor(
      static_cast<int64_t>(rows.size()), /*grain=*/1, [&](int64_t begin, int64_t end, int worker) {
        storage_[worker].resize(num_columns);
        for (int64_t i = begin; i < end; ++i) {
          const TensorView& logits = logits_[static_cast<size_t>(rows[i].head)];
          Choose({logits.Row<const float>(rows[i].row), num_columns}, rows[i], storage_[worker]);
        }
      });
  return OkStatus();
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
