// File: cc/scheduler/testing/reference_request.h
// What must come out of one request, known from the request alone: no blocks, no batches, no
// preemption. Turn by turn, its tokens are those that the fake model gives it.
//
//   ReferenceRequest reference(request, {.vocab_size = 61, .max_request_tokens = 60});
//   ... reference.Take(event), with assertions of googletest; true if it is over ...
//
// Thread safety: none.
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_REFERENCE_REQUEST_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_REFERENCE_REQUEST_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/scheduler/input_chunk.h"
#include "cc/scheduler/request_event.h"
#include "cc/step/finish_reason.h"
#include "cc/step/request.h"

namespace pagemill::scheduler {

class ReferenceRequest {
 public:
  struct Limits {
    int32_t vocab_size = 0;
    int32_t max_request_tokens = 0;  // prompt and output
    bool token_rows = false;         // SchedulerOptions'
  };

  ReferenceRequest(step::Request request, const Limits& limits);

  const step::Request& request() const { return request_; }
  bool held() const { return held_; }
  bool started() const { return started_; }
  bool input_open() const { return input_open_; }
  void Release() { held_ = false; }
  void Start() { started_ = true; }

  // The deadline that ends it next; empty = none.
  std::optional<int64_t> NextDeadline() const;
  // What Scheduler::Extend() must answer.
  StatusCode ExtendCode(const std::vector<int32_t>& token_ids, InputPart part) const;
  // It did.
  void Extend(const std::vector<int32_t>& token_ids, InputPart part);
  // Checks the news of a step that did not fail. True where the request is over.
  bool Take(const RequestEvent& event);

 private:
  struct Turn {  // what it must give
    std::vector<int32_t> tokens;
    step::FinishReason reason = step::FinishReason::kLength;
    std::optional<int32_t> stop_token_id;
  };

  Turn Expect() const;
  void CheckLogprobs(const RequestEvent& event) const;
  void CheckPromptLogprobs(const RequestEvent& event);
  void CheckRoutedExperts(const RequestEvent& event) const;
  bool EndTurn(const RequestEvent& event);

  const step::Request request_;
  const Limits limits_;
  bool held_;
  bool started_ = false;
  bool input_open_;
  bool session_open_;
  bool turn_has_input_ = true;
  bool prompt_logprobs_seen_ = false;
  std::vector<int32_t> context_;  // all input, and the outputs of turns that are over
  std::optional<Turn> turn_;      // while it generates
  std::vector<int32_t> tokens_;   // of this turn, so far
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_REFERENCE_REQUEST_H_
