// File: cc/program/native_executor.h
// Runs a program with the kernels of an op table, in this process, without Python.
//
//   Target target = {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<NativeExecutor> executor,
//                       NativeExecutor::Create(program, target, options));
//   PAGEMILL_RETURN_IF_ERROR(executor->Enqueue(batch));  // runs the step
//   ExecutorOutput output;
//   PAGEMILL_RETURN_IF_ERROR(executor->Collect(&output));
//
// Create() checks operands, chooses kernels, maps weights and reserves memory as planned
// (memory_plan.h). Enqueue() allocates nothing: it sets the step's sizes in prepared views and runs
// the ops in order. Activations and outputs take memory as they are touched; the KV cache is
// populated by a background thread that starts here (populate_ahead.h), because steps would wait
// for its pages.
//
// Several programs: an executor created with a `host` computes on the host's threads and keeps its
// KV in pages of the host's arena, whose blocks the scheduler allocates for both (a draft model,
// cc/runner/draft_model.h); a program without caches shares only the threads (an encoder,
// cc/runner/media/media_encoder.h). Weights that both read in the same layout are packed once. The
// two run one after the other.
//
// Weights may leave memory and come back, or be replaced by others of the same program, between two
// steps. An executor that shares packed weights with its host is loaded after it and unloaded
// before it (cc/runner/control/program_control.h does that for all programs of a runner).
//
// Ownership: owns the program, the weights and the threads. Thread safety: as Executor.
#ifndef PAGEMILL_CC_PROGRAM_NATIVE_EXECUTOR_H_
#define PAGEMILL_CC_PROGRAM_NATIVE_EXECUTOR_H_

#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/timeline.h"
#include "cc/base/xxh3.h"
#include "cc/comm/group.h"
#include "cc/device/thread_pool.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/executor.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"
#include "cc/program/memory/memory_plan.h"
#include "cc/program/op_profile.h"
#include "cc/program/program.h"
#include "cc/program/weights/loaded_weights.h"
#include "cc/program/weights/packed_weights.h"
#include "cc/step/page_store.h"

namespace pagemill::program {

class NativeExecutor final : public Executor {
 public:
  // `host` must outlive the executor, which must have the same number of threads. A program with
  // caches must also have as many pages, and options.kv_page_bytes must be the host's: else
  // kInvalidArgument. Null: the executor has its own threads and KV cache.
  static StatusOr<std::unique_ptr<NativeExecutor>> Create(Program program, const Target& target,
                                                          const ExecutorOptions& options,
                                                          NativeExecutor* host = nullptr);
  ~NativeExecutor() override;

  // kInvalidArgument if the batch is larger than the options allow.
  Status Enqueue(const ops::StepBatch& batch) override;
  Status Collect(ExecutorOutput* output) override;

  const Program& program() const;
  const ExecutorOptions& options() const;
  const MemoryPlan& memory_plan() const;
  const KernelSelection& kernels() const;
  const comm::Groups& groups() const;  // those of the target
  // The compute threads; others may use them between steps, on the same thread.
  device::ThreadPool* thread_pool();
  // The KV cache, for tiers and saved sessions; null if the program has none of its own. Owned by
  // the executor.
  step::PageStore* pages();
  const PackedWeights& packed_weights() const;
  // The placement of weights and KV cache ("interleaved over nodes 0, 1"), or the reason why the
  // system refused it; "" if there is nothing to place.
  const std::string& memory_placement() const;
  // KvFingerprint() of the pages. Reads all weight files on the calling thread, once, unless
  // packing has computed their digests. Thread-safe; loading and replacing weights wait
  // for it.
  Digest128 kv_fingerprint() const;

  // Returns the memory of weights, activations and outputs to the system. Until LoadWeights() steps
  // are refused.
  void UnloadWeights();
  // The same weights again, from the files that are still mapped. `host` is that of Create(). Not
  // OK: they are not loaded; the errors of PackedWeights::Make().
  Status LoadWeights(const NativeExecutor* host = nullptr);
  // Returns the memory of the KV cache to the system; its pages are zero then.
  void FreeKv();

  // Other weights for this program, not loaded: `program` is this one with other locations of
  // weights. The errors of CheckOtherWeights() and of LoadedWeights::Open().
  StatusOr<std::unique_ptr<LoadedWeights>> OpenWeights(Program program) const;
  // As OpenWeights(), with LoadedWeights::OpenOther().
  StatusOr<std::unique_ptr<LoadedWeights>> OpenOtherWeights(Program program) const;
  // Those that it has, once more.
  std::unique_ptr<LoadedWeights> OpenWeightsAgain() const;
  // Loads weights that were opened, beside those in use: LoadedWeights::Load().
  Status LoadBeside(LoadedWeights* weights, const PackedWeights* shared);
  // Loads weights that were opened, to be written over those in use: LoadedWeights::LoadOver().
  Status LoadOver(LoadedWeights* weights);
  // Goes on with these, loaded or not, and frees those in use.
  void UseWeights(std::unique_ptr<LoadedWeights> weights);

  // AdapterWeights::Make() for this program. Thread-safe, also beside UseWeights().
  StatusOr<std::shared_ptr<const AdapterWeights>> MakeAdapter(
      std::span<const AdapterWeights::Layer> layers) const;
  // Gives the slot of options().max_adapters another adapter, or none (null); only while no step
  // runs. The errors of AdapterTables::Set().
  Status SetAdapter(int32_t slot, std::shared_ptr<const AdapterWeights> weights);

  // While on, steps also measure each op (~0.1 us an op). Turning it on resets the times.
  void SetProfiling(bool on);
  const OpProfile& profile() const;
  // Records the time of each op on this track, until it is called with null (~0.1 us an op). Only
  // while no step is being enqueued.
  void Record(std::shared_ptr<Timeline> timeline, Timeline::Track track);

 private:
  struct Bound;
  explicit NativeExecutor(std::unique_ptr<Bound> bound);
  std::unique_ptr<Bound> bound_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_NATIVE_EXECUTOR_H_
