#include "cc/ops/testing/device_conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/ops/collective.h"
#include "cc/tensor/quantized.h"

namespace pagemill::ops::conformance {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kGuardBytes = 128;  // on either side of each copy
constexpr std::byte kGuard{0xA5};

// Device copies of ranges of host memory. Overlapping ranges are merged.
class DeviceCopies {
 public:
  DeviceCopies(device::Device& device, device::Stream& stream) : device_(device), stream_(stream) {}

  // Must be called before Upload().
  void Add(const void* data, int64_t bytes) {
    if (data == nullptr || bytes <= 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    ranges_.push_back({begin, begin + static_cast<uintptr_t>(bytes)});
  }

  void Upload() {
    Merge();
    for (const auto& [begin, end] : ranges_) {
      const auto misalign = static_cast<int64_t>(begin % kAlignment);
      const auto bytes = static_cast<int64_t>(end - begin);
      Block& block = blocks_.emplace_back();
      block.begin = begin;
      block.bytes = bytes;
      block.first = kGuardBytes + misalign;
      block.staged.assign(static_cast<size_t>(block.first + bytes + kGuardBytes), kGuard);
      std::memcpy(block.staged.data() + block.first, reinterpret_cast<const void*>(begin),
                  static_cast<size_t>(bytes));
      StatusOr<device::DeviceMemory> memory =
          device_.Allocate(static_cast<int64_t>(block.staged.size()), "operands under test");
      ASSERT_TRUE(memory.ok()) << memory.status().ToString();
      block.memory = *std::move(memory);
      stream_.CopyToDevice(block.memory.data(), block.staged);
    }
  }

  // The device address of an address within a range; the address itself if it is in no range.
  void* At(const void* data) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    for (const Block& block : blocks_) {
      const auto end = block.begin + static_cast<uintptr_t>(block.bytes);
      if (address < block.begin || address >= end) continue;
      return block.memory.data() + block.first + static_cast<int64_t>(address - block.begin);
    }
    return const_cast<void*>(data);
  }

  void EnqueueDownload() {
    for (Block& block : blocks_) stream_.CopyToHost(block.staged, block.memory.data());
  }

  // Must be called after the stream is done.
  void TakeDownloaded(const Kernel& kernel) {
    const auto is_guard = [](std::byte b) { return b == kGuard; };
    for (const Block& block : blocks_) {
      const std::byte* const data = block.staged.data() + block.first;
      EXPECT_TRUE(
          std::all_of(block.staged.data(), data, is_guard) &&
          std::all_of(data + block.bytes, block.staged.data() + block.staged.size(), is_guard))
          << kernel.op << "/" << kernel.name << " wrote next to an operand";
      std::memcpy(reinterpret_cast<void*>(block.begin), data, static_cast<size_t>(block.bytes));
    }
  }

 private:
  struct Block {
    uintptr_t begin = 0;  // in the host's memory
    int64_t bytes = 0;
    int64_t first = 0;  // offset of the data in `staged` and in `memory`
    std::vector<std::byte> staged;
    device::DeviceMemory memory;
  };

  void Merge() {
    std::sort(ranges_.begin(), ranges_.end());
    std::vector<std::pair<uintptr_t, uintptr_t>> merged;
    for (const auto& range : ranges_) {
      if (!merged.empty() && range.first < merged.back().second) {
        merged.back().second = std::max(merged.back().second, range.second);
      } else {
        merged.push_back(range);
      }
    }
    ranges_ = std::move(merged);
  }

  device::Device& device_;
  device::Stream& stream_;
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges_;
  std::vector<Block> blocks_;
};

int64_t BytesOf(const TensorView& view) {
  if (view.rank == 0 || view.shape[0] == 0) return 0;
  return (view.shape[0] - 1) * view.row_stride_bytes + RowBytes(view.dtype, view.RowElements());
}

// Bytes of an input: the packed bytes of a weight that the kernel packs.
int64_t InputBytes(const Kernel& kernel, const OpCall& call, size_t input) {
  const TensorView& view = call.inputs[input];
  const WeightPacking* packing = view.rank == 0 ? nullptr : PackingOf(kernel, input);
  return packing == nullptr ? BytesOf(view) : packing->bytes(view);
}

template <typename Arrays>
int64_t ArrayBytes(const ArrayInfo<Arrays>& info, const BatchView& batch) {
  if (batch.*info.data == nullptr) return 0;
  return NumRows(info, batch) * NumColumns(info, batch.block_table_stride) * 4;
}

// Calls visit(info) for each array of a batch.
template <typename Visit>
void VisitArrays(Visit visit) {
  for (const auto& info : kStepArrays) visit(info);
  for (const auto& info : kKvArrays) visit(info);
}

void AddOperands(const Kernel& kernel, const OpCall& call, DeviceCopies& copies) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    copies.Add(call.inputs[i].data, InputBytes(kernel, call, i));
    if (call.inputs[i].parts == nullptr) continue;
    QuantizedParts parts = *call.inputs[i].parts;
    for (const TensorView* part : parts.all()) copies.Add(part->data, BytesOf(*part));
  }
  for (const TensorView& output : call.outputs) copies.Add(output.data, BytesOf(output));
  if (call.batch == nullptr) return;
  VisitArrays(
      [&](const auto& info) { copies.Add(call.batch->*info.data, ArrayBytes(info, *call.batch)); });
}

}  // namespace

TestedDevice::TestedDevice(device::Device& device) : device_(device) {
  StatusOr<std::unique_ptr<device::Stream>> stream = device.NewStream();
  PAGEMILL_CHECK(stream.ok());
  stream_ = *std::move(stream);
}

void TestedDevice::Run(const Kernel& kernel, const OpCall& call, const KernelContext& on_host) {
  comm::Group* const group =
      on_host.groups == nullptr ? nullptr : GroupOf(*call.attributes, on_host);
  if (group == nullptr) return RunOn(*stream_, kernel, call, on_host.plan, [] {});
  StatusOr<std::unique_ptr<device::Stream>> stream = device_.NewStream();
  ASSERT_TRUE(stream.ok());
  device::Ranks ranks = RanksOf(*group);
  ranks.buffer_bytes = 4 << 10;  // some calls need several launches
  const Status joined = (*stream)->Join(ranks);
  ASSERT_TRUE(joined.ok()) << joined.ToString();
  // Ranks may share a device, which a rank's kernel that waits must leave to those of the others:
  // what makes a device wait, such as taking memory, comes before all of them.
  RunOn(**stream, kernel, call, on_host.plan, [&ranks] {
    const std::byte own = {};
    std::vector<std::byte> all(static_cast<size_t>(ranks.num_ranks));
    const Status met = ranks.exchange(std::span(&own, 1), all);
    EXPECT_TRUE(met.ok()) << met.ToString();
  });
}

void TestedDevice::RunOn(device::Stream& stream, const Kernel& kernel, const OpCall& call,
                         const std::byte* plan, const std::function<void()>& before_run) {
  SCOPED_TRACE(std::string(kernel.op) + "/" + std::string(kernel.name) + " on its device");
  const int64_t bytes = kernel.workspace_bytes == nullptr ? 0 : kernel.workspace_bytes(call, 1);
  const int64_t plan_bytes = kernel.plan == nullptr ? 0 : kernel.plan->bytes(call);
  // In host memory, like the plan. Filled with NaN in every floating-point format.
  const std::vector<std::byte> workspace(static_cast<size_t>(bytes + kAlignment), std::byte{0xff});
  const auto misalign = reinterpret_cast<uintptr_t>(workspace.data()) % kAlignment;
  const std::byte* const aligned = workspace.data() + (kAlignment - misalign) % kAlignment;
  DeviceCopies copies(device_, stream);
  AddOperands(kernel, call, copies);
  copies.Add(aligned, bytes);
  copies.Add(plan, plan_bytes);
  copies.Upload();
  std::vector<TensorView> inputs(call.inputs.begin(), call.inputs.end());
  std::vector<TensorView> outputs(call.outputs.begin(), call.outputs.end());
  std::deque<QuantizedParts> quantized;  // of inputs
  for (TensorView& view : inputs) {
    view.data = copies.At(view.data);
    if (view.parts == nullptr) continue;
    quantized.push_back(*view.parts);
    for (TensorView* part : quantized.back().all()) part->data = copies.At(part->data);
    view.parts = &quantized.back();
  }
  for (TensorView& view : outputs) view.data = copies.At(view.data);
  BatchView batch;
  if (call.batch != nullptr) {
    batch = *call.batch;
    VisitArrays([&](const auto& info) {
      batch.*info.data = static_cast<const int32_t*>(copies.At(batch.*info.data));
    });
  }
  KernelContext context = {
      .workspace = {static_cast<std::byte*>(copies.At(aligned)), static_cast<size_t>(bytes)},
      .plan = static_cast<const std::byte*>(copies.At(plan)),
      .stream = &stream};
  const std::unique_ptr<device::Event> done = device_.NewEvent();
  const auto wait = [&] {
    stream.Record(*done);
    const Status status = done->Synchronize();
    EXPECT_TRUE(status.ok()) << status.ToString();
  };
  wait();
  before_run();
  kernel.run({.inputs = inputs,
              .outputs = outputs,
              .attributes = call.attributes,
              .batch = call.batch == nullptr ? nullptr : &batch},
             context);
  wait();
  copies.EnqueueDownload();
  wait();
  copies.TakeDownloaded(kernel);
}

}  // namespace pagemill::ops::conformance
