#include "cc/sim/routing/prefix_aware.h"

#include <algorithm>
#include <bit>

#include "cc/sim/random.h"

namespace pagemill::sim {
namespace {

constexpr uint64_t kEntriesEach = 4096;
constexpr uint64_t kMostEntries = uint64_t{1} << 24;

}  // namespace

PrefixAware::PrefixAware(int32_t num_engines)
    : entries_(std::min(kMostEntries,
                        std::bit_ceil(kEntriesEach * static_cast<uint64_t>(num_engines)))) {}

int32_t PrefixAware::Route(std::span<const int32_t> prompt, std::span<const int32_t> loads) {
  chain_.clear();
  uint64_t hash = 0;
  for (size_t begin = 0; begin + kBlockTokens <= prompt.size(); begin += kBlockTokens) {
    for (int32_t token : prompt.subspan(begin, kBlockTokens)) {
      hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 32;
    }
    chain_.push_back(Mix(hash));
  }
  int32_t chosen = -1;
  for (size_t i = chain_.size(); i-- > 0 && chosen < 0;) {
    const Entry& entry = *At(chain_[i]);
    if (entry.engine >= 0 && entry.tag == TagOf(chain_[i])) chosen = entry.engine;
  }
  if (chosen >= 0) {
    const int32_t least = *std::min_element(loads.begin(), loads.end());
    if (loads[chosen] > std::max(kSlack, least + least / 2)) chosen = -1;
  }
  if (chosen < 0) chosen = fallback_.Route(prompt, loads);
  for (uint64_t link : chain_) *At(link) = {TagOf(link), chosen};
  return chosen;
}

}  // namespace pagemill::sim
