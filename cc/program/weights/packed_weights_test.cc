#include "cc/program/weights/packed_weights.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/numa.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/program/testing/transposed_weights.h"

namespace pagemill::program {
namespace {

// Three ops over two weights of 2 x 3 floats, 1 to 6 and 7 to 12; the first is used twice.
constexpr char kText[] = R"(pagemill-program 3
file 0 @
weight a f32 2,3 0 0
weight tied f32 2,3 0 0
weight b f32 2,3 0 24
input token_ids i32 tokens
value x f32 tokens,3
value y f32 tokens,3
value out f32 logits_rows,3
op first token_ids,a -> x
op second x,tied,b -> y
op third y,a -> out
output logits out
constants 48
0000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041
)";

Program MustParse() {
  StatusOr<Program> program = Program::Parse(kText);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

// Packings that reverse a weight's elements.
int64_t OneLine(const TensorView&) { return 64; }
Status Reverse(const TensorView& weight, std::byte* packed, device::ThreadPool&) {
  const int64_t count = weight.Elements();
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(packed + 4 * i, weight.Data<const float>() + count - 1 - i, 4);
  }
  return OkStatus();
}
constexpr ops::WeightPacking kSecondInput = {
    .layout = "reversed", .inputs = 0b010, .bytes = OneLine, .pack = Reverse};
constexpr ops::WeightPacking kBothWeights = {
    .layout = "reversed", .inputs = 0b110, .bytes = OneLine, .pack = Reverse};
constexpr ops::WeightPacking kOtherLayout = {
    .layout = "other", .inputs = 0b010, .bytes = OneLine, .pack = Reverse};

constexpr ops::WeightPacking kFollower = {
    .layout = "reversed", .inputs = 0b010, .follows = true, .bytes = OneLine, .pack = Reverse};

constexpr ops::Kernel kFollows = {.op = "op", .name = "follows", .packing = &kFollower};
constexpr ops::Kernel kPlain = {.op = "op", .name = "plain"};
constexpr ops::Kernel kPacksSecond = {.op = "op", .name = "packs", .packing = &kSecondInput};
constexpr ops::Kernel kPacksBoth = {.op = "op", .name = "packs", .packing = &kBothWeights};
constexpr ops::Kernel kPacksOther = {.op = "op", .name = "packs", .packing = &kOtherLayout};

PackedWeights MustPack(const Program& program, const std::vector<const ops::Kernel*>& rows,
                       const PackCache* cache = nullptr,
                       const device::MemoryPlacement& placement = {}) {
  const StatusOr<Weights> weights = Weights::Load(program);
  EXPECT_TRUE(weights.ok()) << weights.status().ToString();
  device::ThreadPool pool({.num_threads = 2});
  StatusOr<PackedWeights> packed =
      PackedWeights::Make(program, rows, *weights, cache, pool, placement);
  EXPECT_TRUE(packed.ok()) << packed.status().ToString();
  return *std::move(packed);
}

float First(const std::byte* data) {
  float value;
  std::memcpy(&value, data, sizeof(value));
  return value;
}

TEST(PackedWeights, WhatNoKernelPacksIsReadAsStored) {
  const Program program = MustParse();
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPlain, &kPlain};
  EXPECT_EQ(CountPackedBytes(program, kernels).packed_bytes, 0);
  EXPECT_EQ(CountPackedBytes(program, kernels).stored_bytes, 0);
  EXPECT_EQ(MustPack(program, kernels).data(0, 1), nullptr);
}

TEST(PackedWeights, OperandsOfOneWeightAndLayoutShareACopy) {
  const Program program = MustParse();
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksBoth, &kPacksSecond};
  EXPECT_EQ(CountPackedBytes(program, kernels).packed_bytes, 2 * 64);
  EXPECT_EQ(CountPackedBytes(program, kernels).stored_bytes, 2 * 24);
  const PackedWeights packed = MustPack(program, kernels);
  EXPECT_EQ(packed.data(0, 1), nullptr) << "its kernel reads it as stored";
  EXPECT_EQ(packed.data(1, 0), nullptr) << "not packed";
  EXPECT_EQ(packed.data(1, 1), packed.data(2, 1)) << "tied weights";
  EXPECT_EQ(First(packed.data(1, 1)), 6);
  EXPECT_EQ(First(packed.data(1, 2)), 12);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(packed.data(1, 2)) % 64, 0u);
}

TEST(PackedWeights, WhoFollowsTakesTheCopyOfAnotherOrNone) {
  const Program program = MustParse();
  const PackedWeights tied = MustPack(program, {&kFollows, &kPlain, &kPacksSecond});
  EXPECT_EQ(tied.data(0, 1), tied.data(2, 1));
  ASSERT_NE(tied.data(0, 1), nullptr);
  const PackedWeights untied = MustPack(program, {&kFollows, &kPacksOther, &kPlain});
  EXPECT_EQ(untied.data(0, 1), nullptr) << "no kernel packs its weight in that order";
  EXPECT_EQ(
      CountPackedBytes(program, std::vector<const ops::Kernel*>{&kFollows, &kFollows, &kPlain})
          .packed_bytes,
      0);
}

TEST(PackedWeights, KnowsWhatAnOpReadsFromEndToEnd) {
  const Program program = MustParse();
  const PackedWeights packed = MustPack(program, {&kFollows, &kPacksBoth, &kPacksSecond});
  EXPECT_TRUE(packed.ReadBy(0).empty()) << "it picks rows";
  EXPECT_EQ(packed.ReadBy(1).data(), packed.data(1, 1));
  EXPECT_EQ(packed.ReadBy(1).size(), 2u * 64);
  EXPECT_EQ(packed.ReadBy(2).size(), 64u);
  EXPECT_TRUE(packed.ReadBy(3).empty()) << "no such op";
}

TEST(PackedWeights, OperandsThatLieApartAreNotReadFromEndToEnd) {
  // The third op reads b, then a; their copies are in the order of the second op.
  StatusOr<Program> program = Program::Parse(
      std::string(kText).replace(std::string(kText).find("op third y,a"), 12, "op third y,b,a"));
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const PackedWeights packed = MustPack(*program, {&kPlain, &kPacksBoth, &kPacksBoth});
  EXPECT_EQ(packed.ReadBy(1).size(), 2u * 64);
  EXPECT_TRUE(packed.ReadBy(2).empty());
}

TEST(PackedWeights, EveryLayoutIsACopyOfItsOwn) {
  const Program program = MustParse();
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksOther, &kPacksSecond};
  EXPECT_EQ(CountPackedBytes(program, kernels).packed_bytes, 2 * 64);
  EXPECT_EQ(CountPackedBytes(program, kernels).stored_bytes, 24);
  const PackedWeights packed = MustPack(program, kernels);
  EXPECT_NE(packed.data(1, 1), packed.data(2, 1));
}

// The program with other constants, or with b where a is and a where b is.
Program Changed(const std::string& from, const std::string& to) {
  std::string text = kText;
  StatusOr<Program> program = Program::Parse(text.replace(text.find(from), from.size(), to));
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

StatusOr<PackedWeights> MakeOver(const Program& program,
                                 const std::vector<const ops::Kernel*>& kernels,
                                 const PackedWeights& loaded) {
  device::ThreadPool pool({.num_threads = 2});
  return PackedWeights::MakeOver(program, kernels, *Weights::Load(program), loaded, pool);
}

TEST(PackedWeights, OtherContentIsWrittenOverTheOldOnlyInTheEnd) {
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksBoth, &kPacksSecond};
  const PackCache cache(::testing::TempDir() + "written-over");
  device::ThreadPool pool({.num_threads = 2});
  (void)MustPack(MustParse(), kernels, &cache);
  for (const PackCache* from : {static_cast<const PackCache*>(nullptr), &cache}) {
    PackedWeights loaded = MustPack(MustParse(), kernels, from);
    EXPECT_EQ(loaded.mapped(), from != nullptr);
    const std::byte* const before = loaded.data(1, 2);
    const Program other = Changed("00004041\n", "0000a041\n");  // the last number is 20
    StatusOr<PackedWeights> made = MakeOver(other, kernels, loaded);
    ASSERT_TRUE(made.ok()) << made.status().ToString();
    EXPECT_EQ(First(loaded.data(1, 1)), 6);
    EXPECT_EQ(First(loaded.data(1, 2)), 12);
    made->TakeOver(&loaded, pool);
    EXPECT_TRUE(loaded.empty());
    EXPECT_EQ(First(made->data(1, 1)), 6);
    EXPECT_EQ(First(made->data(1, 2)), 20);
    EXPECT_EQ(made->data(1, 2) == before, from == nullptr) << "a mapped file is not written to";
    EXPECT_EQ(made->ReadBy(1).size(), 2u * 64);
  }
}

TEST(PackedWeights, WeightsThatSwapPlacesArePackedAgain) {
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksBoth, &kPlain};
  PackedWeights loaded = MustPack(MustParse(), kernels);
  const Program swapped =
      Changed("tied f32 2,3 0 0\nweight b f32 2,3 0 24", "tied f32 2,3 0 24\nweight b f32 2,3 0 0");
  StatusOr<PackedWeights> made = MakeOver(swapped, kernels, loaded);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  device::ThreadPool pool({.num_threads = 1});
  made->TakeOver(&loaded, pool);
  EXPECT_EQ(First(made->data(1, 1)), 12);
  EXPECT_EQ(First(made->data(1, 2)), 6);
}

TEST(PackedWeights, WeightsThatAreNotTiedAnyMoreAreRefused) {
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksBoth, &kPacksSecond};
  PackedWeights loaded = MustPack(MustParse(), kernels);
  const StatusOr<PackedWeights> made =
      MakeOver(Changed("tied f32 2,3 0 0", "tied f32 2,3 0 24"), kernels, loaded);
  EXPECT_EQ(made.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(First(loaded.data(1, 1)), 6);
}

// A matrix of one row of 32 nibbles, 1 to 8 four times, with the scale 1 and the zero point 2 for
// all; and one of two rows of int8, which has scales. Each is read by two ops.
constexpr char kQuantized[] = R"(pagemill-program 3
file 0 @
weight v i32 1,4 0 0
weight z i32 1,1 0 16
weight s f32 1,1 0 20
weight bytes i8 2,4 0 0
weight scales f32 2,1 0 16
quantized a u4 1,32 pack_quantized 1,32 v,s,z,-
quantized b i8 2,4 scaled 1,4 bytes,scales,-,-
input token_ids i32 tokens
value x f32 tokens,3
value y f32 tokens,3
value out f32 logits_rows,3
op first token_ids,a -> x
op second x,a -> y
op third y,b -> out
output logits out
constants 24
21436587214365872143658721436587020000000000803f
)";

Program MustParseQuantized() {
  StatusOr<Program> program = Program::Parse(kQuantized);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

// One packs all parts: the first element, 1 - 2. The other packs only values: their first byte.
Status KeepFirst(const TensorView& weight, std::byte* packed, device::ThreadPool&) {
  const ops::PackedIntegers integers(weight, 0);
  PAGEMILL_RETURN_IF_ERROR(integers.CheckNumbers());
  std::vector<float> row(32);
  integers.ReadRow(0, row.data());
  std::memcpy(packed, row.data(), sizeof(float));
  return OkStatus();
}
constexpr ops::WeightPacking kFirstOnly = {
    .layout = "first", .inputs = 0b010, .bytes = OneLine, .pack = KeepFirst, .view = ops::AsBlocks};
constexpr ops::Kernel kPacksFirst = {.op = "op", .name = "packs", .packing = &kFirstOnly};
constexpr ops::WeightPacking kValuesOnly = {
    .layout = "values",
    .inputs = 0b010,
    .bytes = OneLine,
    .pack = [](const TensorView& weight, std::byte* packed, device::ThreadPool&) {
      std::memcpy(packed, weight.parts->values.data, 1);
      return OkStatus();
    }};
constexpr ops::Kernel kPacksValues = {.op = "op", .name = "packs", .packing = &kValuesOnly};

TEST(PackedWeights, AQuantizedWeightIsPackedFromItsParts) {
  const Program program = MustParseQuantized();
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksFirst, &kPacksValues};
  EXPECT_EQ(CountPackedBytes(program, kernels).packed_bytes, 2 * 64);
  EXPECT_EQ(CountPackedBytes(program, kernels).stored_bytes, 24 + 8 + 8) << "of its parts";
  const PackedWeights packed = MustPack(program, kernels);
  EXPECT_EQ(packed.data(0, 1), nullptr) << "read as stored, with its parts";
  EXPECT_TRUE(packed.reordered(1, 1));
  EXPECT_EQ(First(packed.data(1, 1)), -1);
  EXPECT_EQ(static_cast<int>(*packed.data(2, 1)), 0x21);
  EXPECT_EQ(packed.part(*program.Find("scales")), nullptr) << "used in the file";
}

TEST(PackedWeights, AQuantizedWeightThatCannotBeReadIsAnError) {
  std::string text = kQuantized;
  text.replace(text.find("0000803f"), 8, "0000c07f");  // the scale is not a number
  const Program program = *Program::Parse(text);
  const StatusOr<Weights> weights = Weights::Load(program);
  ASSERT_TRUE(weights.ok());
  device::ThreadPool pool({.num_threads = 2});
  for (const ops::Kernel* reader : {&kPlain, &kPacksFirst}) {
    const std::vector<const ops::Kernel*> kernels = {reader, reader, &kPlain};
    const Status status = PackedWeights::Make(program, kernels, *weights, nullptr, pool).status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss);
    EXPECT_NE(status.message().find("weight 'a' has a scale"), std::string::npos)
        << status.message();
  }
}

// A stack of int8 matrices, with values and scales each in one stack; one matrix is columns of a
// wider one.
constexpr char kQuantizedStack[] = R"(pagemill-program 3
file 0 @
weight v0 i8 2,4 0 0
weight v1 i8 2,4 0 8 6
weight s0 f32 2,1 0 20
weight s1 f32 2,1 0 24
stack v i8 2,2,4 v0,v1
stack s f32 2,2,1 s0,s1
quantized w i8 2,2,4 scaled 1,4 v,s,-,-
input token_ids i32 tokens
value x f32 tokens,3
value out f32 logits_rows,3
op first token_ids,w -> x
op second x,w -> out
output logits out
constants 32
0102030405060708090a0b0c0d0e0f10111213140000803f0000004000004040
)";

// Packs every value, matrix by matrix.
constexpr ops::WeightPacking kValuesOfEach = {
    .layout = "values of each",
    .inputs = 0b010,
    .bytes = [](const TensorView& w) { return 64 * w.shape[0]; },
    .pack =
        [](const TensorView& w, std::byte* packed, device::ThreadPool&) {
          EXPECT_EQ(w.shape[0], 1) << "matrix by matrix";
          EXPECT_TRUE(w.parts->values.IsDense());
          std::memcpy(packed, w.parts->values.data, 8);
          return OkStatus();
        }};
constexpr ops::Kernel kPacksEachValues = {.op = "op", .name = "packs", .packing = &kValuesOfEach};

TEST(PackedWeights, AStackOfQuantizedMatricesIsStackedPartByPart) {
  const StatusOr<Program> program = Program::Parse(kQuantizedStack);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const std::vector<const ops::Kernel*> kernels = {&kPacksEachValues, &kPlain};
  const PackedWeights packed = MustPack(*program, kernels);
  const auto bytes = [](const std::byte* data) {
    return std::vector<int>{static_cast<int>(data[0]), static_cast<int>(data[4]),
                            static_cast<int>(data[7])};
  };
  EXPECT_EQ(bytes(packed.data(0, 1)), (std::vector{1, 5, 8}));
  EXPECT_EQ(bytes(packed.data(0, 1) + 64), (std::vector{9, 15, 18}));
  const std::byte* const values = packed.part(*program->Find("v"));
  ASSERT_NE(values, nullptr) << "for the kernel that reads it as stored";
  EXPECT_EQ(bytes(values + 8), (std::vector{9, 15, 18}));
  const std::byte* const scales = packed.part(*program->Find("s"));
  ASSERT_NE(scales, nullptr);
  const float expected[] = {1, 2, 2, 3};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(First(scales + 4 * i), expected[i]);
  const PackedWeights only_packed = MustPack(*program, {&kPacksEachValues, &kPacksEachValues});
  EXPECT_EQ(only_packed.part(*program->Find("v")), nullptr) << "no kernel reads it";
  EXPECT_NE(only_packed.part(*program->Find("s")), nullptr);
}

// Matrices of 2 x 3 floats from 1 to 6, and in columns of wider rows.
constexpr char kStacked[] = R"(pagemill-program 3
file 0 @
weight p f32 2,3 0 0
weight q f32 2,3 0 4 16
stack both f32 2,2,3 p,q
input token_ids i32 tokens
value x f32 tokens,3
value out f32 logits_rows,3
op first token_ids,both -> x
op second x,both -> out
output logits out
constants 48
0000803f0000004000004040000080400000a0400000c0400000e0400000004100001041000020410000304100004041
)";

constexpr ops::WeightPacking kReversesEach = {
    .layout = "reversed each",
    .inputs = 0b010,
    .bytes = [](const TensorView& w) { return 64 * w.shape[0]; },
    .pack =
        [](const TensorView& w, std::byte* packed, device::ThreadPool& pool) {
          EXPECT_EQ(w.shape[0], 1) << "part by part";
          return Reverse(w, packed, pool);
        }};
constexpr ops::Kernel kPacksEach = {.op = "op", .name = "packs", .packing = &kReversesEach};

TEST(PackedWeights, AStackIsPackedPartByPart) {
  const StatusOr<Program> program = Program::Parse(kStacked);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const std::vector<const ops::Kernel*> kernels = {&kPacksEach, &kPlain};
  EXPECT_EQ(CountPackedBytes(*program, kernels).packed_bytes, 2 * 64 + 64);
  EXPECT_EQ(CountPackedBytes(*program, kernels).stored_bytes, 24 + 24) << "of its parts";
  const PackedWeights packed = MustPack(*program, kernels);
  EXPECT_EQ(First(packed.data(0, 1)), 6);
  EXPECT_EQ(First(packed.data(0, 1) + 64), 8) << "columns 1 to 3 of the wider matrix";
  EXPECT_TRUE(packed.ReadBy(0).empty()) << "a step reads some of it";
  EXPECT_FALSE(packed.reordered(1, 1)) << "row by row";
  const float values[] = {1, 2, 3, 4, 5, 6, 2, 3, 4, 6, 7, 8};
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(First(packed.data(1, 1) + 4 * i), values[i]) << "element " << i;
  }
}

TEST(PackedWeights, ATransposedMatrixIsCopiedRowByRow) {
  const StatusOr<Program> program = Program::Parse(testing::kTransposedWeights);
  ASSERT_TRUE(program.ok()) << program.status().ToString();
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksSecond, &kPlain};
  EXPECT_EQ(CountPackedBytes(*program, kernels).packed_bytes, 3 * 64);
  EXPECT_EQ(CountPackedBytes(*program, kernels).stored_bytes, 2 * 24);
  const PackedWeights packed = MustPack(*program, kernels);
  const auto& values = testing::kTransposedValues;
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(First(packed.data(2, 1) + 4 * i), values[i]) << "element " << i;
  }
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(First(packed.data(0, 1) + 4 * i), values[i]) << "element " << i;
    EXPECT_EQ(First(packed.data(1, 1) + 4 * i), values[5 - i]) << "element " << i;
  }
  EXPECT_FALSE(packed.reordered(0, 1));
  EXPECT_TRUE(packed.reordered(1, 1));
}

class PackedWeightsCacheTest : public ::testing::Test {
 protected:
  PackedWeightsCacheTest() { EXPECT_NE(::mkdtemp(folder_.data()), nullptr); }
  ~PackedWeightsCacheTest() override { std::filesystem::remove_all(folder_); }

  std::string folder_ = ::testing::TempDir() + "/packed_weights_test_XXXXXX";
};

TEST_F(PackedWeightsCacheTest, TheSecondTimeMapsWhatTheFirstPacked) {
  const PackCache cache(folder_);
  const Program program = MustParse();
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksBoth, &kPlain};
  EXPECT_FALSE(MustPack(program, kernels, &cache).from_cache());
  const PackedWeights packed = MustPack(program, kernels, &cache);
  EXPECT_TRUE(packed.from_cache());
  EXPECT_TRUE(packed.mapped());
  EXPECT_TRUE(packed.store_status().ok());
  EXPECT_EQ(First(packed.data(1, 1)), 6);
  EXPECT_EQ(First(packed.data(1, 2)), 12);
}

// A process that reads a mapping of a truncated file would die.
TEST_F(PackedWeightsCacheTest, PlacedWeightsAreCopiesOfWhatTheCacheHas) {
  const PackCache cache(folder_);
  const Program program = MustParse();
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksBoth, &kPlain};
  EXPECT_FALSE(MustPack(program, kernels, &cache).from_cache());
  const device::MemoryPlacement on_node = {device::MemoryPlacement::Kind::kOnNode, {0}};
  const PackedWeights packed = MustPack(program, kernels, &cache, on_node);
  EXPECT_TRUE(packed.from_cache());
  EXPECT_FALSE(packed.mapped());
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    std::filesystem::resize_file(file.path(), 0);
  }
  EXPECT_EQ(First(packed.data(1, 1)), 6);
  EXPECT_EQ(First(packed.data(1, 2)), 12);
  EXPECT_FALSE(MustPack(program, kernels, &cache, on_node).from_cache()) << "nothing is left";
}

int64_t TwoMebibytes(const TensorView&) { return 2 << 20; }
constexpr ops::WeightPacking kLargeCopy = {
    .layout = "large", .inputs = 0b010, .bytes = TwoMebibytes, .pack = Reverse};
constexpr ops::Kernel kPacksLarge = {.op = "op", .name = "packs", .packing = &kLargeCopy};

// On a fake system with large pages of 1 MiB, which reports how much of any mapping lies in them.
TEST_F(PackedWeightsCacheTest, WhatTheCacheMapsInSmallPagesIsCopied) {
  const std::string pages = folder_ + "/sys/kernel/mm/transparent_hugepage";
  std::filesystem::create_directories(pages);
  std::ofstream(pages + "/hpage_pmd_size") << (1 << 20);
  std::ofstream(pages + "/enabled") << "always [madvise] never";
  std::filesystem::create_directories(folder_ + "/proc/self");
  const PackCache cache(folder_ + "/packed", std::nullopt, folder_);
  const Program program = MustParse();
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksLarge, &kPlain};
  EXPECT_FALSE(MustPack(program, kernels, &cache).mapped()) << "packed at this start";
  for (const auto& [large_kibibytes, mapped] : {std::pair(2048, true), std::pair(1023, false)}) {
    std::ofstream(folder_ + "/proc/self/smaps")
        << "1000-fffffffffffff000 r--p\nFilePmdMapped: " << large_kibibytes << " kB\n";
    const PackedWeights packed = MustPack(program, kernels, &cache);
    EXPECT_TRUE(packed.from_cache());
    EXPECT_EQ(packed.mapped(), mapped) << large_kibibytes;
    EXPECT_EQ(First(packed.data(1, 1)), 6);
  }
}

TEST_F(PackedWeightsCacheTest, ADamagedFileIsReplacedAndNamed) {
  const PackCache cache(folder_);
  const Program program = MustParse();
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksBoth, &kPlain};
  EXPECT_TRUE(MustPack(program, kernels, &cache).damage().ok()) << "there was none";
  for (const auto& file : std::filesystem::directory_iterator(folder_)) {
    std::filesystem::resize_file(file.path(), 5000);
  }
  const PackedWeights packed = MustPack(program, kernels, &cache);
  EXPECT_FALSE(packed.from_cache());
  EXPECT_EQ(packed.damage().code(), StatusCode::kDataLoss);
  EXPECT_NE(packed.damage().message().find(folder_), std::string::npos);
  EXPECT_EQ(First(packed.data(1, 1)), 6);
  EXPECT_TRUE(MustPack(program, kernels, &cache).from_cache()) << "the file is whole again";
}

TEST_F(PackedWeightsCacheTest, OtherBytesOrLayoutsAreOtherEntries) {
  const PackCache cache(folder_);
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksSecond, &kPlain};
  EXPECT_FALSE(MustPack(MustParse(), kernels, &cache).from_cache());
  EXPECT_FALSE(MustPack(MustParse(), {&kPlain, &kPacksOther, &kPlain}, &cache).from_cache());
  std::string text = kText;
  text.replace(text.find("0000c040"), 8, "0000c0c0");  // 6 becomes -6
  const StatusOr<Program> other = Program::Parse(text);
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  const PackedWeights packed = MustPack(*other, kernels, &cache);
  EXPECT_FALSE(packed.from_cache());
  EXPECT_EQ(First(packed.data(1, 1)), -6);
}

TEST_F(PackedWeightsCacheTest, OtherPartsOrFormatsAreOtherEntries) {
  const PackCache cache(folder_);
  const std::vector<const ops::Kernel*> kernels = {&kPlain, &kPacksFirst, &kPacksValues};
  EXPECT_FALSE(MustPack(MustParseQuantized(), kernels, &cache).from_cache());
  EXPECT_TRUE(MustPack(MustParseQuantized(), kernels, &cache).from_cache());
  for (const auto& [from, to] : {std::pair("s,z,-", "s,-,-"), std::pair("0000803f", "00000040"),
                                 std::pair("020000", "030000"), std::pair("1,32 v", "1,64 v"),
                                 std::pair("bytes i8 2,4 0 0", "bytes i8 2,4 0 4")}) {
    std::string text = kQuantized;
    text.replace(text.find(from), std::string(from).size(), to);
    const StatusOr<Program> other = Program::Parse(text);
    ASSERT_TRUE(other.ok()) << other.status().ToString();
    EXPECT_FALSE(MustPack(*other, kernels, &cache).from_cache()) << to;
  }
}

TEST_F(PackedWeightsCacheTest, OtherStacksAreOtherEntries) {
  const PackCache cache(folder_);
  const std::vector<const ops::Kernel*> kernels = {&kPacksEach, &kPlain};
  EXPECT_FALSE(MustPack(*Program::Parse(kStacked), kernels, &cache).from_cache());
  EXPECT_TRUE(MustPack(*Program::Parse(kStacked), kernels, &cache).from_cache());
  for (const auto& [from, to] : {std::pair(" p,q", " q,p"), std::pair("0 4 16", "0 4 20"),
                                 std::pair("0000803f", "00000040")}) {
    std::string text = kStacked;
    text.replace(text.find(from), std::string(from).size(), to);
    const StatusOr<Program> other = Program::Parse(text);
    ASSERT_TRUE(other.ok()) << other.status().ToString();
    EXPECT_FALSE(MustPack(*other, kernels, &cache).from_cache()) << to;
  }
}

StatusOr<PackedWeights> PackBeside(const PackedWeights& other, const std::string& text,
                                   const std::vector<const ops::Kernel*>& kernels) {
  PAGEMILL_ASSIGN_OR_RETURN(const Program program, Program::Parse(text));
  PAGEMILL_ASSIGN_OR_RETURN(const Weights weights, Weights::Load(program));
  device::ThreadPool pool({.num_threads = 1});
  return PackedWeights::Make(program, kernels, weights, nullptr, pool, {}, &other);
}

TEST(PackedWeights, ProgramsShareCopiesOfOneContent) {
  const PackedWeights first = MustPack(MustParse(), {&kPlain, &kPacksBoth, &kPacksSecond});
  // Names and ops do not matter, only bytes and packed layout.
  std::string text = kText;
  for (size_t at; (at = text.find("tied")) != std::string::npos;) text.replace(at, 4, "same");
  const auto second = PackBeside(first, text, {&kFollows, &kPlain, &kPacksSecond});
  ASSERT_TRUE(second.ok()) << second.status().ToString();
  EXPECT_EQ(second->data(2, 1), first.data(2, 1));
  EXPECT_EQ(second->data(0, 1), first.data(2, 1)) << "a follower of what is shared";
  EXPECT_EQ(second->ReadBy(2).data(), first.data(2, 1));
  // A third program shares what the first two share.
  const auto third = PackBeside(*second, kText, {&kPlain, &kPacksSecond, &kPlain});
  ASSERT_TRUE(third.ok()) << third.status().ToString();
  EXPECT_EQ(third->data(1, 1), first.data(2, 1));
}

TEST(PackedWeights, ProgramsDoNotShareOtherOrdersOrBytes) {
  const PackedWeights first = MustPack(MustParse(), {&kPlain, &kPlain, &kPacksSecond});
  const auto order = PackBeside(first, kText, {&kPlain, &kPlain, &kPacksOther});
  ASSERT_TRUE(order.ok()) << order.status().ToString();
  EXPECT_NE(order->data(2, 1), first.data(2, 1));
  std::string text = kText;
  text.replace(text.find("0000c040"), 8, "0000c0c0");  // 6 becomes -6
  const auto bytes = PackBeside(first, text, {&kPlain, &kPlain, &kPacksSecond});
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  EXPECT_EQ(First(bytes->data(2, 1)), -6);
  // A program that shares some copies packs the others.
  const auto some = PackBeside(first, kText, {&kPlain, &kPacksBoth, &kPlain});
  ASSERT_TRUE(some.ok()) << some.status().ToString();
  EXPECT_EQ(some->data(1, 1), first.data(2, 1));
  EXPECT_EQ(First(some->data(1, 2)), 12);
}

TEST_F(PackedWeightsCacheTest, ACacheThatCannotBeWrittenIsNoFailure) {
  const std::string file = folder_ + "/a_file";
  std::ofstream(file) << "no folder";
  const PackCache cache(file);
  const PackedWeights packed = MustPack(MustParse(), {&kPlain, &kPacksSecond, &kPlain}, &cache);
  EXPECT_EQ(First(packed.data(1, 1)), 6);
  EXPECT_EQ(packed.store_status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace pagemill::program
