// File: cc/step/media_item.h
// Images, clips, ... of a request: what an encoder reads of them, and which tokens of the prompt
// its output stands for.
//
//   request.media.push_back({.content_id = sha256, .first_token = 5, .num_tokens = 64,
//                            .features = std::move(features)});
//   PAGEMILL_RETURN_IF_ERROR(CheckFeatures(request.media.back(), formats));
//
// Positions of several dimensions. Models with M-RoPE give each token a time, a row and a column. A
// token of text has three equal ones, each 1 more than the largest before; tokens of an item have
// those of the item behind the text before it (MediaFeatures::token_positions). They follow from
// the item alone, and the KV of its tokens depends on them: so equal content ids must mean equal
// positions, or prefix caching would mix up items. A content id is a hash of features and
// positions. The next item begins where the text behind this one does: the frames of a video, each
// an item, share a beginning if next_position of all but the last is 0, and the last one's leads
// behind the positions of all. An item without positions has those of a text of its length.
//
// Rows. A model may have a token of its own behind each row of an image ([IMG_BREAK]): an item's
// embeddings then come in rows of MediaFeatures::row_tokens, and the token behind each row, which
// is one of the item's tokens, keeps its own embedding. A content id is a hash of that number, too.
//
// Placement. An item may be an image in tiles that are encoded one by one, while its tokens go row
// by row across tiles, and some embeddings are left out: MediaFeatures::placement lists, for each
// token, the embedding that takes its place. If the image has more embeddings than tokens, a token
// is interpolated between several of them: MediaFeatures::shares says how much of each it takes. A
// content id is a hash of both, too.
#ifndef PAGEMILL_CC_STEP_MEDIA_ITEM_H_
#define PAGEMILL_CC_STEP_MEDIA_ITEM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace pagemill::step {

inline constexpr int32_t kMediaGridDims = 3;  // time, row and column
inline constexpr int32_t kRowEnd = -1;        // in MediaFeatures::placement
inline constexpr size_t kMaxShares = 4;       // of a token, as bilinear interpolation has them
// Positions that an item has at most for each token: frames of a video may be far apart in time.
inline constexpr int32_t kMaxPositionsPerToken = 512;
inline constexpr int32_t kMaxItemPositions = 1 << 19;  // of one item

// What an encoder reads of a media item, such as the patches of an image.
struct MediaFeatures {
  int32_t rows = 0;
  int32_t channels = 0;
  std::vector<float> values;  // [rows, channels]
  // With MediaFormat::grid; empty otherwise.
  std::vector<int32_t> row_positions = {};    // [rows, kMediaGridDims], in the item
  std::vector<int32_t> token_positions = {};  // [num_tokens, kMediaGridDims], from the item's start
  // Position of the token behind the item, from the item's start; 0: it begins there, too.
  int32_t next_position = 0;
  // Embeddings of a row, behind which is a token that keeps its own; 0: the item has no rows.
  int32_t row_tokens = 0;
  // [num_tokens], each the number of an embedding in the encoder's order, or kRowEnd for the one
  // that the encoder has for ends of rows; empty: all embeddings in order. Not with row_tokens.
  std::vector<int32_t> placement = {};
  // [num_tokens, n], as `placement` is then: a token is the sum of n embeddings, each times its
  // share, from 0 to 1; n is at most kMaxShares. Empty: each token is one embedding.
  std::vector<float> shares = {};
  int32_t encoder = 0;  // of the model's encoders, the one that reads this
};

// The output of an encoder takes the place of the embeddings of `num_tokens` placeholder tokens,
// except those at the end of rows.
struct MediaItem {
  std::string content_id;   // equal ids = equal encoder output and equal positions; not empty
  int32_t first_token = 0;  // position in the prompt
  int32_t num_tokens = 0;   // placeholders and ends of rows
  // Of this process: they travel neither as text nor between processes. Null if the runner encodes
  // nothing, as in simulations.
  std::shared_ptr<const MediaFeatures> features = nullptr;
};

// The media items that an encoder of a model takes.
struct MediaFormat {
  int32_t rows = 0;      // of an item's features
  int32_t channels = 0;  // of its features
  int32_t tokens = 0;    // of an item, without ends of rows
  // `rows` and `tokens` are the most; items have both in this proportion. An embedding is made of
  // rows / tokens rows; the encoder reads fewer at the end of an item, too, and makes none of them.
  bool any_size = false;
  bool grid = false;    // items have positions of several dimensions
  bool placed = false;  // items may have a placement
  // Not 0: items are texts, whose features are token ids below this, in one channel.
  int32_t vocab_size = 0;
};

// Embeddings that the encoder gives for so many rows of an item of this format.
int32_t NumEmbeddings(int32_t rows, const MediaFormat& format);

// True if items of one of these have positions of several dimensions.
bool HasGrid(std::span<const MediaFormat> formats);

// kInvalidArgument if the item is not of the format of its encoder; the message begins with "has".
// A runner that encodes nothing has no formats: features are not checked.
Status CheckFeatures(const MediaItem& item, std::span<const MediaFormat> formats);

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_MEDIA_ITEM_H_
