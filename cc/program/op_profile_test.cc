#include "cc/program/op_profile.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {
namespace {

constexpr char kProgram[] = R"(pagemill-program 3
file 0 @
weight table f32 8,4 0 0
weight w f32 8,4 0 0
group all full
cache kv0 all kv kv 1,4
input token_ids i32 tokens
input logits_rows i32 logits_rows
value x f32 tokens,4
value y f32 tokens,8
value z f32 tokens,8
value out f32 logits_rows,8
op embedding token_ids,table -> x
op linear x,w -> y
op linear x,w -> z
op kv_write x,x,kv0 ->
op select_rows z,logits_rows -> out
output logits out
constants 128
)";

// Selects one kernel for every op, with the CPU's op traits.
KernelSelection Select(const Program& program) {
  static constexpr ops::Kernel kPlain = {.op = "", .name = "plain"};
  static constexpr ops::OpDefinition kOther = {};
  KernelSelection selection;
  for (const Op& op : program.ops()) {
    const auto definition = ops::FindOp(ops::CpuOps(), op.name);
    selection.definitions.push_back(definition.ok() ? *definition : &kOther);
    selection.kernels.push_back(&kPlain);
  }
  return selection;
}

class OpProfileTest : public ::testing::Test {
 protected:
  OpProfileTest() : program_(MustParse()), selection_(Select(program_)) {
    profile_.Start(program_, selection_);
  }

  static Program MustParse() {
    StatusOr<Program> program =
        Program::Parse(std::string(kProgram) + std::string(256, '0') + "\n");
    EXPECT_TRUE(program.ok()) << program.status().ToString();
    return *std::move(program);
  }

  // A step of three tokens.
  void Add(StepKind kind, size_t index, double seconds) {
    const TensorView ids = TensorView::Dense(nullptr, DType::kI32, {3});
    const TensorView matrix = TensorView::Dense(nullptr, DType::kF32, {8, 4});
    const TensorView x = TensorView::Dense(nullptr, DType::kF32, {3, 4});
    const TensorView y = TensorView::Dense(nullptr, DType::kF32, {3, 8});
    const std::array embedding = {ids, matrix};
    const std::array linear = {x, matrix};
    const std::array kv_write = {x, x, matrix};
    ops::OpCall call;
    if (index == 0) call = {.inputs = embedding, .outputs = {&x, 1}};
    if (index == 1 || index == 2) call = {.inputs = linear, .outputs = {&y, 1}};
    if (index == 3) call = {.inputs = kv_write, .outputs = {}};
    profile_.Add(kind, index, call, {.seconds = seconds, .waited_s = seconds / 2});
  }

  Program program_;
  KernelSelection selection_;
  OpProfile profile_;
};

TEST_F(OpProfileTest, OpsOfOneKindAreOneEntrySlowestFirst) {
  Add(StepKind::kDecode, 0, 0.5);
  Add(StepKind::kDecode, 1, 0.25);
  Add(StepKind::kDecode, 2, 1);
  const std::vector<OpTime> times = profile_.Times(StepKind::kDecode);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].op, "linear");
  EXPECT_EQ(times[0].matrix, "f32[8,4]");
  EXPECT_EQ(times[0].kernel, "plain");
  EXPECT_EQ(times[0].calls, 2);
  EXPECT_EQ(times[0].seconds, 1.25);
  EXPECT_EQ(times[0].waited_s, 0.625);
  EXPECT_EQ(times[1].op, "embedding");
  EXPECT_EQ(times[1].matrix, "");
}

TEST_F(OpProfileTest, CountsBytesAndOperationsOfTheStep) {
  Add(StepKind::kDecode, 1, 1);
  OpTime linear = profile_.Times(StepKind::kDecode)[0];
  EXPECT_EQ(linear.bytes, 4 * (3 * 4 + 8 * 4 + 3 * 8));
  EXPECT_EQ(linear.operations, 2 * 3 * 8 * 4);
}

TEST_F(OpProfileTest, TablesAndCachesAreNotReadWhole) {
  Add(StepKind::kPrompt, 0, 1);
  Add(StepKind::kPrompt, 3, 2);
  const std::vector<OpTime> times = profile_.Times(StepKind::kPrompt);
  ASSERT_EQ(times.size(), 2u);
  EXPECT_EQ(times[0].op, "kv_write");
  EXPECT_EQ(times[0].bytes, 4 * 2 * 3 * 4);
  EXPECT_EQ(times[1].bytes, 4 * (3 + 3 * 4));
  EXPECT_EQ(times[1].operations, 0);
}

// A step of two tokens that choose three experts each.
TEST(OpProfileStacksTest, CountsTheMatricesThatAreChosen) {
  const StatusOr<Program> program = Program::Parse(R"(pagemill-program 3
file 0 @
weight w bf16 16,8,4 0 0
weight b f32 16,8 0 0
input token_ids i32 tokens
value x f32 tokens,4
value ids i32 tokens,3
value y f32 tokens,3,8
value out f32 logits_rows,8
op embed token_ids -> x
op route x -> ids
op grouped_linear x,ids,w,b -> y
op rows y -> out
output logits out
constants 1024
)" + std::string(2048, '0') + "\n");
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  OpProfile profile;
  profile.Start(*program, Select(*program));
  const std::array inputs = {TensorView::Dense(nullptr, DType::kF32, {2, 4}),
                             TensorView::Dense(nullptr, DType::kI32, {2, 3}),
                             TensorView::Dense(nullptr, DType::kBF16, {16, 8, 4}),
                             TensorView::Dense(nullptr, DType::kF32, {16, 8})};
  const std::array outputs = {TensorView::Dense(nullptr, DType::kF32, {2, 3, 8})};
  profile.Add(StepKind::kDecode, 2, {.inputs = inputs, .outputs = outputs}, {.seconds = 1});
  const OpTime time = profile.Times(StepKind::kDecode)[0];
  EXPECT_EQ(time.matrix, "bf16[16,8,4]");
  EXPECT_EQ(time.operations, 2 * 6 * 8 * 4);
  EXPECT_EQ(time.bytes, 4 * (2 * 4 + 2 * 3) + 6 * (2 * 8 * 4 + 4 * 8) + 4 * 2 * 3 * 8);
}

// Every head is multiplied by its own matrix.
TEST(OpProfileStacksTest, CountsTheMatricesOfAllHeads) {
  const StatusOr<Program> program = Program::Parse(R"(pagemill-program 3
file 0 @
weight w f32 3,8,4 0 0
input token_ids i32 tokens
value x f32 tokens,3,4
value y f32 tokens,3,8
value out f32 logits_rows,8
op embed token_ids -> x
op head_linear x,w -> y
op rows y -> out
output logits out
constants 384
)" + std::string(768, '0') + "\n");
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  OpProfile profile;
  profile.Start(*program, Select(*program));
  const std::array inputs = {TensorView::Dense(nullptr, DType::kF32, {2, 3, 4}),
                             TensorView::Dense(nullptr, DType::kF32, {3, 8, 4})};
  const std::array outputs = {TensorView::Dense(nullptr, DType::kF32, {2, 3, 8})};
  profile.Add(StepKind::kDecode, 1, {.inputs = inputs, .outputs = outputs}, {.seconds = 1});
  const OpTime time = profile.Times(StepKind::kDecode)[0];
  EXPECT_EQ(time.matrix, "f32[3,8,4]");
  EXPECT_EQ(time.operations, 2 * 2 * 3 * 8 * 4);
  EXPECT_EQ(time.bytes, 4 * (2 * 3 * 4 + 3 * 8 * 4 + 2 * 3 * 8));
}

TEST_F(OpProfileTest, KindsOfStepAreApartAndStartForgets) {
  Add(StepKind::kPrompt, 1, 1);
  EXPECT_TRUE(profile_.Times(StepKind::kDecode).empty());
  EXPECT_EQ(profile_.Times(StepKind::kPrompt).size(), 1u);
  profile_.Start(program_, selection_);
  EXPECT_TRUE(profile_.Times(StepKind::kPrompt).empty());
}

TEST_F(OpProfileTest, LayersEndWithTheOpThatWritesTheirValue) {
  const StatusOr<Program> program = Program::Parse(R"(pagemill-program 3
file 0 @
weight table f32 8,4 0 0
weight w f32 8,4 0 0
input token_ids i32 tokens
input logits_rows i32 logits_rows
value x f32 tokens,4
value layer.0 f32 tokens,8
value layer.1 f32 tokens,8
value tail f32 tokens,8
value out f32 logits_rows,8
op embedding token_ids,table -> x
op linear x,w -> layer.0
op linear x,w -> layer.1
op activation layer.1 -> tail
op select_rows tail,logits_rows -> out
output logits out
constants 128
)" + std::string(256, '0') + "\n");
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  profile_.Start(*program, Select(*program));
  EXPECT_TRUE(profile_.Layers(StepKind::kDecode).empty());
  for (size_t op = 0; op < 4; ++op) Add(StepKind::kDecode, op, static_cast<double>(1 << op));
  const std::vector<LayerTime> layers = profile_.Layers(StepKind::kDecode);
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(profile_.layer(1), "layer.0");
  EXPECT_EQ(profile_.op(1).op, "linear");
  EXPECT_EQ(profile_.op(1).calls, 0) << "figures are in Times()";
  EXPECT_EQ(layers[0].layer, "layer.0");
  EXPECT_EQ(layers[0].seconds, 1 + 2) << "with what comes before";
  EXPECT_EQ(layers[1].layer, "layer.1");
  EXPECT_EQ(layers[1].seconds, 4);
  EXPECT_EQ(layers[2].layer, "end");
  EXPECT_EQ(layers[2].seconds, 8);
  EXPECT_TRUE(profile_.Layers(StepKind::kPrompt).empty());
}

}  // namespace
}  // namespace pagemill::program
