#include "toy_runner.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

namespace toy {

using pagemill::Internal;
using pagemill::OkStatus;
using pagemill::Status;
using pagemill::scheduler::RequestEvent;
using pagemill::scheduler::SchedulerOptions;
using pagemill::step::BlockId;
using pagemill::step::KvGroupOptions;
using pagemill::step::Request;
using pagemill::step::RequestId;
using pagemill::step::RequestIndex;
using pagemill::step::RequestResult;
using pagemill::step::ScheduledRequest;
using pagemill::step::StepPlan;
using pagemill::step::StepResult;

namespace {

int32_t NextState(int32_t state, int32_t token) { return (31 * state + token + 1) % kVocabSize; }

}  // namespace

SchedulerOptions SmallOptions() {
  SchedulerOptions options;
  options.max_num_tokens = 32;  // of one step: longer prompts run in chunks
  options.max_num_seqs = 6;     // at the same time
  options.max_model_len = 64;   // prompt and output
  options.vocab_size = kVocabSize;
  options.kv_cache.num_blocks = 120;
  options.kv_cache.block_size = 4;
  return options;
}

Request MakeRequest(uint64_t id) {
  Request request;
  request.id = RequestId(id);
  std::vector<int32_t> prompt(20 + id);
  std::iota(prompt.begin(), prompt.end(), 1);
  prompt.back() = static_cast<int32_t>(id);
  request.prompt_token_ids = std::move(prompt);
  request.sampling.max_tokens = 24;
  return request;
}

Runner::Runner(const SchedulerOptions& options, int32_t num_drafts)
    : groups_(options.kv_cache.groups),
      block_size_(options.kv_cache.block_size),
      num_drafts_(num_drafts),
      pages_(static_cast<size_t>(options.kv_cache.num_blocks * block_size_)),
      slots_(static_cast<size_t>(options.max_num_seqs)) {}

StepResult Runner::Run(const StepPlan& plan) {
  for (const RequestIndex index : plan.released) slots_[index.value()] = {};
  StepResult result;
  result.step_id = plan.step_id;
  for (const ScheduledRequest& entry : plan.scheduled) {
    RunRequest(entry, &result.results.emplace_back());
  }
  return result;
}

void Runner::RunRequest(const ScheduledRequest& entry, RequestResult* result) {
  result->index = entry.index;
  Slot& slot = slots_[entry.index.value()];
  if (entry.start != nullptr) {
    // The tokens before the first one to run were found in the prefix cache, or ran before.
    slot = {std::vector<Table>(groups_.size()), entry.start->prompt_token_ids.ToVector()};
    slot.context.insert(slot.context.end(), entry.resumed_output_token_ids.begin(),
                        entry.resumed_output_token_ids.end());
  }
  for (size_t g = 0; g < entry.new_block_ids.size(); ++g) {
    const std::vector<BlockId>& added = entry.new_block_ids[g];
    slot.tables[g].insert(slot.tables[g].end(), added.begin(), added.end());
  }
  // entry.token_ids are tokens of `context`, which also has the one that a placeholder stands for:
  // it was sampled in a step whose result is not in. Drafts come behind them.
  std::vector<int32_t> drafts = entry.draft_token_ids;
  slot.context.insert(slot.context.end(), drafts.begin(), drafts.end());
  const int32_t begin = entry.num_computed_tokens;
  const int32_t end = begin + entry.num_tokens();
  const int32_t first_sampled = end - static_cast<int32_t>(drafts.size()) - 1;
  int32_t state = ReadState(slot, begin);
  int32_t next = 0;
  for (int32_t position = begin; position < end; ++position) {
    // A draft other than the token that was sampled before it ends the step.
    if (position > first_sampled && next != slot.context[position]) break;
    state = NextState(state, slot.context[position]);
    Write(slot, position, position + 1 == end, state);
    if (!entry.sample || position < first_sampled) continue;
    next = NextToken(slot, position + 1, state);
    result->sampled_token_ids.push_back(next);
  }
  if (!entry.sample) return;
  slot.context.resize(first_sampled + result->sampled_token_ids.size());
  slot.context.push_back(next);
  result->draft_token_ids = Propose(slot.context);
}

int32_t& Runner::At(const Table& table, int32_t position) {
  return Page(table[position / block_size_])[position % block_size_];
}

std::span<int32_t> Runner::Page(BlockId id) {
  return std::span(pages_).subspan(id.value() * block_size_, block_size_);
}

// The state after the first `num_tokens` tokens.
int32_t Runner::ReadState(const Slot& slot, int32_t num_tokens) {
  for (size_t g = 0; g < groups_.size() && num_tokens > 0; ++g) {
    if (groups_[g].kind != "state_space") continue;
    return Page(slot.tables[g][(num_tokens - 1) / block_size_])[0];
  }
  return 0;
}

// What each group keeps of a token. States have pages where a block ends, if the block table has
// one there, and where the step ends.
void Runner::Write(const Slot& slot, int32_t position, bool last, int32_t state) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockId block = slot.tables[g][position / block_size_];
    if (groups_[g].kind != "state_space") {
      At(slot.tables[g], position) = slot.context[position];
    } else if (block != BlockId(0) && (last || (position + 1) % block_size_ == 0)) {
      Page(block)[0] = state;
    }
  }
}

// The token after the first `num_tokens`, from what the groups keep.
int32_t Runner::NextToken(const Slot& slot, int32_t num_tokens, int32_t state) {
  int32_t sum = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const KvGroupOptions& group = groups_[g];
    if (group.kind == "state_space") {
      sum += state;
      continue;
    }
    const bool full = group.kind == "full";
    for (int32_t i = full ? 0 : std::max(0, num_tokens - group.window_tokens); i < num_tokens;
         ++i) {
      sum += At(slot.tables[g], i) * (full ? i + 1 : 1);
    }
  }
  return sum % kVocabSize;
}

int32_t Runner::NextTokenAlone(const std::vector<int32_t>& context) const {
  const auto size = static_cast<int32_t>(context.size());
  int32_t sum = 0;
  for (const KvGroupOptions& group : groups_) {
    int32_t state = 0;
    for (int32_t i = 0; i < size; ++i) {
      state = NextState(state, context[i]);
      if (group.kind == "full") sum += context[i] * (i + 1);
      if (group.kind == "sliding_window" && i >= size - group.window_tokens) sum += context[i];
    }
    if (group.kind == "state_space") sum += state;
  }
  return sum % kVocabSize;
}

std::vector<int32_t> Runner::AnswerAlone(const Request& request) const {
  std::vector<int32_t> context = request.prompt_token_ids.ToVector(), answer;
  for (int32_t i = 0; i < request.sampling.max_tokens; ++i) {
    answer.push_back(NextTokenAlone(context));
    context.push_back(answer.back());
  }
  return answer;
}

std::vector<int32_t> Runner::Propose(std::vector<int32_t> context) const {
  std::vector<int32_t> drafts;
  for (int32_t i = 0; i < num_drafts_; ++i) {
    drafts.push_back(context.size() % 5 == 0 ? 0 : NextTokenAlone(context));
    context.push_back(drafts.back());
  }
  return drafts;
}

void Append(const std::vector<RequestEvent>& events, Answers* answers) {
  for (const RequestEvent& event : events) {
    std::vector<int32_t>& answer = (*answers)[event.id];
    answer.insert(answer.end(), event.new_token_ids.begin(), event.new_token_ids.end());
  }
}

Status CheckAnswers(const Runner& runner, uint64_t num_requests, const Answers& answers) {
  for (uint64_t id = 0; id < num_requests; ++id) {
    const auto found = answers.find(RequestId(id));
    if (found != answers.end() && found->second == runner.AnswerAlone(MakeRequest(id))) continue;
    return Internal("request " + std::to_string(id) + " got other tokens than it would get alone");
  }
  return OkStatus();
}

int Report(const char* program, const Status& status) {
  if (!status.ok()) std::fprintf(stderr, "%s: %s\n", program, status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace toy
