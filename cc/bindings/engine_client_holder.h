// File: cc/bindings/engine_client_holder.h
// A client of an engine, and the Python engine that it belongs to, which lives longer.
#ifndef PAGEMILL_CC_BINDINGS_ENGINE_CLIENT_HOLDER_H_
#define PAGEMILL_CC_BINDINGS_ENGINE_CLIENT_HOLDER_H_

#include <nanobind/nanobind.h>

#include <memory>

#include "cc/engine/engine_client.h"

namespace pagemill::bindings {

class EngineClientHolder {
 public:
  // `engine` is an Engine. Throws StatusException.
  explicit EngineClientHolder(nanobind::object engine);
  ~EngineClientHolder() { Close(); }
  EngineClientHolder(const EngineClientHolder&) = delete;
  EngineClientHolder& operator=(const EngineClientHolder&) = delete;

  // Throws StatusException, FAILED_PRECONDITION, if it is closed.
  engine::EngineClient& client();
  void Close();

  // For the garbage collector (collectable.h).
  int Visit(visitproc visit, void* arg);
  void Forget() { Close(); }

 private:
  nanobind::object engine_;  // None if closed
  std::unique_ptr<engine::EngineClient> client_;
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_ENGINE_CLIENT_HOLDER_H_
