// Streaming input and sessions of several turns. While its input so far is computed, or its turn is
// over, a request is parked. Input enters the known tokens only where the request holds no blocks:
// the runner reads the prompt when a request starts, so a longer prompt is another start, which
// finds what was computed in the prefix cache.
#include <string>
#include <utility>

#include "cc/scheduler/scheduler.h"

namespace pagemill::scheduler {

Status Scheduler::Extend(step::RequestId id, std::vector<int32_t> token_ids, InputPart part) {
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
  if (token_ids.empty() && (part == InputPart::kMore || !request->turn_has_input)) {
    return InvalidArgument("token_ids is empty; a part of the input has at least one token");
  }
  auto longer = std::make_shared<step::Request>(*request->request);
  std::vector<int32_t>& prompt = longer->prompt_token_ids;
  prompt.insert(prompt.end(), request->pending_input.begin(), request->pending_input.end());
  prompt.insert(prompt.end(), token_ids.begin(), token_ids.end());
  PAGEMILL_RETURN_IF_ERROR(admission_.Check(*longer));

  request->input_open = part == InputPart::kMore;
  request->session_open = part != InputPart::kLast;
  request->turn_has_input = true;
  if (request->num_cached_tokens) counters_.prompt_tokens += token_ids.size();
  if (!request->blocks.empty()) {
    std::vector<int32_t>& pending = request->pending_input;
    pending.insert(pending.end(), token_ids.begin(), token_ids.end());
    return OkStatus();
  }
  SetPrompt(request, std::move(longer));
  if (FindParked(id, ParkReason::kAwaitingInput) != nullptr) Unpark(request);
  return OkStatus();
}

// The request holds no blocks, and `longer` begins with all its known tokens.
void Scheduler::SetPrompt(RequestState* request, std::shared_ptr<const step::Request> longer) {
  request->request = std::move(longer);
  request->prompt_size = static_cast<int32_t>(request->request->prompt_token_ids.size());
  request->blocks = kv_cache::RequestBlocks(*request->request);
  request->output_token_ids.clear();
  request->pending_input.clear();
}

// Outputs of a turn that is over and input that came while the request held blocks become part of
// the prompt.
void Scheduler::MergeIntoPrompt(RequestState* request, const std::vector<int32_t>& token_ids) {
  auto longer = std::make_shared<step::Request>(*request->request);
  std::vector<int32_t>& prompt = longer->prompt_token_ids;
  prompt.insert(prompt.end(), token_ids.begin(), token_ids.end());
  SetPrompt(request, std::move(longer));
}

// All known tokens are computed, and nothing was sampled behind them because more was to come.
void Scheduler::FinishInput(RequestState* request) {
  Park(request, ParkReason::kAwaitingInput);
  if (!request->input_open || !request->pending_input.empty()) Unpark(request);
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
  MergeIntoPrompt(request, std::vector<int32_t>(request->output_token_ids));
  request->input_open = true;
  request->turn_has_input = false;
}

}  // namespace pagemill::scheduler
