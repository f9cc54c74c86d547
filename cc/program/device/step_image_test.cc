#include "cc/program/device/step_image.h"

#include <gtest/gtest.h>

#include <cstddef>
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
    image->Write(batch, sizes, memory.data());
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

}  // namespace
}  // namespace pagemill::program
