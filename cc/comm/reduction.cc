#include "cc/comm/reduction.h"

#include <algorithm>

#include "cc/base/status.h"
#include "cc/tensor/float16.h"

namespace pagemill::comm {
namespace {

// Element types: elements are added as values of type Sum.
struct F32 {
  using Element = float;
  using Sum = float;
  static Sum Load(Element x) { return x; }
  static Element Store(Sum x) { return x; }
};

struct Bf16 {
  using Element = uint16_t;
  using Sum = float;
  static Sum Load(Element x) { return Bf16ToFloat(x); }
  static Element Store(Sum x) { return FloatToBf16(x); }
};

struct F16 {
  using Element = uint16_t;
  using Sum = float;
  static Sum Load(Element x) { return F16ToFloat(x); }
  static Element Store(Sum x) { return FloatToF16(x); }
};

struct I32 {
  using Element = uint32_t;  // two's complement: the same bits as wrapping sums
  using Sum = uint32_t;
  static Sum Load(Element x) { return x; }
  static Element Store(Sum x) { return x; }
};

template <typename T>
void SumBlock(std::span<const std::byte* const> parts, int64_t begin, size_t size,
              typename T::Sum* sum) {
  const auto part = [&](size_t p) {
    return reinterpret_cast<const typename T::Element*>(parts[p]) + begin;
  };
  const auto* first = part(0);
  for (size_t i = 0; i < size; ++i) sum[i] = T::Load(first[i]);
  for (size_t p = 1; p < parts.size(); ++p) {
    const auto* next = part(p);
    for (size_t i = 0; i < size; ++i) sum[i] += T::Load(next[i]);
  }
}

template <typename T>
void Sum(std::span<const std::byte* const> parts, std::byte* out, int64_t count) {
  constexpr int64_t kBlock = 64;
  typename T::Sum sum[kBlock];
  auto* to = reinterpret_cast<typename T::Element*>(out);
  int64_t begin = 0;
  for (; begin + kBlock <= count; begin += kBlock) {
    SumBlock<T>(parts, begin, kBlock, sum);
    for (int64_t i = 0; i < kBlock; ++i) to[begin + i] = T::Store(sum[i]);
  }
  const auto rest = static_cast<size_t>(count - begin);
  SumBlock<T>(parts, begin, rest, sum);
  for (size_t i = 0; i < rest; ++i) to[static_cast<size_t>(begin) + i] = T::Store(sum[i]);
}

}  // namespace

void SumInOrder(DType dtype, std::span<const std::byte* const> parts, std::byte* out,
                int64_t count) {
  switch (dtype) {
    case DType::kF32:
      return Sum<F32>(parts, out, count);
    case DType::kBF16:
      return Sum<Bf16>(parts, out, count);
    case DType::kF16:
      return Sum<F16>(parts, out, count);
    case DType::kI32:
      return Sum<I32>(parts, out, count);
    default:
      PAGEMILL_CHECK(false);  // Group::Execute rejects others
  }
}

}  // namespace pagemill::comm
