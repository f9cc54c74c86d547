// File: cc/base/log_sink.h
// Destination of log lines: a function object that each logging component receives. There is no
// global logger. An empty sink drops the line.
//
//   LogSink sink = [](LogSeverity severity, std::string_view line) { ... };
//   Log(sink, LogSeverity::kWarning, "the runner failed step 17: ...");
//
// Thread safety: a sink must be callable from any thread.
#ifndef PAGEMILL_CC_BASE_LOG_SINK_H_
#define PAGEMILL_CC_BASE_LOG_SINK_H_

#include <functional>
#include <string_view>

namespace pagemill {

enum class LogSeverity { kDebug, kInfo, kWarning, kError };

using LogSink = std::function<void(LogSeverity severity, std::string_view line)>;

inline void Log(const LogSink& sink, LogSeverity severity, std::string_view line) {
  if (sink) sink(severity, line);
}

}  // namespace pagemill

#endif  // PAGEMILL_CC_BASE_LOG_SINK_H_
