// Speed of `embedding` for as many random rows of SmolLM2's table as a prompt has. Counter: GB/s of
// table rows read; the limit is a memcpy of the same rows (`copy`).
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance.h"
#include "cc/ops/embedding/embedding.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kVocab = 49152;

void RunEmbedding(benchmark::State& state, DType dtype, bool copy_only) {
  const int64_t n = state.range(0);
  const int64_t hidden = Info(dtype).block_elements == 256 ? 768 : 576;
  conformance::Random random(1);
  conformance::TestTensor ids(DType::kI32, {n});
  conformance::TestTensor w(dtype, {kVocab, hidden});
  conformance::TestTensor y(DType::kF32, {n, hidden});
  ids.FillUniform(random, 0, kVocab - 1);
  w.FillUniform(random, -1, 1);
  const Attributes attributes;
  const TensorView inputs[] = {ids.view(), w.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  device::ThreadPool pool({.num_threads = 1});
  KernelContext context{&pool, {}};
  const int64_t row_bytes = w.view().row_stride_bytes;
  for (auto _ : state) {
    if (!copy_only) {
      embedding::RunPortable(call, context);
      continue;
    }
    for (int64_t i = 0; i < n; ++i) {
      std::memcpy(y.view().Row<uint8_t>(i), w.view().Row<uint8_t>(ids.view().Data<int32_t>()[i]),
                  row_bytes);
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * n * row_bytes);
}

[[maybe_unused]] const bool kRegistered = [] {
  for (DType dtype : kWeightDTypes) {
    for (bool copy_only : {false, true}) {
      const std::string name =
          std::string(copy_only ? "copy/" : "embedding/") + std::string(Info(dtype).name);
      benchmark::RegisterBenchmark(name.c_str(), RunEmbedding, dtype, copy_only)->Arg(1)->Arg(512);
    }
  }
  return true;
}();

}  // namespace
}  // namespace pagemill::ops
