#include "cc/program/native_executor.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace {
std::atomic<int64_t> num_allocations{0};
}  // namespace

// Counts allocations of the process, so that a test can verify that a step allocates nothing.
[[gnu::noinline]] void* operator new(size_t size) {
  num_allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace pagemill::program {
namespace {

using testing::BatchBuilder;

Target CpuTarget() { return {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()}; }

// out[l] = table[token of row l] + table[token of row l], vectors of 3 elements 1..9 as f32.
constexpr char kDoubling[] = R"(pagemill-program 3
file 0 @
group all full
weight table f32 3,3 0 0
cache kv0 all kv kv 1,8
input token_ids i32 tokens
input logits_rows i32 logits_rows
value x f32 tokens,3
value y f32 tokens,3
value out f32 logits_rows,3
op embedding token_ids,table -> x
op add x,x -> y
op select_rows y,logits_rows -> out
output logits out
constants 36
0000803f0000004000004040000080400000a0400000c0400000e0400000004100001041
)";

Program MustParse(const std::string& text) {
  StatusOr<Program> program = Program::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

std::unique_ptr<NativeExecutor> MustCreate(const std::string& text,
                                           const ExecutorOptions& options) {
  StatusOr<std::unique_ptr<NativeExecutor>> executor =
      NativeExecutor::Create(MustParse(text), CpuTarget(), options);
  EXPECT_TRUE(executor.ok()) << executor.status().ToString();
  return *std::move(executor);
}

ExecutorOptions SmallOptions() {
  ExecutorOptions options;
  options.num_threads = 1;
  options.max_num_tokens = 8;
  options.max_num_seqs = 3;
  options.max_num_logits_rows = 2;
  options.num_blocks = 13;
  return options;
}

TEST(NativeExecutorTest, ComputesStepsOfDifferentSizes) {
  const auto executor = MustCreate(kDoubling, SmallOptions());
  for (int repeat = 0; repeat < 2; ++repeat) {
    BatchBuilder two(16, 4);
    two.Add(0, 0, {1, 2});
    two.Add(1, 0, {0});
    ExecutorOutput output;
    ASSERT_TRUE(executor->Execute(two.view(), &output).ok());
    ASSERT_EQ(output.logits().shape[0], 2);
    EXPECT_EQ(output.logits().Row<float>(0)[0], 14.0f);
    EXPECT_EQ(output.logits().Row<float>(1)[2], 6.0f);
    EXPECT_EQ(output.pooled().rank, 0);
    BatchBuilder one(16, 4);
    one.Add(0, 0, {1});
    ASSERT_TRUE(executor->Execute(one.view(), &output).ok());
    ASSERT_EQ(output.logits().shape[0], 1);
    EXPECT_EQ(output.logits().Row<float>(0)[1], 10.0f);
  }
  ExecutorOutput output;
  ASSERT_TRUE(executor->Execute(BatchBuilder(16, 4).view(), &output).ok())
      << "an empty step is fine";
  EXPECT_EQ(output.logits().shape[0], 0);
}

// Vectors of 3 elements 1..9, and twice these, as two rows of each token: their sums, and their
// first elements.
constexpr char kInnerRows[] =
    R"(pagemill-program 3
file 0 @
group all full
weight table f32 3,3 0 0
weight twice f32 6,3 0 36
weight sums f32 2,3 0 108
cache kv0 all kv kv 1,8
input token_ids i32 tokens
input logits_rows i32 logits_rows
value x f32 tokens,3
value h f32 tokens,2,3
value y f32 tokens,2,2
value out f32 logits_rows,4
op embedding token_ids,table -> x
op linear x,twice -> h
op linear h,sums -> y
op select_rows y,logits_rows -> out
output logits out
constants 132
)"
    "0000803f0000004000004040000080400000a0400000c0400000e04000000041000010410000803f"
    "0000000000000000000000000000803f0000000000000000000000000000803f0000004000000000"
    "000000000000000000000040000000000000000000000000000000400000803f0000803f0000803f"
    "0000803f0000000000000000\n";

void ExpectProductsOfRows(const std::string& program) {
  const auto executor = MustCreate(program, SmallOptions());
  ExecutorOutput output;
  BatchBuilder two(16, 4), one(16, 4);
  two.Add(0, 0, {0, 1});
  one.Add(0, 0, {2});
  ASSERT_TRUE(executor->Execute(two.view(), &output).ok());
  const auto row = [&] {
    const float* data = output.logits().Row<float>(0);
    return std::vector<float>(data, data + 4);
  };
  EXPECT_EQ(row(), (std::vector<float>{15, 4, 30, 8}));
  ASSERT_TRUE(executor->Execute(one.view(), &output).ok());
  EXPECT_EQ(row(), (std::vector<float>{24, 7, 48, 14}));
}

TEST(NativeExecutorTest, MultipliesTheRowsOfEachToken) {
  std::string inner = kInnerRows;
  const auto replace = [&](const std::string& from, const std::string& to) {
    inner.replace(inner.find(from), from.size(), to);
  };
  ExpectProductsOfRows(inner);
  replace("tokens,2,3", "tokens,1,2,3");
  replace("tokens,2,2", "tokens,1,2,2");
  ExpectProductsOfRows(inner);
  replace("tokens,1,2,3", "tokens,2,3,1");  // two rows of three elements, in two dimensions
  ExpectProductsOfRows(inner);
}

TEST(NativeExecutorTest, RefusesStepsBeyondItsLimits) {
  const auto executor = MustCreate(kDoubling, SmallOptions());
  ExecutorOutput output;
  BatchBuilder tokens(16, 4), rows(16, 4), requests(16, 4), blocks(8, 4);
  tokens.Add(0, 0, {0, 0, 0, 0, 0, 0, 0, 0, 0});
  for (int32_t s = 0; s < 3; ++s) rows.Add(s, 0, {0});
  for (int32_t s = 0; s < 4; ++s) requests.Add(s, 0, {0});
  blocks.Add(0, 0, {0});
  const auto message = [&](const BatchBuilder& arrays) {
    const Status status = executor->Execute(arrays.view(), &output);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_NE(message(tokens).find("9 tokens exceeds max_num_tokens = 8"), std::string::npos);
  EXPECT_NE(message(rows).find("max_num_logits_rows = 2"), std::string::npos);
  EXPECT_NE(message(requests).find("max_num_seqs = 3"), std::string::npos);
  EXPECT_NE(message(blocks).find("blocks of 8 tokens"), std::string::npos);
}

TEST(NativeExecutorTest, NamesTheLineOfABadOp) {
  const auto error = [](const std::string& from, const std::string& to) {
    std::string text = kDoubling;
    text.replace(text.find(from), from.size(), to);
    return NativeExecutor::Create(MustParse(text), CpuTarget(), SmallOptions()).status();
  };
  const Status unknown = error("op add", "op frobnicate");
  EXPECT_EQ(unknown.code(), StatusCode::kUnimplemented);
  EXPECT_NE(unknown.message().find("line 12: op 'frobnicate'"), std::string::npos);
  const Status shape = error("value y f32 tokens,3", "value y f32 tokens,4");
  EXPECT_EQ(shape.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(shape.message().find("line 12: "), std::string::npos) << shape.message();
  // Numbers of rows, also those that stand for a dimension while ops are checked.
  for (const char* const rows : {"3", "59", "61"}) {
    const Status status = error("value y f32 tokens,3", std::string("value y f32 ") + rows + ",3");
    EXPECT_NE(status.message().find("line 12: "), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("(tokens = "), std::string::npos) << status.message();
  }
}

// Rows in two dimensions are those of tokens: of each row of logits they would be divided among
// tokens, of which there may be more.
TEST(NativeExecutorTest, OnlyTokensHaveRowsThatAttend) {
  const auto error = [](const std::string& dim) {
    const std::string shape = "value q f32 " + dim + ",61,1,2\nvalue y f32 " + dim + ",61,1,2\n";
    const std::string source = dim == "tokens" ? "x" : "rows";
    const std::string text =
        "pagemill-program 3\nfile 0 @\ngroup all full\nweight table f32 3,122 0 0\n"
        "cache kv0 all kv kv 1,8\ninput token_ids i32 tokens\n"
        "input logits_rows i32 logits_rows\nvalue x f32 tokens,122\n"
        "value rows f32 logits_rows,122\n" +
        shape +
        "value out f32 logits_rows,122\nop embedding token_ids,table -> x\n"
        "op select_rows x,logits_rows -> rows\nop add " +
        source + "," + source +
        " -> q\nop attention q,q,q -> y scale=1 causal=0\n"
        "op add rows,rows -> out\noutput logits out\nconstants 1464\n" +
        std::string(2 * 1464, '0') + "\n";
    return NativeExecutor::Create(MustParse(text), CpuTarget(), SmallOptions()).status();
  };
  EXPECT_TRUE(error("tokens").ok()) << error("tokens").ToString();
  const Status rows = error("logits_rows");
  EXPECT_EQ(rows.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(rows.message().find("attention: q must be"), std::string::npos) << rows.message();
}

// Its kernels would read an array that steps do not have.
TEST(NativeExecutorTest, OpsOnAGridNeedItsPositions) {
  const auto error = [](const std::string& input, const std::string& op) {
    const std::string text =
        "pagemill-program 3\nfile 0 @\ngroup all full\nweight table f32 2,9 0 0\n"
        "cache kv0 all kv kv 1,8\ninput token_ids i32 tokens\n" +
        input +
        "input x f32 tokens,2\nvalue q f32 tokens,1,2\nvalue y f32 tokens,1,2\n"
        "op add x,x -> q\nop " +
        op + "\noutput states y\nconstants 72\n" + std::string(2 * 72, '0') + "\n";
    return NativeExecutor::Create(MustParse(text), CpuTarget(), SmallOptions()).status();
  };
  for (const auto& [attribute, op] : {
           std::pair<std::string, std::string>{"grid", "depthwise_conv q,table,- -> y grid=1"},
           {"grid_window", "attention q,q,q -> y scale=1 causal=0 grid_window=4"},
       }) {
    const Status with = error("input grid_positions i32 tokens,3\n", op), without = error("", op);
    EXPECT_TRUE(with.ok()) << with.ToString();
    EXPECT_EQ(without.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(without.message().find("attribute " + attribute + " needs the input grid_positions"),
              std::string::npos)
        << without.message();
  }
}

// The resident memory of this process in bytes.
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(NativeExecutorTest, TheKvCacheHasItsPagesWithoutAStep) {
  ExecutorOptions options = SmallOptions();
  options.num_blocks = 10'000;
  const int64_t before = ResidentBytes();
  const auto executor = MustCreate(testing::TinyLlamaText({}), options);
  const int64_t kv_bytes = executor->memory_plan().kv.arena_bytes();
  ASSERT_GT(kv_bytes, 16 << 20);
  // Other work on the machine has priority.
  for (int i = 0; i < 6000 && ResidentBytes() - before < kv_bytes * 9 / 10; ++i) usleep(10'000);
  EXPECT_GE(ResidentBytes() - before, kv_bytes * 9 / 10);
}

// The logits of the last token of `text`, computed in two steps in slot `slot`.
std::vector<float> LogitsOf(NativeExecutor& executor, const std::vector<int32_t>& text,
                            int32_t slot) {
  ExecutorOutput output;
  for (const size_t begin : {size_t{0}, text.size() / 2}) {
    const size_t end = begin == 0 ? text.size() / 2 : text.size();
    BatchBuilder batch(executor.memory_plan().kv.TableBlockSizes(), /*blocks_per_request=*/2);
    batch.Add(slot, static_cast<int32_t>(begin), {text.begin() + begin, text.begin() + end});
    const Status status = executor.Execute(batch.view(), &output);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  const float* row = output.logits().Row<const float>(0);
  return {row, row + output.logits().shape[1]};
}

TEST(NativeExecutorTest, TwoProgramsShareThreadsAndPages) {
  const std::string large = testing::TinyLlamaText({.seed = 1, .layers = 3});
  const std::string small = testing::TinyLlamaText({.seed = 2, .layers = 1, .hidden = 32});
  ExecutorOptions options = SmallOptions();
  const std::vector<int32_t> text = {5, 6, 7, 8, 9, 1, 2, 3};
  const std::vector<float> alone = LogitsOf(*MustCreate(small, options), text, 0);
  const auto host = MustCreate(large, options);
  const std::vector<float> of_host = LogitsOf(*host, text, 0);
  EXPECT_FALSE(NativeExecutor::Create(MustParse(small), CpuTarget(), options, host.get()).ok());
  options.kv_page_bytes = host->memory_plan().kv.page_bytes;
  const auto guest = *NativeExecutor::Create(MustParse(small), CpuTarget(), options, host.get());
  EXPECT_EQ(guest->thread_pool(), host->thread_pool());
  EXPECT_EQ(guest->pages(), nullptr);
  EXPECT_EQ(LogitsOf(*guest, text, 1), alone);
  // Pages of the host's arena other than the host's own: what each wrote is still there.
  ExecutorOutput output;
  BatchBuilder last(host->memory_plan().kv.TableBlockSizes(), 2);
  last.Add(0, static_cast<int32_t>(text.size()) - 1, {text.back()});
  ASSERT_TRUE(host->Execute(last.view(), &output).ok());
  EXPECT_TRUE(std::equal(of_host.begin(), of_host.end(), output.logits().Row<const float>(0)));
  // The host's own pages are overwritten.
  (void)LogitsOf(*guest, text, 0);
  ASSERT_TRUE(host->Execute(last.view(), &output).ok());
  EXPECT_FALSE(std::equal(of_host.begin(), of_host.end(), output.logits().Row<const float>(0)));
}

TEST(NativeExecutorTest, AProgramWithoutCachesOnlySharesThreads) {
  const std::string encoder =
      "pagemill-program 3\n"
      "input features act media_rows,2\n"
      "input media_rows i32 media_rows\n"
      "value v0 act media_rows,2\n"
      "op scale features -> v0 by=3\n"
      "output embeddings v0\n";
  ExecutorOptions options = SmallOptions();
  const auto host = MustCreate(testing::TinyLlamaText({}), options);
  options.num_blocks = 1;
  const auto guest = *NativeExecutor::Create(MustParse(encoder), CpuTarget(), options, host.get());
  EXPECT_EQ(guest->thread_pool(), host->thread_pool());
  std::vector<float> features = {1, 2, 3, 4};
  const int32_t rows[] = {0, 2};
  const TensorView input = TensorView::Dense(features.data(), DType::kF32, {2, 2});
  ops::StepBatch batch = {{.num_tokens = 3, .num_media_rows = 2, .media_rows = rows},
                          /*kv=*/{},
                          {&input, 1}};
  ExecutorOutput output;
  ASSERT_TRUE(guest->Execute(batch, &output).ok());
  const float* row = output.Find("embeddings").Row<const float>(1);
  EXPECT_EQ((std::vector<float>{row[0], row[1]}), (std::vector<float>{9, 12}));
  batch.num_media_rows = 4;
  EXPECT_EQ(guest->Execute(batch, &output).message(),
            "a step of 4 media rows exceeds its tokens = 3");
}

TEST(NativeExecutorTest, AStepAllocatesNothing) {
  ExecutorOptions options = SmallOptions();
  options.num_threads = 2;
  const auto executor = MustCreate(testing::TinyLlamaText({}), options);
  BatchBuilder arrays(16, 4);
  arrays.Add(0, 0, {1, 2, 3});
  arrays.Add(1, 5, {4});
  ExecutorOutput output;
  ops::StepBatch batch = arrays.view();
  for (int step = 0; step < 4; ++step) {
    if (step == 2) batch.argmax_columns = 83;
    const int64_t before = num_allocations.load();
    ASSERT_TRUE(executor->Execute(batch, &output).ok());
    EXPECT_EQ(num_allocations.load() - before, 0) << "step " << step;
  }
}

TEST(NativeExecutorTest, ProfilesOnlyWhenAsked) {
  const auto executor = MustCreate(kDoubling, SmallOptions());
  BatchBuilder arrays(16, 4);
  arrays.Add(0, 0, {1});
  ExecutorOutput output;
  ASSERT_TRUE(executor->Execute(arrays.view(), &output).ok());
  EXPECT_TRUE(executor->profile().Times(StepKind::kDecode).empty());
  executor->SetProfiling(true);
  ASSERT_TRUE(executor->Execute(arrays.view(), &output).ok());
  ASSERT_TRUE(executor->Execute(arrays.view(), &output).ok());
  executor->SetProfiling(false);
  ASSERT_TRUE(executor->Execute(arrays.view(), &output).ok());
  const std::vector<OpTime> times = executor->profile().Times(StepKind::kDecode);
  ASSERT_EQ(times.size(), 3u);
  for (const OpTime& time : times) EXPECT_EQ(time.calls, 2) << time.op;
  EXPECT_TRUE(executor->profile().Times(StepKind::kPrompt).empty());
  executor->SetProfiling(true);
  EXPECT_TRUE(executor->profile().Times(StepKind::kDecode).empty());
}

TEST(NativeExecutorTest, RecordsEachOpWhileAsked) {
  const auto executor = MustCreate(kDoubling, SmallOptions());
  const FakeClock clock;
  const auto timeline = std::make_shared<Timeline>(TimelineOptions{.max_events = 5}, &clock);
  BatchBuilder arrays(16, 4);
  arrays.Add(0, 0, {1});
  ExecutorOutput output;
  executor->Record(timeline, Timeline::Track::kModel);
  ASSERT_TRUE(executor->Execute(arrays.view(), &output).ok());
  const int64_t num_ops = timeline->num_events();
  EXPECT_EQ(num_ops, static_cast<int64_t>(executor->program().ops().size()));
  ASSERT_TRUE(executor->Execute(arrays.view(), &output).ok());
  EXPECT_EQ(timeline->num_events(), 5);  // full
  executor->Record(nullptr, Timeline::Track::kModel);
  ASSERT_TRUE(executor->Execute(arrays.view(), &output).ok());
}

TEST(KernelSelectionTest, FilterAppliesWhereItCan) {
  ExecutorOptions options = SmallOptions();
  const Program program = MustParse(kDoubling);
  // A table in which add has one kernel, whose name the filter does not match.
  std::vector<ops::OpDefinition> table(ops::CpuOps().begin(), ops::CpuOps().end());
  std::vector<ops::Kernel> only;
  for (ops::OpDefinition& op : table) {
    if (op.op != "add") continue;
    only.push_back(op.kernels[0]);
    only[0].name = "special";
    op.kernels = only;
  }
  options.kernel_filter = "reference";
  const StatusOr<KernelSelection> selection =
      SelectKernels(program, {.ops = table, .capabilities = {}}, options);
  ASSERT_TRUE(selection.ok()) << selection.status().ToString();
  EXPECT_EQ(selection->kernels[0]->name, "reference");
  EXPECT_EQ(selection->kernels[1]->name, "special");
  const std::vector<KernelChoice> choices = Summarize(program, *selection, options);
  ASSERT_EQ(choices.size(), 3u);
  EXPECT_EQ(choices[1].operands, "f32[8,3] f32[8,3] -> f32[8,3]");
  EXPECT_EQ(choices[1].count, 1);
}

TEST(MemoryPlanTest, CountsExactly) {
  const testing::TinyLlamaOptions model = {
      .layers = 3, .hidden = 64, .heads = 4, .kv_heads = 2, .ffn = 96, .vocab = 83};
  ExecutorOptions options = SmallOptions();
  const StatusOr<MemoryPlan> plan =
      PlanMemory(MustParse(testing::TinyLlamaText(model)), CpuTarget(), options);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  const int64_t layer = 64 * 64 * 2 + 32 * 64 * 2 + 64 * 96 * 3 + 2 * 64;  // matrices and two norms
  EXPECT_EQ(plan->weights_bytes, 4 * (3 * layer + 64 + 83 * 64 + 8));
  EXPECT_EQ(plan->packed_bytes, plan->weights_bytes) << "constants are copied";
  EXPECT_EQ(plan->output_bytes, 2 * 83 * 4);
  EXPECT_EQ(plan->kv.page_bytes, 3 * 2 * 2 * 16 * 16 * 2);
  EXPECT_EQ(plan->kv.arena_bytes(), 13 * plan->kv.page_bytes);
  // The largest live set: the residual, and gate, up and the input of the MLP's first layers.
  EXPECT_GE(plan->activation_bytes, 8 * (64 + 96 + 96) * 4);
  EXPECT_LE(plan->activation_bytes, 8 * (64 + 64 + 96 + 96) * 4);
  EXPECT_EQ(plan->total_bytes(), plan->weights_bytes + plan->activation_bytes +
                                     plan->workspace_bytes + plan->output_bytes +
                                     plan->kv.arena_bytes());
  EXPECT_NE(plan->ToString().find(std::to_string(plan->kv.arena_bytes())), std::string::npos);
}

TEST(MemoryPlanTest, ActivationsOf16BitsTakeHalf) {
  Program program = MustParse(testing::TinyLlamaText({.hidden = 64, .ffn = 96}));
  ExecutorOptions options = SmallOptions();
  const StatusOr<MemoryPlan> f32 = PlanMemory(program, CpuTarget(), options);
  ASSERT_TRUE(f32.ok()) << f32.status().ToString();
  options.activation_type = DType::kBF16;
  ASSERT_TRUE(program.SetActivationType(DType::kBF16).ok());
  const StatusOr<MemoryPlan> bf16 = PlanMemory(program, CpuTarget(), options);
  ASSERT_TRUE(bf16.ok()) << bf16.status().ToString();
  EXPECT_EQ(2 * bf16->activation_bytes, f32->activation_bytes);
  EXPECT_EQ(bf16->output_bytes, f32->output_bytes) << "logits are f32";
  EXPECT_EQ(bf16->kv.page_bytes, f32->kv.page_bytes);
}

TEST(MemoryPlanTest, ProgramAndOptionsHaveOneTypeOfActivations) {
  ExecutorOptions options = SmallOptions();
  options.activation_type = DType::kF16;
  EXPECT_EQ(PlanMemory(MustParse(kDoubling), CpuTarget(), options).status().message(),
            "the program's activations are f32, activation_type is f16");
}

TEST(ExecutorOptionsTest, NamesFieldAndRange) {
  ExecutorOptions options = SmallOptions();
  EXPECT_TRUE(options.Validate().ok());
  options.num_blocks = 0;
  EXPECT_NE(options.Validate().message().find("num_blocks must be from 1"), std::string::npos);
  options = SmallOptions();
  options.kv_cache_dtype = DType::kQ8_0;
  EXPECT_NE(options.Validate().message().find("bf16, f32, fp8, int4, int8 or k8v4, got q8_0"),
            std::string::npos);
  for (DType dtype : {DType::kU4, DType::kK8V4}) {
    options = SmallOptions();
    options.kv_cache_dtype = dtype;
    options.block_size = 4;
    EXPECT_TRUE(options.Validate().ok());
    options.block_size = 2;
    EXPECT_NE(options.Validate().message().find("block_size must be a multiple of 4 with "),
              std::string::npos);
  }
  options = SmallOptions();
  options.activation_type = DType::kI8;
  EXPECT_EQ(options.Validate().message(), "activation_type must be f32, bf16 or f16, got i8");
}

}  // namespace
}  // namespace pagemill::program
