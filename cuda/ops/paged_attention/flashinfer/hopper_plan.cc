#include "cuda/ops/paged_attention/flashinfer/hopper_plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "cc/base/status.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kTileArrays = 6;

// The tokens of prompts, rounded up to tiles.
int64_t MaxTiles(const FlashInferShape& s) {
  const int64_t prompts = std::min(s.requests, s.tokens / kPromptTokens);
  return (s.tokens / HopperTileRows(s.head_dim) + prompts) * s.q_heads;
}

struct Prompt {
  int32_t request, tokens, seq_len;
};

// The longest contexts first.
std::vector<Prompt> PromptsOf(const FlashInferShape& shape, const int32_t* query_start,
                              const int32_t* seq_lens) {
  std::vector<Prompt> prompts;
  for (int32_t r = 0; r < shape.requests; ++r) {
    const int32_t tokens = query_start[r + 1] - query_start[r];
    if (tokens >= kPromptTokens) prompts.push_back({r, tokens, seq_lens[r]});
  }
  std::ranges::stable_sort(prompts, std::greater(), &Prompt::seq_len);
  return prompts;
}

struct Tile {
  int32_t head, tile;
  const Prompt* prompt;
};

// Each block's tiles: the next one goes to the block with the least work so far. FlashInfer's
// estimate of work is the keys that the last row sees, and twice the rows.
std::array<std::vector<Tile>, kHopperBlocks> ShareOut(const FlashInferShape& shape,
                                                      const std::vector<Prompt>& prompts) {
  const int32_t rows = HopperTileRows(shape.head_dim);
  std::array<std::vector<Tile>, kHopperBlocks> tiles;
  using Load = std::pair<int64_t, int32_t>;  // work, block
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int32_t block = 0; block < kHopperBlocks; ++block) loads.emplace(0, block);
  for (int32_t head = 0; head < shape.q_heads; ++head) {
    for (const Prompt& prompt : prompts) {
      const int32_t context = prompt.seq_len - prompt.tokens;
      for (int32_t tile = (prompt.tokens - 1) / rows; tile >= 0; --tile) {
        const auto [work, block] = loads.top();
        loads.pop();
        tiles[block].push_back({head, tile, &prompt});
        const int32_t keys = std::min(context + (tile + 1) * rows, prompt.seq_len);
        loads.emplace(work + keys + 2 * rows, block);
      }
    }
  }
  return tiles;
}

}  // namespace

bool MayHavePrompts(const FlashInferShape& shape) {
  // The longest request if all others have one token.
  return shape.tokens - shape.requests + 1 >= kPromptTokens;
}

int64_t HopperPlanView::Bytes(const FlashInferShape& shape) {
  return (kHopperBlocks + 1 + kTileArrays * MaxTiles(shape)) *
         static_cast<int64_t>(sizeof(int32_t));
}

HopperPlanView HopperPlanView::Of(const FlashInferShape& shape, std::byte* plan) {
  int32_t* next = reinterpret_cast<int32_t*>(plan);
  const auto take = [&](int64_t size) { return std::exchange(next, next + size); };
  const int64_t tiles = MaxTiles(shape);
  HopperPlanView view = {};
  view.first_tile = take(kHopperBlocks + 1);
  view.head = take(tiles);
  view.tile = take(tiles);
  view.query_start = take(tiles);
  view.query_tokens = take(tiles);
  view.first_page = take(tiles);
  view.seq_len = take(tiles);
  return view;
}

void PlanHopper(const FlashInferShape& shape, const int32_t* query_start, const int32_t* seq_lens,
                std::byte* plan) {
  const std::vector<Prompt> prompts = PromptsOf(shape, query_start, seq_lens);
  const HopperPlanView view = HopperPlanView::Of(shape, plan);
  const int64_t most = MaxTiles(shape);
  int32_t next = 0;
  view.first_tile[0] = 0;
  for (int32_t block = 0; const std::vector<Tile>& tiles : ShareOut(shape, prompts)) {
    for (const auto& [head, tile, prompt] : tiles) {
      PAGEMILL_CHECK(next < most);
      view.head[next] = head;
      view.tile[next] = tile;
      view.query_start[next] = query_start[prompt->request];
      view.query_tokens[next] = prompt->tokens;
      view.first_page[next] = prompt->request * shape.table_stride;
      view.seq_len[next] = prompt->seq_len;
      ++next;
    }
    view.first_tile[++block] = next;
  }
}

}  // namespace pagemill::gpu
