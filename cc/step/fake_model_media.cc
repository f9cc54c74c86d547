// Media, adapters, and what else of a request its keys and values depend on.
#include <set>

#include "cc/base/xxh3.h"
#include "cc/step/fake_model.h"

namespace pagemill::step {

uint64_t FakeModel::ContentBefore(const Request& request) {
  std::string content = request.cache_salt;
  if (request.adapter != kNoAdapter) content += "/" + std::to_string(request.adapter.value());
  return Xxh3_128(content.data(), content.size()).low;
}

uint64_t FakeModel::MediaAt(const Request& request, int32_t position) {
  for (const MediaItem& item : request.media) {
    if (position < item.first_token || position >= item.first_token + item.num_tokens) continue;
    return Xxh3_128(item.content_id.data(), item.content_id.size()).low;
  }
  return 0;
}

Status FakeModel::CheckAdapters() const {
  std::set<AdapterId> adapters;
  for (const Slot& slot : slots_) {
    if (slot.request && slot.request->adapter != kNoAdapter) adapters.insert(slot.request->adapter);
  }
  if (adapters.size() <= static_cast<size_t>(options_.max_adapters)) return OkStatus();
  return Internal("requests with " + std::to_string(adapters.size()) +
                  " different adapters hold slots");
}

// Forgets and makes encoder outputs as the plan says. What is released may be missing: the step
// that was to make it failed.
Status FakeModel::Encode(const StepPlan& plan) {
  for (const std::string& content_id : plan.released_media) encoded_.erase(content_id);
  int32_t made = 0;
  for (const ScheduledRequest& entry : plan.scheduled) {
    if (entry.media_to_encode.empty()) continue;
    const int32_t slot = entry.index.value();
    const bool exists = slot >= 0 && slot < options_.max_num_seqs;
    const Request* request = entry.start.get();
    if (request == nullptr && exists) request = slots_[slot].request.get();
    if (request == nullptr) return Internal("media_to_encode of a slot that holds no request");
    for (int32_t index : entry.media_to_encode) {
      if (index < 0 || static_cast<size_t>(index) >= request->media.size()) {
        return Internal("media_to_encode names an item that the request does not have");
      }
      const MediaItem& item = request->media[static_cast<size_t>(index)];
      if (!encoded_.emplace(item.content_id, item.num_tokens).second) {
        return Internal("\"" + item.content_id + "\" is encoded although its output is kept");
      }
      made += item.num_tokens;
    }
  }
  int32_t kept = 0;
  for (const auto& [content_id, size] : encoded_) kept += size;
  if (made > options_.max_encoder_tokens) return Internal("the plan exceeds the encoder budget");
  if (kept > options_.encoder_cache_tokens) return Internal("the encoder cache overflows");
  return OkStatus();
}

Status FakeModel::CheckMedia(const ScheduledRequest& entry, const Slot& slot) const {
  const int32_t begin = entry.num_computed_tokens;
  const int32_t end = begin + static_cast<int32_t>(entry.token_ids.size());
  for (const MediaItem& item : slot.request->media) {
    const int32_t item_end = item.first_token + item.num_tokens;
    if (item.first_token >= end || item_end <= begin) continue;
    if (!encoded_.contains(item.content_id)) {
      return Internal("tokens of \"" + item.content_id + "\" run without its encoder output");
    }
    if (!options_.chunked_media_input && item_end > end) {
      return Internal("the step ends inside \"" + item.content_id + "\"");
    }
  }
  return OkStatus();
}

}  // namespace pagemill::step
