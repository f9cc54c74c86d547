#include "cc/router/router.h"

#include <algorithm>
#include <utility>

#include "cc/step/token_sequence.h"

namespace pagemill::router {

Status RouterOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(MakeRoutingPolicy(policy).status());
  if (num_engines < 1 || num_engines > 100'000) {
    return InvalidArgument("num_engines is " + std::to_string(num_engines) +
                           ", it must be from 1 to 100000");
  }
  if (block_size < 1) {
    return InvalidArgument("block_size is " + std::to_string(block_size) +
                           ", it must be at least 1");
  }
  if (max_prefix_blocks < 0 || max_prefix_blocks > int64_t{1} << 32) {
    return InvalidArgument("max_prefix_blocks is " + std::to_string(max_prefix_blocks) +
                           ", it must be from 0 to 2^32");
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<Router>> Router::Create(const RouterOptions& options) {
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<RoutingPolicy> policy,
                            MakeRoutingPolicy(options.policy));
  return std::unique_ptr<Router>(new Router(options, std::move(policy)));
}

Router::Router(const RouterOptions& options, std::unique_ptr<RoutingPolicy> policy)
    : block_size_(options.block_size),
      policy_(std::move(policy)),
      engines_(static_cast<size_t>(options.num_engines)),
      index_(policy_->uses_prefixes() ? options.max_prefix_blocks : 0),
      hasher_(options.hash_algorithm) {}

std::optional<int32_t> Router::Route(const step::Request& request, std::string_view session) {
  holders_.clear();
  int32_t prefix_tokens = 0;
  if (policy_->uses_prefixes()) {
    HashPrompt(request);
    prefix_tokens = FindHolders();
  }
  const std::optional<int32_t> engine = policy_->Route({.engines = engines_,
                                                        .session = session,
                                                        .prefix_holders = holders_,
                                                        .prefix_tokens = prefix_tokens});
  if (!engine) return std::nullopt;
  ++engines_[*engine].num_requests;
  ++stats_.num_routed;
  if (std::ranges::find(holders_, *engine) != holders_.end()) {
    ++stats_.num_prefix_hits;
    stats_.prefix_tokens += prefix_tokens;
  }
  if (policy_->uses_prefixes()) {
    for (const kv_cache::BlockHash& hash : chain_) index_.Add(hash, *engine);
  }
  return engine;
}

void Router::AddRequests(int32_t engine, int32_t count) {
  engines_[engine].num_requests = std::max(0, engines_[engine].num_requests + count);
}

void Router::Observe(int32_t engine, const kv_cache::KvEvent& event) {
  using Type = kv_cache::KvEvent::Type;
  if (!policy_->uses_prefixes()) return;
  if (event.type == Type::kCleared) {
    Forget(engine);
    return;
  }
  if (event.group != kv_cache::GroupId(0) || event.medium != "pool") return;
  if (event.type == Type::kRemoved) {
    for (const kv_cache::BlockHash& hash : event.hashes) index_.Remove(hash, engine);
  } else if (event.block_size == block_size_) {
    for (const kv_cache::BlockHash& hash : event.hashes) index_.Add(hash, engine);
  }
}

void Router::Forget(int32_t engine) { index_.RemoveAll(engine); }

void Router::SetAvailable(int32_t engine, bool available) {
  engines_[engine].available = available;
}

void Router::HashPrompt(const step::Request& request) {
  chain_.clear();
  const step::TokenSequence tokens(request.prompt_token_ids, {});
  kv_cache::BlockHash parent;
  for (int32_t end = block_size_; end <= tokens.size(); end += block_size_) {
    const int32_t begin = end - block_size_;
    parent = hasher_.Hash(parent, kv_cache::ExtraKeys(request, begin, end), tokens, begin, end);
    chain_.push_back(parent);
  }
}

int32_t Router::FindHolders() {
  for (size_t num_blocks = chain_.size(); num_blocks > 0; --num_blocks) {
    index_.Find(chain_[num_blocks - 1], &holders_);
    std::erase_if(holders_, [this](int32_t engine) { return !engines_[engine].available; });
    if (!holders_.empty()) return static_cast<int32_t>(num_blocks) * block_size_;
  }
  return 0;
}

}  // namespace pagemill::router
