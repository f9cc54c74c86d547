// File: cuda/ops/linear/staged_rows.h
// Tiles of tensor_core_tiles.h for weights in bf16: both factors come to shared memory by copies that
// are under way while stages before them are multiplied. Bits are those of the other tiles.
//
//   template <typename W>
//   using Many = ManyRowsOf<GroupProduct<W>, 4>;  // the tile for many rows and weights W
#ifndef PAGEMILL_CUDA_OPS_LINEAR_STAGED_ROWS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_STAGED_ROWS_H_

#include <cstdint>
#include <type_traits>

#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {

// A block for kOutputs outputs of kRows rows of x. Rows that do not exist are not read, and warps
// that have none multiply nothing. The launch gives it kSharedBytes, which every GPU with bf16 in
// tensor cores has for a block.
template <typename P, int kRowWarps>
struct StagedRows {
  static constexpr bool kSharesK = false;
  // Tiles of a warp, which reads (4 * 2 + 4) * 512 bytes of shared memory for 32 instructions: they
  // take about as long.
  static constexpr int kOutputTiles = 4, kRowTiles = 4;
  static constexpr int kOutputWarps = 2;
  static constexpr int kOutputs = kOutputWarps * kOutputTiles * 16;
  static constexpr int kRows = kRowWarps * kRowTiles * 8;
  static constexpr int kThreads = 32 * kOutputWarps * kRowWarps;
  static constexpr int kBlocks = kRowWarps > 2 ? 1 : 4 - kRowWarps;  // on a multiprocessor at least
  static constexpr int kStages = 3;
  static constexpr int kStageChunks = 2;

  // Eight lanes that read at once have two rows of a chunk, which are 128 bytes behind each other.
  struct Stage {
    Bf16Columns w[kStageChunks][kOutputs][4];
    Bf16Columns x[kStageChunks][kRows][4];
  };
  static constexpr int kSharedBytes = kStages * static_cast<int>(sizeof(Stage));

  PAGEMILL_DEVICE static void Multiply(const P& p, int64_t first_output, int64_t first_row) {
    Stage* const stages = DynamicShared<Stage>();
    const int group = Lane() / 4, in_group = Lane() % 4;
    const int warp_output = Warp() % kOutputWarps * (kOutputTiles * 16);
    const int warp_row = Warp() / kOutputWarps * (kRowTiles * 8);
    // The same in all lanes, as the compiler sees then.
    const bool has_rows = Ballot(AllLanes(), first_row + warp_row < p.rows) != 0;
    const Copies copies(p, first_output, first_row);
    const int chunks = NumChunks(p), steps = (chunks + kStageChunks - 1) / kStageChunks;
    const auto start = [&](int step) {
      if (step < steps) copies.Start(step * kStageChunks, chunks, stages[step % kStages]);
      CommitCopies();
    };
    PAGEMILL_UNROLL
    for (int step = 0; step < kStages - 1; ++step) start(step);

    Sums totals = {}, sums = {};
    int split = 0;
    int end = EndOfSplit(chunks, split);
    for (int step = 0; step < steps; ++step) {
      WaitCopies<kStages - 2>();
      SyncBlock();  // the stage is whole, and the one before it has been read
      start(step + kStages - 1);
      if (!has_rows) continue;
      const Stage& stage = stages[step % kStages];
      PAGEMILL_UNROLL
      for (int i = 0; i < kStageChunks; ++i) {
        const int chunk = step * kStageChunks + i;
        if (chunk == chunks) break;
        Bf16Columns x[kRowTiles];
        PAGEMILL_UNROLL
        for (int j = 0; j < kRowTiles; ++j) x[j] = stage.x[i][warp_row + 8 * j + group][in_group];
        PAGEMILL_UNROLL
        for (int tile = 0; tile < kOutputTiles; ++tile) {
          const int output = warp_output + 16 * tile + group;
          MultiplyColumns(stage.w[i][output][in_group], stage.w[i][output + 8][in_group], x,
                          sums.of[tile]);
        }
        if (chunk + 1 < end) continue;
        while (end <= chunk + 1 && split + 1 < kTileSplits) end = EndOfSplit(chunks, ++split);
        totals.Take(sums);
      }
    }
    WaitCopies<0>();
    Store(p, first_output + warp_output + group, first_row + warp_row + 2 * in_group, totals);
  }

 private:
  // As Mma16x8x16 has them in lanes.
  struct Sums {
    float of[kOutputTiles][kRowTiles][4];

    // Adds the sums of a part of K, which begin again.
    PAGEMILL_DEVICE void Take(Sums& part) {
      PAGEMILL_UNROLL
      for (int e = 0; e < kOutputTiles * kRowTiles * 4; ++e) {
        float& sum = part.of[e / (kRowTiles * 4)][e / 4 % kRowTiles][e % 4];
        of[e / (kRowTiles * 4)][e / 4 % kRowTiles][e % 4] += sum;
        sum = 0;
      }
    }
  };

  // What a thread copies: 16 bytes of a chunk of a stage, of rows that are kStep apart.
  class Copies {
   public:
    PAGEMILL_DEVICE Copies(const P& p, int64_t first_output, int64_t first_row)
        : first_w_(reinterpret_cast<const Bf16Columns*>(p.RowOfW(0).bytes())),
          first_x_(p.FirstOfX()) {
      const int thread = static_cast<int>(ThreadIndex().x);
      column_ = thread % 4;
      chunk_ = thread / 8 % kStageChunks;
      row_ = thread / 16 * 2 + thread / 4 % 2;
      const auto offset = [&](const void* row, const Bf16Columns* first) {
        const auto* const begin = reinterpret_cast<const Bf16Columns*>(row);
        return static_cast<int32_t>(begin - first) + chunk_ * 4 + column_;
      };
      PAGEMILL_UNROLL
      for (int i = 0; i < kOfW; ++i) {
        of_w_[i] = offset(RowOfWeights(p, first_output + row_ + i * kStep).bytes(), first_w_);
      }
      PAGEMILL_UNROLL
      for (int i = 0; i < kOfX; ++i) {
        const int64_t row = first_row + row_ + i * kStep;
        of_x_[i] = row < p.rows ? offset(p.RowOfX(row), first_x_) : kNone;
      }
    }

    // Starts those of chunks `first_chunk` and the next one, if they exist.
    PAGEMILL_DEVICE void Start(int first_chunk, int chunks, Stage& stage) const {
      if (first_chunk + chunk_ >= chunks) return;
      PAGEMILL_UNROLL
      for (int i = 0; i < kOfW; ++i) {
        CopyAsync16(&stage.w[chunk_][row_ + i * kStep][column_],
                    first_w_ + of_w_[i] + first_chunk * 4);
      }
      PAGEMILL_UNROLL
      for (int i = 0; i < kOfX; ++i) {
        if (of_x_[i] == kNone) continue;
        CopyAsync16(&stage.x[chunk_][row_ + i * kStep][column_],
                    first_x_ + of_x_[i] + first_chunk * 4);
      }
    }

   private:
    static_assert(kStageChunks == 2);
    static constexpr int kStep = kThreads / 8;
    static constexpr int kOfW = kOutputs / kStep, kOfX = kRows / kStep;
    static constexpr int32_t kNone = INT32_MIN;

    const Bf16Columns* first_w_;
    const Bf16Columns* first_x_;
    int column_, chunk_, row_;
    int32_t of_w_[kOfW], of_x_[kOfX];  // half the registers of pointers
  };

  PAGEMILL_DEVICE static void Store(const P& p, int64_t first_output, int64_t first_row,
                                    const Sums& sums) {
    PAGEMILL_UNROLL
    for (int i = 0; i < kRowTiles * 2; ++i) {
      const int64_t row = first_row + i / 2 * 8 + i % 2;
      if (row >= p.rows) continue;
      const auto target = p.TargetOf(row);
      PAGEMILL_UNROLL
      for (int j = 0; j < kOutputTiles * 2; ++j) {
        const int64_t output = first_output + j * 8;
        if (output < p.outputs) p.Store(target, output, sums.of[j / 2][i / 2][j % 2 * 2 + i % 2]);
      }
    }
  }
};

template <typename P>
inline constexpr bool kAreStaged = std::is_same_v<typename P::W, StoredWeights<DType::kBF16>>;

template <typename P, int kRowWarps>
using ManyRowsOf =
    std::conditional_t<kAreStaged<P>, StagedRows<P, kRowWarps>, ManyRows<P, kRowWarps>>;

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_STAGED_ROWS_H_
