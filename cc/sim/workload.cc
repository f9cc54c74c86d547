#include "cc/sim/workload.h"

namespace pagemill::sim {

void AppendTokens(const Segment& segment, int32_t vocab_size, std::vector<int32_t>* tokens) {
  const size_t begin = tokens->size();
  tokens->resize(begin + static_cast<size_t>(segment.num_tokens));
  for (int32_t i = 0; i < segment.num_tokens; ++i) {
    (*tokens)[begin + static_cast<size_t>(i)] =
        PseudoToken(segment.content, segment.first + i, vocab_size);
  }
}

}  // namespace pagemill::sim
