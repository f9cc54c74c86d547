#include "cc/runner/mask_filler.h"

#include <string>
#include <utility>

#include "cc/step/token_mask.h"

namespace pagemill::runner {

MaskFiller::MaskFiller(const MaskFillerOptions& options)
    : num_words_(step::NumMaskWords(options.vocab_size)),
      max_forced_(static_cast<size_t>(options.max_forced_tokens) + 1),
      slots_(static_cast<size_t>(options.max_num_seqs)) {}

MaskFiller::~MaskFiller() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MaskFiller::Start(step::RequestIndex index, const step::Request& request,
                       std::span<const int32_t> output_token_ids) {
  Release(index);
  if (!request.new_token_matcher) return;
  Slot& slot = slots_[index.value()];
  slot.held = true;
  slot.forced.most = max_forced_;
  slot.new_matcher = request.new_token_matcher;
  slot.observed.assign(output_token_ids.begin(), output_token_ids.end());
}

void MaskFiller::Release(step::RequestIndex index) {
  if (Holds(index)) slots_[index.value()] = Slot();
}

void MaskFiller::Observe(step::RequestIndex index, std::span<const int32_t> token_ids) {
  std::vector<int32_t>& observed = slots_[index.value()].observed;
  observed.insert(observed.end(), token_ids.begin(), token_ids.end());
}

void MaskFiller::AddRows(step::RequestIndex index, std::span<const int32_t> drafts) {
  jobs_.push_back({index, drafts, num_rows_});
  num_rows_ += drafts.size() + 1;
}

void MaskFiller::Fill() {
  if (jobs_.empty()) return;
  if (masks_.size() < num_rows_ * num_words_) masks_.resize(num_rows_ * num_words_);
  {
    std::lock_guard lock(mutex_);
    filling_ = true;
  }
  if (thread_.joinable()) {
    changed_.notify_all();
  } else {
    thread_ = std::thread([this] { Run(); });
  }
}

void MaskFiller::Wait() {
  if (jobs_.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !filling_; });
}

void MaskFiller::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return filling_ || closing_; });
    if (!filling_) return;
    lock.unlock();
    for (const Job& job : jobs_) {
      Status& status = slots_[job.index.value()].status;
      if (status.ok()) status = RunJob(job);
    }
    lock.lock();
    filling_ = false;
    changed_.notify_all();
  }
}

Status MaskFiller::RunJob(const Job& job) {
  Slot& slot = slots_[job.index.value()];
  if (slot.matcher == nullptr) {
    PAGEMILL_ASSIGN_OR_RETURN(slot.matcher, slot.new_matcher());
    slot.new_matcher = nullptr;
  }
  for (int32_t token : slot.observed) {
    if (slot.matcher->Accept(token)) continue;
    return Internal("the request's token matcher refuses token " + std::to_string(token) +
                    ", which its mask allowed");
  }
  slot.observed.clear();
  const std::span<uint32_t> masks(&masks_[job.first_row * num_words_],
                                  (job.drafts.size() + 1) * num_words_);
  return sampling::FillDraftMasks(*slot.matcher, job.drafts, masks, &slot.forced).status();
}

std::span<const int32_t> MaskFiller::ForcedBehind(step::RequestIndex index,
                                                  int32_t token_id) const {
  const std::span<const int32_t> forced = slot(index).forced.token_ids;
  if (forced.empty() || forced.front() != token_id) return {};
  return forced.subspan(1);
}

}  // namespace pagemill::runner
