#include "cc/program/device/tokens/token_scorer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "cc/program/device/tokens/op_calls.h"

namespace pagemill::program {
namespace {

int64_t ScoredBytes(const ScorerPlan& plan) {
  return AlignedTo64(static_cast<int64_t>(sizeof(ops::ScoredRow)) * plan.max_rows);
}
int64_t CopiedBytes(const ScorerPlan& plan) { return AlignedTo64(4 * plan.num_copies); }
int64_t ScoreBytes(const ScorerPlan& plan) {
  return AlignedTo64(static_cast<int64_t>(sizeof(ops::TokenScores)) * plan.max_rows);
}

TensorView RowsOfLogits(const void* data, int64_t rows, int64_t columns) {
  return TensorView::Dense(const_cast<void*>(data), DType::kF32, {rows, columns});
}

OwnedCall CopyCall(const TensorView& logits, const void* rows, const void* copies, int64_t count) {
  return {.inputs = {logits, Numbers(rows, count)},
          .outputs = {RowsOfLogits(copies, count, logits.shape[1])}};
}

OwnedCall ScoreCall(const TensorView& logits, const TensorView& copies, const void* columns,
                    const void* scored, const void* scores, int64_t count) {
  return {.inputs = {logits, copies, Numbers(columns, logits.shape[0]),
                     Words(scored, count, ops::kScoredRowWords)},
          .outputs = {Words(scores, count, ops::kTokenScoresWords)}};
}

// Whether the draw changes each row of logits.
std::vector<bool> ChangedRows(const StepDraws& draws) {
  std::vector<bool> changed;
  for (const ops::RowDraw& row : draws.rows) changed.push_back(row.mask >= 0);
  for (const ops::LogitBias& bias : draws.biases) changed[static_cast<size_t>(bias.row)] = true;
  for (const ops::RowPenalties& penalties : draws.penalties) {
    changed[static_cast<size_t>(penalties.row)] = true;
  }
  return changed;
}

}  // namespace

int64_t ScorerPlan::step_bytes() const {
  return ScoredBytes(*this) + CopiedBytes(*this) + ScoreBytes(*this);
}

StatusOr<ScorerPlan> PlanScorer(const Target& target, const TensorView& logits, int64_t num_slots) {
  ScorerPlan plan = {.num_columns = logits.shape[1],
                     .max_rows = num_slots == 0 ? 0 : logits.shape[0],
                     .num_copies = std::min(num_slots, logits.shape[0])};
  const OwnedCall copy = CopyCall(logits, nullptr, nullptr, plan.num_copies);
  PAGEMILL_ASSIGN_OR_RETURN(plan.copy, ChooseWithoutWorkspace(target, "select_rows", copy));
  const TensorView& copies = copy.outputs[0];
  const OwnedCall score = ScoreCall(logits, copies, nullptr, nullptr, nullptr, plan.max_rows);
  PAGEMILL_ASSIGN_OR_RETURN(plan.score, ChooseWithoutWorkspace(target, "score_tokens", score));
  return plan;
}

StatusOr<TokenScorer> TokenScorer::Create(const ScorerPlan& plan, device::Device& device) {
  TokenScorer scorer;
  scorer.plan_ = plan;
  PAGEMILL_ASSIGN_OR_RETURN(scorer.copies_,
                            device.Allocate(plan.copy_bytes(), "copies of rows of logits"));
  PAGEMILL_ASSIGN_OR_RETURN(scorer.memory_,
                            device.Allocate(plan.step_bytes(), "log probabilities"));
  return scorer;
}

StatusOr<ScoreBuffer> TokenScorer::NewBuffer(device::Device& device) const {
  ScoreBuffer buffer;
  if (plan_.max_rows == 0) return buffer;
  PAGEMILL_ASSIGN_OR_RETURN(
      buffer.memory_, device.AllocateHost(plan_.step_bytes(), "log probabilities of a step"));
  std::byte* const scored = buffer.memory_.data();
  std::byte* const copied = scored + ScoredBytes(plan_);
  std::byte* const scores = copied + CopiedBytes(plan_);
  const auto max_rows = static_cast<size_t>(plan_.max_rows);
  buffer.scored_ = {reinterpret_cast<ops::ScoredRow*>(scored), max_rows};
  buffer.copied_rows_ = {reinterpret_cast<int32_t*>(copied), static_cast<size_t>(plan_.num_copies)};
  buffer.scores_ = {reinterpret_cast<ops::TokenScores*>(scores), max_rows};
  return buffer;
}

std::byte* TokenScorer::copied_rows() const { return memory_.data() + ScoredBytes(plan_); }
std::byte* TokenScorer::scores() const { return copied_rows() + CopiedBytes(plan_); }

Status TokenScorer::Check(const StepDraws& draws, int64_t num_rows) const {
  if (draws.scored.empty()) return OkStatus();
  const auto exists = [&](const ops::ScoredRow& scored) {
    return scored.row >= 0 && scored.row < num_rows && scored.token_id < plan_.num_columns &&
           scored.num_top >= 0 && scored.num_top <= ops::kMaxScoredTop;
  };
  const auto count = static_cast<int64_t>(draws.scored.size());
  if (count > std::min(num_rows, plan_.max_rows) || !std::ranges::all_of(draws.scored, exists)) {
    return InvalidArgument("the log probabilities that are wanted do not fit a step of " +
                           std::to_string(num_rows) + " rows");
  }
  if (count <= plan_.num_copies) return OkStatus();
  const std::vector<bool> changed = ChangedRows(draws);
  const auto is_changed = [&](const ops::ScoredRow& scored) {
    return changed[static_cast<size_t>(scored.row)];
  };
  if (std::ranges::count_if(draws.scored, is_changed) <= plan_.num_copies) return OkStatus();
  return InvalidArgument("log probabilities are wanted of more than " +
                         std::to_string(plan_.num_copies) + " rows that are changed");
}

void TokenScorer::EnqueueCopies(const TensorView& logits, const StepDraws& draws, ScoreBuffer* step,
                                device::Stream& stream) const {
  step->num_scored_ = draws.scored.size();
  if (draws.scored.empty()) return;
  const std::vector<bool> changed = ChangedRows(draws);
  int32_t num_copies = 0;
  for (size_t i = 0; i < draws.scored.size(); ++i) {
    ops::ScoredRow& scored = step->scored_[i] = draws.scored[i];
    scored.copy = -1;
    if (!changed[static_cast<size_t>(scored.row)]) continue;
    step->copied_rows_[static_cast<size_t>(num_copies)] = scored.row;
    scored.copy = num_copies++;
  }
  stream.CopyToDevice(memory_.data(), std::as_bytes(step->scored_.first(draws.scored.size())));
  if (num_copies == 0) return;
  const auto rows = step->copied_rows_.first(static_cast<size_t>(num_copies));
  stream.CopyToDevice(copied_rows(), std::as_bytes(rows));
  const OwnedCall call = CopyCall(logits, copied_rows(), copies_.data(), num_copies);
  RunWithoutWorkspace(*plan_.copy, call, stream);
}

void TokenScorer::EnqueueScores(const TensorView& logits, const int32_t* columns,
                                const ScoreBuffer& step, device::Stream& stream) const {
  if (step.num_scored_ == 0) return;
  const TensorView copies = RowsOfLogits(copies_.data(), plan_.num_copies, plan_.num_columns);
  const OwnedCall call = ScoreCall(logits, copies, columns, memory_.data(), scores(),
                                   static_cast<int64_t>(step.num_scored_));
  RunWithoutWorkspace(*plan_.score, call, stream);
}

void TokenScorer::EnqueueResults(ScoreBuffer* to, device::Stream& stream) const {
  if (to->num_scored_ == 0) return;
  stream.CopyToHost(std::as_writable_bytes(to->scores_.first(to->num_scored_)), scores());
}

}  // namespace pagemill::program
