// Pagemill's scheduler with a custom runner: this program links //cc/scheduler and nothing above
// it. It needs no engine, thread or model; it runs the loop itself.
//
//   ./bazelw run //cc/examples/embed_scheduler
//
// A runner processes a StepPlan as follows: it frees the slots in `released`; then for each entry
// it starts a request if the entry says so, appends the new blocks to the slot's block table,
// writes the tokens' keys and values into those blocks, and samples a token if the entry says so.
// The "model" below computes the next token from a sum over the whole context, and its keys and
// values are the tokens themselves, so the program can check at the end that paging, batching,
// shared prefixes and preemption changed nothing.
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "pagemill/scheduler/scheduler.h"

namespace {

using pagemill::Status;
using pagemill::scheduler::RequestEvent;
using pagemill::scheduler::Scheduler;
using pagemill::scheduler::SchedulerOptions;
using pagemill::step::BlockId;
using pagemill::step::Request;
using pagemill::step::RequestId;
using pagemill::step::RequestIndex;
using pagemill::step::ScheduledRequest;
using pagemill::step::StepPlan;
using pagemill::step::StepResult;

constexpr int32_t kVocabSize = 101;

// The "model": the next token of a context.
int32_t NextToken(const std::vector<int32_t>& context) {
  int32_t sum = 0;
  for (size_t i = 0; i < context.size(); ++i) {
    sum = (sum + context[i] * static_cast<int32_t>(i + 1)) % kVocabSize;
  }
  return sum;
}

class ToyRunner {
 public:
  explicit ToyRunner(const SchedulerOptions& options)
      : block_size_(options.kv_cache.block_size),
        pages_(static_cast<size_t>(options.kv_cache.num_blocks * block_size_)),
        block_tables_(static_cast<size_t>(options.max_num_seqs)) {}

  StepResult Run(const StepPlan& plan) {
    for (RequestIndex slot : plan.released) block_tables_[slot.value()].clear();
    StepResult result;
    result.step_id = plan.step_id;
    for (const ScheduledRequest& entry : plan.scheduled) {
      std::vector<BlockId>& table = block_tables_[entry.index.value()];
      if (entry.start != nullptr) table.clear();
      if (!entry.new_block_ids.empty()) {  // one KV group: one list
        const std::vector<BlockId>& added = entry.new_block_ids[0];
        table.insert(table.end(), added.begin(), added.end());
      }
      int32_t position = entry.num_computed_tokens;
      for (int32_t token : entry.token_ids) At(table, position++) = token;

      result.results.emplace_back().index = entry.index;
      if (!entry.sample) continue;  // the prompt continues in a later step
      std::vector<int32_t> context;
      for (int32_t i = 0; i < position; ++i) context.push_back(At(table, i));
      result.results.back().sampled_token_ids.push_back(NextToken(context));
    }
    return result;
  }

 private:
  int32_t& At(const std::vector<BlockId>& table, int32_t position) {
    const BlockId block = table[position / block_size_];
    return pages_[block.value() * block_size_ + position % block_size_];
  }

  int32_t block_size_;
  std::vector<int32_t> pages_;  // the KV pool
  std::vector<std::vector<BlockId>> block_tables_;
};

Request MakeRequest(uint64_t id) {
  Request request;
  request.id = RequestId(id);
  std::vector<int32_t> prompt(20 + id);  // equal beginnings, so they share blocks
  std::iota(prompt.begin(), prompt.end(), 1);
  prompt.back() = static_cast<int32_t>(id);
  request.prompt_token_ids = std::move(prompt);
  request.sampling.max_tokens = 24;
  return request;
}

std::vector<int32_t> AnswerAlone(const Request& request) {
  std::vector<int32_t> context = request.prompt_token_ids.ToVector(), answer;
  for (int32_t i = 0; i < request.sampling.max_tokens; ++i) {
    answer.push_back(NextToken(context));
    context.push_back(answer.back());
  }
  return answer;
}

int Fail(const std::string& what) {
  std::fprintf(stderr, "embed_scheduler: %s\n", what.c_str());
  return 1;
}

}  // namespace

int main() {
  SchedulerOptions options;
  options.max_num_tokens = 32;  // of one step: longer prompts run in chunks
  options.max_num_seqs = 6;     // at the same time
  options.max_model_len = 64;   // prompt and output
  options.vocab_size = kVocabSize;
  options.kv_cache.num_blocks = 40;  // of 4 tokens: too few for 6 whole requests
  options.kv_cache.block_size = 4;
  auto created = Scheduler::Create(options);
  if (!created.ok()) return Fail(created.status().ToString());
  Scheduler& scheduler = **created;
  ToyRunner runner(options);

  std::map<RequestId, std::vector<int32_t>> expected, answers;
  for (uint64_t id = 0; id < 12; ++id) {
    const Request request = MakeRequest(id);
    const Status status = scheduler.Add(request);
    if (!status.ok()) return Fail(status.ToString());
    expected[request.id] = AnswerAlone(request);
  }
  // Errors are values with a message.
  Request too_long = MakeRequest(70);
  std::printf("refused: %s\n", scheduler.Add(std::move(too_long)).message().c_str());

  StepPlan plan;                     // reused from step to step
  std::vector<RequestEvent> events;  // events of one step
  int num_steps = 0;
  while (scheduler.HasWork()) {
    scheduler.Schedule(&plan);
    if (plan.empty()) return Fail("there is work, but no plan");
    const Status updated = scheduler.Update(runner.Run(plan), &events);
    if (!updated.ok()) return Fail(updated.ToString());
    ++num_steps;
    for (const RequestEvent& event : events) {
      std::vector<int32_t>& answer = answers[event.id];
      answer.insert(answer.end(), event.new_token_ids.begin(), event.new_token_ids.end());
    }
    events.clear();
  }

  const auto stats = scheduler.stats();
  std::printf("%zu requests in %d steps, %llu preemptions, %llu of %llu prompt tokens shared\n",
              answers.size(), num_steps, static_cast<unsigned long long>(stats.num_preemptions),
              static_cast<unsigned long long>(stats.prefix_cache_hit_tokens),
              static_cast<unsigned long long>(stats.prefix_cache_query_tokens));
  if (answers != expected) return Fail("a request got other tokens than it would get alone");
  if (stats.kv_blocks_used != 0) return Fail("blocks are still in use");
  if (stats.num_preemptions == 0) return Fail("nothing was preempted");
  return 0;
}
