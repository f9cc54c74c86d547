#include "cc/program/memory/activation_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace pagemill::program {
namespace {

// Ops without kernels: the planner uses only names and alias rules. `both` lists two pairs over the
// same input, so only one of them can be applied.
constexpr std::array<ops::AliasRule, 1> kFirst = {{{0, 0}}};
constexpr std::array<ops::AliasRule, 2> kCross = {{{1, 0}, {0, 1}}};
constexpr std::array<ops::AliasRule, 3> kBoth = {{{0, 0}, {0, 1}, {2, 1}}};
constexpr std::array<ops::OpDefinition, 5> kOps = {{
    {.op = "both", .kernels = {}, .may_alias = kBoth},
    {.op = "cross", .kernels = {}, .may_alias = kCross},
    {.op = "first", .kernels = {}, .may_alias = kFirst},
    {.op = "plain", .kernels = {}},
    {.op = "source", .kernels = {}},
}};

Program MustParse(const std::string& body) {
  StatusOr<Program> program = Program::Parse("pagemill-program 3\n" + body);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

int64_t OffsetOf(const Program& program, const ActivationPlan& plan, const std::string& name) {
  return plan.offsets[static_cast<size_t>(program.Find(name)->value())];
}

TEST(ActivationPlanTest, ReusesMemoryOfDeadValues) {
  const Program program = MustParse(
      "input token_ids i32 tokens\nvalue a f32 tokens,16\nvalue b f32 tokens,16\nvalue c f32 "
      "tokens,16\n"
      "value d f32 tokens,16\nvalue out f32 logits_rows,16\n"
      "op source token_ids -> a\nop plain a -> b\nop plain b -> c\nop plain c -> d\n"
      "op plain d -> out\noutput logits out\n");
  const ActivationPlan plan = PlanActivations(program, kOps, {.tokens = 10, .logits_rows = 3});
  EXPECT_EQ(plan.arena_bytes, 2 * 10 * 16 * 4);
  EXPECT_EQ(OffsetOf(program, plan, "a"), OffsetOf(program, plan, "c"));
  EXPECT_NE(OffsetOf(program, plan, "a"), OffsetOf(program, plan, "b"));
  EXPECT_EQ(OffsetOf(program, plan, "out"), ActivationPlan::kNotInArena);
  EXPECT_EQ(OffsetOf(program, plan, "token_ids"), ActivationPlan::kNotInArena);
}

TEST(ActivationPlanTest, WorksInPlaceWhereTheInputDies) {
  const Program program = MustParse(
      "input token_ids i32 tokens\nvalue a f32 tokens,16\nvalue b f32 tokens,4,4\nvalue c f32 "
      "tokens,16\n"
      "value out f32 logits_rows,16\n"
      "op source token_ids -> a\nop first a -> b\nop first b -> c\nop plain b,c -> out\n"
      "output logits out\n");
  const ActivationPlan plan = PlanActivations(program, kOps, {.tokens = 10, .logits_rows = 3});
  EXPECT_EQ(OffsetOf(program, plan, "a"), OffsetOf(program, plan, "b"));
  EXPECT_NE(OffsetOf(program, plan, "b"), OffsetOf(program, plan, "c")) << "b is read later";
  EXPECT_EQ(plan.arena_bytes, 2 * 10 * 16 * 4);
}

TEST(ActivationPlanTest, AnOperandThatOccursTwiceIsNotTakenOver) {
  const Program program = MustParse(
      "input token_ids i32 tokens\nvalue a f32 tokens,16\nvalue b f32 tokens,16\nvalue out f32 "
      "logits_rows,16\n"
      "op source token_ids -> a\nop first a,a -> b\nop plain b -> out\noutput logits out\n");
  const ActivationPlan plan = PlanActivations(program, kOps, {.tokens = 10, .logits_rows = 3});
  EXPECT_NE(OffsetOf(program, plan, "a"), OffsetOf(program, plan, "b"));
}

TEST(ActivationPlanTest, TwoOutputsDoNotTakeOverOneInput) {
  const Program program = MustParse(
      "input token_ids i32 tokens\nvalue a f32 tokens,16\nvalue b f32 tokens,16\nvalue c f32 "
      "tokens,16\n"
      "value out f32 logits_rows,16\nop source token_ids -> a\nop both a -> b,c\nop plain b,c -> "
      "out\n"
      "output logits out\n");
  const ActivationPlan plan = PlanActivations(program, kOps, {.tokens = 10, .logits_rows = 3});
  EXPECT_EQ(OffsetOf(program, plan, "a"), OffsetOf(program, plan, "b"));
  EXPECT_NE(OffsetOf(program, plan, "b"), OffsetOf(program, plan, "c"));
}

// A random program: values of random sizes and symbols, read by random later ops.
std::string RandomBody(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  std::string declarations = "input token_ids i32 tokens\n", ops;
  std::vector<std::string> values;
  const auto declare = [&](const std::string& shape) {
    values.push_back("v" + std::to_string(values.size()));
    declarations += "value " + values.back() + " f32 " + shape + "\n";
    return values.back();
  };
  const std::array<std::string, 4> shapes = {"tokens,16", "tokens,3", "requests,5",
                                             "logits_rows,16"};
  ops += "op source token_ids -> " + declare("tokens,16") + "\n";
  for (int i = pick(1, 30); i > 0; --i) {
    std::string operands;
    const int recent = std::max(0, static_cast<int>(values.size()) - 4);
    for (int n = pick(1, 3); n > 0; --n) {
      const int from = pick(0, 3) == 0 ? 0 : recent;
      operands += (operands.empty() ? "" : ",") +
                  values[static_cast<size_t>(pick(from, static_cast<int>(values.size()) - 1))];
    }
    const std::string name = std::array<std::string, 4>{"plain", "first", "cross",
                                                        "both"}[static_cast<size_t>(pick(0, 3))];
    std::string outputs = declare(shapes[static_cast<size_t>(pick(0, 3))]);
    if (pick(0, 1) == 0) outputs += "," + declare(shapes[static_cast<size_t>(pick(0, 3))]);
    ops += "op " + name + " " + operands + " -> " + outputs + "\n";
  }
  const std::string out = declare("logits_rows,7");
  ops += "op plain " + values[0] + " -> " + out + "\n";
  return declarations + ops + "output logits " + out + "\n";
}

// Simulates a program: each op tags the bytes of its outputs, each read must find the tags of the
// value that it reads, and outputs may overwrite an input of the same op only if the rules allow
// the pair.
void SimulateOnPaper(const Program& program, const ActivationPlan& plan, const StepSizes& sizes) {
  std::vector<int32_t> owner(static_cast<size_t>(plan.arena_bytes), -1);
  const auto range = [&](ValueId id) {
    const int64_t begin = plan.offsets[static_cast<size_t>(id.value())];
    return std::pair(owner.begin() + begin, owner.begin() + begin + program.value(id).Bytes(sizes));
  };
  const auto in_arena = [&](ValueId id) {
    return plan.offsets[static_cast<size_t>(id.value())] != ActivationPlan::kNotInArena;
  };
  for (const Op& op : program.ops()) {
    for (ValueId id : op.inputs) {
      if (!in_arena(id)) continue;
      const auto [begin, end] = range(id);
      ASSERT_TRUE(std::all_of(begin, end, [&](int32_t o) { return o == id.value(); }))
          << op.name << " reads " << program.value(id).name << ", which was overwritten";
    }
    const ops::OpDefinition& definition = **ops::FindOp(kOps, op.name);
    std::set<int32_t> written;
    for (size_t o = 0; o < op.outputs.size(); ++o) {
      const ValueId id = op.outputs[o];
      if (!in_arena(id)) continue;
      ASSERT_EQ(plan.offsets[static_cast<size_t>(id.value())] % 64, 0);
      const auto [begin, end] = range(id);
      ASSERT_LE(end - owner.begin(), plan.arena_bytes);
      for (auto byte = begin; byte != end; ++byte) {
        ASSERT_EQ(written.count(*byte), 0u) << "two outputs of one op overlap";
        for (size_t i = 0; i < op.inputs.size(); ++i) {
          if (op.inputs[i].value() != *byte) continue;
          const bool allowed = std::any_of(definition.may_alias.begin(), definition.may_alias.end(),
                                           [&](ops::AliasRule rule) {
                                             return rule.input == static_cast<int8_t>(i) &&
                                                    rule.output == static_cast<int8_t>(o);
                                           });
          ASSERT_TRUE(allowed) << op.name << " overwrites operand " << i;
          ASSERT_EQ(plan.offsets[static_cast<size_t>(op.inputs[i].value())],
                    plan.offsets[static_cast<size_t>(id.value())]);
        }
      }
      std::fill(begin, end, id.value());
      written.insert(id.value());
    }
  }
}

TEST(ActivationPlanTest, RandomProgramsKeepLiveValuesApart) {
  int64_t planned = 0, without_reuse = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const Program program = MustParse(RandomBody(random));
    const StepSizes sizes = {.tokens = 1 + static_cast<int64_t>(random() % 20),
                             .requests = 1 + static_cast<int64_t>(random() % 5),
                             .logits_rows = 1 + static_cast<int64_t>(random() % 5)};
    const ActivationPlan plan = PlanActivations(program, kOps, sizes);
    SimulateOnPaper(program, plan, sizes);
    if (HasFatalFailure()) FAIL() << "seed " << seed << "\n" << program.ToText();
    planned += plan.arena_bytes;
    for (const Value& v : program.values()) without_reuse += v.Bytes(sizes);
  }
  EXPECT_LT(planned, without_reuse / 2) << "the planner reuses little";
}

TEST(ActivationPlanTest, NeverLargerThanItsLargestMomentAllows) {
  // A chain of equal values needs two of them, at any length.
  std::string declarations = "input token_ids i32 tokens\nvalue v0 f32 tokens,16\n", ops;
  ops = "op source token_ids -> v0\n";
  for (int i = 1; i < 100; ++i) {
    declarations += "value v" + std::to_string(i) + " f32 tokens,16\n";
    ops += "op plain v" + std::to_string(i - 1) + " -> v" + std::to_string(i) + "\n";
  }
  const Program program = MustParse(declarations + "value out f32 logits_rows,1\n" + ops +
                                    "op plain v99 -> out\noutput logits out\n");
  EXPECT_EQ(PlanActivations(program, kOps, {.tokens = 8, .logits_rows = 1}).arena_bytes,
            2 * 8 * 16 * 4);
}

}  // namespace
}  // namespace pagemill::program
