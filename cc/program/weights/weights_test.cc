#include "cc/program/weights/weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "cc/program/weights/mapped_file.h"

namespace pagemill::program {
namespace {

// A temporary file, removed when the test ends.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::vector<uint8_t>& bytes) {
    path_ = ::testing::TempDir() + "/weights_test_XXXXXX";
    const int fd = ::mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    ::close(fd);
    std::ofstream(path_, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Bytes 0, 1, 2, ...
std::vector<uint8_t> Counting(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i);
  return bytes;
}

Program MakeProgram(const std::string& files_and_weights, const std::string& constants = "") {
  StatusOr<Program> program =
      Program::Parse("pagemill-program 3\n" + files_and_weights +
                     "input token_ids i32 tokens\nvalue out f32 logits_rows,1\n"
                     "op any token_ids -> out\noutput logits out\n" +
                     constants);
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

Weights MustLoad(const Program& program) {
  StatusOr<Weights> weights = Weights::Load(program);
  EXPECT_TRUE(weights.ok()) << weights.status().ToString();
  return *std::move(weights);
}

const std::byte* Data(const Weights& weights, const Program& program, const std::string& name) {
  return weights.data(*program.Find(name));
}

// The value of the little-endian element at `offset` of the counting file.
template <typename T>
T Expected(size_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(T(offset + i) << (8 * i));
  return value;
}

TEST(WeightsTest, ReadsLittleEndianElementsAtAnyOffset) {
  const TemporaryFile file(Counting(200));
  const Program program =
      MakeProgram("file 0 " + file.path() +
                  "\nweight a f32 2,2 0 16\nweight odd f32 3 0 33\nweight half bf16 3 0 50\n"
                  "weight odd_half f16 3 0 51\nweight block q8_0 1,32 0 101\n");
  const Weights weights = MustLoad(program);
  const auto check = [&]<typename T>(const char* name, size_t offset, size_t count, T) {
    const std::byte* data = Data(weights, program, name);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % sizeof(T), 0u) << name;
    for (size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, data + i * sizeof(T), sizeof(T));
      EXPECT_EQ(value, Expected<T>(offset + i * sizeof(T))) << name << " element " << i;
    }
  };
  check("a", 16, 4, uint32_t{});
  check("odd", 33, 3, uint32_t{});
  check("half", 50, 3, uint16_t{});
  check("odd_half", 51, 3, uint16_t{});
  check("block", 101, 34, uint8_t{});
}

TEST(WeightsTest, MapsWhatItNeedNotCopy) {
  const TemporaryFile file(Counting(200));
  const Program program = MakeProgram("file 0 " + file.path() +
                                      "\nweight a f32 2,2 0 16\nweight tied f32 2,2 0 16\n"
                                      "weight vector f32 4 0 80\nweight odd f32 3,1 0 33\n"
                                      "weight also_odd f32 3,1 0 33\nweight q q8_0 1,32 0 101\n");
  const WeightBytes bytes = CountWeightBytes(program);
  EXPECT_EQ(bytes.total_bytes, 16 + 16 + 12 + 34);
  const bool big = std::endian::native == std::endian::big;
  EXPECT_EQ(bytes.copied_bytes, big ? 16 + 16 + 12 : 16 + 12);
  const Weights weights = MustLoad(program);
  EXPECT_EQ(Data(weights, program, "a"), Data(weights, program, "tied"));
  EXPECT_EQ(Data(weights, program, "odd"), Data(weights, program, "also_odd"));
  if (!big) {
    EXPECT_EQ(Data(weights, program, "q") - Data(weights, program, "a"), 101 - 16);
    EXPECT_NE(Data(weights, program, "vector") - Data(weights, program, "a"), 80 - 16);
  }
}

TEST(WeightsTest, ColumnsOfAWiderMatrixKeepItsRowStride) {
  const TemporaryFile file(Counting(200));
  const Program program = MakeProgram("file 0 " + file.path() +
                                      "\nweight left f32 3,2 0 16 20\nweight odd f32 3,2 0 17 20\n"
                                      "weight tail u8 2,4 0 188 8\n");
  const WeightBytes bytes = CountWeightBytes(program);
  EXPECT_EQ(bytes.total_bytes, 24 + 24 + 8);
  const bool big = std::endian::native == std::endian::big;
  EXPECT_EQ(bytes.copied_bytes, (big ? 2 : 1) * (2 * 20 + 8));
  const Weights weights = MustLoad(program);
  for (size_t row = 0; row < 3; ++row) {
    for (const auto& [name, offset] :
         {std::pair("left", size_t{16}), std::pair("odd", size_t{17})}) {
      uint32_t second;
      std::memcpy(&second, Data(weights, program, name) + 20 * row + 4, sizeof(second));
      EXPECT_EQ(second, Expected<uint32_t>(offset + 20 * row + 4)) << name << " row " << row;
    }
  }
  EXPECT_EQ(Data(weights, program, "tail")[11], std::byte{199}) << "ends with the file";
}

TEST(WeightsTest, ConstantsAreAFile) {
  const Program program =
      MakeProgram("file 0 @\nweight c f32 1 0 4\n", "constants 8\n0000803f00000040\n");
  float value;
  std::memcpy(&value, Data(MustLoad(program), program, "c"), sizeof(value));
  EXPECT_EQ(value, 2.0f);
}

TEST(WeightsTest, SurvivesBeingMoved) {
  const TemporaryFile file(Counting(200));
  const Program program = MakeProgram("file 0 " + file.path() + "\nweight a u8 200 0 0\n");
  Weights weights = MustLoad(program);
  const Weights moved = std::move(weights);
  EXPECT_EQ(Data(moved, program, "a")[199], std::byte{199});
}

TEST(WeightsTest, RefusesWeightsBeyondTheFile) {
  const TemporaryFile file(Counting(100));
  for (const char* weight :
       {"f32 4 0 85", "u8 3,4 0 0 49", "f32 26 0 0", "u8 1 0 100", "f32 1 0 4611686018427387904"}) {
    const StatusOr<Weights> weights =
        Weights::Load(MakeProgram("file 0 " + file.path() + "\nweight w " + weight + "\n"));
    ASSERT_FALSE(weights.ok()) << weight;
    EXPECT_EQ(weights.status().code(), StatusCode::kDataLoss);
    EXPECT_NE(weights.status().message().find("which has 100"), std::string::npos);
    EXPECT_NE(weights.status().message().find("'w'"), std::string::npos);
  }
  MustLoad(MakeProgram("file 0 " + file.path() + "\nweight w f32 4 0 84\n"));
}

TEST(WeightsTest, NamesTheFileThatCannotBeOpened) {
  const StatusOr<Weights> missing =
      Weights::Load(MakeProgram("file 0 /nowhere/model.gguf\nweight w f32 4 0 0\n"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_NE(missing.status().message().find("/nowhere/model.gguf"), std::string::npos);
  const StatusOr<MappedFile> folder = MappedFile::Open(::testing::TempDir());
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.status().code(), StatusCode::kInvalidArgument);
}

TEST(MappedFileTest, AnEmptyFileHasNoBytes) {
  const TemporaryFile file({});
  const StatusOr<MappedFile> mapped = MappedFile::Open(file.path());
  ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
  EXPECT_TRUE(mapped->bytes().empty());
}

TEST(CopyElementsTest, IsItsOwnInverse) {
  const std::array<std::byte, 4> source = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  for (int32_t element : {1, 2, 4}) {
    std::array<std::byte, 4> once, twice;
    CopyElements(source, element, once);
    CopyElements(once, element, twice);
    EXPECT_EQ(twice, source);
    EXPECT_EQ(once == source, std::endian::native == std::endian::little || element == 1);
  }
}

}  // namespace
}  // namespace pagemill::program
