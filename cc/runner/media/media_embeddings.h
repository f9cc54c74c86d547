// File: cc/runner/media/media_embeddings.h
// What the encoders of a runner make of a plan's media, for the model's program: the embeddings of
// the tokens of a step that stand for media.
//
//   PAGEMILL_ASSIGN_OR_RETURN(auto media, MediaEmbeddings::Create(std::move(encoders), options));
//   PAGEMILL_RETURN_IF_ERROR(media->Apply(plan, batch_state, adapters));  // encodes what it says
//   media->AddTo(&batch);                                 // embeddings of the step's placeholders
//
// An item is encoded by the encoder that its features name; the embeddings of all are as wide. The
// model's program has one input besides step arrays, the embeddings [media_rows, width].
//
// A model may compute media tokens in another way than the others (`text_rows`): an encoder-decoder
// has only their keys and values, and a decoder reads how many of them there are and where its own
// tokens are behind them (`encoder_ends`: both arrays). Tokens of an item may see each other
// (`item_ends`): a plan then has all of them in one step, except those that are in the cache.
//
// Embeddings are kept by content id until a plan releases them. Which items are encoded and kept,
// and for how long, is the scheduler's decision (scheduler/resources/encoder_cache.h); it bounds
// the memory, encoder_cache_tokens * width * 4 bytes.
//
// Thread safety: none. Cost of Apply() without media: O(requests of the step).
#ifndef PAGEMILL_CC_RUNNER_MEDIA_MEDIA_EMBEDDINGS_H_
#define PAGEMILL_CC_RUNNER_MEDIA_MEDIA_EMBEDDINGS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/batch_view.h"
#include "cc/runner/adapters/running_adapters.h"
#include "cc/runner/batch_state.h"
#include "cc/runner/media/media_encoder.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {

struct MediaEmbeddingsOptions {
  DType type = DType::kF32;  // of the input of the model's program: f32, bf16 or f16
  bool text_rows = false;    // whether the model's program reads them, and these
  bool item_ends = false;
  bool encoder_ends = false;  // and decoder_positions
};

class MediaEmbeddings {
 public:
  // kInvalidArgument if there is no encoder, or their embeddings are not as wide as each other.
  static StatusOr<std::unique_ptr<MediaEmbeddings>> Create(
      std::vector<std::unique_ptr<MediaEncoder>> encoders, const MediaEmbeddingsOptions& options);

  // Drops and makes embeddings as the plan says, and gathers those of its tokens. `batch` has
  // applied the plan, and `adapters`, unless it is null: an item is encoded with that of its
  // request. Not OK: nothing of the plan may run, and what it was to encode is not kept.
  Status Apply(const step::StepPlan& plan, const BatchState& batch,
               const RunningAdapters* adapters);
  // Valid until the next Apply().
  void AddTo(ops::StepBatch* batch) const;
  // What AddTo() adds: the tokens of the step that stand for media, and their embeddings.
  std::span<const int32_t> media_rows() const { return media_rows_; }
  const TensorView& embeddings() const { return embeddings_; }

  const MediaEmbeddingsOptions& options() const { return options_; }
  // What an item must be, by its encoder.
  const std::vector<step::MediaFormat>& formats() const { return formats_; }
  int64_t num_encoded_items() const { return num_encoded_items_; }  // since the beginning

 private:
  MediaEmbeddings(std::vector<std::unique_ptr<MediaEncoder>> encoders,
                  const MediaEmbeddingsOptions& options);
  Status ListItems(const step::StepPlan& plan, const BatchState& batch,
                   const RunningAdapters* adapters);
  Status Encode();
  Status Gather(const step::StepPlan& plan, const BatchState& batch);
  Status GatherEntry(const step::ScheduledRequest& entry, const step::Request& request,
                     int32_t first_token);
  void ListTextRows(int32_t num_tokens);
  void ListEncoderEnds(const step::StepPlan& plan, const BatchState& batch);
  Status ListItemEnds(const step::StepPlan& plan, const BatchState& batch);

  const std::vector<std::unique_ptr<MediaEncoder>> encoders_;
  const MediaEmbeddingsOptions options_;
  const int32_t width_;
  std::vector<step::MediaFormat> formats_;
  std::vector<std::vector<ItemToEncode>> items_;  // to encode now, by encoder
  KeptEmbeddings kept_;
  int64_t num_encoded_items_ = 0;

  // Arrays of a step of the model: the tokens that stand for media, and their embeddings.
  std::vector<int32_t> media_rows_, text_rows_, item_ends_, encoder_ends_, decoder_positions_;
  std::vector<float> gathered_;
  std::vector<std::byte> narrow_;  // gathered_ in options_.type, unless that is f32
  TensorView embeddings_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_MEDIA_MEDIA_EMBEDDINGS_H_
