// File: cc/sim/length_distribution.h
// Lengths of prompts and outputs.
//
//   LengthDistribution lengths(options);          // options are valid
//   int32_t prompt_tokens = lengths.Draw(&random);
#ifndef PAGEMILL_CC_SIM_LENGTH_DISTRIBUTION_H_
#define PAGEMILL_CC_SIM_LENGTH_DISTRIBUTION_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"
#include "cc/sim/random.h"

namespace pagemill::sim {

struct LengthOptions {
  // fixed: always the mean. uniform: from (1 - spread) to (1 + spread) of it. lognormal: the
  // logarithm is normal with deviation `spread`, and the mean is the mean.
  std::string distribution = "fixed";
  int32_t mean_tokens = 0;
  int32_t spread_permille = 500;
  int32_t max_tokens = 1 << 20;  // draws are clamped to [1, max_tokens]

  // kInvalidArgument names `field`, the member, its value and its range.
  Status Validate(const std::string& field) const;
};

class LengthDistribution {
 public:
  explicit LengthDistribution(const LengthOptions& options);
  int32_t Draw(Random* random) const;

 private:
  int64_t (*draw_)(const LengthOptions&, Random*);
  LengthOptions options_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_LENGTH_DISTRIBUTION_H_
