// What every kernel of `moe_route` has to pass. For many numbers of experts, choices and groups,
// all scorings, with and without bias, misaligned and padded operands: the ids of the reference
// and weights within the contract's bound; equal logits; NaN and infinite logits; the same bits
// with 1 and 3 threads and when each token is alone; exactly the outputs are written.
#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

using conformance::AllClose;
using conformance::BitEqual;
using conformance::Random;
using conformance::RunKernel;
using conformance::TestTensor;
using device::ThreadPool;

enum class Logits { kRandom, kTies, kSpecial };

struct Case {
  int64_t experts;
  int64_t choices;
  int64_t groups = 1;
  int64_t group_choices = 1;
  int64_t group_top = 1;
  bool bias = false;
  bool factors = false;
  bool sigmoid = false;
  bool square_roots = false;  // scoring 3
  bool table = false;
  bool logits_bias = false;
  double tolerance = -1;  // of SparseMixer, if not negative
  bool renormalize = false;
  double scale = 1;
  int64_t first = 0;
  Logits logits = Logits::kRandom;
  int64_t tokens = 13;
};

struct Operation {
  Operation(const Case& c, Random& random)
      : logits(DType::kF32, {c.tokens, c.experts}, {4, 4}),
        bias(DType::kF32, {c.experts}, {4, 0}),
        factors(DType::kF32, {c.experts}, {4, 0}),
        token_ids(DType::kI32, {c.tokens}, {4, 0}),
        table(DType::kF32, {kVocabulary, c.choices}, {4, 8}),
        ids(DType::kI32, {c.tokens, c.choices}, {4, 8}),
        weights(DType::kF32, {c.tokens, c.choices}, {4, 4}) {
    std::vector<float> values(static_cast<size_t>(c.tokens * c.experts));
    const float special[] = {NAN, INFINITY, -INFINITY, 100, -100};
    for (float& value : values) {
      value = random.Uniform(-6, 6);
      if (c.logits == Logits::kTies) value = static_cast<float>(random.Int(-1, 1));
      if (c.logits == Logits::kSpecial && random.Int(0, 3) > 0) value = special[random.Int(0, 4)];
    }
    logits.Set(values);
    bias.FillUniform(random, -0.5f, 0.5f);
    factors.FillUniform(random, -2, 2);
    std::vector<int32_t> chosen_ids;
    for (int64_t n = 0; n < c.tokens; ++n) {
      chosen_ids.push_back(static_cast<int32_t>(random.Int(0, kVocabulary - 1)));
    }
    if (c.tokens > 0) token_ids.SetInt(chosen_ids);
    std::vector<float> listed;
    for (int64_t i = 0; i < kVocabulary * c.choices; ++i) {
      listed.push_back(static_cast<float>(random.Int(0, c.experts - 1)));
    }
    table.Set(listed);
    attributes.Set("choices", static_cast<double>(c.choices));
    attributes.Set("scoring", c.tolerance >= 0 ? 2 : c.square_roots ? 3 : c.sigmoid ? 1 : 0);
    if (c.tolerance >= 0) attributes.Set("tolerance", c.tolerance);
    attributes.Set("logits_bias", c.logits_bias ? 1 : 0);
    attributes.Set("renormalize", c.renormalize ? 1 : 0);
    attributes.Set("scale", c.scale);
    attributes.Set("groups", static_cast<double>(c.groups));
    attributes.Set("group_choices", static_cast<double>(c.group_choices));
    attributes.Set("group_top", static_cast<double>(c.group_top));
    attributes.Set("first", static_cast<double>(c.first));
    inputs[0] = logits.view();
    if (c.bias) inputs[1] = bias.view();
    if (c.factors) inputs[2] = factors.view();
    if (c.table) {
      inputs[3] = token_ids.view();
      inputs[4] = table.view();
    }
    outputs[0] = ids.view();
    outputs[1] = weights.view();
    call = {std::span(inputs).first(c.table ? 5 : 3), outputs, &attributes, nullptr};
  }
  Operation(const Operation&) = delete;

  void Poison() {
    ids.Poison();
    weights.Poison();
  }

  static constexpr int64_t kVocabulary = 11;

  TestTensor logits, bias, factors, token_ids, table, ids, weights;
  TensorView inputs[5];
  TensorView outputs[2];
  Attributes attributes;
  OpCall call;
};

// Each token has the same results alone and among the others.
void CheckAlone(Operation& op, const Kernel& kernel, const std::vector<float>& ids,
                const std::vector<float>& weights) {
  ThreadPool pool({.num_threads = 1});
  op.Poison();
  for (int64_t n = 0; n < op.logits.view().shape[0]; ++n) {
    std::vector<TensorView> inputs(op.call.inputs.begin(), op.call.inputs.end());
    TensorView outputs[] = {op.outputs[0], op.outputs[1]};
    std::vector<TensorView*> views = {&inputs[0], &outputs[0], &outputs[1]};
    if (inputs.size() > 3) views.push_back(&inputs[3]);
    for (TensorView* view : views) {
      view->data = view->Row<void>(n);
      view->shape[0] = 1;
    }
    RunKernel(kernel, {inputs, outputs, &op.attributes, nullptr}, pool);
  }
  EXPECT_TRUE(BitEqual(op.ids.ToFloat(), ids));
  EXPECT_TRUE(BitEqual(op.weights.ToFloat(), weights));
}

void CheckCase(const Case& c, const OpDefinition& op, const device::Capabilities& caps,
               Random& random) {
  Operation o(c, random);
  ASSERT_TRUE(op.check(o.call).ok()) << op.check(o.call).ToString();
  ThreadPool one({.num_threads = 1});
  RunKernel(conformance::ReferenceKernel(op), o.call, one);
  const std::vector<float> ids = o.ids.ToFloat(), weights = o.weights.ToFloat();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, o.call)) {
    SCOPED_TRACE(std::string(kernel->name));
    std::vector<float> first;
    for (int32_t threads = 1; threads <= 3; ++threads) {
      ThreadPool pool({.num_threads = threads});
      o.Poison();
      RunKernel(*kernel, o.call, pool);
      EXPECT_TRUE(o.ids.GuardsIntact() && o.weights.GuardsIntact());
      ASSERT_TRUE(BitEqual(o.ids.ToFloat(), ids));
      // The bound of the contract.
      ASSERT_TRUE(AllClose(o.weights.ToFloat(), weights, {.abs = 1e-30, .rel = 4e-6}));
      if (first.empty()) first = o.weights.ToFloat();
      EXPECT_TRUE(BitEqual(o.weights.ToFloat(), first)) << threads << " threads";
    }
    CheckAlone(o, *kernel, ids, first);
  }
}

}  // namespace

void CheckMoeRouteConformance(const OpDefinition& op, const device::Capabilities& caps) {
  const std::vector<Case> cases = {
      {.experts = 1, .choices = 1},
      {.experts = 8, .choices = 2, .renormalize = true},
      {.experts = 7, .choices = 7},
      {.experts = 128, .choices = 8, .renormalize = true, .tokens = 67},
      {.experts = 128, .choices = 8, .scale = 2.5},
      {.experts = 33, .choices = 3, .sigmoid = true, .renormalize = true},
      {.experts = 60, .choices = 4, .bias = true},
      {.experts = 19, .choices = 5, .factors = true, .renormalize = true, .scale = 1.5},
      {.experts = 19, .choices = 5, .bias = true, .factors = true, .sigmoid = true},
      {.experts = 20, .choices = 3, .groups = 5, .group_choices = 2, .scale = 16},
      {.experts = 256,
       .choices = 8,
       .groups = 8,
       .group_choices = 4,
       .group_top = 2,
       .bias = true,
       .sigmoid = true,
       .renormalize = true,
       .scale = 2.5},
      {.experts = 12, .choices = 4, .groups = 3, .group_choices = 3, .group_top = 2},
      {.experts = 16, .choices = 5, .renormalize = true, .logits = Logits::kTies},
      {.experts = 16, .choices = 4, .groups = 4, .group_choices = 2, .logits = Logits::kTies},
      {.experts = 16,
       .choices = 4,
       .groups = 4,
       .group_choices = 2,
       .group_top = 2,
       .sigmoid = true,
       .logits = Logits::kTies},
      {.experts = 5, .choices = 3, .renormalize = true, .logits = Logits::kSpecial, .tokens = 60},
      {.experts = 6, .choices = 4, .sigmoid = true, .logits = Logits::kSpecial, .tokens = 60},
      {.experts = 19, .choices = 5, .bias = true, .sigmoid = true, .logits_bias = true},
      {.experts = 33, .choices = 3, .square_roots = true, .renormalize = true, .scale = 1.5},
      {.experts = 19, .choices = 5, .bias = true, .square_roots = true},
      {.experts = 19, .choices = 5, .square_roots = true, .table = true, .renormalize = true},
      {.experts = 9, .choices = 4, .sigmoid = true, .table = true, .logits = Logits::kSpecial},
      {.experts = 16, .choices = 2, .tolerance = 0.02},
      {.experts = 33, .choices = 3, .tolerance = 0.7, .renormalize = true, .scale = 2},
      {.experts = 16, .choices = 2, .tolerance = 0.5, .logits = Logits::kTies},
      {.experts = 6, .choices = 4, .tolerance = 0.1, .logits = Logits::kSpecial, .tokens = 60},
      // Ids counted from one of the experts.
      {.experts = 128, .choices = 8, .renormalize = true, .first = 64, .tokens = 67},
      {.experts = 20,
       .choices = 3,
       .groups = 5,
       .group_choices = 2,
       .bias = true,
       .factors = true,
       .sigmoid = true,
       .first = 19},
      {.experts = 19, .choices = 5, .square_roots = true, .table = true, .first = 7},
      {.experts = 16, .choices = 2, .tolerance = 0.5, .first = 8},
      {.experts = 5, .choices = 3, .first = 2, .logits = Logits::kSpecial, .tokens = 60},
      {.experts = 4, .choices = 2, .tokens = 0}};
  Random random(1);
  for (const Case& c : cases) {
    SCOPED_TRACE("experts=" + std::to_string(c.experts) + " choices=" + std::to_string(c.choices) +
                 " groups=" + std::to_string(c.groups));
    CheckCase(c, op, caps, random);
  }
}

}  // namespace pagemill::ops
