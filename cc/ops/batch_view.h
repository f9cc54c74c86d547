// File: cc/ops/batch_view.h
// One step's batch as flat int32 arrays, and the table of those arrays. Built by runner/batch_state
// from a StepPlan; borrowed, valid for one execution.
//
//   StepBatch batch{{.num_tokens = 3, .token_ids = ids, ...}, kv_tables};
//   BatchView view = batch.View(/*table=*/0);      // what the layers of one block table see
//   for (const ArrayInfo<StepArrays>& info : kStepArrays) Use(info.name, batch.*info.data);
//
// Requests are numbered 0..num_requests-1 in batch order; their tokens are contiguous.
//
//   request r runs tokens [query_start[r], query_start[r + 1]); after the step it has seq_lens[r]
//   tokens of context, so its first new token has position seq_lens[r] - (number of new tokens).
//   Token position p of request r lies in block block_table[r * block_table_stride + p /
//   block_size] at offset p % block_size; slot = block * block_size + offset.
//
// Layers whose KV has the same block table share a KvArrays. A KV group has as many tables as its
// blocks have pages (program/kv/kv_layout.h). Entries of a table of states, and which of them a
// step reads and writes: states/state_pages.h.
//
// Adding an array: the member and one entry of the table below. The messages to other ranks, the
// arrays in Python and the inputs that a program may declare are derived from the table. An array
// with `if_declared` is null in a step unless the program declares it as an input.
#ifndef PAGEMILL_CC_OPS_BATCH_VIEW_H_
#define PAGEMILL_CC_OPS_BATCH_VIEW_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "cc/tensor/tensor_view.h"

namespace pagemill::ops {

// Time, row and column.
inline constexpr int32_t kGridDims = 3;

// Arrays and numbers of a step that all layers share.
struct StepArrays {
  int32_t num_tokens = 0;
  int32_t num_requests = 0;
  int32_t num_logits_rows = 0;
  int32_t num_media_rows = 0;
  int32_t num_text_rows = 0;
  // If not 0, the caller reads only the maximum over the first `argmax_columns` columns of each row
  // of logits, and the lowest column that has it. An executor may then skip the logits
  // (program/executor.h).
  int32_t argmax_columns = 0;
  const int32_t* token_ids = nullptr;    // [tokens]
  const int32_t* positions = nullptr;    // [tokens]
  const int32_t* query_start = nullptr;  // [requests + 1]
  const int32_t* seq_lens = nullptr;     // [requests]
  const int32_t* logits_rows = nullptr;  // [logits_rows] indices into the tokens, ascending
  // [media_rows] likewise: the tokens that stand for media. Row i of the program's media input is
  // the embedding of token media_rows[i], or in an encoder the features of its patch.
  const int32_t* media_rows = nullptr;
  // [text_rows] if the program declares it: all other tokens, ascending.
  const int32_t* text_rows = nullptr;
  // [tokens, kGridDims] if the program declares it: the position of a token in time and in an
  // image, for rotary embeddings of several dimensions. All three are equal for text: `positions`,
  // or less after media, which may take fewer positions than tokens (step/media_item.h).
  const int32_t* grid_positions = nullptr;
  // [tokens] if the program declares it: the slot of the adapter that a token is computed with, -1
  // for the model as it is (apply_adapter/apply_adapter.h).
  const int32_t* adapter_slots = nullptr;
  // [tokens] if the program declares it: 1 for tokens of the second text of a pair, which the model
  // reads together with a first one; otherwise 0 (step/request.h).
  const int32_t* token_types = nullptr;
  // [tokens] if the program declares it: of a token of a media item whose tokens see each other,
  // the position behind the item's last one; otherwise 0. The step has all tokens of an item that
  // are not in the cache. If all tokens of a prompt see each other, the prompt is such an item.
  const int32_t* item_ends = nullptr;
  // [tokens] if the program declares it: how many tokens the token's request begins with that stand
  // for the rows of an encoder, whose output a decoder attends to; at least 1.
  const int32_t* encoder_ends = nullptr;
  // [tokens] if the program declares it: the position of a token among those of the decoder, which
  // are behind those of the encoder; 0 for these.
  const int32_t* decoder_positions = nullptr;
};

// Arrays of the layers that share a block table.
struct KvArrays {
  int32_t block_size = 16;  // tokens per KV block
  // Leading entries of the block table that are the same for all requests and whose tokens were
  // stored by earlier steps; 0 if unknown.
  int32_t num_common_blocks = 0;
  // Leading entries of a table of states: pages of the newest ones (states/state_pages.h).
  int32_t recent_states = 0;
  const int32_t* slot_mapping = nullptr;  // [tokens]
  const int32_t* block_table = nullptr;   // [requests, block_table_stride]
  int64_t block_table_stride = 0;
};

// The step as a kernel sees it: the shared arrays and, for ops that read a KV cache, those of its
// block table.
struct BatchView : StepArrays, KvArrays {};

// A whole step. `kv` has an entry per block table, in the order of the KV layout; `inputs` one for
// each input that the program declares besides step arrays, in its order: hidden states of the
// stage before, features of images.
struct StepBatch : StepArrays {
  std::span<const KvArrays> kv;
  std::span<const TensorView> inputs;

  BatchView View(size_t table) const { return {*this, kv[table]}; }
};

// Symbolic sizes of dimension 0 of a value or an array.
enum class Dim : uint8_t { kNone, kTokens, kRequests, kLogitsRows, kMediaRows, kTextRows };

// The size of each dimension in a step, or its bound.
struct StepSizes {
  int64_t tokens = 0;
  int64_t requests = 0;
  int64_t logits_rows = 0;
  int64_t media_rows = 0;
  int64_t text_rows = 0;
  friend bool operator==(const StepSizes&, const StepSizes&) = default;
};

struct DimInfo {
  Dim dim;
  std::string_view name;  // in program text
  int32_t StepArrays::*size;
  int64_t StepSizes::*bound;
};
inline constexpr DimInfo kDims[] = {
    {Dim::kTokens, "tokens", &StepArrays::num_tokens, &StepSizes::tokens},
    {Dim::kRequests, "requests", &StepArrays::num_requests, &StepSizes::requests},
    {Dim::kLogitsRows, "logits_rows", &StepArrays::num_logits_rows, &StepSizes::logits_rows},
    {Dim::kMediaRows, "media_rows", &StepArrays::num_media_rows, &StepSizes::media_rows},
    {Dim::kTextRows, "text_rows", &StepArrays::num_text_rows, &StepSizes::text_rows},
};
inline StepSizes SizesOf(const StepArrays& step) {
  StepSizes sizes;
  for (const DimInfo& info : kDims) sizes.*info.bound = step.*info.size;
  return sizes;
}
inline constexpr const DimInfo& InfoOf(Dim dim) { return kDims[static_cast<size_t>(dim) - 1]; }

// Contents of an array for padding requests, which make a step as large as one whose work was
// recorded: each has one token, at position 0 of the null page, and a row of logits.
enum class Padding : uint8_t {
  kZero,
  kOne,
  kCount,  // one more than the preceding element
};

// The table of step arrays. All are int32.
template <typename Arrays>
struct NumberInfo {
  std::string_view name;
  int32_t Arrays::*value;
};
template <typename Arrays>
struct ArrayInfo {
  std::string_view name;
  const int32_t* Arrays::*data;
  Dim dim;                 // of dimension 0
  int32_t extra = 0;       // beyond `dim`
  bool per_block = false;  // rank 2: rows of block_table_stride elements
  Padding padding = Padding::kZero;
  int32_t columns = 1;  // not 1: rank 2
  bool if_declared = false;
};

inline constexpr NumberInfo<StepArrays> kStepNumbers[] = {
    {"num_tokens", &StepArrays::num_tokens},
    {"num_requests", &StepArrays::num_requests},
    {"num_logits_rows", &StepArrays::num_logits_rows},
    {"num_media_rows", &StepArrays::num_media_rows},
    {"num_text_rows", &StepArrays::num_text_rows},
    {"argmax_columns", &StepArrays::argmax_columns},
};
inline constexpr ArrayInfo<StepArrays> kStepArrays[] = {
    {"token_ids", &StepArrays::token_ids, Dim::kTokens},
    {"positions", &StepArrays::positions, Dim::kTokens},
    {"query_start", &StepArrays::query_start, Dim::kRequests, 1, false, Padding::kCount},
    {"seq_lens", &StepArrays::seq_lens, Dim::kRequests, 0, false, Padding::kOne},
    {"logits_rows", &StepArrays::logits_rows, Dim::kLogitsRows, 0, false, Padding::kCount},
    {"media_rows", &StepArrays::media_rows, Dim::kMediaRows},
    {.name = "text_rows",
     .data = &StepArrays::text_rows,
     .dim = Dim::kTextRows,
     .padding = Padding::kCount,
     .if_declared = true},
    {.name = "grid_positions",
     .data = &StepArrays::grid_positions,
     .dim = Dim::kTokens,
     .columns = kGridDims,
     .if_declared = true},
    {.name = "adapter_slots",
     .data = &StepArrays::adapter_slots,
     .dim = Dim::kTokens,
     .if_declared = true},
    {.name = "token_types",
     .data = &StepArrays::token_types,
     .dim = Dim::kTokens,
     .if_declared = true},
    {.name = "item_ends", .data = &StepArrays::item_ends, .dim = Dim::kTokens, .if_declared = true},
    {.name = "encoder_ends",
     .data = &StepArrays::encoder_ends,
     .dim = Dim::kTokens,
     .padding = Padding::kOne,
     .if_declared = true},
    {.name = "decoder_positions",
     .data = &StepArrays::decoder_positions,
     .dim = Dim::kTokens,
     .if_declared = true},
};
inline constexpr NumberInfo<KvArrays> kKvNumbers[] = {
    {"block_size", &KvArrays::block_size},
    {"num_common_blocks", &KvArrays::num_common_blocks},
    {"recent_states", &KvArrays::recent_states},
};
inline constexpr ArrayInfo<KvArrays> kKvArrays[] = {
    {"slot_mapping", &KvArrays::slot_mapping, Dim::kTokens},
    {"block_table", &KvArrays::block_table, Dim::kRequests, 0, true},
};

// Elements of dimension 0 of an array in this step.
template <typename Arrays>
int64_t NumRows(const ArrayInfo<Arrays>& info, const StepArrays& step) {
  return step.*InfoOf(info.dim).size + info.extra;
}

// Elements of a row; `table_stride` is that of the block table.
template <typename Arrays>
int64_t NumColumns(const ArrayInfo<Arrays>& info, int64_t table_stride) {
  return info.per_block ? table_stride : info.columns;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_BATCH_VIEW_H_
