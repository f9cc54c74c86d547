#include "cc/runner/draft_inputs/draft_states.h"

#include <algorithm>
#include <cstring>

#include "cc/base/status.h"

namespace pagemill::runner {

DraftStates::DraftStates(const DraftStatesOptions& options)
    : options_(options),
      row_bytes_(static_cast<size_t>(RowBytes(options.type, options.width))),
      slots_(static_cast<size_t>(options.num_slots)) {
  PAGEMILL_CHECK(options.width >= 1 && options.num_slots >= 1);
}

void DraftStates::Start(int32_t slot, int32_t num_computed) {
  slots_[static_cast<size_t>(slot)] = Slot{.first = num_computed, .rows = {}};
}

void DraftStates::Append(int32_t slot, const TensorView& states, int64_t first_row, int32_t count) {
  PAGEMILL_CHECK(Fits(states, first_row + count));
  std::vector<std::byte>& rows = slots_[static_cast<size_t>(slot)].rows;
  for (int64_t row = first_row; row < first_row + count; ++row) {
    const auto* from = states.Row<const std::byte>(row);
    rows.insert(rows.end(), from, from + row_bytes_);
  }
}

void DraftStates::DropBefore(int32_t slot, int32_t token) {
  Slot& dropping = slots_[static_cast<size_t>(slot)];
  const int32_t count = std::clamp(token - dropping.first, 0, NumRows(dropping));
  if (count == 0) return;
  dropping.first += count;
  std::vector<std::byte>& rows = dropping.rows;
  const auto kept =
      rows.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(count) * row_bytes_);
  if (static_cast<size_t>(rows.end() - kept) < rows.capacity() / 4) {
    rows = std::vector<std::byte>(kept, rows.end());  // gives memory back
  } else {
    rows.erase(rows.begin(), kept);
  }
}

int32_t DraftStates::num_tokens(int32_t slot) const {
  const Slot& of = slots_[static_cast<size_t>(slot)];
  return of.first + NumRows(of);
}

size_t DraftStates::bytes(int32_t slot) const {
  return slots_[static_cast<size_t>(slot)].rows.capacity();
}

void DraftStates::BeginStep(size_t num_drafts) { own_.resize(num_drafts * row_bytes_); }

void DraftStates::AddToPass(int32_t slot, int32_t position, int32_t count) {
  const Slot& from = slots_[static_cast<size_t>(slot)];
  const size_t begin = pass_.size();
  pass_.resize(begin + static_cast<size_t>(count) * row_bytes_);  // zeros
  for (int32_t i = 0; i < count; ++i) {
    const int32_t row = position + i - 1 - from.first;
    if (row < 0 || row >= NumRows(from)) continue;
    std::memcpy(pass_.data() + begin + static_cast<size_t>(i) * row_bytes_,
                from.rows.data() + static_cast<size_t>(row) * row_bytes_, row_bytes_);
  }
}

void DraftStates::AddOwnToPass(size_t draft) {
  const std::byte* const from = own_.data() + draft * row_bytes_;
  pass_.insert(pass_.end(), from, from + row_bytes_);
}

void DraftStates::Keep(size_t draft, const TensorView& states, int64_t row) {
  std::memcpy(own_.data() + draft * row_bytes_, states.Row<const std::byte>(row), row_bytes_);
}

TensorView DraftStates::view() {
  return TensorView::Dense(pass_.data(), options_.type,
                           {static_cast<int64_t>(pass_.size() / row_bytes_), options_.width});
}

bool DraftStates::Fits(const TensorView& states, int64_t rows) const {
  return states.rank == 2 && states.dtype == options_.type && states.shape[1] == options_.width &&
         states.shape[0] >= rows;
}

}  // namespace pagemill::runner
