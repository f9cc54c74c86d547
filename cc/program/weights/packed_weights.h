// File: cc/program/weights/packed_weights.h
// Weights in the packed layouts that the chosen kernels require (ops::WeightPacking), packed when a
// program is bound (packed_layout.h lists the copies). A quantized weight is packed from its parts;
// parts that its kernel reads besides the copy, or all parts if it packs nothing, stay as stored.
// Each matrix of a stack is packed from its own bytes, so a row-major stack exists only for kernels
// that require it.
//
//   PAGEMILL_ASSIGN_OR_RETURN(PackedWeights packed,
//                       PackedWeights::Make(program, kernels, weights, cache, pool));
//   const std::byte* data = packed.data(op, input);   // null: as stored
//
// A cache on disk (pack_cache.h) keeps all copies of a program together; the key is a digest of the
// weight files and of the packing. Immutable after Make(); thread-safe.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_PACKED_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_PACKED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/device/numa.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/op.h"
#include "cc/program/program.h"
#include "cc/program/weights/lazy_memory.h"
#include "cc/program/weights/pack_cache.h"
#include "cc/program/weights/packed_layout.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

// `kernels`: one per op. Computes only sizes.
PackedBytes CountPackedBytes(const Program& program, std::span<const ops::Kernel* const> kernels);

// Makes one copy, for callers that do not keep all of them. `target` has copy.bytes() bytes.
Status MakePackedCopy(const Program& program, const PackedCopy& copy, const Weights& weights,
                      std::byte* target, device::ThreadPool& pool);
// Copies a stored matrix, which may be some columns of a wider one or transposed, row by row.
void CopyMatrixRows(const Program& program, ValueId weight, const Weights& weights,
                    std::byte* target, device::ThreadPool& pool);
// Checks quantized weights that kernels read as stored; packing checks the others. kDataLoss names
// the weight.
Status CheckStoredWeights(const Program& program, const std::set<ValueId>& quantized,
                          const Weights& weights, device::ThreadPool& pool);

class PackedWeights {
 public:
  // Maps the copies from `cache` if it has them; else packs on the pool's threads and stores them
  // there. Null: no cache. Then releases the pages of files that were read. A mapped cache file is
  // copied if that is better (PackCache::Entry), or if there is a placement, since a mapped file's
  // pages lie where the first process that read them ran. Copies that `shared` has (another program
  // in this process that outlives this one) are not made again. kResourceExhausted if there is no
  // room; else the errors of WeightPacking::pack.
  static StatusOr<PackedWeights> Make(const Program& program,
                                      std::span<const ops::Kernel* const> kernels,
                                      const Weights& weights, const PackCache* cache,
                                      device::ThreadPool& pool,
                                      const device::MemoryPlacement& placement = {},
                                      const PackedWeights* shared = nullptr);

  // As Make(), for other weights of the program that `loaded` was made for: copies of the same
  // content stay where they are, and the others are packed beside them, until TakeOver() writes
  // them over those of `loaded`, which is unchanged and must live until then. Uses no cache.
  // kInvalidArgument if the two differ in which weights have the same bytes.
  static StatusOr<PackedWeights> MakeOver(const Program& program,
                                          std::span<const ops::Kernel* const> kernels,
                                          const Weights& weights, const PackedWeights& loaded,
                                          device::ThreadPool& pool,
                                          const device::MemoryPlacement& placement = {});
  // Ends MakeOver(). Cannot fail; `loaded` is the same and empty afterwards.
  void TakeOver(PackedWeights* loaded, device::ThreadPool& pool);

  // True if the copies were found in the cache.
  bool from_cache() const { return from_cache_; }
  // True if they are the mapped cache file, which other processes share.
  bool mapped() const { return mapped_.has_value(); }
  // The error of a damaged cache file that was replaced.
  const Status& damage() const { return damage_; }
  // The reason why packed copies could not be stored in the cache, which is not an error of Make().
  const Status& store_status() const { return store_status_; }
  // WeightDigests() if the cache was queried; else empty.
  const std::vector<Digest128>& file_digests() const { return file_digests_; }

  // True if a kernel reads a copy of another program (`shared` of Make()).
  bool shares() const { return shares_; }
  // True if no kernel reads a copy.
  bool empty() const { return data_.empty(); }
  // Input `input` of op `op`, 64-byte aligned; null if its kernel reads it as stored.
  const std::byte* data(size_t op, size_t input) const {
    const auto found = data_.find({op, input});
    return found == data_.end() ? nullptr : found->second.data;
  }
  // A part of quantized weights that is a stack, row-major; null for other parts, which are in
  // their files.
  const std::byte* part(ValueId id) const {
    const auto found = parts_.find(id);
    return found == parts_.end() ? nullptr : found->second;
  }
  // True if it is in its kernel's packed layout, false if row-major.
  bool reordered(size_t op, size_t input) const {
    const auto found = data_.find({op, input});
    return found != data_.end() && found->second.reordered;
  }

  // The packed copies that op `op` reads sequentially, if its operands are adjacent (as those of
  // the first op that reads them are). Else empty.
  std::span<const std::byte> ReadBy(size_t op) const {
    return op < read_by_.size() ? read_by_[op] : std::span<const std::byte>();
  }

 private:
  struct Operand {
    const std::byte* data = nullptr;
    bool reordered = false;
  };

  struct Pending {
    int64_t offset;                    // in `memory_`
    std::span<const std::byte> bytes;  // in `beside_`
  };

  const std::byte* base() const { return mapped_ ? mapped_->bytes.data() : memory_.data(); }
  bool IsLaidOutAs(const PackedLayout& layout) const;
  Status PackBeside(const Program& program, const PackedLayout& layout, const Weights& weights,
                    const PackedWeights& loaded, device::ThreadPool& pool);
  void Index(const Program& program, const PackedLayout& layout,
             std::span<const std::string> file_names, const std::byte* base, size_t num_ops);
  StatusOr<const std::byte*> MakeCopies(const Program& program, const PackedLayout& layout,
                                        const Weights& weights, const PackCache* cache,
                                        device::ThreadPool& pool,
                                        const device::MemoryPlacement& placement);

  LazyMemory memory_;                       // packed or copied weights
  std::optional<PackCache::Entry> mapped_;  // or the mapped file
  LazyMemory beside_;                       // of `pending_`, until TakeOver()
  std::vector<Pending> pending_;
  bool from_cache_ = false;
  bool shares_ = false;
  Status damage_;
  Status store_status_;
  std::vector<Digest128> file_digests_;
  std::map<std::string, const std::byte*> copies_;  // by content (weight_recipe.h)
  std::map<std::pair<size_t, size_t>, Operand> data_;
  std::map<ValueId, const std::byte*> parts_;
  std::vector<std::span<const std::byte>> read_by_;  // per op
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_PACKED_WEIGHTS_H_
