#include "cc/ops/act_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/paged_batch.h"
#include "cc/ops/pool/pool.h"

namespace pagemill::ops {
namespace {

constexpr conformance::Tolerance kTolerance{.abs = 2e-6};  // the contract's bound at |x| <= 2

void CheckCase(const OpDefinition& op, const device::Capabilities& caps, int64_t size,
               PoolKind kind, bool normalize) {
  conformance::Random random(size);
  // Requests of one token, many tokens and no tokens, and one that continues an earlier step.
  const conformance::PagedBatch batch(16, {{0, 1}, {0, 77}, {0, 0}, {30, 5}, {0, 2}}, random);
  conformance::TestTensor x(DType::kF32, {batch.view().num_tokens, size},
                            {.misalign_bytes = 4, .row_padding_bytes = 4});
  const int64_t rows = kind == PoolKind::kAll ? batch.view().num_tokens : 5;
  conformance::TestTensor y(DType::kF32, {rows, size}, {.misalign_bytes = 4});
  x.FillUniform(random, -2, 2);
  Attributes attributes;
  attributes.Set("kind", static_cast<double>(kind));
  attributes.Set("normalize", normalize ? 1 : 0);
  const TensorView inputs[] = {x.view()}, outputs[] = {y.view()};
  const OpCall call{
      .inputs = inputs, .outputs = outputs, .attributes = &attributes, .batch = &batch.view()};
  ASSERT_TRUE(op.check(call).ok()) << op.check(call).ToString();
  device::ThreadPool one({.num_threads = 1});
  conformance::RunKernel(conformance::ReferenceKernel(op), call, one);
  const std::vector<float> expected = y.ToFloat();
  for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
    for (int32_t threads : conformance::ThreadCounts(caps)) {
      device::ThreadPool pool({.num_threads = threads});
      y.Poison();
      conformance::RunKernel(*kernel, call, pool);
      EXPECT_TRUE(conformance::AllClose(y.ToFloat(), expected, kTolerance)) << kernel->name;
      EXPECT_TRUE(y.GuardsIntact()) << kernel->name;
    }
  }
  for (uint32_t act_outputs : {0b0, 0b1}) {
    conformance::CheckActTypes({.op = op,
                                .caps = caps,
                                .call = call,
                                .act_inputs = 0b1,
                                .act_outputs = act_outputs,
                                .tolerance = kTolerance});
  }
}

}  // namespace

void CheckPoolConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 3, 63, 64, 65, 384}) {
    for (PoolKind kind : {PoolKind::kMean, PoolKind::kFirst, PoolKind::kLast, PoolKind::kAll,
                          PoolKind::kSplade}) {
      CheckCase(op, caps, size, kind, /*normalize=*/false);
      CheckCase(op, caps, size, kind, /*normalize=*/true);
    }
  }
}

}  // namespace pagemill::ops
