// File: cc/runner/media_encoder.h
// The second program of a runner. It computes embeddings from features of media items (patches of
// images); the model's own program reads them in place of placeholder tokens.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto media, MediaEncoder::Create(encoder_executor, options));
//   PAGEMILL_RETURN_IF_ERROR(media->Apply(plan, batch_state));  // encodes what the plan says
//   media->AddTo(&batch);                                 // embeddings of the step's placeholders
//
// The encoder's step holds items as requests: first class_tokens tokens of no features, then one
// for each row of its features. Its program has one input besides step arrays, the features, and
// one output, `embeddings`, with step::NumEmbeddings() rows for each item. The model's program has
// one input besides step arrays, the embeddings [media_rows, width].
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
// A model may compute media tokens in another way than the others (`text_rows`): an encoder-decoder
// has only their keys and values. Tokens of an item may see each other (`item_ends`): a plan then
// has all of them in one step, except those that are in the cache.
//
// Embeddings are kept by content id until a plan releases them. Which items are encoded and kept,
// and for how long, is the scheduler's decision (scheduler/resources/encoder_cache.h); it bounds
// the memory, encoder_cache_tokens * width * 4 bytes.
//
// Ownership: the executor is the caller's and outlives the encoder. Thread safety: none. Cost of
// Apply() without media: O(requests of the step).
#ifndef PAGEMILL_CC_RUNNER_MEDIA_ENCODER_H_
#define PAGEMILL_CC_RUNNER_MEDIA_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/program/executor.h"
#include "cc/runner/batch_state.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"
#include "cc/tensor/dtype.h"

namespace pagemill::runner {

struct MediaEncoderOptions {
  step::MediaFormat format;             // of every item
  int32_t class_tokens = 0;             // of the encoder, in front of an item's rows
  int32_t width = 0;                    // of an embedding
  int32_t max_items = 1;                // of one step of the encoder, or tiles of them
  int32_t max_step_tokens = 0;          // of one step of the encoder; 0: those of max_items
  DType features_type = DType::kF32;    // of the encoder's input: f32, bf16 or f16
  DType embeddings_type = DType::kF32;  // of the input of the model's program, likewise
  bool text_rows = false;               // whether the model's program reads them, and these
  bool item_ends = false;
  int32_t tile_rows = 0;                // of a tile; 0: items have no tiles

  // kInvalidArgument names the field and its value.
  Status Validate() const;
};

class MediaEncoder {
 public:
  static StatusOr<std::unique_ptr<MediaEncoder>> Create(program::Executor* executor,
                                                        const MediaEncoderOptions& options);

  // Drops and makes embeddings as the plan says, and gathers those of its tokens. `batch` has
  // applied the plan. Not OK: nothing of the plan may run, and what it was to encode is not kept.
  Status Apply(const step::StepPlan& plan, const BatchState& batch);
  // Valid until the next Apply().
  void AddTo(ops::StepBatch* batch) const;
  // What AddTo() adds: the tokens of the step that stand for media, and their embeddings.
  std::span<const int32_t> media_rows() const { return media_rows_; }
  const TensorView& embeddings() const { return embeddings_; }

  const MediaEncoderOptions& options() const { return options_; }
  int64_t num_encoded_items() const { return num_encoded_items_; }  // since the beginning

 private:
  // Rows of an item that attend to each other: all, or those of a tile.
  struct Part {
    const step::MediaItem* item;
    int32_t first_row;
    int32_t rows;

    bool last() const { return first_row + rows == item->features->rows; }
  };

  MediaEncoder(program::Executor* executor, const MediaEncoderOptions& options);
  int32_t EncoderTokens(const Part& part) const;
  void AppendParts(const step::MediaItem& item, std::vector<Part>* parts) const;
  // How many of the first parts a step of the encoder takes, at least one.
  size_t PartsOfStep(std::span<const Part> parts) const;
  Status Encode(std::span<const Part> parts);
  void MakeStep(std::span<const Part> parts);
  Status Keep(std::span<const Part> parts, const program::ExecutorOutput& output);
  // Puts the embeddings of a whole item where its tokens are.
  Status Place(const step::MediaItem& item, const TensorView& row_end, std::vector<float>* values);
  Status Gather(const step::StepPlan& plan, const BatchState& batch);
  Status GatherEntry(const step::ScheduledRequest& entry, const step::Request& request,
                     int32_t first_token);
  void ListTextRows(int32_t num_tokens);
  Status ListItemEnds(const step::StepPlan& plan, const BatchState& batch);

  program::Executor* const executor_;
  const MediaEncoderOptions options_;
  std::unordered_map<std::string, std::vector<float>> kept_;  // [tokens, width], by content id
  int64_t num_encoded_items_ = 0;

  // Arrays of a step of the encoder.
  std::vector<int32_t> token_ids_, positions_, query_start_, seq_lens_, patch_rows_;
  std::vector<int32_t> grid_positions_;
  std::vector<std::byte> features_;
  // Arrays of a step of the model: the tokens that stand for media, and their embeddings.
  std::vector<int32_t> media_rows_, text_rows_, item_ends_;
  std::vector<float> gathered_;
  std::vector<std::byte> narrow_;  // gathered_ in embeddings_type, unless that is f32
  TensorView embeddings_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_MEDIA_ENCODER_H_
