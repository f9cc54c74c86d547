#include "cc/program/adapters/device_adapters.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "cc/device/thread_pool.h"
#include "cc/tensor/dtype.h"

namespace pagemill::program {
namespace {

using ops::AdapterMatrices;

constexpr int64_t kAlignment = 64;                           // bytes; of arrays of a slot
constexpr int64_t kMaxUploadBufferBytes = int64_t{4} << 20;  // of each of two

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Calls visit(pointer, bytes) for the arrays of the matrices of an `out` x `in` layer.
template <typename Matrices, typename Visit>
void ForEachArray(Matrices& matrices, int64_t out, int64_t in, const Visit& visit) {
  if (matrices.a != nullptr) visit(matrices.a, matrices.rank * RowBytes(matrices.dtype, in));
  if (matrices.b != nullptr) visit(matrices.b, matrices.rank * RowBytes(matrices.dtype, out));
  if (matrices.gain != nullptr) visit(matrices.gain, RowBytes(DType::kF32, out));
  if (matrices.offset != nullptr) visit(matrices.offset, RowBytes(DType::kF32, out));
}

int64_t BytesOf(const AdapterMatrices& matrices, int64_t out, int64_t in) {
  int64_t bytes = 0;
  ForEachArray(matrices, out, in,
               [&](const void*, int64_t array_bytes) { bytes += Aligned(array_bytes); });
  return bytes;
}

int64_t UploadBufferBytes(const DeviceAdapterPlan& plan) {
  return std::min(kMaxUploadBufferBytes, plan.matrix_bytes);
}

}  // namespace

std::vector<DeviceAdapters::Table> DeviceAdapters::TablesOf(const Program& program,
                                                            int32_t num_slots) {
  std::vector<Table> tables;
  size_t entries = 0;
  for (ValueId id : AdapterValues(program)) {
    const Value& value = program.value(id);
    const auto rank = static_cast<size_t>(value.shape.rank);
    const auto count = static_cast<size_t>(NumMatrices(value));
    tables.push_back({.id = id,
                      .out = value.shape.dims[rank - 2],
                      .in = value.shape.dims[rank - 1],
                      .num_matrices = count,
                      .first_entry = entries});
    entries += static_cast<size_t>(num_slots) * count;
  }
  return tables;
}

int64_t DeviceAdapters::SlotBytes(std::span<const Table> tables, int64_t rank) {
  const auto floats = [](int64_t count) { return Aligned(RowBytes(DType::kF32, count)); };
  int64_t bytes = 0;
  for (const Table& table : tables) {
    bytes += static_cast<int64_t>(table.num_matrices) *
             (floats(rank * table.in) + floats(rank * table.out) + 2 * floats(table.out));
  }
  return bytes;
}

DeviceAdapterPlan DeviceAdapters::Plan(const Program& program,
                                       const DeviceAdapterOptions& options) {
  const std::vector<Table> tables = TablesOf(program, options.num_slots);
  DeviceAdapterPlan plan;
  for (const Table& table : tables) {
    plan.table_bytes += options.num_slots * static_cast<int64_t>(table.num_matrices) *
                        static_cast<int64_t>(sizeof(AdapterMatrices));
  }
  plan.slot_bytes = SlotBytes(tables, options.rank);
  plan.matrix_bytes = options.num_slots * plan.slot_bytes;
  plan.upload_bytes = 2 * UploadBufferBytes(plan);
  return plan;
}

StatusOr<DeviceAdapters> DeviceAdapters::Create(const Program& program,
                                                const DeviceAdapterOptions& options,
                                                device::Device& device) {
  DeviceAdapters adapters;
  adapters.tables_ = TablesOf(program, options.num_slots);
  adapters.plan_ = Plan(program, options);
  const DeviceAdapterPlan& plan = adapters.plan_;
  adapters.entries_.resize(static_cast<size_t>(plan.table_bytes) / sizeof(AdapterMatrices));
  adapters.slots_.resize(static_cast<size_t>(options.num_slots));
  for (Slot& slot : adapters.slots_) slot.emptied = device.NewEvent();
  PAGEMILL_ASSIGN_OR_RETURN(adapters.device_entries_,
                            device.Allocate(plan.table_bytes, "tables of adapters"));
  PAGEMILL_ASSIGN_OR_RETURN(adapters.matrices_, device.Allocate(plan.matrix_bytes, "adapters"));
  PAGEMILL_ASSIGN_OR_RETURN(
      adapters.upload_,
      StagedUpload::Begin(device, adapters.matrices_.bytes(), UploadBufferBytes(plan)));
  return adapters;
}

void* DeviceAdapters::TableOf(ValueId adapter) const {
  const auto found = std::ranges::find(tables_, adapter, &Table::id);
  return device_entries_.data() + found->first_entry * sizeof(AdapterMatrices);
}

Status DeviceAdapters::CheckFits(const AdapterWeights& weights) const {
  size_t count = 0;
  for (const Table& table : tables_) count += table.num_matrices;
  if (weights.matrices().size() != count) {
    return InvalidArgument("the adapter was made for another program");
  }
  int64_t bytes = 0;
  auto next = weights.matrices().begin();
  for (const Table& table : tables_) {
    for (size_t i = 0; i < table.num_matrices; ++i) {
      bytes += BytesOf((next++)->matrices(), table.out, table.in);
    }
  }
  if (bytes <= plan_.slot_bytes) return OkStatus();
  int64_t rank = 1;
  while (SlotBytes(tables_, rank) < bytes) ++rank;
  return ResourceExhausted("the adapter takes " + std::to_string(bytes) +
                           " bytes on the device, which has " + std::to_string(plan_.slot_bytes) +
                           " for each: raise --max-lora-rank to " + std::to_string(rank));
}

Status DeviceAdapters::Set(int32_t slot, const AdapterWeights* weights, device::Stream& stream) {
  if (slot < 0 || static_cast<size_t>(slot) >= slots_.size()) {
    return InvalidArgument("adapter slot " + std::to_string(slot) + " is not one of " +
                           std::to_string(slots_.size()));
  }
  if (weights != nullptr) PAGEMILL_RETURN_IF_ERROR(CheckFits(*weights));
  const auto index = static_cast<size_t>(slot);
  Slot& target = slots_[index];
  if (target.filled) {
    ForEachEntry(index, [](AdapterMatrices& entry, const Table&, size_t) { entry = {}; });
    changed_ = true;
    target.filled = false;
    stream.Record(*target.emptied);
  }
  if (weights == nullptr) return OkStatus();
  PAGEMILL_RETURN_IF_ERROR(target.emptied->Synchronize());
  PAGEMILL_RETURN_IF_ERROR(Upload(index, *weights));
  changed_ = target.filled = true;
  return OkStatus();
}

void DeviceAdapters::EnqueueTables(std::span<std::byte> staging, device::Stream& stream) {
  if (!changed_) return;
  const std::span<std::byte> to = staging.first(entries_.size() * sizeof(AdapterMatrices));
  std::memcpy(to.data(), entries_.data(), to.size());
  stream.CopyToDevice(device_entries_.data(), to);
  changed_ = false;
}

template <typename Visit>
void DeviceAdapters::ForEachEntry(size_t slot, const Visit& visit) {
  size_t number = 0;
  for (const Table& table : tables_) {
    const size_t first = table.first_entry + slot * table.num_matrices;
    for (size_t i = 0; i < table.num_matrices; ++i) visit(entries_[first + i], table, number++);
  }
}

// Copies the matrices into the memory of a slot that no step uses. Its entries change if all of
// them arrive.
Status DeviceAdapters::Upload(size_t slot, const AdapterWeights& weights) {
  device::ThreadPool pool({.num_threads = 1});
  const int64_t first = static_cast<int64_t>(slot) * plan_.slot_bytes;
  Status status;
  int64_t offset = first;
  const auto send = [&](const void* array, int64_t bytes) {
    const auto* const data = static_cast<const std::byte*>(array);
    if (status.ok()) status = upload_->Write(offset, {data, static_cast<size_t>(bytes)}, pool);
    offset += Aligned(bytes);
  };
  ForEachEntry(slot, [&](AdapterMatrices&, const Table& table, size_t number) {
    ForEachArray(weights.matrices()[number].matrices(), table.out, table.in, send);
  });
  const Status finished = upload_->Finish();
  PAGEMILL_RETURN_IF_ERROR(status);
  PAGEMILL_RETURN_IF_ERROR(finished);
  offset = first;
  ForEachEntry(slot, [&](AdapterMatrices& entry, const Table& table, size_t number) {
    entry = weights.matrices()[number].matrices();
    ForEachArray(entry, table.out, table.in, [&]<typename T>(const T*& array, int64_t bytes) {
      array = reinterpret_cast<const T*>(matrices_.data() + offset);
      offset += Aligned(bytes);
    });
  });
  return OkStatus();
}

}  // namespace pagemill::program
