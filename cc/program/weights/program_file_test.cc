#include "cc/program/weights/program_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace pagemill::program {
namespace {

TEST(ProgramFile, RelativePathsBeginAtTheFolder) {
  const StatusOr<std::string> text = ResolvePaths(
      "pagemill-program 3\nfile 0 a b.gguf\nfile 1 @\nfile 2 /abs/c\nfile 3 sub/d\nop x -> y\n",
      "/models/smol");
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(*text,
            "pagemill-program 3\nfile 0 /models/smol/a b.gguf\nfile 1 @\nfile 2 /abs/c\n"
            "file 3 /models/smol/sub/d\nop x -> y\n");
}

TEST(ProgramFile, PathsThatLeaveTheFolderAreRefusedByName) {
  for (const char* path : {"..", "../w", "a/../../w", "a/..", "./../w"}) {
    const StatusOr<std::string> text = ResolvePaths(std::string("file 0 ") + path, "/models");
    ASSERT_FALSE(text.ok()) << path;
    EXPECT_EQ(text.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(text.status().message().find("'" + std::string(path) + "'"), std::string::npos);
  }
  EXPECT_FALSE(ResolvePaths("", "/a\nfile 0 b").ok());
}

TEST(ProgramFile, OtherTextStaysAsItIs) {
  for (const char* text : {"", "\n", "file", "file 0", "file 0 ", "files 0 ../x", "a\n\nb"}) {
    EXPECT_EQ(*ResolvePaths(text, "/models"), text);
  }
}

TEST(ProgramFile, ReadsFromTheProgramsOwnFolder) {
  const std::string folder = ::testing::TempDir();
  const std::string path = folder + "/some.program";
  std::ofstream(path) << "file 0 w\n";
  const StatusOr<std::string> text = ReadProgramFile(path);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "file 0 " + (folder + (folder.back() == '/' ? "w\n" : "/w\n")));
  EXPECT_EQ(ReadProgramFile("/does/not/exist").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace pagemill::program
