#include "cc/capi/step_view.h"

#include <utility>

#include "cc/capi/convert.h"

namespace pagemill::capi {

std::unique_ptr<StepView::Start> StepView::MakeStart(std::shared_ptr<const step::Request> request) {
  auto start = std::make_unique<Start>();
  start->request = std::move(request);
  const step::Request& r = *start->request;
  start->sampling = FromSamplingParams(r.sampling, &start->logit_bias);
  pagemill_request& c = start->c;
  c = {};
  c.struct_size = sizeof(c);
  c.request_id = r.id.value();
  c.prompt_token_ids = r.prompt_token_ids.data();
  c.num_prompt_tokens = r.prompt_token_ids.size();
  c.sampling = &start->sampling;
  c.tenant = r.tenant.c_str();
  c.cache_salt = r.cache_salt.c_str();
  c.priority = r.priority;
  c.skip_reading_prefix_cache = r.skip_reading_prefix_cache ? 1 : 0;
  c.streaming_input = r.streaming_input ? 1 : 0;
  c.pooling = r.pooling ? 1 : 0;
  c.second_text_start = r.second_text_start;
  return start;
}

void StepView::Fill(const step::ScheduledRequest& from, Entry* to) {
  to->resumed_output_token_ids = from.resumed_output_token_ids;
  to->token_ids = from.token_ids;
  to->draft_token_ids = from.draft_token_ids;
  if (from.start != nullptr) to->start = MakeStart(from.start);
  for (const std::vector<step::BlockId>& group : from.new_block_ids) {
    std::vector<int32_t>& ids = to->block_ids.emplace_back();
    for (const step::BlockId block : group) ids.push_back(block.value());
  }
  for (const std::vector<int32_t>& ids : to->block_ids) {
    to->block_lists.push_back(ids.data());
    to->block_counts.push_back(ids.size());
  }
  to->c = {
      .struct_size = sizeof(pagemill_scheduled),
      .slot = from.index.value(),
      .num_computed_tokens = from.num_computed_tokens,
      .start = to->start == nullptr ? nullptr : &to->start->c,
      .resumed_output_token_ids = to->resumed_output_token_ids.data(),
      .num_resumed_output_token_ids = to->resumed_output_token_ids.size(),
      .token_ids = to->token_ids.data(),
      .num_token_ids = to->token_ids.size(),
      .draft_token_ids = to->draft_token_ids.data(),
      .num_draft_token_ids = to->draft_token_ids.size(),
      .new_block_ids = to->block_lists.data(),
      .num_new_block_ids = to->block_counts.data(),
      .num_kv_groups = to->block_lists.size(),
      .sample = from.sample ? 1 : 0,
      .prompt_logprobs = from.prompt_logprobs ? 1 : 0,
  };
}

StepView::StepView(const step::StepPlan& plan)
    : num_common_prefix_blocks_(plan.num_common_prefix_blocks), entries_(plan.scheduled.size()) {
  for (const step::RequestIndex slot : plan.released) released_slots_.push_back(slot.value());
  for (size_t i = 0; i < entries_.size(); ++i) {
    Fill(plan.scheduled[i], &entries_[i]);
    pointers_.push_back(&entries_[i].c);
  }
  step_ = {.struct_size = sizeof(pagemill_step),
           .step_id = plan.step_id,
           .released_slots = released_slots_.data(),
           .num_released_slots = released_slots_.size(),
           .scheduled = pointers_.data(),
           .num_scheduled = pointers_.size(),
           .num_common_prefix_blocks = num_common_prefix_blocks_.data(),
           .num_common_prefix_groups = num_common_prefix_blocks_.size()};
}

}  // namespace pagemill::capi
