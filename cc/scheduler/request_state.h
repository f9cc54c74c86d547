// File: cc/scheduler/request_state.h
// A request and its progress. Owned by the Scheduler; policies order it.
//
//   0 <= num_computed_tokens <= num_scheduled_tokens
//     <= num_tokens() + num_tokens_in_flight()
//
// The difference of the first two is in flight: planned, result not seen yet. Known tokens are
// num_tokens(); what is planned behind them are drafts, or placeholders of tokens that steps in
// flight sample. While drafts are in flight, num_scheduled_tokens is an upper bound: it falls by
// those that are rejected.
#ifndef PAGEMILL_CC_SCHEDULER_REQUEST_STATE_H_
#define PAGEMILL_CC_SCHEDULER_REQUEST_STATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cc/kv_cache/request_blocks.h"
#include "cc/scheduler/admission/queue_ticket.h"
#include "cc/scheduler/input_chunk.h"
#include "cc/scheduler/park_reason.h"
#include "cc/scheduler/repetition_detector.h"
#include "cc/step/request.h"
#include "cc/step/step_result.h"
#include "cc/step/token_sequence.h"

namespace pagemill::scheduler {

enum class RequestStatus {
  kWaiting,  // in the policy's queue: new, or preempted
  kRunning,  // holds a slot and blocks
  kParked,   // waits for something other than its turn; in no queue
};

struct RequestState {
  explicit RequestState(step::Request taken)
      : request(std::make_shared<const step::Request>(std::move(taken))),
        id(request->id),
        max_tokens(request->sampling.max_tokens),
        prompt_size(static_cast<int32_t>(request->prompt_token_ids.size())),
        pooling(request->pooling.has_value()),
        generates(!pooling && max_tokens > 0),
        wants_logprobs(!pooling && request->sampling.logprobs != step::SamplingParams::kNoLogprobs),
        wants_routed_experts(request->return_routed_experts),
        media_end(request->media.empty()
                      ? 0
                      : request->media.back().first_token + request->media.back().num_tokens),
        prompt_logprobs_done(pooling || request->sampling.prompt_logprobs ==
                                            step::SamplingParams::kNoLogprobs),
        blocks(*request) {
    if (generates && request->sampling.detects_repetition()) {
      repetition = std::make_unique<RepetitionDetector>(request->sampling);
    }
  }

  // Replaced by one with a longer prompt when input is appended.
  std::shared_ptr<const step::Request> request;
  // Copies of fields of the request that every step reads.
  const step::RequestId id;
  const int32_t max_tokens;  // SamplingParams'
  int32_t prompt_size;
  const bool pooling;
  const bool generates;  // it wants tokens, once everything known is computed
  const bool wants_logprobs;
  const bool wants_routed_experts;
  int32_t media_end;  // behind the placeholders of its last media item; 0 = it has none
  // The logprobs of the prompt were not asked for, or are complete and handed out.
  bool prompt_logprobs_done;
  uint64_t arrival = 0;                     // number of the Add() call: total order of requests
  std::optional<int64_t> next_deadline_us;  // DeadlineQueue's; empty = not in it
  RequestStatus status = RequestStatus::kWaiting;
  ParkReason park_reason = ParkReason::kHeld;  // while parked

  std::vector<int32_t> output_token_ids;
  std::unique_ptr<RepetitionDetector> repetition;  // of them; null = none is wanted
  int32_t num_scheduled_tokens = 0;
  int32_t num_computed_tokens = 0;
  int32_t num_samples_in_flight = 0;  // steps in flight that sample a token of it
  int32_t num_drafts_in_flight = 0;   // that they verify
  // Proposed to follow the last known token; if samples are in flight, only their number counts.
  std::vector<int32_t> draft_token_ids;
  std::optional<int32_t> num_cached_tokens;  // prefix hit of the first start; empty before it

  int32_t num_evicted_tokens = 0;            // that it would have found before they were evicted
  int32_t num_draft_steps = 0;               // that verified drafts
  int32_t num_verified_drafts = 0;           // of all its steps, and those accepted
  int32_t num_accepted_drafts = 0;

  bool prefills_partly = false;  // running, with known tokens that have no place in a plan yet
  step::RequestIndex index;      // while running
  kv_cache::RequestBlocks blocks;

  std::vector<step::TokenLogprobs> prompt_logprobs;  // collected so far, until they are done
  std::vector<uint16_t> routed_experts;  // of the computed tokens, if they are wanted
  std::vector<float> pooled;             // likewise, if each token has a row

  // PrefixesInFlight's: the block that others may wait for (-1 = none) and those that do; the
  // running request that this one waits for, until so many blocks are computed.
  int32_t announced_block = -1;
  int32_t num_prefix_blocks = 0;
  RequestState* prefix_producer = nullptr;
  std::vector<RequestState*> prefix_waiters;

  bool kv_looked_up = false;  // since it last ran, the connector was asked; what it had has come

  std::vector<int32_t> held_media;    // EncoderCache's, while running
  std::optional<QueueTicket> ticket;  // of the scheduler's QueueAdmission; empty = the host counts
  int32_t tenant_index = -1;          // the fair policy's; -1 = not seen by it

  // Links of RequestQueue or ParkedRequests, while in one.
  RequestState* queue_prev = nullptr;
  RequestState* queue_next = nullptr;

  // For a request with streaming input.
  bool input_open = request->streaming_input;    // more of this turn comes, or the next turn
  bool session_open = request->streaming_input;  // another turn may come after this one
  bool turn_has_input = true;                    // some of this turn came
  InputChunk pending_input;                      // came while the request held blocks

  // A pooled output, the logprobs of a prompt and the experts of tokens need every token to be run.
  bool reads_prefix_cache() const {
    return !request->skip_reading_prefix_cache && !pooling && prompt_logprobs_done &&
           !wants_routed_experts;
  }
  bool samples() const { return generates && !input_open && pending_input.token_ids.empty(); }
  step::TokenSequence tokens() const { return {request->prompt_token_ids, output_token_ids}; }
  // Tokens that steps in flight give, at most: there are fewer if drafts are rejected.
  int32_t num_tokens_in_flight() const { return num_samples_in_flight + num_drafts_in_flight; }
  int32_t num_tokens() const { return prompt_size + static_cast<int32_t>(output_token_ids.size()); }

  // Appends to the prompt, while the request holds no blocks. Steps in flight may still read the
  // request as it was, so there is another one, which shares its tokens and media. O(the chunk) on
  // average.
  void GrowPrompt(InputChunk chunk);
  // Input that came while the request held blocks becomes part of the prompt.
  void TakePendingInput() {
    if (pending_input.token_ids.empty()) return;
    GrowPrompt(std::exchange(pending_input, InputChunk()));
  }
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_REQUEST_STATE_H_
