#include "cuda/ops/gated_delta/delta_chunks.h"

#include <cstdint>

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/pieces.h"
#include "cuda/ops/gated_delta/chunk_matrices.h"
#include "cuda/ops/gated_delta/chunk_state.h"
#include "cuda/ops/gated_delta/delta_operands.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/states/state_runs.h"

namespace pagemill::gpu {
namespace {

// Two warps advance states by a chunk while two others make the matrices of the next one, and the
// rows of the one after it are on their way to shared memory.
constexpr int kStateWarps = kDeltaColumns / ChunkState::kColumns;
constexpr int kKeyWarp = kStateWarps;
constexpr int kThreads = 32 * (kStateWarps + 2);

struct BlockMemory {
  DeltaRows rows[3];
  ChunkMatrices matrices[2];
  KeyScratch of_keys;
  QueryScratch of_queries;
};

// Rows of the step: none if there is no further chunk.
struct Chunk {
  int32_t begin = 0;
  int count = 0;
  int32_t target = ops::kNullPage;  // where the state behind it is stored, if anywhere
};

PAGEMILL_DEVICE Chunk NextChunk(StateRuns& runs) {
  if (!runs.Next(kDeltaChunk)) return {};
  const ops::StateRun& run = runs.run();
  return {run.begin, run.end - run.begin, run.target};
}

// Columns of v of a head of a request.
class DeltaBlock {
 public:
  PAGEMILL_DEVICE DeltaBlock(const DeltaOperands<BFloat16>& args, const HeadOffsets& head_at, int head,
                             int column, bool is_aligned)
      : args_(args),
        head_at_(head_at),
        head_(head),
        column_(column),
        is_aligned_(is_aligned),
        memory_(*DynamicShared<BlockMemory>()) {}

  PAGEMILL_DEVICE void Run(StateRuns runs) {
    const int own = Warp() * ChunkState::kColumns;  // of a warp with a state
    const int64_t matrix = int64_t{head_} * args_.keys * args_.values;
    const float rate = -Exp(args_.a_log[head_]), bias = args_.dt_bias[head_];
    const int32_t source = runs.run().target;  // further runs go on with the state of the last one
    Chunk walked, made = NextChunk(runs), copied = NextChunk(runs);
    CopyRows(made, memory_.rows[0]);
    RawGate raw = Fetch(made);
    ChunkState state(args_.keys, args_.values, column_ + own);
    if (Warp() < kStateWarps) {
      state.Load(source == ops::kNullPage ? nullptr : args_.states[source] + matrix);
    }
    WaitCopies<0>();
    SyncBlock();  // the first rows are there
    for (int i = 0; walked.count > 0 || made.count > 0; ++i) {
      if (copied.count > 0) CopyRows(copied, memory_.rows[(i + 1) % 3]);
      const DeltaRows& rows = memory_.rows[i % 3];
      ChunkMatrices& matrices = memory_.matrices[i % 2];
      if (Warp() < kStateWarps) {
        if (walked.count > 0) {
          state.Advance(memory_.rows[(i + 2) % 3], own, memory_.matrices[(i + 1) % 2],
                        [&](int token, int column, BFloat16 y0, BFloat16 y8) {
            StoreResults(walked, token, column_ + own + column, y0, y8);
          });
          if (walked.target != ops::kNullPage) state.Store(args_.states[walked.target] + matrix);
        }
      } else if (made.count > 0) {
        Gate gate = GateOf(ToFloat(raw.a), ToFloat(raw.b), rate, bias, args_.share_scale);
        if (Lane() >= made.count) gate = {0, 0};
        raw = Fetch(copied);
        if (Warp() == kKeyWarp) {
          MakeKeyMatrices(rows, args_.keys, gate, memory_.of_keys, matrices);
        } else {
          MakeQueryMatrices(rows, args_.keys, args_.q_scale, gate, memory_.of_queries, matrices);
        }
      }
      WaitCopies<0>();
      SyncBlock();  // the matrices and copies are there, and the rows before have been read
      walked = made;
      made = copied;
      copied = NextChunk(runs);
    }
  }

 private:
  struct RawGate {
    BFloat16 a = {}, b = {};
  };

  // The lane's token.
  PAGEMILL_DEVICE RawGate Fetch(const Chunk& chunk) const {
    if (Warp() < kStateWarps || Lane() >= chunk.count) return {};
    const int32_t row = chunk.begin + Lane();
    return {args_.a[row][head_], args_.b[row][head_]};
  }

  // Eight threads copy a row of keys, so that they write to different banks.
  PAGEMILL_DEVICE void CopyRows(const Chunk& chunk, DeltaRows& to) const {
    constexpr int kOfRow = kKeysAtOnce / kPiece, kRows = kThreads / kOfRow;
    const int thread = static_cast<int>(ThreadIndex().x);
    PAGEMILL_UNROLL
    for (int first = 0; first < kDeltaChunk; first += kRows) {
      const int token = first + thread / kOfRow;
      const BFloat16* const row = args_.data + (chunk.begin + token) * args_.stride;
      PAGEMILL_UNROLL
      for (int key = 0; key < kMostDeltaKeys; key += kOfRow * kPiece) {
        const int at = key + thread % kOfRow * kPiece;
        if (key >= args_.keys) break;
        const int count = token < chunk.count && at < args_.keys ? kPiece : 0;
        Copy(count, row + head_at_.k + at, &to.k[token][at]);
        Copy(count, row + head_at_.q + at, &to.q[token][at]);
      }
    }
    constexpr int kOfValues = kDeltaColumns / kPiece;
    static_assert(kThreads == kDeltaChunk * kOfValues);
    const int token = thread / kOfValues, at = thread % kOfValues * kPiece;
    const BFloat16* const row = args_.data + (chunk.begin + token) * args_.stride;
    Copy(token < chunk.count ? args_.values - column_ - at : 0, row + head_at_.v + column_ + at,
         &to.v[token][at]);
    CommitCopies();
  }

  // Copies a piece of which `count` elements exist, if not more; others are zeros.
  PAGEMILL_DEVICE void Copy(int count, const BFloat16* from, BFloat16* to) const {
    if (is_aligned_ || count <= 0) return CopyPiece(count > 0 ? from : nullptr, to);
    for (int i = 0; i < kPiece; ++i) to[i] = i < count ? from[i] : BFloat16{0};
  }

  // Stores results of a token at `column` and eight further.
  PAGEMILL_DEVICE void StoreResults(const Chunk& chunk, int token, int column, BFloat16 y0,
                                    BFloat16 y8) const {
    if (token >= chunk.count) return;
    BFloat16* const to = args_.y[chunk.begin + token] + head_ * args_.values + column;
    if (column < args_.values) to[0] = y0;
    if (column + 8 < args_.values) to[8] = y8;
  }

  const DeltaOperands<BFloat16>& args_;
  const HeadOffsets head_at_;
  const int head_, column_;
  const bool is_aligned_;
  BlockMemory& memory_;
};

// Block (head and columns, request).
template <typename T>
PAGEMILL_KERNEL_OF(kThreads, 2)
DeltaChunks(DeltaOperands<T> args, HeadParts parts, int heads, int32_t fewest_tokens,
            bool is_aligned, StepTokens batch) {
  const int request = static_cast<int>(BlockIndex().y);
  const int32_t* const first_row = batch.query_start + request;
  if (first_row[1] - first_row[0] < fewest_tokens) return;
  const int tiles = static_cast<int>(GridSize().x) / heads;
  const int head = static_cast<int>(BlockIndex().x) / tiles;
  const int column = static_cast<int>(BlockIndex().x) % tiles * kDeltaColumns;
  DeltaBlock(args, parts.At(head), head, column, is_aligned).Run(StateRuns(batch, request));
}

}  // namespace

bool SupportsDeltaChunks(const device::Capabilities& caps, const ops::OpCall& call) {
  const ops::GatedDeltaArgs args = ops::ToGatedDeltaArgs(call);
  return OnEveryGpu(caps, call) && HasTensorCores(caps) && args.qkv.dtype == DType::kBF16 &&
         args.rates == 1 && args.keys % 16 == 0 && args.keys <= kMostDeltaKeys &&
         static_cast<int64_t>(sizeof(BlockMemory)) <= caps.gpu.shared_memory_per_block_bytes;
}

void RunDeltaChunks(const ops::GatedDeltaArgs& args, int32_t fewest_tokens,
                    ops::KernelContext& context) {
  const bool is_aligned =
      HasAlignedRows(args.qkv) && args.keys % kPiece == 0 && args.values % kPiece == 0;
  const uint32_t tiles = DivideUp(args.values, kDeltaColumns);
  const LaunchShape shape = {.blocks = {static_cast<uint32_t>(args.heads) * tiles,
                                        static_cast<uint32_t>(args.batch->num_requests)},
                             .threads = {kThreads},
                             .shared_bytes = sizeof(BlockMemory)};
  const auto launch = [&]<typename T>(T) {
    if constexpr (kHasMma) {
      Launch(*context.stream, shape, DeltaChunks<T>, OperandsOf<T>(args), HeadParts::Of(args),
             args.heads, fewest_tokens, is_aligned, StepTokensOf(*args.batch));
    }
  };
  launch(BFloat16{});
}

}  // namespace pagemill::gpu
