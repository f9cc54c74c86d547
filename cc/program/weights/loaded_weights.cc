#include "cc/program/weights/loaded_weights.h"

#include "cc/program/weights/weight_digests.h"

namespace pagemill::program {

StatusOr<std::unique_ptr<LoadedWeights>> LoadedWeights::Open(Program program) {
  PAGEMILL_ASSIGN_OR_RETURN(Weights::Files files, Weights::Open(program));
  return std::unique_ptr<LoadedWeights>(new LoadedWeights(std::move(program), std::move(files)));
}

std::unique_ptr<LoadedWeights> LoadedWeights::OpenAgain() const {
  std::unique_ptr<LoadedWeights> again(new LoadedWeights(program_, files_));
  again->uses_cache_ = uses_cache_;
  again->file_digests_ = file_digests_;
  return again;
}

StatusOr<std::unique_ptr<LoadedWeights>> LoadedWeights::OpenOther(Program program) const {
  PAGEMILL_ASSIGN_OR_RETURN(Weights::Files files, Weights::Open(program, *files_));
  std::unique_ptr<LoadedWeights> other(new LoadedWeights(std::move(program), std::move(files)));
  other->uses_cache_ = false;
  return other;
}

Status LoadedWeights::Load(const Packing& packing, const PackedWeights* shared) {
  weights_ = Weights::Load(program_, files_);
  const PackCache* const cache = uses_cache_ ? packing.cache : nullptr;
  StatusOr<PackedWeights> packed = PackedWeights::Make(program_, packing.kernels, weights_, cache,
                                                       *packing.pool, packing.placement, shared);
  if (!packed.ok()) {
    Unload();
    return packed.status();
  }
  packed_ = *std::move(packed);
  if (!packed_.file_digests().empty()) file_digests_ = packed_.file_digests();
  loaded_ = true;
  return OkStatus();
}

Status LoadedWeights::LoadOver(const Packing& packing, const LoadedWeights& loaded) {
  weights_ = Weights::Load(program_, files_);
  StatusOr<PackedWeights> packed = PackedWeights::MakeOver(
      program_, packing.kernels, weights_, loaded.packed_, *packing.pool, packing.placement);
  if (!packed.ok()) {
    Unload();
    return packed.status();
  }
  packed_ = *std::move(packed);
  loaded_ = takes_over_ = true;
  return OkStatus();
}

void LoadedWeights::TakeOver(LoadedWeights* loaded, device::ThreadPool& pool) {
  if (!std::exchange(takes_over_, false)) return;
  packed_.TakeOver(&loaded->packed_, pool);
  loaded->weights_ = {};  // pages of files stay: those that did not change are read here
  loaded->loaded_ = false;
}

void LoadedWeights::Unload() {
  packed_ = PackedWeights();
  weights_ = Weights();
  for (const MappedFile& file : *files_) file.DropPages();
  loaded_ = false;
}

std::vector<Digest128> LoadedWeights::FileDigests(const DigestMemory& memory) {
  if (!file_digests_.empty()) return file_digests_;
  // Steps may be running on the threads of the pool.
  device::ThreadPool own({.num_threads = 1});
  file_digests_ = WeightDigests(program_, *files_, memory, own);
  if (!loaded_ || !packed_.empty()) {
    for (const MappedFile& file : *files_) file.DropPages();
  }
  return file_digests_;
}

}  // namespace pagemill::program
