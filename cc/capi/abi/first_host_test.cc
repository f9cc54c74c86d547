#include "cc/capi/abi/first_host.h"

#include <fstream>
#include <string>

#include "cc/capi/testing/bigram_model.h"
#include "gtest/gtest.h"

namespace {

TEST(FirstHost, StillGenerates) {
  const pagemill::capi::BigramModel model;
  const std::string path = testing::TempDir() + "/bigram.program";
  std::ofstream(path) << model.ProgramText();
  int tokens[8];
  const char* wrong = FirstHostGenerate(path.c_str(), 5, tokens);
  ASSERT_EQ(wrong, nullptr) << wrong;
  int expected = 5;
  for (int token : tokens) EXPECT_EQ(token, expected = model.Next(expected));
}

TEST(FirstHost, RefusalsReachIt) {
  int tokens[8];
  const char* wrong = FirstHostGenerate("/does/not/exist", 5, tokens);
  ASSERT_NE(wrong, nullptr);
  EXPECT_NE(std::string(wrong).find("/does/not/exist"), std::string::npos) << wrong;
}

}  // namespace
