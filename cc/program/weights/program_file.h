// File: cc/program/weights/program_file.h
// Reads a program from a file: the text that Program::Parse() takes, with the paths of its weight
// files resolved. A relative path begins at the program's folder, so a folder with a program and
// its weights can be moved (`pagemill export` writes such folders).
//
//   PAGEMILL_ASSIGN_OR_RETURN(const std::string text, ReadProgramFile("exported/model.program"));
//   PAGEMILL_ASSIGN_OR_RETURN(Program program, Program::Parse(text));
//
// Thread safety: all.
#ifndef PAGEMILL_CC_PROGRAM_WEIGHTS_PROGRAM_FILE_H_
#define PAGEMILL_CC_PROGRAM_WEIGHTS_PROGRAM_FILE_H_

#include <string>
#include <string_view>

#include "cc/base/status.h"

namespace pagemill::program {

// kNotFound if the file cannot be read; the errors of ResolvePaths().
StatusOr<std::string> ReadProgramFile(const std::string& path);

// The text with relative paths of weight files continued from `folder`. kInvalidArgument names a
// relative path that has "..": a program must not reach outside of its folder. O(text).
StatusOr<std::string> ResolvePaths(std::string_view text, const std::string& folder);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_WEIGHTS_PROGRAM_FILE_H_
