// Runs the inputs of a corpus file (tools/fuzz/corpus.py) through a fuzz target: a regression test
// of fuzzing's findings, on every CPU and without a fuzzing compiler.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// Six bits of a base64 digit; 64 for anything else.
uint32_t Digit(char c) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t at = digits.find(c);
  return at == std::string::npos ? 64 : static_cast<uint32_t>(at);
}

std::vector<uint8_t> Decode(const std::string& line) {
  std::vector<uint8_t> bytes;
  uint32_t bits = 0;
  int num_bits = 0;
  for (char c : line) {
    if (c == '=') break;
    EXPECT_LT(Digit(c), 64u) << line;
    bits = (bits << 6 | Digit(c)) & 0xffff;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> num_bits));
  }
  return bytes;
}

TEST(Corpus, EveryInputPasses) {
  const char* path = std::getenv("PAGEMILL_TEST_CORPUS");
  ASSERT_NE(path, nullptr);
  std::ifstream in(path);
  int num_inputs = 0;
  for (std::string line; std::getline(in, line); ++num_inputs) {
    const std::vector<uint8_t> bytes = Decode(line);
    EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
  }
  EXPECT_GT(num_inputs, 0) << path;
}

}  // namespace
