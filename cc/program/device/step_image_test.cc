#include "cc/program/device/step_image.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace pagemill::program {
namespace {

Program Parse(const std::string& inputs) {
  return *Program::Parse("pagemill-program 3\n" + inputs +
                         "input x act tokens,2\n"
                         "value v0 act tokens,2\n"
                         "op scale x -> v0 by=2\n"
                         "output y v0\n");
}

// Two tokens of one request, in an image of five tokens of four.
TEST(StepImageTest, AnArrayThatIsDeclaredIsPaddedLikeTheOthers) {
  const StepSizes sizes = {.tokens = 5, .requests = 4, .logits_rows = 4};
  StepImage without(Parse(""), KvLayout(), /*max_blocks=*/1);
  StepImage with(Parse("input grid_positions i32 tokens,3\n"), KvLayout(), /*max_blocks=*/1);
  EXPECT_EQ(with.Bytes(sizes), without.Bytes(sizes) + 64) << "15 numbers";

  const int32_t ids[] = {7, 8}, positions[] = {0, 1}, starts[] = {0, 2}, lengths[] = {2};
  const int32_t rows[] = {1}, grid[] = {1, 2, 3, 4, 5, 6};
  const ops::StepBatch batch = {{.num_tokens = 2,
                                 .num_requests = 1,
                                 .num_logits_rows = 1,
                                 .token_ids = ids,
                                 .positions = positions,
                                 .query_start = starts,
                                 .seq_lens = lengths,
                                 .logits_rows = rows,
                                 .grid_positions = grid},
                                /*kv=*/{},
                                /*inputs=*/{}};
  for (StepImage* image : {&without, &with}) {
    std::vector<std::byte> memory(static_cast<size_t>(image->Bytes(sizes)), std::byte{0xee});
    StepImage::Staging staging{.data = memory.data()};
    image->Write(batch, sizes, &staging);
    const ops::StepBatch view = image->View(sizes, memory.data());
    EXPECT_EQ(std::vector<int32_t>(view.token_ids, view.token_ids + 5),
              (std::vector<int32_t>{7, 8, 0, 0, 0}));
    EXPECT_EQ(std::vector<int32_t>(view.query_start, view.query_start + 5),
              (std::vector<int32_t>{0, 2, 3, 4, 5}));
    if (image == &without) {
      EXPECT_EQ(view.grid_positions, nullptr);
      continue;
    }
    EXPECT_EQ(std::vector<int32_t>(view.grid_positions, view.grid_positions + 15),
              (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  }
}

TEST(StepImageTest, PaddingHasNoAdapter) {
  StepImage image(Parse("input adapter_slots i32 tokens\n"), KvLayout(), /*max_blocks=*/1);
  const StepSizes sizes = {.tokens = 3, .requests = 3, .logits_rows = 3};
  const int32_t zeros[] = {0, 1}, ones[] = {1};
  const ops::StepBatch batch = {{.num_tokens = 1,
                                 .num_requests = 1,
                                 .num_logits_rows = 1,
                                 .token_ids = zeros,
                                 .positions = zeros,
                                 .query_start = zeros,
                                 .seq_lens = ones,
                                 .logits_rows = zeros,
                                 .adapter_slots = ones},
                                /*kv=*/{},
                                /*inputs=*/{}};
  std::vector<std::byte> memory(static_cast<size_t>(image.Bytes(sizes)), std::byte{0xee});
  StepImage::Staging staging{.data = memory.data()};
  image.Write(batch, sizes, &staging);
  const int32_t* const slots = image.View(sizes, memory.data()).adapter_slots;
  EXPECT_EQ(std::vector<int32_t>(slots, slots + 3), (std::vector<int32_t>{1, -1, -1}));
}

TEST(StepImageTest, PaddingIsText) {
  StepImage image(Parse("input text_rows i32 text_rows\n"), KvLayout(), /*max_blocks=*/1);
  const StepSizes sizes = {.tokens = 4, .requests = 4, .logits_rows = 4, .text_rows = 4};
  const int32_t counted[] = {0, 1, 2}, ones[] = {1, 1};
  const ops::StepBatch batch = {{.num_tokens = 2,
                                 .num_requests = 2,
                                 .num_logits_rows = 2,
                                 .num_text_rows = 2,
                                 .token_ids = counted,
                                 .positions = counted,
                                 .query_start = counted,
                                 .seq_lens = ones,
                                 .logits_rows = counted,
                                 .text_rows = counted},
                                /*kv=*/{},
                                /*inputs=*/{}};
  std::vector<std::byte> memory(static_cast<size_t>(image.Bytes(sizes)), std::byte{0xee});
  StepImage::Staging staging{.data = memory.data()};
  image.Write(batch, sizes, &staging);
  const ops::StepBatch view = image.View(sizes, memory.data());
  ASSERT_EQ(view.num_text_rows, 4);
  EXPECT_EQ(std::vector<int32_t>(view.text_rows, view.text_rows + 4),
            (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(StepImageTest, TheLastPaddingRequestHasTheTokensThatAreLeft) {
  KvLayout layout;
  layout.tables = {{.group = 0, .block_size = 3}};
  StepImage image(Parse(""), layout, /*max_blocks=*/2);
  const int32_t ids[] = {7, 8}, positions[] = {0, 1}, starts[] = {0, 2}, lengths[] = {2};
  const int32_t slots[] = {12, 13}, table[] = {4};
  const ops::KvArrays kv = {
      .block_size = 3, .slot_mapping = slots, .block_table = table, .block_table_stride = 1};
  const ops::StepBatch batch = {{.num_tokens = 2,
                                 .num_requests = 1,
                                 .num_logits_rows = 0,
                                 .token_ids = ids,
                                 .positions = positions,
                                 .query_start = starts,
                                 .seq_lens = lengths},
                                {&kv, 1},
                                /*inputs=*/{}};
  const StepSizes sizes = {.tokens = 8, .requests = 3, .logits_rows = 9};
  std::vector<std::byte> memory(static_cast<size_t>(image.Bytes(sizes)), std::byte{0xee});
  StepImage::Staging staging{.data = memory.data()};
  image.Write(batch, sizes, &staging);
  const ops::StepBatch view = image.View(sizes, memory.data());
  const auto array = [](const int32_t* begin, int64_t size) {
    return std::vector<int32_t>(begin, begin + size);
  };
  EXPECT_EQ(array(view.query_start, 4), (std::vector<int32_t>{0, 2, 3, 8}));
  EXPECT_EQ(array(view.seq_lens, 3), (std::vector<int32_t>{2, 1, 5}));
  EXPECT_EQ(array(view.logits_rows, 9), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 7}))
      << "tokens of the step";
  EXPECT_EQ(array(view.kv[0].slot_mapping, 8), (std::vector<int32_t>{12, 13, 0, 0, 1, 2, 0, 1}))
      << "each token of the last request has a slot of the null page";
  EXPECT_EQ(array(view.kv[0].block_table, 6), (std::vector<int32_t>{4, 0, 0, 0, 0, 0}));
}

// Steps of random sizes and lengths in one staging memory equal those in memory of their own.
TEST(StepImageTest, MemoryOfEarlierStepsLeavesNoBlocks) {
  constexpr int32_t kBlockSize = 4, kMaxBlocks = 9, kMaxRequests = 6;
  KvLayout layout;
  layout.tables = {{.group = 0, .block_size = kBlockSize},
                   {.group = 1, .block_size = 2 * kBlockSize, .recent_states = 2}};
  StepImage image(Parse(""), layout, kMaxBlocks);
  const StepSizes largest = {
      .tokens = kMaxRequests, .requests = kMaxRequests, .logits_rows = kMaxRequests};
  const auto bytes = static_cast<size_t>(image.Bytes(largest));
  std::vector<std::byte> reused(bytes, std::byte{0xee});
  StepImage::Staging staging{.data = reused.data()};
  std::mt19937 random(5);
  for (int step = 0; step < 300; ++step) {
    const auto requests = static_cast<int32_t>(1 + random() % kMaxRequests);
    std::vector<int32_t> lengths, zeros(kMaxRequests + 1);
    for (int32_t r = 0; r < requests; ++r) {
      lengths.push_back(static_cast<int32_t>(1 + random() % (kMaxBlocks * kBlockSize)));
    }
    const int64_t stride = kMaxBlocks - random() % 2;
    std::vector<int32_t> table(kMaxRequests * kMaxBlocks);
    for (int32_t& block : table) block = static_cast<int32_t>(1 + random() % 99);
    const ops::KvArrays arrays = {.slot_mapping = zeros.data(),
                                  .block_table = table.data(),
                                  .block_table_stride = stride};
    std::vector<ops::KvArrays> kv(2, arrays);
    kv[0].block_size = kBlockSize;
    kv[1].block_size = 2 * kBlockSize;
    kv[1].recent_states = 2;
    const ops::StepBatch batch = {{.num_tokens = requests,
                                   .num_requests = requests,
                                   .num_logits_rows = requests,
                                   .token_ids = zeros.data(),
                                   .positions = zeros.data(),
                                   .query_start = zeros.data(),
                                   .seq_lens = lengths.data(),
                                   .logits_rows = zeros.data()},
                                  kv,
                                  /*inputs=*/{}};
    const int64_t padded = requests <= 3 ? 3 : kMaxRequests;
    const StepSizes sizes = {.tokens = padded, .requests = padded, .logits_rows = padded};
    image.Write(batch, sizes, &staging);
    const ops::StepBatch view = image.View(sizes, reused.data());
    for (size_t t = 0; t < kv.size(); ++t) {
      for (int64_t r = 0; r < padded; ++r) {
        const int64_t blocks =
            r < requests ? (lengths[r] + kv[t].block_size - 1) / kv[t].block_size : -2;
        for (int64_t b = 0; b < kMaxBlocks; ++b) {
          const bool used = b < std::min(stride, blocks + kv[t].recent_states);
          ASSERT_EQ(view.kv[t].block_table[r * kMaxBlocks + b], used ? table[r * stride + b] : 0)
              << "step " << step << ", table " << t << ", request " << r << ", block " << b;
        }
      }
    }
  }
}

}  // namespace
}  // namespace pagemill::program
