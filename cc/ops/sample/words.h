// File: cc/ops/sample/words.h
// Structs of 32-bit words, as ops that run beside a program take them: rows of int32.
//
//   const auto draw = FromWords<RowDraw>(draws, row);
#ifndef PAGEMILL_CC_OPS_SAMPLE_WORDS_H_
#define PAGEMILL_CC_OPS_SAMPLE_WORDS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "cc/tensor/tensor_view.h"

namespace pagemill::ops {

// A row of `words` i32 [N, sizeof(T) / 4].
template <typename T>
T FromWords(const TensorView& words, int64_t row) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(int32_t) == 0);
  T value;
  std::memcpy(&value, words.Row<const std::byte>(row), sizeof(T));
  return value;
}

// The rows of all values, one behind the other.
template <typename T>
std::vector<int32_t> ToWords(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(int32_t) == 0);
  std::vector<int32_t> words(values.size() * sizeof(T) / sizeof(int32_t));
  if (!words.empty()) std::memcpy(words.data(), values.data(), values.size() * sizeof(T));
  return words;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SAMPLE_WORDS_H_
