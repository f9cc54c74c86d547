// File: cc/program/testing/changed_text.h
// Program texts with one change each, for tests of what parsers reject. Test code only.
//   INSTANTIATE_TEST_SUITE_P(Texts, MyErrorTest, ::testing::Values(BadText{...}), BadTextName);
//   TEST_P(MyErrorTest, NamesLineAndCause) { ExpectRefused(kText, GetParam()); }
#ifndef PAGEMILL_CC_PROGRAM_TESTING_CHANGED_TEXT_H_
#define PAGEMILL_CC_PROGRAM_TESTING_CHANGED_TEXT_H_

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "cc/program/program.h"

namespace pagemill::program::testing {

// `text`, which must contain `from`, with the first occurrence replaced.
inline std::string Replace(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

struct BadText {
  const char* name;
  const char* from;
  const char* to;
  const char* message;  // a substring
};

inline std::string BadTextName(const ::testing::TestParamInfo<BadText>& info) {
  return info.param.name;
}

// Expects the changed text to be an invalid argument with the expected message.
inline void ExpectRefused(const std::string& text, const BadText& bad) {
  const StatusOr<Program> program = Program::Parse(Replace(text, bad.from, bad.to));
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(program.status().message().find(bad.message), std::string::npos)
      << program.status().message();
}

// Replaces each byte of [begin, end) of `text` by each of `characters`: a text that still parses
// must have a canonical form, and nothing may crash.
inline void ExpectGarbageIsSafe(const std::string& text, size_t begin, size_t end,
                                std::string_view characters) {
  for (size_t i = begin; i < end; ++i) {
    for (char c : characters) {
      std::string changed = text;
      changed[i] = c;
      const StatusOr<Program> program = Program::Parse(changed);
      if (program.ok()) {
        EXPECT_EQ(*Program::Parse(program->ToText()), *program);
      }
    }
  }
}

}  // namespace pagemill::program::testing

#endif  // PAGEMILL_CC_PROGRAM_TESTING_CHANGED_TEXT_H_
