#include "cc/runner/media/media_encoder.h"

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

}  // namespace

Status MediaEncoderOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("rows", format.rows, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("channels", format.channels, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("tokens", format.tokens, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("class_tokens", class_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("width", width, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_items", max_items, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("tile_rows", tile_rows, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("vocab_size", format.vocab_size, 0));
  if (format.vocab_size > 0 && (class_tokens > 0 || format.channels != 1)) {
    return InvalidArgument("media encoder: texts have one channel and no class tokens, got " +
                           std::to_string(format.channels) + " and " +
                           std::to_string(class_tokens));
  }
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

Status MediaEncoder::Encode(std::span<const ItemToEncode> items, KeptEmbeddings* kept) {
  std::vector<Part> parts;
  for (const ItemToEncode& item : items) AppendParts(item, &parts);
  for (std::span<const Part> rest = parts; !rest.empty();) {
    const size_t count = PartsOfStep(rest);
    PAGEMILL_RETURN_IF_ERROR(RunStep(rest.first(count), kept));
    rest = rest.subspan(count);
  }
  return OkStatus();
}

int32_t MediaEncoder::EncoderTokens(const Part& part) const {
  return options_.class_tokens + part.rows;
}

void MediaEncoder::AppendParts(const ItemToEncode& item, std::vector<Part>* parts) const {
  const int32_t rows = item.item->features->rows;
  const int32_t each = options_.tile_rows > 0 ? options_.tile_rows : rows;
  for (int32_t first = 0; first < rows; first += each) {
    const int32_t slot = options_.adapters ? item.adapter_slot : -1;
    parts->push_back({item.item, slot, first, std::min(each, rows - first)});
  }
}

size_t MediaEncoder::PartsOfStep(std::span<const Part> parts) const {
  const auto most = std::min(parts.size(), static_cast<size_t>(options_.max_items));
  size_t count = 0;
  int64_t tokens = 0;
  while (count < most && parts[count].adapter_slot == parts[0].adapter_slot) {
    tokens += EncoderTokens(parts[count]);
    if (options_.max_step_tokens > 0 && tokens > options_.max_step_tokens) break;
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
  adapter_slots_.assign(positions_.size(), parts[0].adapter_slot);
  if (options_.format.vocab_size == 0) return;
  size_t token = 0;
  for (const Part& part : parts) {
    const float* ids = part.item->features->values.data();
    for (int32_t row = 0; row < part.rows; ++row) {
      token_ids_[token++] = static_cast<int32_t>(ids[part.first_row + row]);
    }
  }
}

TensorView MediaEncoder::MakeFeatures(std::span<const Part> parts) {
  std::vector<float> values;
  const int64_t channels = options_.format.channels;
  // If every token has features, those of class tokens are zeros.
  const int32_t zeros = options_.format.any_size ? options_.class_tokens : 0;
  for (const Part& part : parts) {
    values.resize(values.size() + static_cast<size_t>(zeros * channels));
    const float* rows = part.item->features->values.data() + part.first_row * channels;
    values.insert(values.end(), rows, rows + part.rows * channels);
  }
  const auto num_rows = static_cast<int64_t>(values.size()) / channels;
  const DType type = options_.features_type;
  features_.resize(static_cast<size_t>(num_rows * RowBytes(type, channels)));
  const TensorView features = TensorView::Dense(features_.data(), type, {num_rows, channels});
  FromFloat(values.data(), features);
  return features;
}

ops::StepBatch MediaEncoder::Batch(size_t parts) const {
  return {{.num_tokens = static_cast<int32_t>(positions_.size()),
           .num_requests = static_cast<int32_t>(parts),
           .num_media_rows = static_cast<int32_t>(patch_rows_.size()),
           .token_ids = token_ids_.data(),
           .positions = positions_.data(),
           .query_start = query_start_.data(),
           .seq_lens = seq_lens_.data(),
           .media_rows = patch_rows_.data(),
           .grid_positions = options_.format.grid ? grid_positions_.data() : nullptr,
           .adapter_slots = adapter_slots_.data()},
          /*kv=*/{},
          /*inputs=*/{}};
}

Status MediaEncoder::RunStep(std::span<const Part> parts, KeptEmbeddings* kept) {
  MakeStep(parts);
  ops::StepBatch batch = Batch(parts.size());
  TensorView features;
  if (options_.format.vocab_size == 0) {
    features = MakeFeatures(parts);
    batch.inputs = {&features, 1};
  }
  program::ExecutorOutput output;
  PAGEMILL_RETURN_IF_ERROR(executor_->Execute(batch, &output));
  return Keep(parts, output, kept);
}

Status MediaEncoder::Keep(std::span<const Part> parts, const program::ExecutorOutput& output,
                          KeptEmbeddings* kept) const {
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
    std::vector<float>& values = (*kept)[part.item->content_id];
    if (part.first_row == 0) values.clear();
    const size_t before = values.size();
    values.resize(before + static_cast<size_t>(own.Elements()));
    ToFloat(own, values.data() + before);
    first += own.shape[0];
    if (part.last()) {
      PAGEMILL_RETURN_IF_ERROR(Place(*part.item, output.Find(kRowEnds), &values));
    }
  }
  return OkStatus();
}

Status MediaEncoder::Place(const step::MediaItem& item, const TensorView& row_end,
                           std::vector<float>* values) const {
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

}  // namespace pagemill::runner
