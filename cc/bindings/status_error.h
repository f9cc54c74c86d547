// File: cc/bindings/status_error.h
// The one way from a Status to a Python exception: `StatusError` with `code` ("INVALID_ARGUMENT")
// and `message`.
//
//   ThrowIfError(engine.Submit(std::move(request)));
//   Program program = ValueOrThrow(Program::Parse(text));
#ifndef PAGEMILL_CC_BINDINGS_STATUS_ERROR_H_
#define PAGEMILL_CC_BINDINGS_STATUS_ERROR_H_

#include <exception>
#include <string>
#include <utility>

#include "cc/base/status.h"

namespace pagemill::bindings {

// Leaves C++ as pagemill._native.StatusError.
class StatusException : public std::exception {
 public:
  explicit StatusException(Status status) : status_(std::move(status)), text_(status_.ToString()) {}
  const char* what() const noexcept override { return text_.c_str(); }
  const Status& status() const { return status_; }

 private:
  Status status_;
  std::string text_;
};

inline void ThrowIfError(Status status) {
  if (!status.ok()) throw StatusException(std::move(status));
}

template <typename T>
T ValueOrThrow(StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_STATUS_ERROR_H_
