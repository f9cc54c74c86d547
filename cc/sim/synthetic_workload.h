// File: cc/sim/synthetic_workload.h
// Conversations of random lengths: one turn each, or several, with a prefix that some of them
// share. They arrive by an arrival process, or a fixed number of users each have one at a time
// (concurrency > 0).
//
//   SyntheticOptions options;
//   options.num_requests = 1000;
//   PAGEMILL_RETURN_IF_ERROR(options.Validate());
//   SyntheticWorkload workload(options);
//
// The prompt of a turn is the whole conversation so far: prefix, turns, answers. A conversation
// ends after its last turn, or if its next prompt and answer would exceed max_context_tokens.
// Memory: O(concurrent conversations).
#ifndef PAGEMILL_CC_SIM_SYNTHETIC_WORKLOAD_H_
#define PAGEMILL_CC_SIM_SYNTHETIC_WORKLOAD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"
#include "cc/sim/arrival_process.h"
#include "cc/sim/length_distribution.h"
#include "cc/sim/random.h"
#include "cc/sim/workload.h"

namespace pagemill::sim {

struct SyntheticOptions {
  uint64_t seed = 0;
  int64_t num_requests = 1000;  // turns of all conversations
  int32_t vocab_size = 32000;
  ArrivalOptions arrivals;  // of conversations; not used with `concurrency`
  int32_t concurrency = 0;  // users that start a conversation when their last one ended; 0 = off
  LengthOptions prompt{"lognormal", 512, 800, 1 << 20};  // of one turn, without earlier turns
  LengthOptions output{"lognormal", 128, 800, 1 << 20};  // of one answer
  int32_t num_prefixes = 1;   // a conversation begins with one of these prefixes
  int32_t prefix_tokens = 0;  // length of each prefix
  int32_t mean_turns = 1;     // of a conversation; geometric
  int64_t mean_think_ns = 0;  // from an answer's end to the next turn; exponential
  int32_t max_context_tokens = 32768;

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

class SyntheticWorkload final : public Workload {
 public:
  explicit SyntheticWorkload(const SyntheticOptions& options);

  std::optional<int64_t> NextTime() const override;
  Arrival Take() override;
  void Finish(uint64_t ticket, int64_t now_ns) override;

 private:
  struct Conversation {
    std::vector<Segment> history;
    int32_t num_tokens = 0;
    int32_t turns_left = 0;
  };
  struct Turn {
    int64_t time_ns;
    uint64_t conversation;  // its ticket
    // Earliest first; at equal times the older conversation.
    bool operator>(const Turn& other) const {
      return time_ns != other.time_ns ? time_ns > other.time_ns : conversation > other.conversation;
    }
  };

  void Begin(int64_t time_ns);
  bool left() const { return num_taken_ < options_.num_requests; }
  Segment NewContent(int32_t num_tokens);

  const SyntheticOptions options_;
  const ArrivalProcess arrivals_;
  const LengthDistribution prompt_lengths_, output_lengths_;
  Random arrival_random_, length_random_, think_random_;
  int64_t next_arrival_ns_ = 0;  // of a new conversation, without `concurrency`
  int64_t num_taken_ = 0;
  uint64_t num_conversations_ = 0;
  uint64_t num_contents_ = 0;
  std::unordered_map<uint64_t, Conversation> conversations_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> turns_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_SYNTHETIC_WORKLOAD_H_
