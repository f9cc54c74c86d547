#include "cc/runner/testing/context_executor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cc/device/capabilities.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/sample.h"
#include "cc/runner/draft_inputs/draft_states.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {
namespace {

// Those that a host's sampler chooses, so that tokens and log probabilities have its bits.
const ops::RowPasses& Passes() {
  static const ops::RowPasses& passes = ops::ChooseRowPasses(device::DetectCapabilities());
  return passes;
}

}  // namespace

std::vector<size_t> ContextExecutor::SlotsOf(const ops::BatchView& view, int32_t token) {
  int32_t request = 0;
  while (view.query_start[request + 1] <= token) ++request;
  const int32_t* blocks = view.block_table + request * view.block_table_stride;
  std::vector<size_t> slots;
  for (int32_t p = 0; p <= view.positions[token]; ++p) {
    const int32_t block = blocks[p / view.block_size];
    slots.push_back(static_cast<size_t>(block * view.block_size + p % view.block_size));
  }
  return slots;
}

// The tokens up to and including `token`, of its request.
std::vector<int32_t> ContextExecutor::ContextOf(const ops::BatchView& view, int32_t token) const {
  std::vector<int32_t> context;
  for (const size_t slot : SlotsOf(view, token)) context.push_back(kv_[slot]);
  return context;
}

void ContextExecutor::ReadStates(const ops::StepBatch& batch) {
  const ops::BatchView view = batch.View(0);
  const TensorView& states = batch.inputs[0];
  for (int32_t t = 0; t < view.num_tokens; ++t) {
    const std::vector<size_t> slots = SlotsOf(view, t);
    const auto* state = states.Row<const float>(t);
    givers_[slots.back()] = state[1];
    num_missing_states += state[1] == kMissing;
    if (state[1] == kMissing) continue;
    num_wrong_states += slots.size() < 2 || state[0] != static_cast<float>(kv_[slots.rbegin()[1]]);
  }
  for (int32_t row = 0; row < view.num_logits_rows; ++row) {
    const std::vector<size_t> slots = SlotsOf(view, view.logits_rows[row]);
    if (givers_[slots.back()] == kHead) continue;
    num_stale_contexts += std::any_of(slots.begin(), slots.end(),
                                      [&](size_t slot) { return givers_[slot] == kHead; });
  }
}

void ContextExecutor::GiveStates(const ops::StepBatch& batch, Output* output) const {
  const bool is_head = states == States::kReads;
  const int32_t count = is_head ? batch.num_logits_rows : batch.num_tokens;
  for (int32_t i = 0; i < count; ++i) {
    const int32_t token = is_head ? batch.logits_rows[i] : i;
    output->states.push_back(static_cast<float>(last_ids_[static_cast<size_t>(token)]));
    output->states.push_back(is_head ? kHead : kTarget);
  }
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
  if (on_enqueue) PAGEMILL_RETURN_IF_ERROR(on_enqueue(batch));
  if (static_cast<int32_t>(steps_.size()) == max_steps_in_flight()) {
    return FailedPrecondition("too many steps are in flight");
  }
  ++num_steps;
  num_tokens += batch.num_tokens;
  num_overlapping_steps += !steps_.empty();
  const std::vector<int32_t> ids = TokensOf(batch);
  token_ids.insert(token_ids.end(), ids.begin(), ids.end());
  last_ids_ = ids;
  const ops::BatchView view = batch.View(0);
  for (int32_t t = 0; t < view.num_tokens; ++t) {
    kv_[static_cast<size_t>(view.slot_mapping[t])] = ids[static_cast<size_t>(t)];
  }
  if (states == States::kReads) ReadStates(batch);
  const auto columns = static_cast<size_t>(model_->vocab_size());
  Output& output = steps_.emplace_back();
  output.rows = view.num_logits_rows;
  if (states != States::kNone) GiveStates(batch, &output);
  for (int32_t row = 0; row < view.num_logits_rows; ++row) {
    const std::vector<int32_t> context = ContextOf(view, view.logits_rows[row]);
    const std::vector<float> logits =
        drafts ? model_->DraftLogits(context) : model_->Logits(context);
    output.logits.insert(output.logits.end(), logits.begin(), logits.end());
    for (size_t c = 0; c < column_tokens.size(); ++c) {
      output.logits[output.logits.size() - columns + c] =
          logits[static_cast<size_t>(column_tokens[c])];
    }
    if (view.argmax_columns == 0) continue;
    ops::Observe(&output.logits[output.logits.size() - columns], view.argmax_columns, 0,
                 &output.maxima.emplace_back());
  }
  last_maxima_ = output.maxima;
  return OkStatus();
}

void ContextExecutor::Exclude(std::span<const uint32_t> mask, std::span<float> logits,
                              ops::RowMaximum* found) {
  ++num_masked;
  for (size_t t = 0; t < logits.size(); ++t) {
    if ((mask[t / 32] >> (t % 32) & 1u) == 0) logits[t] = -std::numeric_limits<float>::infinity();
  }
  *found = {};
  ops::Observe(logits.data(), static_cast<int64_t>(logits.size()), 0, found);
}

void ContextExecutor::Count(const program::StepDraws& draws) {
  num_cleared += static_cast<int64_t>(draws.cleared_slots.size());
  for (const int32_t slot : draws.cleared_slots) counts_[slot].clear();
  for (const ops::TokenCount& count : draws.counts) {
    const int32_t token = count.token_id >= 0
                              ? count.token_id
                              : last_ids_.at(static_cast<size_t>(-1 - count.token_id));
    counts_[count.slot][token] += count.amount;
  }
}

void ContextExecutor::Adjust(const program::StepDraws& draws, Output* output) {
  const auto columns = static_cast<size_t>(model_->vocab_size());
  const auto row_of = [&](int32_t row) {
    return std::span(output->logits).subspan(static_cast<size_t>(row) * columns, columns);
  };
  num_adjusted += static_cast<int64_t>(draws.biases.size() + draws.penalties.size());
  for (const ops::LogitBias& bias : draws.biases) {
    row_of(bias.row)[static_cast<size_t>(bias.token_id)] += bias.bias;
  }
  for (const ops::RowPenalties& penalties : draws.penalties) {
    std::map<int32_t, int32_t> of_row = counts_[penalties.slot];
    for (int32_t i = 0; i < penalties.num_drafts; ++i) {
      of_row[last_ids_.at(static_cast<size_t>(penalties.first_draft + i))] += ops::kOneOutput;
    }
    for (const auto& [token, counted] : of_row) {
      float& logit = row_of(penalties.row)[static_cast<size_t>(token)];
      logit = ops::PenalizedLogit(logit, counted, penalties);
    }
  }
  for (size_t row = 0; row < output->maxima.size(); ++row) {
    output->maxima[row] = {};
    ops::Observe(row_of(static_cast<int32_t>(row)).data(), static_cast<int64_t>(columns), 0,
                 &output->maxima[row]);
  }
}

void ContextExecutor::Score(const program::StepDraws& draws, std::span<const float> logits,
                            Output* output) {
  const auto columns = static_cast<size_t>(model_->vocab_size());
  std::vector<ops::Candidate> storage(columns);
  num_scored += static_cast<int64_t>(draws.scored.size());
  for (const ops::ScoredRow& scored : draws.scored) {
    const auto at = static_cast<size_t>(scored.row);
    const std::span<const float> row = logits.subspan(at * columns, columns);
    const double lse = ops::LogSumExp(Passes(), row, ops::ArgMax(Passes(), row).logit, storage);
    const auto logprob = [lse](float logit) { return static_cast<float>(double{logit} - lse); };
    const int32_t token = scored.token_id >= 0 ? scored.token_id : output->maxima[at].column;
    ops::TokenScores& scores = output->scores.emplace_back();
    if (token < 0) continue;
    scores.logprob = logprob(row[static_cast<size_t>(token)]);
    if (scored.row == row_without_score) scores.logprob = std::numeric_limits<float>::quiet_NaN();
    scores.rank = ops::RankOf(Passes(), row, row[static_cast<size_t>(token)]);
    size_t place = 0;
    for (const ops::Candidate& top : ops::TopEntries(Passes(), row, scored.num_top, storage)) {
      scores.top_ids[place] = top.token_id;
      scores.top_logprobs[place++] = logprob(top.logit);
    }
  }
}

Status ContextExecutor::Sample(const program::StepDraws& draws) {
  if (on_sample) PAGEMILL_RETURN_IF_ERROR(on_sample(draws));
  if (steps_.empty() || draws.rows.size() != steps_.back().maxima.size()) {
    return FailedPrecondition("tokens are drawn from a step that was not asked for so many maxima");
  }
  const auto columns = static_cast<size_t>(model_->vocab_size());
  const size_t num_words = (columns + 31) / 32;
  std::vector<ops::Candidate> storage(columns);
  Output& output = steps_.back();
  const std::vector<float> originals = output.logits;
  for (size_t row = 0; row < draws.rows.size(); ++row) {
    const int32_t mask = draws.rows[row].mask;
    if (mask < 0) continue;
    Exclude(draws.masks.subspan(static_cast<size_t>(mask) * num_words, num_words),
            std::span(output.logits).subspan(row * columns, columns), &output.maxima[row]);
  }
  Count(draws);
  if (!draws.biases.empty() || !draws.penalties.empty()) Adjust(draws, &output);
  for (size_t row = 0; row < draws.rows.size(); ++row) {
    const ops::RowDraw& draw = draws.rows[row];
    const std::span<float> logits = std::span(output.logits).subspan(row * columns, columns);
    ops::RowMaximum& found = output.maxima[row];
    if (!found.usable()) continue;
    num_drawn += draw.temperature > 0.0f;
    found.column = ops::DrawRow(Passes(), logits, {.token_id = found.column, .logit = found.logit},
                                draw, storage);
  }
  Score(draws, originals, &output);
  last_maxima_ = output.maxima;
  return OkStatus();
}

Status ContextExecutor::Collect(program::ExecutorOutput* output) {
  if (steps_.empty()) return FailedPrecondition("no step is in flight");
  collected_ = std::move(steps_.front());
  steps_.pop_front();
  if (on_collect) PAGEMILL_RETURN_IF_ERROR(on_collect());
  outputs_.clear();
  if (collected_.maxima.empty()) {
    outputs_.push_back({"logits", TensorView::Dense(collected_.logits.data(), DType::kF32,
                                                    {collected_.rows, model_->vocab_size()})});
  }
  if (states != States::kNone) {
    const auto rows = static_cast<int64_t>(collected_.states.size() / 2);
    outputs_.push_back({kDraftStates, TensorView::Dense(collected_.states.data(), DType::kF32,
                                                        {rows, 2})});
  }
  output->outputs = outputs_;
  output->maxima = collected_.maxima;
  output->scores = collected_.scores;
  return OkStatus();
}

}  // namespace pagemill::runner
