#include "cuda/ops/linear/awq_tiles.h"

#include <algorithm>
#include <array>

#include "cc/ops/quantized/packed_integers.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kWordRows = 8;  // of a stored word
constexpr int64_t kTileColumns = int64_t{AwqTiles::kRowWords} * kWeightsAtOnce;

int64_t TilesOf(const TensorView& w) { return (w.shape[0] + AwqTiles::kRows - 1) / AwqTiles::kRows; }

// Nibble n of word i becomes nibble i of word n.
void Transpose(std::array<uint32_t, 8>& words) {
  constexpr uint32_t kMasks[] = {0x0f0f0f0f, 0x00ff00ff, 0x0000ffff};
  for (size_t step = 0; step < 3; ++step) {
    const size_t distance = size_t{1} << step;
    const auto bits = static_cast<unsigned>(4 * distance);
    for (size_t i = 0; i < words.size(); ++i) {
      if (i & distance) continue;
      uint32_t& low = words[i];
      uint32_t& high = words[i + distance];
      const uint32_t exchanged = (low >> bits ^ high) & kMasks[step];
      high ^= exchanged;
      low ^= exchanged << bits;
    }
  }
}

}  // namespace

bool FitAwqTiles(const TensorView& w) {
  if (w.rank != 2 || w.parts == nullptr) return false;
  const QuantizedFormat& format = w.parts->format;
  return format.layout == QuantizedLayout::kAwq && w.parts->groups.rank == 0 &&
         format.first_row % kWordRows == 0 && w.shape[0] % kWordRows == 0 &&
         format.first_column % kChunkColumns == 0 && w.shape[1] % kChunkColumns == 0 &&
         AreReadable(w);
}

int64_t AwqTilesBytes(const TensorView& w) {
  return TilesOf(w) * AwqTiles::SpansOf(w.shape[1]) * AwqTiles::kTileWords *
         static_cast<int64_t>(sizeof(uint32_t));
}

Status PackAwqTiles(const TensorView& w, std::byte* packed, device::ThreadPool& pool) {
  if (!FitAwqTiles(w)) return Unimplemented("the matrix does not begin and end with words");
  PAGEMILL_RETURN_IF_ERROR(ops::PackedIntegers(w, /*matrix=*/0).CheckNumbers());
  const QuantizedFormat& format = w.parts->format;
  const TensorView& values = w.parts->values;
  const int64_t octets = w.shape[0] / kWordRows, row_words = values.shape[1];
  const int64_t spans = AwqTiles::SpansOf(w.shape[1]);
  const uint32_t* const from = values.Data<const uint32_t>() + format.first_column * row_words +
                               format.first_row / kWordRows;
  auto* const to = reinterpret_cast<uint32_t*>(packed);
  const bool are_full = w.shape[0] % AwqTiles::kRows == 0 && w.shape[1] % kTileColumns == 0;
  if (!are_full) std::fill_n(to, AwqTilesBytes(w) / static_cast<int64_t>(sizeof(uint32_t)), 0u);
  // As many octets of rows as have a cache line of stored words.
  pool.ParallelFor(octets, /*grain=*/16, [&](int64_t begin, int64_t end, int) {
    for (int64_t column = 0; column < w.shape[1]; column += kWeightsAtOnce) {
      for (int64_t octet = begin; octet < end; ++octet) {
        std::array<uint32_t, 8> words;
        for (size_t i = 0; i < words.size(); ++i) {
          words[i] = from[(column + static_cast<int64_t>(i)) * row_words + octet];
        }
        Transpose(words);
        uint32_t* const rows = to + AwqTiles::WordOf(octet * kWordRows, column, spans);
        for (int64_t r = 0; r < kWordRows; ++r) {
          // Row r of a stored word is its nibble r % 2 * 4 + r / 2.
          rows[r * AwqTiles::kRowWords] = words[static_cast<size_t>(r % 2 * 4 + r / 2)];
        }
      }
    }
  });
  return OkStatus();
}

}  // namespace pagemill::gpu
