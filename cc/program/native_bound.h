// File: cc/program/native_bound.h
// What NativeExecutor keeps of a program that is bound: a part of its implementation.
#ifndef PAGEMILL_CC_PROGRAM_NATIVE_BOUND_H_
#define PAGEMILL_CC_PROGRAM_NATIVE_BOUND_H_

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cc/base/xxh3.h"
#include "cc/comm/group.h"
#include "cc/device/activity.h"
#include "cc/device/numa.h"
#include "cc/device/populate_ahead.h"
#include "cc/device/thread_pool.h"
#include "cc/program/adapters/adapter_tables.h"
#include "cc/program/bound/bound_program.h"
#include "cc/program/bound/step_calls.h"
#include "cc/program/greedy_tail.h"
#include "cc/program/kv/cache_pages.h"
#include "cc/program/native_executor.h"
#include "cc/program/weights/lazy_memory.h"
#include "cc/program/weights/loaded_weights.h"
#include "cc/program/weights/pack_cache.h"

namespace pagemill::program {

struct NativeExecutor::Bound {
  Target target;
  ExecutorOptions options;
  MemoryPlan plan;
  KernelSelection kernels;
  std::unique_ptr<LoadedWeights> weights;
  std::mutex weights_mutex;  // of what other threads read of them and of their program
  std::optional<Digest128> fingerprint;
  std::optional<PackCache> pack_cache;
  device::MemoryPlacement placement;  // of weights
  LazyMemory arena;
  LazyMemory outputs;
  LazyMemory workspace;
  LazyMemory kv;
  device::Activity own_activity;
  device::Activity* activity = &own_activity;         // steps of all programs that share `pool`
  std::optional<device::PopulateAhead> kv_populated;  // destroyed before `kv` and `own_activity`
  std::string memory_placement;
  std::unique_ptr<CachePages> pages;             // of `kv`; null without one
  std::unique_ptr<device::ThreadPool> own_pool;  // null: `pool` belongs to the host
  device::ThreadPool* pool = nullptr;
  std::byte* kv_arena = nullptr;  // of `kv`, or the host's

  AdapterTables adapters;
  BoundProgram bound;
  std::optional<StepCalls> calls;
  std::vector<std::span<const std::byte>> next;  // per op: the packed weights to read after its own
  ops::KernelContext context;
  comm::Groups groups;  // for the context
  std::optional<GreedyTail> greedy_tail;
  bool greedy = false;                   // the running step uses `greedy_tail`
  std::optional<StepSizes> finished;     // sizes of the uncollected step
  std::vector<OutputView> output_views;  // of the last collected step

  bool profiling = false;
  OpProfile profile;
  std::shared_ptr<Timeline> timeline;        // null: the ops are not recorded
  std::vector<Timeline::LabelId> op_labels;  // in it
  std::vector<std::vector<ValueId>> dead;  // per op: values that it reads last; for poisoning

  const Program& program() const { return weights->program(); }
  Status AllocateMemory(const Bound* host);
  Status ShareWith(const Bound& host);
  Status AllocateOwn();
  void PopulateKv();
  LoadedWeights::Packing Packing();
  void BindProgram();
  void LinkWeights();
  void FindDeadValues();
  WeightOperand WeightOf(size_t op, size_t input) const;
  const std::byte* PartOf(ValueId id) const;
  std::byte* ValueData(ValueId id) const { return bound.values[static_cast<size_t>(id.value())]; }
  void SetOutputs(const StepSizes& sizes, ExecutorOutput* output);
  void RunOp(size_t index);
  void Walk();
  void WalkInstrumented();
  bool IsRecorded() const { return timeline != nullptr && !timeline->full(); }
  void RunRecorded(size_t index);
  void PoisonOutputs(size_t op);
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_NATIVE_BOUND_H_
