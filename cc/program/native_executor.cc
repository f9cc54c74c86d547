#include "cc/program/native_executor.h"

#include <chrono>
#include <cstring>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cc/comm/group.h"
#include "cc/device/core_count.h"
#include "cc/device/numa.h"
#include "cc/device/populate_ahead.h"
#include "cc/ops/collective.h"
#include "cc/program/bound/bound_program.h"
#include "cc/program/bound/step_calls.h"
#include "cc/program/greedy_tail.h"
#include "cc/program/kv/cache_pages.h"
#include "cc/program/kv/kv_fingerprint.h"
#include "cc/program/memory/activation_plan.h"
#include "cc/program/operand_views.h"
#include "cc/program/weights/lazy_memory.h"
#include "cc/program/weights/packed_weights.h"
#include "cc/program/weights/weight_digests.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {
namespace {

// All bits set is a NaN in every floating-point type, and -1 in integers.
void Poison(std::byte* data, int64_t bytes) { std::memset(data, 0xFF, static_cast<size_t>(bytes)); }

// Collectives have the number of ranks that they were traced for.
Status CheckGroups(const Program& program, const comm::Groups& groups) {
  for (const Op& op : program.ops()) {
    const Status status = ops::CheckGroups(op.attributes, groups);
    if (status.ok()) continue;
    return InvalidArgument(LinePrefix(op.line) + op.name + " " + status.message());
  }
  return OkStatus();
}

}  // namespace

struct NativeExecutor::Bound {
  Program program;
  ExecutorOptions options;
  MemoryPlan plan;
  KernelSelection kernels;
  Weights weights;
  PackedWeights packed;
  LazyMemory arena;
  LazyMemory outputs;
  LazyMemory workspace;
  LazyMemory kv;
  std::optional<device::PopulateAhead> kv_populated;  // destroyed before `kv`
  std::string memory_placement;
  std::once_flag fingerprint_computed;
  Digest128 fingerprint;
  std::unique_ptr<CachePages> pages;             // of `kv`; null without one
  std::unique_ptr<device::ThreadPool> own_pool;  // null: `pool` belongs to the host
  device::ThreadPool* pool = nullptr;
  std::byte* kv_arena = nullptr;  // of `kv`, or the host's

  BoundProgram bound;
  std::optional<StepCalls> calls;
  std::vector<std::span<const std::byte>> next;  // per op: the packed weights to read after its own
  ops::KernelContext context;
  comm::Groups groups;  // for the context
  std::optional<GreedyTail> greedy_tail;
  bool greedy = false;                   // the running step uses `greedy tail`
  std::optional<StepSizes> finished;     // sizes of the uncollected step
  std::vector<OutputView> output_views;  // of the last collected step

  bool profiling = false;
  OpProfile profile;
  std::vector<std::vector<ValueId>> dead;  // per op: values that it reads last; for poisoning

  Status AllocateMemory(const Target& target, const Bound* host);
  Status ShareWith(const Bound& host);
  Status AllocateOwn(device::MemoryPlacement* placement);
  void BindProgram(const Target& target);
  void LinkWeights();
  void FindDeadValues();
  WeightOperand WeightOf(size_t op, size_t input) const;
  const std::byte* PartOf(ValueId id) const;
  std::byte* ValueData(ValueId id) const { return bound.values[static_cast<size_t>(id.value())]; }
  void SetOutputs(const StepSizes& sizes, ExecutorOutput* output);
  void RunOp(size_t index);
  void Walk();
  void WalkInstrumented();
  void PoisonOutputs(size_t op);
};

// Checks that this program can share its host's threads and arena of KV pages.
Status NativeExecutor::Bound::ShareWith(const Bound& host) {
  const auto same = [](const char* what, int64_t own, int64_t hosts) {
    if (own == hosts) return OkStatus();
    return InvalidArgument("a program that shares another's KV cache and threads has " +
                           std::to_string(own) + " " + what + ", the other " +
                           std::to_string(hosts));
  };
  if (plan.kv.page_bytes > 0) {
    PAGEMILL_RETURN_IF_ERROR(same("bytes a page", plan.kv.page_bytes, host.plan.kv.page_bytes));
    PAGEMILL_RETURN_IF_ERROR(same("pages", options.num_blocks, host.options.num_blocks));
  }
  PAGEMILL_RETURN_IF_ERROR(same("threads", kernels.num_threads, host.kernels.num_threads));
  pool = host.pool;
  kv_arena = host.kv_arena;
  return OkStatus();
}

Status NativeExecutor::Bound::AllocateOwn(device::MemoryPlacement* placement) {
  if (options.place_memory) {
    *placement = device::PlacementFor(device::AllowedCpus(), device::NumaNodes());
  }
  PAGEMILL_ASSIGN_OR_RETURN(kv, LazyMemory::Allocate(plan.kv.arena_bytes(), "the KV cache"));
  kv_arena = kv.data();
  const Status placed = device::PlaceMemory(kv.bytes(), *placement);
  memory_placement = placed.ok() ? placement->Description() : placed.message();
  if (!placed.ok()) *placement = {};
  own_pool = std::make_unique<device::ThreadPool>(
      device::ThreadPoolOptions{.num_threads = kernels.num_threads});
  pool = own_pool.get();
  return OkStatus();
}

Status NativeExecutor::Bound::AllocateMemory(const Target& target, const Bound* host) {
  PAGEMILL_ASSIGN_OR_RETURN(arena, LazyMemory::Allocate(plan.activation_bytes, "activations"));
  PAGEMILL_ASSIGN_OR_RETURN(workspace, LazyMemory::Allocate(plan.workspace_bytes, "workspace"));
  PAGEMILL_ASSIGN_OR_RETURN(outputs, LazyMemory::Allocate(plan.output_bytes, "outputs"));
  device::MemoryPlacement placement;
  PAGEMILL_RETURN_IF_ERROR(host == nullptr ? AllocateOwn(&placement) : ShareWith(*host));
  groups = target.groups;
  const PackCache cache(options.pack_cache_folder);
  PAGEMILL_ASSIGN_OR_RETURN(
      packed, PackedWeights::Make(program, kernels.kernels, weights,
                                  options.pack_cache_folder.empty() ? nullptr : &cache, *pool,
                                  placement, host == nullptr ? nullptr : &host->packed));
  if (host == nullptr && plan.kv.page_bytes > 0) {
    kv_populated.emplace(kv.bytes());
    pages = std::make_unique<CachePages>(kv.bytes(), static_cast<size_t>(plan.kv.page_bytes));
  }
  return OkStatus();
}

WeightOperand NativeExecutor::Bound::WeightOf(size_t op, size_t input) const {
  const std::byte* copy = packed.data(op, input);
  if (copy != nullptr) return {.data = copy, .reordered = packed.reordered(op, input)};
  return {.data = weights.data(program.ops()[op].inputs[input])};
}

const std::byte* NativeExecutor::Bound::PartOf(ValueId id) const {
  const std::byte* copy = packed.part(id);
  return copy != nullptr ? copy : weights.data(id);
}

void NativeExecutor::Bound::BindProgram(const Target& target) {
  const ActivationPlan activations = PlanActivations(program, target.ops, options.max_sizes());
  bound = Bind(program, kernels, activations, options,
               {.activations = arena.data(),
                .outputs = outputs.data(),
                .kv = kv_arena,
                .workspace = workspace.data(),
                .weight = [this](size_t op, size_t input) { return WeightOf(op, input); },
                .part = [this](ValueId id) { return PartOf(id); }});
  calls.emplace(bound);
  context = {.pool = pool, .workspace = bound.workspace, .groups = &groups};
  LinkWeights();
  greedy_tail = GreedyTail::Find(program, target.ops, options.max_num_logits_rows);
  for (const Output& output : program.outputs()) output_views.push_back({output.name, {}});
  if (options.poison_dead_memory) FindDeadValues();
}

void NativeExecutor::Bound::FindDeadValues() {
  dead.resize(program.ops().size());
  const std::vector<Lifetime> lifetimes = Lifetimes(program);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const ValueId id(static_cast<int32_t>(i));
    if (program.value(id).kind != ValueKind::kActivation || program.IsOutput(id)) continue;
    dead[static_cast<size_t>(lifetimes[i].last)].push_back(id);
  }
}

// Links each op with packed weights to the next one; the last one to the first, for the next step.
void NativeExecutor::Bound::LinkWeights() {
  const size_t num_ops = program.ops().size();
  next.resize(num_ops);
  std::span<const std::byte> following;
  for (size_t i = 2 * num_ops; i-- > 0;) {
    next[i % num_ops] = following;
    const std::span<const std::byte> own = packed.ReadBy(i % num_ops);
    if (!own.empty()) following = own;
  }
}

void NativeExecutor::Bound::SetOutputs(const StepSizes& sizes, ExecutorOutput* output) {
  for (size_t i = 0; i < output_views.size(); ++i) {
    const ValueId id = program.outputs()[i].value;
    const bool computed = !greedy || output_views[i].name != kLogits;
    output_views[i].view =
        computed ? MakeView(program.value(id), sizes, ValueData(id)) : TensorView{};
  }
  output->outputs = output_views;
  output->maxima = {};
  if (greedy) output->maxima = greedy_tail->maxima(static_cast<int32_t>(sizes.logits_rows));
}

void NativeExecutor::Bound::RunOp(size_t index) {
  const ops::Kernel& kernel = *bound.ops[index].kernel;
  const ops::OpCall& call = (*calls)[index];
  pool->ReadAhead(next[index]);
  context.plan = bound.ops[index].plan;
  if (greedy && greedy_tail->Replaces(index)) {
    greedy_tail->Run(index, kernel, call, context);
  } else {
    kernel.run(call, context);
  }
}

void NativeExecutor::Bound::Walk() {
  for (size_t i = 0; i < bound.ops.size(); ++i) RunOp(i);
}

void NativeExecutor::Bound::PoisonOutputs(size_t index) {
  for (ValueId id : program.ops()[index].outputs) {
    std::byte* target = ValueData(id);
    bool takes_over_input = false;
    for (ValueId input : program.ops()[index].inputs) {
      takes_over_input |= input != kNoValue && ValueData(input) == target;
    }
    if (!takes_over_input) Poison(target, program.value(id).Bytes(options.max_sizes()));
  }
}

void NativeExecutor::Bound::WalkInstrumented() {
  using Clock = std::chrono::steady_clock;
  for (size_t i = 0; i < bound.ops.size(); ++i) {
    if (options.poison_dead_memory) PoisonOutputs(i);
    const device::ThreadPoolTimes before = pool->times();
    const Clock::time_point start = Clock::now();
    RunOp(i);
    if (profiling) {
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const device::ThreadPoolTimes after = pool->times();
      // The caller works unless it waits; workers work for the time that the pool reports.
      const double waited_s = (pool->num_threads() - 1) * seconds -
                              (after.workers_busy_s - before.workers_busy_s) +
                              (after.caller_waited_s - before.caller_waited_s);
      profile.Add(KindOf(calls->step()), i, (*calls)[i],
                  {.seconds = seconds, .waited_s = waited_s});
    }
    if (!options.poison_dead_memory) continue;
    for (ValueId id : dead[i]) {
      std::byte* target = ValueData(id);
      bool taken_over = false;
      for (ValueId output : program.ops()[i].outputs) {
        taken_over |= output != id && ValueData(output) == target;
      }
      if (!taken_over) Poison(target, program.value(id).Bytes(options.max_sizes()));
    }
  }
}

StatusOr<std::unique_ptr<NativeExecutor>> NativeExecutor::Create(Program program,
                                                                 const Target& target,
                                                                 const ExecutorOptions& options,
                                                                 NativeExecutor* host) {
  PAGEMILL_RETURN_IF_ERROR(program.SetActivationType(options.activation_type));
  PAGEMILL_RETURN_IF_ERROR(CheckGroups(program, target.groups));
  auto bound = std::make_unique<Bound>();
  PAGEMILL_ASSIGN_OR_RETURN(bound->kernels, SelectKernels(program, target, options));
  PAGEMILL_ASSIGN_OR_RETURN(bound->plan, PlanMemory(program, target, options));
  PAGEMILL_ASSIGN_OR_RETURN(bound->weights, Weights::Load(program));
  bound->program = std::move(program);
  bound->options = options;
  PAGEMILL_RETURN_IF_ERROR(
      bound->AllocateMemory(target, host == nullptr ? nullptr : host->bound_.get()));
  bound->BindProgram(target);
  return std::unique_ptr<NativeExecutor>(new NativeExecutor(std::move(bound)));
}

NativeExecutor::NativeExecutor(std::unique_ptr<Bound> bound) : bound_(std::move(bound)) {}
NativeExecutor::~NativeExecutor() = default;

Status NativeExecutor::Enqueue(const ops::StepBatch& batch) {
  Bound& b = *bound_;
  if (b.finished) return FailedPrecondition("the step before is not collected");
  PAGEMILL_RETURN_IF_ERROR(CheckBatch(batch, b.program, b.bound, b.options, b.plan.kv));
  b.greedy = b.greedy_tail && b.greedy_tail->Serves(batch);
  b.calls->Set(batch);
  MakePlans(b.kernels, *b.calls, b.workspace.bytes());
  if (b.profiling || b.options.poison_dead_memory) {
    b.WalkInstrumented();
  } else {
    b.Walk();
  }
  PAGEMILL_RETURN_IF_ERROR(b.groups.status());
  b.finished = ops::SizesOf(batch);
  return OkStatus();
}

Status NativeExecutor::Collect(ExecutorOutput* output) {
  Bound& b = *bound_;
  if (!b.finished) return FailedPrecondition("no step was enqueued that is not collected");
  b.SetOutputs(*std::exchange(b.finished, std::nullopt), output);
  return OkStatus();
}

const Program& NativeExecutor::program() const { return bound_->program; }
const ExecutorOptions& NativeExecutor::options() const { return bound_->options; }
const MemoryPlan& NativeExecutor::memory_plan() const { return bound_->plan; }
const KernelSelection& NativeExecutor::kernels() const { return bound_->kernels; }
const comm::Groups& NativeExecutor::groups() const { return bound_->groups; }
device::ThreadPool* NativeExecutor::thread_pool() { return bound_->pool; }
step::PageStore* NativeExecutor::pages() { return bound_->pages.get(); }
const PackedWeights& NativeExecutor::packed_weights() const { return bound_->packed; }
const std::string& NativeExecutor::memory_placement() const { return bound_->memory_placement; }
Digest128 NativeExecutor::kv_fingerprint() const {
  Bound& b = *bound_;
  std::call_once(b.fingerprint_computed, [&b] {
    std::vector<Digest128> digests = b.packed.file_digests();
    if (digests.empty()) {
      // The pool's threads may be running steps.
      device::ThreadPool own({.num_threads = 1});
      digests = WeightDigests(b.program, b.weights, DigestMemory(b.options.pack_cache_folder), own);
      // Reading brought in pages of weights that are only read through packed copies.
      if (!b.packed.empty()) b.weights.DropPages();
    }
    b.fingerprint = KvFingerprint(b.program, digests, b.plan.kv);
  });
  return b.fingerprint;
}

void NativeExecutor::SetProfiling(bool on) {
  bound_->profiling = on;
  bound_->pool->SetTiming(on);
  if (on) bound_->profile.Start(bound_->program, bound_->kernels);
}

const OpProfile& NativeExecutor::profile() const { return bound_->profile; }

}  // namespace pagemill::program
