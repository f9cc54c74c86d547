// File: cc/base/strong_id.h
// Integers that cannot be mixed up: StrongId<Tag, T> compares and hashes, and converts only on
// request (`.value()`). Costs nothing at run time.
//
//   using BlockId = StrongId<struct BlockTag, int32_t>;
//   BlockId null_block(0);
#ifndef PAGEMILL_CC_BASE_STRONG_ID_H_
#define PAGEMILL_CC_BASE_STRONG_ID_H_

#include <compare>
#include <cstddef>
#include <functional>

namespace pagemill {

template <typename Tag, typename T>
class StrongId {
 public:
  using ValueType = T;
  constexpr StrongId() = default;
  constexpr explicit StrongId(T value) : value_(value) {}
  constexpr T value() const { return value_; }
  friend constexpr auto operator<=>(StrongId, StrongId) = default;

 private:
  T value_{};
};

}  // namespace pagemill

template <typename Tag, typename T>
struct std::hash<pagemill::StrongId<Tag, T>> {
  size_t operator()(pagemill::StrongId<Tag, T> id) const { return std::hash<T>()(id.value()); }
};

#endif  // PAGEMILL_CC_BASE_STRONG_ID_H_
