#include "cc/program/device/device_executor.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "cc/device/stream.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/collective.h"
#include "cc/program/adapters/device_adapters.h"
#include "cc/program/bound/bound_program.h"
#include "cc/program/bound/step_calls.h"
#include "cc/program/device/device_weights.h"
#include "cc/program/device/step_graphs.h"
#include "cc/program/device/step_image.h"
#include "cc/program/device/tokens/device_tokens.h"
#include "cc/program/kv/device_pages.h"
#include "cc/program/kv/key_layout.h"
#include "cc/program/kv/kv_fingerprint.h"
#include "cc/program/operand_views.h"
#include "cc/program/weights/file_digest.h"
#include "cc/program/weights/mapped_file.h"
#include "cc/program/weights/other_weights.h"
#include "cc/program/weights/weight_digests.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {
namespace {

// Tokens that a request of padding may have without leaving its row of any block table.
int64_t MaxPaddingTokens(const KvLayout& layout, int64_t max_blocks) {
  int64_t tokens = std::numeric_limits<int32_t>::max();
  for (const KvLayout::Table& table : layout.tables) {
    tokens = std::min(tokens, (max_blocks - table.recent_states) * table.block_size);
  }
  return tokens;
}

bool UsesAdapters(const ops::StepBatch& batch) {
  return batch.adapter_slots != nullptr &&
         std::any_of(batch.adapter_slots, batch.adapter_slots + batch.num_tokens,
                     [](int32_t slot) { return slot >= 0; });
}

}  // namespace

struct DeviceExecutor::Bound {
  explicit Bound(device::Device& used) : the_device(used) {}

  // A step in flight.
  struct Slot {
    device::HostMemory memory;
    // In `memory`:
    std::span<std::byte> arrays;   // sent to the device: the kernels' plans and the batch,
    std::span<std::byte> inputs;   // its inputs,
    std::span<std::byte> tables;   // and tables of adapters
    std::span<std::byte> outputs;  // copied back
    StepImage::Staging image;      // in `arrays`
    StepSizes sizes;               // without padding
    StepSizes padded;
    std::unique_ptr<device::Event> done;
    std::vector<OutputView> views;
    bool by_maxima = false;  // returns maxima instead of logits
    FoundTokens found;
  };

  device::Device& the_device;
  Program program;
  ExecutorOptions options;
  DeviceExecutorOptions device_options;
  DevicePlan plan;
  comm::Groups groups;                   // whose ranks the stream joins
  Weights::Files files;                  // they stay mapped, which costs no memory
  std::optional<DeviceWeights> weights;  // none while they are not in memory
  std::mutex program_mutex;  // of `program`, `files` and `fingerprint`, which other threads read
  std::optional<Digest128> fingerprint;
  device::DeviceMemory activations, outputs, workspace, kv, arrays, inputs;
  std::vector<TensorView> input_views;  // of Program::TensorInputs(), on the device
  BoundProgram bound;
  std::optional<StepCalls> calls;
  std::optional<StepImage> image;
  std::optional<DeviceTokens> tokens;
  std::optional<DeviceAdapters> adapters;
  int64_t num_found = 0;  // rows of the last enqueued step whose tokens the next step may read
  bool newest_is_open = false;  // that step has no end on the stream yet: Sample() may add to it
  std::vector<Slot> slots;
  int64_t num_enqueued = 0;  // in total; step i uses slot i % slots.size()
  int64_t num_collected = 0;
  Slot& SlotOf(int64_t step) { return slots[static_cast<size_t>(step) % slots.size()]; }
  std::optional<StepGraphs> graphs;
  std::unique_ptr<DevicePages> pages;          // of `kv`; null without one
  std::byte* kv_arena = nullptr;               // of `kv`, or the host's
  device::Stream* stream = nullptr;            // its own, or the host's
  std::unique_ptr<device::Event> last_done;    // of a stream that is the host's
  std::unique_ptr<device::Stream> own_stream;  // last: it waits for work that uses the others

  ~Bound();
  StatusOr<std::unique_ptr<OtherWeights>> OpenWeights(Program other,
                                                      std::span<const MappedFile> mapped) const;
  Status ShareWith(const Bound& host);
  Status AllocateKv();
  Status AllocateOwn();
  Status AllocateWork();
  Status Allocate();
  Status AllocateSlots();
  Status JoinRanks();
  Status Upload();
  Status Reload(const Bound* host);
  void Unload();
  void BindProgram();
  void EnqueueBatch(const ops::StepBatch& batch, const StepSizes& sizes, Slot* slot);
  void EnqueueInputs(std::span<const TensorView> from, Slot* slot);
  Status CheckTokens(const ops::StepBatch& batch) const;
  void EnqueueKernels(const StepSizes& sizes, bool with_adapters);
  const int32_t* TokenIds(const StepSizes& sizes);
  std::byte* DataOf(ValueId id) const { return bound.values[static_cast<size_t>(id.value())]; }
  void EnqueueOutputs(Slot* slot);
  void EnqueueEnd();
};

DeviceExecutor::Bound::~Bound() {
  if (last_done == nullptr) return;
  stream->Record(*last_done);
  (void)last_done->Synchronize();
}

// Checks that this program can share its host's arena of KV pages.
Status DeviceExecutor::Bound::ShareWith(const Bound& host) {
  const auto same = [](const char* what, int64_t own, int64_t hosts) {
    if (own == hosts) return OkStatus();
    return InvalidArgument("the program has " + std::to_string(own) + " " + what + ", its host " +
                           std::to_string(hosts));
  };
  PAGEMILL_RETURN_IF_ERROR(same("bytes a page", plan.kv().page_bytes, host.plan.kv().page_bytes));
  PAGEMILL_RETURN_IF_ERROR(same("pages", options.num_blocks, host.options.num_blocks));
  if (host.plan.kv_bytes > 0 && host.kv_arena == nullptr) {
    return FailedPrecondition("the KV cache of the host is not in memory");
  }
  kv_arena = host.kv_arena;
  stream = host.stream;
  last_done = the_device.NewEvent();
  return OkStatus();
}

Status DeviceExecutor::Bound::AllocateKv() {
  PAGEMILL_ASSIGN_OR_RETURN(kv, the_device.Allocate(plan.kv_bytes, "the KV cache"));
  kv_arena = kv.data();
  if (pages != nullptr) pages->Move(kv.bytes());
  return OkStatus();
}

Status DeviceExecutor::Bound::AllocateOwn() {
  PAGEMILL_RETURN_IF_ERROR(AllocateKv());
  PAGEMILL_ASSIGN_OR_RETURN(own_stream, the_device.NewStream());
  stream = own_stream.get();
  PAGEMILL_RETURN_IF_ERROR(JoinRanks());
  if (plan.kv_bytes == 0) return OkStatus();
  PAGEMILL_ASSIGN_OR_RETURN(
      pages, DevicePages::Create(kv.bytes(), plan.kv().page_bytes, the_device));
  return OkStatus();
}

// What weights leave memory with.
Status DeviceExecutor::Bound::AllocateWork() {
  PAGEMILL_ASSIGN_OR_RETURN(activations,
                            the_device.Allocate(plan.activations.arena_bytes, "activations"));
  PAGEMILL_ASSIGN_OR_RETURN(outputs, the_device.Allocate(plan.output_bytes, "outputs"));
  PAGEMILL_ASSIGN_OR_RETURN(workspace,
                            the_device.Allocate(plan.kernels.workspace_bytes, "workspace"));
  return OkStatus();
}

Status DeviceExecutor::Bound::Allocate() {
  PAGEMILL_RETURN_IF_ERROR(AllocateWork());
  PAGEMILL_ASSIGN_OR_RETURN(arrays, the_device.Allocate(plan.array_bytes, "arrays of a step"));
  PAGEMILL_ASSIGN_OR_RETURN(inputs, the_device.Allocate(plan.input_bytes, "inputs of a step"));
  if (plan.tokens) {
    PAGEMILL_ASSIGN_OR_RETURN(tokens, DeviceTokens::Create(*plan.tokens, the_device));
  }
  if (plan.adapters.table_bytes > 0) {
    PAGEMILL_ASSIGN_OR_RETURN(
        adapters,
        DeviceAdapters::Create(program, AdapterOptions(options, device_options), the_device));
  }
  return AllocateSlots();
}

Status DeviceExecutor::Bound::JoinRanks() {
  comm::Group* const group = groups.at(comm::Axis::kTensor);
  if (plan.exchange_bytes == 0) return OkStatus();  // no collectives
  if (group == nullptr) {
    return Unimplemented("collectives on devices are those of tensor parallelism");
  }
  device::Ranks ranks = ops::RanksOf(*group);
  ranks.buffer_bytes = plan.exchange_bytes;
  return stream->Join(ranks);
}

Status DeviceExecutor::Bound::AllocateSlots() {
  slots.resize(static_cast<size_t>(plan.num_slots));
  for (Slot& slot : slots) {
    PAGEMILL_ASSIGN_OR_RETURN(slot.memory, the_device.AllocateHost(plan.slot_bytes, "a step"));
    std::byte* at = slot.memory.data();
    const std::pair<std::span<std::byte>*, int64_t> parts[] = {
        {&slot.arrays, plan.array_bytes},
        {&slot.inputs, plan.input_bytes},
        {&slot.tables, plan.adapters.table_bytes},
        {&slot.outputs, plan.output_bytes}};
    for (const auto& [part, bytes] : parts) {
      *part = {at, static_cast<size_t>(bytes)};
      at += DevicePlan::Aligned(bytes);
    }
    slot.image.data = slot.arrays.data() + plan.arrays_offset();
    if (tokens) {
      PAGEMILL_ASSIGN_OR_RETURN(slot.found, tokens->NewFound(the_device));
    }
    slot.done = the_device.NewEvent();
  }
  return OkStatus();
}

void DeviceExecutor::Bound::BindProgram() {
  bound = Bind(program, plan.kernels, plan.activations, options,
               {.activations = activations.data(),
                .outputs = outputs.data(),
                .kv = kv_arena,
                .plans = arrays.data(),
                .workspace = workspace.data(),
                .weight = [this](size_t op, size_t input) { return weights->at(op, input); },
                .part = [this](ValueId id) { return weights->part(id); },
                .adapter = [this](ValueId id) { return adapters->TableOf(id); }});
  calls.emplace(bound);
  image.emplace(program, plan.kv(), device_options.max_blocks);
  input_views.clear();
  for (size_t i = 0; i < bound.inputs.size(); ++i) {
    std::byte* const at = inputs.data() + plan.input_offsets[i];
    input_views.push_back(MakeView(program.value(bound.inputs[i]), options.max_sizes(), at));
  }
  graphs.emplace(StepGraphOptions{
      .max_sizes = options.max_sizes(),
      .max_tokens = device_options.max_graph_tokens,
      .max_padding_tokens = MaxPaddingTokens(plan.kv(), device_options.max_blocks),
      .max_graphs = device_options.max_graphs});
}

Status DeviceExecutor::Bound::Upload() {
  PAGEMILL_ASSIGN_OR_RETURN(
      weights,
      DeviceWeights::Upload(program, files, plan.kernels, device_options.upload, the_device));
  return OkStatus();
}

// `host`: that of an executor without KV and stream of its own.
Status DeviceExecutor::Bound::Reload(const Bound* host) {
  PAGEMILL_RETURN_IF_ERROR(Upload());
  PAGEMILL_RETURN_IF_ERROR(AllocateWork());
  if (host != nullptr) kv_arena = host->kv_arena;
  if (host == nullptr && kv_arena == nullptr) PAGEMILL_RETURN_IF_ERROR(AllocateKv());
  BindProgram();
  return OkStatus();
}

void DeviceExecutor::Bound::Unload() {
  graphs.reset();
  weights.reset();
  for (device::DeviceMemory* memory : {&activations, &outputs, &workspace}) *memory = {};
}

// Enqueues the batch, padded to `sizes`, and its plans.
void DeviceExecutor::Bound::EnqueueBatch(const ops::StepBatch& batch, const StepSizes& sizes,
                                         Slot* slot) {
  EnqueueInputs(batch.inputs, slot);
  image->Write(batch, sizes, &slot->image);
  if (!plan.kernels.plans.empty()) {
    calls->Set(image->View(sizes, slot->image.data));  // host arrays, without inputs
    MakePlans(plan.kernels, *calls, slot->arrays);
  }
  const int64_t bytes = plan.arrays_offset() + image->Bytes(sizes);
  stream->CopyToDevice(arrays.data(), slot->arrays.first(static_cast<size_t>(bytes)));
}

void DeviceExecutor::Bound::EnqueueInputs(std::span<const TensorView> from, Slot* slot) {
  for (size_t i = 0; i < from.size(); ++i) {
    std::byte* const to = static_cast<std::byte*>(input_views[i].data);
    const std::span<std::byte> host =
        slot->inputs.subspan(static_cast<size_t>(to - inputs.data()));
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

// Without adapters, kernels that apply them do nothing.
void DeviceExecutor::Bound::EnqueueKernels(const StepSizes& sizes, bool with_adapters) {
  ops::StepBatch view = image->View(sizes, arrays.data() + plan.arrays_offset());
  if (!with_adapters) view.adapter_slots = nullptr;
  view.inputs = input_views;
  calls->Set(view);
  if (tokens) tokens->EnqueueTake(view.token_ids, sizes.tokens, *stream);
  ops::KernelContext context = {.workspace = bound.workspace, .stream = stream};
  for (size_t i = 0; i < bound.ops.size(); ++i) {
    context.plan = bound.ops[i].plan;
    bound.ops[i].kernel->run((*calls)[i], context);
  }
  if (tokens) tokens->EnqueueFind(DataOf(*program.FindOutput(kLogits)), sizes.logits_rows, *stream);
}

// On the device, of the step that was enqueued last, padded to `sizes`.
const int32_t* DeviceExecutor::Bound::TokenIds(const StepSizes& sizes) {
  return image->View(sizes, arrays.data() + plan.arrays_offset()).token_ids;
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
}

// Ends the step that was enqueued last, unless it has an end: with draws of its tokens, one copy
// and one event are enough.
void DeviceExecutor::Bound::EnqueueEnd() {
  if (!std::exchange(newest_is_open, false)) return;
  Slot& slot = SlotOf(num_enqueued - 1);
  if (slot.by_maxima) tokens->EnqueueCopy(num_found, &slot.found, *stream);
  stream->Record(*slot.done);
}

StatusOr<std::unique_ptr<DeviceExecutor>> DeviceExecutor::Create(
    Program program, const Target& target, device::Device& device, const ExecutorOptions& options,
    const DeviceExecutorOptions& device_options, const DeviceExecutor* host) {
  if (device_options.shares_kv != (host != nullptr)) {
    return InvalidArgument("shares_kv is " + std::to_string(device_options.shares_kv) +
                           (host == nullptr ? " without a host" : " with a host"));
  }
  PAGEMILL_RETURN_IF_ERROR(CheckRanks(program, target));
  auto bound = std::make_unique<Bound>(device);
  PAGEMILL_ASSIGN_OR_RETURN(bound->plan, PlanDevice(program, target, options, device_options));
  PAGEMILL_RETURN_IF_ERROR(CheckFits(bound->plan, device.CountMemory()));
  PAGEMILL_ASSIGN_OR_RETURN(bound->files, Weights::Open(program));
  bound->program = std::move(program);
  bound->options = options;
  bound->groups = target.groups;
  bound->device_options = device_options;
  PAGEMILL_RETURN_IF_ERROR(bound->Upload());
  PAGEMILL_RETURN_IF_ERROR(host == nullptr ? bound->AllocateOwn()
                                           : bound->ShareWith(*host->bound_));
  PAGEMILL_RETURN_IF_ERROR(bound->Allocate());
  bound->BindProgram();
  return std::unique_ptr<DeviceExecutor>(new DeviceExecutor(std::move(bound)));
}

DeviceExecutor::DeviceExecutor(std::unique_ptr<Bound> bound)
    : Executor(bound->device_options.max_steps_in_flight, bound->tokens.has_value()),
      bound_(std::move(bound)) {}
DeviceExecutor::~DeviceExecutor() = default;

const Program& DeviceExecutor::program() const { return bound_->program; }
const KvLayout& DeviceExecutor::kv_layout() const { return bound_->plan.kv(); }
const DevicePlan& DeviceExecutor::plan() const { return bound_->plan; }
step::PageStore* DeviceExecutor::pages() { return bound_->pages.get(); }

Digest128 DeviceExecutor::kv_fingerprint() const {
  Bound& b = *bound_;
  const std::lock_guard lock(b.program_mutex);
  if (!b.fingerprint) {
    device::ThreadPool pool({.num_threads = 1});
    const auto digests = WeightDigests(b.program, *b.files,
                                       DigestMemory(b.options.pack_cache_folder), pool);
    for (const MappedFile& file : *b.files) file.DropPages();
    b.fingerprint = KvFingerprint(b.program, digests, b.plan.kv());
  }
  return *b.fingerprint;
}

double DeviceExecutor::upload_seconds() const {
  return bound_->weights ? bound_->weights->seconds() : 0;
}
int64_t DeviceExecutor::num_graphs() const {
  return bound_->graphs ? bound_->graphs->num_graphs() : 0;
}
const comm::Groups& DeviceExecutor::groups() const { return bound_->groups; }

void DeviceExecutor::UnloadWeights() { bound_->Unload(); }

void DeviceExecutor::FreeKv() {
  if (bound_->pages != nullptr) bound_->pages->Move({});
  bound_->kv = {};
  bound_->kv_arena = nullptr;
}

Status DeviceExecutor::LoadWeights(const DeviceExecutor* host) {
  if (bound_->weights) return OkStatus();
  const bool shares = bound_->device_options.shares_kv;
  Status status = bound_->Reload(shares ? host->bound_.get() : nullptr);
  if (!status.ok()) bound_->Unload();
  return status;
}

StatusOr<std::unique_ptr<OtherWeights>> DeviceExecutor::Bound::OpenWeights(
    Program other, std::span<const MappedFile> mapped) const {
  PAGEMILL_RETURN_IF_ERROR(other.SetActivationType(options.activation_type));
  CopyKeyLayout(program, &other);
  PAGEMILL_RETURN_IF_ERROR(CheckOtherWeights(program, other));
  PAGEMILL_ASSIGN_OR_RETURN(Weights::Files opened, Weights::Open(other, mapped));
  return std::make_unique<OtherWeights>(
      OtherWeights{.program = std::move(other), .files = std::move(opened)});
}

StatusOr<std::unique_ptr<OtherWeights>> DeviceExecutor::OpenWeights(Program program) const {
  return bound_->OpenWeights(std::move(program), {});
}

StatusOr<std::unique_ptr<OtherWeights>> DeviceExecutor::OpenOtherWeights(Program program) const {
  return bound_->OpenWeights(std::move(program), *bound_->files);
}

Status DeviceExecutor::UploadBeside(OtherWeights* weights) const {
  const Bound& b = *bound_;
  PAGEMILL_ASSIGN_OR_RETURN(
      weights->weights, DeviceWeights::Upload(weights->program, weights->files, b.plan.kernels,
                                              b.device_options.upload, b.the_device));
  return OkStatus();
}

Status DeviceExecutor::LoadOver(OtherWeights* weights) const {
  Bound& b = *bound_;
  if (!b.weights) return FailedPrecondition("the weights are not in memory");
  PAGEMILL_ASSIGN_OR_RETURN(
      weights->changes,
      WeightChanges::Make({b.program, b.files}, {weights->program, weights->files}, b.plan.kernels,
                          b.device_options.upload, b.the_device, &*b.weights));
  return OkStatus();
}

Status DeviceExecutor::UseWeights(std::unique_ptr<OtherWeights> weights) {
  Bound& b = *bound_;
  {
    const std::lock_guard lock(b.program_mutex);
    std::swap(b.program, weights->program);
    b.files.swap(weights->files);
    b.fingerprint.reset();
  }
  if (weights->changes) {
    const Status status = weights->changes->Write();
    if (!status.ok()) {
      b.Unload();
      return status;
    }
  } else {
    b.weights.swap(weights->weights);
  }
  if (b.weights) b.BindProgram();
  return OkStatus();
}

StatusOr<std::shared_ptr<const AdapterWeights>> DeviceExecutor::MakeAdapter(
    std::span<const AdapterWeights::Layer> layers) const {
  const std::lock_guard lock(bound_->program_mutex);
  return AdapterWeights::Make(bound_->program, layers);
}

Status DeviceExecutor::CheckAdapter(const AdapterWeights& weights) const {
  if (!bound_->adapters) return InvalidArgument("the program has no adapters");
  return bound_->adapters->CheckFits(weights);
}

Status DeviceExecutor::SetAdapter(int32_t slot, const AdapterWeights* weights) {
  if (!bound_->adapters) return InvalidArgument("the program has no adapters");
  return bound_->adapters->Set(slot, weights, *bound_->stream);
}

Status DeviceExecutor::Enqueue(const ops::StepBatch& batch) {
  Bound& b = *bound_;
  if (!b.weights) return FailedPrecondition("the weights are not in memory");
  PAGEMILL_RETURN_IF_ERROR(CheckBatch(batch, b.program, b.bound, b.options, b.plan.kv()));
  for (const ops::KvArrays& kv : batch.kv) {
    if (kv.block_table_stride <= b.device_options.max_blocks) continue;
    return InvalidArgument(
        "a step with " + std::to_string(kv.block_table_stride) +
        " blocks of a request exceeds max_blocks = " + std::to_string(b.device_options.max_blocks));
  }
  PAGEMILL_RETURN_IF_ERROR(b.CheckTokens(batch));
  if (b.num_enqueued - b.num_collected == b.device_options.max_steps_in_flight) {
    return FailedPrecondition("max_steps_in_flight = " + std::to_string(b.slots.size()) +
                              " steps are enqueued; collect one first");
  }
  b.EnqueueEnd();
  Bound::Slot& slot = b.SlotOf(b.num_enqueued);
  slot.sizes = ops::SizesOf(batch);
  slot.by_maxima = b.tokens && batch.argmax_columns > 0;
  slot.found.Clear();
  b.num_found = slot.by_maxima ? slot.sizes.logits_rows : 0;
  const std::optional<StepSizes> bucket = b.graphs->BucketOf(slot.sizes);
  slot.padded = bucket.value_or(slot.sizes);
  b.EnqueueBatch(batch, slot.padded, &slot);
  const bool with_adapters = UsesAdapters(batch);
  if (b.adapters) b.adapters->EnqueueTables(slot.tables, *b.stream);
  if (bucket) {
    PAGEMILL_RETURN_IF_ERROR(b.graphs->Run(*bucket, with_adapters, b.num_enqueued, b.num_collected,
                                           *b.stream,
                                           [&] { b.EnqueueKernels(*bucket, with_adapters); }));
  } else {
    b.EnqueueKernels(slot.padded, with_adapters);
  }
  b.EnqueueOutputs(&slot);
  ++b.num_enqueued;
  b.newest_is_open = true;
  if (!slot.by_maxima) b.EnqueueEnd();
  return OkStatus();
}

Status DeviceExecutor::Sample(const StepDraws& draws) {
  Bound& b = *bound_;
  if (!b.newest_is_open || b.num_found == 0) {
    return FailedPrecondition("no step was enqueued from whose rows tokens may be drawn");
  }
  Bound::Slot& slot = b.SlotOf(b.num_enqueued - 1);
  PAGEMILL_RETURN_IF_ERROR(b.tokens->CheckDraws(draws, b.num_found, slot.sizes.tokens));
  const std::span<const int32_t> ids = {b.TokenIds(slot.padded),
                                        static_cast<size_t>(slot.sizes.tokens)};
  b.tokens->EnqueueDraw(b.DataOf(*b.program.FindOutput(kLogits)), ids, draws, &slot.found,
                        *b.stream);
  b.EnqueueEnd();
  return OkStatus();
}

Status DeviceExecutor::Collect(ExecutorOutput* output) {
  Bound& b = *bound_;
  if (b.num_enqueued == b.num_collected) {
    return FailedPrecondition("no step was enqueued that is not collected");
  }
  // The newest step may still be sampled from while an older one is collected.
  if (b.num_collected + 1 == b.num_enqueued) b.EnqueueEnd();
  Bound::Slot& slot = b.SlotOf(b.num_collected);
  ++b.num_collected;
  PAGEMILL_RETURN_IF_ERROR(slot.done->Synchronize());
  output->outputs = slot.views;
  output->maxima = {};
  output->scores = {};
  if (slot.by_maxima) {
    output->maxima = slot.found.Maxima();
    output->scores = slot.found.Scores();
  }
  return OkStatus();
}

}  // namespace pagemill::program
