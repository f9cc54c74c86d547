#include "cc/kv_cache/testing/fake_pages.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace pagemill::kv_cache {

uint64_t Mix(uint64_t a, uint64_t b) {
  a = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
  return a ^ (a >> 29);
}

FakePages::FakePages(const KvCacheOptions& options) : options_(options) {
  for (const KvGroupOptions& group : options.groups) {
    const int32_t tokens = group.block_size == 0 ? options.block_size : group.block_size;
    block_tokens_.push_back(tokens);
    pages_.emplace_back(static_cast<size_t>(options.num_blocks),
                        std::vector<uint64_t>(static_cast<size_t>(tokens)));
  }
}

void FakePages::Run(const FakeRequest& request, TokenRange step) {
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    const std::string& kind = options_.groups[g].kind;
    if (is_state(g)) {
      ReadState(request, g, step.begin);
      WriteState(request, g, step);
    } else if (kind == "cross") {
      RunCross(request, g, step);
    } else if (kind != "encoder_only") {
      ReadTokens(request, g, step);
      WriteTokens(request, g, step);
    }
  }
}

void FakePages::Load(const FakeRequest& request, TokenRange range) {
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    // Full blocks only.
    const TokenRange full{range.begin, range.end / block_tokens_[g] * block_tokens_[g]};
    if (full.begin >= full.end) continue;
    is_state(g) ? WriteBoundaries(request, g, full) : WriteTokens(request, g, full);
  }
}

void FakePages::RunCross(const FakeRequest& request, size_t group, TokenRange step) {
  const uint64_t print = Mix(request.prints[0], 77);
  for (int32_t i = 0; i < request.media_tokens(); ++i) {
    uint64_t* token = TokenAt(request, group, i);
    if (step.begin == 0) *token = print;
    ASSERT_EQ(*token, print) << "media token " << i;
  }
}

void FakePages::ReadTokens(const FakeRequest& request, size_t group, TokenRange step) {
  const KvGroupOptions& options = options_.groups[group];
  const int32_t window = options.window_tokens;
  int32_t first = 0;
  if (options.kind == "sliding_window") first = std::max(0, step.begin - window + 1);
  if (options.kind == "chunked_local") first = step.begin / window * window;
  for (int32_t i = first; i < step.begin; ++i) {
    ASSERT_EQ(*TokenAt(request, group, i), request.prints[static_cast<size_t>(i) + 1])
        << options.kind << ", token " << i << " of the step from " << step.begin;
  }
}

void FakePages::WriteTokens(const FakeRequest& request, size_t group, TokenRange range) {
  const int32_t pages = options_.groups[group].pages_per_block;
  for (int32_t i = range.begin; i < range.end; ++i) {
    const auto entry = static_cast<size_t>(i / block_tokens_[group] * pages);
    if (request.tables[group].at(entry) == kNullBlock) continue;  // a load leaves out windows
    Claim(request.tables[group][entry], group);
    *TokenAt(request, group, i) = request.prints[static_cast<size_t>(i) + 1];
  }
}

void FakePages::ReadState(const FakeRequest& request, size_t group, int32_t begin) {
  if (begin == 0) return;
  const BlockId page = StatePage(request, group, begin);
  ASSERT_NE(page, kNullBlock) << "before token " << begin;
  ASSERT_EQ(pages_[group][static_cast<size_t>(page.value())][0],
            request.prints[static_cast<size_t>(begin)])
      << "before token " << begin;
}

void FakePages::WriteBoundaries(const FakeRequest& request, size_t group, TokenRange range) {
  const int32_t size = block_tokens_[group];
  for (int32_t t = (range.begin / size + 1) * size; t <= range.end; t += size) {
    const BlockId page = BoundaryPage(request, group, t);
    if (page != kNullBlock) PutState(request, group, t, page);
  }
}

void FakePages::WriteState(const FakeRequest& request, size_t group, TokenRange step) {
  WriteBoundaries(request, group, step);
  const int32_t newest = std::max(1, options_.groups[group].recent_states);
  for (int32_t t = std::max(step.begin, step.end - newest) + 1; t <= step.end; ++t) {
    const BlockId page = StatePage(request, group, t);
    ASSERT_NE(page, kNullBlock) << "after token " << t;
    PutState(request, group, t, page);
  }
}

uint64_t* FakePages::TokenAt(const FakeRequest& request, size_t group, int32_t token) {
  const int32_t pages = options_.groups[group].pages_per_block, size = block_tokens_[group];
  const BlockId id =
      request.tables[group].at(static_cast<size_t>(token / size * pages + token % pages));
  EXPECT_NE(id, kNullBlock) << "token " << token;
  return &pages_[group][static_cast<size_t>(id.value())][static_cast<size_t>(token % size)];
}

BlockId FakePages::BoundaryPage(const FakeRequest& request, size_t group, int32_t tokens) const {
  if (is_one_state(group)) return kNullBlock;
  const KvGroupOptions& options = options_.groups[group];
  const int32_t position = options.recent_states + tokens / block_tokens_[group] - 1;
  const int32_t end = (position + 1) * options.pages_per_block;
  return request.tables[group].at(static_cast<size_t>(end - 1));
}

BlockId FakePages::StatePage(const FakeRequest& request, size_t group, int32_t tokens) const {
  const KvGroupOptions& options = options_.groups[group];
  const int32_t size = block_tokens_[group];
  if (tokens % size == 0) {
    const BlockId page = BoundaryPage(request, group, tokens);
    if (page != kNullBlock) return page;
  }
  int32_t entry = is_one_state(group) ? 0 : (tokens - 1) / size;
  if (options.recent_states > 0) entry = tokens % options.recent_states;
  return request.tables[group].at(static_cast<size_t>((entry + 1) * options.pages_per_block - 1));
}

void FakePages::PutState(const FakeRequest& request, size_t group, int32_t tokens, BlockId page) {
  Claim(page, group);
  pages_[group][static_cast<size_t>(page.value())][0] =
      request.prints[static_cast<size_t>(tokens)];
}

void FakePages::Claim(BlockId id, size_t group) {
  for (size_t other = 0; other < pages_.size(); ++other) {
    auto& page = pages_[other][static_cast<size_t>(id.value())];
    if (other != group) std::fill(page.begin(), page.end(), 0);
  }
}

}  // namespace pagemill::kv_cache
