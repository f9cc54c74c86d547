#include "cc/sampling/watermark/watermark.h"

#include <array>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "cc/base/status.h"
#include "cc/ops/sample/philox.h"

namespace pagemill::sampling {
namespace {

enum class Use : uint32_t { kContext = 0, kToken = 1 };

// 64 bits that depend on all arguments.
uint64_t Bits(uint64_t key, uint64_t state, int32_t token_id, Use use) {
  const std::array<uint32_t, 4> bits =
      ops::Philox4x32({static_cast<uint32_t>(state), static_cast<uint32_t>(state >> 32),
                       static_cast<uint32_t>(token_id), static_cast<uint32_t>(use)},
                      {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
  return uint64_t{bits[0]} << 32 | bits[1];
}

}  // namespace

uint64_t Watermark::ContextOf(std::span<const int32_t> token_ids) const {
  PAGEMILL_CHECK(HasContext(token_ids.size()));
  uint64_t state = 0;
  for (const int32_t id : token_ids.last(static_cast<size_t>(options_.context_tokens))) {
    state = Bits(options_.key, state, id, Use::kContext);
  }
  return state;
}

double Watermark::NumberOf(uint64_t context, int32_t token_id) const {
  const uint64_t bits = Bits(options_.key, context, token_id, Use::kToken) >> 12;
  return (static_cast<double>(bits) + 0.5) * 0x1.0p-52;
}

int32_t Watermark::Draw(const ops::KeptTokens& kept, uint64_t context) const {
  int32_t drawn = -1;
  double least = std::numeric_limits<double>::infinity();
  for (const ops::Candidate& token : kept.tokens) {
    if (!(token.logit > 0.0f)) continue;  // a weight that is too small for f32
    const double wait = -std::log(NumberOf(context, token.token_id)) / double{token.logit};
    if (wait < least) least = wait, drawn = token.token_id;
  }
  PAGEMILL_CHECK(drawn >= 0);
  return drawn;
}

std::vector<double> Watermark::NumbersOf(std::span<const int32_t> token_ids) const {
  std::vector<double> numbers;
  std::unordered_set<uint64_t> seen;
  for (size_t i = 0; i < token_ids.size(); ++i) {
    if (!HasContext(i)) continue;
    const uint64_t context = ContextOf(token_ids.first(i));
    if (seen.insert(context).second) numbers.push_back(NumberOf(context, token_ids[i]));
  }
  return numbers;
}

}  // namespace pagemill::sampling
