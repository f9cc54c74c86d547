#include "cc/program/device/device_adapters.h"

#include <algorithm>
#include <utility>

#include "cc/device/thread_pool.h"
#include "cc/program/device/staged_upload.h"
#include "cc/tensor/dtype.h"

namespace pagemill::program {
namespace {

using ops::AdapterMatrices;

constexpr int64_t kAlignment = 64;                        // bytes; of arrays of a slot
constexpr int64_t kUploadBufferBytes = int64_t{4} << 20;  // of each of two

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Calls visit(pointer, bytes) for the arrays that the matrices of an `out` x `in` layer have.
template <typename Visit>
void ForEachArray(AdapterMatrices& matrices, int64_t out, int64_t in, const Visit& visit) {
  if (matrices.a != nullptr) visit(matrices.a, matrices.rank * RowBytes(matrices.dtype, in));
  if (matrices.b != nullptr) visit(matrices.b, matrices.rank * RowBytes(matrices.dtype, out));
  if (matrices.gain != nullptr) visit(matrices.gain, RowBytes(DType::kF32, out));
  if (matrices.offset != nullptr) visit(matrices.offset, RowBytes(DType::kF32, out));
}

}  // namespace

int64_t DeviceAdapters::TableBytes(const Program& program, int32_t num_slots) {
  int64_t matrices = 0;  // of a slot
  for (ValueId id : AdapterValues(program)) matrices += NumMatrices(program.value(id));
  return num_slots * matrices * static_cast<int64_t>(sizeof(AdapterMatrices));
}

StatusOr<DeviceAdapters> DeviceAdapters::Create(const Program& program, int32_t num_slots,
                                                device::Device& device) {
  DeviceAdapters adapters;
  adapters.device_ = &device;
  adapters.host_ = AdapterTables(program, num_slots);
  size_t entries = 0;
  for (ValueId id : AdapterValues(program)) {
    const Value& value = program.value(id);
    const auto& dims = value.shape.dims;
    const size_t rank = static_cast<size_t>(value.shape.rank);
    adapters.tables_.push_back({.id = id,
                                .out = dims[rank - 2],
                                .in = dims[rank - 1],
                                .num_matrices = static_cast<size_t>(NumMatrices(value)),
                                .first_entry = entries});
    entries += static_cast<size_t>(num_slots) * adapters.tables_.back().num_matrices;
  }
  const int64_t bytes = TableBytes(program, num_slots);
  PAGEMILL_ASSIGN_OR_RETURN(adapters.device_entries_, device.Allocate(bytes, "adapters"));
  PAGEMILL_ASSIGN_OR_RETURN(adapters.host_entries_, device.AllocateHost(bytes, "adapters"));
  adapters.entries_ = {reinterpret_cast<AdapterMatrices*>(adapters.host_entries_.data()), entries};
  std::ranges::fill(adapters.entries_, AdapterMatrices{});
  adapters.matrices_.resize(static_cast<size_t>(num_slots));
  adapters.done_ = device.NewEvent();
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device.NewStream());
  adapters.EnqueueTables(*stream);
  stream->Record(*adapters.done_);
  PAGEMILL_RETURN_IF_ERROR(adapters.done_->Synchronize());
  return adapters;
}

void* DeviceAdapters::TableOf(ValueId adapter) const {
  const auto found = std::ranges::find(tables_, adapter, &Table::id);
  return device_entries_.data() + found->first_entry * sizeof(AdapterMatrices);
}

Status DeviceAdapters::Set(int32_t slot, std::shared_ptr<const AdapterWeights> weights,
                           device::Stream& stream) {
  PAGEMILL_RETURN_IF_ERROR(host_.Set(slot, std::move(weights)));
  const auto index = static_cast<size_t>(slot);
  device::DeviceMemory memory;
  std::vector<AdapterMatrices> matrices = MatricesOf(index);
  const Status uploaded = Upload(matrices, &memory);
  if (!uploaded.ok()) {
    (void)host_.Set(slot, nullptr);
    matrices = MatricesOf(index);
  }
  // Steps in flight read the slot as it was.
  stream.Record(*done_);
  PAGEMILL_RETURN_IF_ERROR(done_->Synchronize());
  auto next = matrices.begin();
  for (const Table& table : tables_) {
    const auto count = static_cast<int64_t>(table.num_matrices);
    std::copy_n(next, count, &entries_[table.first_entry + index * table.num_matrices]);
    next += count;
  }
  EnqueueTables(stream);
  matrices_[index] = std::move(memory);
  return uploaded;
}

// All matrices of a slot, in the order of the tables, with addresses of the host.
std::vector<AdapterMatrices> DeviceAdapters::MatricesOf(size_t slot) {
  std::vector<AdapterMatrices> matrices;
  for (const Table& table : tables_) {
    const AdapterMatrices* const first = host_.TableOf(table.id) + slot * table.num_matrices;
    matrices.insert(matrices.end(), first, first + table.num_matrices);
  }
  return matrices;
}

// Copies what `matrices` point to into new memory of the device, whose addresses they get.
Status DeviceAdapters::Upload(std::span<AdapterMatrices> matrices, device::DeviceMemory* memory) {
  const auto for_each_array = [&](const auto& visit) {
    auto next = matrices.begin();
    for (const Table& table : tables_) {
      for (size_t i = 0; i < table.num_matrices; ++i) {
        ForEachArray(*next++, table.out, table.in, visit);
      }
    }
  };
  int64_t bytes = 0;
  for_each_array([&](const auto*, int64_t array_bytes) { bytes += Aligned(array_bytes); });
  if (bytes == 0) return OkStatus();
  PAGEMILL_ASSIGN_OR_RETURN(*memory, device_->Allocate(bytes, "an adapter"));
  PAGEMILL_ASSIGN_OR_RETURN(StagedUpload upload,
                            StagedUpload::Begin(*device_, memory->bytes(), kUploadBufferBytes));
  device::ThreadPool pool({.num_threads = 1});
  int64_t offset = 0;
  Status status;
  for_each_array([&]<typename T>(const T*& array, int64_t array_bytes) {
    const auto* const data = reinterpret_cast<const std::byte*>(array);
    array = reinterpret_cast<const T*>(memory->data() + offset);
    if (status.ok()) {
      status = upload.Write(offset, {data, static_cast<size_t>(array_bytes)}, pool);
    }
    offset += Aligned(array_bytes);
  });
  PAGEMILL_RETURN_IF_ERROR(status);
  return upload.Finish();
}

void DeviceAdapters::EnqueueTables(device::Stream& stream) const {
  if (!entries_.empty()) {
    stream.CopyToDevice(device_entries_.data(), std::as_bytes(std::span(entries_)));
  }
}

}  // namespace pagemill::program
