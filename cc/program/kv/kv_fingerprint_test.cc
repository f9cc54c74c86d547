#include "cc/program/kv/kv_fingerprint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "cc/device/thread_pool.h"
#include "cc/program/testing/tiny_llama.h"
#include "cc/program/weights/weight_digests.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {
namespace {

Digest128 Fingerprint(const std::string& text, const CacheGeometry& geometry = {},
                      DType activation_type = DType::kF32) {
  StatusOr<Program> program = Program::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  EXPECT_TRUE(program->SetActivationType(activation_type).ok());
  StatusOr<Weights> weights = Weights::Load(*program);
  EXPECT_TRUE(weights.ok()) << weights.status().ToString();
  device::ThreadPool pool({.num_threads = 1});
  const auto digests = WeightDigests(*program, weights->files(), DigestMemory(""), pool);
  return KvFingerprint(*program, digests, *PlanKvLayout(*program, geometry));
}

TEST(KvFingerprintTest, IsTheSameForTheSameModel) {
  EXPECT_EQ(Fingerprint(testing::TinyLlamaText({.seed = 1})),
            Fingerprint(testing::TinyLlamaText({.seed = 1})));
}

TEST(KvFingerprintTest, DependsOnWeightsShapesAndPages) {
  const std::string text = testing::TinyLlamaText({.seed = 1});
  const Digest128 fingerprint = Fingerprint(text);
  EXPECT_FALSE(fingerprint == Fingerprint(testing::TinyLlamaText({.seed = 2})));
  EXPECT_FALSE(fingerprint == Fingerprint(testing::TinyLlamaText({.seed = 1, .layers = 3})));
  EXPECT_FALSE(fingerprint == Fingerprint(text, {.block_size = 32}));
  EXPECT_FALSE(fingerprint == Fingerprint(text, {.dtype = DType::kF32}));
  EXPECT_FALSE(Fingerprint(text, {.dtype = DType::kI8}) ==
               Fingerprint(text, {.dtype = DType::kK8V4}));
  EXPECT_FALSE(fingerprint == Fingerprint(text, {}, DType::kBF16));
}

// Latents in fp8 are no latents in bf16, and have other rows if other elements are in bf16.
TEST(KvFingerprintTest, DependsOnTheRowsOfLatents) {
  const auto fingerprint = [](const std::string& dims, DType dtype) {
    return Fingerprint(
        "pagemill-program 3\nfile 0 @\nweight w f32 1,4 0 0\ngroup all mla\n"
        "cache kv all latent kv " +
            dims +
            "\ninput token_ids i32 tokens\nvalue x f32 tokens,64\n"
            "value out f32 logits_rows,4\nop first token_ids,kv -> x\nop then x,w -> out\n"
            "output logits out\nconstants 16\n00000000000000000000000000000000\n",
        {.dtype = dtype});
  };
  const Digest128 f8 = fingerprint("64,1,16", DType::kF8E4M3);
  EXPECT_EQ(f8, fingerprint("64,1,16", DType::kF8E4M3));
  EXPECT_FALSE(f8 == fingerprint("64,1,16", DType::kBF16));
  EXPECT_FALSE(f8 == fingerprint("64,1,8", DType::kF8E4M3));
}

// A matrix in a file in which every byte counts.
TEST(KvFingerprintTest, DependsOnEveryByteOfAFile) {
  const std::string path = ::testing::TempDir() + "/kv_fingerprint_test.weights";
  constexpr int64_t kBytes = 4 * 256 * 256;
  std::string bytes(kBytes, '\0');
  const auto write = [&] { std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes; };
  const std::string text = "pagemill-program 3\nfile 0 " + path +
                           "\nweight a f32 256,256 0 0\ninput token_ids i32 tokens\n"
                           "value out f32 logits_rows,256\nop first token_ids,a -> out\n"
                           "output logits out\n";
  write();
  const Digest128 fingerprint = Fingerprint(text);
  EXPECT_EQ(fingerprint, Fingerprint(text));
  for (const size_t at : {size_t{0}, size_t{50'000}, size_t{200'001}, size_t{kBytes - 1}}) {
    bytes[at] = 1;
    write();
    EXPECT_FALSE(fingerprint == Fingerprint(text)) << "byte " << at;
    bytes[at] = 0;
  }
  std::filesystem::remove(path);
}

// The number of blocks does not change what a page means.
TEST(KvFingerprintTest, DoesNotDependOnTheSizeOfTheCache) {
  const std::string text = testing::TinyLlamaText({.seed = 1});
  EXPECT_EQ(Fingerprint(text, {.num_blocks = 7}), Fingerprint(text, {.num_blocks = 9}));
}

}  // namespace
}  // namespace pagemill::program
