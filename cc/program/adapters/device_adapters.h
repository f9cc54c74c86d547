// File: cc/program/adapters/device_adapters.h
// The adapters that a step may use (program/adapters/adapter_tables.h), in a device's memory:
// tables at fixed addresses, which graphs may have recorded, and for each slot memory for the
// matrices of one adapter, all allocated at the start.
//
//   PAGEMILL_ASSIGN_OR_RETURN(DeviceAdapters adapters,
//                             DeviceAdapters::Create(program, {.num_slots = 8}, device));
//   operand.data = adapters.TableOf(id);
//   PAGEMILL_RETURN_IF_ERROR(adapters.Set(3, weights, *stream));   // between steps
//   adapters.EnqueueTables(staging, *stream);                      // before the kernels of a step
//
// Steps that were enqueued before Set() run with the adapters of that time: tables change in the
// order of the stream, and a slot's memory is written when no step reads it.
//
// The device must outlive it. Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_ADAPTERS_DEVICE_ADAPTERS_H_
#define PAGEMILL_CC_PROGRAM_ADAPTERS_DEVICE_ADAPTERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/device/stream.h"
#include "cc/ops/apply_adapter/adapter_matrices.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/device/staged_upload.h"
#include "cc/program/program.h"

namespace pagemill::program {

struct DeviceAdapterOptions {
  int32_t num_slots = 0;
  int32_t rank = 16;  // that a slot has room for in every layer, in f32, with gain and offset
};

// What adapters take, in bytes. All 0 for a program without adapters.
struct DeviceAdapterPlan {
  int64_t table_bytes = 0;   // of all slots
  int64_t slot_bytes = 0;    // matrices of a slot
  int64_t matrix_bytes = 0;  // of all slots
  int64_t upload_bytes = 0;  // host memory that matrices go through
};

class DeviceAdapters {
 public:
  static DeviceAdapterPlan Plan(const Program& program, const DeviceAdapterOptions& options);
  static StatusOr<DeviceAdapters> Create(const Program& program,
                                         const DeviceAdapterOptions& options,
                                         device::Device& device);

  // The device address of the table of one of AdapterValues().
  void* TableOf(ValueId adapter) const;
  // kInvalidArgument for weights of another program, kResourceExhausted for those that are larger
  // than a slot. Thread-safe.
  Status CheckFits(const AdapterWeights& weights) const;
  // Copies the weights into a slot, for steps that are enqueued from here on; null empties it. If
  // steps that were enqueued since the slot was last emptied may have used it, waits for them.
  // Errors of CheckFits() and of a slot that does not exist change nothing; others leave the slot
  // empty.
  Status Set(int32_t slot, const AdapterWeights* weights, device::Stream& stream);
  // Sends the tables if Set() has changed them since the last call. `staging` has table_bytes of
  // host memory and must not change until the copy is done.
  void EnqueueTables(std::span<std::byte> staging, device::Stream& stream);

 private:
  struct Table {
    ValueId id;
    int64_t out = 0, in = 0;  // of a matrix
    size_t num_matrices = 1;  // of a slot
    size_t first_entry = 0;
  };
  struct Slot {
    bool filled = false;
    std::unique_ptr<device::Event> emptied;  // after the last step that may use what it had
  };

  static std::vector<Table> TablesOf(const Program& program, int32_t num_slots);
  static int64_t SlotBytes(std::span<const Table> tables, int64_t rank);
  // Calls visit(entry, table, number of the matrices in AdapterWeights) for the entries of a slot.
  template <typename Visit>
  void ForEachEntry(size_t slot, const Visit& visit);
  Status Upload(size_t slot, const AdapterWeights& weights);

  std::vector<Table> tables_;
  DeviceAdapterPlan plan_;
  std::vector<ops::AdapterMatrices> entries_;  // of all tables, with device addresses
  bool changed_ = true;                        // since EnqueueTables()
  std::vector<Slot> slots_;
  device::DeviceMemory device_entries_;
  device::DeviceMemory matrices_;  // slot_bytes each
  std::optional<StagedUpload> upload_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_ADAPTERS_DEVICE_ADAPTERS_H_
