#include "cc/ops/testing/adapters_on_device.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "cc/ops/apply_adapter/apply_adapter.h"

namespace pagemill::ops::conformance {
namespace {

// A table of adapters in the device's memory, and what its entries point to.
class TableOnDevice {
 public:
  TableOnDevice(device::Device& device, std::span<const AdapterMatrices> table, int64_t out,
                int64_t in)
      : device_(device), stream_(*device.NewStream()) {
    for (AdapterMatrices entry : table) {
      const int64_t bytes = RowBytes(entry.dtype, 1);
      entry.a = Copy(entry.a, entry.rank * in * bytes);
      entry.b = Copy(entry.b, entry.rank * out * bytes);
      entry.gain = static_cast<const float*>(Copy(entry.gain, out * int64_t{sizeof(float)}));
      entry.offset = static_cast<const float*>(Copy(entry.offset, out * int64_t{sizeof(float)}));
      entries_.push_back(entry);
    }
    data_ = Copy(entries_.data(), static_cast<int64_t>(std::as_bytes(std::span(entries_)).size()));
    const std::unique_ptr<device::Event> done = device.NewEvent();
    stream_->Record(*done);
    PAGEMILL_CHECK(done->Synchronize().ok());
  }

  void* data() const { return data_; }

 private:
  void* Copy(const void* from, int64_t bytes) {
    if (from == nullptr || bytes == 0) return nullptr;
    memory_.push_back(*device_.Allocate(bytes, "an adapter under test"));
    stream_->CopyToDevice(memory_.back().data(),
                          {static_cast<const std::byte*>(from), static_cast<size_t>(bytes)});
    return memory_.back().data();
  }

  device::Device& device_;
  const std::unique_ptr<device::Stream> stream_;
  std::vector<device::DeviceMemory> memory_;
  std::vector<AdapterMatrices> entries_;
  void* data_ = nullptr;
};

// The largest entry of a table that a call may read, plus 1.
size_t NumEntries(const ApplyAdapterArgs& args, const TensorView& slots) {
  int32_t slot = -1;
  for (int64_t i = 0; args.slots != nullptr && i < slots.shape[0]; ++i) {
    slot = std::max(slot, args.slots[i]);
  }
  return static_cast<size_t>((slot + 1) * args.num_experts);
}

// Views of tables have the shapes of matrices, and their data is on the device already:
// TestedDevice copies nothing of them.
constexpr WeightPacking kOnDevice = {
    .layout = "on the device",
    .inputs = 0b101010100000,  // TableOperand(0) to TableOperand(3)
    .bytes = [](const TensorView&) -> int64_t { return 0; }};
static_assert(kMaxAdaptedLayers == 4 && apply_adapter::TableOperand(3) == 11);

}  // namespace

void RunWithAdapters(device::Device& device, TestedDevice& tested, const Kernel& kernel,
                     const OpCall& call, const KernelContext& on_host) {
  const ApplyAdapterArgs args = ToApplyAdapterArgs(call);
  const size_t entries = NumEntries(args, call.inputs[apply_adapter::kSlots]);
  std::deque<TableOnDevice> tables;
  std::vector<TensorView> inputs(call.inputs.begin(), call.inputs.end());
  for (size_t i = 0; i < args.num_layers; ++i) {
    const AdaptedLayer& layer = args.layers[i];
    tables.emplace_back(device, std::span(layer.table, entries), layer.out, args.in);
    inputs[apply_adapter::TableOperand(i)].data = tables.back().data();
  }
  Kernel with_tables = kernel;
  with_tables.packing = &kOnDevice;
  OpCall on_device = call;
  on_device.inputs = inputs;
  tested.Run(with_tables, on_device, on_host);
}

}  // namespace pagemill::ops::conformance
