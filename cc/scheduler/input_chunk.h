// File: cc/scheduler/input_chunk.h
// Input that is appended to a request with Request::streaming_input. Its prompt is the first part
// of its first turn.
//
//   InputChunk chunk{.token_ids = ids, .part = InputPart::kMore};
//   chunk.media = {{.content_id = sha256, .first_token = 2, .num_tokens = 64}};
//   PAGEMILL_RETURN_IF_ERROR(scheduler->Extend(id, std::move(chunk)));
#ifndef PAGEMILL_CC_SCHEDULER_INPUT_CHUNK_H_
#define PAGEMILL_CC_SCHEDULER_INPUT_CHUNK_H_

#include <cstdint>
#include <vector>

#include "cc/step/media_item.h"

namespace pagemill::scheduler {

// What follows a chunk.
enum class InputPart : int32_t {
  kMore = 0,  // more input of this turn: the part is computed, nothing is sampled
  kTurn = 1,  // nothing: the turn generates; then the request waits for its next turn
  kLast = 2,  // nothing: the turn generates; then the request ends
};

struct InputChunk {
  // At least one, except at the end of a turn that had input before.
  std::vector<int32_t> token_ids;
  // In the order of their positions, not overlapping; MediaItem::first_token counts from the first
  // token of the chunk.
  std::vector<step::MediaItem> media = {};
  InputPart part = InputPart::kLast;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_INPUT_CHUNK_H_
