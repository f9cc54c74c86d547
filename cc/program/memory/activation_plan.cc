#include "cc/program/memory/activation_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pagemill::program {
namespace {

constexpr int64_t kAlignment = 64;

// Values that share memory because each takes over the memory of the previous one.
struct Buffer {
  std::vector<size_t> values;
  Lifetime lifetime;
  int64_t bytes = 0;
  int64_t offset = 0;
};

bool Overlap(const Lifetime& a, const Lifetime& b) {
  return a.first <= b.last && b.first <= a.last;
}

// Groups the activations of the arena into buffers, op by op.
class BufferBuilder {
 public:
  BufferBuilder(const Program& program, const StepSizes& max_sizes)
      : program_(program),
        max_sizes_(max_sizes),
        lifetimes_(Lifetimes(program)),
        buffer_of_(program.values().size(), kNone) {}

  void AddOp(int32_t index, const ops::OpDefinition& definition) {
    const Op& op = program_.ops()[static_cast<size_t>(index)];
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      if (program_.IsOutput(op.outputs[o])) continue;
      size_t buffer = kNone;
      for (const ops::AliasRule& rule : definition.may_alias) {
        if (rule.output != static_cast<int8_t>(o)) continue;
        if (static_cast<size_t>(rule.input) >= op.inputs.size()) continue;
        const ValueId input = op.inputs[static_cast<size_t>(rule.input)];
        if (CanTakeOver(index, input, op.outputs[o])) {
          buffer = buffer_of_[Index(input)];
          break;
        }
      }
      Append(Index(op.outputs[o]), buffer);
    }
  }

  std::vector<Buffer> Take() { return std::move(buffers_); }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  static size_t Index(ValueId id) { return static_cast<size_t>(id.value()); }

  // True if the output can take over the input's memory at op `index`: no other value has taken it
  // over, so the input is still the last value of its buffer, and the op reads the input only once.
  bool CanTakeOver(int32_t index, ValueId input, ValueId output) const {
    if (input == kNoValue || buffer_of_[Index(input)] == kNone) return false;
    const Op& op = program_.ops()[static_cast<size_t>(index)];
    const Value& in = program_.value(input);
    const Value& out = program_.value(output);
    return in.dtype == out.dtype && in.shape.dim == out.shape.dim &&
           in.Bytes(max_sizes_) == out.Bytes(max_sizes_) &&
           in.shape.RowElements() == out.shape.RowElements() &&
           lifetimes_[Index(input)].last == index &&
           buffers_[buffer_of_[Index(input)]].values.back() == Index(input) &&
           std::count(op.inputs.begin(), op.inputs.end(), input) == 1;
  }

  // Adds the value to `buffer`, or to a new one.
  void Append(size_t value, size_t buffer) {
    if (buffer == kNone) {
      buffer = buffers_.size();
      buffers_.push_back({.values = {},
                          .lifetime = lifetimes_[value],
                          .bytes = program_.values()[value].Bytes(max_sizes_)});
    }
    buffer_of_[value] = buffer;
    buffers_[buffer].values.push_back(value);
    buffers_[buffer].lifetime.last = lifetimes_[value].last;
  }

  const Program& program_;
  const StepSizes max_sizes_;
  const std::vector<Lifetime> lifetimes_;
  std::vector<size_t> buffer_of_;  // per value
  std::vector<Buffer> buffers_;
};

// The lowest offset at which `buffer` fits among the placed buffers.
int64_t LowestOffset(const Buffer& buffer, const std::vector<const Buffer*>& placed_by_offset) {
  int64_t offset = 0;
  for (const Buffer* other : placed_by_offset) {
    if (!Overlap(buffer.lifetime, other->lifetime)) continue;
    if (offset + buffer.bytes <= other->offset) break;
    const int64_t end = other->offset + other->bytes;
    offset = std::max(offset, (end + kAlignment - 1) / kAlignment * kAlignment);
  }
  return offset;
}

}  // namespace

std::vector<Lifetime> Lifetimes(const Program& program) {
  std::vector<Lifetime> lifetimes(program.values().size());
  for (int32_t i = 0; i < static_cast<int32_t>(program.ops().size()); ++i) {
    const Op& op = program.ops()[static_cast<size_t>(i)];
    for (ValueId id : op.inputs) {
      if (id != kNoValue) lifetimes[static_cast<size_t>(id.value())].last = i;
    }
    for (ValueId id : op.outputs) lifetimes[static_cast<size_t>(id.value())] = {i, i};
  }
  return lifetimes;
}

ActivationPlan PlanActivations(const Program& program, std::span<const ops::OpDefinition> ops,
                               const StepSizes& max_sizes) {
  BufferBuilder builder(program, max_sizes);
  for (size_t i = 0; i < program.ops().size(); ++i) {
    builder.AddOp(static_cast<int32_t>(i), **ops::FindOp(ops, program.ops()[i].name));
  }
  std::vector<Buffer> buffers = builder.Take();
  // Largest first: small buffers fill the gaps that large ones leave.
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });

  ActivationPlan plan;
  plan.offsets.assign(program.values().size(), ActivationPlan::kNotInArena);
  std::vector<const Buffer*> placed_by_offset;
  for (size_t index : order) {
    Buffer& buffer = buffers[index];
    buffer.offset = LowestOffset(buffer, placed_by_offset);
    const auto at =
        std::upper_bound(placed_by_offset.begin(), placed_by_offset.end(), &buffer,
                         [](const Buffer* a, const Buffer* b) { return a->offset < b->offset; });
    placed_by_offset.insert(at, &buffer);
    plan.arena_bytes = std::max(plan.arena_bytes, buffer.offset + buffer.bytes);
    for (size_t value : buffer.values) plan.offsets[value] = buffer.offset;
  }
  return plan;
}

}  // namespace pagemill::program
