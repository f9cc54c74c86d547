#include "cc/runner/media_encoder.h"

#include <algorithm>
#include <utility>

#include "cc/tensor/to_float.h"

namespace pagemill::runner {
namespace {

constexpr std::string_view kEmbeddings = "embeddings";  // the encoder's output

Status CheckAtLeast(const char* field, int32_t value, int32_t least) {
  if (value >= least) return OkStatus();
  return InvalidArgument(std::string("media encoder: ") + field + " must be at least " +
                         std::to_string(least) + ", got " + std::to_string(value));
}

// Writes floats [rows, columns] as elements of `dtype`, which begin at `to`.
TensorView Store(std::span<const float> values, int64_t columns, DType dtype,
                 std::vector<std::byte>* to) {
  const int64_t rows = static_cast<int64_t>(values.size()) / columns;
  to->resize(static_cast<size_t>(rows * RowBytes(dtype, columns)));
  const TensorView view = TensorView::Dense(to->data(), dtype, {rows, columns});
  FromFloat(values.data(), view);
  return view;
}

}  // namespace

Status MediaEncoderOptions::Validate() const {
  PM_RETURN_IF_ERROR(CheckAtLeast("rows", format.rows, 1));
  PM_RETURN_IF_ERROR(CheckAtLeast("channels", format.channels, 1));
  PM_RETURN_IF_ERROR(CheckAtLeast("tokens", format.tokens, 1));
  PM_RETURN_IF_ERROR(CheckAtLeast("class_tokens", class_tokens, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("width", width, 1));
  return CheckAtLeast("max_items", max_items, 1);
}

StatusOr<std::unique_ptr<MediaEncoder>> MediaEncoder::Create(program::Executor* executor,
                                                             const MediaEncoderOptions& options) {
  PM_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<MediaEncoder>(new MediaEncoder(executor, options));
}

MediaEncoder::MediaEncoder(program::Executor* executor, const MediaEncoderOptions& options)
    : executor_(executor), options_(options) {}

Status MediaEncoder::Apply(const step::StepPlan& plan, const BatchState& batch) {
  for (const std::string& id : plan.released_media) kept_.erase(id);
  Items items;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const std::vector<step::MediaItem>& media = batch.request(entry.index)->media;
    for (int32_t index : entry.media_to_encode) {
      if (index < 0 || static_cast<size_t>(index) >= media.size()) {
        return Internal("step plan: it encodes a media item that the request does not have");
      }
      items.push_back(&media[static_cast<size_t>(index)]);
    }
  }
  const auto most = static_cast<size_t>(options_.max_items);
  for (std::span<const step::MediaItem* const> rest = items; !rest.empty();) {
    const size_t count = std::min(most, rest.size());
    PM_RETURN_IF_ERROR(Encode(rest.first(count)));
    rest = rest.subspan(count);
  }
  return Gather(plan, batch);
}

// Admission has checked them against the same format.
Status MediaEncoder::CheckFeatures(const step::MediaItem& item) const {
  const step::MediaFeatures* features = item.features.get();
  if (features != nullptr && features->rows == options_.format.rows &&
      features->channels == options_.format.channels &&
      features->values.size() == static_cast<size_t>(features->rows) * features->channels &&
      item.num_tokens == options_.format.tokens) {
    return OkStatus();
  }
  return Internal("media item '" + item.content_id + "' has not the form of the encoder's items");
}

void MediaEncoder::MakeStep(std::span<const step::MediaItem* const> items) {
  for (std::vector<int32_t>* array : {&positions_, &query_start_, &patch_rows_}) array->clear();
  const int32_t per_item = options_.class_tokens + options_.format.rows;
  query_start_.push_back(0);
  for (size_t i = 0; i < items.size(); ++i) {
    for (int32_t p = 0; p < per_item; ++p) {
      if (p >= options_.class_tokens) {
        patch_rows_.push_back(static_cast<int32_t>(positions_.size()));
      }
      positions_.push_back(p);
    }
    query_start_.push_back(static_cast<int32_t>(positions_.size()));
  }
  token_ids_.assign(positions_.size(), 0);
  seq_lens_.assign(items.size(), per_item);
}

Status MediaEncoder::Encode(std::span<const step::MediaItem* const> items) {
  for (const step::MediaItem* item : items) PM_RETURN_IF_ERROR(CheckFeatures(*item));
  MakeStep(items);
  std::vector<float> values;
  for (const step::MediaItem* item : items) {
    values.insert(values.end(), item->features->values.begin(), item->features->values.end());
  }
  const TensorView features =
      Store(values, options_.format.channels, options_.features_type, &features_);
  const ops::StepBatch batch = {{.num_tokens = static_cast<int32_t>(positions_.size()),
                                 .num_requests = static_cast<int32_t>(items.size()),
                                 .num_media_rows = static_cast<int32_t>(patch_rows_.size()),
                                 .token_ids = token_ids_.data(),
                                 .positions = positions_.data(),
                                 .query_start = query_start_.data(),
                                 .seq_lens = seq_lens_.data(),
                                 .media_rows = patch_rows_.data()},
                                /*kv=*/{},
                                {&features, 1}};
  program::ExecutorOutput output;
  PM_RETURN_IF_ERROR(executor_->Execute(batch, &output));
  return Keep(items, output.Find(kEmbeddings));
}

Status MediaEncoder::Keep(std::span<const step::MediaItem* const> items,
                          const TensorView& embeddings) {
  const int64_t tokens = options_.format.tokens;
  if (embeddings.rank != 2 || embeddings.shape[1] != options_.width ||
      embeddings.shape[0] != tokens * static_cast<int64_t>(items.size())) {
    return Internal("the encoder's output is not " + std::to_string(tokens) +
                    " embeddings an item, of " + std::to_string(options_.width));
  }
  for (size_t i = 0; i < items.size(); ++i) {
    TensorView own = embeddings;
    own.data = embeddings.Row<std::byte>(static_cast<int64_t>(i) * tokens);
    own.shape[0] = tokens;
    std::vector<float> values(static_cast<size_t>(own.Elements()));
    ToFloat(own, values.data());
    kept_[items[i]->content_id] = std::move(values);
  }
  num_encoded_items_ += static_cast<int64_t>(items.size());
  return OkStatus();
}

Status MediaEncoder::Gather(const step::StepPlan& plan, const BatchState& batch) {
  media_rows_.clear();
  gathered_.clear();
  int32_t first_token = 0;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    PM_RETURN_IF_ERROR(GatherEntry(entry, *batch.request(entry.index), first_token));
    first_token += entry.num_tokens();
  }
  if (options_.embeddings_type == DType::kF32) {
    const auto rows = static_cast<int64_t>(media_rows_.size());
    embeddings_ = TensorView::Dense(gathered_.data(), DType::kF32, {rows, options_.width});
  } else {
    embeddings_ = Store(gathered_, options_.width, options_.embeddings_type, &narrow_);
  }
  return OkStatus();
}

// `first_token` is that of the entry in the step.
Status MediaEncoder::GatherEntry(const step::ScheduledRequest& entry, const step::Request& request,
                                 int32_t first_token) {
  const int32_t begin = entry.num_computed_tokens;
  const int32_t end = begin + static_cast<int32_t>(entry.token_ids.size());
  for (const step::MediaItem& item : request.media) {
    const int32_t first = std::max(begin, item.first_token);
    const int32_t last = std::min(end, item.first_token + item.num_tokens);
    if (first >= last) continue;
    const auto found = kept_.find(item.content_id);
    if (found == kept_.end()) {
      return Internal("step plan: media item '" + item.content_id +
                      "' is needed and has not been encoded");
    }
    const float* values = found->second.data() + int64_t{first - item.first_token} * options_.width;
    gathered_.insert(gathered_.end(), values, values + int64_t{last - first} * options_.width);
    for (int32_t p = first; p < last; ++p) media_rows_.push_back(first_token + p - begin);
  }
  return OkStatus();
}

void MediaEncoder::AddTo(ops::StepBatch* batch) const {
  batch->num_media_rows = static_cast<int32_t>(media_rows_.size());
  batch->media_rows = media_rows_.data();
  batch->inputs = {&embeddings_, 1};
}

}  // namespace pagemill::runner
