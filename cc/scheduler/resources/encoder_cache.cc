#include "cc/scheduler/resources/encoder_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace pagemill::scheduler {
namespace {

bool Contains(const EncoderCache::Held& held, size_t index) {
  return std::find(held.begin(), held.end(), static_cast<int32_t>(index)) != held.end();
}

int32_t End(const step::MediaItem& item) { return item.first_token + item.num_tokens; }

}  // namespace

int32_t EncoderCache::Fit(const step::Request& request, const Held& held,
                          const Range& range) const {
  int32_t end = range.begin + range.num_tokens;
  int64_t budget = budget_;
  int64_t room = options_.encoder_cache_tokens - referenced_;
  std::vector<const std::string*> planned;
  for (size_t i = 0; i < request.media.size(); ++i) {
    const step::MediaItem& item = request.media[i];
    if (End(item) <= range.begin) continue;
    if (item.first_token >= end) break;
    const int32_t before = std::max(0, item.first_token - range.begin);
    if (!options_.chunked_media_input && End(item) > end) {
      if (before > 0 || End(item) - range.begin > range.most) return before;
      end = End(item);
    }
    const auto same = [&item](const std::string* id) { return *id == item.content_id; };
    if (Contains(held, i) || std::any_of(planned.begin(), planned.end(), same)) continue;
    if (closed_) return before;
    const auto found = items_.find(item.content_id);
    const bool exists = found != items_.end();
    if (exists && !found->second.usable) return before;
    if (exists && found->second.num_references > 0) continue;
    if (room < item.num_tokens || (!exists && budget < item.num_tokens)) return before;
    room -= item.num_tokens;
    if (!exists) budget -= item.num_tokens;
    planned.push_back(&item.content_id);
  }
  return end - range.begin;
}

bool EncoderCache::Needs(const step::Request& request, size_t index, int32_t begin, int32_t end,
                         const Held& held) const {
  const step::MediaItem& item = request.media[index];
  return item.first_token < end && End(item) > begin && !Contains(held, index);
}

void EncoderCache::Take(const step::Request& request, int32_t begin, int32_t end, Held* held,
                        std::vector<int32_t>* media_to_encode) {
  // First what exists, so that making room for the rest does not evict it.
  for (size_t i = 0; i < request.media.size(); ++i) {
    if (!Needs(request, i, begin, end, *held)) continue;
    ++num_queries_;
    if (!Reference(request.media[i].content_id)) continue;
    ++num_hits_;
    held->push_back(static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < request.media.size(); ++i) {
    if (!Needs(request, i, begin, end, *held)) continue;
    held->push_back(static_cast<int32_t>(i));
    if (Reference(request.media[i].content_id)) {  // the same content twice
      ++num_hits_;
      continue;
    }
    Allocate(request.media[i]);
    media_to_encode->push_back(static_cast<int32_t>(i));
  }
}

bool EncoderCache::Reference(const std::string& content_id) {
  const auto found = items_.find(content_id);
  if (found == items_.end()) return false;
  Item& item = found->second;
  PAGEMILL_CHECK(item.usable);
  if (item.num_references++ > 0) return true;
  unreferenced_.erase(item.order);
  referenced_ += item.size;
  return true;
}

void EncoderCache::Allocate(const step::MediaItem& item) {
  while (used_ + item.num_tokens > options_.encoder_cache_tokens) {
    PAGEMILL_CHECK(!unreferenced_.empty());
    Evict(items_.find(unreferenced_.begin()->second));
  }
  items_[item.content_id] = {.size = item.num_tokens, .num_references = 1};
  used_ += item.num_tokens;
  referenced_ += item.num_tokens;
  budget_ -= item.num_tokens;
}

void EncoderCache::Evict(Items::iterator item) {
  unreferenced_.erase(item->second.order);
  used_ -= item->second.size;
  released_.push_back(item->first);
  items_.erase(item);
}

void EncoderCache::EvictUnreferenced() {
  while (!unreferenced_.empty()) Evict(items_.find(unreferenced_.begin()->second));
}

void EncoderCache::Unreference(const std::string& content_id, bool usable) {
  const auto found = items_.find(content_id);
  Item& item = found->second;
  item.usable = item.usable && usable && item.encoded;
  if (--item.num_references > 0) return;
  referenced_ -= item.size;
  item.order = num_orders_++;
  unreferenced_.emplace(item.order, content_id);
  if (!item.usable) Evict(found);
}

void EncoderCache::Advance(const step::Request& request, int32_t num_computed_tokens, Held* held) {
  std::erase_if(*held, [&](int32_t index) {
    const step::MediaItem& item = request.media[static_cast<size_t>(index)];
    if (item.first_token < num_computed_tokens) items_.find(item.content_id)->second.encoded = true;
    if (End(item) > num_computed_tokens) return false;
    Unreference(item.content_id, /*usable=*/true);
    return true;
  });
}

void EncoderCache::Release(const step::Request& request, Held* held, bool usable) {
  for (int32_t index : *held) {
    Unreference(request.media[static_cast<size_t>(index)].content_id, usable);
  }
  held->clear();
}

void EncoderCache::TakeReleased(std::vector<std::string>* released) {
  released->clear();
  released->swap(released_);
}

Status EncoderCache::CheckIntegrity(std::span<const Holder> holders) const {
  std::map<std::string, int32_t> counts;
  for (const Holder& holder : holders) {
    for (int32_t index : *holder.held) {
      ++counts[holder.request->media[static_cast<size_t>(index)].content_id];
    }
  }
  int64_t used = 0, referenced = 0;
  size_t num_unreferenced = 0, num_referenced = 0;
  for (const auto& [content_id, item] : items_) {
    const auto counted = counts.find(content_id);
    if (item.num_references != (counted == counts.end() ? 0 : counted->second)) {
      return Internal("encoder cache: \"" + content_id + "\" has the wrong reference count");
    }
    used += item.size;
    if (item.num_references > 0) {
      ++num_referenced;
      referenced += item.size;
      continue;
    }
    ++num_unreferenced;
    const auto place = unreferenced_.find(item.order);
    if (place == unreferenced_.end() || place->second != content_id || !item.usable) {
      return Internal("encoder cache: \"" + content_id + "\" is not where it can be evicted");
    }
  }
  if (num_unreferenced != unreferenced_.size() || num_referenced != counts.size() ||
      used != used_ || referenced != referenced_ || used > options_.encoder_cache_tokens) {
    return Internal("encoder cache: its sizes do not add up");
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler
