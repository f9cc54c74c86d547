// File: cc/program/weights/packed_layout.h
// Which packed copies of its weights a program needs, which operands read them, and their offsets
// in one piece of memory. Operands that share a weight and a packed layout share the copy.
//
//   const PackedLayout layout(program, kernels);
//   layout.bytes().packed_bytes                    // of the memory
//   for (const PackedCopy& copy : layout.copies()) Pack(copy, memory + copy.offset);
//
// Computed from the program alone; reads no file. Immutable after construction.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_PACKED_LAYOUT_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_PACKED_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/ops/op.h"
#include "cc/program/program.h"
#include "cc/program/weights/weights.h"
#include "cc/tensor/quantized.h"

namespace pagemill::program {

struct PackedBytes {
  int64_t packed_bytes = 0;  // all packed copies
  int64_t stored_bytes = 0;  // their sources, each byte range once
};

struct PackedCopy {
  const ops::WeightPacking* packing = nullptr;  // null: row-major
  ValueId weight;
  TensorView view;                    // no data yet; the layout owns its parts, if any
  const std::byte* shared = nullptr;  // another program's copy of the same content
  int64_t offset = 0;                 // else: offset in the memory of all copies

  int64_t bytes() const;
  const std::byte* data(const std::byte* memory) const {
    return shared != nullptr ? shared : memory + offset;
  }
};

// An operand that reads a copy.
struct PackedUse {
  size_t op;
  size_t input;
  size_t copy;      // index
  bool end_to_end;  // the kernel reads all of it sequentially
};

// The recipe of a copy (weight_recipe.h): copies with equal text have the same bytes.
std::string ContentOf(const Program& program, const PackedCopy& copy,
                      std::span<const std::string> file_names);

class PackedLayout {
 public:
  // Returns another program's copy of the same content, or null.
  using FindShared = std::function<const std::byte*(const PackedCopy&)>;

  // `kernels`: one per op.
  PackedLayout(
      const Program& program, std::span<const ops::Kernel* const> kernels,
      FindShared find_shared = [](const PackedCopy&) { return nullptr; });

  const std::vector<PackedCopy>& copies() const { return copies_; }
  const std::vector<PackedUse>& uses() const { return uses_; }
  // Stacks that are parts of operands, with the index of their copies.
  const std::map<ValueId, size_t>& parts() const { return parts_; }
  // Quantized weights whose parts some kernel reads as stored.
  const std::set<ValueId>& stored_quantized() const { return stored_quantized_; }
  // Excludes shared copies.
  const PackedBytes& bytes() const { return bytes_; }

 private:
  void AddUse(size_t op, size_t input, ValueId weight, const ops::WeightPacking& packing);
  void AddFollower(size_t op, size_t input, ValueId weight, const ops::WeightPacking* packing);
  size_t CopyOf(ValueId weight, const ops::WeightPacking* packing);
  void KeepParts(ValueId weight, bool values);
  void CountStored(ValueId weight);

  const Program& program_;
  FindShared find_shared_;  // called by the constructor only
  std::vector<PackedCopy> copies_;
  std::vector<PackedUse> uses_;
  std::map<ValueId, size_t> parts_;
  std::set<ValueId> stored_quantized_;
  PackedBytes bytes_;
  std::map<std::pair<ByteRange, std::string_view>, size_t> known_;  // -> index of the copy
  std::set<ByteRange> stored_;
  std::deque<QuantizedParts> quantized_;  // of copies
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_PACKED_LAYOUT_H_
