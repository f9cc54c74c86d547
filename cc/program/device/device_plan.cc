#include "cc/program/device/device_plan.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <initializer_list>
#include <utility>

#include "cc/program/device/step_image.h"
#include "cc/program/device/weight_arena.h"
#include "cc/program/kv/device_pages.h"

namespace pagemill::program {
namespace {

constexpr int64_t kAlignment = 256;  // bytes; of tensors of a step, and of the parts of a slot

// Per op of a recorded program, with its parameters and what the driver needs to launch it: a
// generous guess.
constexpr int64_t kGraphBytesPerOp = 4096;

std::string Mib(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

std::string Gib(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

struct Part {
  const char* name;
  int64_t bytes;
};

// What is allocated on the device.
std::vector<Part> PartsOf(const DevicePlan& plan) {
  return {{"weights", plan.weight_bytes},
          {"kv cache", plan.kv_bytes},
          {"activations", plan.activations.arena_bytes},
          {"workspace", plan.kernels.workspace_bytes},
          {"outputs", plan.output_bytes},
          {"step", plan.array_bytes + plan.input_bytes},
          {"tokens", plan.tokens ? plan.tokens->token_bytes() : 0},
          {"masks", plan.mask_bytes()},
          {"counts", plan.count_bytes()},
          {"row copies", plan.row_copy_bytes()},
          {"adapters", plan.adapters.table_bytes + plan.adapters.matrix_bytes},
          {"exchange", plan.exchange_bytes}};
}

bool HasCollectives(const Program& program) {
  return std::ranges::any_of(program.ops(), [](const Op& op) {
    return op.attributes.GetInt("ranks", 1) > 1;
  });
}

}  // namespace

int64_t DevicePlan::Aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t DevicePlan::allocated_bytes() const {
  int64_t bytes = 0;
  for (const Part& part : PartsOf(*this)) bytes += part.bytes;
  return bytes;
}

int64_t DevicePlan::host_bytes() const {
  int64_t slot = slot_bytes;
  if (tokens) {
    slot += tokens->host_bytes() + tokens->adjuster.host_bytes() + tokens->scorer.step_bytes();
  }
  return host_weight_bytes +
         std::max(upload_bytes, num_slots * slot + adapters.upload_bytes + copy_bytes);
}

std::string DevicePlan::ToString() const {
  std::vector<Part> lines = PartsOf(*this);
  lines.insert(lines.end(), {{"graphs", graph_bytes},
                             {"total", total_bytes()},
                             {"a kv page", kv().page_bytes},
                             {"host weights", host_weight_bytes},
                             {"on the host", host_bytes()}});
  std::string text;
  for (const Part& line : lines) {
    char row[96];
    std::snprintf(row, sizeof(row), "%-12s %12.2f MiB  (%" PRId64 " bytes)\n", line.name,
                  static_cast<double>(line.bytes) / (1 << 20), line.bytes);
    text += row;
  }
  return text;
}

DeviceAdapterOptions AdapterOptions(const ExecutorOptions& options,
                                    const DeviceExecutorOptions& device_options) {
  return {.num_slots = options.max_adapters, .rank = device_options.max_adapter_rank};
}

StatusOr<DevicePlan> PlanDevice(const Program& program, const Target& target,
                                const ExecutorOptions& options,
                                const DeviceExecutorOptions& device_options) {
  PAGEMILL_RETURN_IF_ERROR(device_options.Validate());
  if (options.max_adapters == 0 && !AdapterValues(program).empty()) {
    return InvalidArgument("the program has adapters, and max_adapters is 0");
  }
  DevicePlan plan;
  PAGEMILL_ASSIGN_OR_RETURN(plan.kernels, SelectKernels(program, target, options));
  const StepSizes sizes = options.max_sizes();
  plan.activations = PlanActivations(program, target.ops, sizes);
  if (device_options.token_columns > 0) {
    // A draft model draws by what its requests ask, and adjusts no logits.
    const int32_t num_slots = device_options.shares_kv ? 0 : options.max_num_seqs;
    PAGEMILL_ASSIGN_OR_RETURN(
        plan.tokens,
        PlanTokens(program, target, options, device_options.token_columns, num_slots));
  }
  const int64_t offload_bytes = device_options.upload.offload_bytes;
  const WeightArena arena(program, plan.kernels.kernels, offload_bytes);
  if (offload_bytes > arena.offloadable_bytes()) {
    return InvalidArgument("--cpu-offload-gb is " + Gib(offload_bytes) + ", and the program has " +
                           Gib(arena.offloadable_bytes()) +
                           " of weights that may stay in the host's memory: lower it");
  }
  plan.weight_bytes = arena.bytes();
  plan.host_weight_bytes = arena.host_bytes();
  for (const Output& output : program.outputs()) {
    plan.output_bytes += program.value(output.value).Bytes(sizes);
  }
  plan.array_bytes = plan.arrays_offset() +
                     StepImage(program, plan.kv(), device_options.max_blocks).Bytes(sizes);
  for (ValueId id : program.TensorInputs()) {
    plan.input_offsets.push_back(plan.input_bytes);
    plan.input_bytes += DevicePlan::Aligned(program.value(id).Bytes(sizes));
  }
  plan.adapters = DeviceAdapters::Plan(program, AdapterOptions(options, device_options));
  if (HasCollectives(program)) plan.exchange_bytes = device_options.exchange_bytes;
  if (device_options.max_graph_tokens > 0) {
    plan.graph_bytes = device_options.max_graphs * kGraphBytesPerOp *
                       static_cast<int64_t>(program.ops().size());
  }
  for (int64_t bytes :
       {plan.array_bytes, plan.input_bytes, plan.output_bytes, plan.adapters.table_bytes}) {
    plan.slot_bytes += DevicePlan::Aligned(bytes);
  }
  plan.upload_bytes = 2 * std::min(device_options.upload.buffer_bytes, plan.weight_bytes);
  if (!device_options.shares_kv) {
    plan.kv_bytes = plan.kv().arena_bytes();
    plan.copy_bytes = DevicePages::kNumCopies * plan.kv().page_bytes;
  }
  plan.num_slots = device_options.max_steps_in_flight;
  return plan;
}

Status CheckFits(const DevicePlan& plan, const device::MemoryBytes& memory) {
  if (plan.total_bytes() <= memory.free) return OkStatus();
  std::string parts;
  for (const Part& part : PartsOf(plan)) {
    if (part.bytes > 0) parts += std::string(part.name) + " " + Mib(part.bytes) + ", ";
  }
  parts += "graphs " + Mib(plan.graph_bytes);
  const int64_t left = memory.free - (plan.total_bytes() - plan.kv_bytes);
  const std::string remedy =
      left >= 2 * plan.kv().page_bytes && plan.kv_bytes > 0
          ? "lower the KV cache to " + std::to_string(left >> 20) + "MiB (--kv-cache-memory-bytes)"
          : "without a KV cache it lacks " + Mib(-left) + ": lower --max-num-batched-tokens" +
                (plan.adapters.matrix_bytes > 0 ? ", --max-loras or --max-lora-rank" : "") +
                ", keep weights in the host's memory (--cpu-offload-gb), or use a smaller or more"
                " quantized model";
  return ResourceExhausted("the program takes " + Mib(plan.total_bytes()) +
                           " of the device's memory (" + parts + "), " + Mib(memory.free) +
                           " of its " + Mib(memory.total) + " are free: " + remedy);
}

}  // namespace pagemill::program
