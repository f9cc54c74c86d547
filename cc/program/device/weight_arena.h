// File: cc/program/device/weight_arena.h
// Where the weights of a program lie in a block of device memory, and what their bytes are: stored
// ones as they are in their files, each range once, stacks matrix by matrix, and copies in the
// packed layouts that kernels require. Matrices of an op follow each other, as do parts of one
// kind, such as scales, without a gap if their bytes are a multiple of 64: a kernel may read
// several as one.
//
//   const WeightArena arena(program, kernels, /*offload_bytes=*/0);
//   device.Allocate(arena.bytes(), "weights");
//   for (const WeightArena::Piece& piece : arena.pieces()) Send(piece);   // offsets ascend
//
// Some may be offloaded: they lie in a block of the host's memory that kernels read over the bus.
// Ops that have a matrix are offloaded with all of their weights, in the order of what a step reads
// of them. Embeddings are first, of which it reads a row per token; then experts, of which it reads
// those that are chosen; then all others, the largest first. Vectors of other ops stay.
//
// Computed from the program alone; reads no file. The program must outlive it. Immutable after
// construction.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_WEIGHT_ARENA_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_WEIGHT_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cc/ops/op.h"
#include "cc/program/program.h"
#include "cc/program/weights/packed_layout.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

class WeightArena {
 public:
  struct Place {
    bool on_host = false;
    int64_t offset = 0;  // ascending in each of the two memories
    friend bool operator==(const Place&, const Place&) = default;
  };
  struct Piece {
    enum class Source {
      kStored,  // the bytes of `weight` in its file
      kRows,    // the rows of the matrix `weight`, without what lies between them
      kPacked,  // `copy`
    };
    Source source = Source::kStored;
    ValueId weight;
    const PackedCopy* copy = nullptr;
    int64_t bytes = 0;
    int64_t alignment = 1;
    Place place = {};
  };
  struct Operand {
    std::optional<size_t> piece;  // index; none: only its parts are read
    bool reordered = false;       // packed for its kernel (ops::WeightPacking), not row-major
    friend bool operator==(const Operand&, const Operand&) = default;
  };

  // `kernels`: one per op. Ops are offloaded until their weights are at least `offload_bytes`, or
  // all that may be.
  WeightArena(const Program& program, std::span<const ops::Kernel* const> kernels,
              int64_t offload_bytes);

  int64_t bytes() const { return bytes_; }            // of the device
  int64_t host_bytes() const { return host_bytes_; }  // of the host
  int64_t offloadable_bytes() const { return offloadable_bytes_; }
  const std::vector<Piece>& pieces() const { return pieces_; }
  // By op and input.
  const std::map<std::pair<size_t, size_t>, Operand>& operands() const { return operands_; }
  // The pieces of the parts of quantized weights that kernels read.
  const std::map<ValueId, size_t>& parts() const { return parts_; }
  const PackedLayout& packed() const { return packed_; }

 private:
  // A weight that is read as it is in its file.
  struct Stored {
    int kind;  // of those of an op, the lowest comes first
    ValueId weight;
    Operand* operand;  // null: it is a part
  };

  struct OpPieces;

  void AddPieces(std::span<const ops::Kernel* const> kernels);
  void AddCopy(const PackedCopy& copy);
  void AddOperand(size_t op, size_t input, const ops::Kernel& kernel, std::vector<Stored>& stored);
  size_t Store(ValueId weight, int64_t alignment);
  size_t Append(Piece piece);
  std::vector<OpPieces> PiecesOfOps() const;
  void Offload(int64_t offload_bytes);
  void PlacePieces();

  const Program& program_;
  const PackedLayout packed_;
  std::vector<Piece> pieces_;
  int64_t bytes_ = 0;
  int64_t host_bytes_ = 0;
  int64_t offloadable_bytes_ = 0;
  std::vector<size_t> copies_;  // the first pieces of packed_.copies()
  std::map<ByteRange, size_t> stored_;
  std::map<std::pair<size_t, size_t>, Operand> operands_;
  std::map<ValueId, size_t> parts_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_WEIGHT_ARENA_H_
