#include "cc/program/device/device_weights.h"

#include <span>

#include "cc/base/clock.h"
#include "cc/device/thread_pool.h"
#include "cc/program/device/staged_upload.h"
#include "cc/program/device/weight_arena.h"
#include "cc/program/weights/lazy_memory.h"
#include "cc/program/weights/packed_weights.h"

namespace pagemill::program {
namespace {

using Piece = WeightArena::Piece;

// Finds or makes the bytes of pieces, one after the other.
class PieceReader {
 public:
  PieceReader(const Program& program, const Weights& weights, device::ThreadPool& pool)
      : program_(program), weights_(weights), pool_(pool) {}

  // Valid until the next call.
  StatusOr<std::span<const std::byte>> Read(const Piece& piece) {
    const auto bytes = static_cast<size_t>(piece.bytes);
    const bool dense = program_.value(piece.weight).weight.row_stride == 0;
    if (piece.source == Piece::Source::kStored ||
        (piece.source == Piece::Source::kRows && dense)) {
      return std::span(weights_.data(piece.weight), bytes);
    }
    PAGEMILL_ASSIGN_OR_RETURN(made_, LazyMemory::Allocate(piece.bytes, "a packed weight"));
    if (piece.source == Piece::Source::kRows) {
      CopyMatrixRows(program_, piece.weight, weights_, made_.data(), pool_);
    } else {
      PAGEMILL_RETURN_IF_ERROR(
          MakePackedCopy(program_, *piece.copy, weights_, made_.data(), pool_));
    }
    return std::span<const std::byte>(made_.data(), bytes);
  }

 private:
  const Program& program_;
  const Weights& weights_;
  device::ThreadPool& pool_;
  LazyMemory made_;
};

}  // namespace

StatusOr<DeviceWeights> DeviceWeights::Upload(const Program& program,
                                              const Weights::Files& files,
                                              const KernelSelection& kernels,
                                              const UploadOptions& options,
                                              device::Device& device) {
  const SteadyClock clock;
  const int64_t start = clock.NowNanos();
  const WeightArena arena(program, kernels.kernels, options.offload_bytes);
  const Weights weights = Weights::Load(program, files);
  device::ThreadPool pool({.num_threads = kernels.num_threads});
  PAGEMILL_RETURN_IF_ERROR(
      CheckStoredWeights(program, arena.packed().stored_quantized(), weights, pool));
  DeviceWeights result;
  PAGEMILL_ASSIGN_OR_RETURN(result.memory_, device.Allocate(arena.bytes(), "weights"));
  PAGEMILL_ASSIGN_OR_RETURN(
      result.host_memory_, device.AllocateMapped(arena.host_bytes(), "weights (--cpu-offload-gb)"));
  PAGEMILL_ASSIGN_OR_RETURN(
      StagedUpload upload,
      StagedUpload::Begin(device, result.memory_.bytes(), options.buffer_bytes));
  PieceReader reader(program, weights, pool);
  int64_t end = 0, host_end = 0;  // of what is sent
  for (const Piece& piece : arena.pieces()) {
    PAGEMILL_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, reader.Read(piece));
    const auto& [on_host, offset] = piece.place;
    if (on_host) {
      CopyInParallel(bytes, result.host_memory_.data() + offset, pool);
    } else {
      PAGEMILL_RETURN_IF_ERROR(upload.Write(offset, bytes, pool));
    }
    (on_host ? host_end : end) = offset + piece.bytes;
    if (options.on_progress) {
      options.on_progress(end + host_end, arena.bytes() + arena.host_bytes());
    }
  }
  PAGEMILL_RETURN_IF_ERROR(upload.Finish());
  const auto address = [&](size_t piece) -> const std::byte* {
    const auto& [on_host, offset] = arena.pieces()[piece].place;
    return (on_host ? result.host_memory_.data() : result.memory_.data()) + offset;
  };
  for (const auto& [key, operand] : arena.operands()) {
    result.operands_[key] = {.data = operand.piece ? address(*operand.piece) : nullptr,
                             .reordered = operand.reordered};
  }
  for (const auto& [part, piece] : arena.parts()) result.parts_[part] = address(piece);
  weights.DropPages();
  result.seconds_ = SecondsBetween(start, clock.NowNanos());
  return result;
}

}  // namespace pagemill::program
