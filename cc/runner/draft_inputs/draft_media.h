// File: cc/runner/draft_inputs/draft_media.h
// Embeddings of media for a draft head: those that the target's step read in place of placeholder
// tokens, until the head has computed these tokens.
//
//   DraftMedia media({.width = 4096, .type = DType::kBF16, .num_slots = 128});
//   media.Start(slot);
//   media.Append(slot, /*token=*/5, target_input, row);       // of the slot's request, ascending
//   media.BeginPass();
//   media.AddToPass(slot, /*position=*/0, /*count=*/8, /*first=*/0);   // of the pass
//   ... the pass runs with media.rows() and media.embeddings() ...
//   media.DropBefore(slot, 8);
//
// A placeholder whose embedding is not there, behind a cached prefix, has that of its token: it
// makes drafts worse, which are verified.
//
// Memory: the embeddings of tokens that wait. Thread safety: none.
#ifndef PAGEMILL_CC_RUNNER_DRAFT_INPUTS_DRAFT_MEDIA_H_
#define PAGEMILL_CC_RUNNER_DRAFT_INPUTS_DRAFT_MEDIA_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {

struct DraftMediaOptions {
  int32_t width = 1;  // of an embedding
  DType type = DType::kF32;
  int32_t num_slots = 1;
};

class DraftMedia {
 public:
  explicit DraftMedia(const DraftMediaOptions& options);

  // The slot holds a request of which no embedding is here.
  void Start(int32_t slot) { slots_[static_cast<size_t>(slot)] = {}; }
  // Row `row` of `embeddings` is that of this token, which is behind those before.
  void Append(int32_t slot, int32_t token, const TensorView& embeddings, int64_t row);
  // Those of earlier tokens are not needed any more.
  void DropBefore(int32_t slot, int32_t token);
  // Embeddings of the slot.
  size_t size(int32_t slot) const { return slots_[static_cast<size_t>(slot)].tokens.size(); }

  void BeginPass();
  // Those of tokens [position, position + count), which are the pass's tokens from `first` on.
  void AddToPass(int32_t slot, int32_t position, int32_t count, int32_t first);
  // The tokens of the pass that have embeddings, and these, [rows, width]; valid until the next
  // call.
  std::span<const int32_t> rows() const { return rows_; }
  TensorView embeddings();

  // True if `embeddings` is an input with at least `rows` rows.
  bool Fits(const TensorView& embeddings, size_t rows) const;

 private:
  struct Slot {
    std::vector<int32_t> tokens;  // ascending
    std::vector<std::byte> embeddings;
  };

  const DraftMediaOptions options_;
  const size_t row_bytes_;
  std::vector<Slot> slots_;
  std::vector<int32_t> rows_;
  std::vector<std::byte> pass_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_DRAFT_INPUTS_DRAFT_MEDIA_H_
