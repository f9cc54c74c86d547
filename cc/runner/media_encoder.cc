#include "cc/runner/media_encoder.h"

#include <algorithm>
#include <utility>

#include "cc/tensor/to_float.h"

namespace pagemill::runner {
namespace {

// The encoder's outputs.
constexpr std::string_view kEmbeddings = "embeddings";
constexpr std::string_view kRowEnds = "row_end";

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

Status MediaEncoderOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("rows", format.rows, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("channels", format.channels, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("tokens", format.tokens, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("class_tokens", class_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("width", width, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_items", max_items, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("tile_rows", tile_rows, 0));
  if (format.any_size && format.rows > format.tokens && format.rows % format.tokens != 0) {
    return InvalidArgument("media encoder: rows must be a multiple of tokens, got " +
                           std::to_string(format.rows) + " and " + std::to_string(format.tokens));
  }
  if (tile_rows > 0 &&
      (!format.any_size || !format.placed || tile_rows > format.rows ||
       format.tokens > format.rows || tile_rows % (format.rows / format.tokens) != 0)) {
    return InvalidArgument("media encoder: tiles of " + std::to_string(tile_rows) +
                           " rows need items of any size that are placed, and whole embeddings");
  }
  if (max_step_tokens == 0) return OkStatus();
  const int32_t most = tile_rows > 0 ? tile_rows : format.rows;
  return CheckAtLeast("max_step_tokens", max_step_tokens, class_tokens + most);
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
  std::vector<Part> parts;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const step::GrowingList<step::MediaItem>& media = batch.request(entry.index)->media;
    for (int32_t index : entry.media_to_encode) {
      if (index < 0 || static_cast<size_t>(index) >= media.size()) {
        return Internal("step plan: it encodes a media item that the request does not have");
      }
      // Admission has checked it against the same format.
      const step::MediaItem& item = media[static_cast<size_t>(index)];
      const Status fits = step::CheckFeatures(item, options_.format);
      if (!fits.ok()) return Internal("media item '" + item.content_id + "' " + fits.message());
      AppendParts(item, &parts);
    }
  }
  for (std::span<const Part> rest = parts; !rest.empty();) {
    const size_t count = PartsOfStep(rest);
    const Status encoded = Encode(rest.first(count));
    if (!encoded.ok()) {
      for (const Part& part : parts) kept_.erase(part.item->content_id);
      return encoded;
    }
    rest = rest.subspan(count);
  }
  return Gather(plan, batch);
}

int32_t MediaEncoder::EncoderTokens(const Part& part) const {
  return options_.class_tokens + part.rows;
}

void MediaEncoder::AppendParts(const step::MediaItem& item, std::vector<Part>* parts) const {
  const int32_t rows = item.features->rows;
  const int32_t each = options_.tile_rows > 0 ? options_.tile_rows : rows;
  for (int32_t first = 0; first < rows; first += each) {
    parts->push_back({&item, first, std::min(each, rows - first)});
  }
}

size_t MediaEncoder::PartsOfStep(std::span<const Part> parts) const {
  const auto most = std::min(parts.size(), static_cast<size_t>(options_.max_items));
  if (options_.max_step_tokens == 0) return most;
  size_t count = 0;
  int64_t tokens = 0;
  while (count < most) {
    tokens += EncoderTokens(parts[count]);
    if (tokens > options_.max_step_tokens) break;
    ++count;
  }
  return count;
}

void MediaEncoder::MakeStep(std::span<const Part> parts) {
  for (std::vector<int32_t>* array :
       {&positions_, &query_start_, &seq_lens_, &patch_rows_, &grid_positions_}) {
    array->clear();
  }
  const int32_t apart =
      options_.format.any_size ? std::max(1, options_.format.rows / options_.format.tokens) : 1;
  query_start_.push_back(0);
  for (const Part& part : parts) {
    const int32_t count = EncoderTokens(part);
    for (int32_t p = 0; p < count; ++p) {
      const int32_t row = p - options_.class_tokens;
      const bool whole = row + apart <= part.rows;
      if (row >= 0 && row % apart == 0 && whole) patch_rows_.push_back(query_start_.back() + p);
      positions_.push_back(p);
    }
    if (options_.format.grid) {
      const auto class_elements = static_cast<size_t>(options_.class_tokens) * ops::kGridDims;
      grid_positions_.resize(grid_positions_.size() + class_elements);
      const int32_t* rows =
          part.item->features->row_positions.data() + int64_t{part.first_row} * ops::kGridDims;
      grid_positions_.insert(grid_positions_.end(), rows,
                             rows + int64_t{part.rows} * ops::kGridDims);
    }
    query_start_.push_back(query_start_.back() + count);
    seq_lens_.push_back(count);
  }
  token_ids_.assign(positions_.size(), 0);
}

Status MediaEncoder::Encode(std::span<const Part> parts) {
  MakeStep(parts);
  std::vector<float> values;
  const int64_t channels = options_.format.channels;
  // If every token has features, those of class tokens are zeros.
  const int32_t zeros = options_.format.any_size ? options_.class_tokens : 0;
  for (const Part& part : parts) {
    values.resize(values.size() + static_cast<size_t>(zeros * channels));
    const float* rows = part.item->features->values.data() + part.first_row * channels;
    values.insert(values.end(), rows, rows + part.rows * channels);
  }
  const TensorView features = Store(values, channels, options_.features_type, &features_);
  const ops::StepBatch batch = {
      {.num_tokens = static_cast<int32_t>(positions_.size()),
       .num_requests = static_cast<int32_t>(parts.size()),
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
  return Keep(parts, output);
}

Status MediaEncoder::Keep(std::span<const Part> parts, const program::ExecutorOutput& output) {
  const TensorView embeddings = output.Find(kEmbeddings);
  int64_t tokens = 0;
  for (const Part& part : parts) tokens += step::NumEmbeddings(part.rows, options_.format);
  if (embeddings.rank != 2 || embeddings.shape[1] != options_.width ||
      embeddings.shape[0] != tokens) {
    return Internal("the encoder's output is not an embedding of " +
                    std::to_string(options_.width) + " for each of " + std::to_string(tokens) +
                    " tokens");
  }
  int64_t first = 0;
  for (const Part& part : parts) {
    TensorView own = embeddings;
    own.data = embeddings.Row<std::byte>(first);
    own.shape[0] = step::NumEmbeddings(part.rows, options_.format);
    std::vector<float>& kept = kept_[part.item->content_id];
    if (part.first_row == 0) kept.clear();
    const size_t before = kept.size();
    kept.resize(before + static_cast<size_t>(own.Elements()));
    ToFloat(own, kept.data() + before);
    first += own.shape[0];
    if (!part.last()) continue;
    PAGEMILL_RETURN_IF_ERROR(Place(*part.item, output.Find(kRowEnds), &kept));
    ++num_encoded_items_;
  }
  return OkStatus();
}

Status MediaEncoder::Place(const step::MediaItem& item, const TensorView& row_end,
                           std::vector<float>* values) {
  const std::vector<int32_t>& placement = item.features->placement;
  if (placement.empty()) return OkStatus();
  const int64_t width = options_.width;
  std::vector<float> end;
  if (row_end.rank == 2 && row_end.shape[0] > 0 && row_end.shape[1] == width) {
    TensorView one = row_end;
    one.shape[0] = 1;
    end.resize(static_cast<size_t>(width));
    ToFloat(one, end.data());
  }
  const std::vector<float>& shares = item.features->shares;
  const size_t each = placement.size() / static_cast<size_t>(item.num_tokens);
  std::vector<float> placed(placement.size() / each * static_cast<size_t>(width));
  for (size_t place = 0; place < placement.size(); ++place) {
    const int32_t index = placement[place];
    if (index == step::kRowEnd && end.empty()) {
      return Internal("media item '" + item.content_id +
                      "' has ends of rows, but its encoder has no embedding for them");
    }
    const float* from = index == step::kRowEnd ? end.data() : values->data() + index * width;
    float* to = placed.data() + static_cast<int64_t>(place / each) * width;
    const float share = shares.empty() ? 1.0f : shares[place];
    for (int64_t i = 0; i < width; ++i) to[i] += share * from[i];
  }
  *values = std::move(placed);
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
  if (options_.item_ends) PAGEMILL_RETURN_IF_ERROR(ListItemEnds(plan, batch));
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

Status MediaEncoder::ListItemEnds(const step::StepPlan& plan, const BatchState& batch) {
  item_ends_.clear();
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const int32_t begin = entry.num_computed_tokens, end = begin + entry.num_tokens();
    const size_t first_token = item_ends_.size();
    item_ends_.resize(first_token + static_cast<size_t>(end - begin), 0);
    for (const step::MediaItem& item :
         ItemsWithin(batch.request(entry.index)->media, begin, end)) {
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

void MediaEncoder::AddTo(ops::StepBatch* batch) const {
  batch->num_media_rows = static_cast<int32_t>(media_rows_.size());
  batch->media_rows = media_rows_.data();
  if (options_.text_rows) {
    batch->num_text_rows = static_cast<int32_t>(text_rows_.size());
    batch->text_rows = text_rows_.data();
  }
  if (options_.item_ends) batch->item_ends = item_ends_.data();
  batch->inputs = {&embeddings_, 1};
}

}  // namespace pagemill::runner
