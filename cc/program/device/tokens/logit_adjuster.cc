#include "cc/program/device/tokens/logit_adjuster.h"

#include <algorithm>
#include <string>

#include "cc/program/device/tokens/op_calls.h"

namespace pagemill::program {
namespace {

int64_t ChangeBytes(const AdjusterPlan& plan) {
  static_assert(sizeof(ops::TokenCount) == sizeof(ops::LogitBias));
  return AlignedTo64(static_cast<int64_t>(sizeof(ops::TokenCount)) * plan.changes_at_once);
}
int64_t ClearedBytes(const AdjusterPlan& plan) { return AlignedTo64(4 * plan.num_slots); }
int64_t PenaltyBytes(const AdjusterPlan& plan) {
  return AlignedTo64(static_cast<int64_t>(sizeof(ops::RowPenalties)) * plan.max_rows);
}

}  // namespace

int64_t AdjusterPlan::device_bytes() const {
  return num_slots == 0 ? 0 : ChangeBytes(*this) + ClearedBytes(*this) + PenaltyBytes(*this);
}

int64_t AdjusterPlan::host_bytes() const {
  return num_slots == 0 ? 0 : 2 * ChangeBytes(*this) + ClearedBytes(*this) + PenaltyBytes(*this);
}

StatusOr<AdjusterPlan> PlanAdjuster(const Target& target, const TensorView& logits,
                                    int64_t max_tokens, int64_t num_slots) {
  AdjusterPlan plan = {
      .num_columns = logits.shape[1], .max_rows = logits.shape[0], .num_slots = num_slots};
  const TensorView counts = Words(nullptr, num_slots, plan.num_columns);
  const TensorView ids = Numbers(nullptr, max_tokens);
  PAGEMILL_ASSIGN_OR_RETURN(
      plan.count, ChooseWithoutWorkspace(
                      target, "count_tokens",
                      {.inputs = {counts, Numbers(nullptr, num_slots),
                                  Words(nullptr, plan.changes_at_once, ops::kTokenCountWords),
                                  ids}}));
  PAGEMILL_ASSIGN_OR_RETURN(
      plan.adjust,
      ChooseWithoutWorkspace(target, "adjust_logits",
                             {.inputs = {logits, counts,
                                         Words(nullptr, plan.changes_at_once, ops::kLogitBiasWords),
                                         Words(nullptr, plan.max_rows, ops::kRowPenaltiesWords),
                                         ids}}));
  return plan;
}

StatusOr<LogitAdjuster> LogitAdjuster::Create(const AdjusterPlan& plan, device::Device& device) {
  LogitAdjuster adjuster;
  adjuster.plan_ = plan;
  PAGEMILL_ASSIGN_OR_RETURN(adjuster.counts_,
                            device.Allocate(plan.count_bytes(), "counts of tokens"));
  PAGEMILL_ASSIGN_OR_RETURN(adjuster.sent_,
                            device.Allocate(plan.device_bytes(), "biases and penalties"));
  adjuster.used_ = device.NewEvent();
  return adjuster;
}

StatusOr<AdjustmentBuffer> LogitAdjuster::NewBuffer(device::Device& device) const {
  AdjustmentBuffer buffer;
  if (plan_.num_slots == 0) return buffer;
  PAGEMILL_ASSIGN_OR_RETURN(
      buffer.memory_, device.AllocateHost(plan_.host_bytes(), "biases and penalties of a step"));
  std::byte* at = buffer.memory_.data();
  const auto take = [&at]<typename T>(std::span<T>* part, int64_t size, int64_t bytes) {
    *part = {reinterpret_cast<T*>(at), static_cast<size_t>(size)};
    at += bytes;
  };
  take(&buffer.counts_, plan_.changes_at_once, ChangeBytes(plan_));
  take(&buffer.biases_, plan_.changes_at_once, ChangeBytes(plan_));
  take(&buffer.cleared_slots_, plan_.num_slots, ClearedBytes(plan_));
  take(&buffer.penalties_, plan_.max_rows, PenaltyBytes(plan_));
  return buffer;
}

Status LogitAdjuster::Check(const StepDraws& draws, int64_t num_rows, int64_t num_ids) const {
  const auto is_slot = [this](int32_t slot) { return slot >= 0 && slot < plan_.num_slots; };
  const auto is_row = [num_rows](int32_t row) { return row >= 0 && row < num_rows; };
  const auto is_token = [this](int32_t token) {
    return token >= 0 && token < plan_.num_columns;
  };
  const auto counts = [&](const ops::TokenCount& count) {
    const bool in_step = count.token_id < 0 && count.token_id >= ops::TokenOfInput(num_ids - 1);
    return is_slot(count.slot) && (in_step || is_token(count.token_id));
  };
  const auto changes = [&](const ops::LogitBias& bias) {
    return plan_.num_slots > 0 && is_row(bias.row) && is_token(bias.token_id);
  };
  const auto penalizes = [&](const ops::RowPenalties& row) {
    return is_row(row.row) && is_slot(row.slot) && row.first_draft >= 0 && row.num_drafts >= 0 &&
           row.num_drafts <= num_ids - row.first_draft;
  };
  const bool fits = static_cast<int64_t>(draws.cleared_slots.size()) <= plan_.num_slots &&
                    static_cast<int64_t>(draws.penalties.size()) <= num_rows;
  if (fits && std::ranges::all_of(draws.cleared_slots, is_slot) &&
      std::ranges::all_of(draws.counts, counts) && std::ranges::all_of(draws.biases, changes) &&
      std::ranges::all_of(draws.penalties, penalizes)) {
    return OkStatus();
  }
  return InvalidArgument("the biases and penalties of a step do not fit its " +
                         std::to_string(num_rows) + " rows, " + std::to_string(num_ids) +
                         " tokens and " + std::to_string(plan_.num_slots) + " slots");
}

std::byte* LogitAdjuster::cleared_slots() const { return changes() + ChangeBytes(plan_); }
std::byte* LogitAdjuster::penalties() const { return cleared_slots() + ClearedBytes(plan_); }

TensorView LogitAdjuster::Counts() const {
  return Words(counts_.data(), plan_.num_slots, plan_.num_columns);
}

// Calls run(how many are sent, whether they are the last) once at least.
template <typename Change, typename Run>
void LogitAdjuster::ForEachPart(std::span<const Change> changes, std::span<Change> buffer,
                                device::Stream& stream, const Run& run) const {
  do {
    const size_t size = std::min(changes.size(), buffer.size());
    std::ranges::copy(changes.first(size), buffer.begin());
    changes = changes.subspan(size);
    if (size > 0) stream.CopyToDevice(this->changes(), std::as_bytes(buffer.first(size)));
    run(static_cast<int64_t>(size), changes.empty());
    if (changes.empty()) return;
    stream.Record(*used_);
    (void)used_->Synchronize();  // later events have its error, too
  } while (true);
}

void LogitAdjuster::EnqueueCounts(std::span<const int32_t> ids, const StepDraws& draws,
                                  AdjustmentBuffer* step, device::Stream& stream) const {
  size_t num_cleared = draws.cleared_slots.size();
  std::ranges::copy(draws.cleared_slots, step->cleared_slots_.begin());
  if (num_cleared > 0) {
    stream.CopyToDevice(cleared_slots(), std::as_bytes(step->cleared_slots_.first(num_cleared)));
  }
  ForEachPart(draws.counts, step->counts_, stream, [&](int64_t size, bool) {
    const OwnedCall call = {
        .inputs = {Counts(), Numbers(cleared_slots(), static_cast<int64_t>(num_cleared)),
                   Words(changes(), size, ops::kTokenCountWords),
                   Numbers(ids.data(), static_cast<int64_t>(ids.size()))}};
    RunWithoutWorkspace(*plan_.count, call, stream);
    num_cleared = 0;
  });
}

void LogitAdjuster::Enqueue(const TensorView& logits, std::span<const int32_t> ids,
                            const StepDraws& draws, AdjustmentBuffer* step,
                            device::Stream& stream) const {
  if (!draws.cleared_slots.empty() || !draws.counts.empty()) {
    EnqueueCounts(ids, draws, step, stream);
  }
  if (draws.biases.empty() && draws.penalties.empty()) return;
  const size_t num_penalties = draws.penalties.size();
  std::ranges::copy(draws.penalties, step->penalties_.begin());
  if (num_penalties > 0) {
    stream.CopyToDevice(penalties(), std::as_bytes(step->penalties_.first(num_penalties)));
  }
  ForEachPart(draws.biases, step->biases_, stream, [&](int64_t size, bool last) {
    const int64_t rows = last ? static_cast<int64_t>(num_penalties) : 0;
    const OwnedCall call = {
        .inputs = {logits, Counts(), Words(changes(), size, ops::kLogitBiasWords),
                   Words(penalties(), rows, ops::kRowPenaltiesWords),
                   Numbers(ids.data(), static_cast<int64_t>(ids.size()))}};
    RunWithoutWorkspace(*plan_.adjust, call, stream);
  });
}

}  // namespace pagemill::program
