// File: cc/program/weights/weights.h
// The bytes of a program's weights. Mapped from their files if they can be used in place; copied if
// not: constants, elements that are not aligned to their size, and, on a big-endian host, elements
// of more than one byte (files are little endian; block formats are read byte by byte). Vectors and
// the scales of scaled matrices are also copied: once matrices are packed, a mapped vector would
// keep up to 2 MiB of the file in the page cache for 2 KB. For a quantized weight or a stack, only
// the parts are here (packed_weights.h makes the rest).
//
//   PAGEMILL_ASSIGN_OR_RETURN(Weights weights, Weights::Load(program));
//   const void* data = weights.data(weight_id);
//
// Immutable after Load(); thread-safe.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "cc/base/status.h"
#include "cc/program/program.h"
#include "cc/program/weights/mapped_file.h"

namespace pagemill::program {

// The file bytes of a weight: file, offset, size, strides of rows and columns. Tied weights have
// equal ranges. A weight made of others has a unique one.
using ByteRange = std::tuple<int32_t, int64_t, int64_t, int64_t, int64_t>;
ByteRange StoredRange(const Program& program, ValueId weight);

struct WeightBytes {
  int64_t total_bytes = 0;  // all weights in files, each byte range once
  // The part that is copied to memory instead of mapped. Columns of a wider matrix are copied with
  // the bytes between them.
  int64_t copied_bytes = 0;
};

// Computes only sizes; opens no file.
WeightBytes CountWeightBytes(const Program& program);

// Copies `source` (little-endian elements of `element_bytes`: 1, 2 or 4) to `target` of the same
// size in this host's byte order.
void CopyElements(std::span<const std::byte> source, int32_t element_bytes,
                  std::span<std::byte> target);

class Weights {
 public:
  // The program's files in its order, without the constants.
  using Files = std::shared_ptr<const std::vector<MappedFile>>;

  // Maps each file once; those of `mapped` are not opened again. kDataLoss if a weight lies beyond
  // the end of its file; the file's own errors otherwise.
  static StatusOr<Files> Open(const Program& program, std::span<const MappedFile> mapped = {});
  // `files` are those that Open() mapped for this program.
  static Weights Load(const Program& program, Files files);
  // Both.
  static StatusOr<Weights> Load(const Program& program);

  // With the strides of the file. Null for a weight that is made of others.
  const std::byte* data(ValueId weight) const { return data_[static_cast<size_t>(weight.value())]; }

  std::span<const MappedFile> files() const { return *files_; }

  // Releases the memory of all file pages that were read so far. They are read again when touched
  // again.
  void DropPages() const;

 private:
  Files files_;
  std::vector<std::unique_ptr<std::byte[]>> copies_;
  std::vector<const std::byte*> data_;  // per value; null unless it is a weight in a file
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_WEIGHTS_H_
