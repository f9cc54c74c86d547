#include "cc/ops/grouped_linear/grouped_driver.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "cc/ops/grouped_linear/expert_rows.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/linear/float_gemm.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/quantized/quantized.h"

namespace pagemill::ops::grouped_linear {
namespace {

using linear::kPanelRows;

// Elements of x that are worth handing to another thread to prepare: 1 to 2 us.
constexpr int64_t kPrepareGrain = 4096;
// Panels that one thread multiplies with all strips of an expert before the next ones: they stay in
// L2 beside the strips that pass by.
constexpr int64_t kMaxGroupBytes = 256 << 10;

constexpr int64_t kFloatBytes = sizeof(float);

int64_t DivideUp(int64_t value, int64_t by) { return (value + by - 1) / by; }
int64_t RoundUp(int64_t bytes) { return DivideUp(bytes, 64) * 64; }

// Floats between neighbouring rows of a strip, if that is the same for all of them.
std::optional<int64_t> EvenStride(const RoutedRows& rows, const Strip& strip) {
  if (strip.count == 1) return 0;
  const float* const first = rows.At(strip.rows[0]);
  const int64_t stride = rows.At(strip.rows[1]) - first;
  for (int64_t i = 2; i < strip.count; ++i) {
    if (rows.At(strip.rows[i]) - first != i * stride) return std::nullopt;
  }
  return stride;
}

void Gather(const RoutedRows& rows, const Strip& strip, int64_t width, float* to) {
  for (int64_t i = 0; i < strip.count; ++i) {
    std::memcpy(to + i * width, rows.At(strip.rows[i]), static_cast<size_t>(width * kFloatBytes));
  }
}

// Calls product(y, stride) with where columns [column, column + m) of a strip's outputs go.
template <class Product>
void WriteOutputs(const RoutedRows& y, const Strip& strip, int64_t column, int64_t m, float* block,
                  const Product& product) {
  if (const std::optional<int64_t> stride = EvenStride(y, strip)) {
    return product(y.At(strip.rows[0]) + column, *stride);
  }
  product(block, kPanelRows);
  for (int64_t i = 0; i < strip.count; ++i) {
    std::memcpy(y.At(strip.rows[i]) + column, block + i * kPanelRows,
                static_cast<size_t>(m * kFloatBytes));
  }
}

// One stack of a call.
struct Stack {
  const OpCall& call;
  size_t output;

  const TensorView& view() const { return call.inputs[WeightOperand(output)]; }
  int64_t m() const { return view().shape[1]; }
  int64_t k() const { return view().shape[2]; }
  int64_t panels() const { return DivideUp(m(), kPanelRows); }
  // Outputs of a panel.
  int64_t Columns(int64_t panel) const { return std::min(kPanelRows, m() - panel * kPanelRows); }
  const float* Bias(int64_t expert, int64_t panel) const {
    const float* const bias = BiasOf(call, output, expert);
    return bias == nullptr ? nullptr : bias + panel * kPanelRows;
  }
};

// The rows of one expert, prepared.
struct PreparedGroup {
  int64_t expert;
  std::span<const Strip> strips;
  const int64_t* offsets;  // of each strip in `prepared`
  const uint8_t* prepared;
};

// Kernels with packed weights.
class Packed {
 public:
  Packed(const linear::PackedGemm& kernels, const OpCall& call)
      : kernels_(kernels), dtype_(call.inputs[WeightOperand(0)].dtype) {}

  int64_t max_strip_rows() const { return kernels_.max_strip_rows; }
  int64_t StripBytes(int64_t n, int64_t k) const { return kernels_.strip_bytes(dtype_, n, k); }
  // Rows that are not evenly spaced, or the products of a strip and a panel.
  int64_t ScratchBytes(int64_t n, int64_t k) const {
    return RoundUp(n * std::max(k, kPanelRows) * kFloatBytes);
  }

  void Prepare(const RoutedRows& x, const Strip& strip, int64_t k, float* scratch,
               uint8_t* to) const {
    const std::optional<int64_t> stride = EvenStride(x, strip);
    if (!stride) Gather(x, strip, k, scratch);
    kernels_.prepare(dtype_,
                     {.rows = stride ? x.At(strip.rows[0]) : scratch,
                      .stride = stride.value_or(k),
                      .n = strip.count,
                      .k = k},
                     to);
  }

  void Multiply(const Stack& stack, const PreparedGroup& group, int64_t p_begin, int64_t p_end,
                float* scratch, int64_t* left) const {
    const int64_t panel_bytes = kernels_.panel_bytes(dtype_, stack.k());
    const uint8_t* const panels =
        stack.view().Data<const uint8_t>() + group.expert * stack.panels() * panel_bytes;
    const RoutedRows y = OutputRowsOf(stack.call, stack.output);
    linear::PanelScales scales = linear::ScalesOf(stack.view(), group.expert);
    for (size_t s = 0; s < group.strips.size(); ++s) {
      const Strip& strip = group.strips[s];
      for (int64_t p = p_begin; p < p_end; ++p) {
        const int64_t m = stack.Columns(p);
        scales.first_row = p * kPanelRows;
        WriteOutputs(y, strip, p * kPanelRows, m, scratch, [&](float* to, int64_t stride) {
          kernels_.multiply({.dtype = dtype_,
                             .panel = panels + p * panel_bytes,
                             .strip = group.prepared + group.offsets[s],
                             .bias = stack.Bias(group.expert, p),
                             .y = to,
                             .y_stride = stride,
                             .n = strip.count,
                             .m = m,
                             .k = stack.k(),
                             .scales = scales,
                             .left = kernels_.leave == nullptr ? nullptr : left});
        });
      }
    }
  }

  int64_t PanelBytes(int64_t k) const { return kernels_.panel_bytes(dtype_, k); }
  void Leave(int64_t left) const {
    if (left != 0) kernels_.leave();
  }

 private:
  const linear::PackedGemm& kernels_;
  DType dtype_;
};

// Kernels that decode weights as they are stored: few rows as they go, more rows from a panel of
// floats. A strip is a copy of its rows.
class Stored {
 public:
  Stored(const linear::FloatGemm* kernels, const OpCall& call)
      : kernels_(kernels), dtype_(call.inputs[WeightOperand(0)].dtype) {}

  int64_t max_strip_rows() const { return 64; }
  int64_t StripBytes(int64_t n, int64_t k) const { return RoundUp(n * k * kFloatBytes); }
  // The products of a strip and a panel, and the panel.
  int64_t ScratchBytes(int64_t n, int64_t k) const {
    return ProductBytes(n) + kPanelRows * linear::PanelStride(k);
  }

  void Prepare(const RoutedRows& x, const Strip& strip, int64_t k, float*, uint8_t* to) const {
    Gather(x, strip, k, reinterpret_cast<float*>(to));
  }

  void Multiply(const Stack& stack, const PreparedGroup& group, int64_t p_begin, int64_t p_end,
                float* scratch, int64_t*) const {
    for (int64_t p = p_begin; p < p_end; ++p) MultiplyPanel(stack, group, p, scratch);
  }

  int64_t PanelBytes(int64_t k) const { return kPanelRows * linear::PanelStride(k); }
  void Leave(int64_t) const {}

 private:
  static int64_t ProductBytes(int64_t n) { return n * kPanelRows * kFloatBytes; }

  void MultiplyPanel(const Stack& stack, const PreparedGroup& group, int64_t p,
                     float* scratch) const {
    const TensorView w = ExpertView(stack.view(), group.expert);
    const RoutedRows y = OutputRowsOf(stack.call, stack.output);
    const bool direct = group.strips.size() == 1 && group.strips[0].count <= kernels_->max_direct_n;
    linear::Operands o = {.dtype = dtype_,
                          .weights = w.Row<const uint8_t>(p * kPanelRows),
                          .weight_stride = w.row_stride_bytes,
                          .bias = stack.Bias(group.expert, p),
                          .x = nullptr,
                          .x_stride = stack.k(),
                          .y = nullptr,
                          .y_stride = 0,
                          .n = 0,
                          .m = stack.Columns(p),
                          .k = stack.k()};
    linear::Panel panel = {o.weights, o.weight_stride, 0, o.m};
    if (!direct && dtype_ != DType::kF32) panel = Decode(o, scratch);
    for (size_t s = 0; s < group.strips.size(); ++s) {
      const Strip& strip = group.strips[s];
      o.x = reinterpret_cast<const float*>(group.prepared + group.offsets[s]);
      o.n = strip.count;
      WriteOutputs(y, strip, p * kPanelRows, o.m, scratch, [&](float* to, int64_t stride) {
        o.y = to;
        o.y_stride = stride;
        if (direct) return kernels_->direct(o, 0, o.m);
        kernels_->multiply(o, panel);
      });
    }
  }

  // The weights of `o` as floats, behind the products in `scratch`.
  linear::Panel Decode(const linear::Operands& o, float* scratch) const {
    const int64_t stride = linear::PanelStride(o.k);
    uint8_t* const rows = reinterpret_cast<uint8_t*>(scratch) + ProductBytes(max_strip_rows());
    for (int64_t m = 0; m < o.m; ++m) {
      kernels_->dequantize(dtype_, o.weights + m * o.weight_stride, o.k,
                           reinterpret_cast<float*>(rows + m * stride));
    }
    return {rows, stride, 0, o.m};
  }

  const linear::FloatGemm* kernels_;
  DType dtype_;
};

// The parts of a call's workspace: sorted rows, the offset of each strip, a block for each thread,
// strips.
template <class Kernels>
struct Space {
  Space(const Kernels& kernels, const OpCall& call)
      : rows(call.inputs[1].Elements()),
        experts(call.inputs[WeightOperand(0)].shape[0]),
        k(call.inputs[WeightOperand(0)].shape[2]),
        max_rows(kernels.max_strip_rows()),
        sort_bytes(ExpertRowsBytes(rows, experts, max_rows)),
        offset_bytes(RoundUp(MaxStrips(rows, experts, max_rows) * int64_t{sizeof(int64_t)})),
        scratch_bytes(kernels.ScratchBytes(max_rows, k)) {}

  // The first row of a strip and the others are worth at most so much, however rows are divided.
  int64_t MaxStripBytes(const Kernels& kernels) const {
    const int64_t one = kernels.StripBytes(1, k);
    int64_t more = 0;
    for (int64_t n = 2; n <= max_rows; ++n) {
      more = std::max(more, DivideUp(kernels.StripBytes(n, k) - one, n - 1));
    }
    const int64_t strips = MaxStrips(rows, experts, max_rows);
    return RoundUp(strips * one + (rows - strips) * more);
  }

  int64_t Bytes(const Kernels& kernels, int32_t threads) const {
    return sort_bytes + offset_bytes + threads * scratch_bytes + MaxStripBytes(kernels);
  }

  int64_t rows, experts, k, max_rows;
  int64_t sort_bytes, offset_bytes;
  int64_t scratch_bytes;  // of a thread
};

// A call whose rows are sorted.
template <class Kernels>
class GroupedProduct {
 public:
  GroupedProduct(const Kernels& kernels, const OpCall& call, KernelContext& context)
      : kernels_(kernels),
        call_(call),
        pool_(*context.pool),
        space_(kernels, call),
        sorted_(SortRows(call.inputs[1], space_.experts, space_.max_rows, context.workspace)),
        offsets_(reinterpret_cast<int64_t*>(context.workspace.data() + space_.sort_bytes)),
        scratch_(reinterpret_cast<uint8_t*>(offsets_) + space_.offset_bytes),
        prepared_(scratch_ + pool_.num_threads() * space_.scratch_bytes) {}

  void Prepare() {
    int64_t end = 0;
    for (size_t s = 0; s < sorted_.strips.size(); ++s) {
      offsets_[s] = end;
      end += kernels_.StripBytes(sorted_.strips[s].count, space_.k);
    }
    const RoutedRows x = InputRowsOf(call_);
    const int64_t strips = static_cast<int64_t>(sorted_.strips.size());
    const int64_t grain = std::max<int64_t>(1, kPrepareGrain * strips / (space_.rows * space_.k));
    pool_.ParallelFor(strips, grain, [&](int64_t first, int64_t last, int worker) {
      for (int64_t s = first; s < last; ++s) {
        kernels_.Prepare(x, sorted_.strips[static_cast<size_t>(s)], space_.k, Scratch(worker),
                         prepared_ + offsets_[s]);
      }
    });
  }

  // One list for the threads: the panels of all stacks of an expert, then those of the next expert.
  void Multiply() const {
    int64_t ends[kMaxMatrices];
    int64_t panels = 0;
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      panels += Stack{call_, i}.panels();
      ends[i] = panels;
    }
    const std::span<const int64_t> of_stacks(ends, call_.outputs.size());
    const int64_t most = std::max<int64_t>(1, kMaxGroupBytes / kernels_.PanelBytes(space_.k));
    const int64_t units = static_cast<int64_t>(sorted_.groups.size()) * panels;
    pool_.ParallelFor(units, 1, [&](int64_t unit, int64_t last, int worker) {
      int64_t left = 0;
      while (unit < last) {
        const PreparedGroup group = Group(static_cast<size_t>(unit / panels));
        const int64_t panel = unit % panels;
        const size_t i =
            static_cast<size_t>(std::ranges::upper_bound(of_stacks, panel) - of_stacks.begin());
        const int64_t count = std::min({ends[i] - panel, last - unit, most});
        const int64_t first = panel - (i == 0 ? 0 : ends[i - 1]);
        kernels_.Multiply({call_, i}, group, first, first + count, Scratch(worker), &left);
        unit += count;
      }
      kernels_.Leave(left);
    });
  }

  void ClearRowsWithoutExpert() const {
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      const RoutedRows y = OutputRowsOf(call_, i);
      for (const int32_t row : sorted_.without_expert) {
        std::fill_n(y.At(row), Stack{call_, i}.m(), 0.0f);
      }
    }
  }

 private:
  float* Scratch(int worker) const {
    return reinterpret_cast<float*>(scratch_ + worker * space_.scratch_bytes);
  }

  PreparedGroup Group(size_t index) const {
    const ExpertGroup& group = sorted_.groups[index];
    const size_t first = static_cast<size_t>(group.first_strip);
    const size_t count = static_cast<size_t>(group.end_strip - group.first_strip);
    return {group.expert, sorted_.strips.subspan(first, count), offsets_ + first, prepared_};
  }

  const Kernels& kernels_;
  const OpCall& call_;
  device::ThreadPool& pool_;
  const Space<Kernels> space_;
  const ExpertRows sorted_;
  int64_t* const offsets_;  // of each strip in `prepared_`
  uint8_t* const scratch_;  // of each thread
  uint8_t* const prepared_;
};

template <class Kernels>
void Run(const Kernels& kernels, const OpCall& call, KernelContext& context) {
  if (call.inputs[1].Elements() == 0) return;
  GroupedProduct product(kernels, call, context);
  product.Prepare();
  product.Multiply();
  product.ClearRowsWithoutExpert();
}

}  // namespace

void RunPacked(const linear::PackedGemm& kernels, const OpCall& call, KernelContext& context) {
  Run(Packed(kernels, call), call, context);
}

int64_t PackedWorkspaceBytes(const linear::PackedGemm& kernels, const OpCall& call,
                             int32_t num_threads) {
  const Packed packed(kernels, call);
  return Space(packed, call).Bytes(packed, num_threads);
}

void RunStored(const linear::FloatGemm& kernels, const OpCall& call, KernelContext& context) {
  Run(Stored(&kernels, call), call, context);
}

int64_t StoredWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  const Stored stored(nullptr, call);
  return Space(stored, call).Bytes(stored, num_threads);
}

int64_t PackedStackBytes(const linear::PackedGemm& kernels, const TensorView& stack) {
  return stack.shape[0] * linear::PackedBytes(kernels, MatrixOfStack(stack, 0).view());
}

Status PackStack(const linear::PackedGemm& kernels, const TensorView& stack, std::byte* packed,
                 device::ThreadPool& pool) {
  const int64_t bytes = linear::PackedBytes(kernels, MatrixOfStack(stack, 0).view());
  for (int64_t e = 0; e < stack.shape[0]; ++e) {
    PM_RETURN_IF_ERROR(
        linear::PackPanels(kernels, MatrixOfStack(stack, e).view(), packed + e * bytes, pool));
  }
  return OkStatus();
}

}  // namespace pagemill::ops::grouped_linear
