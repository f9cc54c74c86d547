// File: cc/program/device/device_adapters.h
// The adapters that a step may use (program/adapters/adapter_tables.h), in a device's memory:
// tables at fixed addresses, which graphs may have recorded, and the matrices of each slot.
//
//   PAGEMILL_ASSIGN_OR_RETURN(DeviceAdapters adapters, DeviceAdapters::Create(program, 8, device));
//   operand.data = adapters.TableOf(id);
//   PAGEMILL_RETURN_IF_ERROR(adapters.Set(3, weights, *stream));   // between Enqueue()s
//
// The device must outlive it. Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_ADAPTERS_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_ADAPTERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "cc/ops/apply_adapter/adapter_matrices.h"
#include "cc/program/adapters/adapter_tables.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/program.h"

namespace pagemill::program {

class DeviceAdapters {
 public:
  // All tables, without matrices; 0 for a program without adapters.
  static int64_t TableBytes(const Program& program, int32_t num_slots);
  static StatusOr<DeviceAdapters> Create(const Program& program, int32_t num_slots,
                                         device::Device& device);

  // The device address of the table of one of AdapterValues().
  void* TableOf(ValueId adapter) const;
  // For steps that are enqueued from here on; null empties the slot. Waits for those before.
  // Errors of AdapterTables::Set() change nothing; others, such as kResourceExhausted, leave the
  // slot empty.
  Status Set(int32_t slot, std::shared_ptr<const AdapterWeights> weights, device::Stream& stream);

 private:
  struct Table {
    ValueId id;
    int64_t out = 0, in = 0;  // of a matrix
    size_t num_matrices = 1;  // of a slot
    size_t first_entry = 0;   // in `entries_`
  };

  std::vector<ops::AdapterMatrices> MatricesOf(size_t slot);
  Status Upload(std::span<ops::AdapterMatrices> matrices, device::DeviceMemory* memory);
  void EnqueueTables(device::Stream& stream) const;

  device::Device* device_ = nullptr;
  AdapterTables host_;
  std::vector<Table> tables_;
  device::HostMemory host_entries_;
  std::span<ops::AdapterMatrices> entries_;  // in `host_entries_`: what the device has
  device::DeviceMemory device_entries_;
  std::vector<device::DeviceMemory> matrices_;  // by slot
  std::unique_ptr<device::Event> done_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_ADAPTERS_H_
