#include "cc/runner/draft_inputs/draft_media.h"

#include <algorithm>

#include "cc/base/status.h"

namespace pagemill::runner {

DraftMedia::DraftMedia(const DraftMediaOptions& options)
    : options_(options),
      row_bytes_(static_cast<size_t>(RowBytes(options.type, options.width))),
      slots_(static_cast<size_t>(options.num_slots)) {
  PAGEMILL_CHECK(options.width >= 1 && options.num_slots >= 1);
}

void DraftMedia::Append(int32_t slot, int32_t token, const TensorView& embeddings, int64_t row) {
  Slot& to = slots_[static_cast<size_t>(slot)];
  PAGEMILL_CHECK(to.tokens.empty() || to.tokens.back() < token);
  to.tokens.push_back(token);
  const auto* from = embeddings.Row<const std::byte>(row);
  to.embeddings.insert(to.embeddings.end(), from, from + row_bytes_);
}

void DraftMedia::DropBefore(int32_t slot, int32_t token) {
  Slot& of = slots_[static_cast<size_t>(slot)];
  const auto kept = std::lower_bound(of.tokens.begin(), of.tokens.end(), token);
  const auto count = static_cast<size_t>(kept - of.tokens.begin());
  if (count == 0) return;
  if (count == of.tokens.size()) {
    of = {};  // gives memory back
    return;
  }
  of.tokens.erase(of.tokens.begin(), kept);
  of.embeddings.erase(of.embeddings.begin(),
                      of.embeddings.begin() + static_cast<std::ptrdiff_t>(count * row_bytes_));
}

void DraftMedia::BeginPass() {
  rows_.clear();
  pass_.clear();
}

void DraftMedia::AddToPass(int32_t slot, int32_t position, int32_t count, int32_t first) {
  const Slot& from = slots_[static_cast<size_t>(slot)];
  const auto begin = std::lower_bound(from.tokens.begin(), from.tokens.end(), position);
  const auto end = std::lower_bound(begin, from.tokens.end(), position + count);
  for (auto token = begin; token != end; ++token) rows_.push_back(first + *token - position);
  const auto at = [&](auto token) {
    const auto row = static_cast<size_t>(token - from.tokens.begin());
    return from.embeddings.begin() + static_cast<std::ptrdiff_t>(row * row_bytes_);
  };
  pass_.insert(pass_.end(), at(begin), at(end));
}

TensorView DraftMedia::embeddings() {
  return TensorView::Dense(pass_.data(), options_.type,
                           {static_cast<int64_t>(rows_.size()), options_.width});
}

bool DraftMedia::Fits(const TensorView& embeddings, size_t rows) const {
  return embeddings.rank == 2 && embeddings.dtype == options_.type &&
         embeddings.shape[1] == options_.width && embeddings.shape[0] >= static_cast<int64_t>(rows);
}

}  // namespace pagemill::runner
