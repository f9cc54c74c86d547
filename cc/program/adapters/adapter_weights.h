// File: cc/program/adapters/adapter_weights.h
// One adapter for a program: its matrices for each linear layer or expert that it changes, in the
// layout of kernels.
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

// Matrices that an adapter value has for each adapter: one for each expert, else one.
int64_t NumMatrices(const Value& adapter);

class AdapterWeights {
 public:
  struct Layer {
    std::string name;    // of the program's value
    int64_t expert = 0;  // 0 unless the value is that of experts
    ops::AdapterTensors tensors;
  };

  // Copies the tensors. kInvalidArgument for a layer or expert that the program has no adapter for,
  // that occurs twice, or whose tensors do not fit.
  static StatusOr<std::shared_ptr<const AdapterWeights>> Make(const Program& program,
                                                              std::span<const Layer> layers);

  // For each of AdapterValues() one for each expert; empty for what stays as it is.
  const std::vector<ops::PackedAdapter>& matrices() const { return matrices_; }
  int64_t bytes() const;

 private:
  AdapterWeights() = default;
  std::vector<ops::PackedAdapter> matrices_;
};

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_ADAPTERS_ADAPTER_WEIGHTS_H_
