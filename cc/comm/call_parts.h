// File: cc/comm/call_parts.h
// What implementations of Group have in common: how ranks notice that their calls differ, and where
// the parts of a call lie.
//
//   const uint64_t word = CallFingerprint(call.kind).Add(call.count).Add(call.counts).value();
//
// Thread safety: values and pure functions.
#ifndef PAGEMILL_CC_COMM_CALL_PARTS_H_
#define PAGEMILL_CC_COMM_CALL_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/comm/group.h"

namespace pagemill::comm {

// A number that differs, with near certainty, for mismatched calls.
class CallFingerprint {
 public:
  explicit CallFingerprint(Collective::Kind kind) { Add(static_cast<int64_t>(kind)); }
  CallFingerprint& Add(int64_t value) {
    value_ = (value_ ^ static_cast<uint64_t>(value)) * 0xff51afd7ed558ccd;  // a step of MurmurHash3
    value_ ^= value_ >> 33;
    return *this;
  }
  CallFingerprint& Add(std::span<const int64_t> values) {
    for (int64_t value : values) Add(value);
    return *this;
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 1;  // not 0, so that zeros count too
};

int64_t SumOf(std::span<const int64_t> counts);

// Copies bytes [begin, end) of a dense [rows, width] to rows of `out` that are `stride` apart.
void ScatterRows(const std::byte* data, int64_t begin, int64_t end, int64_t width, std::byte* out,
                 int64_t stride);

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_CALL_PARTS_H_
