#include "cc/capi/calls.h"

namespace pagemill::capi {

thread_local int CallbackScope::depth_ = 0;

std::string& LastError() {
  thread_local std::string message;
  return message;
}

}  // namespace pagemill::capi
