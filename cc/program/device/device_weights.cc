#include "cc/program/device/device_weights.h"

#include <algorithm>
#include <span>
#include <string>

#include "cc/base/clock.h"
#include "cc/device/thread_pool.h"
#include "cc/program/device/staged_upload.h"
#include "cc/program/device/weight_arena.h"
#include "cc/program/weights/lazy_memory.h"
#include "cc/program/weights/packed_weights.h"
#include "cc/program/weights/weight_recipe.h"

namespace pagemill::program {
namespace {

using Piece = WeightArena::Piece;

// Finds or makes the bytes of pieces, one after the other.
class PieceReader {
 public:
  PieceReader(const Program& program, const Weights& weights, device::ThreadPool& pool)
      : program_(program), weights_(weights), pool_(pool) {}

  // Valid as long as the weights and `made`, which has them if they are not in a file as they are.
  StatusOr<std::span<const std::byte>> Read(const Piece& piece, LazyMemory* made) {
    const auto bytes = static_cast<size_t>(piece.bytes);
    const bool dense = program_.value(piece.weight).weight.row_stride == 0;
    if (piece.source == Piece::Source::kStored ||
        (piece.source == Piece::Source::kRows && dense)) {
      return std::span(weights_.data(piece.weight), bytes);
    }
    PAGEMILL_ASSIGN_OR_RETURN(*made, LazyMemory::Allocate(piece.bytes, "a packed weight"));
    if (piece.source == Piece::Source::kRows) {
      CopyMatrixRows(program_, piece.weight, weights_, made->data(), pool_);
    } else {
      PAGEMILL_RETURN_IF_ERROR(
          MakePackedCopy(program_, *piece.copy, weights_, made->data(), pool_));
    }
    return std::span<const std::byte>(made->data(), bytes);
  }

 private:
  const Program& program_;
  const Weights& weights_;
  device::ThreadPool& pool_;
};

// Returns a text for each piece that says where its bytes come from.
std::vector<std::string> ContentsOf(const Program& program, const WeightArena& arena,
                                    const Weights& weights) {
  const std::vector<std::string> names = FileNames(program, weights);
  std::vector<std::string> contents;
  for (const Piece& piece : arena.pieces()) {
    contents.push_back(piece.source == Piece::Source::kPacked
                           ? ContentOf(program, *piece.copy, names)
                           : WeightRecipe(program, piece.weight, WeightParts::kValues, names));
  }
  return contents;
}

bool SamePlace(const Piece& a, const Piece& b) {
  return a.source == b.source && a.bytes == b.bytes && a.place == b.place;
}

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
  LazyMemory made;
  int64_t end = 0, host_end = 0;  // of what is sent
  for (const Piece& piece : arena.pieces()) {
    PAGEMILL_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, reader.Read(piece, &made));
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

WeightChanges::WeightChanges(const Source& other, const KernelSelection& kernels,
                             StagedUpload upload, DeviceWeights* weights)
    : other_(Weights::Load(other.program, other.files)),
      pool_(std::make_unique<device::ThreadPool>(
          device::ThreadPoolOptions{.num_threads = kernels.num_threads})),
      upload_(std::move(upload)),
      weights_(weights) {}

StatusOr<WeightChanges> WeightChanges::Make(const Source& loaded, const Source& other,
                                            const KernelSelection& kernels,
                                            const UploadOptions& options, device::Device& device,
                                            DeviceWeights* weights) {
  const WeightArena before(loaded.program, kernels.kernels, options.offload_bytes);
  const WeightArena arena(other.program, kernels.kernels, options.offload_bytes);
  if (!std::ranges::equal(before.pieces(), arena.pieces(), SamePlace) ||
      before.operands() != arena.operands() || before.parts() != arena.parts()) {
    return InvalidArgument(
        "weights that were one tensor are several, or the other way round; update all of them from "
        "a checkpoint");
  }
  PAGEMILL_ASSIGN_OR_RETURN(
      StagedUpload upload,
      StagedUpload::Begin(device, weights->memory_.bytes(), options.buffer_bytes));
  WeightChanges changes(other, kernels, std::move(upload), weights);
  PAGEMILL_RETURN_IF_ERROR(CheckStoredWeights(other.program, arena.packed().stored_quantized(),
                                              changes.other_, *changes.pool_));
  const std::vector<std::string> old_contents =
      ContentsOf(loaded.program, before, Weights::Load(loaded.program, loaded.files));
  const std::vector<std::string> contents = ContentsOf(other.program, arena, changes.other_);
  PieceReader reader(other.program, changes.other_, *changes.pool_);
  for (size_t i = 0; i < contents.size(); ++i) {
    if (contents[i] == old_contents[i]) continue;
    const Piece& piece = arena.pieces()[i];
    LazyMemory made;
    PAGEMILL_ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, reader.Read(piece, &made));
    changes.made_.push_back(std::move(made));
    changes.changes_.push_back(
        {.piece = i, .on_host = piece.place.on_host, .offset = piece.place.offset, .bytes = bytes});
  }
  return changes;
}

Status WeightChanges::Write() {
  size_t next = 0;
  for (const Change& change : changes_) {
    // The upload writes over what lies between pieces, where some may be that stay.
    if (change.piece != next) PAGEMILL_RETURN_IF_ERROR(upload_.Finish());
    next = change.piece + 1;
    if (change.on_host) {
      CopyInParallel(change.bytes, weights_->host_memory_.data() + change.offset, *pool_);
    } else {
      PAGEMILL_RETURN_IF_ERROR(upload_.Write(change.offset, change.bytes, *pool_));
    }
  }
  PAGEMILL_RETURN_IF_ERROR(upload_.Finish());
  other_.DropPages();
  return OkStatus();
}

}  // namespace pagemill::program
