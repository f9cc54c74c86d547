// File: cc/program/weights/loaded_weights.h
// A program and the bytes of its weights as kernels read them: mapped files, copies, packed copies.
// They can leave memory and come back.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<LoadedWeights> weights,
//   LoadedWeights::Open(program)); PAGEMILL_RETURN_IF_ERROR(weights->Load({.kernels = kernels,
//   .cache = &cache, .pool = &pool})); weights->Unload();   // the files stay mapped, which costs
//   no memory
//
// Since files stay mapped, what Load() brings back are the same bytes, even if their paths have
// other files by then.
//
// Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_LOADED_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_LOADED_WEIGHTS_H_

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/xxh3.h"
#include "cc/device/numa.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/op.h"
#include "cc/program/program.h"
#include "cc/program/weights/pack_cache.h"
#include "cc/program/weights/packed_weights.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {

class LoadedWeights {
 public:
  // How PackedWeights::Make() packs.
  struct Packing {
    std::span<const ops::Kernel* const> kernels;  // of each op
    const PackCache* cache = nullptr;
    device::ThreadPool* pool = nullptr;
    device::MemoryPlacement placement = {};
  };

  // Maps the files and checks that they have all weights: the errors of Weights::Open(). Nothing is
  // loaded yet.
  static StatusOr<std::unique_ptr<LoadedWeights>> Open(Program program);
  // The same program and files, not loaded.
  std::unique_ptr<LoadedWeights> OpenAgain() const;
  // As Open(), for other weights of this program that come for a short time: files that are mapped
  // here are not opened again, and no packed copies are kept in a cache.
  StatusOr<std::unique_ptr<LoadedWeights>> OpenOther(Program program) const;
  LoadedWeights(const LoadedWeights&) = delete;
  LoadedWeights& operator=(const LoadedWeights&) = delete;

  // Copies of `shared`, those of another program that outlive this, are not made again. The errors
  // of PackedWeights::Make(): then nothing is loaded.
  Status Load(const Packing& packing, const PackedWeights* shared = nullptr);
  // Loads so that TakeOver() may follow: PackedWeights::MakeOver() of `loaded`, which stays loaded.
  Status LoadOver(const Packing& packing, const LoadedWeights& loaded);
  // Ends LoadOver(), without which it does nothing: what differs is written over the memory of
  // `loaded`, which is not loaded afterwards. Cannot fail.
  void TakeOver(LoadedWeights* loaded, device::ThreadPool& pool);
  // Returns all memory of weights to the system.
  void Unload();

  const Program& program() const { return program_; }
  bool loaded() const { return loaded_; }
  // Empty unless loaded.
  const Weights& weights() const { return weights_; }
  const PackedWeights& packed() const { return packed_; }
  // WeightDigests(), by all bytes of the files; remembered in `memory`, and here. Afterwards no
  // page of a file is in memory that only packed copies of are read.
  std::vector<Digest128> FileDigests(const DigestMemory& memory);

 private:
  LoadedWeights(Program program, Weights::Files files)
      : program_(std::move(program)), files_(std::move(files)) {}

  const Program program_;
  const Weights::Files files_;
  bool uses_cache_ = true;
  bool loaded_ = false;
  bool takes_over_ = false;  // between LoadOver() and TakeOver()
  Weights weights_;
  PackedWeights packed_;
  std::vector<Digest128> file_digests_;  // empty: not computed
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_LOADED_WEIGHTS_H_
