// File: cc/engine/runner.h
// What runs a model for the engine: the native runner (cc/runner), a host program's own, or the
// fake one in testing/fake_runner.h.
//
//   PAGEMILL_RETURN_IF_ERROR(runner->Execute(plan));  // the forward pass begins
//   PAGEMILL_RETURN_IF_ERROR(runner->Sample());       // its tokens will be sampled
//   ...                                         // another step may begin here
//   PAGEMILL_ASSIGN_OR_RETURN(step::StepResult result, runner->Collect());
#ifndef PAGEMILL_CC_ENGINE_RUNNER_H_
#define PAGEMILL_CC_ENGINE_RUNNER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/runner_control.h"
#include "cc/step/kv_group_options.h"
#include "cc/step/page_store.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::engine {

// What a runner can hold. Constant over its life; the engine sizes scheduler and cache from it.
struct RunnerLimits {
  int32_t max_num_tokens = 2048;      // tokens of one step
  int32_t max_num_seqs = 128;         // requests of one step, and slots
  int32_t max_num_logits_rows = 256;  // rows of logits of one step
  int32_t max_model_len = 2048;       // tokens of one request, prompt and output
  int32_t vocab_size = 0;             // bounds token ids; 0 = not checked
  int32_t num_blocks = 0;             // KV pages, the null page included
  int32_t block_size = 16;            // tokens of the smallest KV block
  // Layers that share block tables, in the order of the lists of a plan. The tokens and pages of
  // their blocks are the runner's choice.
  std::vector<step::KvGroupOptions> kv_groups = {step::KvGroupOptions{}};
  int32_t max_adapters = 0;             // different adapters among the requests that hold slots
  int32_t max_encoder_tokens = 0;       // embeddings that encoders make in one step; 0 = no media
  int32_t encoder_cache_tokens = 0;     // embeddings kept; 0 = max_encoder_tokens
  std::vector<step::MediaFormat> media_formats = {};  // what an item must be, by its encoder
  bool chunked_prefill = true;          // false: a prompt runs in one step (bidirectional models)
  bool chunked_media_input = true;      // false: the tokens of a media item run in one step
  bool prefix_caching = true;           // false: KV of equal prefixes is not interchangeable
  // It replaces step::kPlaceholderTokenId, and runs such a token at the place that it has: several
  // decode steps of a request may be in flight, with drafts or without.
  bool placeholders = false;
  // Steps of different requests that it computes at the same time, each in another stage of the
  // model. The requests are divided among so many steps.
  int32_t pipeline_stages = 1;
  // Drafts of one request that it verifies in one step. It proposes them itself, with its results.
  int32_t max_draft_tokens = 0;
  // Drafts of one request that its matcher leaves no choice about: they need no speculation.
  int32_t max_forced_tokens = 0;
  // It samples under Request::new_token_matcher, and calls Request::logits_processor.
  bool request_functions = false;
  bool pooling = false;     // this model pools instead of generating
  bool token_rows = false;  // it generates, and gives pooling requests a row for each token
  // Experts that it returns for a token (Request::return_routed_experts): the choices of all
  // layers. 0 = it returns none.
  int32_t routed_experts_per_token = 0;
};

// Obligations of an implementer:
// 1. Execute() starts the forward pass of a plan and may return before it is done. The plan does
//    not change before Sample() has returned.
// 2. Sample() follows each successful Execute(), before the next one. It starts sampling from the
//    logits of that pass and may return before that is done. What sampling needs of the host, such
//    as token masks, is computed here at the latest, while the pass runs.
// 3. Collect() waits for the oldest step that was sampled and returns its result; exactly once per
//    successful Sample(), at most `max_in_flight_steps` later.
// 4. A non-OK status of any of them fails every request of that step and no other, and ends the
//    step: no further call is made for it. The runner stays usable. A failure of a single request
//    belongs in its RequestResult. Slots that such a step started or released may be in either
//    state: a later plan may release a slot that holds nothing and start a request in one that was
//    not released.
//
// Thread safety: the three are called by the engine thread only; limits(), pages() and control() by
// any.
class Runner {
 public:
  virtual ~Runner() = default;
  virtual Status Execute(const step::StepPlan& plan) = 0;
  virtual Status Sample() = 0;
  virtual StatusOr<step::StepResult> Collect() = 0;

  const RunnerLimits& limits() const { return limits_; }
  // The bytes of its KV pages, for tiers and saved sessions; null if they cannot leave the runner.
  step::PageStore* pages() const { return pages_; }
  // Sleep, wake and weight updates; null if its weights stay as they are.
  RunnerControl* control() const { return control_; }

 protected:
  // `pages` and `control` live as long as the runner.
  explicit Runner(RunnerLimits limits, step::PageStore* pages = nullptr,
                  RunnerControl* control = nullptr)
      : limits_(std::move(limits)), pages_(pages), control_(control) {}

 private:
  const RunnerLimits limits_;
  step::PageStore* const pages_;
  RunnerControl* const control_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_RUNNER_H_
