#include "cc/program/weights/program_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cc/program/program.h"

namespace pagemill::program {
namespace {

constexpr std::string_view kFile = "file ";

// The path of "file <id> <path>"; empty if the line has another form, which the parser reports.
std::string_view PathOf(std::string_view line) {
  const size_t space = line.find(' ', kFile.size());
  return space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
}

}  // namespace

StatusOr<std::string> ResolvePaths(std::string_view text, const std::string& folder) {
  if (folder.find('\n') != std::string::npos) {
    return InvalidArgument("the path of the program's folder has a line break: rename the folder");
  }
  std::string resolved;
  resolved.reserve(text.size());
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    const std::string_view path = line.starts_with(kFile) ? PathOf(line) : std::string_view();
    if (path.empty() || path == kConstantsPath || path.front() == '/') {
      resolved += line;
    } else {
      const std::filesystem::path relative(path);
      if (std::find(relative.begin(), relative.end(), "..") != relative.end()) {
        return InvalidArgument("the program names the weight file '" + std::string(path) +
                               "'; a relative path must not have '..': put the file into the "
                               "program's folder, or name it by an absolute path");
      }
      resolved += line.substr(0, line.size() - path.size());
      resolved += (std::filesystem::path(folder) / relative).string();
    }
    text.remove_prefix(line.size());
    if (text.empty()) break;
    resolved += '\n';
    text.remove_prefix(1);
  }
  return resolved;
}

StatusOr<std::string> ReadProgramFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return NotFound("cannot read the program '" + path + "'; `pagemill export` makes one");
  std::ostringstream text;
  text << in.rdbuf();
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return InvalidArgument("the path '" + path + "' has no absolute form");
  return ResolvePaths(text.view(), absolute.parent_path().string());
}

}  // namespace pagemill::program
