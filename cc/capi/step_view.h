// File: cc/capi/step_view.h
// A step's plan as the C struct, with the memory that the struct points into: a runner of the
// host's own reads it from execute to the end of collect.
//
//   StepView view(plan);
//   execute(context, view.c());
//
// Cost: O(plan). Thread safety: none.
#ifndef PAGEMILL_CC_CAPI_STEP_VIEW_H_
#define PAGEMILL_CC_CAPI_STEP_VIEW_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/capi/pagemill.h"
#include "cc/step/step_plan.h"

namespace pagemill::capi {

class StepView {
 public:
  explicit StepView(const step::StepPlan& plan);
  // It points into itself.
  StepView(const StepView&) = delete;
  StepView& operator=(const StepView&) = delete;

  const pagemill_step* c() const { return &step_; }

 private:
  struct Start {
    std::shared_ptr<const step::Request> request;
    std::vector<pagemill_token_value> logit_bias;
    pagemill_sampling_params sampling;
    pagemill_request c;
  };
  struct Entry {
    std::vector<int32_t> resumed_output_token_ids;
    std::vector<int32_t> token_ids;
    std::vector<int32_t> draft_token_ids;
    std::vector<std::vector<int32_t>> block_ids;  // per KV group
    std::vector<const int32_t*> block_lists;
    std::vector<size_t> block_counts;
    std::unique_ptr<Start> start;
    pagemill_scheduled c;
  };
  static std::unique_ptr<Start> MakeStart(std::shared_ptr<const step::Request> request);
  static void Fill(const step::ScheduledRequest& from, Entry* to);

  std::vector<int32_t> released_slots_;
  std::vector<int32_t> num_common_prefix_blocks_;
  std::vector<Entry> entries_;
  std::vector<const pagemill_scheduled*> pointers_;
  pagemill_step step_ = {};
};

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_STEP_VIEW_H_
