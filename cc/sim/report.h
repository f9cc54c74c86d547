// File: cc/sim/report.h
// The results of a simulation. All values are integers, so that equal simulations give equal
// reports on every machine; tests compare ToText().
#ifndef PAGEMILL_CC_SIM_REPORT_H_
#define PAGEMILL_CC_SIM_REPORT_H_

#include <cstdint>
#include <string>

#include "cc/sim/histogram.h"
#include "cc/sim/time_series.h"

namespace pagemill::sim {

struct Report {
  int64_t num_engines = 0;
  int64_t kv_blocks_each = 0;  // usable blocks of one engine
  int64_t duration_ns = 0;     // from 0 to the last event

  uint64_t num_finished = 0;
  uint64_t num_refused = 0;  // by the scheduler, when they arrived
  uint64_t num_failed = 0;
  uint64_t prompt_tokens = 0;  // of requests with a first token
  uint64_t cached_tokens = 0;  // of prompt_tokens, found in the prefix cache
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;

  uint64_t num_steps = 0;
  uint64_t step_tokens = 0;    // run in all steps, recomputed ones included
  uint64_t step_requests = 0;  // entries of all steps
  int64_t busy_ns = 0;         // sums over all engines
  int64_t compute_ns = 0;      // time of the steps' arithmetic alone
  int64_t memory_ns = 0;       // time of the steps' memory traffic alone
  int64_t least_busy_ns = 0;   // minimum and maximum over engines
  int64_t most_busy_ns = 0;

  // Nanoseconds. From arrival to the first step; to the first token; between later tokens; from
  // arrival to the last token.
  Histogram queueing, ttft, itl, e2e;
  TimeSeries series;

  // One `name value` line each, with percentiles of the histograms and every point of the series.
  std::string ToText() const;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_REPORT_H_
