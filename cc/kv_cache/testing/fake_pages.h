// File: cc/kv_cache/testing/fake_pages.h
// Pages of a fake model, of every kind of layers. A step writes a fingerprint of the tokens so
// far where a layer would write keys, values or a state, and reads whatever the layer would read:
// it must be what the same tokens gave, even if another request computed them.
//
// Tests only. Thread safety: none.
#ifndef PAGEMILL_CC_KV_CACHE_TESTING_FAKE_PAGES_H_
#define PAGEMILL_CC_KV_CACHE_TESTING_FAKE_PAGES_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "cc/kv_cache/kv_cache_options.h"
#include "cc/kv_cache/request_blocks.h"
#include "cc/step/request.h"
#include "cc/step/token_sequence.h"

namespace pagemill::kv_cache {

// A request as its runner and its scheduler know it.
struct FakeRequest {
  step::Request request;
  std::vector<int32_t> output;
  std::vector<uint64_t> prints;  // prints[n]: of all that determines the first n tokens
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> tables;  // as the runner has them
  std::deque<TokenRange> in_flight;
  int32_t planned = 0, computed = 0;
  int32_t covered = 0;  // most tokens that were planned

  step::TokenSequence tokens() const { return {request.prompt_token_ids, output}; }
  int32_t size() const { return tokens().size(); }
  int32_t media_tokens() const { return request.media.empty() ? 0 : request.media[0].num_tokens; }
};

uint64_t Mix(uint64_t a, uint64_t b);

class FakePages {
 public:
  explicit FakePages(const KvCacheOptions& options);

  // Reads and writes what all layers do in the step.
  void Run(const FakeRequest& request, TokenRange step);
  // What a transfer writes into the blocks of the request: the content of the tokens of `range`.
  void Load(const FakeRequest& request, TokenRange range);

  int32_t block_tokens(size_t group) const { return block_tokens_[group]; }
  bool is_state(size_t group) const { return options_.groups[group].kind == "state_space"; }
  bool is_one_state(size_t group) const {
    return is_state(group) && options_.groups[group].checkpoints == StateCheckpoints::kNone;
  }

 private:
  void ReadTokens(const FakeRequest& request, size_t group, TokenRange step);
  void WriteTokens(const FakeRequest& request, size_t group, TokenRange range);
  void ReadState(const FakeRequest& request, size_t group, int32_t begin);
  // The states at the boundaries in the range that have pages; all that a step over it leaves.
  void WriteBoundaries(const FakeRequest& request, size_t group, TokenRange range);
  void WriteState(const FakeRequest& request, size_t group, TokenRange step);
  void RunCross(const FakeRequest& request, size_t group, TokenRange step);
  // Where a token is, in one of the pages of its block.
  uint64_t* TokenAt(const FakeRequest& request, size_t group, int32_t token);
  // The page of the state after `tokens` tokens, at which a step begins or ends; kNullBlock if that
  // is missing. Likewise of a boundary, which may have none.
  BlockId StatePage(const FakeRequest& request, size_t group, int32_t tokens) const;
  BlockId BoundaryPage(const FakeRequest& request, size_t group, int32_t tokens) const;
  void PutState(const FakeRequest& request, size_t group, int32_t tokens, BlockId page);
  // The page has the content of this group from now on.
  void Claim(BlockId id, size_t group);

  const KvCacheOptions options_;
  std::vector<int32_t> block_tokens_;                      // per group
  std::vector<std::vector<std::vector<uint64_t>>> pages_;  // [group][page][token of the block]
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TESTING_FAKE_PAGES_H_
