#include "cc/engine/engine.h"

#include <utility>

#include "cc/engine/step_loop.h"

namespace pagemill::engine {

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options,
                                                 std::unique_ptr<Runner> runner, const Clock* clock,
                                                 LogSink log) {
  PM_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                      Create(options, runner.get(), clock, std::move(log)));
  engine->owned_runner_ = std::move(runner);
  return engine;
}

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, Runner* runner,
                                                 const Clock* clock, LogSink log) {
  PM_ASSIGN_OR_RETURN(std::unique_ptr<StepLoop> loop,
                      StepLoop::Create(options, runner, clock, std::move(log)));
  return std::unique_ptr<Engine>(new Engine(std::move(loop)));
}

Engine::Engine(std::unique_ptr<StepLoop> loop) : loop_(std::move(loop)) {}
Engine::~Engine() = default;

Status Engine::Submit(step::Request request) { return loop_->Submit(std::move(request)); }
void Engine::Abort(step::RequestId id) { loop_->Abort(id); }
std::vector<RequestOutput> Engine::Poll() { return loop_->Take(0); }
std::vector<RequestOutput> Engine::Wait(double timeout_s) { return loop_->Take(timeout_s); }
int Engine::output_fd() const { return loop_->output_fd(); }
EngineStats Engine::stats() const { return loop_->stats(); }
void Engine::Drain() { loop_->Drain(); }
bool Engine::WaitIdle(double timeout_s) { return loop_->WaitIdle(timeout_s); }
void Engine::Shutdown() { loop_->Shutdown(); }
void Engine::Release(step::RequestId id) { loop_->Release(id); }
Status Engine::Extend(step::RequestId id, std::vector<int32_t> token_ids,
                      scheduler::InputPart part) {
  return loop_->Extend(id, std::move(token_ids), part);
}
void Engine::Pause(scheduler::PauseMode mode) { loop_->Pause(mode); }
bool Engine::WaitPaused(double timeout_s) { return loop_->WaitPaused(timeout_s); }
void Engine::Resume() { loop_->Resume(); }
bool Engine::ResetPrefixCache(bool preempt_running) {
  return loop_->ResetPrefixCache(preempt_running);
}

}  // namespace pagemill::engine
