// File: cc/base/status.h
// Result types of the whole C++ tree: `Status` (code + sentence) and `StatusOr<T>`.
//
// A refusal or failure is a value. Exceptions exist only at the nanobind edge, and the C ABI turns
// codes into integers. The message is one sentence that a person can act on: it names the request,
// the limit or cause, and the flag or field that would change it.
//
//   StatusOr<BlockId> id = pool.Allocate();
//   if (!id.ok()) return id.status();
//   Use(*id);
//
// Thread safety: values; concurrent const access is safe.
#ifndef PAGEMILL_CC_BASE_STATUS_H_
#define PAGEMILL_CC_BASE_STATUS_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace pagemill {

// Closed vocabulary; the numeric values are part of the C ABI and never change.
enum class StatusCode : int32_t {
  kOk = 0,
  kInvalidArgument = 1,     // the caller must change the request            HTTP 400
  kNotFound = 2,            // the named thing does not exist                HTTP 404
  kResourceExhausted = 3,   // a bound was hit; retrying later may work      HTTP 429
  kDeadlineExceeded = 4,    // the request's own deadline passed             HTTP 504
  kUnavailable = 5,         // draining, paused or not ready                 HTTP 503
  kUnimplemented = 6,       // a valid request that this build cannot serve  HTTP 400
  kFailedPrecondition = 7,  // calls in the wrong order                      HTTP 409
  kCancelled = 8,           // aborted by the client                         HTTP 499
  kInternal = 9,            // our bug                                       HTTP 500
  kDataLoss = 10,           // corrupt file or checksum                      HTTP 500
};

// Name of the code as it is written in logs: "INVALID_ARGUMENT".
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // With kResourceExhausted and kUnavailable: seconds after which a retry makes sense; 0 = not
  // known.
  int32_t retry_after_s() const { return retry_after_s_; }
  Status WithRetryAfter(int32_t seconds) && {
    retry_after_s_ = seconds;
    return std::move(*this);
  }
  // "OK" or "INVALID_ARGUMENT: message".
  std::string ToString() const;

  friend bool operator==(const Status&, const Status&) = default;

 private:
  StatusCode code_ = StatusCode::kOk;
  int32_t retry_after_s_ = 0;
  std::string message_;
};

inline Status OkStatus() { return Status(); }
inline Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
inline Status NotFound(std::string m) { return {StatusCode::kNotFound, std::move(m)}; }
inline Status ResourceExhausted(std::string m) {
  return {StatusCode::kResourceExhausted, std::move(m)};
}
inline Status Unavailable(std::string m) { return {StatusCode::kUnavailable, std::move(m)}; }
inline Status Unimplemented(std::string m) { return {StatusCode::kUnimplemented, std::move(m)}; }
inline Status FailedPrecondition(std::string m) {
  return {StatusCode::kFailedPrecondition, std::move(m)};
}
inline Status Internal(std::string m) { return {StatusCode::kInternal, std::move(m)}; }
inline Status DataLoss(std::string m) { return {StatusCode::kDataLoss, std::move(m)}; }

// Prints the message and aborts. For our own bugs only: never reachable from a request.
[[noreturn]] void CheckFailed(const char* file, int line, const std::string& what);

// A value, or the Status that says why there is none. Dereferencing an error aborts.
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    if (status_.ok()) CheckFailed(__FILE__, __LINE__, "StatusOr built from an OK status");
  }
  StatusOr(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& operator*() & { return Value(); }
  const T& operator*() const& { return const_cast<StatusOr*>(this)->Value(); }
  T&& operator*() && { return std::move(Value()); }
  T* operator->() { return &Value(); }
  const T* operator->() const { return &const_cast<StatusOr*>(this)->Value(); }

 private:
  T& Value() {
    if (!value_) CheckFailed(__FILE__, __LINE__, status_.ToString());
    return *value_;
  }
  Status status_;
  std::optional<T> value_;
};

}  // namespace pagemill

// Aborts when `condition` is false: an invariant of ours is broken.
#define PAGEMILL_CHECK(condition)                                              \
  do {                                                                         \
    if (!(condition)) ::pagemill::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

// Returns the status of `expr` from the enclosing function when it is not OK.
#define PAGEMILL_RETURN_IF_ERROR(expr)       \
  do {                                       \
    ::pagemill::Status pm_status_ = (expr);  \
    if (!pm_status_.ok()) return pm_status_; \
  } while (false)

#define PAGEMILL_CONCAT_INNER_(a, b) a##b
#define PAGEMILL_CONCAT_(a, b) PAGEMILL_CONCAT_INNER_(a, b)

// PAGEMILL_ASSIGN_OR_RETURN(auto x, F()): declares x from the value of F() or returns its status.
#define PAGEMILL_ASSIGN_OR_RETURN(declaration, expr) \
  PAGEMILL_ASSIGN_OR_RETURN_IMPL_(PAGEMILL_CONCAT_(pm_status_or_, __LINE__), declaration, expr)
#define PAGEMILL_ASSIGN_OR_RETURN_IMPL_(tmp, declaration, expr) \
  auto tmp = (expr);                                            \
  if (!tmp.ok()) return tmp.status();                           \
  declaration = *std::move(tmp)

#endif  // PAGEMILL_CC_BASE_STATUS_H_
