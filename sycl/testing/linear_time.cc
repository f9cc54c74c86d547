// Prints how long the CPU device takes for a product of many rows, by each kernel of `linear`
// (docs/gpu.md).
//
//   linear_time
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/stream.h"
#include "cc/ops/op.h"
#include "cc/tensor/tensor_view.h"
#include "sycl/device/testing/cpu_device.h"
#include "sycl/ops/kernels.h"

namespace pagemill::sycl {
namespace {

constexpr int64_t kRows = 512, kOutputs = 2048, kColumns = 2048;

// A matrix of zeros on a device.
struct Matrix {
  Matrix(SyclDevice& device, device::Stream& stream, DType dtype, int64_t rows, int64_t columns)
      : zeros(static_cast<size_t>(rows * RowBytes(dtype, columns))),
        memory(*device.Allocate(static_cast<int64_t>(zeros.size()), "a matrix")) {
    stream.CopyToDevice(memory.data(), zeros);
    view = {.data = memory.data(), .dtype = dtype, .rank = 2, .shape = {rows, columns}};
    view.row_stride_bytes = RowBytes(dtype, columns);
  }
  const std::vector<std::byte> zeros;
  const device::DeviceMemory memory;
  TensorView view;
};

Status Finish(SyclDevice& device, device::Stream& stream) {
  const std::unique_ptr<device::Event> done = device.NewEvent();
  stream.Record(*done);
  return done->Synchronize();
}

// The best of three runs, after one that compiles kernels.
Status Time(SyclDevice& device, DType act, DType weights) {
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device.NewStream());
  const Matrix x(device, *stream, act, kRows, kColumns);
  const Matrix w(device, *stream, weights, kOutputs, kColumns);
  const Matrix y(device, *stream, DType::kF32, kRows, kOutputs);
  const TensorView inputs[] = {x.view, w.view}, outputs[] = {y.view};
  const ops::Attributes attributes;
  const ops::OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  for (const ops::Kernel& kernel : LinearKernels()) {
    if (!kernel.supports(device.capabilities(), call)) continue;
    const int64_t bytes =
        kernel.workspace_bytes == nullptr ? 0 : kernel.workspace_bytes(call, /*num_threads=*/1);
    PAGEMILL_ASSIGN_OR_RETURN(const device::DeviceMemory workspace,
                              device.Allocate(bytes, "a workspace"));
    ops::KernelContext context = {.workspace = workspace.bytes(), .stream = stream.get()};
    std::chrono::duration<double> best = std::chrono::hours(1);
    for (int run = 0; run < 4; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      kernel.run(call, context);
      PAGEMILL_RETURN_IF_ERROR(Finish(device, *stream));
      if (run > 0) best = std::min<decltype(best)>(best, std::chrono::steady_clock::now() - begin);
    }
    std::printf("x %s, W %s, %s: %.3f s\n", std::string(Info(act).name).c_str(),
                std::string(Info(weights).name).c_str(), std::string(kernel.name).c_str(),
                best.count());
  }
  return OkStatus();
}

Status Main() {
  const std::unique_ptr<SyclDevice> device = testing::OpenCpuDevice();
  PAGEMILL_RETURN_IF_ERROR(Time(*device, DType::kF32, DType::kF32));
  return Time(*device, DType::kF32, DType::kBF16);
}

}  // namespace
}  // namespace pagemill::sycl

int main() {
  const pagemill::Status status = pagemill::sycl::Main();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
