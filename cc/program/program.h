// File: cc/program/program.h
// A traced model: a straight list of ops over named values. Text form: docs/program_format.md.
//
//   PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
//   for (const Op& op : program.ops()) Use(op.name, program.value(op.inputs[0]).shape);
//   std::string same = program.ToText();  // canonical text; Parse(same) == program
//
// A Program holds no weights, only their locations. Parse() checks everything that needs no kernel
// table: names, order of definition, ranges. CheckOps() (check_ops.h) checks operands against ops.
// A rewrite (rewrites.h) edits the list of ops through mutable_ops().
//
// Thread safety: a value type; concurrent const access is safe.
#ifndef PAGEMILL_CC_PROGRAM_PROGRAM_H_
#define PAGEMILL_CC_PROGRAM_PROGRAM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/strong_id.h"
#include "cc/ops/batch_view.h"  // Dim, StepSizes
#include "cc/ops/op.h"          // Attributes
#include "cc/tensor/dtype.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

// Index into Program::values().
using ValueId = StrongId<struct ValueTag, int32_t>;
// A missing optional operand, `-` in text.
inline constexpr ValueId kNoValue{-1};

using ops::Dim;
using ops::StepSizes;

struct Shape {
  Dim dim = Dim::kNone;  // the symbolic size of dimension 0
  int32_t rank = 0;
  std::array<int64_t, TensorView::kMaxRank> dims{};  // dims[0] is 0 unless `dim` is kNone

  int64_t RowElements() const;                 // per index of dimension 0
  int64_t Rows(const StepSizes& sizes) const;  // dimension 0
  std::string ToString() const;                // "tokens,9,64"
  friend bool operator==(const Shape&, const Shape&) = default;
};

// kAdapter: the adapters of a linear layer, an embedding, or a layer of all experts: a table that the
// executor keeps (ops/apply_adapter/adapter_matrices.h). Its type is i8, its shape that of the
// weight, [out, in] or [experts, out, in].
enum class ValueKind : uint8_t { kWeight, kCache, kAdapter, kInput, kActivation };

// The location of a weight's bytes.
struct WeightSource {
  int32_t file = 0;    // index into Program::files()
  int64_t offset = 0;  // bytes from the start of the file
  // Bytes between consecutive rows; 0 = dense rows. Larger if the weight is some columns of a wider
  // matrix.
  int64_t row_stride = 0;
  // Bytes between consecutive columns; 0 = adjacent. Larger if the file has the transposed matrix,
  // whose rows are columns of the weight: kernels read a copy.
  int64_t column_stride = 0;
  friend bool operator==(const WeightSource&, const WeightSource&) = default;
};

// One weight operand made of parts that are weights of their own (cc/tensor/quantized.h).
struct Quantized {
  QuantizedFormat format;
  ValueId values = kNoValue;
  ValueId scales = kNoValue;
  ValueId zeros = kNoValue;   // optional
  ValueId groups = kNoValue;  // optional
  ValueId factor = kNoValue;  // of nvfp4 alone

  std::array<ValueId, 5> parts() const { return {values, scales, zeros, groups, factor}; }
  // Those that texts list: a factor only if there is one.
  std::vector<ValueId> listed_parts() const {
    const auto all = parts();
    return {all.begin(), all.end() - (factor == kNoValue ? 1 : 0)};
  }
  friend bool operator==(const Quantized&, const Quantized&) = default;
};

// Layers whose KV has the same lifetime; they share block tables. Groups are in the order of
// step::GroupId.
struct KvGroup {
  std::string name;
  std::string kind = "full";  // of cc/kv_cache/kinds
  int32_t window_tokens = 0;  // tokens a query sees, itself included; 0 = all
  friend bool operator==(const KvGroup&, const KvGroup&) = default;
};

// The contents of a block of one layer's cache.
enum class CacheLayout : uint8_t {
  kKv,      // keys and values of a block's tokens: dims are kv_heads, head_dim
  kLatent,  // one vector per token of a block: dims are its width; or per m tokens: width, m; or
            // width, m and the elements at its end that a cache in fp8 has in bf16
  kState,   // one tensor that summarizes all tokens before a boundary: dims are its shape
};

std::string_view NameOf(CacheLayout layout);
std::optional<CacheLayout> ParseCacheLayout(std::string_view name);

// One layer's cache.
struct CacheSpec {
  int32_t group = 0;  // index into Program::groups()
  CacheLayout layout = CacheLayout::kKv;
  std::optional<DType> dtype;  // empty: `kv`, which the executor's options bind
  std::vector<int64_t> dims;

  // Tokens that a vector of a latent cache stands for: blocks have a multiple of them.
  int64_t TokensOfRow() const {
    return layout == CacheLayout::kLatent && dims.size() > 1 ? dims[1] : 1;
  }
  // Elements at the end of a vector of a latent cache that stay in bf16 if the cache is in fp8.
  int64_t Bf16Elements() const {
    return layout == CacheLayout::kLatent && dims.size() > 2 ? dims[2] : 0;
  }
  friend bool operator==(const CacheSpec&, const CacheSpec&) = default;
};

struct Value {
  std::string name;
  ValueKind kind = ValueKind::kActivation;
  DType dtype = DType::kF32;           // not of a cache
  bool is_act = false;                 // `act` in text: SetActivationType() sets dtype
  Shape shape;                         // not of a cache
  WeightSource weight;                 // of a weight only
  CacheSpec cache;                     // of a cache only
  int32_t line = 0;                    // in the source text, 0 = none; ignored by ==
  std::optional<Quantized> quantized;  // of a weight only, which then has no `weight`
  std::vector<ValueId> stack;  // of a weight only, likewise: one value per index of dimension 0

  // True for a weight that is composed of other weights instead of lying in a file itself.
  bool IsMade() const { return quantized.has_value() || !stack.empty(); }
  // True for a weight whose bytes kernels cannot read in its file.
  bool NeedsRows() const { return IsMade() || weight.column_stride > 0; }
  int64_t Bytes(const StepSizes& sizes) const;  // not of a cache
  int64_t RowStrideBytes() const;               // not of a cache; as kernels see it
  int64_t SpanBytes() const;                    // of a weight: from its first to its last byte
  bool operator==(const Value& other) const;
};

// A value that a step returns.
struct Output {
  std::string name;  // "logits", "pooled", "hidden.3"
  ValueId value = kNoValue;
  friend bool operator==(const Output&, const Output&) = default;
};
inline constexpr std::string_view kLogits = "logits";  // f32 [logits_rows, vocabulary]
inline constexpr std::string_view kPooled = "pooled";  // f32 [requests or tokens, dimension]

struct Op {
  std::string name;
  std::vector<ValueId> inputs;  // kNoValue if an optional operand is missing
  std::vector<ValueId> outputs;
  ops::Attributes attributes;
  int32_t line = 0;

  bool operator==(const Op& other) const;
};

// The path that denotes the constants section.
inline constexpr std::string_view kConstantsPath = "@";

class Program {
 public:
  // kInvalidArgument with the number of the invalid line.
  static StatusOr<Program> Parse(std::string_view text);
  std::string ToText() const;

  const std::vector<std::string>& files() const { return files_; }
  const std::vector<KvGroup>& groups() const { return groups_; }
  const std::vector<Value>& values() const { return values_; }
  const std::vector<Op>& ops() const { return ops_; }
  const std::vector<Output>& outputs() const { return outputs_; }
  const std::vector<std::byte>& constants() const { return constants_; }

  const Value& value(ValueId id) const { return values_[static_cast<size_t>(id.value())]; }
  std::optional<ValueId> Find(std::string_view name) const;  // O(values)
  // The value of output `name`; empty if the program has no such output.
  std::optional<ValueId> FindOutput(std::string_view name) const;
  bool IsOutput(ValueId id) const;
  // Inputs that are not step arrays (ops::StepBatch::inputs), in declaration order.
  std::vector<ValueId> TensorInputs() const;

  // Binds `act`: sets the type of every value declared with it. kInvalidArgument unless it is f32,
  // bf16 or f16. A parsed program has f32.
  Status SetActivationType(DType dtype);
  DType activation_type() const { return activation_type_; }

  // For rewrites, which must call CheckIntegrity() afterwards.
  std::vector<Op>& mutable_ops() { return ops_; }
  // Checks every rule of the format about names and order: single definition before use, known
  // outputs, sources within range. Parse() calls it.
  Status CheckIntegrity() const;

  bool operator==(const Program&) const = default;

 private:
  friend class ProgramParser;
  Status CheckOperands(const Op& op, const std::vector<bool>& written) const;
  Status CheckQuantized(const Value& weight) const;
  Status CheckStack(const Value& weight) const;
  Status CheckOutputs() const;

  std::vector<std::string> files_;
  std::vector<KvGroup> groups_;
  std::vector<Value> values_;
  std::vector<Op> ops_;
  std::vector<Output> outputs_;
  std::vector<std::byte> constants_;
  DType activation_type_ = DType::kF32;
};

// "program line 12: ", or "program: " for errors without a line.
std::string LinePrefix(int32_t line);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_PROGRAM_H_
