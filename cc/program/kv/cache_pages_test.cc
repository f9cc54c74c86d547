#include "cc/program/kv/cache_pages.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "cc/program/native_executor.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/program/testing/tiny_llama.h"

namespace pagemill::program {
namespace {

using step::BlockId;
using step::GroupId;
using testing::BatchBuilder;

constexpr GroupId kGroup{0};

std::vector<std::byte> Read(const step::PageStore& pages, int32_t block) {
  std::vector<std::byte> bytes(pages.page_bytes(kGroup));
  EXPECT_EQ(pages.Read(kGroup, BlockId(block), bytes), OkStatus());
  return bytes;
}

TEST(CachePagesTest, APageIsAPieceOfTheArena) {
  std::vector<std::byte> arena(3 * 12);
  for (size_t i = 0; i < arena.size(); ++i) arena[i] = static_cast<std::byte>(i);
  CachePages pages(arena, 12);
  ASSERT_EQ(pages.page_bytes(kGroup), 12u);
  const std::vector<std::byte> page = Read(pages, 1);
  EXPECT_EQ(page[0], static_cast<std::byte>(12));
  EXPECT_EQ(page[11], static_cast<std::byte>(23));
  const std::vector<step::PageRegion> regions = pages.regions();
  ASSERT_EQ(regions.size(), 1u);
  EXPECT_EQ(regions[0].bytes.data(), arena.data());
  EXPECT_EQ(regions[0].bytes.size(), arena.size());
  EXPECT_EQ(regions[0].page_bytes, 12u);
  const std::vector<std::byte> before = Read(pages, 0);
  ASSERT_EQ(pages.Write(kGroup, BlockId(2), page), OkStatus());
  EXPECT_EQ(Read(pages, 2), page);
  EXPECT_EQ(Read(pages, 1), page) << "other blocks stay";
  EXPECT_EQ(Read(pages, 0), before) << "other blocks stay";
}

class TinyModelPages : public ::testing::TestWithParam<DType> {
 protected:
  std::unique_ptr<NativeExecutor> MakeExecutor() {
    ExecutorOptions options;
    options.num_threads = 1;
    options.max_num_tokens = 64;
    options.max_num_seqs = 2;
    options.max_num_logits_rows = 2;
    options.num_blocks = 9;
    options.kv_cache_dtype = GetParam();
    StatusOr<Program> program = Program::Parse(testing::TinyLlamaText({}));
    EXPECT_TRUE(program.ok());
    auto executor = NativeExecutor::Create(
        *std::move(program), {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()},
        options);
    EXPECT_TRUE(executor.ok()) << executor.status().ToString();
    return *std::move(executor);
  }

  static std::vector<float> Logits(NativeExecutor* executor, const BatchBuilder& arrays) {
    ExecutorOutput output;
    EXPECT_TRUE(executor->Execute(arrays.view(), &output).ok());
    const float* row = output.logits().Row<float>(0);
    return {row, row + output.logits().shape[1]};
  }
};

// Computes two and a half blocks of tokens in one executor and copies its pages to other blocks of
// another executor, which continues with the next token.
TEST_P(TinyModelPages, AnotherExecutorGoesOnFromCopiedPagesBitForBit) {
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 40; ++i) prompt.push_back((i * 7 + 3) % 83);
  const auto writer = MakeExecutor();
  BatchBuilder whole(16, 4);
  whole.Add(0, 0, prompt);  // blocks 4, 3, 2 of slot 0
  Logits(writer.get(), whole);
  BatchBuilder next(16, 4);
  next.Add(0, 40, {5});
  const std::vector<float> expected = Logits(writer.get(), next);

  const auto reader = MakeExecutor();
  ASSERT_EQ(reader->pages()->page_bytes(kGroup),
            static_cast<size_t>(reader->memory_plan().kv.page_bytes));
  BatchBuilder moved(16, 4);
  moved.Add(1, 40, {5});  // blocks 8, 7, 6 of slot 1
  EXPECT_NE(Logits(reader.get(), moved), expected) << "it depends on the pages";
  for (int32_t i = 0; i < 3; ++i) {
    const std::vector<std::byte> page = Read(*writer->pages(), 4 - i);
    ASSERT_EQ(reader->pages()->Write(kGroup, BlockId(8 - i), page), OkStatus());
    EXPECT_EQ(Read(*reader->pages(), 8 - i), page);
  }
  EXPECT_EQ(Logits(reader.get(), moved), expected);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, TinyModelPages,
                         ::testing::Values(DType::kF32, DType::kBF16, DType::kI8, DType::kF8E4M3,
                                           DType::kU4, DType::kK8V4));

}  // namespace
}  // namespace pagemill::program
