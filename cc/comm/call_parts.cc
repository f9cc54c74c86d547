#include "cc/comm/call_parts.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace pagemill::comm {

int64_t SumOf(std::span<const int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void ScatterRows(const std::byte* data, int64_t begin, int64_t end, int64_t width, std::byte* out,
                 int64_t stride) {
  while (begin < end) {
    const int64_t row = begin / width, column = begin % width;
    const int64_t count = std::min(width - column, end - begin);
    std::memcpy(out + row * stride + column, data, static_cast<size_t>(count));
    data += count;
    begin += count;
  }
}

}  // namespace pagemill::comm
