// File: examples/embed_scheduler/toy_runner.h
// The runner of these examples, in place of a model on a device. It does with a StepPlan what every
// runner does: frees the slots in `released`; then for each entry starts a request if the entry
// says so, appends the new blocks to the slot's block tables, writes what the layers of each KV
// group keep of the tokens into pages of those blocks, and samples if the entry says so.
//
// The "model" computes the next token from sums over what the groups keep:
//   full            token * (position + 1), over the whole context
//   sliding_window  the last `window_tokens` tokens
//   state_space     a state that each token changes
// A page keeps integers instead of keys and values, so that an example can check that paging,
// batching, preemption and whatever it shows changed no answer.
#ifndef PAGEMILL_EXAMPLES_EMBED_SCHEDULER_TOY_RUNNER_H_
#define PAGEMILL_EXAMPLES_EMBED_SCHEDULER_TOY_RUNNER_H_

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "pagemill/scheduler/scheduler.h"

namespace toy {

inline constexpr int32_t kVocabSize = 101;

// Room for six requests of up to 64 tokens at a time, in blocks of 4 tokens.
pagemill::scheduler::SchedulerOptions SmallOptions();
// A prompt of 20 + id tokens; equal beginnings, so that requests share blocks.
pagemill::step::Request MakeRequest(uint64_t id);

class Runner {
 public:
  // Proposes `num_drafts` tokens after each sampled one, and is wrong about some.
  explicit Runner(const pagemill::scheduler::SchedulerOptions& options, int32_t num_drafts = 0);

  pagemill::step::StepResult Run(const pagemill::step::StepPlan& plan);
  // What the page of a block keeps.
  std::span<int32_t> Page(pagemill::step::BlockId id);
  // The answer that the request gets if it runs alone, with no pages at all.
  std::vector<int32_t> AnswerAlone(const pagemill::step::Request& request) const;

 private:
  using Table = std::vector<pagemill::step::BlockId>;
  struct Slot {
    std::vector<Table> tables;  // per KV group
    std::vector<int32_t> context;
  };

  int32_t& At(const Table& table, int32_t position);
  int32_t ReadState(const Slot& slot, int32_t num_tokens);
  void Write(const Slot& slot, int32_t position, bool last, int32_t state);
  int32_t NextToken(const Slot& slot, int32_t num_tokens, int32_t state);
  int32_t NextTokenAlone(const std::vector<int32_t>& context) const;
  std::vector<int32_t> Propose(std::vector<int32_t> context) const;
  void RunRequest(const pagemill::step::ScheduledRequest& entry,
                  pagemill::step::RequestResult* result);

  const std::vector<pagemill::step::KvGroupOptions> groups_;
  const int32_t block_size_;
  const int32_t num_drafts_;
  std::vector<int32_t> pages_;
  std::vector<Slot> slots_;
};

// The answers of requests, as events bring them.
using Answers = std::map<pagemill::step::RequestId, std::vector<int32_t>>;
void Append(const std::vector<pagemill::scheduler::RequestEvent>& events, Answers* answers);
// OK if each of the requests [0, num_requests) got the answer that it would get alone.
pagemill::Status CheckAnswers(const Runner& runner, uint64_t num_requests, const Answers& answers);
// Prints an error, if there is one. Returns the exit status of the program.
int Report(const char* program, const pagemill::Status& status);

}  // namespace toy

#endif  // PAGEMILL_EXAMPLES_EMBED_SCHEDULER_TOY_RUNNER_H_
