// What an executor does with its weights: where ops find them, and how they leave memory and
// change.
#include <mutex>
#include <utility>

#include "cc/program/kv/kv_fingerprint.h"
#include "cc/program/native_bound.h"
#include "cc/program/weights/other_weights.h"

namespace pagemill::program {

LoadedWeights::Packing NativeExecutor::Bound::Packing() {
  return {.kernels = kernels.kernels,
          .cache = pack_cache ? &*pack_cache : nullptr,
          .pool = pool,
          .placement = placement};
}

WeightOperand NativeExecutor::Bound::WeightOf(size_t op, size_t input) const {
  const PackedWeights& packed = weights->packed();
  const std::byte* copy = packed.data(op, input);
  if (copy != nullptr) return {.data = copy, .reordered = packed.reordered(op, input)};
  return {.data = weights->weights().data(program().ops()[op].inputs[input])};
}

const std::byte* NativeExecutor::Bound::PartOf(ValueId id) const {
  const std::byte* copy = weights->packed().part(id);
  return copy != nullptr ? copy : weights->weights().data(id);
}

// Links each op with packed weights to the next one; the last one to the first, for the next step.
void NativeExecutor::Bound::LinkWeights() {
  const size_t num_ops = program().ops().size();
  next.resize(num_ops);
  std::span<const std::byte> following;
  for (size_t i = 2 * num_ops; i-- > 0;) {
    next[i % num_ops] = following;
    const std::span<const std::byte> own = weights->packed().ReadBy(i % num_ops);
    if (!own.empty()) following = own;
  }
}

Digest128 NativeExecutor::kv_fingerprint() const {
  Bound& b = *bound_;
  const std::lock_guard lock(b.weights_mutex);
  if (!b.fingerprint) {
    const auto digests = b.weights->FileDigests(DigestMemory(b.options.pack_cache_folder));
    b.fingerprint = KvFingerprint(b.program(), digests, b.plan.kv);
  }
  return *b.fingerprint;
}

StatusOr<std::shared_ptr<const AdapterWeights>> NativeExecutor::MakeAdapter(
    std::span<const AdapterWeights::Layer> layers) const {
  const std::lock_guard lock(bound_->weights_mutex);
  return AdapterWeights::Make(bound_->program(), layers);
}

void NativeExecutor::UnloadWeights() {
  Bound& b = *bound_;
  const std::lock_guard lock(b.weights_mutex);
  b.weights->Unload();
  for (const LazyMemory* memory : {&b.arena, &b.outputs, &b.workspace}) memory->DropPages();
}

Status NativeExecutor::LoadWeights(const NativeExecutor* host) {
  Bound& b = *bound_;
  if (b.weights->loaded()) return OkStatus();
  {
    const std::lock_guard lock(b.weights_mutex);
    PAGEMILL_RETURN_IF_ERROR(
        b.weights->Load(b.Packing(), host == nullptr ? nullptr : &host->packed_weights()));
  }
  b.BindProgram();
  if (b.pages != nullptr && !b.kv_populated) b.PopulateKv();
  return OkStatus();
}

void NativeExecutor::FreeKv() {
  bound_->kv_populated.reset();
  bound_->kv.DropPages();
}

StatusOr<std::unique_ptr<LoadedWeights>> NativeExecutor::OpenWeights(Program program) const {
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(bound_->options.activation_type));
  PAGEMILL_RETURN_IF_ERROR(CheckOtherWeights(bound_->program(), program));
  return LoadedWeights::Open(std::move(program));
}

StatusOr<std::unique_ptr<LoadedWeights>> NativeExecutor::OpenOtherWeights(Program program) const {
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(bound_->options.activation_type));
  PAGEMILL_RETURN_IF_ERROR(CheckOtherWeights(bound_->program(), program));
  return bound_->weights->OpenOther(std::move(program));
}

std::unique_ptr<LoadedWeights> NativeExecutor::OpenWeightsAgain() const {
  return bound_->weights->OpenAgain();
}

Status NativeExecutor::LoadBeside(LoadedWeights* weights, const PackedWeights* shared) {
  return weights->Load(bound_->Packing(), shared);
}

Status NativeExecutor::LoadOver(LoadedWeights* weights) {
  return weights->LoadOver(bound_->Packing(), *bound_->weights);
}

void NativeExecutor::UseWeights(std::unique_ptr<LoadedWeights> weights) {
  Bound& b = *bound_;
  {
    const std::lock_guard lock(b.weights_mutex);
    weights->TakeOver(b.weights.get(), *b.pool);
    b.weights.swap(weights);
    b.fingerprint.reset();
  }
  if (b.weights->loaded()) b.BindProgram();
}

}  // namespace pagemill::program
