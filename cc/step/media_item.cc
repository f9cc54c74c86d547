#include "cc/step/media_item.h"

#include <algorithm>
#include <cmath>

namespace pagemill::step {
namespace {

std::string Shape(int32_t rows, int32_t channels) {
  return std::to_string(rows) + " rows of " + std::to_string(channels) + " channels";
}

// True if these are [rows, kMediaGridDims], each from 0 to limit - 1.
bool InGrid(const std::vector<int32_t>& positions, int32_t rows, int64_t limit) {
  return positions.size() == static_cast<size_t>(rows) * kMediaGridDims &&
         std::all_of(positions.begin(), positions.end(),
                     [limit](int32_t p) { return p >= 0 && p < limit; });
}

bool RowsFit(int32_t rows, const MediaFormat& format) {
  // With more tokens than rows, class tokens have embeddings: all items have as many.
  if (!format.any_size || format.tokens > format.rows) return rows == format.rows;
  return NumEmbeddings(rows, format) > 0 && rows <= format.rows;
}

Status CheckGrid(const MediaItem& item, const MediaFormat& format) {
  const MediaFeatures& features = *item.features;
  if (!format.grid) {
    if (features.row_positions.empty() && features.token_positions.empty()) return OkStatus();
    return InvalidArgument("has positions, but this model takes none");
  }
  const int64_t limit =
      std::min(int64_t{kMaxPositionsPerToken} * item.num_tokens, int64_t{kMaxItemPositions});
  if (features.next_position >= 0 && features.next_position <= limit &&
      InGrid(features.row_positions, features.rows, features.rows) &&
      InGrid(features.token_positions, item.num_tokens, limit)) {
    return OkStatus();
  }
  return InvalidArgument("has no positions in time, row and column for each of its " +
                         std::to_string(features.rows) + " rows and " +
                         std::to_string(item.num_tokens) + " tokens");
}

// Tokens of an item with so many embeddings; -1 if it has no whole rows of them.
int64_t TokensFor(int64_t embeddings, int32_t row_tokens) {
  if (row_tokens == 0) return embeddings;
  if (row_tokens < 0 || embeddings % row_tokens != 0) return -1;
  return embeddings + embeddings / row_tokens;
}

// True if all features are ids that a vocabulary of this size has.
bool AreIds(const std::vector<float>& values, int32_t vocab_size) {
  return std::all_of(values.begin(), values.end(), [vocab_size](float id) {
    return id >= 0 && id < static_cast<float>(vocab_size) && id == std::floor(id);
  });
}

// True if the placement, and shares if there are any, have as many for each token.
bool PlacesFit(const MediaItem& item) {
  const std::vector<float>& shares = item.features->shares;
  const size_t places = item.features->placement.size();
  const auto tokens = static_cast<size_t>(item.num_tokens);
  if (shares.empty()) return places == tokens;
  return item.num_tokens > 0 && shares.size() == places && places % tokens == 0 &&
         places / tokens <= kMaxShares;
}

Status CheckPlacement(const MediaItem& item, int32_t embeddings, const MediaFormat& format) {
  const std::vector<int32_t>& placement = item.features->placement;
  if (!format.placed) return InvalidArgument("has places, but this model takes none");
  if (!PlacesFit(item) || item.num_tokens > format.tokens || item.features->row_tokens != 0) {
    return InvalidArgument("has places for " + std::to_string(placement.size()) +
                           " tokens, but it has " + std::to_string(item.num_tokens) +
                           " of at most " + std::to_string(format.tokens));
  }
  const std::vector<float>& shares = item.features->shares;
  if (!std::all_of(shares.begin(), shares.end(), [](float s) { return s >= 0.0f && s <= 1.0f; })) {
    return InvalidArgument("has shares that are not from 0 to 1");
  }
  if (std::all_of(placement.begin(), placement.end(),
                  [embeddings](int32_t p) { return p >= kRowEnd && p < embeddings; })) {
    return OkStatus();
  }
  return InvalidArgument("has places of other embeddings than its " + std::to_string(embeddings));
}

}  // namespace

int32_t NumEmbeddings(int32_t rows, const MediaFormat& format) {
  if (!format.any_size) return format.tokens;
  return static_cast<int32_t>(int64_t{rows} * format.tokens / format.rows);
}

bool HasGrid(std::span<const MediaFormat> formats) {
  return std::any_of(formats.begin(), formats.end(), [](const MediaFormat& f) { return f.grid; });
}

Status CheckFeatures(const MediaItem& item, std::span<const MediaFormat> formats) {
  if (formats.empty()) return OkStatus();
  if (item.features == nullptr) return InvalidArgument("has no features");
  const MediaFeatures& features = *item.features;
  if (features.encoder < 0 || static_cast<size_t>(features.encoder) >= formats.size()) {
    return InvalidArgument("has features for encoder " + std::to_string(features.encoder) +
                           ", but this model has " + std::to_string(formats.size()));
  }
  const MediaFormat& format = formats[static_cast<size_t>(features.encoder)];
  if (!RowsFit(features.rows, format) || features.channels != format.channels ||
      features.values.size() != static_cast<size_t>(features.rows) * features.channels) {
    return InvalidArgument("has features of " + Shape(features.rows, features.channels) +
                           ", but this model takes " + (format.any_size ? "at most " : "") +
                           Shape(format.rows, format.channels));
  }
  if (format.vocab_size > 0 && !AreIds(features.values, format.vocab_size)) {
    return InvalidArgument("has token ids outside of the " + std::to_string(format.vocab_size) +
                           " of this model");
  }
  const int32_t embeddings = NumEmbeddings(features.rows, format);
  if (!features.placement.empty() || !features.shares.empty()) {
    PAGEMILL_RETURN_IF_ERROR(CheckPlacement(item, embeddings, format));
    return CheckGrid(item, format);
  }
  const int64_t tokens = TokensFor(embeddings, features.row_tokens);
  if (tokens < 0) {
    return InvalidArgument("has rows of " + std::to_string(features.row_tokens) +
                           " tokens, which " + std::to_string(embeddings) + " do not fill");
  }
  if (item.num_tokens != tokens) {
    return InvalidArgument("has " + std::to_string(item.num_tokens) +
                           " tokens, but an item of this model takes the place of " +
                           std::to_string(tokens));
  }
  return CheckGrid(item, format);
}

}  // namespace pagemill::step
