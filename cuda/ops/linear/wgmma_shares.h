// File: cuda/ops/linear/wgmma_shares.h
// Products of few rows in the words of gpu_wgmma.h, in equal shares. A step is a tile of weights, of
// some outputs and some columns; a block stays on its multiprocessor and has as many steps as all
// others, give or take one, whichever matrices they are of. Where a tile is of several blocks, the
// last one that is done adds their sums, in the order of K.
//
//   ForWork(shares, [&](const Work& work) {
//     Sums<T> sums;
//     for (int step = work.begin; step < work.end; ++step) { ... }   // adds products to sums.values
//     if (!work.IsWhole(shares) && !Gather(shares, work, sums)) return;
//     sums.StoreResults(results[work.product], FirstOutput<T>(shares, work), rows);
//   });
//
// A tile T has kParts times kOutputsOfPart outputs and kRows rows of x. The first kConsumers threads
// of a block multiply.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_WGMMA_SHARES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_WGMMA_SHARES_H_

#include <algorithm>
#include <cstdint>

#include "cc/ops/linear/linear.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/gpu_wgmma.h"
#include "cuda/ops/linear/tensor_cores.h"

namespace pagemill::gpu::wgmma_shares {

inline constexpr int kConsumers = 2 * kWarpgroupThreads, kConsumerWarps = kConsumers / 32;
inline constexpr int kOutputsOfPart = kConsumers / kWarpgroupThreads * kProductRows;

// The multiprocessors of an H100 or H200: sums that blocks share have room for no more.
inline constexpr int64_t kMostBlocks = 132;
static_assert(kMostBlocks * kConsumerWarps <= GpuStream::kCounters);

template <typename T>
constexpr int kOutputs = T::kParts * kOutputsOfPart;

template <typename T>
constexpr int64_t kBytesOfSums = 2 * kMostBlocks * kOutputs<T> * T::kRows * int64_t{sizeof(float)};

struct Shares {
  int32_t steps;                              // of a tile
  float* sums;                                // [2 * blocks, kOutputs, kRows], of a thread as they
                                              // lie in its registers
  uint32_t* counters;                         // of the stream
  int32_t num_products;
  int32_t first_tile[ops::kMaxMatrices + 1];  // of a product

  int64_t Blocks(const GpuStream& stream) const {
    return std::min({int64_t{first_tile[num_products]} * steps, kMostBlocks,
                     int64_t{stream.capabilities().multiprocessors}});
  }

  // Times all blocks, a number of 32 bits: weights of a step have 8 KiB and more.
  PAGEMILL_DEVICE uint32_t AllSteps() const {
    return static_cast<uint32_t>(first_tile[num_products] * steps);
  }
  PAGEMILL_DEVICE int FirstStepOf(uint32_t block) const {
    return static_cast<int>(AllSteps() * block / GridSize().x);
  }
  // The one that has this step of all.
  PAGEMILL_DEVICE int BlockOf(int step) const {
    return static_cast<int>((static_cast<uint32_t>(step + 1) * GridSize().x - 1) / AllSteps());
  }
};

// The steps of a tile that a block has.
struct Work {
  int tile, product, begin, end;

  PAGEMILL_DEVICE bool IsWhole(const Shares& shares) const { return end - begin == shares.steps; }
};

// Calls visit(work) for that of the block.
template <typename Visit>
PAGEMILL_DEVICE void ForWork(const Shares& shares, const Visit& visit) {
  const int end = shares.FirstStepOf(BlockIndex().x + 1);
  int product = 0;
  for (int step = shares.FirstStepOf(BlockIndex().x); step < end;) {
    const int tile = step / shares.steps, begin = step - tile * shares.steps;
    const int left = end - tile * shares.steps;
    while (tile >= shares.first_tile[product + 1]) ++product;
    const Work work = {tile, product, begin, left < shares.steps ? left : shares.steps};
    visit(work);
    step += work.end - work.begin;
  }
}

template <typename T>
PAGEMILL_DEVICE int FirstOutput(const Shares& shares, const Work& work) {
  return (work.tile - shares.first_tile[work.product]) * kOutputs<T>;
}

// Where sums go.
struct Results {
  int32_t outputs;
  const float* bias;  // or null
  Rows<BFloat16> y;
  Rows<float> wide_y;  // has data if y is f32

  static Results Of(const Product& product) {
    Results results = {.outputs = static_cast<int32_t>(product.w.shape[0]),
                       .bias = product.bias,
                       .y = {},
                       .wide_y = {}};
    if (product.y.dtype == DType::kF32) {
      results.wide_y = RowsOf<float>(product.y);
    } else {
      results.y = RowsOf<BFloat16>(product.y);
    }
    return results;
  }
  template <typename Visit>
  void ForData(const Visit& visit) const {
    visit(bias);
    visit(y.data);
    visit(wide_y.data);
  }
};

// The sums of a consumer. With j, i and t as gpu_wgmma.h has them, sum 4 * j + i of a part is of
// output Output(part, i / 2) of the tile and of row Row(j, i % 2).
template <typename T>
struct Sums {
  static constexpr int kCount = T::kRows / 2;
  float values[T::kParts][kCount] = {};

  PAGEMILL_DEVICE static int Output(int part, int second) {
    return part * kOutputsOfPart + Warp() * 16 + Lane() / 4 + 8 * second;
  }
  PAGEMILL_DEVICE static int Row(int j, int second) { return 8 * j + Lane() % 4 * 2 + second; }

  // Where a part of the consumer's sums lies among those of a block, a Vector of four each.
  PAGEMILL_DEVICE static Vector<float, 4>* In(float* sums, int slot, int part, int j) {
    constexpr int kVectors = T::kParts * kCount / 4;
    const int64_t at = int64_t{slot} * kVectors + part * (kCount / 4) + j;
    return reinterpret_cast<Vector<float, 4>*>(sums) + at * kConsumers + ThreadIndex().x;
  }
  PAGEMILL_DEVICE void StoreIn(float* sums, int slot) const {
    ForFours([&](int part, int j) {
      Vector<float, 4> four;
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) four.values[i] = values[part][4 * j + i];
      *In(sums, slot, part, j) = four;
    });
  }
  PAGEMILL_DEVICE void AddFrom(float* sums, int slot) {
    ForFours([&](int part, int j) {
      const Vector<float, 4> four = *In(sums, slot, part, j);
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) values[part][4 * j + i] += four.values[i];
    });
  }

  PAGEMILL_DEVICE void StoreResults(const Results& results, int first_output, int rows) const {
    float biases[T::kParts][2] = {};
    PAGEMILL_UNROLL
    for (int part = 0; part < T::kParts; ++part) {
      PAGEMILL_UNROLL
      for (int second = 0; second < 2; ++second) {
        const int output = first_output + Output(part, second);
        if (results.bias == nullptr || output >= results.outputs) continue;
        biases[part][second] = results.bias[output];
      }
    }
    if (results.wide_y.data != nullptr) {
      StoreRows(results.wide_y, biases, results.outputs - first_output, first_output, rows);
    } else {
      StoreRows(results.y, biases, results.outputs - first_output, first_output, rows);
    }
  }

 private:
  // `outputs` are left from the first one on.
  template <typename Y>
  PAGEMILL_DEVICE void StoreRows(const Rows<Y>& y, const float (&biases)[T::kParts][2],
                                 int outputs, int first_output, int rows) const {
    PAGEMILL_UNROLL
    for (int i = 0; i < T::kRows / 4; ++i) {
      const int row = Row(i / 2, i % 2);
      if (row >= rows) continue;
      Y* const of_row = y[row] + first_output;
      PAGEMILL_UNROLL
      for (int part = 0; part < T::kParts; ++part) {
        PAGEMILL_UNROLL
        for (int second = 0; second < 2; ++second) {
          const int output = Output(part, second);
          const float sum = values[part][i / 2 * 4 + second * 2 + i % 2] + biases[part][second];
          if (output < outputs) of_row[output] = FromFloat<Y>(sum);
        }
      }
    }
  }

  template <typename Visit>
  PAGEMILL_DEVICE static void ForFours(const Visit& visit) {
    PAGEMILL_UNROLL
    for (int part = 0; part < T::kParts; ++part) {
      PAGEMILL_UNROLL
      for (int j = 0; j < kCount / 4; ++j) visit(part, j);
    }
  }
};

// Stores the sums of some steps of a tile. True if all those of the tile are there, which `sums` are
// now.
template <typename T>
PAGEMILL_DEVICE bool Gather(const Shares& shares, const Work& work, Sums<T>& sums) {
  const int first = shares.BlockOf(work.tile * shares.steps);
  const int last = shares.BlockOf(work.tile * shares.steps + shares.steps - 1);
  // A block may end a tile that others began, and begin one that others end.
  const auto slot_of = [&](int block) { return 2 * block + (block == first ? 1 : 0); };
  sums.StoreIn(shares.sums, slot_of(static_cast<int>(BlockIndex().x)));
  if (!CountWarp(&shares.counters[first * kConsumerWarps + Warp()], last - first + 1)) return false;
  sums = {};
  for (int block = first; block <= last; ++block) sums.AddFrom(shares.sums, slot_of(block));
  return true;
}

}  // namespace pagemill::gpu::wgmma_shares

#endif  // PAGEMILL_CUDA_OPS_LINEAR_WGMMA_SHARES_H_
