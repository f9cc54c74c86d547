// File: cc/sim/trace_workload.h
// Recorded requests: arrival times, lengths, and shared content.
//
//   std::vector<TraceRequest> trace = ...;        // in the order of time_ns
//   PAGEMILL_ASSIGN_OR_RETURN(auto workload, TraceWorkload::Create(std::move(trace), {}));
//
// A request's content is a sequence of segments: the first num_prompt_tokens tokens are the prompt,
// and the rest is the answer, so that a later prompt that continues it hits the cache. If the
// segments end before the answer does, the rest of it is unique content.
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
  // Requests of one session arrive one after the other, each after the answer to the previous one.
  // 0: this request is a session of its own.
  uint64_t session = 0;
  std::vector<Segment> content;
  int32_t num_prompt_tokens = 0;
  int32_t num_output_tokens = 0;
};

struct TraceOptions {
  int32_t vocab_size = 32000;
  // Concurrent sessions; times are then ignored, and a session begins when another one ends. 0:
  // sessions begin at the times of the trace.
  int32_t concurrency = 0;
  int64_t think_ns = 0;  // least time from an answer to the session's next request
};

class TraceWorkload final : public Workload {
 public:
  // kInvalidArgument names the invalid request.
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
  std::vector<size_t> next_in_session_;  // by request; its own number if it is the last one
  std::vector<size_t> first_of_session_;
  size_t num_begun_ = 0;  // sessions
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_TRACE_WORKLOAD_H_
