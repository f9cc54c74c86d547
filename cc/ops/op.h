// File: cc/ops/op.h
// An op as the executor sees it: a name, a call (inputs, outputs, attributes, the step's batch),
// traits, and a table of kernels that can run it. Each op folder defines the typed contract
// (`<op>/<op>.h`), converts an OpCall to it, and exports its kernels; `cpu_table.cc` joins them.
//
// A kernel allocates nothing, throws nothing, and is pure except for its outputs and workspace.
// Shapes and dtypes are checked once, at bind time, by the op's `check`, with the largest shapes
// the program can see; a kernel trusts them. Leading dimensions may be 0 at run time: the kernel
// then does nothing.
#ifndef PAGEMILL_CC_OPS_OP_H_
#define PAGEMILL_CC_OPS_OP_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/batch_view.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::comm {
class Groups;
}  // namespace pagemill::comm
namespace pagemill::device {
class Stream;
}  // namespace pagemill::device

namespace pagemill::ops {

// Attributes of one op instance: numbers only, a handful, looked up by name.
class Attributes {
 public:
  void Set(std::string name, double value) { values_.emplace_back(std::move(name), value); }
  double Get(std::string_view name, double fallback) const {
    for (const auto& [key, value] : values_) {
      if (key == name) return value;
    }
    return fallback;
  }
  int64_t GetInt(std::string_view name, int64_t fallback) const {
    return static_cast<int64_t>(Get(name, static_cast<double>(fallback)));
  }
  const std::vector<std::pair<std::string, double>>& values() const { return values_; }

 private:
  std::vector<std::pair<std::string, double>> values_;
};

struct OpCall {
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  const Attributes* attributes = nullptr;
  const BatchView* batch = nullptr;  // for ops that read the step's batch
};

struct KernelContext {
  device::ThreadPool* pool = nullptr;  // for CPU kernels, which are done when `run` returns
  // At least workspace_bytes() of the chosen kernel, 64-byte aligned.
  std::span<std::byte> workspace = {};
  const comm::Groups* groups = nullptr;  // for collectives; null if this rank is alone
  const std::byte* plan = nullptr;       // written by the kernel's BatchPlan for this step
  // For kernels of other devices, whose `run` enqueues the work. Addresses in the call and of the
  // workspace are device addresses and stay valid until the work is done; all other arguments of
  // `run` may change once it has returned.
  device::Stream* stream = nullptr;
};

// Precision to which a kernel rounds activations, from the finest to the coarsest. Blocks are 32
// values of a row.
enum class Precision : uint8_t {
  kF32,         // all bits of f32
  kBf16,        // 8 bits of each value
  kInt16Block,  // 15 bits of the largest value of a block
  kMixedBlock,  // 15 bits of the largest value in blocks with outliers, 7 in the others
  kInt8Block,   // 7 bits of the largest value of a block
  kF8,          // e4m3, 4 bits of each value, with scales
};

// The packed weight layout that a kernel requires. Weights are packed once, when a program is
// bound: the input's `data` then points to packed bytes, 64-byte aligned, and its other members are
// those of PackedView().
struct WeightPacking {
  // Name and version of the layout. Two weights of equal dtype, shape and contents have equal
  // packed bytes in layouts of equal names.
  std::string_view layout;
  uint32_t inputs = 0;  // bit i: input i is packed
  // Weights are packed only if another op packs them in this layout; others are read as stored. For
  // ops that can read both, so that a tied weight is in memory once.
  bool follows = false;
  int64_t (*bytes)(const TensorView& weight) = nullptr;  // a multiple of 64; reads no data
  // kDataLoss or kUnimplemented if the layout cannot hold what a quantized weight contains.
  Status (*pack)(const TensorView& weight, std::byte* packed, device::ThreadPool& pool) = nullptr;
  // The weight as `run` and `workspace_bytes` see it; reads no data. A layout that holds all parts
  // of a quantized weight has another dtype than the weight, and no parts. Null: dtype, shape and
  // parts are those of the weight, row_stride_bytes is 0.
  TensorView (*view)(const TensorView& weight) = nullptr;
};

// `weight` in the layout of `packing`, as a kernel sees it; `data` is that of `weight`.
inline TensorView PackedView(const WeightPacking& packing, const TensorView& weight) {
  if (packing.view != nullptr) return packing.view(weight);
  TensorView view = weight;
  view.row_stride_bytes = 0;
  return view;
}

// Work lists and splits that a kernel computes from a step's batch. Calls that differ only in
// addresses, as those of most layers do, share one plan. The host makes it once per step, before
// the first of them runs.
struct BatchPlan {
  int64_t (*bytes)(const OpCall& call) = nullptr;  // for a call of these (largest) shapes
  // The arrays of the batch are the host's; the operands' data may not be read. `plan` is 64-byte
  // aligned and has bytes() bytes. It holds no addresses: it may be copied to a device.
  void (*make)(const OpCall& call, std::span<std::byte> plan) = nullptr;
};

struct RowMaximum;  // row_maxima.h

struct Kernel {
  std::string_view op;  // "rms_norm"
  // "avx512", "avx2", "portable", "reference". Kernels of one op may share a name if no call is
  // supported by two of them, such as kernels for different weight formats.
  std::string_view name;
  int32_t priority = 0;  // higher wins; the reference has 0; ties break by name
  // True if this kernel can run a call of these dtypes and shapes on this machine. `call` holds the
  // largest shapes.
  bool (*supports)(const device::Capabilities& caps, const OpCall& call) = nullptr;
  void (*run)(const OpCall& call, KernelContext& context) = nullptr;
  // Bytes of workspace for a call of these (largest) shapes, with weights as PackedView(); null if
  // none.
  int64_t (*workspace_bytes)(const OpCall& call, int32_t num_threads) = nullptr;
  // Precision to which inputs are rounded. The op's contract has an error bound for each precision.
  Precision activations = Precision::kF32;
  const WeightPacking* packing = nullptr;  // null: weights are read as stored
  // Computes the row maxima of a product with one output (RunRowMaxima() of row_maxima.h) without
  // writing the output, in the same workspace. Null if not implemented.
  void (*run_row_maxima)(const OpCall& call, KernelContext& context, int64_t columns,
                         RowMaximum* maxima) = nullptr;
  const BatchPlan* plan = nullptr;  // null if the kernel needs no plan
  // A row of the result may have other bits in another batch: the order of sums depends on sizes.
  bool varies_with_batch = false;
};

// The kernel's packing of input `input`; null if it is read as stored.
inline const WeightPacking* PackingOf(const Kernel& kernel, size_t input) {
  if (kernel.packing == nullptr || input >= 32 || (kernel.packing->inputs >> input & 1) == 0) {
    return nullptr;
  }
  return kernel.packing;
}

// Which kernels ChooseKernel may take; by default all.
struct KernelLimits {
  std::string_view name = {};  // if not empty, the kernel of this name ("reference")
  // The coarsest precision to which a kernel may round activations.
  Precision activations = Precision::kF8;
  bool deterministic = false;  // none that varies with the batch
};

// Output `output` may share the memory of input `input` when that input is not read later.
struct AliasRule {
  int8_t input;
  int8_t output;
};

// Weight matrices among an op's inputs. Each belongs to one output, in order.
struct MatrixInputs {
  int8_t first = -1;      // input of the first matrix; -1 if the op has none
  int8_t stride = 2;      // inputs for each matrix: itself, then operands such as its bias
  int64_t max_count = 1;  // matrices in one op
  int8_t choices = -1;    // input of ids that choose matrices of stacks; -1 if every row uses all
};

// Rows of a table among an op's inputs, each chosen by an id.
struct TableInputs {
  int8_t ids = -1;  // -1 if the op has no table
  int8_t table = -1;
};

// The two ops that an op computes in one, at the place of the first. Its inputs are those of
// `first`, then those of `second` without the value between them; its outputs are those of
// `second`, then those of `first`; it has the attributes of both.
struct FusedOps {
  std::string_view first, second;  // empty if the op is not fused
  int8_t output = 0;               // of `first`, which ...
  int8_t input = 0;                // ... this input of `second` reads
};

// Properties of an op for generic code: rewrites, profiles, checks.
struct OpTraits {
  MatrixInputs matrices = {};
  TableInputs table = {};
  FusedOps fuses = {};
  bool gathers_columns = false;  // the output's columns are those of input 0 of each rank in turn
};

struct OpDefinition {
  std::string_view op;
  // Checks the call's operands against the contract. The message names op, operand, the expected
  // and the actual value.
  Status (*check)(const OpCall& call) = nullptr;
  std::span<const Kernel> kernels;
  std::span<const AliasRule> may_alias = {};
  // The coarsest precision of activations under the default limit, Precision::kMixedBlock. Null:
  // that limit.
  Precision (*automatic_activations)(const OpCall& call) = nullptr;
  OpTraits traits = {};
};

// Every op of the CPU, sorted by name (defined in cpu_table.cc).
std::span<const OpDefinition> CpuOps();

// The definition, or kUnimplemented naming the op.
StatusOr<const OpDefinition*> FindOp(std::span<const OpDefinition> ops, std::string_view name);

// The kernel that runs `call`: highest priority among those that support it and are within
// `limits`, then name. Deterministic.
StatusOr<const Kernel*> ChooseKernel(const OpDefinition& op, const device::Capabilities& caps,
                                     const OpCall& call, const KernelLimits& limits = {});

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_OP_H_
