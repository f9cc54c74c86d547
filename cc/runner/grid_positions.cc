#include "cc/runner/grid_positions.h"

#include <algorithm>
#include <cstddef>

#include "cc/ops/batch_view.h"

namespace pagemill::runner {

void AppendGridPositions(const step::Request& request, int32_t begin, int32_t end,
                         std::vector<int32_t>* positions) {
  static_assert(ops::kGridDims == step::kMediaGridDims);
  int32_t token = begin;
  int64_t offset = 0;  // position of text - token
  const auto append_text = [&](int32_t until) {
    for (; token < until; ++token) {
      positions->insert(positions->end(), ops::kGridDims, static_cast<int32_t>(token + offset));
    }
  };
  for (const step::MediaItem& item : request.media) {
    const std::vector<int32_t>& own = item.features->token_positions;
    if (own.empty()) continue;  // they are those of text
    append_text(std::min(end, item.first_token));
    for (; token < std::min(end, item.first_token + item.num_tokens); ++token) {
      const auto first = static_cast<size_t>(token - item.first_token) * ops::kGridDims;
      for (size_t d = 0; d < ops::kGridDims; ++d) {
        positions->push_back(static_cast<int32_t>(item.first_token + offset + own[first + d]));
      }
    }
    if (token == end) return;
    offset += item.features->next_position - item.num_tokens;
  }
  append_text(end);
}

}  // namespace pagemill::runner
