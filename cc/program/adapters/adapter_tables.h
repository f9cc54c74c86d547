// File: cc/program/adapters/adapter_tables.h
// The adapters that a step may use: for each adapter value of a program a table with an entry per
// slot, or per slot and expert, which ops read (ops/apply_adapter/adapter_matrices.h).
//
//   AdapterTables tables(program, /*num_slots=*/8);
//   operand.data = tables.TableOf(id);
//   PAGEMILL_RETURN_IF_ERROR(tables.Set(3, weights));   // between steps
//
// Thread safety: none.
#ifndef PAGEMILL_CC_PROGRAM_ADAPTERS_ADAPTER_TABLES_H_
#define PAGEMILL_CC_PROGRAM_ADAPTERS_ADAPTER_TABLES_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/apply_adapter/adapter_matrices.h"
#include "cc/program/adapters/adapter_weights.h"
#include "cc/program/program.h"

namespace pagemill::program {

class AdapterTables {
 public:
  AdapterTables() = default;
  AdapterTables(const Program& program, int32_t num_slots);

  // `adapter` is one of AdapterValues(). Stays valid while this object exists.
  ops::AdapterMatrices* TableOf(ValueId adapter);
  // Null empties the slot. Keeps the weights until then. kInvalidArgument for a slot that does not
  // exist, or weights of another program.
  Status Set(int32_t slot, std::shared_ptr<const AdapterWeights> weights);

 private:
  struct Table {
    size_t num_matrices = 1;                     // of a slot
    std::vector<ops::AdapterMatrices> matrices;  // by slot, then by expert
  };

  std::vector<ValueId> ids_;
  std::vector<Table> tables_;                                // as ids_
  std::vector<std::shared_ptr<const AdapterWeights>> held_;  // by slot
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_ADAPTERS_ADAPTER_TABLES_H_
