#include "cc/router/routing_policy.h"

#include <algorithm>
#include <string>

#include "cc/base/xxh3.h"

namespace pagemill::router {
namespace {

class RoundRobin final : public RoutingPolicy {
 public:
  std::optional<int32_t> Route(const RoutingQuery& query) override {
    const size_t count = query.engines.size();
    for (size_t i = 0; i < count; ++i) {
      const size_t engine = (next_ + i) % count;
      if (!query.engines[engine].available) continue;
      next_ = engine + 1;
      return static_cast<int32_t>(engine);
    }
    return std::nullopt;
  }

 private:
  size_t next_ = 0;
};

class LeastLoaded final : public RoutingPolicy {
 public:
  std::optional<int32_t> Route(const RoutingQuery& query) override {
    const size_t count = query.engines.size();
    std::optional<size_t> chosen;
    for (size_t i = 0; i < count; ++i) {
      const size_t engine = (next_ + i) % count;
      if (!query.engines[engine].available) continue;
      if (!chosen || query.engines[engine].num_requests < query.engines[*chosen].num_requests) {
        chosen = engine;
      }
    }
    if (!chosen) return std::nullopt;
    next_ = *chosen + 1;
    return static_cast<int32_t>(*chosen);
  }

 private:
  size_t next_ = 0;  // where the search starts, so that equals take turns
};

class PrefixAware final : public RoutingPolicy {
 public:
  PrefixAware() : RoutingPolicy(/*uses_prefixes=*/true) {}

  std::optional<int32_t> Route(const RoutingQuery& query) override {
    const std::span<const EngineLoad> engines = query.engines;
    const auto by_load = [engines](int32_t a, int32_t b) {
      return engines[a].num_requests < engines[b].num_requests;
    };
    const auto holder =
        std::min_element(query.prefix_holders.begin(), query.prefix_holders.end(), by_load);
    if (holder == query.prefix_holders.end()) return least_loaded_.Route(query);
    int32_t least = engines[*holder].num_requests;
    for (const EngineLoad& engine : engines) {
      if (engine.available) least = std::min(least, engine.num_requests);
    }
    const int32_t worth = std::min(kBusyRequests, query.prefix_tokens / kTokensPerRequest);
    const bool is_busy = engines[*holder].num_requests > std::max(worth, least + least / 2);
    return is_busy ? least_loaded_.Route(query) : *holder;
  }

 private:
  LeastLoaded least_loaded_;
};

// Rendezvous hashing: an engine that goes away moves its own sessions and no others.
class Session final : public RoutingPolicy {
 public:
  std::optional<int32_t> Route(const RoutingQuery& query) override {
    if (query.session.empty()) return least_loaded_.Route(query);
    std::optional<int32_t> chosen;
    uint64_t highest = 0;
    const uint64_t session = Xxh3_128(query.session.data(), query.session.size()).low;
    for (size_t engine = 0; engine < query.engines.size(); ++engine) {
      if (!query.engines[engine].available) continue;
      const uint64_t score = Mix(session + engine * 0x9E3779B97F4A7C15u);
      if (chosen && score <= highest) continue;
      highest = score;
      chosen = static_cast<int32_t>(engine);
    }
    return chosen;
  }

 private:
  // The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
  // Generators, OOPSLA 2014).
  static uint64_t Mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }

  LeastLoaded least_loaded_;
};

template <typename Policy>
std::unique_ptr<RoutingPolicy> Make() {
  return std::make_unique<Policy>();
}

struct NamedPolicy {
  std::string_view name;
  std::unique_ptr<RoutingPolicy> (*make)();
};

constexpr NamedPolicy kPolicies[] = {
    {"least_loaded", Make<LeastLoaded>},
    {"prefix_aware", Make<PrefixAware>},
    {"round_robin", Make<RoundRobin>},
    {"session", Make<Session>},
};

}  // namespace

StatusOr<std::unique_ptr<RoutingPolicy>> MakeRoutingPolicy(std::string_view name) {
  std::string known;
  for (const NamedPolicy& policy : kPolicies) {
    if (policy.name == name) return policy.make();
    known.append(known.empty() ? "" : ", ").append(policy.name);
  }
  return InvalidArgument("unknown routing policy \"" + std::string(name) +
                         "\"; known are: " + known);
}

}  // namespace pagemill::router
