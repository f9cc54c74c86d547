// File: cuda/ops/states/state_steps.h
// Steps in which each request has one token: a block takes the same columns of up to kStepHeads
// heads of a request. A state is read and written once, and the page where it lies is found by
// several loads, each of which waits for the one before: so a block finds pages once, a team
// prepares the operands of each head, and a head's state is on its way while that of the head in
// front of it is computed.
//
//   PAGEMILL_KERNEL_OF(kStateThreads, 4) Advance(Rows<float> states, int heads, StepTokens batch) {
//     PAGEMILL_SHARED(Token[kStepHeads], tokens);
//     ForEachHeadOfStep<kRows>(
//         states, {rows, columns, heads}, batch,
//         [&](int head, int column, int32_t row) { tokens[Team()] = ...; },
//         [&](StateTile<kRows>& tile, int head, int i, int32_t row) { Use(tile, tokens[i]); });
//   }
//   ...
//   Launch(stream, ShapeOfStateSteps(shape, heads, stream), Advance, ...);
//
// `column` is the block's first. Results have the bits that they have with ForEachStateRun().
#ifndef PAGEMILL_CUDA_OPS_STATES_STATE_STEPS_H_
#define PAGEMILL_CUDA_OPS_STATES_STATE_STEPS_H_

#include <cstdint>

#include "cc/device/stream.h"
#include "cc/ops/batch_view.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/states/state_runs.h"
#include "cuda/ops/states/state_tile.h"
#include "cuda/ops/states/token_chunks.h"

namespace pagemill::gpu {

inline constexpr int kStepHeads = kStateThreads / kTeamThreads;  // of a block, at most

// What the states of one request are.
struct StateMatrices {
  int rows, columns, heads;
};

// True if each request of the step has one token: requests have at least one, those that a step is
// padded with, too.
inline bool HasSingleTokens(const ops::BatchView& batch) {
  return batch.num_tokens == batch.num_requests;
}

// `of_heads`: WithStateTiles()' shape, with blocks for each head. Heads share blocks if there are
// more of those than a GPU runs at a time.
inline LaunchShape ShapeOfStateSteps(const LaunchShape& of_heads, int64_t heads,
                                     device::Stream& stream) {
  const auto multiprocessors =
      static_cast<uint32_t>(static_cast<GpuStream&>(stream).capabilities().multiprocessors);
  constexpr uint32_t kBlocks = 4;  // of a multiprocessor, at most
  const auto [x, requests, z] = of_heads.blocks;
  const uint32_t tiles = x / static_cast<uint32_t>(heads);
  const bool shared = x * requests > 2 * kBlocks * multiprocessors;
  const uint32_t parts = shared ? DivideUp(heads, kStepHeads) : static_cast<uint32_t>(heads);
  return {.blocks = {tiles, parts, requests}, .threads = of_heads.threads, .early = true};
}

template <int kRows, typename Prepare, typename Use>
PAGEMILL_DEVICE void ForEachHeadOfStep(const Rows<float>& states, const StateMatrices& of,
                                       const StepTokens& batch, const Prepare& prepare,
                                       const Use& use) {
  LetNextBegin();
  AwaitInputs();
  using Tile = StateTile<kRows>;
  const int block = static_cast<int>(BlockIndex().x);
  const int parts = static_cast<int>(GridSize().y);
  const int most = (of.heads + parts - 1) / parts;  // heads of a block: 1 or kStepHeads
  const int first = static_cast<int>(BlockIndex().y) * most;
  const int count = of.heads - first < most ? of.heads - first : most;
  StateRuns runs(batch, BlockIndex().z);
  if (!runs.Next(1)) return;
  const ops::StateRun run = runs.run();
  const int64_t matrix = int64_t{of.rows} * of.columns;
  Tile tiles[2] = {Tile(of.rows, of.columns, block), Tile(of.rows, of.columns, block)};
  const auto load = [&](int i) {
    tiles[i % 2].Load(run.source == ops::kNullPage
                          ? nullptr
                          : states[run.source] + (first + i) * matrix);
  };
  load(0);
  // Teams without a head prepare the first one, too: lanes of their warps await each other.
  prepare(first + (Team() < count ? Team() : 0), block * Tile::kColumns, run.begin);
  SyncBlock();
  if (!tiles[0].HasColumnsOfWarp()) return;
  PAGEMILL_UNROLL
  for (int i = 0; i < kStepHeads; ++i) {
    if (i == count) return;
    if (i + 1 < count) load(i + 1);
    use(tiles[i % 2], first + i, i, run.begin);
    if (run.target != ops::kNullPage) {
      tiles[i % 2].Store(states[run.target] + (first + i) * matrix);
    }
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_STATES_STATE_STEPS_H_
