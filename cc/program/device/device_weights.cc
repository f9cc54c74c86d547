#include "cc/program/device/device_weights.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "cc/device/stream.h"
#include "cc/device/thread_pool.h"
#include "cc/program/operand_views.h"
#include "cc/program/weights/packed_weights.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {
namespace {

constexpr int64_t kAlignment = 256;  // bytes, what vector loads of any device want

struct Range {
  int64_t bytes = 0;
  int64_t offset = 0;  // in the device's memory
};

// Ranges of the host's memory that are to be sent, each once.
using Ranges = std::map<const std::byte*, Range>;

Status Send(const Ranges& ranges, std::byte* to, device::Device& device) {
  PM_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device.NewStream());
  for (const auto& [data, range] : ranges) {
    stream->CopyToDevice(to + range.offset, {data, static_cast<size_t>(range.bytes)});
  }
  const std::unique_ptr<device::Event> sent = device.NewEvent();
  stream->Record(*sent);
  return sent->Synchronize();
}

}  // namespace

StatusOr<DeviceWeights> DeviceWeights::Upload(const Program& program,
                                              const KernelSelection& kernels,
                                              const ExecutorOptions& options,
                                              device::Device& device) {
  PM_ASSIGN_OR_RETURN(const Weights weights, Weights::Load(program));
  device::ThreadPool pool({.num_threads = kernels.num_threads});
  std::optional<PackCache> cache;
  if (!options.pack_cache_folder.empty()) cache.emplace(options.pack_cache_folder);
  PM_ASSIGN_OR_RETURN(
      const PackedWeights packed,
      PackedWeights::Make(program, kernels.kernels, weights, cache ? &*cache : nullptr, pool));
  DeviceWeights result;
  Ranges ranges;
  int64_t total_bytes = 0;
  for (size_t op = 0; op < program.ops().size(); ++op) {
    const std::vector<ValueId>& inputs = program.ops()[op].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue || program.value(inputs[i]).kind != ValueKind::kWeight) continue;
      const std::byte* const copy = packed.data(op, i);
      const bool reordered = copy != nullptr && packed.reordered(op, i);
      const std::byte* const data = copy != nullptr ? copy : weights.data(inputs[i]);
      result.operands_[{op, i}] = {.data = data, .reordered = reordered};
      Range& range = ranges[data];
      if (range.bytes > 0) continue;
      const Value& value = program.value(inputs[i]);
      const TensorView view = MakeView(value, options.max_sizes(), nullptr);
      range = {.bytes = reordered ? ops::PackingOf(*kernels.kernels[op], i)->bytes(view)
                                  : value.SpanBytes(),
               .offset = total_bytes};
      total_bytes += (range.bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
  }
  PM_ASSIGN_OR_RETURN(result.memory_, device.Allocate(total_bytes, "weights"));
  PM_RETURN_IF_ERROR(Send(ranges, result.memory_.data(), device));
  for (auto& [key, operand] : result.operands_) {
    operand.data = result.memory_.data() + ranges.at(operand.data).offset;
  }
  return result;
}

}  // namespace pagemill::program
