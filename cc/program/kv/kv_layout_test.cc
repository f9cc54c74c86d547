#include "cc/program/kv/kv_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace pagemill::program {
namespace {

// A program with these caches ("cache kv0 all kv bf16 1,64" is one line) and groups.
Program ProgramOf(const std::vector<std::string>& groups, const std::vector<std::string>& caches) {
  std::string text = "pagemill-program 3\nfile 0 @\n";
  for (const std::string& group : groups) text += "group " + group + "\n";
  for (size_t i = 0; i < caches.size(); ++i) {
    text += "cache kv" + std::to_string(i) + " " + caches[i] + "\n";
  }
  text +=
      "weight w f32 3,4 0 0\ninput token_ids i32 tokens\nvalue x f32 tokens,4\n"
      "op embedding token_ids,w -> x\noutput hidden x\nconstants 0\n\n";
  StatusOr<Program> program = Program::Parse(text);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

KvLayout MustPlan(const Program& program, const CacheGeometry& geometry = {.num_blocks = 9}) {
  StatusOr<KvLayout> layout = PlanKvLayout(program, geometry);
  EXPECT_TRUE(layout.ok()) << layout.status().ToString();
  return *std::move(layout);
}

const KvLayout::Cache& PlaceOf(const KvLayout& layout, const Program& program,
                               const std::string& name) {
  return layout.caches[static_cast<size_t>(program.Find(name)->value())];
}

// The caches of every table lie next to each other in a page and do not overlap.
void CheckPlaces(const Program& program, const KvLayout& layout) {
  std::vector<int64_t> ends(layout.tables.size(), 0);
  std::vector<std::byte> arena(static_cast<size_t>(layout.arena_bytes()));
  for (size_t i = 0; i < program.values().size(); ++i) {
    const Value& v = program.values()[i];
    if (v.kind != ValueKind::kCache) continue;
    const KvLayout::Cache& place = layout.caches[i];
    EXPECT_EQ(layout.tables[static_cast<size_t>(place.table)].group, v.cache.group);
    int64_t& end = ends[static_cast<size_t>(place.table)];
    EXPECT_EQ(place.offset_bytes, end) << v.name;
    const TensorView view = CacheView(v, place, layout, arena.data());
    EXPECT_EQ(view.shape[0], layout.geometry.num_blocks);
    EXPECT_EQ(view.row_stride_bytes, layout.page_bytes);
    end += (RowBytes(view.dtype, view.RowElements()) + 63) / 64 * 64;
    EXPECT_LE(end, layout.page_bytes);
  }
}

std::vector<std::string> Times(int count, const std::string& line) {
  return std::vector<std::string>(static_cast<size_t>(count), line);
}

std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// DeepSeek-V4: rows that stand for 4 and for 128 tokens beside a window; blocks have a multiple of
// these tokens, and at most 128.
TEST(KvLayoutTest, RowsOfSeveralTokens) {
  const Program program =
      ProgramOf({"near sliding_window window=128", "few mla", "fewer mla"},
                Times(6, "near latent bf16 512") + Times(3, "few latent bf16 512,4") +
                    Times(3, "few latent bf16 128,4") + Times(3, "fewer latent bf16 512,128"));
  const KvLayout layout = MustPlan(program);
  for (size_t i = 0; i < layout.tables.size(); ++i) {
    const int32_t tokens = layout.tables[i].group == 0 ? 16 : layout.tables[i].group == 1 ? 4 : 128;
    EXPECT_EQ(layout.tables[i].block_size % std::max(tokens, 16), 0);
    EXPECT_EQ(128 % layout.tables[i].block_size, 0);
  }
  CheckPlaces(program, layout);
  const Value& rows = program.value(*program.Find("kv12"));
  const KvLayout::Cache& place = PlaceOf(layout, program, "kv12");
  const TensorView view = CacheView(rows, place, layout, nullptr);
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.shape[1] * 128, layout.BlockSizeOf(place));
  EXPECT_EQ(view.shape[2], 512);
}

TEST(KvLayoutTest, OneGroupHasOneTable) {
  const Program program = ProgramOf({"all full"}, Times(3, "all kv kv 2,16"));
  const KvLayout layout = MustPlan(program);
  EXPECT_EQ(layout.page_bytes, 3 * 2 * 2 * 16 * 16 * 2);
  EXPECT_EQ(layout.TableBlockSizes(), std::vector<int32_t>{16});
  CheckPlaces(program, layout);
}

// Gemma 3 270M: 15 sliding layers and 3 full ones of one KV head.
TEST(KvLayoutTest, AGroupOfManyLayersHasSeveralTables) {
  const Program program = ProgramOf({"near sliding_window window=512", "all full"},
                                    Times(15, "near kv kv 1,256") + Times(3, "all kv kv 1,256"));
  const KvLayout layout = MustPlan(program);
  EXPECT_EQ(layout.page_bytes, 3 * 2 * 256 * 16 * 2);
  EXPECT_EQ(layout.TableBlockSizes(), std::vector<int32_t>(6, 16));
  CheckPlaces(program, layout);
  const std::vector<step::KvGroupOptions> groups = KvGroupsOf(program, layout);
  ASSERT_EQ(groups.size(), 6u);
  for (size_t t = 0; t < 5; ++t) EXPECT_EQ(groups[t].kind, "sliding_window");
  EXPECT_EQ(groups[0].window_tokens, 512);
  EXPECT_EQ(groups[0].pages_per_block, 1);
  EXPECT_EQ(groups[5].kind, "full");
  EXPECT_EQ(groups[5].window_tokens, 0);
}

// A state is larger than the KV of 16 tokens in all attention layers, so attention gets larger
// blocks.
TEST(KvLayoutTest, AttentionGetsLargerBlocksBesideLargeStates) {
  const Program program =
      ProgramOf({"attention full", "states state_space"},
                Times(4, "attention kv kv 8,64") + Times(36, "states state f32 48,64,128"));
  const KvLayout layout = MustPlan(program);
  const int64_t state = 48 * 64 * 128 * 4, attention = 4 * 2 * 8 * 64 * 16 * 2;
  EXPECT_GE(layout.page_bytes, state);
  const int32_t block_size = layout.tables[0].block_size;
  EXPECT_EQ(block_size % 16, 0);
  EXPECT_EQ(layout.tables[1].group, 1) << "the attention layers have one table";
  EXPECT_GE(block_size / 16 * attention, layout.page_bytes - attention)
      << "less than one block of 16 tokens is wasted";
  for (const KvLayout::Table& table : layout.tables) EXPECT_EQ(table.block_size, block_size);
  CheckPlaces(program, layout);
}

// Granite 4 micro: each scan's state comes with a small one for its convolution.
TEST(KvLayoutTest, SmallStatesShareAPage) {
  std::vector<std::string> states;
  for (int layer = 0; layer < 36; ++layer) {
    states =
        states + std::vector<std::string>{"states state f32 3,3328", "states state f32 48,128,64"};
  }
  const Program program = ProgramOf({"attention full", "states state_space"},
                                    Times(4, "attention kv kv 8,64") + states);
  const KvLayout layout = MustPlan(program);
  EXPECT_EQ(layout.page_bytes, 48 * 128 * 64 * 4);
  EXPECT_EQ(layout.tables.size(), 1u + 1 + 36) << "attention, convolutions, a page for each scan";
  EXPECT_EQ(layout.TableBlockSizes(), std::vector<int32_t>(38, 192));
  EXPECT_EQ(PlaceOf(layout, program, "kv4").table, PlaceOf(layout, program, "kv74").table);
  CheckPlaces(program, layout);
}

TEST(KvLayoutTest, TablesOfStatesBeginWithRecentOnes) {
  const Program program =
      ProgramOf({"attention full", "states state_space"},
                Times(2, "attention kv kv 8,64") + Times(2, "states state f32 48,64,128"));
  const StatusOr<KvLayout> layout = PlanKvLayout(program, {.recent_states = 5});
  ASSERT_TRUE(layout.ok()) << layout.status().ToString();
  for (const step::KvGroupOptions& group : KvGroupsOf(program, *layout)) {
    EXPECT_EQ(group.recent_states, group.kind == "state_space" ? 5 : 0);
  }
}

TEST(KvLayoutTest, ViewsHaveTheShapesOfTheirLayouts) {
  const Program program = ProgramOf({"all full", "states state_space"},
                                    {"all latent kv 40", "all kv i8 2,16", "states state f32 3,5"});
  const KvLayout layout = MustPlan(program, {.num_blocks = 4, .dtype = DType::kF32});
  std::vector<std::byte> arena(static_cast<size_t>(layout.arena_bytes()));
  const auto view = [&](const std::string& name) {
    return CacheView(program.value(*program.Find(name)), PlaceOf(layout, program, name), layout,
                     arena.data());
  };
  EXPECT_EQ(view("kv0").rank, 3);
  EXPECT_EQ(view("kv0").shape[2], 40);
  EXPECT_EQ(view("kv0").dtype, DType::kF32) << "kv is what the options say";
  EXPECT_EQ(view("kv1").shape[1], 2 * 2 * 16 * (16 + 4)) << "with a scale for each row";
  EXPECT_EQ(view("kv2").shape[1], 3);
  EXPECT_EQ(view("kv2").shape[2], 5);
  CheckPlaces(program, layout);
}

// Rows of DeepSeek-V3.2 in fp8: of latents 656 bytes, of index keys, which stay in bf16, 256.
TEST(KvLayoutTest, LatentsInF8HaveRowsOfBytes) {
  const Program program =
      ProgramOf({"all mla", "index mla"},
                Times(2, "all latent kv 576,1,64") + Times(2, "index latent kv 128,1,128"));
  const auto view = [&](const KvLayout& layout, const std::string& name) {
    return CacheView(program.value(*program.Find(name)), PlaceOf(layout, program, name), layout,
                     nullptr);
  };
  const KvLayout f8 = MustPlan(program, {.dtype = DType::kF8E4M3});
  EXPECT_EQ(view(f8, "kv0").dtype, DType::kF8E4M3);
  EXPECT_EQ(view(f8, "kv0").shape[2], 656);
  EXPECT_EQ(view(f8, "kv2").dtype, DType::kBF16);
  EXPECT_EQ(view(f8, "kv2").shape[2], 128);
  const KvLayout bf16 = MustPlan(program);
  EXPECT_EQ(view(bf16, "kv0").dtype, DType::kBF16);
  EXPECT_EQ(view(bf16, "kv0").shape[2], 576);
  EXPECT_EQ(MustPlan(program, {.dtype = DType::kF32}).page_bytes, 2 * bf16.page_bytes);
}

TEST(KvLayoutTest, AProgramOnThePagesOfAnotherTakesBlocksThatFillThem) {
  const Program program = ProgramOf({"all full"}, Times(24, "all kv bf16 2,64"));
  const int64_t own = MustPlan(program).page_bytes;  // 24 layers, 16 tokens
  const auto on = [&](int64_t page_bytes) {
    return PlanKvLayout(program, {.num_blocks = 9, .page_bytes = page_bytes});
  };
  const KvLayout wide = *on(own * 5 / 2);
  CheckPlaces(program, wide);
  EXPECT_EQ(wide.page_bytes, own * 5 / 2);
  EXPECT_EQ(wide.TableBlockSizes(), std::vector<int32_t>{32});
  const KvLayout narrow = *on(own / 12);
  CheckPlaces(program, narrow);
  EXPECT_EQ(narrow.TableBlockSizes(), std::vector<int32_t>(12, 16));
  EXPECT_NE(on(own / 25).status().message().find("but a block of one layer has"),
            std::string::npos);
}

TEST(KvLayoutTest, AProgramWithoutCachesHasNoArena) {
  const KvLayout layout = MustPlan(ProgramOf({}, {}));
  EXPECT_EQ(layout.page_bytes, 0);
  EXPECT_TRUE(layout.tables.empty());
  EXPECT_EQ(layout.arena_bytes(), 0);
}

TEST(KvLayoutTest, RefusesMoreSlotsThanInt32) {
  const Program program =
      ProgramOf({"all full", "states state_space"}, {"all kv kv 1,16", "states state f32 64,64"});
  const Status status = PlanKvLayout(program, {.num_blocks = 1 << 27}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("134217728 KV pages"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::program
