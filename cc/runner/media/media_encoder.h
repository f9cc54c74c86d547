// File: cc/runner/media/media_encoder.h
// An encoder of a runner: a program that computes embeddings from features of media items (patches
// of images, frames of audio). The model's own program reads them in place of placeholder tokens
// (media_embeddings.h).
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto encoder, MediaEncoder::Create(encoder_executor, options));
//   std::vector<ItemToEncode> items = {{.item = &request.media[0]}};
//   PAGEMILL_RETURN_IF_ERROR(encoder->Encode(items, &kept));  // kept.at(content_id): [tokens,
//   width]
//
// The encoder's step holds items as requests: first class_tokens tokens of no features, then one
// for each row of its features. Its program has one input besides step arrays, the features, and
// one output, `embeddings`, with step::NumEmbeddings() rows for each item.
//
// Tiles: with options.tile_rows each so many rows of an item are a request of the encoder's step,
// behind class tokens of their own; tiles of an item may be in several steps. Items whose placement
// has ends of rows need a second output, `row_end` [tokens, width], of equal rows.
//
// Items of one size (format.any_size = false): media_rows of the encoder's step are the tokens that
// have features, which are [media_rows, channels]. Items of any size, where an embedding is made of
// rows that follow each other: features are [tokens, channels], zeros for class tokens, and
// media_rows are the first token of each embedding. Rows at the end of an item that make no whole
// embedding are read, too.
//
// Texts (format.vocab_size > 0): the features of an item are its token ids. The program reads them
// as the step array of that name, and has no input besides.
//
// Adapters (options.adapters): a step has items of one adapter, so that it is that of each row that
// the program makes. Without, no item has one.
//
// Ownership: the executor is the caller's and outlives the encoder. Thread safety: none.
#ifndef PAGEMILL_CC_RUNNER_MEDIA_MEDIA_ENCODER_H_
#define PAGEMILL_CC_RUNNER_MEDIA_MEDIA_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/program/executor.h"
#include "cc/step/request.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {

struct MediaEncoderOptions {
  step::MediaFormat format;           // of every item
  int32_t class_tokens = 0;           // of the encoder, in front of an item's rows
  int32_t width = 0;                  // of an embedding
  int32_t max_items = 1;              // of one step of the encoder, or tiles of them
  int32_t max_step_tokens = 0;        // of one step of the encoder; 0: those of max_items
  DType features_type = DType::kF32;  // of the encoder's input: f32, bf16 or f16
  int32_t tile_rows = 0;              // of a tile; 0: items have no tiles
  bool adapters = false;              // whether the program has adapters

  // kInvalidArgument names the field and its value.
  Status Validate() const;
};

// [tokens, width], by content id.
using KeptEmbeddings = std::unordered_map<std::string, std::vector<float>>;

struct ItemToEncode {
  const step::MediaItem* item = nullptr;
  int32_t adapter_slot = -1;  // of the encoder's executor; -1: none
};

class MediaEncoder {
 public:
  static StatusOr<std::unique_ptr<MediaEncoder>> Create(program::Executor* executor,
                                                        const MediaEncoderOptions& options);

  // Adds the embeddings of `items`, which are of its format and not null. Not OK: those of some may
  // be there, or in part.
  Status Encode(std::span<const ItemToEncode> items, KeptEmbeddings* kept);

  const MediaEncoderOptions& options() const { return options_; }

 private:
  // Rows of an item that attend to each other: all, or those of a tile.
  struct Part {
    const step::MediaItem* item;
    int32_t adapter_slot;
    int32_t first_row;
    int32_t rows;

    bool last() const { return first_row + rows == item->features->rows; }
  };

  MediaEncoder(program::Executor* executor, const MediaEncoderOptions& options);
  int32_t EncoderTokens(const Part& part) const;
  void AppendParts(const ItemToEncode& item, std::vector<Part>* parts) const;
  // How many of the first parts a step of the encoder takes, at least one.
  size_t PartsOfStep(std::span<const Part> parts) const;
  Status RunStep(std::span<const Part> parts, KeptEmbeddings* kept);
  void MakeStep(std::span<const Part> parts);
  // The features of a step, in features_.
  TensorView MakeFeatures(std::span<const Part> parts);
  // What MakeStep() made, without features.
  ops::StepBatch Batch(size_t parts) const;
  Status Keep(std::span<const Part> parts, const program::ExecutorOutput& output,
              KeptEmbeddings* kept) const;
  // Puts the embeddings of a whole item where its tokens are.
  Status Place(const step::MediaItem& item, const TensorView& row_end,
               std::vector<float>* values) const;

  program::Executor* const executor_;
  const MediaEncoderOptions options_;

  // Arrays of a step.
  std::vector<int32_t> token_ids_, positions_, query_start_, seq_lens_, patch_rows_;
  std::vector<int32_t> grid_positions_, adapter_slots_;
  std::vector<std::byte> features_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_MEDIA_MEDIA_ENCODER_H_
