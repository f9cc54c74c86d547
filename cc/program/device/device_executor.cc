#include "cc/program/device/device_executor.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cc/device/stream.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/bound/bound_program.h"
#include "cc/program/bound/step_calls.h"
#include "cc/program/device/device_tokens.h"
#include "cc/program/device/device_weights.h"
#include "cc/program/device/step_image.h"
#include "cc/program/memory/activation_plan.h"
#include "cc/program/memory/memory_plan.h"
#include "cc/program/operand_views.h"

namespace pagemill::program {
namespace {

Status CheckOptions(const ExecutorOptions& options, const DeviceExecutorOptions& device_options) {
  if (device_options.token_columns < 0) {
    return InvalidArgument("token_columns must be at least 0");
  }
  if (device_options.max_blocks < 1 || device_options.max_steps_in_flight < 1) {
    return InvalidArgument("max_blocks and max_steps_in_flight must be at least 1");
  }
  const int32_t largest =
      std::min({options.max_num_seqs, options.max_num_tokens, options.max_num_logits_rows});
  int32_t before = 0;
  for (int32_t size : device_options.graph_sizes) {
    if (size <= before || size > largest) {
      return InvalidArgument("graph_sizes must ascend from 1 to " + std::to_string(largest) +
                             ", the requests of a step that each have a row of logits; got " +
                             std::to_string(size));
    }
    before = size;
  }
  return OkStatus();
}

constexpr int64_t kAlignment = 256;  // bytes; of inputs on the device

StepSizes DecodeSizes(int32_t requests) { return {requests, requests, requests}; }

}  // namespace

struct DeviceExecutor::Bound {
  // Host buffers of a step in flight.
  struct Slot {
    std::vector<std::byte> arrays;   // sent to the device:
    std::vector<std::byte> plans;    // the batch, the kernels' plans of it,
    std::vector<std::byte> inputs;   // and its inputs
    std::vector<std::byte> outputs;  // copied back
    StepSizes sizes;                 // padded
    std::unique_ptr<device::Event> done;
    std::vector<OutputView> views;
    bool by_maxima = false;  // returns maxima instead of logits
    FoundTokens found;
  };
  struct DecodeGraph {
    int32_t num_requests = 0;
    std::unique_ptr<device::Graph> graph;
  };

  Program program;
  ExecutorOptions options;
  DeviceExecutorOptions device_options;
  KernelSelection kernels;
  std::optional<DeviceWeights> weights;
  device::DeviceMemory activations, outputs, workspace, kv, arrays, inputs;
  std::vector<TensorView> input_views;  // of Program::TensorInputs(), on the device
  BoundProgram bound;
  std::optional<StepCalls> calls;
  std::optional<StepImage> image;
  std::optional<DeviceTokens> tokens;
  int64_t num_found = 0;  // rows of the last enqueued step whose tokens the next step may read
  std::vector<Slot> slots;
  size_t num_enqueued = 0;  // in total; step i uses slot i % slots.size()
  size_t num_collected = 0;
  std::unique_ptr<device::Stream> stream;
  std::vector<DecodeGraph> graphs;  // by size

  Status Allocate(const MemoryPlan& plan, device::Device& device);
  Status AllocateInputs(device::Device& device);
  void BindProgram(const Target& target);
  void EnqueueBatch(const ops::StepBatch& batch, const StepSizes& sizes, Slot* slot);
  void EnqueueInputs(std::span<const TensorView> from, Slot* slot);
  Status CheckTokens(const ops::StepBatch& batch) const;
  Status CheckDraws(const StepDraws& draws) const;
  void EnqueueKernels(const StepSizes& sizes);
  Status RecordGraphs();
  std::byte* DataOf(ValueId id) const { return bound.values[static_cast<size_t>(id.value())]; }
  const DecodeGraph* GraphFor(const ops::StepBatch& batch) const;
  void EnqueueOutputs(Slot* slot);
};

Status DeviceExecutor::Bound::Allocate(const MemoryPlan& plan, device::Device& device) {
  PAGEMILL_ASSIGN_OR_RETURN(activations, device.Allocate(plan.activation_bytes, "activations"));
  PAGEMILL_ASSIGN_OR_RETURN(outputs, device.Allocate(plan.output_bytes, "outputs"));
  PAGEMILL_ASSIGN_OR_RETURN(workspace, device.Allocate(plan.workspace_bytes, "workspace"));
  PAGEMILL_ASSIGN_OR_RETURN(kv, device.Allocate(plan.kv.arena_bytes(), "the KV cache"));
  image.emplace(program, plan.kv, device_options.max_blocks);
  const int64_t array_bytes = image->Bytes(options.max_sizes());
  PAGEMILL_ASSIGN_OR_RETURN(arrays, device.Allocate(array_bytes, "arrays of a step"));
  PAGEMILL_RETURN_IF_ERROR(AllocateInputs(device));
  PAGEMILL_ASSIGN_OR_RETURN(stream, device.NewStream());
  slots.resize(static_cast<size_t>(device_options.max_steps_in_flight));
  for (Slot& slot : slots) {
    slot.arrays.resize(static_cast<size_t>(array_bytes));
    slot.plans.resize(static_cast<size_t>(kernels.plan_bytes));
    slot.inputs.resize(inputs.bytes().size());
    slot.outputs.resize(static_cast<size_t>(plan.output_bytes));
    slot.done = device.NewEvent();
  }
  return OkStatus();
}

Status DeviceExecutor::Bound::AllocateInputs(device::Device& device) {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
  for (ValueId id : program.TensorInputs()) {
    input_views.push_back(MakeView(program.value(id), options.max_sizes(), nullptr));
    offsets.push_back(bytes);
    bytes +=
        (program.value(id).Bytes(options.max_sizes()) + kAlignment - 1) / kAlignment * kAlignment;
  }
  PAGEMILL_ASSIGN_OR_RETURN(inputs, device.Allocate(bytes, "inputs of a step"));
  for (size_t i = 0; i < offsets.size(); ++i) input_views[i].data = inputs.data() + offsets[i];
  return OkStatus();
}

void DeviceExecutor::Bound::BindProgram(const Target& target) {
  bound = Bind(program, kernels, PlanActivations(program, target.ops, options.max_sizes()), options,
               {.activations = activations.data(),
                .outputs = outputs.data(),
                .kv = kv.data(),
                .workspace = workspace.data(),
                .weight = [this](size_t op, size_t input) { return weights->at(op, input); },
                .part = [this](ValueId id) { return weights->part(id); }});
  calls.emplace(bound);
}

// Enqueues the batch, padded to `sizes`, and its plans.
void DeviceExecutor::Bound::EnqueueBatch(const ops::StepBatch& batch, const StepSizes& sizes,
                                         Slot* slot) {
  EnqueueInputs(batch.inputs, slot);
  image->Write(batch, sizes, slot->arrays.data());
  const size_t array_bytes = static_cast<size_t>(image->Bytes(sizes));
  stream->CopyToDevice(arrays.data(), std::span(slot->arrays).first(array_bytes));
  if (slot->plans.empty()) return;
  calls->Set(image->View(sizes, slot->arrays.data()));  // host arrays, without inputs
  MakePlans(kernels, *calls, slot->plans);
  stream->CopyToDevice(workspace.data(), slot->plans);
}

void DeviceExecutor::Bound::EnqueueInputs(std::span<const TensorView> from, Slot* slot) {
  for (size_t i = 0; i < from.size(); ++i) {
    std::byte* const to = static_cast<std::byte*>(input_views[i].data);
    const std::span<std::byte> host =
        std::span(slot->inputs).subspan(static_cast<size_t>(to - inputs.data()));
    const size_t row_bytes = static_cast<size_t>(input_views[i].row_stride_bytes);
    const size_t rows = static_cast<size_t>(from[i].shape[0]);
    for (size_t r = 0; r < rows; ++r) {
      std::memcpy(&host[r * row_bytes], from[i].Row<std::byte>(static_cast<int64_t>(r)), row_bytes);
    }
    stream->CopyToDevice(to, host.first(rows * row_bytes));
  }
}

Status DeviceExecutor::Bound::CheckTokens(const ops::StepBatch& batch) const {
  if (tokens && batch.argmax_columns != 0 && batch.argmax_columns != tokens->num_columns()) {
    return InvalidArgument("a step wants maxima of " + std::to_string(batch.argmax_columns) +
                           " columns, token_columns is " + std::to_string(tokens->num_columns()));
  }
  for (int32_t t = 0; t < batch.num_tokens; ++t) {
    if (batch.token_ids[t] >= TokenOfRow(static_cast<int32_t>(num_found) - 1)) continue;
    return InvalidArgument("token " + std::to_string(t) + " of a step is row " +
                           std::to_string(TokenOfRow(batch.token_ids[t])) +
                           " of the step before, which has found " + std::to_string(num_found));
  }
  return OkStatus();
}

// Checks draws for the step enqueued last.
Status DeviceExecutor::Bound::CheckDraws(const StepDraws& draws) const {
  if (static_cast<int64_t>(draws.rows.size()) != num_found) {
    return InvalidArgument("a step of " + std::to_string(num_found) + " rows of logits has " +
                           std::to_string(draws.rows.size()) + " draws");
  }
  const int64_t num_masks = static_cast<int64_t>(draws.masks.size()) / tokens->num_mask_words();
  const auto known = [&](const ops::RowDraw& row) { return row.mask < num_masks; };
  if (num_masks <= num_found && std::all_of(draws.rows.begin(), draws.rows.end(), known)) {
    return OkStatus();
  }
  return InvalidArgument("the draws of a step do not fit its " + std::to_string(num_masks) +
                         " token masks");
}

void DeviceExecutor::Bound::EnqueueKernels(const StepSizes& sizes) {
  ops::StepBatch view = image->View(sizes, arrays.data());
  view.inputs = input_views;
  calls->Set(view);
  if (tokens) tokens->EnqueueTake(view.token_ids, sizes.tokens, *stream);
  ops::KernelContext context = {.workspace = bound.workspace, .stream = stream.get()};
  for (size_t i = 0; i < bound.ops.size(); ++i) {
    context.plan = bound.ops[i].plan;
    bound.ops[i].kernel->run((*calls)[i], context);
  }
  if (tokens) tokens->EnqueueFind(DataOf(*program.FindOutput(kLogits)), sizes.logits_rows, *stream);
}

Status DeviceExecutor::Bound::RecordGraphs() {
  for (int32_t size : device_options.graph_sizes) {
    stream->BeginCapture();
    EnqueueKernels(DecodeSizes(size));
    PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<device::Graph> graph, stream->EndCapture());
    graphs.push_back({.num_requests = size, .graph = std::move(graph)});
  }
  return OkStatus();
}

// The smallest graph that fits a step in which every request decodes one token; null if none fits.
const DeviceExecutor::Bound::DecodeGraph* DeviceExecutor::Bound::GraphFor(
    const ops::StepBatch& batch) const {
  if (batch.num_requests == 0 || ops::SizesOf(batch) != DecodeSizes(batch.num_requests)) {
    return nullptr;
  }
  const auto fits = [&](const DecodeGraph& graph) {
    return graph.num_requests >= batch.num_requests;
  };
  const auto found = std::find_if(graphs.begin(), graphs.end(), fits);
  return found == graphs.end() ? nullptr : &*found;
}

void DeviceExecutor::Bound::EnqueueOutputs(Slot* slot) {
  slot->views.clear();
  std::byte* host = slot->outputs.data();
  for (const Output& output : program.outputs()) {
    const Value& value = program.value(output.value);
    const bool left_out = slot->by_maxima && output.name == kLogits;
    slot->views.push_back(
        {output.name, left_out ? TensorView{} : MakeView(value, slot->sizes, host)});
    if (!left_out) {
      stream->CopyToHost({host, static_cast<size_t>(value.Bytes(slot->sizes))},
                         DataOf(output.value));
    }
    host += value.Bytes(options.max_sizes());
  }
  if (slot->by_maxima) tokens->EnqueueCopy(slot->sizes.logits_rows, &slot->found, *stream);
}

StatusOr<std::unique_ptr<DeviceExecutor>> DeviceExecutor::Create(
    Program program, const Target& target, device::Device& device, const ExecutorOptions& options,
    const DeviceExecutorOptions& device_options) {
  PAGEMILL_RETURN_IF_ERROR(CheckOptions(options, device_options));
  if (!AdapterValues(program).empty()) {
    return Unimplemented("a program with adapters runs on the CPU only");
  }
  auto bound = std::make_unique<Bound>();
  PAGEMILL_ASSIGN_OR_RETURN(bound->kernels, SelectKernels(program, target, options));
  PAGEMILL_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(program, target, options));
  PAGEMILL_ASSIGN_OR_RETURN(bound->weights,
                            DeviceWeights::Upload(program, bound->kernels, options, device));
  bound->program = std::move(program);
  bound->options = options;
  bound->device_options = device_options;
  PAGEMILL_RETURN_IF_ERROR(bound->Allocate(plan, device));
  bound->BindProgram(target);
  if (device_options.token_columns > 0) {
    PAGEMILL_ASSIGN_OR_RETURN(bound->tokens,
                              DeviceTokens::Create(bound->program, target, device, options,
                                                   device_options.token_columns));
  }
  PAGEMILL_RETURN_IF_ERROR(bound->RecordGraphs());
  return std::unique_ptr<DeviceExecutor>(new DeviceExecutor(std::move(bound)));
}

DeviceExecutor::DeviceExecutor(std::unique_ptr<Bound> bound)
    : Executor(bound->device_options.max_steps_in_flight, bound->tokens.has_value()),
      bound_(std::move(bound)) {}
DeviceExecutor::~DeviceExecutor() = default;

const Program& DeviceExecutor::program() const { return bound_->program; }
const KvLayout& DeviceExecutor::kv_layout() const { return bound_->kernels.kv; }

Status DeviceExecutor::Enqueue(const ops::StepBatch& batch) {
  Bound& b = *bound_;
  PAGEMILL_RETURN_IF_ERROR(CheckBatch(batch, b.program, b.bound, b.options, b.kernels.kv));
  for (const ops::KvArrays& kv : batch.kv) {
    if (kv.block_table_stride <= b.device_options.max_blocks) continue;
    return InvalidArgument(
        "a step with " + std::to_string(kv.block_table_stride) +
        " blocks of a request exceeds max_blocks = " + std::to_string(b.device_options.max_blocks));
  }
  PAGEMILL_RETURN_IF_ERROR(b.CheckTokens(batch));
  if (b.num_enqueued - b.num_collected == b.slots.size()) {
    return FailedPrecondition("max_steps_in_flight = " + std::to_string(b.slots.size()) +
                              " steps are enqueued; collect one first");
  }
  Bound::Slot& slot = b.slots[b.num_enqueued % b.slots.size()];
  const Bound::DecodeGraph* const graph = b.GraphFor(batch);
  slot.sizes = ops::SizesOf(batch);
  slot.by_maxima = b.tokens && batch.argmax_columns > 0;
  b.num_found = slot.by_maxima ? slot.sizes.logits_rows : 0;
  const StepSizes sizes = graph == nullptr ? slot.sizes : DecodeSizes(graph->num_requests);
  b.EnqueueBatch(batch, sizes, &slot);
  if (graph == nullptr) {
    b.EnqueueKernels(sizes);
  } else {
    b.stream->Replay(*graph->graph);
  }
  b.EnqueueOutputs(&slot);
  b.stream->Record(*slot.done);
  ++b.num_enqueued;
  return OkStatus();
}

Status DeviceExecutor::Sample(const StepDraws& draws) {
  Bound& b = *bound_;
  if (b.num_enqueued == b.num_collected || b.num_found == 0) {
    return FailedPrecondition("no step was enqueued from whose rows tokens may be drawn");
  }
  PAGEMILL_RETURN_IF_ERROR(b.CheckDraws(draws));
  Bound::Slot& slot = b.slots[(b.num_enqueued - 1) % b.slots.size()];
  b.tokens->EnqueueDraw(b.DataOf(*b.program.FindOutput(kLogits)), draws, &slot.found, *b.stream);
  b.tokens->EnqueueCopy(b.num_found, &slot.found, *b.stream);
  b.stream->Record(*slot.done);
  return OkStatus();
}

Status DeviceExecutor::Collect(ExecutorOutput* output) {
  Bound& b = *bound_;
  if (b.num_enqueued == b.num_collected) {
    return FailedPrecondition("no step was enqueued that is not collected");
  }
  Bound::Slot& slot = b.slots[b.num_collected % b.slots.size()];
  ++b.num_collected;
  PAGEMILL_RETURN_IF_ERROR(slot.done->Synchronize());
  output->outputs = slot.views;
  output->maxima = {};
  if (slot.by_maxima) output->maxima = slot.found.Maxima();
  return OkStatus();
}

}  // namespace pagemill::program
