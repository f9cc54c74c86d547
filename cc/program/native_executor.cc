#include "cc/program/native_executor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <iterator>
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

// Views whose dimension 0 changes with the step, by ops::kDims, and those over an array of the
// batch, by ops::kStepArrays.
struct StepViews {
  std::array<std::vector<TensorView*>, std::size(ops::kDims)> by_dim;
  std::array<std::vector<TensorView*>, std::size(ops::kStepArrays)> by_array;
};

struct BoundOp {
  void (*run)(const ops::OpCall&, ops::KernelContext&) = nullptr;
  ops::OpCall call;
  std::span<const std::byte> next;  // what the next op with packed weights reads
};

// All bits set is a NaN in every floating-point type, and -1 in integers.
void Poison(std::byte* data, int64_t bytes) { std::memset(data, 0xFF, static_cast<size_t>(bytes)); }

// Collectives know how many ranks they were traced for.
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
  std::optional<device::PopulateAhead> kv_populated;  // goes before `kv`
  std::string memory_placement;
  std::once_flag fingerprint_computed;
  Digest128 fingerprint;
  std::unique_ptr<CachePages> pages;  // of `kv`; null where there is none
  std::unique_ptr<device::ThreadPool> pool;

  std::vector<std::byte*> data;   // of every value; null for inputs
  std::vector<TensorView> views;  // of every operand of every op, in order; never resized
  std::vector<BoundOp> ops;
  StepViews step;
  std::vector<ops::BatchView> batches;  // the step as the layers of each block table see it
  ops::KernelContext context;
  comm::Groups groups;  // of the context
  std::optional<GreedyTail> greedy_tail;
  bool greedy = false;  // the step that runs ends with it
  // Of the step that has run, with the program's names.
  std::vector<OutputView> output_views;

  bool profiling = false;
  OpProfile profile;
  std::vector<std::vector<ValueId>> dead;  // values whose last reader an op is, where poisoned

  Status AllocateMemory(const Target& target);
  void PlaceValues(const ActivationPlan& activations);
  void BindOps();
  void LinkWeights();
  TensorView BindOperand(ValueId id);
  void RegisterOperand(ValueId id, TensorView* view);
  Status CheckBatch(const ops::StepBatch& batch) const;
  void SetBatch(const ops::StepBatch& batch);
  void SetOutputs(const ops::StepBatch& batch, ExecutorOutput* output);
  void RunOp(size_t index);
  void Walk();
  void WalkInstrumented();
  void PoisonOutputs(size_t op);
};

Status NativeExecutor::Bound::AllocateMemory(const Target& target) {
  const ActivationPlan activations = PlanActivations(program, target.ops, options.max_sizes());
  PM_ASSIGN_OR_RETURN(arena, LazyMemory::Allocate(plan.activation_bytes, "activations"));
  PM_ASSIGN_OR_RETURN(workspace, LazyMemory::Allocate(plan.workspace_bytes, "workspace"));
  PM_ASSIGN_OR_RETURN(outputs, LazyMemory::Allocate(plan.output_bytes, "outputs"));
  device::MemoryPlacement placement;
  if (options.place_memory) {
    placement = device::PlacementFor(device::AllowedCpus(), device::NumaNodes());
  }
  PM_ASSIGN_OR_RETURN(kv, LazyMemory::Allocate(plan.kv.arena_bytes(), "the KV cache"));
  const Status placed = device::PlaceMemory(kv.bytes(), placement);
  memory_placement = placed.ok() ? placement.Description() : placed.message();
  if (!placed.ok()) placement = {};
  pool = std::make_unique<device::ThreadPool>(
      device::ThreadPoolOptions{.num_threads = kernels.num_threads});
  groups = target.groups;
  context = {.pool = pool.get(), .workspace = workspace.bytes(), .groups = &groups};
  const PackCache cache(options.pack_cache_folder);
  PM_ASSIGN_OR_RETURN(
      packed,
      PackedWeights::Make(program, kernels.rows, weights,
                          options.pack_cache_folder.empty() ? nullptr : &cache, *pool, placement));
  PlaceValues(activations);
  return OkStatus();
}

void NativeExecutor::Bound::PlaceValues(const ActivationPlan& activations) {
  data.assign(program.values().size(), nullptr);
  for (size_t i = 0; i < data.size(); ++i) {
    const Value& v = program.values()[i];
    if (v.kind == ValueKind::kWeight) {
      data[i] = const_cast<std::byte*>(weights.data(ValueId(static_cast<int32_t>(i))));
    } else if (activations.offsets[i] != ActivationPlan::kNotInArena) {
      data[i] = arena.data() + activations.offsets[i];
    }
  }
  if (plan.kv.page_bytes > 0) {
    kv_populated.emplace(kv.bytes());
    pages = std::make_unique<CachePages>(kv.bytes(), static_cast<size_t>(plan.kv.page_bytes));
  }
  int64_t output_offset = 0;
  for (const Output& output : program.outputs()) {
    data[static_cast<size_t>(output.value.value())] = outputs.data() + output_offset;
    output_offset += program.value(output.value).Bytes(options.max_sizes());
  }
}

TensorView NativeExecutor::Bound::BindOperand(ValueId id) {
  if (id == kNoValue) return TensorView{};
  const size_t index = static_cast<size_t>(id.value());
  const Value& v = program.value(id);
  if (v.kind == ValueKind::kCache) return CacheView(v, plan.kv.caches[index], plan.kv, kv.data());
  return MakeView(v, options.max_sizes(), data[index]);
}

void NativeExecutor::Bound::RegisterOperand(ValueId id, TensorView* view) {
  if (id == kNoValue || program.value(id).kind == ValueKind::kCache) return;
  const Value& v = program.value(id);
  for (size_t d = 0; d < std::size(ops::kDims); ++d) {
    if (v.shape.dim == ops::kDims[d].dim) step.by_dim[d].push_back(view);
  }
  for (size_t a = 0; v.kind == ValueKind::kInput && a < std::size(ops::kStepArrays); ++a) {
    if (v.name == ops::kStepArrays[a].name) step.by_array[a].push_back(view);
  }
}

void NativeExecutor::Bound::BindOps() {
  size_t num_operands = 0;
  for (const Op& op : program.ops()) num_operands += op.inputs.size() + op.outputs.size();
  views.reserve(num_operands);                                 // calls point into it
  batches.resize(std::max<size_t>(1, plan.kv.tables.size()));  // calls point into it, too
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    const auto bind = [&](const std::vector<ValueId>& ids) {
      TensorView* first = views.data() + views.size();
      for (ValueId id : ids) {
        views.push_back(BindOperand(id));
        RegisterOperand(id, &views.back());
      }
      return std::span<TensorView>(first, ids.size());
    };
    const std::span<TensorView> inputs = bind(op.inputs);
    for (size_t k = 0; k < inputs.size(); ++k) {
      const std::byte* bytes = packed.data(i, k);
      if (bytes == nullptr) continue;
      inputs[k].data = const_cast<std::byte*>(bytes);
      if (packed.reordered(i, k)) inputs[k].row_stride_bytes = 0;
    }
    const std::span<const TensorView> outputs_of_op = bind(op.outputs);
    ops.push_back({.run = kernels.rows[i]->run,
                   .call = {.inputs = inputs,
                            .outputs = outputs_of_op,
                            .attributes = &op.attributes,
                            .batch = &batches[TableOf(program, op, plan.kv)]},
                   .next = {}});
  }
  LinkWeights();
  greedy_tail = GreedyTail::Find(program, options.max_num_logits_rows);
  for (const Output& output : program.outputs())
    output_views.push_back({output.name, TensorView{}});
  if (!options.poison_dead_memory) return;
  dead.resize(program.ops().size());
  const std::vector<Lifetime> lifetimes = Lifetimes(program);
  for (size_t i = 0; i < lifetimes.size(); ++i) {
    const ValueId id(static_cast<int32_t>(i));
    if (program.value(id).kind != ValueKind::kActivation || program.IsOutput(id)) continue;
    dead[static_cast<size_t>(lifetimes[i].last)].push_back(id);
  }
}

// After the last op with packed weights comes the first one, of the next step.
void NativeExecutor::Bound::LinkWeights() {
  std::span<const std::byte> next;
  for (size_t i = 2 * ops.size(); i-- > 0;) {
    BoundOp& op = ops[i % ops.size()];
    op.next = next;
    const std::span<const std::byte> own = packed.ReadBy(i % ops.size());
    if (!own.empty()) next = own;
  }
}

Status NativeExecutor::Bound::CheckBatch(const ops::StepBatch& b) const {
  const auto check = [](const char* what, int32_t got, int32_t limit, const char* flag) {
    if (got >= 0 && got <= limit) return OkStatus();
    return InvalidArgument("a step of " + std::to_string(got) + " " + what + " exceeds " + flag +
                           " = " + std::to_string(limit));
  };
  PM_RETURN_IF_ERROR(check("tokens", b.num_tokens, options.max_num_tokens, "max_num_tokens"));
  PM_RETURN_IF_ERROR(check("requests", b.num_requests, options.max_num_seqs, "max_num_seqs"));
  PM_RETURN_IF_ERROR(check("rows of logits", b.num_logits_rows, options.max_num_logits_rows,
                           "max_num_logits_rows"));
  if (b.kv.size() != plan.kv.tables.size()) {
    return InvalidArgument("a step with " + std::to_string(b.kv.size()) +
                           " block tables on a cache with " +
                           std::to_string(plan.kv.tables.size()));
  }
  for (size_t t = 0; t < b.kv.size(); ++t) {
    const int32_t block_size = plan.kv.tables[t].block_size;
    if (b.kv[t].block_size == block_size) continue;
    return InvalidArgument("a step with blocks of " + std::to_string(b.kv[t].block_size) +
                           " tokens in block table " + std::to_string(t) + ", whose blocks have " +
                           std::to_string(block_size));
  }
  return OkStatus();
}

void NativeExecutor::Bound::SetBatch(const ops::StepBatch& batch) {
  static_cast<ops::StepArrays&>(batches[0]) = batch;
  for (size_t t = 0; t < batch.kv.size(); ++t) batches[t] = batch.View(t);
  for (size_t d = 0; d < std::size(ops::kDims); ++d) {
    for (TensorView* view : step.by_dim[d]) view->shape[0] = batch.*ops::kDims[d].size;
  }
  for (size_t a = 0; a < std::size(ops::kStepArrays); ++a) {
    int32_t* array = const_cast<int32_t*>(batch.*ops::kStepArrays[a].data);
    for (TensorView* view : step.by_array[a]) view->data = array;
  }
}

void NativeExecutor::Bound::SetOutputs(const ops::StepBatch& batch, ExecutorOutput* output) {
  const StepSizes sizes = ops::SizesOf(batch);
  for (size_t i = 0; i < output_views.size(); ++i) {
    const ValueId id = program.outputs()[i].value;
    const bool computed = !greedy || output_views[i].name != kLogits;
    output_views[i].view =
        computed ? MakeView(program.value(id), sizes, data[static_cast<size_t>(id.value())])
                 : TensorView{};
  }
  output->outputs = output_views;
  output->maxima = {};
  if (greedy) output->maxima = greedy_tail->maxima(batch.num_logits_rows);
}

void NativeExecutor::Bound::RunOp(size_t index) {
  const BoundOp& op = ops[index];
  pool->ReadAhead(op.next);
  if (greedy && greedy_tail->Replaces(index)) {
    greedy_tail->Run(index, *kernels.rows[index], op.call, context);
  } else {
    op.run(op.call, context);
  }
}

void NativeExecutor::Bound::Walk() {
  for (size_t i = 0; i < ops.size(); ++i) RunOp(i);
}

void NativeExecutor::Bound::PoisonOutputs(size_t index) {
  for (ValueId id : program.ops()[index].outputs) {
    std::byte* target = data[static_cast<size_t>(id.value())];
    bool takes_over_input = false;
    for (ValueId input : program.ops()[index].inputs) {
      takes_over_input |= input != kNoValue && data[static_cast<size_t>(input.value())] == target;
    }
    if (!takes_over_input) Poison(target, program.value(id).Bytes(options.max_sizes()));
  }
}

void NativeExecutor::Bound::WalkInstrumented() {
  using Clock = std::chrono::steady_clock;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (options.poison_dead_memory) PoisonOutputs(i);
    const device::ThreadPoolTimes before = pool->times();
    const Clock::time_point start = Clock::now();
    RunOp(i);
    if (profiling) {
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const device::ThreadPoolTimes after = pool->times();
      // The caller works where it does not wait; workers work where the pool says so.
      const double waited_s = (pool->num_threads() - 1) * seconds -
                              (after.workers_busy_s - before.workers_busy_s) +
                              (after.caller_waited_s - before.caller_waited_s);
      profile.Add(KindOf(batches[0]), i, ops[i].call, {.seconds = seconds, .waited_s = waited_s});
    }
    if (!options.poison_dead_memory) continue;
    for (ValueId id : dead[i]) {
      std::byte* target = data[static_cast<size_t>(id.value())];
      bool taken_over = false;
      for (ValueId output : program.ops()[i].outputs) {
        taken_over |= output != id && data[static_cast<size_t>(output.value())] == target;
      }
      if (!taken_over) Poison(target, program.value(id).Bytes(options.max_sizes()));
    }
  }
}

StatusOr<std::unique_ptr<NativeExecutor>> NativeExecutor::Create(Program program,
                                                                 const Target& target,
                                                                 const ExecutorOptions& options) {
  PM_RETURN_IF_ERROR(program.SetActivationType(options.activation_type));
  PM_RETURN_IF_ERROR(CheckGroups(program, target.groups));
  auto bound = std::make_unique<Bound>();
  PM_ASSIGN_OR_RETURN(bound->kernels, SelectKernels(program, target, options));
  PM_ASSIGN_OR_RETURN(bound->plan, PlanMemory(program, target, options));
  PM_ASSIGN_OR_RETURN(bound->weights, Weights::Load(program));
  bound->program = std::move(program);
  bound->options = options;
  PM_RETURN_IF_ERROR(bound->AllocateMemory(target));
  bound->BindOps();
  return std::unique_ptr<NativeExecutor>(new NativeExecutor(std::move(bound)));
}

NativeExecutor::NativeExecutor(std::unique_ptr<Bound> bound) : bound_(std::move(bound)) {}
NativeExecutor::~NativeExecutor() = default;

Status NativeExecutor::Execute(const ops::StepBatch& batch, ExecutorOutput* output) {
  Bound& b = *bound_;
  PM_RETURN_IF_ERROR(b.CheckBatch(batch));
  b.greedy = b.greedy_tail && b.greedy_tail->Serves(batch);
  b.SetBatch(batch);
  if (b.profiling || b.options.poison_dead_memory) {
    b.WalkInstrumented();
  } else {
    b.Walk();
  }
  PM_RETURN_IF_ERROR(b.groups.status());
  b.SetOutputs(batch, output);
  return OkStatus();
}

const Program& NativeExecutor::program() const { return bound_->program; }
const ExecutorOptions& NativeExecutor::options() const { return bound_->options; }
const MemoryPlan& NativeExecutor::memory_plan() const { return bound_->plan; }
const KernelSelection& NativeExecutor::kernels() const { return bound_->kernels; }
const comm::Groups& NativeExecutor::groups() const { return bound_->groups; }
device::ThreadPool* NativeExecutor::thread_pool() { return bound_->pool.get(); }
step::PageStore* NativeExecutor::pages() { return bound_->pages.get(); }
const PackedWeights& NativeExecutor::packed_weights() const { return bound_->packed; }
const std::string& NativeExecutor::memory_placement() const { return bound_->memory_placement; }
Digest128 NativeExecutor::kv_fingerprint() const {
  Bound& b = *bound_;
  std::call_once(b.fingerprint_computed, [&b] {
    std::vector<Digest128> digests = b.packed.file_digests();
    if (digests.empty()) {
      // Steps may be running on the threads of the pool.
      device::ThreadPool own({.num_threads = 1});
      digests = WeightDigests(b.program, b.weights, DigestMemory(b.options.pack_cache_folder), own);
      // That has brought in pages of weights that only packed copies of are read.
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

std::vector<OpTime> NativeExecutor::Profile(StepKind kind) const {
  return bound_->profile.Times(kind);
}

}  // namespace pagemill::program
