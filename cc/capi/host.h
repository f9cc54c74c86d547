// File: cc/capi/host.h
// An engine for a host without Python: reads a program's text, binds it to this machine, and starts
// an engine; or starts one with a runner of the host's own. The C ABI wraps this class; C++ hosts
// may use it directly.
//
//   HostOptions options;
//   options.program_path = "model.program";
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Host> host, Host::Create(options));
//   host->engine().Submit(...);
//
// Thread safety: engine() is; see engine.h.
#ifndef PAGEMILL_CC_CAPI_HOST_H_
#define PAGEMILL_CC_CAPI_HOST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "cc/base/clock.h"
#include "cc/base/log_sink.h"
#include "cc/base/status.h"
#include "cc/engine/engine.h"
#include "cc/engine/runner.h"
#include "cc/program/executor_options.h"

namespace pagemill::capi {

struct HostOptions {
  std::string program_path;           // a program (docs/program_format.md, program_file.h)
  int32_t num_ngram_drafts = 0;       // drafts of a request in a step, found in its text; 0 = none
  int32_t max_model_len = 2048;       // tokens of one request, prompt and output
  program::ExecutorOptions executor;  // num_blocks 0 = room for one request of max_model_len
  engine::EngineOptions engine;
  LogSink log;  // empty: silent
};

class Host {
 public:
  // kNotFound if the program cannot be read; else errors of parsing, binding or the engine.
  static StatusOr<std::unique_ptr<Host>> Create(HostOptions options);
  // The same with a runner instead of a program; of `options` only `engine` and `log` count.
  static StatusOr<std::unique_ptr<Host>> Create(HostOptions options,
                                                std::unique_ptr<engine::Runner> runner);
  ~Host();  // shuts the engine down
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  engine::Engine& engine() { return *engine_; }
  // Engine::UpdateWeights() with the text of another program. kUnimplemented without a program.
  Status UpdateWeights(const std::string& program_path, double timeout_s);
  int32_t vocab_size() const { return vocab_size_; }
  int32_t max_model_len() const { return max_model_len_; }
  int64_t NowMicros() const { return clock_.NowNanos() / 1000; }  // of the engine's clock

 private:
  Host() = default;
  SteadyClock clock_;
  int32_t vocab_size_ = 0;
  int32_t max_model_len_ = 0;
  bool has_program_ = false;
  std::unique_ptr<engine::Engine> engine_;
};

// The pages for one request of limits.max_model_len tokens, plus the null page.
StatusOr<int32_t> PagesForOneRequest(const engine::RunnerLimits& limits);

}  // namespace pagemill::capi

#endif  // PAGEMILL_CC_CAPI_HOST_H_
