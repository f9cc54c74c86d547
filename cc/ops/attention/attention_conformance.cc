#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/attention/attention.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {
namespace {

// The contract's bound: elements are below 1, scores below 6, biases included.
constexpr conformance::Tolerance kTolerance{.abs = 4e-6 * (1 + 6)};
constexpr conformance::Tolerance kRoundedTolerance{.abs = kTolerance.abs + kPagedAttentionRounding};
constexpr conformance::Tolerance kBf16Tolerance{.abs = kRoundedTolerance.abs + 0x1p-9};  // of y

bool Rounds(const Kernel& kernel) { return kernel.activations != Precision::kF32; }

struct Heads {
  int64_t q, kv, dim;
  bool causal;
  int32_t window = 0;
  int32_t bias_reach = -1;  // negative: no biases
  int32_t grid_window = 0;
};

// Nearest, ties to even.
float RoundToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

enum class Operands {
  kF32,       // misaligned, with gaps between rows
  kRounded,   // likewise, with inputs that are bf16 numbers
  kBf16,      // those in bf16, aligned
};

// Requests of the given numbers of tokens. The tokens of request number r do not depend on the
// other requests.
class Case {
 public:
  Case(const Heads& heads, const std::vector<int32_t>& tokens, int32_t first_number,
       Operands operands)
      : query_start_{0} {
    for (int32_t count : tokens) query_start_.push_back(query_start_.back() + count);
    const int64_t total = query_start_.back();
    const bool is_bf16 = operands == Operands::kBf16;
    const auto options = is_bf16 ? conformance::TestTensorOptions{}
                                 : conformance::TestTensorOptions{.misalign_bytes = 4,
                                                                  .row_padding_bytes = 12};
    for (int64_t count : {heads.q, heads.kv, heads.kv, heads.q}) {
      tensors_.emplace_back(is_bf16 ? DType::kBF16 : DType::kF32,
                            std::initializer_list<int64_t>{total, count, heads.dim}, options);
    }
    for (size_t i = 0; i < 3; ++i) Fill(i, tokens, first_number, operands != Operands::kF32);
    for (size_t i = 0; i < 3; ++i) inputs_[i] = tensors_[i].view();
    if (heads.bias_reach >= 0) {
      const int64_t distances = 2 * heads.bias_reach + 1;
      conformance::Random random(7);
      for (int64_t i = 0; i < heads.q * distances; ++i) biases_.push_back(random.Uniform(-2, 2));
      inputs_[kAttentionBiases] =
          TensorView::Dense(biases_.data(), DType::kF32, {heads.q, distances});
    }
    output_ = tensors_[3].view();
    attributes_.Set("scale", 1 / std::sqrt(static_cast<double>(heads.dim)));
    attributes_.Set("causal", heads.causal ? 1 : 0);
    attributes_.Set("window", heads.window);
    attributes_.Set("grid_window", heads.grid_window);
    if (heads.grid_window > 0) {
      for (int32_t count : tokens) AppendGrid(count, heads.grid_window);
      batch_.grid_positions = grid_positions_.data();
    }
    batch_.num_tokens = static_cast<int32_t>(total);
    batch_.num_requests = static_cast<int32_t>(tokens.size());
    batch_.query_start = query_start_.data();
    call_ = {.inputs = {inputs_, heads.bias_reach < 0 ? kAttentionBiases : kAttentionBiases + 1},
             .outputs = {&output_, 1},
             .attributes = &attributes_,
             .batch = &batch_};
  }
  Case(const Case&) = delete;

  const OpCall& call() const { return call_; }
  std::vector<float> Run(const Kernel& kernel, int32_t threads) {
    device::ThreadPool pool({.num_threads = threads});
    tensors_[3].Poison();
    conformance::RunKernel(kernel, call_, pool);
    for (const conformance::TestTensor& tensor : tensors_) {
      EXPECT_TRUE(tensor.GuardsIntact()) << kernel.name;
    }
    return tensors_[3].ToFloat();
  }

 private:
  void Fill(size_t input, const std::vector<int32_t>& tokens, int32_t first_number, bool rounded) {
    const int64_t row = tensors_[input].view().RowElements();
    std::vector<float> values;
    for (size_t r = 0; r < tokens.size(); ++r) {
      conformance::Random random(1000 * input + static_cast<size_t>(first_number) + r);
      for (int64_t i = 0; i < tokens[r] * row; ++i) values.push_back(random.Uniform(-1, 1));
    }
    if (rounded) std::transform(values.begin(), values.end(), values.begin(), RoundToBf16);
    tensors_[input].Set(values);
  }

  // Positions of the tokens of a request in windows of `side` x `side`, three in a row, of which
  // most are not full.
  void AppendGrid(int32_t tokens, int32_t side) {
    for (int32_t window = 0; tokens > 0; ++window) {
      const int32_t size = std::min(tokens, 1 + (window * 29 + side) % (side * side));
      for (int32_t i = 0; i < size; ++i) {
        const int32_t row = window / 3 * side + i / side, column = window % 3 * side + i % side;
        grid_positions_.insert(grid_positions_.end(), {0, row, column});
      }
      tokens -= size;
    }
  }

  std::vector<int32_t> query_start_, grid_positions_;
  std::vector<conformance::TestTensor> tensors_;  // q, k, v, y
  std::vector<float> biases_;
  TensorView inputs_[kAttentionBiases + 1];
  TensorView output_;
  Attributes attributes_;
  BatchView batch_;
  OpCall call_;
};

void CheckCase(const OpDefinition& op, const device::Capabilities& caps, const Heads& heads,
               const std::vector<int32_t>& tokens) {
  Case c(heads, tokens, /*first_number=*/0, Operands::kF32);
  Case rounded(heads, tokens, /*first_number=*/0, Operands::kRounded);
  Case bf16(heads, tokens, /*first_number=*/0, Operands::kBf16);
  ASSERT_TRUE(op.check(c.call()).ok()) << op.check(c.call()).ToString();
  const std::vector<float> expected = c.Run(conformance::ReferenceKernel(op), 1);
  const std::vector<float> of_rounded = rounded.Run(conformance::ReferenceKernel(op), 1);
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, c.call())) {
    const std::vector<float> one = c.Run(*kernel, 1);
    EXPECT_TRUE(Rounds(*kernel) ? conformance::AllClose(one, of_rounded, kRoundedTolerance)
                                : conformance::AllClose(one, expected, kTolerance))
        << kernel->name << " head_dim " << heads.dim << " causal " << heads.causal << " window "
        << heads.window << " grid window " << heads.grid_window;
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      if (threads == 1) continue;
      EXPECT_TRUE(conformance::BitEqual(c.Run(*kernel, threads), one))
          << kernel->name << ", " << threads << " threads";
    }
    if (Rounds(*kernel)) {
      EXPECT_TRUE(conformance::BitEqual(rounded.Run(*kernel, 2), one)) << kernel->name;
    }
  }
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, bf16.call())) {
    if (!Rounds(*kernel)) continue;
    EXPECT_TRUE(conformance::AllClose(bf16.Run(*kernel, 1), of_rounded, kBf16Tolerance))
        << kernel->name << " of bf16, head_dim " << heads.dim << " causal " << heads.causal
        << " window " << heads.window << " grid window " << heads.grid_window;
  }
}

// The last request has the same bits alone and after the others.
void CheckAlone(const OpDefinition& op, const device::Capabilities& caps, const Heads& heads,
                const std::vector<int32_t>& tokens) {
  for (Operands operands : {Operands::kF32, Operands::kBf16}) {
    Case together(heads, tokens, 0, operands);
    Case alone(heads, {tokens.back()}, static_cast<int32_t>(tokens.size()) - 1, operands);
    for (const Kernel* kernel : conformance::SupportedKernels(op, caps, together.call())) {
      if (operands == Operands::kBf16 && !Rounds(*kernel)) continue;
      const std::vector<float> last = alone.Run(*kernel, 2);
      std::vector<float> all = together.Run(*kernel, 2);
      all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(last.size()));
      EXPECT_TRUE(conformance::BitEqual(all, last)) << kernel->name;
    }
  }
}

}  // namespace

void CheckAttentionConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (bool causal : {false, true}) {
    CheckCase(op, caps, {.q = 1, .kv = 1, .dim = 1, .causal = causal}, {1});
    CheckCase(op, caps, {.q = 2, .kv = 2, .dim = 32, .causal = causal}, {});
    // Requests of no tokens, one token, and about the sizes of pages, tiles and splits.
    CheckCase(op, caps, {.q = 4, .kv = 2, .dim = 24, .causal = causal}, {1, 0, 15, 16, 17, 0, 49});
    CheckCase(op, caps, {.q = 2, .kv = 1, .dim = 64, .causal = causal}, {255, 2, 257});
    CheckCase(op, caps, {.q = 3, .kv = 3, .dim = 80, .causal = causal}, {290});
    CheckAlone(op, caps, {.q = 4, .kv = 2, .dim = 33, .causal = causal}, {3, 70, 300});
    for (int32_t window : conformance::FewIfEmulated({1, 7, 16, 65, 300})) {
      CheckCase(op, caps, {.q = 2, .kv = 1, .dim = 32, .causal = causal, .window = window},
                {1, 0, 17, 290});
    }
    CheckAlone(op, caps, {.q = 2, .kv = 2, .dim = 16, .causal = causal, .window = 33}, {70, 600});
    // Reaches within and beyond a vector, a chunk and a request.
    for (int32_t reach : conformance::FewIfEmulated({0, 3, 40, 128, 400})) {
      CheckCase(op, caps, {.q = 4, .kv = 2, .dim = 16, .causal = causal, .bias_reach = reach},
                {1, 0, 17, 290});
    }
    CheckAlone(op, caps,
               {.q = 2, .kv = 2, .dim = 16, .causal = causal, .window = 33, .bias_reach = 20},
               {70, 300});
  }
  // Windows of the grid within and beyond a vector, a chunk, a tile and a split.
  for (int32_t side : conformance::FewIfEmulated({1, 3, 8, 14, 40})) {
    CheckCase(op, caps, {.q = 4, .kv = 2, .dim = 24, .causal = false, .grid_window = side},
              {1, 0, 17, 290});
  }
  CheckAlone(op, caps, {.q = 2, .kv = 2, .dim = 16, .causal = false, .grid_window = 14}, {70, 600});
  CheckAlone(op, caps,
             {.q = 2, .kv = 1, .dim = 40, .causal = false, .bias_reach = 20, .grid_window = 8},
             {70, 300});
  Case c({.q = 2, .kv = 1, .dim = 16, .causal = false}, {5, 20}, 0, Operands::kF32);
  conformance::CheckActTypes({.op = op,
                              .caps = caps,
                              .call = c.call(),
                              .act_inputs = 0b111,
                              .tolerance = kTolerance});
}

}  // namespace pagemill::ops
