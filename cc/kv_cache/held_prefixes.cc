#include "cc/kv_cache/held_prefixes.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "cc/step/token_sequence.h"

namespace pagemill::kv_cache {
namespace {

// A token behind the prompt: the cache finds prefixes that leave one token to compute.
constexpr int32_t kOneMore[] = {0};

step::TokenSequence Tokens(const step::Request& request) {
  return step::TokenSequence(request.prompt_token_ids, kOneMore);
}

}  // namespace

Status HeldPrefixes::CheckGroups() const {
  if (!cache_->caches_prefixes()) {
    return FailedPrecondition(
        "nothing is found in the prefix cache: it is off (--enable-prefix-caching), or of no use "
        "to this model");
  }
  for (const KvGroupOptions& group : cache_->options().groups) {
    if (group.pages_per_block == 1) continue;
    return Unimplemented("a session is saved by blocks of one page; those of \"" + group.kind +
                         "\" layers have " + std::to_string(group.pages_per_block));
  }
  return OkStatus();
}

HeldPrefix HeldPrefixes::Add(std::unique_ptr<Held> held, int32_t begin, int32_t end) {
  HeldPrefix prefix{HeldPrefixId(++num_held_), begin, end, {}};
  held->first_token = begin;
  held->end_token = end;
  cache_->Contents(held->blocks, begin, end, &prefix.contents);
  held_.emplace(prefix.id, std::move(held));
  return prefix;
}

StatusOr<HeldPrefix> HeldPrefixes::HoldCached(const step::Request& request) {
  PAGEMILL_RETURN_IF_ERROR(CheckGroups());
  auto held = std::make_unique<Held>(Held{request, RequestBlocks(request)});
  const PrefixMatch match = cache_->FindPrefix(held->request, Tokens(held->request), &held->blocks);
  if (match.num_tokens == 0) {
    return NotFound("no block of these " + std::to_string(request.prompt_token_ids.size()) +
                    " tokens is in the KV cache; run them first");
  }
  if (!cache_->CanAllocate(held->blocks, &match, match.num_tokens)) {
    return ResourceExhausted("the KV cache has no block left to keep these tokens' state");
  }
  PAGEMILL_RETURN_IF_ERROR(cache_->AllocateForLoad(match.num_tokens, &match, &held->blocks));
  return Add(std::move(held), 0, match.num_tokens);
}

StatusOr<HeldPrefix> HeldPrefixes::HoldMissing(const step::Request& request) {
  PAGEMILL_RETURN_IF_ERROR(CheckGroups());
  auto held = std::make_unique<Held>(Held{request, RequestBlocks(request)});
  const step::TokenSequence tokens = Tokens(held->request);
  const PrefixMatch match = cache_->FindPrefix(held->request, tokens, &held->blocks);
  const int32_t grain = cache_->prefix_grain_tokens();
  const int32_t whole = tokens.prompt_size() / grain * grain;
  if (whole == 0) return InvalidArgument("these tokens do not fill a KV block");
  if (!cache_->CanAllocate(held->blocks, &match, whole)) {
    return ResourceExhausted("the KV of " + std::to_string(whole) + " tokens does not fit in the " +
                             std::to_string(cache_->num_free_blocks()) +
                             " blocks that are free (--kv-cache-memory-bytes)");
  }
  PAGEMILL_RETURN_IF_ERROR(cache_->AllocateForLoad(whole, &match, &held->blocks));
  cache_->Hashes(held->request, tokens, whole, &held->blocks);
  return Add(std::move(held), match.num_tokens, whole);
}

StatusOr<PinnedPrefix> HeldPrefixes::Pin(const step::Request& request) {
  PAGEMILL_RETURN_IF_ERROR(CheckGroups());
  RequestBlocks none(request);
  const PrefixMatch match = cache_->FindPrefix(request, Tokens(request), &none);
  PAGEMILL_ASSIGN_OR_RETURN(const PinId id, cache_->Pin(cache_->Hashes(request, Tokens(request),
                                                                       match.num_tokens, &none)));
  return PinnedPrefix{id, match.num_tokens};
}

int32_t HeldPrefixes::End(HeldPrefixId id, std::optional<BlockHash> missing) {
  const auto found = held_.find(id);
  if (found == held_.end()) return 0;
  Held& held = *found->second;
  int32_t end = held.end_token;
  if (missing) {
    const std::span<const BlockHash> hashes = held.blocks.hashes();
    const auto block = std::find(hashes.begin(), hashes.end(), *missing) - hashes.begin();
    end = std::min(end, static_cast<int32_t>(block) * cache_->options().block_size);
  }
  end = std::max(end, held.first_token);
  cache_->Commit(held.request, Tokens(held.request), end, &held.blocks);
  cache_->Free(&held.blocks);
  // States are held at the end only: without it requests may continue from a shorter prefix.
  if (missing) {
    RequestBlocks none(held.request);
    end = cache_->FindPrefix(held.request, Tokens(held.request), &none).num_tokens;
  }
  held_.erase(found);
  return end;
}

void HeldPrefixes::AppendHolders(std::vector<const RequestBlocks*>* holders) const {
  for (const auto& [id, held] : held_) holders->push_back(&held->blocks);
}

}  // namespace pagemill::kv_cache
