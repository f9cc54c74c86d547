#include "cc/capi/testing/fake_host_runner.h"

#include <cstddef>
#include <span>
#include <utility>

#include "cc/base/status.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::capi {
namespace {

FakeHostRunner* Self(void* context) { return static_cast<FakeHostRunner*>(context); }

std::vector<int32_t> List(const int32_t* items, size_t count) { return {items, items + count}; }

std::shared_ptr<const step::Request> ToRequest(const pagemill_request& from) {
  auto to = std::make_shared<step::Request>();
  to->id = step::RequestId(from.request_id);
  to->prompt_token_ids = List(from.prompt_token_ids, from.num_prompt_tokens);
  to->cache_salt = from.cache_salt;
  to->streaming_input = from.streaming_input != 0;
  if (from.pooling != 0) to->pooling = step::PoolingParams{};
  to->sampling.max_tokens = from.sampling->max_tokens;
  to->sampling.logprobs = from.sampling->logprobs;
  to->sampling.prompt_logprobs = from.sampling->prompt_logprobs;
  return to;
}

struct CLogprobs {
  explicit CLogprobs(const std::vector<step::TokenLogprobs>& from) : tops(from.size()) {
    for (size_t i = 0; i < from.size(); ++i) {
      for (const auto& [token_id, logprob] : from[i].top) tops[i].push_back({token_id, logprob});
      entries.push_back({from[i].token_id, from[i].logprob, from[i].rank,
                         static_cast<int32_t>(tops[i].size()), tops[i].data()});
    }
  }
  std::vector<std::vector<pagemill_token_value>> tops;
  std::vector<pagemill_token_logprobs> entries;
};

}  // namespace

FakeHostRunner::FakeHostRunner() : model_({.vocab_size = kVocab}) {
  pagemill_runner_init(&runner_, sizeof(runner_));
  runner_.context = this;
  runner_.vocab_size = kVocab;
  runner_.execute = Execute;
  runner_.collect = Collect;
  runner_.kv_fingerprint = "fake";
  runner_.page_bytes = [](void* self, int32_t) {
    return Self(self)->model_.page_bytes(step::GroupId(0));
  };
  runner_.read_page = [](void* self, int32_t group, int32_t block, void* to) {
    const step::GroupId id(static_cast<uint16_t>(group));
    const step::FakeModel& model = Self(self)->model_;
    const std::span page(static_cast<std::byte*>(to), model.page_bytes(id));
    PAGEMILL_CHECK(model.Read(id, step::BlockId(block), page).ok());
  };
  runner_.write_page = [](void* self, int32_t group, int32_t block, const void* from) {
    const step::GroupId id(static_cast<uint16_t>(group));
    step::FakeModel& model = Self(self)->model_;
    const std::span page(static_cast<const std::byte*>(from), model.page_bytes(id));
    PAGEMILL_CHECK(model.Write(id, step::BlockId(block), page).ok());
  };
  runner_.sleep = [](void* self, int32_t) {
    Self(self)->asleep = true;
    return PAGEMILL_OK;
  };
  runner_.wake = [](void* self) {
    Self(self)->asleep = false;
    return PAGEMILL_OK;
  };
}

void FakeHostRunner::Configure(pagemill_engine_options* options) {
  options->max_model_len = 128;
  options->max_num_tokens = 32;
  options->max_num_seqs = 8;
  options->max_num_logits_rows = 32;
  options->num_blocks = 64;
  options->block_size = 4;
  options->check_integrity = 1;
}

step::StepPlan FakeHostRunner::ToPlan(const pagemill_step& from) {
  step::StepPlan plan;
  plan.step_id = from.step_id;
  for (const int32_t slot : List(from.released_slots, from.num_released_slots)) {
    plan.released.emplace_back(slot);
  }
  plan.num_common_prefix_blocks =
      List(from.num_common_prefix_blocks, from.num_common_prefix_groups);
  for (size_t i = 0; i < from.num_scheduled; ++i) {
    const pagemill_scheduled& c = *from.scheduled[i];
    step::ScheduledRequest& entry = plan.scheduled.emplace_back();
    entry.index = step::RequestIndex(c.slot);
    entry.num_computed_tokens = c.num_computed_tokens;
    if (c.start != nullptr) entry.start = ToRequest(*c.start);
    entry.resumed_output_token_ids =
        List(c.resumed_output_token_ids, c.num_resumed_output_token_ids);
    entry.token_ids = List(c.token_ids, c.num_token_ids);
    entry.draft_token_ids = List(c.draft_token_ids, c.num_draft_token_ids);
    for (size_t group = 0; group < c.num_kv_groups; ++group) {
      auto& ids = entry.new_block_ids.emplace_back();
      for (const int32_t id : List(c.new_block_ids[group], c.num_new_block_ids[group])) {
        ids.emplace_back(id);
      }
    }
    entry.sample = c.sample != 0;
    entry.prompt_logprobs = c.prompt_logprobs != 0;
    plan.total_num_tokens += entry.num_tokens();
  }
  return plan;
}

pagemill_status FakeHostRunner::Execute(void* self, const pagemill_step* step) {
  FakeHostRunner& host = *Self(self);
  for (size_t i = 0; i < step->num_scheduled; ++i) {
    const pagemill_request* start = step->scheduled[i]->start;
    if (start != nullptr) host.second_text_start = start->second_text_start;
  }
  host.results_.push_back(host.model_.Run(host.ToPlan(*step)));
  return PAGEMILL_OK;
}

pagemill_status FakeHostRunner::Add(const step::RequestResult& from, pagemill_step_result* to) {
  const CLogprobs logprobs(from.logprobs), prompt_logprobs(from.prompt_logprobs);
  pagemill_request_result c;
  pagemill_request_result_init(&c, sizeof(c));
  c.sampled_token_ids = from.sampled_token_ids.data();
  c.num_sampled_token_ids = from.sampled_token_ids.size();
  c.logprobs = logprobs.entries.data();
  c.num_logprobs = logprobs.entries.size();
  c.prompt_logprobs = prompt_logprobs.entries.data();
  c.num_prompt_logprobs = prompt_logprobs.entries.size();
  c.pooled = from.pooled.data();
  c.num_pooled = from.pooled.size();
  return pagemill_step_result_add(to, &c);
}

pagemill_status FakeHostRunner::Collect(void* self, const pagemill_step* /*step*/,
                                        pagemill_step_result* to) {
  FakeHostRunner& host = *Self(self);
  const StatusOr<step::StepResult> result = std::move(host.results_.front());
  host.results_.pop_front();
  if (!result.ok()) {
    pagemill_set_last_error(result.status().message().c_str());
    return static_cast<pagemill_status>(result.status().code());
  }
  if (host.on_collect) {
    const pagemill_status status = host.on_collect(to);
    if (status != PAGEMILL_OK) return status;
  }
  for (const step::RequestResult& one : result->results) {
    const pagemill_status status = Add(one, to);
    if (status != PAGEMILL_OK) return status;
  }
  return PAGEMILL_OK;
}

}  // namespace pagemill::capi
