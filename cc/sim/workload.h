// File: cc/sim/workload.h
// Arrivals, their times, and the lengths of the answers. Tokens are pseudo tokens: a function of
// their content and position, so that equal content has equal tokens and prefix caches work as with
// text.
//
// An implementation produces arrivals in time order; the simulator reports finished ones, because
// the next turn of a conversation waits for the answer.
#ifndef PAGEMILL_CC_SIM_WORKLOAD_H_
#define PAGEMILL_CC_SIM_WORKLOAD_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/sim/random.h"

namespace pagemill::sim {

// A range of tokens of a content, such as a system prompt, one turn, or a block of a recorded
// prompt.
struct Segment {
  uint64_t content = 0;
  int32_t num_tokens = 0;
  int32_t first = 0;  // position of the first token in the content
};

// In [0, vocab_size).
inline int32_t PseudoToken(uint64_t content, int32_t position, int32_t vocab_size) {
  const uint64_t bits = Mix(content + 0x9E3779B97F4A7C15u * (static_cast<uint64_t>(position) + 1));
  return static_cast<int32_t>((bits >> 32) * static_cast<uint64_t>(vocab_size) >> 32);
}

struct Arrival {
  int64_t time_ns = 0;
  uint64_t ticket = 0;            // the workload's own identifier
  std::vector<int32_t> prompt;    // not empty
  std::vector<Segment> output;    // the answer; at least one token
  int32_t num_output_tokens = 0;  // the sum of `output`
};

// Obligations of an implementer:
// 1. NextTime() is the time of the next arrival, no earlier than the previous one; empty: none
//    before a taken one finishes, or ever.
// 2. Take() returns that arrival; only called if NextTime() is not empty.
// 3. Finish() is called once for every taken arrival, in the order of `now_ns`; it may add
//    arrivals, no earlier than `now_ns`.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual std::optional<int64_t> NextTime() const = 0;
  virtual Arrival Take() = 0;
  virtual void Finish(uint64_t ticket, int64_t now_ns) = 0;
};

// Appends the tokens of `segment`.
void AppendTokens(const Segment& segment, int32_t vocab_size, std::vector<int32_t>* tokens);

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_WORKLOAD_H_
