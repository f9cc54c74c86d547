// File: cc/program/adapters/adapter_weights.h
// One adapter for a program: its matrices for each linear layer that it changes, in the layout of
// kernels.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<const AdapterWeights> weights,
//                             AdapterWeights::Make(program, {{"model.layers.0.mlp.up_proj", ...}}));
//   executor->SetAdapter(slot, weights);
//
// Thread safety: constant after Make().
#ifndef PAGEMILL_CC_PROGRAM_ADAPTERS_ADAPTER_WEIGHTS_H_
#define PAGEMILL_CC_PROGRAM_ADAPTERS_ADAPTER_WEIGHTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/apply_adapter/packed_adapter.h"
#include "cc/program/program.h"

namespace pagemill::program {

// The values of a program that are adapters, in their order.
std::vector<ValueId> AdapterValues(const Program& program);

class AdapterWeights {
 public:
  struct Layer {
    std::string name;  // of the program's value
    ops::AdapterTensors tensors;
  };

  // Copies the tensors. kInvalidArgument for a layer that the program has no adapter for, that
  // occurs twice, or whose tensors do not fit.
  static StatusOr<std::shared_ptr<const AdapterWeights>> Make(const Program& program,
                                                              std::span<const Layer> layers);

  // One for each of AdapterValues(); empty for a layer that stays as it is.
  const std::vector<ops::PackedAdapter>& layers() const { return layers_; }
  int64_t bytes() const;

 private:
  AdapterWeights() = default;
  std::vector<ops::PackedAdapter> layers_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_ADAPTERS_ADAPTER_WEIGHTS_H_
