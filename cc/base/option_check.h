// File: cc/base/option_check.h
// Error statuses for invalid option values, with uniform wording.
//
//   PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_num_seqs", max_num_seqs, 1));
#ifndef PAGEMILL_CC_BASE_OPTION_CHECK_H_
#define PAGEMILL_CC_BASE_OPTION_CHECK_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace pagemill {

// kInvalidArgument, with field, value and bound, if the value is below the bound.
inline Status CheckAtLeast(const char* field, int64_t value, int64_t least) {
  if (value >= least) return OkStatus();
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         ", it must be at least " + std::to_string(least));
}

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_OPTION_CHECK_H_
