// File: cc/sim/trace_workload.h
// Recorded requests: when they came, how long they were, and what they have in common.
//
//   std::vector<TraceRequest> trace = ...;        // in the order of time_ns
//   PAGEMILL_ASSIGN_OR_RETURN(auto workload, TraceWorkload::Create(std::move(trace), {}));
//
// A request's content is a row of segments: the prompt is their first num_prompt_tokens tokens, and
// the answer what follows, so that a later prompt which goes on from there finds it in the cache.
// Where the segments end before the answer does, the rest of it is content of its own.
#ifndef PAGEMILL_CC_SIM_TRACE_WORKLOAD_H_
#define PAGEMILL_CC_SIM_TRACE_WORKLOAD_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/sim/workload.h"

namespace pagemill::sim {

struct TraceRequest {
  int64_t time_ns = 0;
  // Requests of one session come one after the other, never before the last one's answer. 0: this
  // request is a session of its own.
  uint64_t session = 0;
  std::vector<Segment> content;
  int32_t num_prompt_tokens = 0;
  int32_t num_output_tokens = 0;
};

struct TraceOptions {
  int32_t vocab_size = 32000;
  // Sessions that go on at the same time; then times are not looked at: a session begins when
  // another one ended. 0: sessions begin when the trace says.
  int32_t concurrency = 0;
  int64_t think_ns = 0;  // least time from an answer to the session's next request
};

class TraceWorkload final : public Workload {
 public:
  // kInvalidArgument names the request that makes no sense.
  static StatusOr<std::unique_ptr<TraceWorkload>> Create(std::vector<TraceRequest> trace,
                                                         const TraceOptions& options);

  std::optional<int64_t> NextTime() const override;
  Arrival Take() override;
  void Finish(uint64_t ticket, int64_t now_ns) override;

 private:
  using Ready = std::pair<int64_t, size_t>;  // time, request

  TraceWorkload(std::vector<TraceRequest> trace, const TraceOptions& options);
  void BeginSession(int64_t now_ns);

  const std::vector<TraceRequest> trace_;
  const TraceOptions options_;
  std::vector<size_t> next_in_session_;  // by request; its own number where it is the last one
  std::vector<size_t> first_of_session_;
  size_t num_begun_ = 0;  // sessions
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_TRACE_WORKLOAD_H_
