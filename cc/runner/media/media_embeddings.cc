#include "cc/runner/media/media_embeddings.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cc/tensor/to_float.h"

namespace pagemill::runner {
namespace {

// Of `items`, which are in the order of their tokens, those that have some from `begin` to `end`.
std::span<const step::MediaItem> ItemsWithin(std::span<const step::MediaItem> items, int32_t begin,
                                             int32_t end) {
  const auto first = std::partition_point(
      items.begin(), items.end(),
      [begin](const step::MediaItem& i) { return i.first_token + i.num_tokens <= begin; });
  const auto last = std::partition_point(
      first, items.end(), [end](const step::MediaItem& i) { return i.first_token < end; });
  return {first, last};
}

}  // namespace

StatusOr<std::unique_ptr<MediaEmbeddings>> MediaEmbeddings::Create(
    std::vector<std::unique_ptr<MediaEncoder>> encoders, const MediaEmbeddingsOptions& options) {
  if (encoders.empty()) return InvalidArgument("media embeddings need an encoder");
  for (const std::unique_ptr<MediaEncoder>& encoder : encoders) {
    const int32_t width = encoder->options().width, first = encoders[0]->options().width;
    if (width == first) continue;
    return InvalidArgument("encoders make embeddings of " + std::to_string(first) + " and of " +
                           std::to_string(width) + ", but a model reads those of one width");
  }
  return std::unique_ptr<MediaEmbeddings>(new MediaEmbeddings(std::move(encoders), options));
}

MediaEmbeddings::MediaEmbeddings(std::vector<std::unique_ptr<MediaEncoder>> encoders,
                                 const MediaEmbeddingsOptions& options)
    : encoders_(std::move(encoders)),
      options_(options),
      width_(encoders_[0]->options().width),
      items_(encoders_.size()) {
  for (const std::unique_ptr<MediaEncoder>& encoder : encoders_) {
    formats_.push_back(encoder->options().format);
  }
}

Status MediaEmbeddings::Apply(const step::StepPlan& plan, const BatchState& batch,
                              const RunningAdapters* adapters) {
  for (const std::string& id : plan.released_media) kept_.erase(id);
  PAGEMILL_RETURN_IF_ERROR(ListItems(plan, batch, adapters));
  const Status encoded = Encode();
  if (!encoded.ok()) {
    for (const std::vector<ItemToEncode>& items : items_) {
      for (const ItemToEncode& each : items) kept_.erase(each.item->content_id);
    }
    return encoded;
  }
  return Gather(plan, batch);
}

Status MediaEmbeddings::ListItems(const step::StepPlan& plan, const BatchState& batch,
                                  const RunningAdapters* adapters) {
  for (std::vector<ItemToEncode>& items : items_) items.clear();
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const int32_t slot = adapters == nullptr ? -1 : adapters->slot(entry.index);
    const step::GrowingList<step::MediaItem>& media = batch.request(entry.index)->media;
    for (int32_t index : entry.media_to_encode) {
      if (index < 0 || static_cast<size_t>(index) >= media.size()) {
        return Internal("step plan: it encodes a media item that the request does not have");
      }
      // Admission has checked it against the same formats.
      const step::MediaItem& item = media[static_cast<size_t>(index)];
      const Status fits = step::CheckFeatures(item, formats_);
      if (!fits.ok()) return Internal("media item '" + item.content_id + "' " + fits.message());
      items_[static_cast<size_t>(item.features->encoder)].push_back({&item, slot});
    }
  }
  return OkStatus();
}

Status MediaEmbeddings::Encode() {
  int64_t count = 0;
  for (size_t e = 0; e < encoders_.size(); ++e) {
    PAGEMILL_RETURN_IF_ERROR(encoders_[e]->Encode(items_[e], &kept_));
    count += static_cast<int64_t>(items_[e].size());
  }
  num_encoded_items_ += count;
  return OkStatus();
}

Status MediaEmbeddings::Gather(const step::StepPlan& plan, const BatchState& batch) {
  media_rows_.clear();
  gathered_.clear();
  int32_t first_token = 0;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    PAGEMILL_RETURN_IF_ERROR(GatherEntry(entry, *batch.request(entry.index), first_token));
    first_token += entry.num_tokens();
  }
  if (options_.text_rows) ListTextRows(first_token);
  if (options_.encoder_ends) ListEncoderEnds(plan, batch);
  if (options_.item_ends) PAGEMILL_RETURN_IF_ERROR(ListItemEnds(plan, batch));
  const auto rows = static_cast<int64_t>(media_rows_.size());
  if (options_.type == DType::kF32) {
    embeddings_ = TensorView::Dense(gathered_.data(), DType::kF32, {rows, width_});
    return OkStatus();
  }
  narrow_.resize(static_cast<size_t>(rows * RowBytes(options_.type, width_)));
  embeddings_ = TensorView::Dense(narrow_.data(), options_.type, {rows, width_});
  FromFloat(gathered_.data(), embeddings_);
  return OkStatus();
}

// `first_token` is that of the entry in the step.
Status MediaEmbeddings::GatherEntry(const step::ScheduledRequest& entry,
                                    const step::Request& request, int32_t first_token) {
  const int32_t begin = entry.num_computed_tokens;
  const int32_t end = begin + static_cast<int32_t>(entry.token_ids.size());
  for (const step::MediaItem& item : ItemsWithin(request.media, begin, end)) {
    const int32_t first = std::max(begin, item.first_token);
    const int32_t last = std::min(end, item.first_token + item.num_tokens);
    const auto found = kept_.find(item.content_id);
    if (found == kept_.end()) {
      return Internal("step plan: media item '" + item.content_id +
                      "' is needed and has not been encoded");
    }
    const int32_t row = item.features->row_tokens;
    for (int32_t p = first; p < last; ++p) {
      int32_t embedding = p - item.first_token;
      if (row > 0) {
        const int32_t column = embedding % (row + 1);
        if (column == row) continue;  // the end of a row
        embedding = embedding / (row + 1) * row + column;
      }
      const float* values = found->second.data() + int64_t{embedding} * width_;
      gathered_.insert(gathered_.end(), values, values + width_);
      media_rows_.push_back(first_token + p - begin);
    }
  }
  return OkStatus();
}

// The tokens that are not in media_rows_.
void MediaEmbeddings::ListTextRows(int32_t num_tokens) {
  text_rows_.clear();
  text_rows_.reserve(static_cast<size_t>(num_tokens));  // an array of no rows is one, too
  auto media = media_rows_.begin();
  for (int32_t token = 0; token < num_tokens; ++token) {
    if (media != media_rows_.end() && *media == token) {
      ++media;
    } else {
      text_rows_.push_back(token);
    }
  }
}

void MediaEmbeddings::ListEncoderEnds(const step::StepPlan& plan, const BatchState& batch) {
  encoder_ends_.clear();
  decoder_positions_.clear();
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const step::GrowingList<step::MediaItem>& media = batch.request(entry.index)->media;
    const int32_t front = media.empty() ? 0 : media[0].first_token + media[0].num_tokens;
    const int32_t begin = entry.num_computed_tokens, end = begin + entry.num_tokens();
    encoder_ends_.insert(encoder_ends_.end(), static_cast<size_t>(end - begin), std::max(front, 1));
    for (int32_t p = begin; p < end; ++p) decoder_positions_.push_back(std::max(p - front, 0));
  }
}

Status MediaEmbeddings::ListItemEnds(const step::StepPlan& plan, const BatchState& batch) {
  item_ends_.clear();
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const int32_t begin = entry.num_computed_tokens, end = begin + entry.num_tokens();
    const size_t first_token = item_ends_.size();
    item_ends_.resize(first_token + static_cast<size_t>(end - begin), 0);
    for (const step::MediaItem& item : ItemsWithin(batch.request(entry.index)->media, begin, end)) {
      const int32_t item_end = item.first_token + item.num_tokens;
      if (item_end > end) {
        return Internal("step plan: media item '" + item.content_id + "' is divided at token " +
                        std::to_string(end) + ", but its tokens see each other");
      }
      const auto from = item_ends_.begin() + static_cast<std::ptrdiff_t>(first_token);
      std::fill(from + std::max(item.first_token - begin, 0), from + (item_end - begin), item_end);
    }
  }
  return OkStatus();
}

void MediaEmbeddings::AddTo(ops::StepBatch* batch) const {
  batch->num_media_rows = static_cast<int32_t>(media_rows_.size());
  batch->media_rows = media_rows_.data();
  if (options_.text_rows) {
    batch->num_text_rows = static_cast<int32_t>(text_rows_.size());
    batch->text_rows = text_rows_.data();
  }
  if (options_.item_ends) batch->item_ends = item_ends_.data();
  if (options_.encoder_ends) {
    batch->encoder_ends = encoder_ends_.data();
    batch->decoder_positions = decoder_positions_.data();
  }
  batch->inputs = {&embeddings_, 1};
}

}  // namespace pagemill::runner
