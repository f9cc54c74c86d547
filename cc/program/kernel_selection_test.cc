#include "cc/program/kernel_selection.h"

#include <gtest/gtest.h>

#include <string>

namespace pagemill::program {
namespace {

constexpr ops::WeightPacking kPacking = {
    .layout = "any",
    .inputs = 0b10,
    .bytes = [](const TensorView&) -> int64_t { return 64; },
    .pack = [](const TensorView&, std::byte*, device::ThreadPool&) { return OkStatus(); }};
constexpr ops::Kernel kKernels[] = {
    {.op = "mix",
     .name = "packs",
     .supports = [](const device::Capabilities&, const ops::OpCall&) { return true; },
     .run = [](const ops::OpCall&, ops::KernelContext&) {},
     .packing = &kPacking},
    {.op = "mix",
     .name = "varies",
     .priority = -1,
     .supports = [](const device::Capabilities&, const ops::OpCall&) { return true; },
     .run = [](const ops::OpCall&, ops::KernelContext&) {},
     .varies_with_batch = true}};
// Rejects int8 caches.
Status CheckStore(const ops::OpCall& call) {
  return call.inputs[1].dtype == DType::kI8 ? InvalidArgument("store: not i8") : OkStatus();
}

constexpr ops::Kernel kStoreKernels[] = {
    {.op = "store",
     .name = "plain",
     .supports = [](const device::Capabilities&, const ops::OpCall&) { return true; },
     .run = [](const ops::OpCall&, ops::KernelContext&) {}}};

constexpr ops::OpDefinition kOps[] = {
    {.op = "mix", .check = [](const ops::OpCall&) { return OkStatus(); }, .kernels = kKernels},
    {.op = "store", .check = CheckStore, .kernels = kStoreKernels}};

Status Select(const std::string& second_input, const ExecutorOptions& options = {}) {
  const StatusOr<Program> program = Program::Parse(
      "pagemill-program 3\nfile 0 @\nweight w f32 1 0 0\ninput token_ids i32 tokens\n"
      "value x f32 tokens,1\nvalue out f32 logits_rows,1\nop mix token_ids,w -> x\nop mix x," +
      second_input + " -> out\noutput logits out\nconstants 4\n00000000\n");
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return SelectKernels(*program, {.ops = kOps, .capabilities = {}}, options).status();
}

TEST(KernelSelection, PacksWeights) { EXPECT_TRUE(Select("w").ok()) << Select("w").ToString(); }

TEST(KernelSelection, RefusesToPackWhatIsNoWeight) {
  EXPECT_EQ(Select("x").message(),
            "program line 8: mix: kernel 'packs' packs input 1, but 'x' is not a weight");
}

// Kernels never receive a cache of a type that the op's check rejects.
TEST(KernelSelection, ChecksOpsWithTheTypeThatCachesHave) {
  const StatusOr<Program> program = Program::Parse(
      "pagemill-program 3\nfile 0 @\nweight w f32 1 0 0\ngroup all full\ncache kv all kv kv 1,4\n"
      "input token_ids i32 tokens\nvalue x f32 tokens,1\nvalue out f32 logits_rows,1\n"
      "op mix token_ids,w -> x\nop store w,kv ->\nop mix x,w -> out\noutput logits out\n"
      "constants 4\n00000000\n");
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const auto select = [&](DType dtype) {
    ExecutorOptions options;
    options.kv_cache_dtype = dtype;
    return SelectKernels(*program, {.ops = kOps, .capabilities = {}}, options).status();
  };
  EXPECT_EQ(select(DType::kF8E4M3).message(), "");
  EXPECT_NE(select(DType::kI8).message().find("store: not i8"), std::string::npos);
}

TEST(KernelSelection, RefusesAFilterThatNoKernelHas) {
  ExecutorOptions options;
  options.kernel_filter = "packs";
  EXPECT_TRUE(Select("w", options).ok()) << Select("w", options).ToString();
  options.kernel_filter = "pack";  // prefix of a name
  const Status status = Select("w", options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "kernel_filter (--kernel-filter) is 'pack', but no op of the program can use a kernel "
            "of that name here, with the activations that are allowed; there are packs, varies");
}

TEST(KernelSelection, DeterministicIsWithoutKernelsThatVaryWithTheBatch) {
  ExecutorOptions options;
  options.kernel_filter = "varies";
  EXPECT_TRUE(Select("w", options).ok()) << Select("w", options).ToString();
  options.deterministic = true;
  EXPECT_EQ(Select("w", options).message(),
            "kernel_filter (--kernel-filter) is 'varies', but no op of the program can use a "
            "kernel of that name here, with the activations that are allowed; there are packs");
  options.kernel_filter = "";
  EXPECT_TRUE(Select("w", options).ok()) << Select("w", options).ToString();
}

}  // namespace
}  // namespace pagemill::program
