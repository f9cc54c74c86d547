#include "cuda/ops/apply_adapter/apply_adapter.h"

#include <algorithm>
#include <array>
#include <cstddef>
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

// The call's view of the table tells the shape of matrices, not its own: so it is not an operand
// that TestedGpu() could copy.
void RunOnGpu(const ops::OpCall& call, ops::KernelContext&) {
  const ops::ApplyAdapterArgs args = ops::ToApplyAdapterArgs(call);
  const int32_t slots = args.y.shape[0] == 0
                            ? 0
                            : *std::max_element(args.slots, args.slots + args.y.shape[0]) + 1;
  const TableOnGpu table({args.table, static_cast<size_t>(slots)}, args.y.RowElements(),
                         args.x.RowElements());
  std::vector<TensorView> inputs(call.inputs.begin(), call.inputs.end());
  inputs[3].data = table.data();
  inputs[3].shape[0] = 0;
  ops::OpCall on_gpu = call;
  on_gpu.inputs = inputs;
  TestedGpu().Run(ApplyAdapterKernels()[0], on_gpu, /*plan=*/nullptr);
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
