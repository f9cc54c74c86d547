// File: cuda/emulation/fiber.h
// A stack of its own that one host thread switches to and back from: about 10 ns a switch.
//
//   Fiber fiber;
//   fiber.Start([&] { first(); fiber.Suspend(); second(); });
//   fiber.Resume();  // runs first()
//   fiber.Resume();  // runs second(); the fiber is finished
//
// A fiber that never finishes may be started again: what is on its stack is dropped without
// destructors. Not thread-safe. x86-64 only. AddressSanitizer knows of the switches.
#ifndef PAGEMILL_CUDA_EMULATION_FIBER_H_
#define PAGEMILL_CUDA_EMULATION_FIBER_H_

#include <cstddef>
#include <functional>
#include <memory>

namespace pagemill::gpu::emulation {

class Fiber {
 public:
  // Not a power of two, so that the ends of stacks that follow each other meet in no cache set.
  static constexpr size_t kStackBytes = (size_t{64} << 10) + 320;

  Fiber();
  Fiber(const Fiber&) = delete;  // its address is on its stack
  Fiber& operator=(const Fiber&) = delete;

  // `body` must outlive the fiber's run.
  void Start(const std::function<void()>& body);
  // Called by the host thread, on a fiber that is started and not finished.
  void Resume();
  // Called on the fiber: returns when it is resumed.
  void Suspend() { SwitchToHost(/*last=*/false); }

  bool finished() const { return finished_; }

 private:
  static void Entry();
  void SwitchToHost(bool last);

  std::unique_ptr<std::byte[]> stack_;
  const std::function<void()>* body_ = nullptr;
  void* stack_pointer_ = nullptr;
  void* host_stack_pointer_ = nullptr;
  bool finished_ = false;
  // What AddressSanitizer keeps for each side of the switch.
  void* fake_stack_ = nullptr;
  const void* host_stack_ = nullptr;
  size_t host_stack_bytes_ = 0;
};

}  // namespace pagemill::gpu::emulation

#endif  // PAGEMILL_CUDA_EMULATION_FIBER_H_
