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
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("rows", format.rows, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("channels", format.channels, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("tokens", format.tokens, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("class_tokens", class_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("width", width, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_items", max_items, 1));
  if (max_step_tokens == 0) return OkStatus();
  return CheckAtLeast("max_step_tokens", max_step_tokens, class_tokens + format.rows);
}

StatusOr<std::unique_ptr<MediaEncoder>> MediaEncoder::Create(program::Executor* executor,
                                                             const MediaEncoderOptions& options) {
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  return std::unique_ptr<MediaEncoder>(new MediaEncoder(executor, options));
}

MediaEncoder::MediaEncoder(program::Executor* executor, const MediaEncoderOptions& options)
    : executor_(executor), options_(options) {}

Status MediaEncoder::Apply(const step::StepPlan& plan, const BatchState& batch) {
  for (const std::string& id : plan.released_media) kept_.erase(id);
  Items items;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const step::GrowingList<step::MediaItem>& media = batch.request(entry.index)->media;
    for (int32_t index : entry.media_to_encode) {
      if (index < 0 || static_cast<size_t>(index) >= media.size()) {
        return Internal("step plan: it encodes a media item that the request does not have");
      }
      items.push_back(&media[static_cast<size_t>(index)]);
    }
  }
  // Admission has checked them against the same format.
  for (const step::MediaItem* item : items) {
    const Status fits = step::CheckFeatures(*item, options_.format);
    if (!fits.ok()) return Internal("media item '" + item->content_id + "' " + fits.message());
  }
  for (std::span<const step::MediaItem* const> rest = items; !rest.empty();) {
    const size_t count = ItemsOfStep(rest);
    PAGEMILL_RETURN_IF_ERROR(Encode(rest.first(count)));
    rest = rest.subspan(count);
  }
  return Gather(plan, batch);
}

int32_t MediaEncoder::EncoderTokens(const step::MediaItem& item) const {
  return options_.class_tokens + item.features->rows;
}

size_t MediaEncoder::ItemsOfStep(std::span<const step::MediaItem* const> items) const {
  const auto most = std::min(items.size(), static_cast<size_t>(options_.max_items));
  if (options_.max_step_tokens == 0) return most;
  size_t count = 0;
  int64_t tokens = 0;
  while (count < most) {
    tokens += EncoderTokens(*items[count]);
    if (tokens > options_.max_step_tokens) break;
    ++count;
  }
  return count;
}

void MediaEncoder::MakeStep(std::span<const step::MediaItem* const> items) {
  for (std::vector<int32_t>* array :
       {&positions_, &query_start_, &seq_lens_, &patch_rows_, &grid_positions_}) {
    array->clear();
  }
  const int32_t apart =
      options_.format.any_size ? options_.format.rows / options_.format.tokens : 1;
  query_start_.push_back(0);
  for (const step::MediaItem* item : items) {
    const int32_t count = EncoderTokens(*item);
    for (int32_t p = 0; p < count; ++p) {
      const int32_t row = p - options_.class_tokens;
      const bool whole = row + apart <= item->features->rows;
      if (row >= 0 && row % apart == 0 && whole) patch_rows_.push_back(query_start_.back() + p);
      positions_.push_back(p);
    }
    if (options_.format.grid) {
      const auto class_elements = static_cast<size_t>(options_.class_tokens) * ops::kGridDims;
      grid_positions_.resize(grid_positions_.size() + class_elements);
      grid_positions_.insert(grid_positions_.end(), item->features->row_positions.begin(),
                             item->features->row_positions.end());
    }
    query_start_.push_back(query_start_.back() + count);
    seq_lens_.push_back(count);
  }
  token_ids_.assign(positions_.size(), 0);
}

Status MediaEncoder::Encode(std::span<const step::MediaItem* const> items) {
  MakeStep(items);
  std::vector<float> values;
  // Where every token has features, those of class tokens are zeros.
  const int32_t zeros = options_.format.any_size ? options_.class_tokens : 0;
  for (const step::MediaItem* item : items) {
    values.resize(values.size() + static_cast<size_t>(zeros) * options_.format.channels);
    values.insert(values.end(), item->features->values.begin(), item->features->values.end());
  }
  const TensorView features =
      Store(values, options_.format.channels, options_.features_type, &features_);
  const ops::StepBatch batch = {
      {.num_tokens = static_cast<int32_t>(positions_.size()),
       .num_requests = static_cast<int32_t>(items.size()),
       .num_media_rows = static_cast<int32_t>(patch_rows_.size()),
       .token_ids = token_ids_.data(),
       .positions = positions_.data(),
       .query_start = query_start_.data(),
       .seq_lens = seq_lens_.data(),
       .media_rows = patch_rows_.data(),
       .grid_positions = options_.format.grid ? grid_positions_.data() : nullptr},
      /*kv=*/{},
      {&features, 1}};
  program::ExecutorOutput output;
  PAGEMILL_RETURN_IF_ERROR(executor_->Execute(batch, &output));
  return Keep(items, output.Find(kEmbeddings));
}

Status MediaEncoder::Keep(std::span<const step::MediaItem* const> items,
                          const TensorView& embeddings) {
  int64_t tokens = 0;
  for (const step::MediaItem* item : items) tokens += step::NumEmbeddings(*item);
  if (embeddings.rank != 2 || embeddings.shape[1] != options_.width ||
      embeddings.shape[0] != tokens) {
    return Internal("the encoder's output is not an embedding of " +
                    std::to_string(options_.width) + " for each of " + std::to_string(tokens) +
                    " tokens");
  }
  int64_t first = 0;
  for (const step::MediaItem* item : items) {
    TensorView own = embeddings;
    own.data = embeddings.Row<std::byte>(first);
    own.shape[0] = step::NumEmbeddings(*item);
    std::vector<float> values(static_cast<size_t>(own.Elements()));
    ToFloat(own, values.data());
    kept_[item->content_id] = std::move(values);
    first += own.shape[0];
  }
  num_encoded_items_ += static_cast<int64_t>(items.size());
  return OkStatus();
}

Status MediaEncoder::Gather(const step::StepPlan& plan, const BatchState& batch) {
  media_rows_.clear();
  gathered_.clear();
  int32_t first_token = 0;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    PAGEMILL_RETURN_IF_ERROR(GatherEntry(entry, *batch.request(entry.index), first_token));
    first_token += entry.num_tokens();
  }
  if (options_.text_rows) ListTextRows(first_token);
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
    const int32_t row = item.features->row_tokens;
    for (int32_t p = first; p < last; ++p) {
      int32_t embedding = p - item.first_token;
      if (row > 0) {
        const int32_t column = embedding % (row + 1);
        if (column == row) continue;  // the end of a row
        embedding = embedding / (row + 1) * row + column;
      }
      const float* values = found->second.data() + int64_t{embedding} * options_.width;
      gathered_.insert(gathered_.end(), values, values + options_.width);
      media_rows_.push_back(first_token + p - begin);
    }
  }
  return OkStatus();
}

// The tokens that are not in media_rows_.
void MediaEncoder::ListTextRows(int32_t num_tokens) {
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

void MediaEncoder::AddTo(ops::StepBatch* batch) const {
  batch->num_media_rows = static_cast<int32_t>(media_rows_.size());
  batch->media_rows = media_rows_.data();
  if (options_.text_rows) {
    batch->num_text_rows = static_cast<int32_t>(text_rows_.size());
    batch->text_rows = text_rows_.data();
  }
  batch->inputs = {&embeddings_, 1};
}

}  // namespace pagemill::runner
