// File: cc/sim/arrival_process.h
// Times of arrivals that do not depend on other work.
//
//   ArrivalProcess arrivals(options);             // options are valid
//   now += arrivals.NextGap(&random);
#ifndef PAGEMILL_CC_SIM_ARRIVAL_PROCESS_H_
#define PAGEMILL_CC_SIM_ARRIVAL_PROCESS_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/sim/random.h"

namespace pagemill::sim {

struct ArrivalOptions {
  // constant: equal gaps. poisson: exponential ones. bursty: several arrive at once (their number
  // is geometric with mean `mean_burst`), with exponential gaps between bursts; the same rate.
  std::string process = "poisson";
  int64_t mean_gap_ns = 1000000000;
  int32_t mean_burst = 10;

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

class ArrivalProcess {
 public:
  explicit ArrivalProcess(const ArrivalOptions& options);
  int64_t NextGap(Random* random) const { return next_gap_(options_, random); }  // nanoseconds

 private:
  int64_t (*next_gap_)(const ArrivalOptions&, Random*);
  ArrivalOptions options_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_ARRIVAL_PROCESS_H_
