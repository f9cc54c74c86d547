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

constexpr int64_t kAlignment = 256;  // bytes; satisfies vector loads of any device

struct Range {
  int64_t bytes = 0;
  int64_t offset = 0;  // in device memory
};

// Ranges of host memory to upload, each once.
class Ranges {
 public:
  void Add(const std::byte* data, int64_t bytes) {
    if (!ranges_.try_emplace(data, Range{bytes, total_bytes_}).second) return;
    total_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  int64_t OffsetOf(const std::byte* data) const { return ranges_.at(data).offset; }
  int64_t total_bytes() const { return total_bytes_; }
  const std::map<const std::byte*, Range>& all() const { return ranges_; }

 private:
  std::map<const std::byte*, Range> ranges_;
  int64_t total_bytes_ = 0;
};

Status Send(const Ranges& ranges, std::byte* to, device::Device& device) {
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device.NewStream());
  for (const auto& [data, range] : ranges.all()) {
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
  PAGEMILL_ASSIGN_OR_RETURN(const Weights weights, Weights::Load(program));
  device::ThreadPool pool({.num_threads = kernels.num_threads});
  std::optional<PackCache> cache;
  if (!options.pack_cache_folder.empty()) cache.emplace(options.pack_cache_folder);
  PAGEMILL_ASSIGN_OR_RETURN(
      const PackedWeights packed,
      PackedWeights::Make(program, kernels.kernels, weights, cache ? &*cache : nullptr, pool));
  DeviceWeights result;
  Ranges ranges;
  for (size_t op = 0; op < program.ops().size(); ++op) {
    const std::vector<ValueId>& inputs = program.ops()[op].inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i] == kNoValue || program.value(inputs[i]).kind != ValueKind::kWeight) continue;
      const Value& value = program.value(inputs[i]);
      const std::byte* const copy = packed.data(op, i);
      WeightOperand& operand = result.operands_[{op, i}];
      operand = {.data = copy != nullptr ? copy : weights.data(inputs[i]),
                 .reordered = copy != nullptr && packed.reordered(op, i)};
      const auto part_data = [&](ValueId part) {
        const std::byte* const stack = packed.part(part);
        return stack != nullptr ? stack : weights.data(part);
      };
      TensorView view = MakeView(value, options.max_sizes(), nullptr);
      QuantizedParts parts;
      if (value.quantized) {
        parts = MakeParts(program, value, part_data);
        view.parts = &parts;
      }
      const ops::WeightPacking* const packing =
          operand.reordered ? ops::PackingOf(*kernels.kernels[op], i) : nullptr;
      if (operand.data != nullptr) {
        const int64_t rows_bytes = copy != nullptr ? value.Bytes({}) : value.SpanBytes();
        ranges.Add(operand.data, packing != nullptr ? packing->bytes(view) : rows_bytes);
      }
      if (!value.quantized || (packing != nullptr && !ops::PackedView(*packing, view).parts)) {
        continue;
      }
      for (ValueId part : value.quantized->parts()) {
        if (part == kNoValue || (packing != nullptr && part == value.quantized->values)) continue;
        result.parts_[part] = part_data(part);
        ranges.Add(result.parts_[part], program.value(part).SpanBytes());
      }
    }
  }
  PAGEMILL_ASSIGN_OR_RETURN(result.memory_, device.Allocate(ranges.total_bytes(), "weights"));
  PAGEMILL_RETURN_IF_ERROR(Send(ranges, result.memory_.data(), device));
  for (auto& [key, operand] : result.operands_) {
    if (operand.data == nullptr) continue;
    operand.data = result.memory_.data() + ranges.OffsetOf(operand.data);
  }
  for (auto& [key, data] : result.parts_) {
    data = result.memory_.data() + ranges.OffsetOf(data);
  }
  return result;
}

}  // namespace pagemill::program
