#include "cc/capi/callback_runner.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/capi/calls.h"
#include "cc/capi/convert.h"
#include "cc/capi/step_view.h"
#include "cc/capi/versioned.h"

namespace pagemill::capi {
namespace {

constexpr size_t kMaxKvGroups = 64;

class HostPages final : public step::PageStore {
 public:
  HostPages(const pagemill_runner& runner, size_t num_groups) : runner_(runner) {
    for (size_t group = 0; group < num_groups; ++group) {
      page_bytes_.push_back(runner.page_bytes(runner.context, static_cast<int32_t>(group)));
    }
  }
  size_t page_bytes(step::GroupId group) const override { return page_bytes_[group.value()]; }
  Status Read(step::GroupId group, step::BlockId block, std::span<std::byte> to) const override {
    const CallbackScope scope;
    runner_.read_page(runner_.context, group.value(), block.value(), to.data());
    return OkStatus();
  }
  Status Write(step::GroupId group, step::BlockId block, std::span<const std::byte> from) override {
    const CallbackScope scope;
    runner_.write_page(runner_.context, group.value(), block.value(), from.data());
    return OkStatus();
  }

 private:
  const pagemill_runner runner_;
  std::vector<size_t> page_bytes_;
};

class HostControl final : public engine::RunnerControl {
 public:
  explicit HostControl(const pagemill_runner& runner) : runner_(runner) {}
  Status Sleep(engine::KvMemory kv) override {
    return CallHost("the runner's function sleep", [&] {
      return runner_.sleep(runner_.context, kv == engine::KvMemory::kFree ? 1 : 0);
    });
  }
  Status Wake() override {
    return CallHost("the runner's function wake", [&] { return runner_.wake(runner_.context); });
  }
  Status UpdateWeights(const engine::WeightSources& /*sources*/, engine::NewWeights /*where*/,
                       const std::function<Status()>& /*commit*/) override {
    return Unimplemented("a runner of the host's own updates its weights itself");
  }

 private:
  const pagemill_runner runner_;
};

class CallbackRunner final : public engine::Runner {
 public:
  CallbackRunner(const pagemill_runner& runner, engine::RunnerLimits limits,
                 std::unique_ptr<HostPages> pages, std::unique_ptr<HostControl> control)
      : Runner(std::move(limits), pages.get(), control.get()),
        runner_(runner),
        pages_(std::move(pages)),
        control_(std::move(control)) {
    const engine::RunnerLimits& own = this->limits();
    result_.max_entries = static_cast<size_t>(std::max(own.max_model_len, own.vocab_size));
  }

  Status Execute(const step::StepPlan& plan) override {
    auto view = std::make_unique<StepView>(plan);
    if (runner_.execute != nullptr) {
      PAGEMILL_RETURN_IF_ERROR(CallHost("the runner's function execute", [&] {
        return runner_.execute(runner_.context, view->c());
      }));
    }
    steps_.push_back(std::move(view));
    return OkStatus();
  }

  Status Sample() override { return OkStatus(); }

  StatusOr<step::StepResult> Collect() override {
    const std::unique_ptr<StepView> view = std::move(steps_.front());
    steps_.pop_front();
    result_.result = {.step_id = view->c()->step_id, .results = {}};
    result_.step = view->c();
    const Status status = CallHost("the runner's function collect", [&] {
      return runner_.collect(runner_.context, view->c(), &result_);
    });
    result_.step = nullptr;
    PAGEMILL_RETURN_IF_ERROR(status);
    const size_t count = result_.result.results.size(), want = view->c()->num_scheduled;
    if (count == want) return std::move(result_.result);
    return Internal("the runner's function collect added " + std::to_string(count) +
                    " results for " + std::to_string(want) + " requests");
  }

 private:
  const pagemill_runner runner_;
  const std::unique_ptr<HostPages> pages_;      // null: none
  const std::unique_ptr<HostControl> control_;  // null: none
  std::deque<std::unique_ptr<StepView>> steps_;
  pagemill_step_result result_;
};

Status CheckFunctions(const pagemill_runner& r) {
  if (r.collect == nullptr) return InvalidArgument("runner->collect is NULL");
  const int pages =
      (r.page_bytes != nullptr) + (r.read_page != nullptr) + (r.write_page != nullptr);
  if (pages != 0 && pages != 3) {
    return InvalidArgument("runner->page_bytes, read_page and write_page: set all three or none");
  }
  if ((r.sleep == nullptr) != (r.wake == nullptr)) {
    return InvalidArgument("runner->sleep and wake: set both or none");
  }
  return OkStatus();
}

StatusOr<std::vector<step::KvGroupOptions>> ReadGroups(const pagemill_runner& r) {
  PAGEMILL_RETURN_IF_ERROR(
      CheckArray("runner->kv_groups", r.kv_groups, r.num_kv_groups, kMaxKvGroups));
  std::vector<step::KvGroupOptions> groups;
  for (size_t i = 0; i < r.num_kv_groups; ++i) {
    pagemill_kv_group g = kDefaultKvGroup;
    PAGEMILL_RETURN_IF_ERROR(CopyIn("runner->kv_groups[i]", r.kv_groups[i], kFirstKvGroupSize, &g));
    step::KvGroupOptions& group = groups.emplace_back();
    PAGEMILL_ASSIGN_OR_RETURN(group.kind, CopyString("kv_groups.kind", g.kind, kMaxStringBytes));
    group.block_size = g.block_size;
    group.pages_per_block = g.pages_per_block;
    group.window_tokens = g.window_tokens;
    if (g.checkpoints < PAGEMILL_CHECKPOINTS_NONE ||
        g.checkpoints > PAGEMILL_CHECKPOINTS_LAST_BOUNDARY) {
      return InvalidArgument("kv_groups.checkpoints is " + std::to_string(g.checkpoints) +
                             "; it must be a pagemill_state_checkpoints, 0 to 2");
    }
    group.checkpoints = static_cast<step::StateCheckpoints>(g.checkpoints);
    if (g.recent_states < 0 || g.recent_states > std::numeric_limits<int32_t>::max()) {
      return InvalidArgument("kv_groups.recent_states is " + std::to_string(g.recent_states) +
                             "; it must be from 0 to 2^31 - 1");
    }
    group.recent_states = static_cast<int32_t>(g.recent_states);
  }
  if (groups.empty()) groups.emplace_back();
  return groups;
}

StatusOr<engine::RunnerLimits> ReadLimits(const pagemill_runner& r, const HostOptions& options) {
  const program::ExecutorOptions& o = options.executor;
  engine::RunnerLimits limits = {.max_num_tokens = o.max_num_tokens,
                                 .max_num_seqs = o.max_num_seqs,
                                 .max_num_logits_rows = o.max_num_logits_rows,
                                 .max_model_len = options.max_model_len,
                                 .vocab_size = r.vocab_size,
                                 .num_blocks = o.num_blocks,
                                 .block_size = o.block_size};
  if (r.vocab_size < 1) {
    return InvalidArgument("runner->vocab_size is " + std::to_string(r.vocab_size) +
                           "; it must be at least 1");
  }
  if (options.max_model_len < 1) return InvalidArgument("max_model_len must be at least 1");
  if (options.num_ngram_drafts != 0) {
    return InvalidArgument("num_ngram_drafts is for programs; a runner proposes its own drafts");
  }
  limits.max_draft_tokens = r.max_draft_tokens;
  PAGEMILL_ASSIGN_OR_RETURN(limits.kv_groups, ReadGroups(r));
  PAGEMILL_ASSIGN_OR_RETURN(limits.placeholders, CheckFlag("runner->placeholders", r.placeholders));
  PAGEMILL_ASSIGN_OR_RETURN(limits.pooling, CheckFlag("runner->pooling", r.pooling));
  PAGEMILL_ASSIGN_OR_RETURN(limits.chunked_prefill,
                            CheckFlag("runner->chunked_prefill", r.chunked_prefill));
  PAGEMILL_ASSIGN_OR_RETURN(limits.prefix_caching,
                            CheckFlag("runner->prefix_caching", r.prefix_caching));
  if (limits.num_blocks == 0) {
    PAGEMILL_ASSIGN_OR_RETURN(limits.num_blocks, PagesForOneRequest(limits));
  }
  return limits;
}

StatusOr<std::vector<step::TokenLogprobs>> CopyLogprobs(const char* field,
                                                        const pagemill_token_logprobs* items,
                                                        size_t count, size_t max_count) {
  PAGEMILL_RETURN_IF_ERROR(CheckArray(field, items, count, max_count));
  std::vector<step::TokenLogprobs> copy;
  for (size_t i = 0; i < count; ++i) {
    const pagemill_token_logprobs& item = items[i];
    step::TokenLogprobs& entry = copy.emplace_back();
    entry.token_id = item.token_id;
    entry.logprob = item.logprob;
    entry.rank = item.rank;
    PAGEMILL_ASSIGN_OR_RETURN(
        entry.top, CopyArray(field, item.top, static_cast<size_t>(item.num_top), max_count));
  }
  return copy;
}

}  // namespace

StatusOr<std::unique_ptr<engine::Runner>> MakeCallbackRunner(const pagemill_runner* runner,
                                                             HostOptions* options) {
  pagemill_runner r = kDefaultRunner;
  PAGEMILL_RETURN_IF_ERROR(CopyIn("runner", runner, kFirstRunnerSize, &r));
  PAGEMILL_RETURN_IF_ERROR(CheckFunctions(r));
  PAGEMILL_ASSIGN_OR_RETURN(engine::RunnerLimits limits, ReadLimits(r, *options));
  PAGEMILL_ASSIGN_OR_RETURN(const std::string fingerprint,
                            CopyOptionalString("runner->kv_fingerprint", r.kv_fingerprint));
  r.kv_fingerprint = nullptr;  // the host's memory
  r.kv_groups = nullptr;
  if (!fingerprint.empty()) {
    options->engine.kv_tiers.fingerprint = [fingerprint] { return fingerprint; };
  }
  std::unique_ptr<HostPages> pages;
  if (r.page_bytes != nullptr) {
    const CallbackScope scope;
    pages = std::make_unique<HostPages>(r, limits.kv_groups.size());
  }
  std::unique_ptr<HostControl> control;
  if (r.sleep != nullptr) control = std::make_unique<HostControl>(r);
  return std::unique_ptr<engine::Runner>(
      std::make_unique<CallbackRunner>(r, std::move(limits), std::move(pages), std::move(control)));
}

Status AddResult(pagemill_step_result* to, const pagemill_request_result* result) {
  if (to == nullptr) return InvalidArgument("step_result is NULL");
  if (to->step == nullptr) return FailedPrecondition("called outside of the runner's collect");
  std::vector<step::RequestResult>& results = to->result.results;
  if (results.size() == to->step->num_scheduled) {
    return FailedPrecondition("all " + std::to_string(results.size()) +
                              " requests of the step have a result");
  }
  pagemill_request_result r = kDefaultRequestResult;
  PAGEMILL_RETURN_IF_ERROR(CopyIn("result", result, kFirstRequestResultSize, &r));
  step::RequestResult copy;
  copy.index = step::RequestIndex(to->step->scheduled[results.size()]->slot);
  const size_t max = to->max_entries;
  PAGEMILL_ASSIGN_OR_RETURN(
      copy.sampled_token_ids,
      CopyArray("sampled_token_ids", r.sampled_token_ids, r.num_sampled_token_ids, max));
  PAGEMILL_ASSIGN_OR_RETURN(copy.draft_token_ids, CopyArray("draft_token_ids", r.draft_token_ids,
                                                            r.num_draft_token_ids, max));
  PAGEMILL_ASSIGN_OR_RETURN(copy.logprobs,
                            CopyLogprobs("logprobs", r.logprobs, r.num_logprobs, max));
  PAGEMILL_ASSIGN_OR_RETURN(copy.prompt_logprobs, CopyLogprobs("prompt_logprobs", r.prompt_logprobs,
                                                               r.num_prompt_logprobs, max));
  constexpr size_t kMaxPooled = 1 << 20;
  PAGEMILL_ASSIGN_OR_RETURN(copy.pooled, CopyArray("pooled", r.pooled, r.num_pooled, kMaxPooled));
  copy.num_missing_drafts = r.num_missing_drafts;
  if (r.error != PAGEMILL_OK) {
    if (r.error < PAGEMILL_OK || r.error > PAGEMILL_DATA_LOSS) {
      return InvalidArgument("error is " + std::to_string(r.error) +
                             "; it must be a pagemill_status");
    }
    PAGEMILL_ASSIGN_OR_RETURN(std::string message,
                              CopyOptionalString("error_message", r.error_message));
    copy.failure = {static_cast<StatusCode>(r.error),
                    message.empty() ? "the runner failed the request" : std::move(message)};
  }
  results.push_back(std::move(copy));
  return OkStatus();
}

}  // namespace pagemill::capi
