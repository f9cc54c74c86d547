#include "cc/capi/calls.h"

namespace pagemill::capi {

namespace {

thread_local int num_callbacks = 0;  // that run on this thread, one within the other

}  // namespace

CallbackScope::CallbackScope() { ++num_callbacks; }
CallbackScope::~CallbackScope() { --num_callbacks; }
bool CallbackScope::active() { return num_callbacks > 0; }

std::string& LastError() {
  thread_local std::string message;
  return message;
}

}  // namespace pagemill::capi
