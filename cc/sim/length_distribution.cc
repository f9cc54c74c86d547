#include "cc/sim/length_distribution.h"

#include <algorithm>

#include "cc/sim/fixed_point.h"

namespace pagemill::sim {
namespace {

constexpr int64_t kLog2OfE = 24204406;  // log2 e with 24 fraction bits

struct Row {
  std::string_view name;
  int64_t (*draw)(const LengthOptions&, Random*);
};

int64_t DrawFixed(const LengthOptions& options, Random*) { return options.mean_tokens; }

int64_t DrawUniform(const LengthOptions& options, Random* random) {
  const int64_t reach = int64_t{options.mean_tokens} * options.spread_permille / 1000;
  return options.mean_tokens - reach +
         static_cast<int64_t>(random->Below(static_cast<uint64_t>(2 * reach + 1)));
}

// exp(sigma z - sigma^2 / 2) has mean 1 for a normal z.
int64_t DrawLognormal(const LengthOptions& options, Random* random) {
  const int64_t spread = options.spread_permille;
  const int64_t one = static_cast<int64_t>(kOne);
  const int64_t ln = spread * random->Normal() / 1000 - spread * spread * (one / 2000000);
  const int64_t log2 = ln * kLog2OfE >> 24;
  return MulDiv(static_cast<uint64_t>(options.mean_tokens), Exp2(log2), kOne);
}

constexpr Row kDistributions[] = {
    {"fixed", DrawFixed},
    {"lognormal", DrawLognormal},
    {"uniform", DrawUniform},
};

const Row* Find(const std::string& name) {
  for (const Row& row : kDistributions) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

}  // namespace

Status LengthOptions::Validate(const std::string& field) const {
  if (Find(distribution) == nullptr) {
    std::string known;
    for (const Row& row : kDistributions) {
      known += (known.empty() ? "" : ", ") + std::string(row.name);
    }
    return InvalidArgument(field + ".distribution is \"" + distribution + "\", it must be one of " +
                           known);
  }
  if (max_tokens < 1 || max_tokens > 1 << 24) {
    return InvalidArgument(field + ".max_tokens is " + std::to_string(max_tokens) +
                           ", it must be from 1 to 16777216");
  }
  if (mean_tokens < 1 || mean_tokens > max_tokens) {
    return InvalidArgument(field + ".mean_tokens is " + std::to_string(mean_tokens) +
                           ", it must be from 1 to max_tokens, which is " +
                           std::to_string(max_tokens));
  }
  const int32_t most = distribution == "uniform" ? 1000 : 3000;
  if (spread_permille < 0 || spread_permille > most) {
    return InvalidArgument(field + ".spread_permille is " + std::to_string(spread_permille) +
                           ", it must be from 0 to " + std::to_string(most));
  }
  return OkStatus();
}

LengthDistribution::LengthDistribution(const LengthOptions& options)
    : draw_(Find(options.distribution)->draw), options_(options) {}

int32_t LengthDistribution::Draw(Random* random) const {
  return static_cast<int32_t>(std::clamp<int64_t>(draw_(options_, random), 1, options_.max_tokens));
}

}  // namespace pagemill::sim
