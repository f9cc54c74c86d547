// File: cc/sim/report.h
// What a simulation found. Everything in it is an integer, so that equal simulations give equal
// reports on every machine; ToText() is the form that tests compare.
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
  uint64_t prompt_tokens = 0;  // of requests whose first token came
  uint64_t cached_tokens = 0;  // of them, found in the prefix cache
  uint64_t generated_tokens = 0;
  uint64_t preemptions = 0;

  uint64_t num_steps = 0;
  uint64_t step_tokens = 0;    // run in all steps, recomputed ones included
  uint64_t step_requests = 0;  // entries of all steps
  int64_t busy_ns = 0;         // sums over all engines
  int64_t compute_ns = 0;      // what the steps' arithmetic alone would have taken
  int64_t memory_ns = 0;       // what the steps' traffic alone would have taken
  int64_t least_busy_ns = 0;   // of the engine that worked least, and most
  int64_t most_busy_ns = 0;

  // Nanoseconds. From arrival to the first step; to the first token; between tokens after it; from
  // arrival to the last token.
  Histogram queueing, ttft, itl, e2e;
  TimeSeries series;

  // One `name value` line each, with percentiles of the histograms and every point of the series.
  std::string ToText() const;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_REPORT_H_
