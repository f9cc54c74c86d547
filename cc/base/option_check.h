// File: cc/base/option_check.h
// Refusals of option values, in one wording.
//
//   PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_num_seqs", max_num_seqs, 1));
#ifndef PAGEMILL_CC_BASE_OPTION_CHECK_H_
#define PAGEMILL_CC_BASE_OPTION_CHECK_H_

#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace pagemill {

// kInvalidArgument, naming field, value and bound, where the value is below it.
inline Status CheckAtLeast(const char* field, int64_t value, int64_t least) {
  if (value >= least) return OkStatus();
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         ", it must be at least " + std::to_string(least));
}

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_OPTION_CHECK_H_
