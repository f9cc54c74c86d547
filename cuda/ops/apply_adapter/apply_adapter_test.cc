#include "cuda/ops/kernels.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "cc/ops/apply_adapter/apply_adapter.h"
#include "cc/ops/conformance_bodies.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::AdapterMatrices;

// A table of adapters in the GPU's memory, and what its entries point to.
class TableOnGpu {
 public:
  TableOnGpu(std::span<const AdapterMatrices> table, int64_t out, int64_t in) {
    stream_ = *TheGpu().NewStream();
    for (AdapterMatrices entry : table) {
      const int64_t bytes = RowBytes(entry.dtype, 1);
      entry.a = Copy(entry.a, entry.rank * in * bytes);
      entry.b = Copy(entry.b, entry.rank * out * bytes);
      entry.gain = static_cast<const float*>(Copy(entry.gain, out * int64_t{sizeof(float)}));
      entry.offset = static_cast<const float*>(Copy(entry.offset, out * int64_t{sizeof(float)}));
      entries_.push_back(entry);
    }
    data_ = Copy(entries_.data(), static_cast<int64_t>(std::as_bytes(std::span(entries_)).size()));
    const std::unique_ptr<device::Event> done = TheGpu().NewEvent();
    stream_->Record(*done);
    PAGEMILL_CHECK(done->Synchronize().ok());
  }

  void* data() const { return data_; }

 private:
  void* Copy(const void* from, int64_t bytes) {
    if (from == nullptr || bytes == 0) return nullptr;
    memory_.push_back(*TheGpu().Allocate(bytes, "an adapter under test"));
    stream_->CopyToDevice(memory_.back().data(), {static_cast<const std::byte*>(from),
                                                  static_cast<size_t>(bytes)});
    return memory_.back().data();
  }

  std::unique_ptr<device::Stream> stream_;
  std::vector<device::DeviceMemory> memory_;
  std::vector<AdapterMatrices> entries_;
  void* data_ = nullptr;
};

// The largest entry of a table that a call may read, plus 1.
size_t NumEntries(const ops::ApplyAdapterArgs& args, const TensorView& slots) {
  int32_t slot = -1;
  for (int64_t i = 0; args.slots != nullptr && i < slots.shape[0]; ++i) {
    slot = std::max(slot, args.slots[i]);
  }
  return static_cast<size_t>((slot + 1) * args.num_experts);
}

// Views of tables have the shapes of matrices, and their data is on the GPU already: TestedGpu()
// copies nothing of them.
constexpr ops::WeightPacking kOnGpu = {
    .layout = "on the GPU",
    .inputs = 0b101010100000,  // TableOperand(0) to TableOperand(3)
    .bytes = [](const TensorView&) -> int64_t { return 0; }};
static_assert(ops::kMaxAdaptedLayers == 4 && ops::apply_adapter::TableOperand(3) == 11);

void RunOnGpu(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::ApplyAdapterArgs args = ops::ToApplyAdapterArgs(call);
  const size_t entries = NumEntries(args, call.inputs[ops::apply_adapter::kSlots]);
  std::deque<TableOnGpu> tables;
  std::vector<TensorView> inputs(call.inputs.begin(), call.inputs.end());
  for (size_t i = 0; i < args.num_layers; ++i) {
    const ops::AdaptedLayer& layer = args.layers[i];
    tables.emplace_back(std::span(layer.table, entries), layer.out, args.in);
    inputs[ops::apply_adapter::TableOperand(i)].data = tables.back().data();
  }
  ops::Kernel kernel = ApplyAdapterKernels()[0];
  kernel.packing = &kOnGpu;
  ops::OpCall on_gpu = call;
  on_gpu.inputs = inputs;
  TestedGpu().Run(kernel, on_gpu, context);
}

TEST_P(GpuConformance, ApplyAdapter) {
  ops::Kernel kernel = ApplyAdapterKernels()[0];
  kernel.run = RunOnGpu;
  kernel.workspace_bytes = nullptr;  // it is the device's
  const std::array kernels = {kernel, ops::conformance::ReferenceKernel(ops::ApplyAdapterOp())};
  ops::OpDefinition op = ops::ApplyAdapterOp();
  op.kernels = kernels;
  ops::CheckApplyAdapterConformance(op, GpuCapabilities());
}

}  // namespace
}  // namespace pagemill::gpu
