#include "cc/ops/states/state_conformance.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "cc/ops/act_conformance.h"
#include "cc/ops/states/state_pages.h"

namespace pagemill::ops::conformance {
namespace {

using Role = StateCase::Role;

constexpr int32_t kLengths[] = {1, 37, 16, 70, 9};  // of the sequences
constexpr int32_t kSequences = std::size(kLengths);
constexpr int32_t kBlockSize = 8;  // tokens
constexpr int32_t kRecentStates[] = {0, 1, 4};  // with 1 to 3 threads
constexpr TestTensorOptions kOdd{.misalign_bytes = 4, .row_padding_bytes = 4};
// For widths of whole vectors of four floats, which kernels may load at once.
constexpr TestTensorOptions kAligned{.row_padding_bytes = 16};

int32_t TotalLength() { return std::accumulate(kLengths, kLengths + kSequences, 0); }
int32_t FirstRow(int32_t sequence) { return std::accumulate(kLengths, kLengths + sequence, 0); }
int32_t NumBlocks(int32_t tokens) { return (tokens + kBlockSize - 1) / kBlockSize; }

// Which boundaries of blocks have a page, beside those that a step needs.
enum class Keep { kAll, kSome, kNone };

// Each entry: a sequence and how many of its tokens run.
using Step = std::vector<std::pair<int32_t, int32_t>>;

TestTensor Flat(int64_t rows, const std::vector<int64_t>& dims, const TestTensorOptions& options,
                DType dtype = DType::kF32) {
  return TestTensor(
      dtype,
      {rows, std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<int64_t>())},
      options);
}

// The view of a Flat() tensor with its dimensions.
TensorView Shaped(const TestTensor& tensor, const std::vector<int64_t>& dims) {
  TensorView view = tensor.view();
  view.rank = 1;
  for (int64_t dim : dims) view.shape[static_cast<size_t>(view.rank++)] = dim;
  return view;
}

// Runs one kernel over the sequences, step by step, on an arena of pages that begin as NaN.
class StateRunner {
 public:
  // `recent_states`: as in BatchView. `act`: the type of activations.
  StateRunner(StateCase& c, const Kernel& kernel, int32_t threads, Keep keep,
              int32_t recent_states = 0, const TestTensorOptions& rows = kOdd,
              DType act = DType::kF32)
      : c_(c),
        kernel_(kernel),
        options_(rows),
        pool_({.num_threads = threads}),
        act_(act),
        keep_(keep),
        recent_states_(recent_states) {
    const int32_t stride =
        recent_states + NumBlocks(*std::max_element(kLengths, kLengths + kSequences));
    tables_.assign(kSequences, std::vector<int32_t>(static_cast<size_t>(stride), kNullPage));
    for (int32_t page = kSequences * stride; page > 0; --page) free_.push_back(page);
    for (size_t i = free_.size(); i > 1; --i) {
      std::swap(free_[i - 1], free_[static_cast<size_t>(c.random.Int(0, int64_t(i) - 1))]);
    }
    for (std::vector<int32_t>& table : tables_) {
      for (int32_t i = 0; i < recent_states; ++i) table[static_cast<size_t>(i)] = TakePage();
    }
    const auto is_state = [](const StateCase::Input& in) { return in.role == Role::kState; };
    state_dims_ = std::find_if(c.inputs.begin(), c.inputs.end(), is_state)->dims;
    states_.push_back(Flat(kSequences * stride + 1, state_dims_, options_));
    outputs_.resize(static_cast<size_t>(TotalLength() * c.output_width * c.num_outputs));
  }

  void Run(const Step& step) {
    WithCall(step, [&](const OpCall& call, const std::vector<TestTensor>& results) {
      const Status status = c_.op.check(call);
      ASSERT_TRUE(status.ok()) << status.ToString();
      const std::vector<float> before = states().ToFloat();
      RunKernel(kernel_, call, pool_);
      EXPECT_TRUE(states().GuardsIntact()) << kernel_.name;
      for (const TestTensor& result : results) {
        EXPECT_TRUE(result.GuardsIntact()) << kernel_.name;
      }
      CheckUntouched(step, before);
      KeepResults(step, results);
    });
  }

  // The kernels that support a step.
  std::vector<const Kernel*> Supported(const Step& step, const device::Capabilities& caps) {
    std::vector<const Kernel*> kernels;
    WithCall(step, [&](const OpCall& call, const std::vector<TestTensor>&) {
      kernels = SupportedKernels(c_.op, caps, call);
    });
    return kernels;
  }

  // Takes back some of the tokens of the step that just ran, as drafts that are rejected. Returns
  // what is to run again.
  Step TakeBack(const Step& step) {
    Step again;
    for (const auto& [sequence, count] : step) {
      const int64_t most = std::max(0, std::min(count, recent_states_) - 1);
      const auto n = static_cast<int32_t>(c_.random.Int(0, most));
      done_[sequence] -= n;
      if (n > 0) again.push_back({sequence, n});
    }
    return again;
  }

  // Checks bf16 and f16 for a step in which all sequences begin, so that it only reads states that
  // it has stored.
  void CheckTypes(const Step& step, const device::Capabilities& caps, const Tolerance& of_outputs,
                  const Tolerance& of_states) {
    uint32_t rows = 0;
    for (size_t i = 0; i < c_.inputs.size(); ++i) {
      if (c_.inputs[i].role == Role::kRows) rows |= 1u << i;
    }
    WithCall(step, [&](const OpCall& call, const std::vector<TestTensor>&) {
      CheckActTypes({.op = c_.op,
                     .caps = caps,
                     .call = call,
                     .act_inputs = rows,
                     .cache = &states(),
                     .tolerance = of_outputs,
                     .cache_tolerance = of_states});
    });
  }

  const std::vector<float>& outputs() const { return outputs_; }
  // Kept states by sequence and number of tokens before the state.
  const std::map<std::pair<int32_t, int32_t>, std::vector<float>>& kept() const { return kept_; }

 private:
  TestTensor& states() { return states_[0]; }

  // Calls visit(call, results); those are the call's outputs.
  template <typename Visit>
  void WithCall(const Step& step, const Visit& visit) {
    BuildBatch(step);
    std::vector<TestTensor> tensors;
    std::vector<TensorView> inputs;
    for (const StateCase::Input& input : c_.inputs) inputs.push_back(View(input, &tensors));
    std::vector<TestTensor> results;
    std::vector<TensorView> outputs;
    for (int64_t i = 0; i < c_.num_outputs; ++i) {
      results.push_back(Flat(batch_.num_tokens, {c_.output_width}, options_, act_));
      outputs.push_back(results.back().view());
    }
    visit({.inputs = inputs, .outputs = outputs, .attributes = &c_.attributes, .batch = &batch_},
          results);
  }

  void BuildBatch(const Step& step) {
    query_start_ = {0};
    seq_lens_.clear();
    rows_.clear();
    table_.clear();
    for (const auto& [sequence, count] : step) {
      const int32_t begin = done_[sequence], end = begin + count;
      std::vector<int32_t>& table = tables_[static_cast<size_t>(sequence)];
      for (int32_t i = NumBlocks(begin); i < NumBlocks(end); ++i) {
        const bool needed = keep_ == Keep::kAll || i == NumBlocks(end) - 1 ||
                            (keep_ == Keep::kSome && c_.random.Int(0, 2) == 0);
        int32_t& page = table[static_cast<size_t>(recent_states_ + i)];
        if (needed && page == kNullPage) page = TakePage();
      }
      for (int32_t i = 0; i < count; ++i) rows_.push_back(FirstRow(sequence) + begin + i);
      query_start_.push_back(static_cast<int32_t>(rows_.size()));
      seq_lens_.push_back(end);
      table_.insert(table_.end(), table.begin(), table.end());
    }
    batch_ = {};
    batch_.num_tokens = static_cast<int32_t>(rows_.size());
    batch_.num_requests = static_cast<int32_t>(step.size());
    batch_.query_start = query_start_.data();
    batch_.seq_lens = seq_lens_.data();
    batch_.block_size = kBlockSize;
    batch_.recent_states = recent_states_;
    batch_.block_table = table_.data();
    batch_.block_table_stride = static_cast<int64_t>(tables_[0].size());
  }

  TensorView View(const StateCase::Input& input, std::vector<TestTensor>* tensors) {
    if (input.role == Role::kMissing) return {};
    if (input.role == Role::kState) return Shaped(states(), state_dims_);
    std::vector<float> values = input.values;
    if (input.role == Role::kRows) {
      values.clear();
      for (int32_t row : rows_) {
        const auto first = input.values.begin() + row * input.dims[0];
        values.insert(values.end(), first, first + input.dims[0]);
      }
    }
    const bool rows = input.role == Role::kRows;
    tensors->push_back(rows ? Flat(batch_.num_tokens, input.dims, options_, act_)
                            : Flat(1, input.dims, {.misalign_bytes = 4}));
    tensors->back().Set(values);
    TensorView view = tensors->back().view();
    if (rows) return view;
    view.rank = 0;
    for (int64_t dim : input.dims) view.shape[static_cast<size_t>(view.rank++)] = dim;
    view.row_stride_bytes = RowBytes(view.dtype, view.RowElements());
    return view;
  }

  int32_t TakePage() {
    const int32_t page = free_.back();
    free_.pop_back();
    return page;
  }

  // The states that a step over tokens [begin, end) writes: their number of tokens and page.
  std::vector<std::pair<int32_t, int32_t>> Written(int32_t sequence, int32_t begin,
                                                   int32_t end) const {
    const std::vector<int32_t>& table = tables_[static_cast<size_t>(sequence)];
    std::vector<std::pair<int32_t, int32_t>> written;
    for (int32_t tokens = begin + 1; tokens <= end; ++tokens) {
      const int32_t position =
          table[static_cast<size_t>(recent_states_ + (tokens - 1) / kBlockSize)];
      if (tokens % kBlockSize == 0 && position != kNullPage) {
        written.push_back({tokens, position});
      } else if (recent_states_ > 0 && tokens > end - recent_states_) {
        written.push_back({tokens, table[static_cast<size_t>(tokens % recent_states_)]});
      } else if (recent_states_ == 0 && tokens == end) {
        written.push_back({tokens, position});
      }
    }
    return written;
  }

  void CheckUntouched(const Step& step, const std::vector<float>& before) {
    std::vector<bool> written(static_cast<size_t>(states().view().shape[0]), false);
    for (const auto& [sequence, count] : step) {
      const int32_t begin = done_[sequence];
      for (const auto& [tokens, page] : Written(sequence, begin, begin + count)) {
        written[static_cast<size_t>(page)] = true;
      }
    }
    written[kNullPage] = false;
    const std::vector<float> after = states().ToFloat();
    const size_t width = after.size() / written.size();
    for (size_t page = 0; page < written.size(); ++page) {
      if (written[page]) continue;
      const auto of = [&](const std::vector<float>& all) {
        return std::span(all).subspan(page * width, width);
      };
      EXPECT_TRUE(BitEqual(of(after), of(before))) << kernel_.name << " wrote page " << page;
    }
  }

  void KeepResults(const Step& step, const std::vector<TestTensor>& results) {
    const int64_t width = c_.output_width;
    auto first = outputs_.begin();  // of the output's rows
    for (const TestTensor& result : results) {
      const std::vector<float> y = result.ToFloat();
      for (size_t i = 0; i < rows_.size(); ++i) {
        std::copy_n(y.begin() + static_cast<std::ptrdiff_t>(i) * width, width,
                    first + rows_[i] * width);
      }
      first += TotalLength() * width;
    }
    const std::vector<float> all = states().ToFloat();
    const std::ptrdiff_t size = states().view().RowElements();
    for (const auto& [sequence, count] : step) {
      const int32_t begin = done_[sequence], end = begin + count;
      for (const auto& [tokens, page] : Written(sequence, begin, end)) {
        const auto state = all.begin() + page * size;
        kept_[{sequence, tokens}] = std::vector<float>(state, state + size);
      }
      done_[sequence] = end;
    }
  }

  StateCase& c_;
  const Kernel& kernel_;
  const TestTensorOptions options_;
  device::ThreadPool pool_;
  const DType act_;
  const Keep keep_;
  const int32_t recent_states_;
  std::vector<std::vector<int32_t>> tables_;  // of each sequence
  std::vector<int32_t> free_;                 // pages
  std::vector<int64_t> state_dims_;
  std::vector<TestTensor> states_;  // one: the arena
  std::map<int32_t, int32_t> done_;
  std::vector<float> outputs_;
  std::map<std::pair<int32_t, int32_t>, std::vector<float>> kept_;
  std::vector<int32_t> rows_, query_start_, seq_lens_, table_;
  BatchView batch_;
};

Step WholeStep() {
  Step step;
  for (int32_t s = 0; s < kSequences; ++s) step.push_back({s, kLengths[s]});
  return step;
}

// Two steps, each with a half of every sequence.
std::vector<Step> HalfSteps() {
  std::vector<Step> steps(2);
  for (int32_t s = 0; s < kSequences; ++s) {
    const int32_t half = kLengths[s] / 2;
    if (half > 0) steps[0].push_back({s, half});
    steps[1].push_back({s, kLengths[s] - half});
  }
  return steps;
}

// Steps that run every sequence to its end, in random pieces and order.
std::vector<Step> RandomSteps(Random& random) {
  std::vector<Step> steps;
  std::vector<int32_t> left(kLengths, kLengths + kSequences);
  while (std::any_of(left.begin(), left.end(), [](int32_t n) { return n > 0; })) {
    Step step;
    for (int32_t s = 0; s < kSequences; ++s) {
      if (left[s] == 0 || random.Int(0, 2) == 0) continue;
      const int32_t most = random.Int(0, 1) == 0 ? 1 : 25;
      step.push_back({s, static_cast<int32_t>(random.Int(1, std::min(left[s], most)))});
      left[s] -= step.back().second;
    }
    for (size_t i = step.size(); i > 1; --i) {
      std::swap(step[i - 1], step[static_cast<size_t>(random.Int(0, int64_t(i) - 1))]);
    }
    if (!step.empty()) steps.push_back(std::move(step));
  }
  return steps;
}

// Steps of one token of each sequence that is not at its end, behind one with all tokens before.
std::vector<Step> LastTokensOneByOne() {
  constexpr int32_t kLast = 5;
  std::vector<Step> steps(kLast + 1);
  for (int32_t s = 0; s < kSequences; ++s) {
    const int32_t last = std::min(kLast, kLengths[s]);
    if (kLengths[s] > last) steps[0].push_back({s, kLengths[s] - last});
    for (int32_t i = kLast - last; i < kLast; ++i)
      steps[static_cast<size_t>(1 + i)].push_back({s, 1});
  }
  return steps;
}

double Largest(std::span<const float> values) {
  double largest = 0;
  for (float v : values) largest = std::max(largest, std::abs(double{v}));
  return largest;
}

// `rounding`: of outputs to the type of activations, relative.
void CheckClose(const StateCase& c, const Kernel& kernel, const StateRunner& actual,
                const StateRunner& expected, double rounding = 0) {
  const Tolerance outputs{.abs = c.tolerance * Largest(expected.outputs()), .rel = rounding};
  EXPECT_TRUE(AllClose(actual.outputs(), expected.outputs(), outputs)) << c.op.op << kernel.name;
  for (const auto& [key, state] : expected.kept()) {
    const auto found = actual.kept().find(key);
    if (found == actual.kept().end()) continue;
    const Tolerance close{.abs = c.tolerance * Largest(state)};
    EXPECT_TRUE(AllClose(found->second, state, close))
        << c.op.op << " " << kernel.name << ": state of sequence " << key.first << " after "
        << key.second << " tokens";
  }
}

// As CheckPieces(), for a kernel of activations in `act` whose bits vary with the batch, and which
// may have another way for long requests: what it computes is close to the reference's.
void CheckVarying(StateCase& c, const Kernel& kernel, DType act) {
  StateRunner reference(c, ReferenceKernel(c.op), /*threads=*/1, Keep::kAll, 0, kOdd, act);
  reference.Run(WholeStep());
  constexpr double kTwoRoundings = 1.0 / 128;  // of half a unit of bf16 each
  const auto check = [&](Keep keep, int32_t recent_states, const TestTensorOptions& rows,
                         const std::vector<Step>& steps) {
    StateRunner runner(c, kernel, /*threads=*/1, keep, recent_states, rows, act);
    for (const Step& step : steps) {
      runner.Run(step);
      const Step again = runner.TakeBack(step);
      if (!again.empty()) runner.Run(again);
    }
    CheckClose(c, kernel, runner, reference, kTwoRoundings);
  };
  check(Keep::kNone, 0, kAligned, {WholeStep()});
  check(Keep::kSome, 1, kOdd, {WholeStep()});
  check(Keep::kNone, 4, kAligned, HalfSteps());
  check(Keep::kSome, 0, kAligned, RandomSteps(c.random));
  std::vector<Step> one_by_one;
  for (int32_t s = 0; s < kSequences; ++s) one_by_one.push_back({{s, kLengths[s]}});
  check(Keep::kNone, 0, kAligned, one_by_one);
}

void CheckPieces(StateCase& c, const Kernel& kernel, const StateRunner& whole) {
  const auto check = [&](int32_t threads, const std::vector<Step>& steps) {
    StateRunner pieces(c, kernel, threads, Keep::kSome, kRecentStates[threads - 1],
                       threads == 2 ? kAligned : kOdd);
    for (const Step& step : steps) {
      pieces.Run(step);
      const Step again = pieces.TakeBack(step);
      if (!again.empty()) pieces.Run(again);
    }
    EXPECT_TRUE(BitEqual(pieces.outputs(), whole.outputs()))
        << c.op.op << " " << kernel.name << ": other bits in pieces, " << threads << " threads";
    for (const auto& [key, state] : pieces.kept()) {
      const auto same = whole.kept().find(key);
      if (same == whole.kept().end()) continue;  // the end of a step between boundaries
      EXPECT_TRUE(BitEqual(state, same->second)) << c.op.op << " " << kernel.name;
    }
  };
  for (int32_t threads = 1; threads <= 3; ++threads) {
    check(threads, RandomSteps(c.random));
    check(threads, LastTokensOneByOne());
  }
}

}  // namespace

void StateCase::AddRows(int64_t width, float low, float high) {
  inputs.push_back({Role::kRows, {width}, {}});
  inputs.back().values.resize(static_cast<size_t>(TotalLength() * width));
  for (float& v : inputs.back().values) v = random.Uniform(low, high);
}

void StateCase::AddShared(std::initializer_list<int64_t> dims, float low, float high) {
  inputs.push_back({Role::kShared, dims, {}});
  int64_t size = 1;
  for (int64_t dim : dims) size *= dim;
  inputs.back().values.resize(static_cast<size_t>(size));
  for (float& v : inputs.back().values) v = random.Uniform(low, high);
}

void StateCase::AddMissing() { inputs.push_back({Role::kMissing, {}, {}}); }

void StateCase::AddState(std::initializer_list<int64_t> dims) {
  inputs.push_back({Role::kState, dims, {}});
}

void CheckStateCase(StateCase& c, const device::Capabilities& caps) {
  StateRunner reference(c, ReferenceKernel(c.op), /*threads=*/1, Keep::kAll);
  for (int32_t s = 0; s < kSequences; ++s) reference.Run({{s, kLengths[s]}});
  StateRunner any(c, ReferenceKernel(c.op), /*threads=*/1, Keep::kAll);
  for (const Kernel* kernel : any.Supported(WholeStep(), caps)) {
    StateRunner whole(c, *kernel, /*threads=*/1, Keep::kAll);
    whole.Run(WholeStep());
    CheckClose(c, *kernel, whole, reference);
    EXPECT_EQ(whole.kept().size(), reference.kept().size());
    // The reference rounds states only when it stores them; kernels always do.
    if (kernel->name != "reference") CheckPieces(c, *kernel, whole);
    StateRunner idle(c, *kernel, /*threads=*/1, Keep::kAll);
    idle.Run({});
  }
  double largest = 0;
  for (const auto& [key, state] : reference.kept()) largest = std::max(largest, Largest(state));
  const Tolerance of_outputs{.abs = c.tolerance * Largest(reference.outputs())};
  const Tolerance of_states{.abs = c.tolerance * largest};
  StateRunner(c, ReferenceKernel(c.op), /*threads=*/1, Keep::kAll)
      .CheckTypes(WholeStep(), caps, of_outputs, of_states);
  StateRunner in_bf16(c, ReferenceKernel(c.op), /*threads=*/1, Keep::kNone, 0, kOdd, DType::kBF16);
  for (const Kernel* kernel : in_bf16.Supported(WholeStep(), caps)) {
    if (!kernel->varies_with_batch) continue;
    CheckVarying(c, *kernel, DType::kBF16);
    StateRunner(c, ReferenceKernel(c.op), /*threads=*/1, Keep::kNone)
        .CheckTypes(WholeStep(), caps, of_outputs, of_states);
  }
}

}  // namespace pagemill::ops::conformance
