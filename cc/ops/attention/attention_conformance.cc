#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "cc/ops/act_conformance.h"
#include "cc/ops/attention/attention.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {
namespace {

// The contract's bound: elements are below 1, scores below 8, biases included.
constexpr conformance::Tolerance kTolerance{.abs = 4e-6 * (1 + 8)};
constexpr conformance::Tolerance kRoundedTolerance{.abs = kTolerance.abs + kPagedAttentionRounding};
constexpr conformance::Tolerance kBf16Tolerance{.abs = kRoundedTolerance.abs + 0x1p-9};  // of y

bool Rounds(const Kernel& kernel) { return kernel.activations != Precision::kF32; }

struct Heads {
  int64_t q, kv, dim;
  bool causal;
  int32_t window = 0;
  int32_t bias_reach = -1;  // negative: no biases
  int32_t grid_window = 0;
  bool biases_by_query = false;
  int32_t grid_columns = 0;
  int32_t column_reach = -1;  // likewise
  bool chunked = false;
  int32_t prefix = 0;
  int32_t of_token = 1;    // rows
  int32_t key_reach = -1;  // negative: no biases of keys
  int32_t soft_cap = 0;
  bool sinks = false;

  std::string ToString() const {
    const auto text = [](std::string_view name, int64_t value) {
      return " " + std::string(name) + " " + std::to_string(value);
    };
    return text("dim", dim) + text("causal", causal) + text("window", window) +
           text("chunked", chunked) + text("prefix", prefix) + text("grid window", grid_window) +
           text("reach", bias_reach) + text("by query", biases_by_query) +
           text("grid columns", grid_columns) + text("rows of a token", of_token) +
           text("reach of keys", key_reach) + text("soft cap", soft_cap) + text("sinks", sinks);
  }
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

// Requests of the given numbers of tokens. The rows of request number r do not depend on the other
// requests.
class Case {
 public:
  Case(const Heads& heads, const std::vector<int32_t>& tokens, int32_t first_number,
       Operands operands)
      : query_start_{0} {
    for (int32_t count : tokens) query_start_.push_back(query_start_.back() + count);
    const int64_t total = int64_t{query_start_.back()} * heads.of_token;
    const bool is_bf16 = operands == Operands::kBf16;
    const auto options = is_bf16 ? conformance::TestTensorOptions{}
                                 : conformance::TestTensorOptions{.misalign_bytes = 4,
                                                                  .row_padding_bytes = 12};
    for (int64_t count : {heads.q, heads.kv, heads.kv, heads.q}) {
      tensors_.emplace_back(is_bf16 ? DType::kBF16 : DType::kF32,
                            std::initializer_list<int64_t>{total, count, heads.dim}, options);
    }
    std::vector<int64_t> rows;
    for (int32_t count : tokens) rows.push_back(int64_t{count} * heads.of_token);
    for (size_t i = 0; i < 3; ++i) Fill(i, rows, first_number, operands != Operands::kF32);
    for (size_t i = 0; i < 3; ++i) inputs_.push_back(tensors_[i].view());
    const bool by_query = heads.biases_by_query;
    AddBiases(heads, heads.bias_reach, by_query, rows, first_number, &biases_);
    AddBiases(heads, heads.column_reach, by_query, rows, first_number, &column_biases_);
    AddBiases(heads, heads.key_reach, /*by_row=*/true, rows, first_number, &key_biases_);
    if (heads.sinks) AddSinks(heads);
    while (inputs_.back().rank == 0) inputs_.pop_back();
    output_ = tensors_[3].view();
    attributes_.Set("scale", 1 / std::sqrt(static_cast<double>(heads.dim)));
    attributes_.Set("causal", heads.causal ? 1 : 0);
    attributes_.Set("window", heads.window);
    attributes_.Set("chunked", heads.chunked ? 1 : 0);
    attributes_.Set("prefix", heads.prefix);
    attributes_.Set("grid_window", heads.grid_window);
    attributes_.Set("grid_columns", heads.grid_columns);
    attributes_.Set("soft_cap", heads.soft_cap);
    if (heads.grid_window > 0) {
      for (int32_t count : tokens) AppendGrid(count, heads.grid_window);
      batch_.grid_positions = grid_positions_.data();
    }
    batch_.num_tokens = query_start_.back();
    batch_.num_requests = static_cast<int32_t>(tokens.size());
    batch_.query_start = query_start_.data();
    call_ = {
        .inputs = inputs_, .outputs = {&output_, 1}, .attributes = &attributes_, .batch = &batch_};
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
  void Fill(size_t input, const std::vector<int64_t>& rows, int32_t first_number, bool rounded) {
    const int64_t row = tensors_[input].view().RowElements();
    std::vector<float> values;
    for (size_t r = 0; r < rows.size(); ++r) {
      conformance::Random random(1000 * input + static_cast<size_t>(first_number) + r);
      for (int64_t i = 0; i < rows[r] * row; ++i) values.push_back(random.Uniform(-1, 1));
    }
    if (rounded) std::transform(values.begin(), values.end(), values.begin(), RoundToBf16);
    tensors_[input].Set(values);
  }

  // The next input: biases of `heads`, or of each row; nothing if the reach is negative.
  void AddBiases(const Heads& heads, int64_t reach, bool by_row, const std::vector<int64_t>& rows,
                 int32_t first_number, std::vector<float>* biases) {
    if (reach < 0) return inputs_.push_back({});
    const int64_t distances = 2 * reach + 1;
    int64_t total = 0;
    for (size_t r = 0; r < (by_row ? rows.size() : 1); ++r) {
      const int64_t of_request = by_row ? rows[r] : 1;
      const size_t seed = by_row ? static_cast<size_t>(first_number) + r : 0;
      conformance::Random random(7 + 1000 * inputs_.size() + seed);
      for (int64_t i = 0; i < of_request * heads.q * distances; ++i) {
        biases->push_back(random.Uniform(-2, 2));
      }
      total += of_request;
    }
    inputs_.push_back(
        by_row ? TensorView::Dense(biases->data(), DType::kF32, {total, heads.q, distances})
               : TensorView::Dense(biases->data(), DType::kF32, {heads.q, distances}));
  }

  void AddSinks(const Heads& heads) {
    conformance::Random random(3);
    for (int64_t i = 0; i < heads.q; ++i) sinks_.push_back(random.Uniform(-1, 6));
    inputs_.push_back(TensorView::Dense(sinks_.data(), DType::kF32, {heads.q}));
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
  std::vector<float> biases_, column_biases_, key_biases_, sinks_;
  std::vector<TensorView> inputs_;
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
        << kernel->name << heads.ToString();
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
        << kernel->name << " of bf16" << heads.ToString();
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

// Ranges of keys that attributes give each row, and tokens of several rows.
void CheckListedKeys(const OpDefinition& op, const device::Capabilities& caps) {
  for (bool causal : {false, true}) {
    for (int32_t window : conformance::FewIfEmulated({1, 20, 196})) {
      CheckCase(op, caps,
                {.q = 2, .kv = 1, .dim = 24, .causal = causal, .window = window, .chunked = true},
                {1, 0, 17, 290});
    }
    CheckAlone(op, caps,
               {.q = 2,
                .kv = 2,
                .dim = 16,
                .causal = causal,
                .window = 70,
                .chunked = true,
                .of_token = 5},
               {14, 60});
    CheckCase(op, caps, {.q = 4, .kv = 2, .dim = 24, .causal = causal, .of_token = 3}, {1, 0, 17});
    CheckCase(op, caps, {.q = 2, .kv = 1, .dim = 16, .causal = causal, .window = 7, .of_token = 4},
              {0, 33});
  }
  for (int32_t prefix : conformance::FewIfEmulated({1, 16, 40, 300})) {
    CheckCase(op, caps, {.q = 2, .kv = 1, .dim = 32, .causal = true, .prefix = prefix},
              {1, 0, 17, 290});
  }
}

// Biases of each query, and of the rows and columns of a grid.
void CheckQueryBiases(const OpDefinition& op, const device::Capabilities& caps) {
  for (bool by_query : {false, true}) {
    Heads heads{.q = 4, .kv = 2, .dim = 16, .causal = false, .biases_by_query = by_query};
    for (int32_t reach : conformance::FewIfEmulated({0, 3, 40})) {
      heads.bias_reach = reach;
      CheckCase(op, caps, heads, {1, 0, 17, 290});
    }
    // Rows of a grid within a vector, and those beyond one.
    for (int32_t columns : conformance::FewIfEmulated({1, 5, 14, 40})) {
      heads.grid_columns = columns;
      heads.bias_reach = 290 / columns;
      heads.column_reach = columns - 1;
      CheckCase(op, caps, heads, {1, 0, 17, 290});
    }
    // Reaches that end within the grid, and chunks of three of its rows.
    heads = {.q = 2,
             .kv = 2,
             .dim = 24,
             .causal = false,
             .window = 42,
             .bias_reach = 1,
             .biases_by_query = by_query,
             .grid_columns = 14,
             .column_reach = 9,
             .chunked = true,
             .of_token = 6};
    CheckCase(op, caps, heads, {1, 0, 7, 40});
    CheckAlone(op, caps, heads, {7, 40});
  }
}

// Biases of each key, alone and beside those of queries, which have another reach.
void CheckKeyBiases(const OpDefinition& op, const device::Capabilities& caps) {
  for (bool causal : {false, true}) {
    // Reaches within and beyond a vector, a chunk and a request.
    for (int32_t reach : conformance::FewIfEmulated({0, 3, 40, 400})) {
      Heads heads{.q = 4, .kv = 2, .dim = 16, .causal = causal, .key_reach = reach};
      CheckCase(op, caps, heads, {1, 0, 17, 290});
      heads.bias_reach = 20;
      CheckCase(op, caps, heads, {1, 0, 17, 290});
      heads.biases_by_query = true;
      CheckCase(op, caps, heads, {1, 0, 17, 290});
    }
    const Heads windowed{.q = 2,
                         .kv = 2,
                         .dim = 24,
                         .causal = causal,
                         .window = 33,
                         .bias_reach = 9,
                         .biases_by_query = true,
                         .of_token = 3,
                         .key_reach = 12};
    CheckCase(op, caps, windowed, {1, 0, 7, 60});
    CheckAlone(op, caps, windowed, {30, 101});
  }
}

// Sums of products and biases that are capped, and sinks below and above the scores of few keys.
void CheckCapsAndSinks(const OpDefinition& op, const device::Capabilities& caps) {
  for (int32_t soft_cap : conformance::FewIfEmulated({0, 1, 50})) {
    for (bool sinks : {false, true}) {
      for (int32_t key_reach : {-1, 12}) {
        const Heads heads{.q = 4,
                          .kv = 2,
                          .dim = 24,
                          .causal = sinks,
                          .bias_reach = 20,
                          .biases_by_query = key_reach < 0,
                          .key_reach = key_reach,
                          .soft_cap = soft_cap,
                          .sinks = sinks};
        CheckCase(op, caps, heads, {1, 0, 17, 290});
      }
    }
    const Heads windowed{.q = 2,
                         .kv = 2,
                         .dim = 16,
                         .causal = false,
                         .window = 33,
                         .soft_cap = soft_cap,
                         .sinks = true};
    CheckCase(op, caps, windowed, {40, 1, 300});
    CheckAlone(op, caps, windowed, {70, 1, 300});
    const Heads in_grid{.q = 2,
                        .kv = 1,
                        .dim = 64,
                        .causal = false,
                        .bias_reach = 9,
                        .biases_by_query = true,
                        .grid_columns = 14,
                        .column_reach = 13,
                        .soft_cap = soft_cap,
                        .sinks = true};
    CheckCase(op, caps, in_grid, {5, 100});
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
  CheckListedKeys(op, caps);
  CheckQueryBiases(op, caps);
  CheckKeyBiases(op, caps);
  CheckCapsAndSinks(op, caps);
  Case c({.q = 2, .kv = 1, .dim = 16, .causal = false}, {5, 20}, 0, Operands::kF32);
  conformance::CheckActTypes({.op = op,
                              .caps = caps,
                              .call = c.call(),
                              .act_inputs = 0b111,
                              .tolerance = kTolerance});
}

}  // namespace pagemill::ops
