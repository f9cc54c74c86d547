#include "cuda/ops/attention/tensor_cores.h"

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/pieces.h"
#include "cuda/ops/attention/token_scores.h"
#include "cuda/ops/attention/weighted_values.h"
#include "cuda/ops/gpu_support.h"

namespace pagemill::gpu {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kRowsOfWarp = 16, kRows = kWarps * kRowsOfWarp;
constexpr int kKeys = 64;  // of a tile

constexpr int64_t kMostHeadDim = 128;
constexpr int kFewChunks = 4, kMostChunks = kMostHeadDim / 16;  // of 16 elements of a head

// Parameters of a call.
struct TokenCall {
  TokenScores scores;
  Rows<const BFloat16> q, k, v;
  Rows<BFloat16> y;
  int head_dim, group_size;
  RequestRows requests;
};

// A tile of keys of a request.
struct KeyTile {
  int32_t request;
  int start, rows;    // of the request
  int first, end;     // the tile's first key, and the end of those that the block's rows see
};

// The tiles that rows `first` to `end - 1` of the step see, in order.
class KeyTiles {
 public:
  PAGEMILL_DEVICE KeyTiles(const TokenCall& call, int first, int end)
      : call_(call), first_(first), end_(end) {
    tile_.request = call.requests.RequestOfRow(first);
    FindRequest();
  }

  PAGEMILL_DEVICE bool HasTile() const { return tile_.request < call_.requests.num_requests; }
  PAGEMILL_DEVICE const KeyTile& Tile() const { return tile_; }
  PAGEMILL_DEVICE void Next() {
    tile_.first += kKeys;
    if (tile_.first < tile_.end) return;
    ++tile_.request;
    FindRequest();
  }

 private:
  // The first tile of tile_.request, or of the next one with rows of the block.
  PAGEMILL_DEVICE void FindRequest() {
    for (; tile_.request < call_.requests.num_requests; ++tile_.request) {
      tile_.start = call_.requests.Start(tile_.request);
      tile_.rows = call_.requests.Start(tile_.request + 1) - tile_.start;
      if (tile_.start >= end_) break;
      if (tile_.rows == 0) continue;
      const int row = first_ < tile_.start ? 0 : first_ - tile_.start;
      const int end_row = end_ - tile_.start < tile_.rows ? end_ - tile_.start : tile_.rows;
      tile_.first = call_.scores.SeenBy(tile_.start, row, tile_.rows).low / kKeys * kKeys;
      tile_.end = call_.scores.SeenBy(tile_.start, end_row - 1, tile_.rows).high;
      return;
    }
    tile_.request = call_.requests.num_requests;
  }

  const TokenCall& call_;
  const int first_, end_;
  KeyTile tile_;
};

// The tokens of a block, for a head.
template <int kChunks>
class TokenTile {
 public:
  PAGEMILL_DEVICE TokenTile(const TokenCall& call, int first, int end, int head)
      : call_(call),
        head_(head),
        own_(first + Warp() * kRowsOfWarp + Lane() / 4),
        end_(end),
        tiles_(call, first, end),
        shared_(DynamicShared<BFloat16>()) {
    const int t = Lane() % 4;
    const auto pair = [&](int row, int d) -> uint32_t {
      if (own_ + row >= end_ || d >= call_.head_dim) return 0;
      return *reinterpret_cast<const uint32_t*>(call_.q[own_ + row] + head_ * call_.head_dim + d);
    };
    PAGEMILL_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      const int d = chunk * 16 + 2 * t;
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) queries_[chunk][i] = pair(8 * (i % 2), d + 8 * (i / 2));
    }
    if (call.scores.sinks == nullptr) return;
    // A weight of 1 for each row, which one of its four lanes adds.
    const SoftmaxState sink = {call.scores.sinks[head], t == 0 ? 1.0f : 0.0f};
    states_[0] = sink;
    states_[1] = sink;
  }

  // Width of rows in shared memory: whole chunks of a head, the rest zeros.
  PAGEMILL_DEVICE int Width() const { return (call_.head_dim + 15) / 16 * 16; }
  static int64_t SharedBytes(int64_t head_dim) {
    return 4 * kKeys * ((head_dim + 15) / 16 * 16 + kRowPadding) *
           static_cast<int64_t>(sizeof(BFloat16));
  }

  PAGEMILL_DEVICE void Run() {
    if (tiles_.HasTile()) CopyTile(tiles_.Tile(), /*buffer=*/0);
    for (int buffer = 0; tiles_.HasTile(); buffer ^= 1) {
      const KeyTile tile = tiles_.Tile();
      tiles_.Next();
      WaitCopies<0>();
      SyncBlock();  // the tile is there, and the one before has been read
      if (tiles_.HasTile()) CopyTile(tiles_.Tile(), buffer ^ 1);
      SeenKeys seen[2];
      bool some = false, all = true;
      PAGEMILL_UNROLL
      for (int r = 0; r < 2; ++r) {
        const int row = own_ + 8 * r - tile.start;
        seen[r] = row >= 0 && row < tile.rows && own_ + 8 * r < end_
                      ? call_.scores.SeenBy(tile.start, row, tile.rows)
                      : SeenKeys{0, 0};
        some = some || (seen[r].low < tile.first + kKeys && seen[r].high > tile.first);
        all = all && seen[r].low <= tile.first && seen[r].high >= tile.first + kKeys;
      }
      if (Ballot(AllLanes(), some) == 0) continue;
      if (Ballot(AllLanes(), !all) == 0) {
        AttendKeys<true>(tile, seen, Keys(buffer));
      } else {
        AttendKeys<false>(tile, seen, Keys(buffer));
      }
    }
    Store();
  }

 private:
  PAGEMILL_DEVICE int Stride() const { return Width() + kRowPadding; }
  PAGEMILL_DEVICE BFloat16* Keys(int buffer) const {
    return shared_ + 2 * buffer * kKeys * Stride();
  }
  PAGEMILL_DEVICE static uint32_t PairAt(const BFloat16* from) {
    return *reinterpret_cast<const uint32_t*>(from);
  }

  // Keys, then values. Those that no row of the block sees are zeros.
  PAGEMILL_DEVICE void CopyTile(const KeyTile& tile, int buffer) const {
    const int first_of_row = head_ / call_.group_size * call_.head_dim;
    BFloat16* const to = Keys(buffer);
    ForPieces(kKeys, Width() / kPiece, kThreads, [&](int key, int piece) {
      const bool exists = tile.first + key < tile.end && piece * kPiece < call_.head_dim;
      const int64_t row = tile.start + tile.first + key, at = first_of_row + piece * kPiece;
      BFloat16* const of_key = to + key * Stride() + piece * kPiece;
      CopyPiece(exists ? call_.k[row] + at : nullptr, of_key);
      CopyPiece(exists ? call_.v[row] + at : nullptr, of_key + kKeys * Stride());
    });
    CommitCopies();
  }

  // kAllSeen: by every row of the warp.
  template <bool kAllSeen>
  PAGEMILL_DEVICE void AttendKeys(const KeyTile& tile, const SeenKeys (&seen)[2],
                                  const BFloat16* keys) {
    float scores[kKeys / 8][4] = {};
    MultiplyKeys(keys, scores);
    uint32_t weights[kKeys / 8][2];
    PAGEMILL_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = own_ + 8 * r - tile.start;
      PAGEMILL_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        PAGEMILL_UNROLL
        for (int i = 2 * r; i < 2 * r + 2; ++i) {
          const int key = tile.first + 8 * n + Lane() % 4 * 2 + i % 2;
          const bool is_seen = kAllSeen || (key >= seen[r].low && key < seen[r].high);
          scores[n][i] =
              is_seen ? call_.scores.Score(scores[n][i], head_, tile.start, row, key) : -INFINITY;
        }
      }
      const float kept = WeighRow(r, scores, states_[r], weights);
      PAGEMILL_UNROLL
      for (auto& sums : sums_) {
        sums[2 * r] *= kept;
        sums[2 * r + 1] *= kept;
      }
    }
    AddValues<kAllSeen>(weights, keys + kKeys * Stride(), Stride(), Width(), sums_);
  }

  PAGEMILL_DEVICE void MultiplyKeys(const BFloat16* keys, float (&scores)[kKeys / 8][4]) const {
    const BFloat16* const key = keys + Lane() / 4 * Stride() + Lane() % 4 * 2;
    PAGEMILL_UNROLL
    for (int chunk = 0; chunk < kChunks; ++chunk) {
      if (chunk * 16 >= call_.head_dim) break;
      PAGEMILL_UNROLL
      for (int n = 0; n < kKeys / 8; ++n) {
        const BFloat16* const at = key + n * 8 * Stride() + chunk * 16;
        Mma16x8x16(scores[n], queries_[chunk], {PairAt(at), PairAt(at + 8)});
      }
    }
  }

  PAGEMILL_DEVICE void Store() const {
    PAGEMILL_UNROLL
    for (int r = 0; r < 2; ++r) {
      const float total = WarpReduce(states_[r].sum, Sum{}, 4);
      if (own_ + 8 * r >= end_) continue;
      BFloat16* const row = call_.y[own_ + 8 * r] + head_ * call_.head_dim;
      PAGEMILL_UNROLL
      for (int n = 0; n < 2 * kChunks; ++n) {
        if (n * 8 >= call_.head_dim) break;
        *reinterpret_cast<uint32_t*>(row + n * 8 + Lane() % 4 * 2) =
            PackBFloat16(sums_[n][2 * r] / total, sums_[n][2 * r + 1] / total);
      }
    }
  }

  const TokenCall& call_;
  const int head_;
  const int own_, end_;  // rows: the lane's first, and the block's end
  KeyTiles tiles_;
  BFloat16* const shared_;  // two tiles of keys and of values, [kKeys, Stride()] each
  uint32_t queries_[kChunks][4];
  SoftmaxState states_[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
  float sums_[2 * kChunks][4] = {};
};

// Block (rows, head).
template <int kChunks>
PAGEMILL_KERNEL_OF(kThreads, kChunks == kFewChunks ? 3 : 2)
AttendTokensOnCores(TokenCall call) {
  const int first = static_cast<int>(BlockIndex().x) * kRows;
  const int rows = call.requests.End();
  if (first >= rows) return;
  const int end = first + kRows < rows ? first + kRows : rows;
  TokenTile<kChunks>(call, first, end, static_cast<int>(BlockIndex().y)).Run();
}

template <typename Body>
void WithChunks(int64_t head_dim, const Body& body) {
  if (head_dim <= 16 * kFewChunks) return body.template operator()<kFewChunks>();
  body.template operator()<kMostChunks>();
}

}  // namespace

bool SupportsTokensOnTensorCores(const device::Capabilities& caps, const ops::OpCall& call) {
  const TensorView& q = call.inputs[0];
  return OnEveryGpu(caps, call) && HasTensorCores(caps) && q.dtype == DType::kBF16 &&
         q.shape[2] % kPiece == 0 && q.shape[2] <= kMostHeadDim &&
         TokenTile<kMostChunks>::SharedBytes(q.shape[2]) <= caps.gpu.shared_memory_per_block_bytes;
}

void AttendTokensOnTensorCores(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& q = call.inputs[0];
  const int64_t heads = q.shape[1], head_dim = q.shape[2];
  const TokenCall of = {.scores = ScoresOf(call, context.plan),
                        .q = RowsOf<const BFloat16>(q),
                        .k = RowsOf<const BFloat16>(call.inputs[1]),
                        .v = RowsOf<const BFloat16>(call.inputs[2]),
                        .y = RowsOf<BFloat16>(call.outputs[0]),
                        .head_dim = static_cast<int>(head_dim),
                        .group_size = static_cast<int>(heads / call.inputs[1].shape[1]),
                        .requests = RequestRowsOf(call)};
  WithChunks(head_dim, [&]<int kChunks>() {
    if constexpr (kHasMma) {
      Launch(*context.stream,
             {.blocks = {DivideUp(q.shape[0], kRows), static_cast<uint32_t>(heads)},
              .threads = {kThreads},
              .shared_bytes = TokenTile<kChunks>::SharedBytes(head_dim)},
             AttendTokensOnCores<kChunks>, of);
    }
  });
}

}  // namespace pagemill::gpu
