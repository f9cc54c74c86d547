// File: cc/program/weights/packed_weights.h
// Weights in the order in which the chosen kernels read them (ops::WeightPacking), packed when a
// program is bound (packed_layout.h: which copies there are). A quantized weight is packed from its
// parts; those that its kernel reads beside the copy, or all if it packs nothing, stay as stored.
// Each matrix of a stack is packed from its own bytes, so that a stack row by row exists only for
// kernels that read it so.
//
//   PAGEMILL_ASSIGN_OR_RETURN(PackedWeights packed,
//                       PackedWeights::Make(program, kernels, weights, cache, pool));
//   const std::byte* data = packed.data(op, input);   // null: as stored
//
// A cache on disk (pack_cache.h) keeps all copies of a program together, under a digest of the
// files of weights and of how they are packed. Immutable after Make(); thread-safe.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_PACKED_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_PACKED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
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

// `kernels`: the kernel of each op. Sizes alone.
PackedBytes CountPackedBytes(const Program& program, std::span<const ops::Kernel* const> kernels);

class PackedWeights {
 public:
  // Maps the copies from `cache` if it has them; else packs on the pool's threads and stores
  // them there. Null: no cache. Then releases the pages of files that were read for it. What the
  // cache maps is copied once more if it is better copied (PackCache::Entry), and with a
  // placement, since a mapped file's pages lie where the first process on the machine that read
  // them ran.
  // What `shared`, of another program in this process that outlives this, has a copy of is not
  // copied again.
  // kResourceExhausted if there is no room; the errors of WeightPacking::pack.
  static StatusOr<PackedWeights> Make(const Program& program,
                                      std::span<const ops::Kernel* const> kernels,
                                      const Weights& weights, const PackCache* cache,
                                      device::ThreadPool& pool,
                                      const device::MemoryPlacement& placement = {},
                                      const PackedWeights* shared = nullptr);

  // Were the copies found in the cache?
  bool from_cache() const { return from_cache_; }
  // Are they the cache's file, mapped, which other processes share?
  bool mapped() const { return mapped_.has_value(); }
  // What was wrong with the cache's file, if it was damaged and is replaced.
  const Status& damage() const { return damage_; }
  // Why copies that were packed could not be stored in the cache; that is no reason to fail.
  const Status& store_status() const { return store_status_; }
  // WeightDigests(), if the cache was asked; else empty.
  const std::vector<Digest128>& file_digests() const { return file_digests_; }

  // Does any kernel read a copy of another program (`shared` of Make())?
  bool shares() const { return shares_; }
  // Does any kernel read a copy?
  bool empty() const { return data_.empty(); }
  // Input `input` of op `op`, 64-byte aligned; null if its kernel reads it as its file has it.
  const std::byte* data(size_t op, size_t input) const {
    const auto found = data_.find({op, input});
    return found == data_.end() ? nullptr : found->second.data;
  }
  // A part of quantized weights that is a stack, row by row; null for others, which their files
  // have.
  const std::byte* part(ValueId id) const {
    const auto found = parts_.find(id);
    return found == parts_.end() ? nullptr : found->second;
  }
  // Is it in its kernel's order, not row by row?
  bool reordered(size_t op, size_t input) const {
    const auto found = data_.find({op, input});
    return found != data_.end() && found->second.reordered;
  }

  // All that op `op` reads of packed copies from end to end, where its operands lie one after the
  // other, as those of the first op that reads them do. Else empty.
  std::span<const std::byte> ReadBy(size_t op) const {
    return op < read_by_.size() ? read_by_[op] : std::span<const std::byte>();
  }

 private:
  struct Operand {
    const std::byte* data = nullptr;
    bool reordered = false;
  };

  StatusOr<const std::byte*> MakeCopies(const Program& program, const PackedLayout& layout,
                                        const Weights& weights, const PackCache* cache,
                                        device::ThreadPool& pool,
                                        const device::MemoryPlacement& placement);
  Status CheckStored(const Program& program, const std::set<ValueId>& quantized,
                     const Weights& weights) const;

  LazyMemory memory_;                       // where they were packed or copied to
  std::optional<PackCache::Entry> mapped_;  // or found
  bool from_cache_ = false;
  bool shares_ = false;
  Status damage_;
  Status store_status_;
  std::vector<Digest128> file_digests_;
  std::map<std::string, const std::byte*> copies_;  // by content (weight_recipe.h)
  std::map<std::pair<size_t, size_t>, Operand> data_;
  std::map<ValueId, const std::byte*> parts_;
  std::vector<std::span<const std::byte>> read_by_;  // of each op
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_PACKED_WEIGHTS_H_
