// Streaming input and sessions of several turns. While its input so far is computed, or its turn is
// over, a request is parked. Input enters the known tokens only while the request holds no blocks:
// the runner reads the prompt when a request starts, so a longer prompt is another start, which
// finds what was computed in the prefix cache.
#include <string>
#include <utility>

#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

namespace {

// Behind the tokens of `chunk`.
void Append(InputChunk more, InputChunk* chunk) {
  const auto first = static_cast<int32_t>(chunk->token_ids.size());
  for (step::MediaItem& item : more.media) {
    item.first_token += first;
    chunk->media.push_back(std::move(item));
  }
  chunk->token_ids.insert(chunk->token_ids.end(), more.token_ids.begin(), more.token_ids.end());
}

}  // namespace

Status Scheduler::Extend(step::RequestId id, InputChunk chunk) {
  const std::string name = "request " + std::to_string(id.value());
  const auto found = requests_.find(id);
  if (found == requests_.end()) return NotFound(name + " does not exist, or ended");
  RequestState* request = found->second.get();
  if (!request->request->streaming_input) {
    return FailedPrecondition(name + " was not submitted with streaming_input");
  }
  if (!request->input_open) {
    return FailedPrecondition(request->session_open
                                  ? name + " is generating; extend it when its turn is over"
                                  : "the input of " + name + " is complete");
  }
  if (chunk.token_ids.empty() && (chunk.part == InputPart::kMore || !request->turn_has_input)) {
    return InvalidArgument("token_ids is empty; a part of the input has at least one token");
  }
  const auto num_pending = static_cast<int32_t>(request->pending_input.token_ids.size());
  PAGEMILL_RETURN_IF_ERROR(admission_.CheckChunk(
      *request->request, {chunk.token_ids, chunk.media, request->prompt_size + num_pending}));

  request->input_open = chunk.part == InputPart::kMore;
  request->session_open = chunk.part != InputPart::kLast;
  request->turn_has_input = true;
  if (request->num_cached_tokens) counters_.prompt_tokens += chunk.token_ids.size();
  if (!request->blocks.empty()) {
    Append(std::move(chunk), &request->pending_input);
    return OkStatus();
  }
  GrowPrompt(request, std::move(chunk));
  if (FindParked(id, ParkReason::kAwaitingInput) != nullptr) Unpark(request);
  return OkStatus();
}

// Behind the prompt. The request holds no blocks. Steps in flight may still read the request as it
// was, so there is another one, which shares its tokens and media.
void Scheduler::GrowPrompt(RequestState* request, InputChunk chunk) {
  auto longer = std::make_shared<step::Request>(*request->request);
  int32_t num_media_tokens = 0;
  for (step::MediaItem& item : chunk.media) {
    item.first_token += request->prompt_size;
    num_media_tokens += item.num_tokens;
    request->media_end = item.first_token + item.num_tokens;
  }
  longer->prompt_token_ids.Append(chunk.token_ids);
  longer->media.Append(chunk.media);
  request->request = std::move(longer);
  request->prompt_size += static_cast<int32_t>(chunk.token_ids.size());
  request->blocks.GrowPrompt(static_cast<int32_t>(chunk.token_ids.size()), num_media_tokens);
}

// All known tokens are computed, and nothing was sampled behind them because more was to come.
void Scheduler::FinishInput(RequestState* request) {
  Park(request, ParkReason::kAwaitingInput);
  if (!request->input_open || !request->pending_input.token_ids.empty()) Unpark(request);
}

// The request ends, or only its turn.
void Scheduler::FinishTurn(RequestState* request, const Stop& stop, RequestEvent* event) {
  event->stop_token_id = stop.stop_token_id;
  // Another turn takes a token of input and one of output.
  const bool full = request->num_tokens() + 2 > admission_.max_request_tokens();
  if (!request->session_open || full) {
    Finish(request, stop.reason, event);
    return;
  }
  event->turn_finished = stop.reason;
  Park(request, ParkReason::kAwaitingInput);
  GrowPrompt(request, {.token_ids = std::exchange(request->output_token_ids, {})});
  request->input_open = true;
  request->turn_has_input = false;
}

}  // namespace pagemill::scheduler
